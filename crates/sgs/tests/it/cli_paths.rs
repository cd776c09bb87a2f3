//! Runs from several working directories.

use crate::program::{ProgramOutput, command, file, finish, path, project, sgs};
use crate::small_run::settings_without_evaluation;
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
}

#[test]
fn a_missing_run_is_answered_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        FrozenConfig { text: "rounds = 3\n".to_owned(), version: "0.9".into(), data: Default::default() };
    std::fs::create_dir(folder.path().join("runs")).unwrap();
    drop(RunDir::create(&folder.path().join("runs/sgs-metamath-quick"), &config, None).unwrap());
    let wrong = "runs/sgs-metamath-quik";
    for args in [
        &["report", wrong][..],
        &["status", wrong],
        &["resume", wrong],
        &["compare", wrong, "runs/sgs-metamath-quick"],
        &["fit", wrong],
        &["export", wrong],
        &["doctor", wrong],
        &["prove", "--run", wrong, "|- ph"],
        &["eval", "--run", wrong],
    ] {
        let told = sgs_in(folder.path(), args).expect(2).err;
        assert!(told.contains("did you mean `runs/sgs-metamath-quick`?"), "{args:?}: {told}");
    }
    file(folder.path(), "mine.jsonl", PROBLEMS);
    std::os::unix::fs::symlink(
        project("crates/run/tests/data/small-model").canonicalize().unwrap(),
        folder.path().join("model"),
    )
    .unwrap();
    for (setting, meant) in [
        ("problems.set=mine.jsnl", "mine.jsonl"),
        ("model.base=./modle", "./model"),
        ("model.guide=modl", "model"),
    ] {
        let told = sgs_in(folder.path(), &["run", "--set", setting]).expect(2).err;
        assert!(told.contains(&format!("; did you mean `{meant}`?")), "{setting}: {told}");
    }
    let told = sgs_in(folder.path(), &["verify", "mine.json"]).expect(2).err;
    assert!(
        told.contains("mine.json: there is no such file or folder; did you mean `mine.jsonl`?"),
        "{told}"
    );
}

#[test]
fn the_seed_of_a_run_does_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let run = start(folder.path());
    let refused = sgs(&["resume", &run, "--set", "seed=5"]).expect(2).err;
    assert!(refused.contains("seed"), "{refused}");
}

#[test]
fn a_folder_of_runs_is_expanded_or_explained() {
    let folder = tempfile::tempdir().unwrap();
    let runs = path(folder.path(), "runs");
    for name in ["b", "a 1"] {
        let run = path(Path::new(&runs), name);
        let args = [&settings_without_evaluation()[..], &["--out".to_owned(), run]].concat();
        sgs(&args).expect(0);
    }
    std::fs::create_dir(Path::new(&runs).join("report")).unwrap();
    let explained = format!("{runs} is not a run, but contains 2 runs; give one of them: `");
    for (args, words) in [
        (&["status", &runs][..], "sgs status"),
        (&["resume", &runs], "sgs resume"),
        (&["export", &runs], "sgs export"),
        (&["doctor", &runs], "sgs doctor"),
        (&["prove", "--run", &runs, "|- ph"], "--run"),
        (&["eval", "--run", &runs], "--run"),
    ] {
        let refused = sgs(args).expect(2).err;
        assert!(refused.contains(&format!("{explained}{words} '{runs}/a 1'`")), "{refused}");
    }
    let fitted = sgs(&["fit", &runs]).err + &sgs(&["fit", &runs]).out;
    assert!(fitted.contains("runs/a 1") && fitted.contains("runs/b"), "{fitted}");
    let compared = sgs(&["compare", &runs]).expect(0).out;
    assert!(compared.contains("runs/a 1") && compared.contains("copies of one run"), "{compared}");
    let report = path(folder.path(), "report");
    sgs(&["report", &runs, "--out", &report]).expect(0);
    let page = std::fs::read_to_string(format!("{report}/index.html")).unwrap();
    assert!(page.contains("Comparison of 2 runs"));
    let empty = path(folder.path(), "empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(sgs(&["status", &empty]).expect(2).err.contains("is not a run: it has no config.toml"));
}
