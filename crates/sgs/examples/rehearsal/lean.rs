//! Creates an installation of Lean whose programs are the scripted REPL, and proofs that tell it how long to work.

use anyhow::{Context, Result};
use sgs_base::random::SeededRng;
use sgs_lean::{VERSION, setup::plan};
use std::fs;
use std::path::Path;

/// Share of the proofs that exceed the time limit (Kimina Lean Server, 1,000 proofs: 1.7%).
const TIMEOUTS: f64 = 0.017;
/// Share of the proofs that kill their process, twice.
const CRASHES: f64 = 0.002;
/// Share of the other proofs that are accepted.
const PROVED: f64 = 0.2;
/// Standard deviation of the logarithm of the other times.
const SPREAD: f64 = 1.2;

/// Returns texts that every role can read: a theorem, whose proof tells the scripted REPL what to do, and a review.
/// `mean` is the mean time of a check, in seconds. The times are log-normal.
pub fn answers(count: usize, mean: f64) -> Vec<String> {
    let mut rng = SeededRng::named(1, "rehearsal: checks");
    let median = 1000.0 * mean / (SPREAD * SPREAD / 2.0).exp();
    let mut answer = |i: usize| {
        let millis = median * (SPREAD * f64::from(rng.normal())).exp();
        let verdict = if rng.chance(PROVED) { "accepted" } else { "wrong" };
        let proof = match rng.uniform() {
            u if u < TIMEOUTS => "scripted_hang".to_owned(),
            u if u < TIMEOUTS + CRASHES => "scripted_crash".to_owned(),
            _ => format!("scripted_sleep_{millis:.0} scripted_{verdict}"),
        };
        let score = |name: &str, n: usize| format!("<begin_{name}_score>{n}<end_{name}_score>");
        format!(
            "\n```lean4\ntheorem rehearsed_{i} (a b : ℕ) : a + {i} * b = {i} * b + a := by\n  exact {proof}\n```\n{}{}{}\n",
            score("relevance", i % 6),
            score("redundancy", 0),
            score("conclusion_complexity", i % 3)
        )
    };
    (0..count).map(&mut answer).collect()
}

/// The programs of an installation.
pub const PROGRAMS: [&str; 3] = ["lean", "repl", "sgs-judge"];

/// Creates the files of `sgs lean setup` in `root`. `own`, this program, acts as all programs of the installation.
pub fn install(root: &Path, own: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let toolchain = format!("elan/toolchains/leanprover--lean4---{VERSION}");
    let write = |path: &Path, text: &str| -> Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, text).with_context(|| path.display().to_string())
    };
    let folders = [&*format!("{toolchain}/bin"), "repl/.lake/build/bin", "judge/.lake/build/bin"];
    for (folder, program) in folders.iter().zip(PROGRAMS) {
        let (folder, to) = (root.join(folder), root.join(folder).join(program));
        fs::create_dir_all(&folder)?;
        fs::hard_link(own, &to)
            .or_else(|_| fs::copy(own, &to).map(drop))
            .context(to.display().to_string())?;
    }
    for step in plan(root, VERSION, false).steps {
        step.files.iter().try_for_each(|(path, text, _)| write(path, text))?;
        let made = step.mark.iter().chain([&step.result]).filter(|path| !path.as_os_str().is_empty());
        for path in made.filter(|path| !path.exists()) {
            // `lean-toolchain` must name the version.
            write(path, &format!("leanprover/lean4:{VERSION}\n"))?;
        }
    }
    Ok(())
}
