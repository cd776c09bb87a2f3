//! A newcomer's path: the commands of README.md and of examples/README.md, pasted into a shell in their order.
//!
//! Variables of the environment make the runs short. A command that the table below does not know is a failure.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // tests say so by panicking

mod program;

use program::project;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How a command is tried.
enum How {
    /// As it stands; its exit code is one of these, and standard input is this.
    Pasted(&'static [i32], &'static str),
    /// With this behind it.
    With(&'static str),
    /// With this in the place of that.
    Instead(&'static str, &'static str),
    /// Only its words and options are understood: it needs what a test has not got, or hours.
    Read,
    /// It is no command of ours, or is what builds and runs this test.
    Cargo,
}

use How::{Cargo, Instead, Pasted, Read, With};

const WELL: How = Pasted(&[0], "");
/// A few samples of a small model may prove nothing.
const PROVED_OR_NOT: &[i32] = &[0, 1];

/// What keeps the runs short, as variables of the environment.
const SHORT: [(&str, &str); 9] = [
    ("rounds", "2"),
    ("minutes", "0"),
    ("algorithm.batch.size", "8"),
    ("algorithm.rollouts_per_problem", "4"),
    ("algorithm.optimizer.batch_size", "8"),
    ("evaluation.problems", "4"),
    ("evaluation.samples", "2"),
    ("evaluation.target_samples", "2"),
    ("sampling.batch", "64"),
];

/// Every command of the two files, and how it is tried.
const COMMANDS: &[(&str, How)] = &[
    ("cargo run --release -- run", Instead("cargo run --release --", "sgs")),
    ("cargo nextest run --release --workspace", Cargo),
    ("cargo install cargo-nextest --locked", Cargo),
    ("cargo install --path crates/sgs --locked", Cargo),
    ("cargo nextest run --release -p sgs-metamath --run-ignored only -E 'test(a_million_mutants)'", Cargo),
    ("cargo run --release -p sgs-metamath --example parse_all -- set.mm", Cargo),
    ("sgs prove \"|- ( ph -> ph )\"", WELL),
    ("sgs prove '( ph -> A. x ph )  ($d x ph)'", WELL),
    ("sgs eval --run runs/sgs-cispo-metamath-quick -k 8", With("--limit 4")),
    ("sgs conjecture --run runs/sgs-cispo-metamath-quick --problem syl", WELL),
    ("sgs review --problem syl \"( ph -> ph )\"", WELL),
    ("sgs export runs/sgs-cispo-metamath-quick --mm proved.mm", WELL),
    ("sgs export runs/sgs-cispo-metamath-quick --jsonl proofs.jsonl", WELL),
    ("sgs verify proofs.jsonl --export accepted.mm", WELL),
    ("sgs resume runs/sgs-cispo-metamath-quick --rounds 200", Instead("--rounds 200", "--rounds 3")),
    ("sgs run reinforce-half", WELL),
    ("sgs compare runs/sgs-cispo-metamath-quick runs/reinforce-half-metamath-quick", WELL),
    ("sgs report runs/sgs-cispo-metamath-quick runs/reinforce-half-metamath-quick", WELL),
    ("sgs train --from runs/sgs-cispo-metamath-quick/rounds/0000", WELL),
    ("sgs prove --run runs/sgs-cispo-metamath-quick", Pasted(PROVED_OR_NOT, "|- ( ph -> ph )\nsyl\n")),
    ("sgs run sgs --size metamath", WELL),
    ("sgs run examples/run.toml", WELL),
    ("sgs run --set algorithm.solver.learning_rate=5e-5", WELL),
    // Without a GPU it says what is missing.
    ("sgs run --set model.device=cuda", Pasted(PROVED_OR_NOT, "")),
    ("sgs run --explain", WELL),
    ("sgs run --dry-run", WELL),
    ("sgs run --size lean-d3k --dry-run", WELL),
    ("sgs run --serve", WELL),
    ("sgs sweep examples/sweep.toml", With("--jobs 2")),
    ("sgs sweep examples/compare-gpu.toml", With("--dry-run")),
    ("sgs run --workers local:2", WELL),
    ("sgs run --ranks 4 --set model.device=cuda", Read),
    ("sgs serve --out runs/a --listen 0.0.0.0:7717", Read),
    ("sgs worker generate --connect http://HOST:7717 --token-file FILE", Read),
    ("sgs worker verify --connect http://HOST:7717 --token-file FILE", Read),
    ("sgs fit examples/curve.csv", WELL),
    ("sgs data build --composed 1600000 --reviews 16", Instead("1600000", "100 --out data-built")),
    ("sgs pretrain presets/pretrain-metamath.toml --out base", Read),
    ("sgs sft train.toml --model BASE --out OUT --device cuda --ranks 4", Read),
    ("sgs data import THEIRS.parquet --out ours.jsonl", Read),
    ("sgs data filter examples/filter.toml --out d3k", Read),
    ("sgs lean setup --wasm", Read),
    ("sgs run --size lean-core", Read),
    ("sgs data compose --lean-checker wasm", Read),
    ("sgs lm check DIR", Read),
    ("sgs bench dispatch", Read),
    ("sgs completions bash", WELL),
    ("sgs doctor", WELL),
    ("sgs bench verify --system metamath", Read),
    ("sgs bench train --micro-batch-tokens 1024", Read),
    ("sgs bench sample --prompts 1 --prompt-tokens 1 --runs 8", Read),
    ("sgs eval -k 8", With("--limit 4")),
    // examples/README.md
    ("sgs run examples/run.toml --out runs/example", WELL),
    ("sgs sweep examples/learning-rates.toml --dry-run", WELL),
    ("sgs prove --run runs/example < examples/statements.txt", Pasted(PROVED_OR_NOT, "")),
    ("RUN=runs/example jupyter lab examples/tables.ipynb", Cargo),
];

/// The commands of a page in their order: lines of its blocks, and what stands between two back quotes.
fn commands_of(page: &str) -> Vec<String> {
    let is_command = |line: &str| {
        ["sgs ", "cargo ", "RUN="].iter().any(|word| line.starts_with(word)) && line.contains(' ')
    };
    let (mut all, mut seen, mut in_block) = (Vec::new(), BTreeSet::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let found: Vec<&str> = match in_block {
            true => vec![line],
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        for command in found.into_iter().filter(|command| is_command(command)) {
            // What stands behind is said, not run.
            let command = command.split(" # ").next().unwrap_or(command).trim_end().to_owned();
            // `sgs prove`, `sgs status DIR --serve`: prose speaks of a command, and of names in the place of words.
            let is_name = |word: &str| word.len() > 1 && word.chars().all(char::is_uppercase);
            let is_spoken_of =
                !in_block && (command.split(' ').count() < 3 || command.split(' ').any(is_name));
            if !is_spoken_of && seen.insert(command.clone()) {
                all.push(command);
            }
        }
    }
    all
}

/// A shell in a folder where the program is found first.
fn shell(folder: &Path, line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_sgs")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env_remove("RUST_LOG");
    shell.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env("CUDA_VISIBLE_DEVICES", "");
    for (key, value) in SHORT {
        shell.env(format!("SGS_SET_{}", key.to_uppercase().replace('.', "__")), value);
    }
    shell
}

fn try_one(folder: &Path, command: &str, how: &How) {
    let (line, codes, input) = match how {
        Cargo => return,
        Pasted(codes, input) => (command.to_owned(), *codes, *input),
        With(more) => (format!("{command} {more}"), &[0][..], ""),
        Instead(what, other) => {
            assert!(command.contains(what), "{command} has no {what}");
            (command.replace(what, other), &[0][..], "")
        }
        Read => (format!("{command} --help"), &[0][..], ""),
    };
    let started = Instant::now();
    let mut child = shell(folder, &line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    {
        use std::io::Write;
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let told = format!("$ {line}\n{out}\n{err}");
    assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{:?}: {told}", output.status);
    assert!(!err.contains("panicked"), "{told}");
    assert!(!out.is_empty() || !err.is_empty(), "{line} says nothing");
    eprintln!("{:5.1} s  {line}", started.elapsed().as_secs_f64());
}

#[test]
fn every_command_of_the_readme_is_known_and_none_is_known_in_vain() {
    let pages =
        ["README.md", "examples/README.md"].map(|page| std::fs::read_to_string(project(page)).unwrap());
    let there: BTreeSet<String> = pages.iter().flat_map(|page| commands_of(page)).collect();
    let known: BTreeSet<String> = COMMANDS.iter().map(|(command, _)| (*command).to_owned()).collect();
    let unknown: Vec<_> = there.difference(&known).collect();
    assert!(unknown.is_empty(), "commands that this test does not try: {unknown:#?}");
    let gone: Vec<_> = known.difference(&there).collect();
    assert!(gone.is_empty(), "commands that no page has: {gone:#?}");
    assert!(there.len() > 40);
}

/// What the other pages have pasted into a shell is understood, whatever it needs to be tried.
#[test]
fn every_command_of_the_other_pages_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = 0;
    for page in std::fs::read_dir(project("docs")).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            // As in `gpu1$  sgs worker …`.
            let line = line.split_once("$ ").map_or(line, |(_, command)| command.trim_start());
            let command = line.split(" #").next().unwrap_or(line).replace('…', " ");
            if !command.starts_with("sgs ") || command.contains(['|', '&', ';', '<', '>']) {
                continue;
            }
            let output = shell(folder.path(), &format!("{command} --help")).output().unwrap();
            assert!(
                output.status.success(),
                "{page:?}: {command}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            read += 1;
        }
    }
    assert!(read > 25, "{read}");
}

#[test]
#[ignore = "some minutes: every command of README.md; .ci/run runs it"]
fn the_path_of_a_newcomer_works_by_copy_and_paste() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["examples", "presets"] {
        symlink(project(name).canonicalize().unwrap(), folder.path().join(name)).unwrap();
    }
    for page in ["README.md", "examples/README.md"] {
        for command in commands_of(&std::fs::read_to_string(project(page)).unwrap()) {
            let how = COMMANDS.iter().find(|(known, _)| *known == command);
            let (_, how) = how.unwrap_or_else(|| panic!("`{command}` is not known to this test"));
            try_one(folder.path(), &command, how);
        }
    }
    for left in ["proved.mm", "accepted.mm", "proofs.jsonl", "runs/sweep/report/index.html"] {
        assert!(folder.path().join(left).is_file(), "{left}");
    }
    let report = folder.path().join("runs/sgs-cispo-metamath-quick/report/index.html");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg"));
}
