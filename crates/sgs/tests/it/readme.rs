//! Executes the commands of the README and other pages in order, as a newcomer would.
//!
//! Environment variables shorten the runs. Every command must be listed in [`COMMANDS`].
#![cfg(unix)]

use crate::program::project;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How a command is tested.
enum Check {
    /// Executed unchanged, with the allowed exit codes and standard input.
    Run(&'static [i32], &'static str),
    /// Executed with additional arguments.
    Append(&'static str),
    /// Executed with the first text replaced by the second.
    Replace(&'static str, &'static str),
    /// Only parsed, with `--help`, because it needs hours, special hardware or other machines.
    Parse,
    /// Not checked: another program, or the command that builds and runs this test.
    Skip,
}

use Check::{Append, Parse, Replace, Run, Skip};

const SUCCEEDS: Check = Run(&[0], "");
/// A few samples of a small model may find no proof.
const PROVED_OR_NOT: &[i32] = &[0, 1];

/// Settings that shorten the runs, passed as environment variables.
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

/// The pages whose commands are executed, in order: later pages use the runs of earlier ones.
const PAGES: [&str; 3] = ["README.md", "docs/commands.md", "examples/README.md"];

/// All commands of these pages and how they are tested.
const COMMANDS: &[(&str, Check)] = &[
    ("cargo run --release -- run", Replace("cargo run --release --", "sgs")),
    ("cargo nextest run --release --workspace", Skip),
    ("cargo install cargo-nextest --locked", Skip),
    ("cargo install --path crates/sgs --locked", Skip),
    ("cargo nextest run --release -p sgs-metamath --run-ignored only -E 'test(a_million_mutants)'", Skip),
    ("sgs prove \"|- ( ph -> ph )\"", SUCCEEDS),
    ("sgs prove '( ph -> A. x ph )  ($d x ph)'", SUCCEEDS),
    ("sgs eval --run runs/sgs-metamath-quick -k 8", Append("--limit 4")),
    ("sgs conjecture --run runs/sgs-metamath-quick --problem syl", SUCCEEDS),
    ("sgs review --problem syl \"( ph -> ph )\"", SUCCEEDS),
    ("sgs export runs/sgs-metamath-quick --mm proved.mm", SUCCEEDS),
    ("sgs export runs/sgs-metamath-quick --jsonl proofs.jsonl", SUCCEEDS),
    ("sgs verify proofs.jsonl", SUCCEEDS),
    ("sgs verify proofs.jsonl --export accepted.mm", SUCCEEDS),
    ("sgs schema run", SUCCEEDS),
    ("sgs resume runs/sgs-metamath-quick --rounds 200", Replace("--rounds 200", "--rounds 3")),
    ("sgs run reinforce-half", SUCCEEDS),
    ("sgs compare runs/sgs-metamath-quick runs/reinforce-half-metamath-quick", SUCCEEDS),
    ("sgs report runs/sgs-metamath-quick runs/reinforce-half-metamath-quick", SUCCEEDS),
    ("sgs train --from runs/sgs-metamath-quick/rounds/0000", SUCCEEDS),
    ("sgs prove --run runs/sgs-metamath-quick", Run(PROVED_OR_NOT, "|- ( ph -> ph )\nsyl\n")),
    ("sgs run sgs --size metamath", SUCCEEDS),
    ("sgs run examples/run.toml", SUCCEEDS),
    ("sgs run --set algorithm.solver.learning_rate=5e-5", SUCCEEDS),
    // Fails without a GPU.
    ("sgs run --device cuda", Run(PROVED_OR_NOT, "")),
    ("sgs run --explain", SUCCEEDS),
    ("sgs run --dry-run", SUCCEEDS),
    ("sgs run --serve", SUCCEEDS),
    ("sgs sweep examples/sweep.toml", Append("--jobs 2")),
    ("sgs sweep examples/compare-gpu.toml", Append("--dry-run")),
    ("sgs run --workers local:2", SUCCEEDS),
    ("sgs run --ranks 4 --device cuda", Parse),
    ("sgs serve --out runs/a --listen 0.0.0.0:7717", Parse),
    ("sgs worker generate --connect https://HOST:7717 --token-file FILE", Parse),
    ("sgs worker verify --connect https://HOST:7717 --token-file FILE", Parse),
    ("sgs fit examples/curve.csv", SUCCEEDS),
    ("sgs data build --composed 1600000 --reviews 16", Replace("1600000", "100 --out data-built")),
    ("sgs pretrain presets/pretrain-metamath.toml --out base", Parse),
    ("sgs sft train.toml --model BASE --out OUT --device cuda --ranks 4", Parse),
    ("sgs data import THEIRS.parquet --out ours.jsonl", Parse),
    ("sgs data filter examples/filter.toml --out d3k", Parse),
    ("sgs lean setup --wasm", Parse),
    ("sgs run --size lean-core", Parse),
    ("sgs data compose --lean-checker wasm", Parse),
    ("sgs lm check DIR", Parse),
    ("sgs bench dispatch", Parse),
    ("sgs completions bash", SUCCEEDS),
    ("sgs man run", SUCCEEDS),
    ("sgs doctor", SUCCEEDS),
    ("sgs bench verify", Parse),
    ("sgs bench train --micro-batch-tokens 1024", Parse),
    ("sgs bench sample --prompts 1 --prompt-tokens 1 --runs 8", Parse),
    // examples/README.md
    ("sgs run examples/run.toml --out runs/example", SUCCEEDS),
    ("sgs sweep examples/learning-rates.toml --dry-run", SUCCEEDS),
    ("sgs prove --run runs/example < examples/statements.txt", Run(PROVED_OR_NOT, "")),
    ("RUN=runs/example jupyter lab examples/tables.ipynb", Skip),
];

/// Returns the commands of a page in order: lines of code blocks, and inline code.
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
            // Remove the comment.
            let command = command.split(" # ").next().unwrap_or(command).trim_end().to_owned();
            // Inline code such as `sgs prove` or `sgs status DIR --serve` mentions a command or has placeholders.
            let is_placeholder = |word: &str| word.len() > 1 && word.chars().all(char::is_uppercase);
            let is_mention =
                !in_block && (command.split(' ').count() < 3 || command.split(' ').any(is_placeholder));
            if !is_mention && seen.insert(command.clone()) {
                all.push(command);
            }
        }
    }
    all
}

