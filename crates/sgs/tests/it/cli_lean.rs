//! `sgs lean setup`, `sgs verify --system lean`, and the launcher of the sandbox.

use crate::program::{file, path, project, sgs};

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
