//! Requirements of every run: the embedded formal system, processor, memory, disk.

use super::{Area, Check, CheckState};
use crate::args::DoctorArgs;
use sgs_formal::FormalSystem;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_run::config::SystemName;
use sgs_run::config::base_model;
use sgs_run::config::machine;
use sgs_selfplay::Verdict;
use std::path::Path;
use std::time::Instant;

/// Memory that the embedded default needs.
const MEMORY: u64 = 2 << 30;
/// Disk space that a run of a few rounds needs.
const DISK: u64 = 1 << 30;

/// Checks the requirements of every run.
pub fn area(args: &DoctorArgs) -> Area {
    let model = args.model.as_deref().map_or_else(base, |dir| model("model", dir));
    let checks = vec![slice(), model, processor(), memory(), disk(&args.dir)];
    let usable = checks.iter().all(|c| c.state != CheckState::Broken);
    Area { name: "metamath", purpose: "the embedded formal system on the CPU", usable, checks }
}

/// Loads the shipped slice, and verifies a valid and an invalid proof.
fn slice() -> Check {
    const NAME: &str = "slice of set.mm";
    let defect = |found: String| {
        Check::new(
            NAME,
            CheckState::Broken,
            found,
            "the program is damaged or has a bug: rebuild it, or report the bug",
        )
    };
    let started = Instant::now();
    let system = match Metamath::shipped() {
        Ok(system) => system,
        Err(error) => return defect(error.to_string()),
    };
    let theory = system.theory();
    let (Some(problem), Some(rule)) = (system.problem("syl"), theory.find("syl")) else {
        return defect("the theorem `syl` is missing".to_owned());
    };
    let Ok(Some(steps)) = theorem_proof(theory, rule, 60) else {
        return defect("the proof of `syl` cannot be read".to_owned());
    };
    let good = system.verify(&problem, &write_steps(theory, &steps));
    let wrong = system.verify(&problem, "h1");
    if good.verdict != Verdict::Proved || wrong.verdict != Verdict::Refused {
        return defect(format!(
            "the checker returns `{}` for a valid proof and `{}` for an invalid one",
            good.verdict.as_str(),
            wrong.verdict.as_str()
        ));
    }
    Check::ok(
        NAME,
        format!(
            "{} axioms and theorems, checker works, {:.1} s to load",
            theory.rules().len(),
            started.elapsed().as_secs_f64()
        ),
    )
}

/// Checks the shipped base model and the folder that it is unpacked into.
fn base() -> Check {
    const NAME: &str = "base model";
    match base_model::folder_for(SystemName::Metamath, None) {
        Ok(folder) => model(NAME, &folder),
        Err(error) => {
            let advice = "make the folder writable, or set XDG_CACHE_HOME to another one";
            Check::new(NAME, CheckState::Broken, format!("{error:#}"), advice)
        }
    }
}

fn model(name: &str, dir: &Path) -> Check {
    let loaded = HostWeights::load(dir).and_then(|weights| {
        let tokenizer = Tokenizer::load(dir)?;
        tokenizer.check_model(&weights.config)?;
        Ok((weights.config.parameters(), tokenizer.vocab_size()))
    });
    match loaded {
        Ok((parameters, vocabulary)) => Check::ok(
            name,
            format!("{}: {:.1} M parameters, {vocabulary} tokens", dir.display(), parameters as f64 / 1e6),
        ),
        Err(error) => Check::new(
            name,
            CheckState::Broken,
            error.to_string(),
            "give a folder with config.json, model.safetensors and tokenizer.json",
        ),
    }
}

fn processor() -> Check {
    let p = machine::processor();
    let name = p.name.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let features =
        if p.features.is_empty() { "no vector extensions detected".to_owned() } else { p.features.join(" ") };
    let found = format!("{name}, {} threads, {features}", p.threads);
    if cfg!(target_arch = "x86_64") && !(p.features.contains(&"avx2") && p.features.contains(&"fma")) {
        let advice = "without AVX2 and FMA, everything works but is several times slower";
        return Check::new("processor", CheckState::Warning, found, advice);
    }
    Check::ok("processor", found)
}

fn memory() -> Check {
    match machine::memory() {
        None => Check::new("memory", CheckState::Warning, "unknown", ""),
        Some(m) => {
            let found = format!("{} free of {}", machine::bytes(m.available), machine::bytes(m.total));
            if m.available < MEMORY {
                let advice = format!(
                    "the embedded default needs about {}: close other programs",
                    machine::bytes(MEMORY)
                );
                return Check::new("memory", CheckState::Warning, found, advice);
            }
            Check::ok("memory", found)
        }
    }
}

fn disk(dir: &Path) -> Check {
    match machine::free_disk(dir) {
        None => Check::new(
            "disk",
            CheckState::Broken,
            format!("cannot read {}", dir.display()),
            "pass an existing folder with --dir",
        ),
        Some(free) => {
            let found = format!("{} free in {}", machine::bytes(free), dir.display());
            if free < DISK {
                return Check::new(
                    "disk",
                    CheckState::Warning,
                    found,
                    "a run may fill the disk: free some space, or pass --out on another disk",
                );
            }
            Check::ok("disk", found)
        }
    }
}