/// Returns a shell command line in a folder, with this build of `sgs` first on the `PATH`.
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

fn check_command(folder: &Path, command: &str, check: &Check) {
    let (line, codes, input) = match check {
        Skip => return,
        Run(codes, input) => (command.to_owned(), *codes, *input),
        Append(more) => (format!("{command} {more}"), &[0][..], ""),
        Replace(what, other) => {
            assert!(command.contains(what), "{command} has no {what}");
            (command.replace(what, other), &[0][..], "")
        }
        Parse => (format!("{command} --help"), &[0][..], ""),
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
        // The command may end without reading its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let transcript = format!("$ {line}\n{out}\n{err}");
    assert!(
        output.status.code().is_some_and(|code| codes.contains(&code)),
        "{:?}: {transcript}",
        output.status
    );
    assert!(!err.contains("panicked"), "{transcript}");
    assert!(!out.is_empty() || !err.is_empty(), "{line} prints nothing");
    eprintln!("{:5.1} s  {line}", started.elapsed().as_secs_f64());
}

#[test]
fn the_table_lists_exactly_the_commands_of_the_pages() {
    let pages = PAGES.map(|page| std::fs::read_to_string(project(page)).unwrap());
    let documented: BTreeSet<String> = pages.iter().flat_map(|page| commands_of(page)).collect();
    let known: BTreeSet<String> = COMMANDS.iter().map(|(command, _)| (*command).to_owned()).collect();
    let unknown: Vec<_> = documented.difference(&known).collect();
    assert!(unknown.is_empty(), "commands that COMMANDS lacks: {unknown:#?}");
    let obsolete: Vec<_> = known.difference(&documented).collect();
    assert!(obsolete.is_empty(), "COMMANDS has entries that no page contains: {obsolete:#?}");
    assert!(documented.len() > 40);
}

/// The commands in code blocks of all documents are parsed, but not executed.
#[test]
fn commands_of_the_other_pages_parse() {
    let folder = tempfile::tempdir().unwrap();
    let mut parsed = 0;
    for page in std::fs::read_dir(project("docs")).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            // Remove a prompt such as `gpu1$`.
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
            parsed += 1;
        }
    }
    assert!(parsed > 25, "{parsed}");
}

#[test]
#[ignore = "some minutes: every command of README.md; .ci/run runs it"]
fn the_path_of_a_newcomer_works_by_copy_and_paste() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["examples", "presets"] {
        symlink(project(name).canonicalize().unwrap(), folder.path().join(name)).unwrap();
    }
    for page in PAGES {
        for command in commands_of(&std::fs::read_to_string(project(page)).unwrap()) {
            let check = COMMANDS.iter().find(|(known, _)| *known == command);
            let (_, check) = check.unwrap_or_else(|| panic!("COMMANDS lacks `{command}`"));
            check_command(folder.path(), &command, check);
        }
    }
    for output in ["proved.mm", "accepted.mm", "proofs.jsonl", "runs/sweep/report/index.html"] {
        assert!(folder.path().join(output).is_file(), "{output}");
    }
    let report = folder.path().join("runs/sgs-metamath-quick/report/index.html");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg"));
}
