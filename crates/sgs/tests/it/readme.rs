//! Executes the commands of the README and other pages in order, as a newcomer would.
//!
//! Environment variables shorten the runs. Every command must be listed in [`COMMANDS`].
#![cfg(unix)]

use crate::program::{file, project, sgs, small_recipe};
use sgs_analysis::stats::seed_mean;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How a command is tested.
enum Check {
    /// Executed unchanged, with the allowed exit codes and standard input.
    Run(&'static [i32], &'static str),
    /// Executed with additional arguments.
    Append(&'static str),
    /// Executed with the first text replaced by the second.
    Replace(&'static str, &'static str),
    /// Started, and left running for the commands that follow.
    Start,
    /// Only parsed, with `--help`, because it needs hours, special hardware or other machines.
    Parse,
    /// Not checked: another program, or the command that builds and runs this test.
    Skip,
}

use Check::{Append, Parse, Replace, Run, Skip, Start};

const SUCCEEDS: Check = Run(&[0], "");
/// A few samples of a small model may find no proof.
const PROVED_OR_NOT: &[i32] = &[0, 1];

/// Exit codes of a command that needs a GPU.
const DONE_OR_NO_GPU: &[i32] = &[0, 2];

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
const PAGES: [&str; 4] = ["README.md", "docs/commands.md", "docs/guides.md", "examples/README.md"];

/// All commands of these pages and how they are tested.
const COMMANDS: &[(&str, Check)] = &[
    ("cargo run --release -- run", Replace("cargo run --release --", "sgs")),
    ("cargo install --path crates/sgs --locked", Skip),
    ("cargo nextest run --release -p sgs-metamath --run-ignored only -E 'test(a_million_mutants)'", Skip),
    ("cargo nextest run --release --workspace", Skip),
    ("cargo nextest run --release --workspace -E 'test(every_method_runs)'", Skip),
    ("cargo install cargo-nextest just --locked", Skip),
    ("sgs prove \"( ( A C_ B /\\ B C_ C ) -> A C_ ( C u. D ) )\"", SUCCEEDS),
    ("sgs prove '( ph -> A. x ph )  ($d x ph)'", SUCCEEDS),
    ("sgs eval --run runs/sgs-metamath-quick --problems held-out -k 8", Append("--limit 4")),
    ("sgs conjecture --run runs/sgs-metamath-quick --problem syl", SUCCEEDS),
    ("sgs review --problem syl \"( ph -> ph )\"", SUCCEEDS),
    ("sgs export runs/sgs-metamath-quick --mm proved.mm", SUCCEEDS),
    ("sgs export runs/sgs-metamath-quick --jsonl proofs.jsonl", SUCCEEDS),
    ("sgs verify proofs.jsonl", SUCCEEDS),
    ("sgs verify proofs.jsonl --export accepted.mm", SUCCEEDS),
    ("sgs schema run", SUCCEEDS),
    ("sgs resume runs/sgs-metamath-quick --rounds 120", Replace("--rounds 120", "--rounds 3")),
    ("sgs run cispo", SUCCEEDS),
    ("sgs compare runs/sgs-metamath-quick runs/cispo-metamath-quick", SUCCEEDS),
    ("sgs report runs/sgs-metamath-quick runs/cispo-metamath-quick", SUCCEEDS),
    ("sgs run --as-paper", SUCCEEDS),
    ("sgs prove --run runs/sgs-metamath-quick", Run(PROVED_OR_NOT, "|- ( ph -> ph )\nsyl\n")),
    ("sgs run sgs --size metamath", SUCCEEDS),
    ("sgs run examples/run.toml", SUCCEEDS),
    ("sgs run --set algorithm.solver.learning_rate=5e-5", SUCCEEDS),
    ("sgs run --device cuda", Run(DONE_OR_NO_GPU, "")),
    ("sgs run --explain", SUCCEEDS),
    ("sgs run --dry-run", SUCCEEDS),
    ("sgs run --serve", SUCCEEDS),
    ("sgs sweep examples/sweep.toml", Append("--jobs 2")),
    ("sgs sweep examples/compare-gpu.toml", Append("--dry-run")),
    ("sgs run --workers local:2", SUCCEEDS),
    ("sgs fit examples/curve.csv", SUCCEEDS),
    ("sgs data build --composed 1600000 --reviews 16", Replace("1600000", "100 --out data-built")),
    ("sgs pretrain presets/pretrain-metamath.toml --out base", Parse),
    ("sgs sft train.toml --model BASE --out OUT --device cuda --ranks 4", Parse),
    ("sgs data import THEIRS.parquet --out ours.jsonl", Parse),
    ("sgs data filter examples/filter.toml --out d3k", Parse),
    ("sgs completions bash", SUCCEEDS),
    ("sgs man run", SUCCEEDS),
    ("sgs doctor", SUCCEEDS),
    ("sgs bench verify", Parse),
    // docs/guides.md
    ("sgs lean prompts", SUCCEEDS),
    (
        "printf '{\"id\": \"mine-%s\", \"statement\": \"|- %s\"}\\n' 1 '( ph -> ph )' 2 '( ph -> ( ps -> ph ) )' > mine.jsonl",
        Append("&& cat mine.jsonl"),
    ),
    ("sgs eval --problems mine.jsonl -k 4", SUCCEEDS),
    (
        "sgs run --set problems.set=mine.jsonl --rounds 20 --out runs/mine",
        Replace("--rounds 20", "--rounds 2"),
    ),
    ("sgs export runs/mine --only targets", SUCCEEDS),
    ("sgs data build --source mine.mm", Append("--composed 20 --reviews 1")),
    (
        "sgs pretrain presets/pretrain-metamath.toml --out own-base",
        Replace("presets/pretrain-metamath", "small"),
    ),
    (
        "sgs run --set problems.database=mine.mm --set problems.set=train --set model.base=own-base/model --out runs/own-database",
        Append("--set algorithm.guide.min_readable=0"),
    ),
    ("sgs run --set model.base=runs/sgs-metamath-quick/base --out runs/own-model", SUCCEEDS),
    ("sgs data import", Parse),
    ("sgs data build", Parse),
    ("sgs run --set algorithm.guide.kind=rubric --out runs/rubric", SUCCEEDS),
    ("sgs review --problem syl \"( ps -> ps )\"", SUCCEEDS),
    (
        "sgs data reviews runs/rubric runs/sgs-metamath-quick --out reviews -n 300 --held-out 50",
        Replace("-n 300 --held-out 50", "-n 4 --held-out 2"),
    ),
    ("sgs sft reviews/sft.toml --model runs/rubric/base --out guide", SUCCEEDS),
    ("sgs eval --model guide/model --reviews reviews/guide-held-out.parquet --only-reviews", SUCCEEDS),
    ("sgs run --set model.guide=guide/model --out runs/trained-guide", SUCCEEDS),
    ("sgs serve-model --run runs/sgs-metamath-quick --listen 127.0.0.1:8000", Start),
    ("sgs eval --endpoint http://127.0.0.1:8000/v1 --problems held-out -k 8", Append("--limit 4")),
    ("sgs serve-model --run runs/sgs-metamath-quick --role guide --listen 127.0.0.1:8001", Start),
    (
        "sgs run --set sampling.endpoint.url=http://127.0.0.1:8001/v1 --set 'sampling.endpoint.roles=[\"guide\"]'",
        SUCCEEDS,
    ),
    ("cargo doc -p sgs-run --open", Skip),
    ("cargo run --release -p sgs-run --example echo -- runs/echo", Skip),
    ("sgs serve --out runs/shared --listen 0.0.0.0:7717", Start),
    ("sgs worker generate --connect https://HOST:7717 --token-file runs/shared/fleet.token", Start),
    ("sgs worker verify --connect https://HOST:7717 --token-file runs/shared/fleet.token", SUCCEEDS),
    // examples/README.md
    ("sgs run examples/run.toml --out runs/example", SUCCEEDS),
    ("sgs sweep examples/deep.toml --dry-run", SUCCEEDS),
    ("sgs sweep examples/congruence.toml --out /dev/shm/congruence", Append("--dry-run")),
    ("sgs sweep examples/congruence-cpu.toml", Append("--dry-run")),
    ("sgs prove --run runs/example < examples/statements.txt", Run(PROVED_OR_NOT, "")),
    ("RUN=runs/example jupyter lab examples/tables.ipynb", Skip),
];

/// Returns the commands of a page in order: lines of code blocks, and inline code.
fn commands_of(page: &str) -> Vec<String> {
    let is_command = |line: &str| {
        ["sgs ", "cargo ", "printf ", "RUN="].iter().any(|word| line.starts_with(word)) && line.contains(' ')
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

/// Returns a command with free ports of this machine as the addresses.
fn on_this_machine(line: &str) -> String {
    static PORTS: LazyLock<[String; 2]> = LazyLock::new(|| {
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        free.map(|port| port.local_addr().unwrap().port().to_string())
    });
    line.replace("HOST", "127.0.0.1").replace("8000", &PORTS[0]).replace("7717", &PORTS[1])
}

/// A process that the test ends.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command, and waits until it listens, if it does.
fn start(folder: &Path, command: &str) -> Started {
    let line = on_this_machine(command);
    let mut started = Started(shell(folder, &format!("exec {line}")).stdin(Stdio::null()).spawn().unwrap());
    let Some((_, port)) = line.split_once("--listen ").and_then(|(_, address)| address.split_once(':'))
    else {
        return started;
    };
    let deadline = Instant::now() + crate::small_run::PATIENCE;
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        assert!(
            started.0.try_wait().unwrap().is_none() && Instant::now() < deadline,
            "{line} does not listen"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    started
}

fn check_command(folder: &Path, command: &str, check: &Check) {
    let (line, codes, input) = match check {
        Skip | Start => return,
        Run(codes, input) => (command.to_owned(), *codes, *input),
        Append(more) => (format!("{command} {more}"), &[0][..], ""),
        Replace(what, other) => {
            assert!(command.contains(what), "{command} has no {what}");
            (command.replace(what, other), &[0][..], "")
        }
        Parse => (format!("{command} --help"), &[0][..], ""),
    };
    let started = Instant::now();
    let line = on_this_machine(&line);
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

/// Substitutes for modules that the guides import and that CI does not have. Each checks the calls that it receives.
const STAND_INS: [(&str, &str); 2] = [
    (
        "mlflow.py",
        "import contextlib, re\n\
         def start_run(run_name): return contextlib.nullcontext()\n\
         def log_metrics(values, step):\n    \
             assert values and all(re.fullmatch(r'[/\\w.\\- :]+', k) and float(v) is not None for k, v in values.items())\n    \
             print(step)\n",
    ),
    (
        "wandb.py",
        "import contextlib\n\
         class Run:\n    \
             def log(self, values, step): print(step, sum(map(float, values.values())))\n\
         def init(project, name): return contextlib.nullcontext(Run())\n",
    ),
];

/// Executes the Python programs of the guides in the folder that contains the runs of the README's commands.
fn check_programs(folder: &Path) {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for (name, text) in STAND_INS {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let page = std::fs::read_to_string(project("docs/guides.md")).unwrap();
    let programs: Vec<&str> =
        page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(programs.len(), 4);
    for program in programs {
        let output =
            Command::new(&python).args(["-c", program]).current_dir(folder).env("PYTHONPATH", ".").output();
        let output = output.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        let lacks = |module: &&str| {
            err.contains(&format!("No module named '{module}'")) && !required.contains(*module)
        };
        if let Some(module) = ["polars", "duckdb"].iter().find(|module| lacks(module)) {
            println!("skipped: {python} has no {module}");
            continue;
        }
        assert!(output.status.success() && !out.is_empty(), "{program}\n{out}\n{err}");
    }
}

/// Every sweep in `examples/`, with the method files that it names.
#[test]
fn every_example_sweep_is_accepted() {
    let mut count = 0;
    for entry in std::fs::read_dir(project("examples")).unwrap() {
        let path = entry.unwrap().path();
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        if is_toml && std::fs::read_to_string(&path).unwrap().contains("\nmethods = ") {
            sgs(&["sweep", path.to_str().unwrap(), "--dry-run"]).expect(0);
            count += 1;
        }
    }
    assert!(count > 10, "only {count} sweeps");
}

#[test]
fn the_commands_of_the_kubernetes_example_parse() {
    let text = std::fs::read_to_string(project("examples/kubernetes.yaml")).unwrap();
    let commands: Vec<&str> =
        text.split("exec ").skip(1).map(|rest| rest.split([';', '\n']).next().unwrap()).collect();
    assert_eq!(commands.len(), 4);
    for command in commands {
        let output = shell(Path::new("."), &format!("{command} --help")).output().unwrap();
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Returns the commands of a container recipe and its comments, as command lines of `sgs`.
fn commands_of_recipe(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in
        text.lines().filter(|line| !line.contains("docker build") && !line.contains("apptainer build"))
    {
        // Docker's image `sgs` and Apptainer's `sgs.sif` take the arguments of the program.
        let line = line.replace("sgs.sif ", "sgs ");
        let command = line.split_once(" sgs ").map(|(_, rest)| rest.split([';', '#']).next().unwrap());
        // The run script passes on all arguments.
        found.extend(command.filter(|command| *command != "\"$@\"").map(|command| format!("sgs {command}")));
    }
    found
}

/// Returns the sources that a container recipe copies, with the stage that they come from; empty: the repository.
fn copies_of_recipe(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut section = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('%') {
            section = line;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (stage, paths) = match (&words[..], section.strip_prefix("%files")) {
            (["COPY", paths @ ..], _) => match paths[0].strip_prefix("--from=") {
                Some(stage) => (stage, &paths[1..]),
                None => ("", paths),
            },
            (paths @ [_, _], Some(stage)) => (stage.trim_start().trim_start_matches("from "), paths),
            _ => continue,
        };
        if let [sources @ .., _] = paths
            && !line.starts_with('%')
        {
            found.extend(sources.iter().map(|source| (stage.to_owned(), (*source).to_owned())));
        }
    }
    found
}

/// The recipes cannot be built here, but their paths exist and their commands parse.
#[test]
fn the_container_recipes_copy_existing_files_and_their_commands_parse() {
    let version = std::fs::read_to_string(project("Cargo.toml")).unwrap();
    let version = version.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
    let version = version.trim_end_matches('"');
    for (name, commands) in [("Dockerfile", 2), ("sgs.def", 3)] {
        let text = std::fs::read_to_string(project("examples/container").join(name)).unwrap();
        assert!(text.contains(&format!("rust:{version}-")), "{name}: Rust {version}");
        let copies = copies_of_recipe(&text);
        assert_eq!(copies.len(), 2, "{name}: {copies:?}");
        for (stage, source) in &copies {
            match stage.as_str() {
                "" => assert!(project(source).exists(), "{name}: {source}"),
                // The stage `build` installs the program.
                stage => {
                    assert_eq!(stage, "build", "{name}");
                    let root = source.strip_suffix("/bin/sgs").unwrap();
                    assert!(text.contains(&format!("--locked --root {root}\n")), "{name}: {source}");
                }
            }
        }
        for path in text
            .split([' ', '\n'])
            .filter(|word| word.starts_with("examples/") || word.starts_with("crates/"))
        {
            assert!(project(path).exists(), "{name}: {path}");
        }
        let found = commands_of_recipe(&text);
        assert_eq!(found.len(), commands, "{name}: {found:?}");
        for command in found {
            let output = shell(Path::new("."), &format!("{command} --help")).output().unwrap();
            assert!(
                output.status.success(),
                "{name}: {command}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn the_kubernetes_example_matches_the_schema() {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let example = project("examples/kubernetes.yaml");
    let ran =
        Command::new(&python).args(["-m", "kubernetes_validate", "--strict"]).arg(&example).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if err.contains("No module named") {
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        assert!(!required.contains("kubernetes_validate"), "SGS_REQUIRE names kubernetes_validate: {err}");
        println!("skipped: {python} has no kubernetes_validate");
        return;
    }
    assert!(ran.status.success(), "{out}\n{err}");
    assert_eq!(format!("{out}{err}").matches(" passed for resource ").count(), 5, "{out}\n{err}");
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
    for (there, name) in [
        ("examples", "examples"),
        ("presets", "presets"),
        ("crates/formal/metamath/tests/data/mini.mm", "mine.mm"),
    ] {
        symlink(project(there).canonicalize().unwrap(), folder.path().join(name)).unwrap();
    }
    file(folder.path(), "small.toml", &small_recipe());
    let mut started = Vec::new();
    for page in PAGES {
        for command in commands_of(&std::fs::read_to_string(project(page)).unwrap()) {
            let check = COMMANDS.iter().find(|(known, _)| *known == command);
            let (_, check) = check.unwrap_or_else(|| panic!("COMMANDS lacks `{command}`"));
            if let Start = check {
                started.push((command.clone(), start(folder.path(), &command)));
            }
            check_command(folder.path(), &command, check);
        }
    }
    // The run and its worker end on their own. The server must be stopped.
    for (command, mut child) in started.into_iter().filter(|(command, _)| !command.contains("serve-model")) {
        assert!(child.0.wait().unwrap().success(), "{command}");
    }
    check_programs(folder.path());
    for output in ["proved.mm", "accepted.mm", "proofs.jsonl", "runs/sweep/report/index.html"] {
        assert!(folder.path().join(output).is_file(), "{output}");
    }
    let report = folder.path().join("runs/sgs-metamath-quick/report/index.html");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg"));
}

/// Returns the Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The documents name tests as nextest's filters do: `test(PART OF A NAME)`.
#[test]
fn every_test_that_the_documents_name_exists() {
    let mut files = Vec::new();
    sources(&project("crates"), &mut files);
    let mut names = BTreeSet::new();
    for file in &files {
        names.insert(file.file_stem().unwrap().to_str().unwrap().to_owned());
        let text = std::fs::read_to_string(file).unwrap();
        names.extend(text.split("fn ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
    }
    let mut documents: Vec<_> =
        std::fs::read_dir(project("docs")).unwrap().map(|e| e.unwrap().path()).collect();
    documents.push(project("README.md"));
    let mut count = 0;
    for document in documents.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(document).unwrap();
        let filters = text.split("test(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for part in filters.flat_map(|filter| filter.trim_matches('/').split('|')) {
            let part = part.trim_start_matches('^').trim_end_matches("::");
            assert!(names.iter().any(|name| name.contains(part)), "{}: test({part})", document.display());
            count += 1;
        }
    }
    assert!(count > 50, "only {count} tests are named");
}

/// A crate's package holds its own folder only. Other files that it embeds are links in that folder.
#[test]
fn every_embedded_file_is_in_the_folder_of_its_crate() {
    let mut files = Vec::new();
    sources(&project("crates"), &mut files);
    let mut count = 0;
    for file in files.iter().filter(|file| file.components().any(|part| part.as_os_str() == "src")) {
        let package = file.ancestors().find(|folder| folder.join("Cargo.toml").is_file()).unwrap();
        let depth = file.parent().unwrap().strip_prefix(package).unwrap().components().count();
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let calls = ["include_str!(", "include_bytes!("].map(|call| text.split(call).skip(1));
        for rest in calls.into_iter().flatten().filter(|_| !file.ends_with("tests.rs")) {
            // A macro may embed several files of a folder.
            let path = rest.trim_start().trim_start_matches("concat!(").trim_start_matches('"');
            let path = path.split('"').next().unwrap();
            let ups = path.split('/').take_while(|part| *part == "..").count();
            assert!(ups <= depth && file.with_file_name(path).exists(), "{}: {path}", file.display());
            count += 1;
        }
    }
    assert!(count > 60, "only {count} files are embedded");
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in page.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let anchor: String = heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        found.extend(std::iter::once(anchor.clone()).chain(numbered).find(|name| !found.contains(name)));
    }
    found
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let mut pages =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md"].map(project).to_vec();
    pages.extend(
        ["data/metamath/README.md", "data/metamath/base/README.md", "data/lean/base/README.md"].map(project),
    );
    pages.extend(std::fs::read_dir(project("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        let prose: String =
            text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2)).collect();
        for link in prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let there = anchors(&std::fs::read_to_string(target).unwrap());
                assert!(there.contains(anchor), "{}: {link} is none of {there:#?}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 80, "only {count} links");
}

/// Parses a number of a document, whose minus sign is not a hyphen.
fn number(text: &str) -> f64 {
    text.trim().replace('\u{2212}', "-").parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// A run of a table of `docs/figures`: its points, as generations, tokens and the solve rate, and the pass@k of its last
/// weights.
#[derive(Default)]
struct MeasuredRun {
    points: Vec<[f64; 3]>,
    held_out: [f64; 4],
}

/// Reads the measured runs of a table by method and seed, with the columns of these pass@k.
fn measured_runs(file: &str, pass: [&str; 4]) -> BTreeMap<String, BTreeMap<String, MeasuredRun>> {
    let mut table = csv::Reader::from_path(project(&format!("docs/figures/{file}"))).unwrap();
    let names = table.headers().unwrap().clone();
    let column = |name: &str| names.iter().position(|other| other == name).unwrap();
    let curve = ["generations", "tokens", "rate"].map(column);
    let held_out = pass.map(column);
    let mut runs: BTreeMap<String, BTreeMap<String, MeasuredRun>> = BTreeMap::new();
    for row in table.records() {
        let row = row.unwrap();
        let seeds = runs.entry(row[column("run")].to_owned()).or_default();
        let run = seeds.entry(row[column("seed")].to_owned()).or_default();
        run.points.push(curve.map(|at| number(&row[at])));
        if !row[held_out[0]].is_empty() {
            run.held_out = held_out.map(|at| number(&row[at]));
        }
    }
    runs
}

/// A column of the table in `docs/results.md`: the index of a value in the rows of [`check_table`].
#[derive(Clone, Copy)]
enum Column {
    Mean(usize),
    /// The difference from the baseline, paired by seed.
    Difference(usize),
}

const COLUMNS: [Column; 8] = [
    Column::Mean(0),
    Column::Difference(0),
    Column::Mean(1),
    Column::Mean(2),
    Column::Mean(3),
    Column::Mean(4),
    Column::Mean(5),
    Column::Difference(4),
];

/// Checks the means, their intervals and the differences from the baseline in the table of `docs/results.md`.
#[test]
fn the_results_are_those_of_the_measured_runs() {
    let page = std::fs::read_to_string(project("docs/results.md")).unwrap();
    check_table(&page, "metamath-congruence.csv", ["pass_1", "pass_8", "pass_32", "pass_64"]);
    assert!(page.split_whitespace().count() <= 900);
}

/// Checks the table of a section against the measured runs of a file: solved targets at equal generations and at equal
/// tokens, and four held-out pass@k.
fn check_table(section: &str, file: &str, pass: [&str; 4]) {
    const BASELINE: &str = "reinforce-half";
    let runs = measured_runs(file, pass);
    // Methods are compared at the end of the shortest run.
    let ends = |of: usize| {
        runs.values().flat_map(|seeds| seeds.values()).map(move |run| run.points.last().unwrap()[of])
    };
    let [generations, tokens] = [0, 1].map(|of| ends(of).fold(f64::INFINITY, f64::min));
    let rows_of = |method: &str| {
        runs[method].values().map(|run| {
            let at = |of: usize, end: f64| run.points.iter().rfind(|point| point[of] <= end).unwrap()[2];
            let [one, eight, half, all] = run.held_out;
            [at(0, generations), at(1, tokens), one, eight, half, all].map(|share| 100.0 * share)
        })
    };
    let mean = |values: &[f64]| seed_mean(values).map(|mean| (mean.mean, mean.half.unwrap())).unwrap();
    assert_eq!(section.matches("|---").count(), COLUMNS.len() + 1, "a section has one table");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let mut methods = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let method = &*cells[0].replace('`', "");
        methods.push(method.to_owned());
        assert_eq!(runs[method].len(), 5, "{method}");
        assert_eq!(cells.len(), COLUMNS.len() + 1, "{method}");
        for (cell, column) in cells[1..].iter().zip(COLUMNS) {
            let (values, is_empty): (Vec<f64>, bool) = match column {
                Column::Mean(i) => (rows_of(method).map(|row| row[i]).collect(), false),
                Column::Difference(i) => {
                    let pairs = rows_of(method).zip(rows_of(BASELINE));
                    (pairs.map(|(row, base)| row[i] - base[i]).collect(), method == BASELINE)
                }
            };
            assert_eq!(cell.is_empty(), is_empty, "{method}: {cell}");
            if !is_empty {
                check_cell(&format!("{method}: {cell}"), cell, mean(&values));
            }
        }
    }
    methods.sort_unstable();
    assert!(methods.iter().eq(runs.keys()), "{file}: {methods:?}");
}

/// Checks `MEAN`, `MEAN±HALF` or `MEAN [LOW,HIGH]`. The ends of the last form, a bootstrap over problems, are not computed
/// here.
fn check_cell(what: &str, cell: &str, (mean, half): (f64, f64)) {
    let is_close = |told: &str, measured: f64| (number(told) - measured).abs() < 0.06;
    if let Some((told, interval)) = cell.split_once(" [") {
        let (low, high) = interval.strip_suffix(']').and_then(|ends| ends.split_once(',')).unwrap();
        assert!(is_close(told, mean), "{what}: not {mean}");
        assert!((number(low)..=number(high)).contains(&number(told)), "{what}");
        return;
    }
    // An interval that is rounded to 0 is left out.
    let (told, told_half) = cell.split_once('±').unwrap_or((cell, "0.0"));
    assert!(is_close(told, mean) && is_close(told_half, half), "{what}: not {mean}±{half}");
}
