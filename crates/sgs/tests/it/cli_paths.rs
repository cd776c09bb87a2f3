//! Runs from several working directories, and commands that are given a folder of runs.

use crate::program::{ProgramOutput, command, file, finish, path, project, sgs};
use crate::small_run::settings_without_evaluation;
use sgs_rundir::directories::CHECKSUMS;
use sgs_rundir::{FrozenConfig, RunDir, RunView};
use std::path::Path;

const PROBLEMS: &str = r#"{"id": "a", "statement": "|- ( ph -> ph )"}
{"id": "b", "statement": "|- ( ph -> ( ps -> ph ) )"}
"#;

/// Executes a command in a folder.
fn sgs_in(folder: &Path, args: &[&str]) -> ProgramOutput {
    let mut command = command(args);
    command.current_dir(folder);
    finish(command)
}

/// Starts a run with relative paths in `folder`, and returns its path.
fn start(folder: &Path) -> String {
    file(folder, "mine.jsonl", PROBLEMS);
    file(folder, "others.jsonl", &PROBLEMS.replace("\"id\": \"", "\"id\": \"other-").replace("ps", "ch"));
    let model = project("crates/run/tests/data/small-model").canonicalize().unwrap();
    std::os::unix::fs::symlink(model, folder.join("model")).unwrap();
    let settings = settings_without_evaluation();
    let mut args: Vec<&str> = settings.iter().map(String::as_str).collect();
    for set in ["problems.set=mine.jsonl", "model.base=model", "model.guide=./model", "rounds=1"] {
        args.extend(["--set", set]);
    }
    sgs_in(folder, &[&args[..], &["--out", "run"]].concat()).expect(0);
    path(folder, "run")
}

fn rounds(run: &str) -> usize {
    RunView::open(Path::new(run)).unwrap().rounds().unwrap().len()
}

#[test]
fn a_run_with_relative_paths_is_resumed_from_any_folder() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = start(folder.path());
    let config_file = folder.path().join("run/config.toml");
    let config = std::fs::read_to_string(&config_file).unwrap();
    let here = folder.path().canonicalize().unwrap();
    for name in ["mine.jsonl", "model"] {
        assert!(config.contains(&format!("\"{}\"", here.join(name).display())), "{name}: {config}");
    }
    sgs_in(elsewhere.path(), &["resume", &run, "--rounds", "2"]).expect(0);
    assert_eq!(rounds(&run), 2);
    // Other commands on the run find its files, too.
    let target = "( ph -> ph )";
    sgs_in(elsewhere.path(), &["review", "--run", &run, "--target", target, "( ps -> ps )", "-n", "2"]);
    // The same command in the first folder recognises the run.
    let settings = settings_without_evaluation();
    let more = ["problems.set=mine.jsonl", "model.base=model", "model.guide=model", "rounds=1"];
    let more = more.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = settings.iter().map(String::as_str).chain(more).chain(["--out", "again"]).collect();
    let again = sgs_in(folder.path(), &args).expect(0);
    assert!(again.err.contains("run already has this configuration"), "{}", again.err);

    // A run of an older version of the program has relative paths and can be resumed from its own folder.
    let config = std::fs::read_to_string(&config_file).unwrap();
    std::fs::write(&config_file, config.replace(&format!("{}/", here.display()), "")).unwrap();
    std::fs::remove_file(folder.path().join("run").join(CHECKSUMS)).unwrap();
    let refused = sgs_in(elsewhere.path(), &["resume", &run, "--rounds", "3"]).expect(2);
    assert!(refused.err.contains("resume it from the folder where it began"), "{}", refused.err);
    sgs_in(folder.path(), &["resume", "run", "--rounds", "3"]).expect(0);
    assert_eq!(rounds(&run), 3);
}

#[test]
fn the_seed_of_a_run_does_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let plain = path(folder.path(), "plain");
    create(Path::new(&plain), &plain_config());
    for asked in [&["--seed", "5"][..], &["--set", "seed=5"]] {
        let refused = sgs(&[&["resume", &plain], asked].concat()).expect(2).err;
        assert!(refused.contains("cannot change within a run"), "{refused}");
        assert!(refused.contains("`sgs run sgs --size metamath-quick --rounds 3 --seed 5`"), "{refused}");
    }
    let own = path(folder.path(), "own");
    create(Path::new(&own), &plain_config().replace("batch_size = ", "batch_size = 1"));
    let refused = sgs(&["resume", &own, "--seed", "5"]).expect(2).err;
    let advice = format!("copy {own}/config.toml to FILE.toml");
    assert!(refused.contains(&advice) && refused.contains("`sgs run FILE.toml --seed 5`"), "{refused}");
    // The advice works.
    let config = std::fs::read_to_string(format!("{own}/config.toml")).unwrap();
    let copy = file(folder.path(), "copy.toml", config.split("[frozen]").next().unwrap());
    let shown = sgs(&["run", &copy, "--seed", "5", "--dry-run", "--json"]).expect(0).json();
    assert_eq!((&shown["config"]["seed"], &shown["config"]["rounds"]), (&5.into(), &3.into()));
}

/// Returns the configuration of `sgs run --rounds 3`.
fn plain_config() -> String {
    let shown = sgs(&["run", "--rounds", "3", "--dry-run", "--json"]).expect(0).json();
    let config: toml::Table = serde_json::from_value(shown["config"].clone()).unwrap();
    toml::to_string(&config).unwrap()
}

fn create(path: &Path, config: &str) {
    let config = FrozenConfig { text: config.to_owned(), version: "0.9".into(), data: Default::default() };
    drop(RunDir::create(path, &config, None).unwrap());
}

#[test]
fn a_folder_of_runs_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let runs = path(folder.path(), "runs");
    std::fs::create_dir(&runs).unwrap();
    let config = plain_config();
    for name in ["b", "c", "a 1", "d", "e", "f", "g"] {
        create(&Path::new(&runs).join(name), &config);
    }
    // This folder has a configuration, but is no run.
    std::fs::create_dir(Path::new(&runs).join("model")).unwrap();
    file(&Path::new(&runs).join("model"), "config.toml", "");
    let named = format!(
        "{runs} is not a run, but contains 7 runs: {runs}/a 1, {runs}/b, {runs}/c, {runs}/d, {runs}/e, and 2 more; "
    );
    for (command, advice) in [
        ("status", format!("give a run: `sgs status '{runs}/a 1'`")),
        ("report", format!("give a run: `sgs report '{runs}/a 1'`")),
        ("resume", format!("give a run: `sgs resume '{runs}/a 1'`")),
        ("export", format!("give a run: `sgs export '{runs}/a 1'`")),
        ("fit", format!("give a run: `sgs fit '{runs}/a 1'`")),
        ("compare", format!("give two or more runs: `sgs compare '{runs}/a 1' {runs}/b`")),
    ] {
        let refused = sgs(&[command, &runs]).expect(2).err;
        assert!(refused.contains(&format!("{named}{advice}")), "{command}: {refused}");
    }
    let empty = path(folder.path(), "empty");
    std::fs::create_dir(&empty).unwrap();
    let refused = sgs(&["status", &empty]).expect(2).err;
    assert!(refused.contains("is not a run: it has no config.toml"), "{refused}");
}
