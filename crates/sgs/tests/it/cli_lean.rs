//! `sgs lean setup`, `sgs verify --system lean`, and the launcher of the sandbox.

use crate::lean_fixtures;
use crate::program::{command, file, path, project, sgs};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PROOF: &str = r#"{"id":"a","header":"","statement":"theorem a (p : Prop) (h : p) : p := by","proof":"\n  exact h"}
"#;

#[test]
fn a_dry_run_of_the_setup_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path(), "lean");
    for (more, part) in [(&[][..], "fetch Mathlib's compiled files"), (&["--wasm"][..], "WebAssembly")] {
        let done = sgs(&[&["lean", "setup", "--dry-run", "--root", &root], more].concat()).expect(0);
        assert!(done.out.contains(part) && done.out.contains("of disk space"), "{}", done.out);
    }
    assert!(!std::path::Path::new(&root).exists());
}

#[test]
fn a_missing_lean_is_reported_with_the_setup_command() {
    let dir = tempfile::tempdir().unwrap();
    let proofs = file(dir.path(), "p.jsonl", PROOF);
    let root = path(dir.path(), "");
    let done = sgs(&["verify", "--system", "lean", "--lean-root", &root, &proofs]).expect(2);
    assert!(done.err.contains("sgs lean setup"), "{}", done.err);
    assert_eq!(done.out, "");
    let none = path(dir.path(), "none");
    for command in [
        &["verify", "--system", "lean", &proofs][..],
        &["prove", "--system", "lean", "theorem a (p : Prop) (h : p) : p"],
        &["data", "compose", "--out", &path(dir.path(), "composed")],
    ] {
        let done = sgs(&[command, &["--lean-root", &none]].concat()).expect(2);
        assert!(done.err.contains(&none) && !done.err.contains("composing"), "{}", done.err);
    }
}

#[test]
fn wrong_settings_and_options_of_metamath_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let proofs = file(dir.path(), "p.jsonl", PROOF);
    let settings = file(dir.path(), "lean.toml", "backing = \"repl\"\nslotz = 3\n");
    let done = sgs(&["verify", "--system", "lean", "--lean", &settings, &proofs]).expect(2);
    assert!(done.err.contains("lean.toml:2: there is no key `slotz`; did you mean `slots`?"), "{}", done.err);
    let done = sgs(&["verify", "--system", "lean", &proofs, "--export", "x.mm"]).expect(2);
    assert!(done.err.contains("--export applies only to Metamath"), "{}", done.err);
}

/// Returns the number of temporary folders of Lean in `parent`.
fn scratch_folders(parent: &Path) -> usize {
    let names = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("sgs-lean-")).count()
}

/// Every command that starts Lean waits for its version first.
#[test]
fn a_signal_leaves_no_temporary_folder() {
    let dir = tempfile::tempdir().unwrap();
    let [lean, temporary] = ["lean", "temporary"].map(|name| dir.path().join(name));
    lean_fixtures::write_scripted_lean(&lean, "4.28.0-pre");
    std::fs::write(lean.join("lean"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    lean_fixtures::write_model(&dir.path().join("model"));
    std::fs::create_dir(&temporary).unwrap();
    let (proofs, model) = (file(dir.path(), "p.jsonl", PROOF), path(dir.path(), "model"));
    let stage =
        format!("problems = {proofs:?}\n[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nmodel = {model:?}\n");
    let filter = file(dir.path(), "filter.toml", &stage);
    let (filtered, composed) = (path(dir.path(), "filtered"), path(dir.path(), "composed"));
    let statement = "theorem a (p : Prop) (h : p) : p";
    let commands: [&[&str]; 5] = [
        &["verify", "--system", "lean", &proofs],
        &["prove", "--system", "lean", statement, "--model", &model],
        &["eval", "--system", "lean", "--problems", &proofs, "--model", &model],
        &["data", "filter", &filter, "--out", &filtered],
        &["data", "compose", "--out", &composed],
    ];
    let root = lean.to_str().unwrap();
    for arguments in commands {
        let arguments = [arguments, &["--lean-checker", "wasm", "--lean-root", root]].concat();
        let mut child = command(&arguments)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while scratch_folders(&temporary) == 0 {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(60), "{arguments:?}: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()), "{arguments:?}");
        assert_eq!(scratch_folders(&temporary), 0, "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_program_launches_its_own_sandbox() {
    let done = sgs(&["lean-sandbox", "--report", "{}"]);
    assert!(done.code == 0 || done.code == 126, "{}", done.err);
    let bare = sgs(&["lean-sandbox"]).expect(126);
    assert!(bare.err.contains("sandbox: "), "{}", bare.err);
    let json = sgs(&["doctor", "--json"]).json();
    let lean = json["areas"].as_array().unwrap().iter().find(|a| a["name"] == "lean").unwrap().to_string();
    assert!(lean.contains("sandbox: ") && !lean.contains("gave no report"), "{lean}");
}

#[test]
#[ignore = "runs Lean as WebAssembly (lean/wasm, or SGS_LEAN_WASM): minutes of CPU time; `just lean-all` runs it"]
fn real_lean_gives_the_expected_verdicts_for_the_core_set() {
    let root =
        std::env::var("SGS_LEAN_WASM").unwrap_or_else(|_| project("lean/wasm").to_str().unwrap().to_owned());
    let set = project("data/lean/core.jsonl");
    let args =
        ["verify", "--system", "lean", "--lean-checker", "wasm", "--lean-root", &root, "--skip-canaries"];
    let done = sgs(&[&args[..], &["--lean-slots", "1", set.to_str().unwrap()]].concat()).expect(0);
    let expected: Vec<serde_json::Value> = std::fs::read_to_string(&set)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut verdicts = done.lines();
    verdicts.sort_by_key(|found| expected.iter().position(|wanted| wanted["id"] == found["id"]));
    assert!(expected.len() >= 100 && verdicts.len() == expected.len(), "{} lines", verdicts.len());
    for (found, wanted) in verdicts.iter().zip(&expected) {
        assert_eq!((&found["id"], &found["verdict"]), (&wanted["id"], &wanted["expect"]), "{found}");
    }
    assert!(done.err.contains(" per second: ") && done.err.contains("0 invalid lines"), "{}", done.err);
}
