//! Tests with the real Lean: our small set, and every exploit of the catalogues that core Lean can express.
//!
//! They need a `lean` binary, either `SGS_LEAN` or `lean/wasm/lean` (`npm install && npm run setup` there). A start of the
//! latter takes more than a minute of CPU time, so these tests do not run by default.

use sgs_lean::check::{
    Backend, Candidate, CheckOutcome, FileChecker, FileWorker, JudgeProgram, Launch, Limits, NO_REPLAY,
    Probe, Recycling, ReplChecker, ReplWorker, TrustLayers,
};
use sgs_lean::data::{Target, composed, read_file};
use sgs_lean::read::{Proof, read_conjecture};
use sgs_lean::sandbox::Sandbox;
use sgs_lean::text::{Bounds, LeanStatement, negation};
use sgs_selfplay::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Returns a launch of the real Lean in the sandbox. It can write to `work` and read `judge`.
fn lean(scratch: &Path) -> Launch {
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
    read.extend([program.parent().unwrap().to_owned(), sources]);
    let sandbox = Sandbox { read, write: vec![work], ..Sandbox::default() };
    sandbox.wrap(&launch, &[env!("CARGO_BIN_EXE_sgs-lean-sandbox").into()])
}

fn options() -> Vec<(String, String)> {
    [("autoImplicit", "false"), ("maxHeartbeats", "200000"), ("maxSynthPendingDepth", "3")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

/// A start takes more than a minute on an idle machine. The machines of CI are busy.
fn limits() -> Limits {
    Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() }
}

fn worker(scratch: &Path, replay: bool) -> FileWorker {
    worker_under(scratch, replay, TrustLayers::ALL)
}

fn worker_under(scratch: &Path, replay: bool, layers: TrustLayers) -> FileWorker {
    worker_that(scratch, replay, layers, false)
}

fn worker_that(scratch: &Path, replay: bool, layers: TrustLayers, keep_alive: bool) -> FileWorker {
    checker_that(scratch, replay, layers, keep_alive).worker(0).unwrap()
}

fn checker_that(scratch: &Path, replay: bool, layers: TrustLayers, keep_alive: bool) -> FileChecker {
    let lean = lean(scratch);
    FileChecker {
        judge: JudgeProgram::Interpreted { lean, sources: scratch.join("judge") },
        replay,
        scratch: scratch.join("work"),
        options: options(),
        layers,
        limits: limits(),
        batch: 200,
        linger_ms: 50,
        keep_alive,
    }
}

/// Returns the folder with the source of the community REPL, which is not part of this repository. `.ci/run` fetches it.
fn repl_source() -> PathBuf {
    let folder = std::env::var_os("SGS_LEAN_REPL")
        .map_or_else(|| repository().join("target/lean-repl/itp_interface/tools/repl"), PathBuf::from);
    assert!(
        folder.join("REPL/Main.lean").exists(),
        "no REPL at {}: set SGS_LEAN_REPL to its repository, or fetch it as .ci/run does",
        folder.display()
    );
    folder
}

/// Joins the community REPL into one file that can be interpreted: its modules in the order of their imports, each in its
/// own section, after the code that makes this build of Lean interpret them.
fn one_file_of(folder: &Path) -> String {
    let mut modules = Vec::new();
    visit(folder, "REPL.Main", &mut modules);
    let mut text = String::from("import Lean\nset_option linter.deprecated false\npublic section\n");
    text.push_str(include_str!("../../../../../lean/wasm/Index.lean"));
    text.push_str("\nend\n");
    for (name, module) in &modules {
        let own: Vec<&str> = module.lines().filter(|l| !l.starts_with("import ")).collect();
        text.push_str(&format!("-- {name}\npublic section\n{}\n", own.join("\n")));
        for open in left_open(&own).iter().rev() {
            text.push_str(&format!("end {open}\n"));
        }
        text.push_str("end\n");
    }
    // Nodes of an information tree that were added after v4.21.0. The tests do not ask for them.
    if !text.contains(".ofErrorNameInfo") {
        for (last, other) in [("_ => \"DelabTermInfo\"", "\"other\""), ("info => info.stx", "none")] {
            let arm = format!("  | .ofDelabTermInfo      {last}\n");
            assert_eq!(text.matches(&arm).count(), 1, "an unknown version of the REPL");
            text = text.replace(&arm, &format!("{arm}  | _ => {other}\n"));
        }
    }
    text
}

/// Appends a module after its imports. Modules that are not the REPL's are Lean's. `REPL.Util.Path` is skipped: it is unused
/// and does not work in a single file.
fn visit(folder: &Path, name: &str, found: &mut Vec<(String, String)>) {
    let path = folder.join(name.replace('.', "/")).with_extension("lean");
    if name == "REPL.Util.Path" || !path.exists() || found.iter().any(|(known, _)| known == name) {
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    for import in text.lines().filter_map(|line| line.strip_prefix("import ")) {
        visit(folder, import.trim(), found);
    }
    found.push((name.to_owned(), text));
}

/// Returns the namespaces that are still open at the end of a module.
fn left_open<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    let mut open = Vec::new();
    for line in lines {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("namespace" | "section" | "mutual", name) => open.push(name),
            ("end", _) => {
                open.pop();
            }
            _ => {}
        }
    }
    open
}

/// Makes a checker over the community REPL.
fn repl(scratch: &Path, options: Vec<(String, String)>) -> ReplWorker {
    let mut launch = lean(scratch);
    let program = scratch.join("judge/Repl.lean");
    std::fs::write(&program, one_file_of(&repl_source())).unwrap();
    launch.args.extend(["--run".into(), program.into()]);
    let checker = ReplChecker {
        launch,
        options,
        // This build refuses `#print axioms`.
        probe: Probe::Presence,
        limits: Limits { proof_ms: 120_000, ..limits() },
        // A single start.
        recycling: Recycling { uses: 10_000, age_ms: u64::MAX, growth: u64::MAX },
    };
    checker.worker()
}

/// Returns an exploit unchanged, after a header that lets its code run: it imports Lean's library and makes this build
/// interpret all of it.
fn hostile(exploit: &Exploit) -> Candidate {
    let header = concat!("import Lean\n", include_str!("../../../../../lean/wasm/Index.lean"));
    Candidate { header: header.into(), ..candidate(&exploit.statement, &exploit.helpers, &exploit.proof) }
}

fn candidate(statement: &str, helpers: &str, body: &str) -> Candidate {
    Candidate {
        header: "".into(),
        statement: statement.into(),
        proof: Proof { helpers: helpers.to_owned(), body: body.to_owned() },
    }
}

fn check(worker: &mut FileWorker, candidates: &[Candidate]) -> Vec<CheckOutcome> {
    worker.check(&candidates.iter().collect::<Vec<_>>())
}

fn core_set() -> Vec<Target> {
    let import = read_file(&repository().join("data/lean/core.jsonl"), "").unwrap();
    assert_eq!(import.skipped, []);
    import.targets
}

#[test]
fn the_small_set_is_read_and_passes_the_limits() {
    let set = core_set();
    let count = |verdict| set.iter().filter(|t| t.expect == Some(verdict)).count();
    assert!(count(Verdict::Proved) >= 60 && count(Verdict::Refused) >= 40, "{}", set.len());
    for target in &set {
        let proof = target.proof.as_deref().unwrap();
        Bounds::default().check(proof).unwrap_or_else(|e| panic!("{}: {e}", target.problem.id));
    }
}

/// Returns the small set, proofs that try to use a neighbour or that reuse names of the library, theorems with other names,
/// and a deep term.
fn asked() -> Vec<(Candidate, Verdict)> {
    let small = core_set();
    let small = small
        .iter()
        .map(|t| (candidate(&t.problem.statement, "", t.proof.as_deref().unwrap()), t.expect.unwrap()));
    let neighbours = NEIGHBOURS
        .iter()
        .map(|(statement, helpers, body, verdict)| (candidate(statement, helpers, body), *verdict));
    let names = NAMES.iter().map(|statement| (candidate(statement, "", "\n  rfl"), Proved));
    // A deep term: the judge must not run out of stack before Lean's own limit of recursion.
    let [ps, hs] = [(" ∧ ", "p"), (", ", "h")].map(|(between, each)| [each; 200].join(between));
    let deep =
        candidate(&format!("theorem deep (p : Prop) (h : p) : {ps} := by"), "", &format!("\n  exact ⟨{hs}⟩"));
    small.chain(neighbours).chain(names).chain([(deep, Proved)]).collect()
}

fn assert_expected(asked: &[(Candidate, Verdict)], outcomes: &[CheckOutcome]) {
    let wrong: Vec<_> = asked
        .iter()
        .zip(outcomes)
        .filter(|((_, expect), o)| *expect != o.verdict)
        .map(|((c, _), o)| (&c.statement, &c.proof, o))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks all of it in one file.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn every_true_proof_is_proved_and_every_false_one_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), true);
    let asked = asked();
    let begun = std::time::Instant::now();
    let candidates: Vec<Candidate> = asked.iter().map(|(c, _)| c.clone()).collect();
    let outcomes = check(&mut worker, &candidates);
    println!("{} proofs, checked and replayed, in {:?}", outcomes.len(), begun.elapsed());
    assert_expected(&asked, &outcomes);
    for outcome in outcomes.iter().filter(|o| o.verdict == Verdict::Proved) {
        assert_eq!(outcome.reason, "", "no layer is missing");
        assert!(outcome.axioms.is_some());
    }
}

/// Checks the same proofs through the community REPL, in one process. The verdicts must be the same.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn the_community_repl_gives_the_same_verdicts() {
    let scratch = tempfile::tempdir().unwrap();
    // Lean's default of `autoImplicit`, as in D_3k.
    let mut worker = repl(scratch.path(), options().into_iter().skip(1).collect());
    let mut asked = asked();
    // Names that Lean binds automatically, in a statement with a helper.
    let bound = candidate(
        "theorem bound (h : p ∧ q) : q ∧ p := by",
        "theorem swapped (a b : Prop) (h : a ∧ b) : b ∧ a := ⟨h.2, h.1⟩",
        "\n  exact swapped p q h",
    );
    asked.push((bound, Proved));
    let candidates: Vec<Candidate> = asked.iter().map(|(c, _)| c.clone()).collect();
    let outcomes = worker.check(&candidates.iter().collect::<Vec<_>>());
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    println!("{} proved, {} refused, {} starts", count(Proved), count(Refused), worker.starts());
    assert_expected(&asked, &outcomes);
    assert_eq!(worker.starts(), 1);
}

use Verdict::{Proved, Refused};

/// All layers except the syntax layer.
const NO_SYNTAX: TrustLayers = TrustLayers { syntax: false, ..TrustLayers::ALL };

/// Statements in one file, with helpers and proof. No proof may see another candidate, by name or through a search, and
/// names of the library may be reused.
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

/// Names with several components, quotation marks or universes, and names at the root. The judge and the REPL declare the
/// pinned statement beside each.
const NAMES: &[&str] = &[
    "theorem Nat.t.{u} (a : Type u) : a = a := by",
    "theorem New.space.t : 1 = 1 := by",
    "theorem «a.b» : 1 = 1 := by",
    "theorem «x y».«a.b» : 1 = 1 := by",
    "theorem _root_.Nat.t : 1 = 1 := by",
    "theorem _root_.t : 1 = 1 := by",
];

/// Texts that are not one theorem up to `:= by`. The reader of statements refuses most of them.
const NO_STATEMENTS: &[&str] = &[
    "",
    "theorem t : True",
    "theorem t : True := trivial",
    "theorem t : True := by trivial",
    "theorem t : True := by\n  trivial",
    "theorem t : True := by all_goals",
    "theorem t : True := by /-",
    "axiom t : False",
    "example : True := by",
    "def t : True := by",
    "open Nat in theorem t : True := by",
    "theorem s : True := by trivial\ntheorem t : True := by",
];

/// A true theorem with commands after the end of a helper or of the theorem, where no bracket can be added.
const COMMANDS: &[(&str, &str)] = &[
    ("theorem h : True := trivial\n  termination_by 0 seal Nat.add", "\n  exact h"),
    ("theorem h : ∀ n : Nat, n = n\n  | _ => rfl seal Nat.add", "\n  trivial"),
    ("", "\n  exact f\nwhere\n  f : True := trivial seal Nat.add"),
];

/// Checks what is examined before Lean elaborates it, in one process that stays, because its start is expensive.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn texts_are_examined_before_they_are_elaborated() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker_that(scratch.path(), false, TrustLayers::ALL, true);
    indices_are_admitted(&mut worker);
    mutual_theorems_are_admitted(&mut worker);
    hoare_triples_are_examined(&mut worker);
    unlisted_commands_are_detected_by_leans_grammar(&mut worker);
    tricks_of_conjectures_are_refused(&mut worker);
    statements_are_one_theorem(&mut worker);
    comments_must_end(&mut worker);
    proofs_may_mention_universes_of_the_header(&mut worker);
    nothing_of_a_refused_text_is_elaborated(&mut worker);
    headers_are_examined(&mut worker, &scratch.path().join("judge/slot-0/check/Judge.lean"));
    configurations_evaluate_nothing_of_a_header(&mut worker);
}

/// Lean's own grammar detects anything that is not a theorem, whichever commands this Lean has.
fn unlisted_commands_are_detected_by_leans_grammar(worker: &mut FileWorker) {
    let asked = COMMANDS.iter().flat_map(|(helpers, body)| {
        [("", ""), (" seal Nat.add", "")].map(|(from, to)| {
            candidate("theorem t : True := by", &helpers.replace(from, to), &body.replace(from, to))
        })
    });
    let outcomes = check(worker, &asked.collect::<Vec<_>>());
    for pair in outcomes.chunks(2) {
        assert!(pair[0].reason.starts_with("syntax layer: "), "{pair:?}");
        assert_eq!((pair[0].verdict, pair[1].verdict), (Refused, Proved), "{pair:?}");
    }
}

/// Tricks of conjectures: axioms and theorems after numbers, characters and projections; ambiguous comments and strings;
/// options, code, attributes and other namespaces.
const TRICKS: &[&str] = &[
    "theorem b : 0 = 0b0axiom c : False theorem d : (1:Nat) = 2",
    "theorem b : 0 = 0o0axiom c : False\ntheorem d : (1:Nat) = 2",
    "theorem b (h : 1 = 1axiom) : False",
    "theorem b : 'a' ≠'\"' ∧ set_option debug.skipKernelTC true in p -- \"",
    "theorem b : { x : Int //-1 < x } → (set_option debug.skipKernelTC true in p) -- -/",
    "theorem b : x ∑'\"' axiom c : False -- \"",
    "theorem b : (1:Nat) = 2 where axiom c : False",
    "theorem b (h : by exact (sorryAx _)) : p",
    "theorem b (h : Lean.Elab.Term.foo) : p",
    "theorem b : open Lean in p",
    "theorem b : p `x",
    "theorem b : s!\"{x}\" = y",
    "@[simp] theorem b : 1 = 1",
    "unsafe theorem b : 1 = 1",
    "theorem b : 1 = 1 := by rfl\n#eval 1\ntheorem c : 1 = 1",
    "theorem b : r\"\\\" = r\"\" ∧ axiom c : False -- \"",
    "theorem b : (1 : Nat) = 1)\naxiom c : (False",
    "theorem b : \"{ /- \" = axiom c -- -/ }\"",
];

/// A conjecture is examined before Lean elaborates it. A statement that is not refused would be elaborated, and true.
fn tricks_of_conjectures_are_refused(worker: &mut FileWorker) {
    let read = |statement: &&str| {
        let code = format!("```lean4\n{statement} := by sorry\n```");
        read_conjecture(&code, &Bounds::default()).ok()
    };
    let proof = "\n  intros\n  first | rfl | trivial | simp_all | skip";
    let mut asked: Vec<Candidate> =
        TRICKS.iter().filter_map(read).map(|s| candidate(&s, "", proof)).collect();
    assert!(asked.len() >= 8, "most are refused by the reader, so this test shows nothing");
    let index = format!("theorem b (l : List Nat) : l[0]'(by decide (config := {NATIVE})) = 0");
    asked.push(candidate(&read(&index.as_str()).unwrap(), "", proof));
    asked.push(candidate("theorem b (x : Fin 3 := ⟨2, by decide⟩) : x = x := by", "", "\n  rfl"));
    let mut outcomes = check(worker, &asked);
    assert_eq!(outcomes.pop().unwrap().verdict, Proved);
    for (asked, outcome) in asked.iter().zip(&outcomes) {
        println!("{}: {}", asked.statement, outcome.reason);
        assert_eq!(outcome.verdict, Refused, "{}", asked.statement);
    }
}

/// A text that is not a statement is refused, whatever the proof makes of it.
fn statements_are_one_theorem(worker: &mut FileWorker) {
    assert!(NO_STATEMENTS.iter().filter(|text| LeanStatement::read(text).is_err()).count() >= 6);
    let proofs = ["\n  trivial", " := by\n  trivial", " -/ trivial"];
    let pairs = NO_STATEMENTS.iter().flat_map(|text| proofs.map(|proof| candidate(text, "", proof)));
    let asked: Vec<Candidate> = pairs.collect();
    for (asked, outcome) in asked.iter().zip(check(worker, &asked)) {
        assert_eq!(outcome.verdict, Refused, "{asked:?}: {outcome:?}");
        let is_told = ["syntax layer: a statement that is not", "statement: "];
        assert!(is_told.iter().any(|told| outcome.reason.starts_with(told)), "{asked:?}: {outcome:?}");
    }
}

/// A comment without an end is an error, as in a file of its own.
fn comments_must_end(worker: &mut FileWorker) {
    let asked = ["", "/- begun", "/- begun -/", "/-- begun"]
        .map(|helpers| candidate("theorem t : True := by", helpers, "\n  trivial"));
    let verdicts: Vec<Verdict> = check(worker, &asked).iter().map(|outcome| outcome.verdict).collect();
    assert_eq!(verdicts, [Proved, Refused, Proved, Refused]);
}

/// The theorem has a universe parameter then, which the statement lacks.
fn proofs_may_mention_universes_of_the_header(worker: &mut FileWorker) {
    let of = |statement: &str, body: &str| Candidate {
        header: "universe u v\n".into(),
        ..candidate(statement, "", body)
    };
    let asked = [
        of("theorem t : True := by", "\n  exact (fun (_ : Type u) => True.intro) PUnit"),
        of(
            "theorem t (α : Type v) (a b : α) (h : a = b) : b = a := by",
            "\n  have f : Type u → True := fun _ => trivial\n  exact (fun _ => h.symm) (f PUnit)",
        ),
        of("theorem t : (1 : Nat) = 2 := by", "\n  exact (fun (_ : Type u) => rfl) PUnit"),
    ];
    let verdicts: Vec<Verdict> = check(worker, &asked).iter().map(|outcome| outcome.verdict).collect();
    assert_eq!(verdicts, [Proved, Proved, Refused]);
}

/// What is refused is not elaborated, and nothing is elaborated after a failure.
fn nothing_of_a_refused_text_is_elaborated(worker: &mut FileWorker) {
    let failing = "theorem hx (A B : Type) : A = B := by simp";
    let asked = [
        candidate(
            "theorem cr : (1 : Nat) = 2 := by",
            failing,
            "\n  simp (maxSteps := (Task.spawn (fun _ => ((.println \"hello\" : IO Unit) (cast (hx Nat _) 5)).casesOn \
             (motive := fun _ => Nat) (fun _ _ => 1000) (fun _ _ => 5)) .dedicated).get)",
        ),
        // The second error is not reported, because the theorem is not elaborated.
        candidate("theorem t : True := by", failing, "\n  exact unknown_identifier"),
        candidate("theorem t : True := by", failing, "\n  run_tac unknown_identifier"),
    ];
    let refused = "theorem t (h : p (by exact?)) : True := by";
    let asked = [&asked[..], &[candidate(refused, "", "\n  exact unknown_identifier")]].concat();
    let outcomes = check(worker, &asked);
    assert!(outcomes.iter().all(|o| o.verdict == Refused), "{outcomes:?}");
    assert_eq!(outcomes[3].reason, "syntax layer: `Lean.Parser.Tactic.exact?`");
    assert_eq!(outcomes[0].reason, "syntax layer: `Lean.Parser.Term.proj` in a configuration");
    assert!(outcomes[1].reason.starts_with("`simp` made no progress"), "{}", outcomes[1].reason);
    assert_eq!(outcomes[2].reason, "syntax layer: `Lean.Parser.Tactic.runTac`");
}

/// Headers that Lean's own grammar refuses, or admits.
fn headers_are_examined(worker: &mut FileWorker, judge: &Path) {
    let mut reason = |header: &str| {
        let asked = Candidate {
            header: header.into(),
            ..candidate("theorem t (p : Prop) (h : p) : p := by", "", "\n  exact h")
        };
        check(worker, std::slice::from_ref(&asked)).remove(0)
    };
    let admitted = "noncomputable section\nopen Nat\nvariable (k : Nat)\nset_option maxHeartbeats 400000\n\
                    local notation \"ℕ\" => Nat\nnamespace Foo\n@[simp] def f (n : ℕ) := n\nend Foo\n";
    assert_eq!(reason(admitted).verdict, Proved);
    // WebAssembly lacks the code of `List.reverse` and `Nat.add`, and must unfold `f`.
    let compiled = "def f (l : List Nat) := l.reverse\n@[simp] theorem f_nil : f [] = [] := rfl\n\
                    structure P where\n  x : Nat\ninstance : Add P := ⟨fun a b => ⟨a.x + b.x⟩⟩\n";
    assert_eq!(reason(compiled).verdict, Proved);
    let refused = [
        ("module\n", "`module` or `prelude`"),
        ("axiom foo : False\n", "Lean.Parser.Command.axiom"),
        ("theorem foo : False := sorry\n", "Lean.Parser.Term.sorry"),
        ("set_option debug.skipKernelTC true\n", "set_option debug.skipKernelTC"),
        ("section\nend\nend\nnoncomputable section\n", "an `end` without a section"),
        ("@[implemented_by id] def g (n : Nat) : Nat := n\n", "the attribute `implemented_by`"),
    ];
    for (index, (header, what)) in refused.into_iter().enumerate() {
        let _ = std::fs::remove_file(judge);
        let outcome = reason(header);
        assert_eq!(outcome.verdict, Refused, "{header}");
        assert!(outcome.reason.contains(what), "{}", outcome.reason);
        // Only the start of a process writes this file, and each refused header ends its process.
        assert_eq!(judge.exists(), index > 0, "{header}");
    }
}

/// The configuration of `decide` with `native := true`.
const NATIVE: &str = "Lean.Parser.Tactic.DecideConfig.mk false true false false";

/// Lean runs the values of configurations as compiled code: nothing of a header may take part.
fn configurations_evaluate_nothing_of_a_header(worker: &mut FileWorker) {
    let mut judge = |header: &str, body: &str| {
        let asked = Candidate {
            header: header.into(),
            ..candidate("theorem t (n : Nat) : n + 0 = n := by", "", body)
        };
        check(worker, std::slice::from_ref(&asked)).remove(0)
    };
    let new_type =
        "structure S where\n  x : Nat\n  deriving DecidableEq\ninstance : Add S := ⟨fun a _ => a⟩\n";
    for right in ["(maxSteps := 1000)", "(maxSteps := (1000))", "(config := ({ maxSteps := (1000) }))"] {
        let outcome = judge(new_type, &format!("\n  simp {right}"));
        assert_eq!(outcome.verdict, Proved, "{right}: {}", outcome.reason);
    }
    let name = "in a configuration";
    let instance = "which could be an instance for it";
    for (header, value, what) in [
        ("def Nat.foo : Nat := 1000\n", ".foo", name),
        ("def Nat.reducible : Nat := 1000\n", ".reducible", name),
        ("namespace Foo\ndef none : Nat := 1000\nend Foo\n", "none", name),
        ("instance (priority := high) : OfNat Nat 5 := ⟨1000⟩\n", "5", instance),
        ("abbrev My := Nat\ninstance : OfNat My 5 := ⟨1000⟩\n", "5", instance),
        ("instance (priority := high) : outParam (OfNat Nat 5) := ⟨1000⟩\n", "5", instance),
        ("structure S where\n  x : Nat\ninstance : Coe S Nat := ⟨S.x⟩\n", "5", instance),
        ("", ".pow 2 10", name),
    ] {
        let outcome = judge(header, &format!("\n  simp (maxSteps := {value})"));
        assert_eq!(outcome.verdict, Refused, "{header}");
        assert!(outcome.reason.contains(what), "{header}: {}", outcome.reason);
    }
    // The constructor of a structure sets `native` by its position.
    let outcome = judge("", &format!("\n  decide (config := {NATIVE})"));
    assert_eq!(
        outcome.reason,
        "syntax layer: the name `Lean.Parser.Tactic.DecideConfig.mk` in a configuration"
    );
}

/// Checks candidates of one header. A candidate with an empty reason must be proved, any other refused for its reason.
fn assert_reasons(worker: &mut FileWorker, request: Vec<(Candidate, &str)>) {
    let (asked, reasons): (Vec<Candidate>, Vec<&str>) = request.into_iter().unzip();
    for ((outcome, reason), asked) in check(worker, &asked).iter().zip(reasons).zip(&asked) {
        let expected = if reason.is_empty() { Proved } else { Refused };
        assert_eq!(outcome.verdict, expected, "{asked:?}: {}", outcome.reason);
        assert!(outcome.reason.contains(reason), "{asked:?}: {}", outcome.reason);
    }
}

/// Lean runs a constant of type `Lean.Syntax` as a tactic if the type of an argument names it, and finds other constants by
/// their names. No text may define such a constant where a later part of it could be elaborated.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn texts_are_examined_for_definitions_that_lean_runs_as_tactics() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker_that(scratch.path(), false, TrustLayers::ALL, true);
    let under = |header: &str, helpers: &str, body: &str| Candidate {
        header: header.into(),
        ..candidate("theorem t : (1 : Nat) = 1 := by", helpers, body)
    };
    let ends = "def g (n : Nat) : Nat := if h : n = 0 then 0 else g (n - 1)\ntermination_by n\n";
    let own = "\n  rfl\nwhere\n  evil : Lean.Syntax := .missing\n";
    let run = "have f : Nat → autoParam (1 = 1) t.evil → 1 = 1 := fun _ h => h\n";
    let defines = "of type `Lean.Syntax`";
    let beside = "a proof of termination beside another definition";
    // The tactics of default arguments are part of the text, and a definition that is alone may end by any proof.
    let with_default = "theorem a (n : Nat) (_ : 0 < n := by decide) : n = n := by\n  rfl\ntheorem b : 1 = 1 := by\n  exact a 1";
    let recursive = "\n  let rec go (m : Nat) : 0 + m = m := by\n    match m with\n    | 0 => rfl\n    | k + 1 => \
                     exact congrArg Nat.succ (go k)\n    termination_by m\n  exact congrArg (· + 1) (go 0)";
    let defaults = "def half (n : Nat) (_ : 0 < n := by decide) : Nat := n / 2\nstructure S where\n  x : Nat\n  \
                    h : x = x := by rfl\ndef s : S := { x := half 2 }\n";
    let requests = [
        vec![
            (under("", with_default, "\n  exact b"), ""),
            (under("", "", recursive), ""),
            (under("", "", "\n  have _h : True := trivial\n  rfl"), ""),
            (
                under("", "", "\n  rfl\nwhere\n  _default : Nat := 5\n"),
                "a declaration with the name `_default`",
            ),
            (under("", "", &format!("\n  {run}  rfl")), "the name `autoParam`"),
        ],
        vec![
            (
                under(
                    "",
                    "theorem a : True := by\n  trivial\nwhere\n  evil := Lean.mkAtom \"rfl\"",
                    "\n  rfl",
                ),
                defines,
            ),
            (
                under("", "", &format!("{own}  g (n : Nat) : n = n := g (n - 1)\n  decreasing_by exact h\n")),
                beside,
            ),
            (under("", "", "\n  rfl\ntermination_by 1\nwhere\n  evil : Lean.Syntax := .missing\n"), beside),
        ],
        vec![(under(&format!("{defaults}{ends}"), "", "\n  rfl"), "")],
        vec![(under("def evil := Lean.mkAtom \"rfl\"\n", "", "\n  rfl"), defines)],
        vec![(
            under(&format!("mutual\ndef evil := Lean.mkAtom \"rfl\"\n{ends}end\n"), "", "\n  rfl"),
            beside,
        )],
    ];
    // No text declares a name like those of what Lean makes itself, such as the default value of a field.
    let declarations = [
        "def Lean.Meta.Simp.ConfigCtx.maxSteps._default : Nat := 5\n",
        "namespace Lean.Meta.Simp.ConfigCtx.maxSteps\nabbrev _default : Nat := 5\n",
        "notation (name := _default) \"zzz\" => True\n",
        "mutual\ndef f : Nat := 1\ninstance _default : Inhabited Nat := ⟨5⟩\nend\n",
        "namespace Lean.Meta.Simp\ndef ConfigCtx : Nat := 5\nwhere\n  maxSteps._default : Nat := 5\n",
        "structure S where\n  n : Nat\n  _default : Nat\n",
        "inductive T where\n  | _default (n : Nat)\n",
    ];
    let named = declarations
        .map(|header| vec![(under(header, "", "\n  rfl"), "a declaration with the name `_default`")]);
    // Only the start of a process writes this file.
    let judge = scratch.path().join("judge/slot-0/check/Judge.lean");
    for request in requests.into_iter().chain(named) {
        let _ = std::fs::remove_file(&judge);
        let is_odd = request.len() > 1 && request[0].1 == defines;
        assert_reasons(&mut worker, request);
        assert!(!is_odd || judge.exists(), "no process replaced that of the definition");
    }
}

/// A notation may be code (`$x`), or hide a text until its parameters are known, its scope is open or its name is found on
/// a list.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn texts_are_examined_through_the_notations_of_a_header() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker_that(scratch.path(), false, TrustLayers::ALL, true);
    let under = |header: &str, statement: &str, body: &str| Candidate {
        header: header.into(),
        ..candidate(statement, "", body)
    };
    let plain = "theorem t : (1 : Nat) = 1 := by";
    let skip = "\n  exact sss debug.skipKernelTC rfl";
    let of_option = "sss\" pp.all:max x:max => (set_option pp.all true in x)\n";
    let named =
        |name: &str| format!("namespace Lean.Parser.Term\nnotation (name := {name}) \"zzz\" x => x\n");
    let scoped = format!("namespace Foo\nscoped notation \"{of_option}end Foo\n");
    let opened = "\n  exact open Foo in sss debug.skipKernelTC rfl";
    let option = "set_option debug.skipKernelTC";
    let notations = format!(
        "notation \"{of_option}namespace Foo\nscoped notation \"double \" x:max => x + x\nend Foo\nopen Foo\n"
    );
    // The code of a notation is elaborated without the instances of the header, which could become a part of it.
    let coerced = "⟨fun _ => .node .none (.mkSimple \"num\") #[.atom .none \"37\"]⟩";
    let instance = format!(
        "instance (priority := 2000) one : OfNat Nat 1024 := ⟨1⟩\n\
         instance (priority := 2000) (k : Lean.SyntaxNodeKinds) : CoeOut (Lean.TSyntax k) Lean.Syntax := {coerced}\n\
         class Give (P : outParam Type) : Type 1 where\n  val : P\n  u : Type\n\
         namespace Foo\nscoped instance (priority := 9000) ev {{P : Type}} [Give P] : P := Give.val\nend Foo\n\
         instance : Give (CoeOut (Lean.TSyntax [Lean.Name.mkStr1 \"term\"]) Lean.Syntax) := ⟨{coerced}, Nat⟩\n\
         notation \"zzz\" => (5 : Nat)\nopen Foo in notation \"yyy\" => (6 : Nat)\n"
    );
    let joined = "instance (priority := 2000) one : OfNat Nat 1024 := ⟨1⟩ in notation \"zzz\" => True\n";
    // An instance whose type is a variable could be one of any class.
    let any = "class Give (P : outParam Type) : Type 1 where\n  val : P\n  u : Type\n\
               namespace Foo\nscoped instance ev {P : Type} [Give P] : P := Give.val\nend Foo\n";
    let right = "structure F where\n  f : Nat → Nat\ninstance : CoeFun F (fun _ => Nat → Nat) := ⟨F.f⟩\n\
                 class G (α : Type) extends Mul α where\n  e : α\n  e_mul : ∀ a : α, e * a = a\n\
                 structure S where\n  has : Nat → Prop\ninstance : Membership Nat S := ⟨fun s n => s.has n⟩\n\
                 notation \"⟪\" f \"⟫\" => F.f f\nnotation \"𝟙\" => G.e\nnotation \"𝒰\" => S.mk (fun _ => True)\n";
    let field = "a field without a name in a configuration";
    let own = "set_option warningAsError true\nstructure S where\n  n : Nat\nderiving DecidableEq, Repr\ninstance : Add S := ⟨fun a b => ⟨a.n + b.n⟩⟩\n\
               def P (n : Nat) : Prop := n = 1\ninstance : DecidablePred P := fun n => inferInstanceAs (Decidable (n = 1))\n\
               infixl:65 \" +++ \" => fun (a b : S) => a + b\nnotation \"zzz\" => S.mk 1\n\
               namespace Nat\ndef f (_h : True) : Nat → Nat\n  | 0 => 0\n  | n + 1 => f trivial n\n\
               structure Q (n : Nat := 3) where\n  a : Nat := 1\n  b : a = a := by rfl\n\
               example (_h : True) : f trivial 0 = 0 := rfl\nlocal notation \"yyy\" => f trivial\nend Nat\n";
    let variables = "variable {α : Type} [DecidableEq α]\nvariable (p : Prop) (hp : p)\ninclude hp\n";
    let requests = [
        vec![
            (under(&notations, "theorem t : double 1 = 2 := by", "\n  exact sss pp.all rfl"), ""),
            (under(&notations, "theorem t : double 1 = 2 := by", "\n  decide (kernel := false)"), ""),
            (under(&notations, plain, skip), option),
        ],
        vec![(under(&named("app"), plain, "\n  rfl"), "the name `Lean.Parser.Term.app` of a notation")],
        vec![(under(&named("_root_.myconfig"), plain, "\n  rfl"), "_root_.myconfig` of a notation")],
        vec![(under(&named("antiquot"), plain, "\n  rfl"), "antiquot` of a notation")],
        vec![(under("def _aux_f : Nat := 1\n", plain, "\n  rfl"), "the name `_aux_f`")],
        vec![
            (under(&scoped, plain, "\n  rfl"), ""),
            (under(&scoped, plain, opened), option),
            (
                under(
                    &scoped,
                    "theorem t (_ : open Foo in sss pp.all True) : (1 : Nat) = 1 := by",
                    "\n  rfl",
                ),
                "",
            ),
            (
                under(&scoped, "theorem t (_ : open Foo in sss pp.x True) : (1 : Nat) = 1 := by", "\n  rfl"),
                "set_option pp.x",
            ),
        ],
        vec![(under("notation \"zzz\" => $(Lean.mkAtom \"rfl\")\n", plain, "\n  rfl"), "an antiquotation")],
        vec![
            (under(&instance, "theorem t : zzz + yyy = 11 := by", "\n  rfl"), ""),
            (
                under(&instance, "theorem t : zzz = 5 := by", "\n  simp (maxSteps := 1024)"),
                "a configuration beside",
            ),
        ],
        vec![(
            under(any, plain, "\n  open Foo in simp (maxSteps := 1024)"),
            "a configuration beside `Foo.ev`",
        )],
        vec![
            (under(right, "theorem t (f : F) (h : ⟪f⟫ 0 = 1) : f 0 = 1 := by", "\n  exact h"), ""),
            (under(right, "theorem t (α : Type) [G α] (a : α) : 𝟙 * a = a := by", "\n  exact G.e_mul a"), ""),
            (
                under(
                    right,
                    "theorem t : 1 ∈ 𝒰 ∧ 1 + 0 = 1 := by",
                    "\n  exact ⟨trivial, by simp (maxSteps := 9)⟩",
                ),
                "",
            ),
            (under(right, plain, "\n  simp (maxSteps := 5 3)"), "a function without a name"),
            (under(right, plain, "\n  decide (config := { 2 := true })"), field),
            (under(right, plain, "\n  simp (config := { [id 5] := true })"), field),
            (under(right, plain, "\n  simp (config := { maxSteps[id 5] := true })"), field),
            (
                under(right, plain, "\n  simp (config := { \"a\" with [id 5] := 'b' })"),
                "an updated structure",
            ),
        ],
        vec![(under(own, "theorem t : (zzz +++ zzz).n = 2 ∧ P 1 := by", "\n  exact ⟨rfl, by decide⟩"), "")],
        vec![(under(joined, plain, "\n  rfl"), "joined to a command with `in`")],
        // A theorem has the variables of the header that its statement does not contain.
        vec![
            (under(variables, "theorem t (a b : α) : a = b ∨ a ≠ b := by", "\n  exact Decidable.em _"), ""),
            (under(variables, "theorem t : p ∨ False := by", "\n  exact Or.inl hp"), ""),
            (under(variables, plain, "\n  rfl"), ""),
        ],
    ];
    for request in requests {
        assert_reasons(&mut worker, request);
    }
}

/// Grammar of Aesop with the kinds that its source declares. It has no elaborators. These are parsers instead of `syntax`
/// commands, because the judge treats syntax that a text declares as a notation.
const GRAMMAR: &str = r#"
public meta section
namespace Aesop.Frontend.Parser
open Lean.Parser
declare_syntax_cat Aesop.tactic_clause
@[Aesop.tactic_clause_parser] def «tactic_clause(Simp_config:=_)» : Parser :=
  leading_parser " (" >> nonReservedSymbol "simp_config" >> " := " >> termParser >> ")"
@[Aesop.tactic_clause_parser] def «tactic_clause(Config:=_)» : Parser :=
  leading_parser " (" >> nonReservedSymbol "config" >> " := " >> termParser >> ")"
def builder : Parser :=
  nonReservedSymbol "apply" <|> nonReservedSymbol "simproc" <|> nonReservedSymbol "tactic"
@[Aesop.tactic_clause_parser] def «tactic_clause(Add_)» : Parser :=
  leading_parser " (" >> nonReservedSymbol "add" >> nonReservedSymbol "safe" >> optional builder >> ident >> ")"
@[tactic_parser] def aesopTactic : Parser :=
  leading_parser nonReservedSymbol "aesop" >> many (categoryParser `Aesop.tactic_clause 0)
end Aesop.Frontend.Parser
end
"#;

/// The tactic that proves an index valid tries many others, each of which is examined.
fn indices_are_admitted(worker: &mut FileWorker) {
    let in_a_proof = "\n  intro h\n  have : l[0]'(by simp [h]) = 1 := by simp [h]\n  trivial";
    let asked = [
        candidate("theorem t (l : List Nat) (h : 0 < l.length) : l[0] = l[0] + 0 := by", "", "\n  rfl"),
        candidate("theorem t : #[1, 2, 3][1] + #[1, 2][0] = 3 := by", "", "\n  rfl"),
        candidate("theorem t (l : List Nat) (h : l.length = 3) : l[2] = l[2]! := by", "", "\n  simp [h]"),
        candidate("theorem t (l : List Nat) : l = [1, 2] → True := by", "", in_a_proof),
    ];
    let outcomes = check(worker, &asked);
    assert!(outcomes.iter().all(|outcome| outcome.verdict == Proved), "{outcomes:?}");
}

/// Hoare triples are admitted in statements and proofs, without code in them.
fn hoare_triples_are_examined(worker: &mut FileWorker) {
    let with = |pre: &str, proof: &str| Candidate {
        header: "import Std\nopen Std.Do\n".into(),
        ..candidate(&format!("theorem t : ⦃{pre}⦄ (pure 1 : Id Nat) ⦃⇓ r => ⌜r = 1⌝⦄ := by"), "", proof)
    };
    let outcomes = check(
        worker,
        &[
            with("⌜True⌝", "\n  exact Triple.pure 1 (by simp)"),
            with("⌜by_elab return .sort .zero⌝", "\n  mvcgen"),
            with(
                "⌜True⌝",
                "\n  have : ⦃⌜True⌝⦄ (by_elab return .sort .zero) ⦃⇓ _ => ⌜True⌝⦄ := by mvcgen\n  mvcgen",
            ),
        ],
    );
    assert_eq!(outcomes[0].verdict, Proved, "{outcomes:?}");
    for outcome in &outcomes[1..] {
        assert_eq!(outcome.verdict, Refused, "{outcomes:?}");
        assert!(outcome.reason.contains("`Lean.byElab`"), "{outcomes:?}");
    }
}

/// Theorems that prove each other by recursion.
const MUTUAL: &str = "mutual\n\ntheorem a : ∀ n : Nat, 0 + n = n\n  | 0 => rfl\n  | n + 1 => congrArg Nat.succ (b n)\n\n\
    theorem b : ∀ n : Nat, 0 + n = n\n  | 0 => rfl\n  | n + 1 => congrArg Nat.succ (a n)\n\nend";

/// Mutual blocks of theorems are admitted. Other members, and what could evaluate a member, are refused.
fn mutual_theorems_are_admitted(worker: &mut FileWorker) {
    let under = |helpers: &str, body: &str| candidate("theorem t (n : Nat) : 0 + n = n := by", helpers, body);
    let with = |from: &str, to: &str| under(&MUTUAL.replace(from, to), "\n  exact a n");
    let is_a_command = "the command `Lean.Parser.Command.";
    let beside = "beside `mutual`, `where` or `let rec`";
    let asked = [
        (with("", ""), ""),
        (with("theorem b :", "@[simp] theorem b :"), ""),
        (with("theorem b :", "def b :"), is_a_command),
        (with("theorem b :", "axiom c : False\ntheorem b :"), is_a_command),
        (with("theorem b :", "set_option debug.skipKernelTC true\ntheorem b :"), is_a_command),
        (with("theorem b :", "open Nat in\ntheorem b :"), is_a_command),
        (with("theorem b :", "mutual\ntheorem c : True := trivial\nend\ntheorem b :"), is_a_command),
        (with("theorem b :", "unsafe theorem b :"), "`Lean.Parser.Command.unsafe`"),
        (with("theorem b :", "@[implemented_by a] theorem b :"), "the attribute"),
        (with("\n\nend", "\ndecreasing_by native_decide\n\nend"), "`Lean.Parser.Tactic.nativeDecide`"),
        (with("\n\nend", "\ntermination_by n => by_elab return .lit (.natVal 0)\n\nend"), "`Lean.byElab`"),
        (under(MUTUAL, "\n  exact?"), beside),
        (under(MUTUAL, "\n  simp (config := { maxSteps := .pos })"), beside),
    ];
    let candidates: Vec<Candidate> = asked.iter().map(|(candidate, _)| candidate.clone()).collect();
    for ((candidate, what), outcome) in asked.iter().zip(check(worker, &candidates)) {
        let expected = if what.is_empty() { Proved } else { Refused };
        assert_eq!(outcome.verdict, expected, "{}: {outcome:?}", candidate.proof.helpers);
        assert!(outcome.reason.contains(what), "{}: {outcome:?}", candidate.proof.helpers);
    }
}

/// Clauses of Aesop that run a term of the text are refused, and statements may contain few tactics.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn tactics_that_evaluate_terms_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut checker = checker_that(scratch.path(), false, TrustLayers::ALL, false);
    // Options become commands of ours, which are not examined.
    let index = include_str!("../../../../../lean/wasm/Index.lean");
    checker.options.push(("pp.all".into(), format!("false\n{index}\n{GRAMMAR}")));
    let proofs = [
        ("aesop (add safe apply h)", "has not been implemented"),
        // Beside declarations that could be instances, every configuration is refused, whatever its value.
        ("aesop (simp_config := { maxSteps := 5 })", "a configuration beside"),
        ("aesop (config := { maxSteps := f 5 })", "a configuration beside"),
        ("aesop (add safe tactic h)", "a rule of `aesop` that is code"),
        ("aesop (add safe simproc h)", "a rule of `aesop` that is code"),
        ("aesop (add safe h)\nwhere\n  f : Nat := 5", "beside `mutual`, `where` or `let rec`"),
    ];
    let statements = [
        ("l.head (by assumption) = l.head h", ""),
        ("l.head (by exact?) = l.head h", "`Lean.Parser.Tactic.exact?`"),
        ("l.head (by grind) = l.head h", "`Lean.Parser.Tactic.grind`"),
    ];
    let mut asked: Vec<(Candidate, &str)> = Vec::new();
    for (body, what) in proofs {
        let body = format!("\n  {body}");
        asked.push((
            Candidate {
                header: "import Lean\n".into(),
                ..candidate("theorem t (p : Prop) (h : p) : p := by", "", &body)
            },
            what,
        ));
    }
    for (statement, what) in statements {
        let statement = format!("theorem t (l : List Nat) (h : l ≠ []) : {statement} := by");
        asked.push((
            Candidate { header: "import Lean\n".into(), ..candidate(&statement, "", "\n  rfl") },
            what,
        ));
    }
    let candidates: Vec<Candidate> = asked.iter().map(|(candidate, _)| candidate.clone()).collect();
    let outcomes = check(&mut checker.worker(0).unwrap(), &candidates);
    for ((candidate, what), outcome) in asked.iter().zip(&outcomes) {
        let expected = if what.is_empty() { Proved } else { Refused };
        assert_eq!(outcome.verdict, expected, "{candidate:?}: {outcome:?}");
        assert!(outcome.reason.contains(what), "{candidate:?}: {outcome:?}");
    }
}

/// The judge counts the axioms of a header. Without the syntax layer, which refuses such a header.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn axioms_of_a_header_count() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker_under(scratch.path(), false, NO_SYNTAX);
    let under = |header: &str, body: &str| Candidate {
        header: header.into(),
        ..candidate("theorem ha1 : (1 : Nat) = 2 := by", "", body)
    };
    let verdict = |outcome: &CheckOutcome| (outcome.verdict, outcome.reason.clone());
    let outcomes = check(&mut worker, &[under("axiom foo : False\n", "\n  exact foo.elim")]);
    assert_eq!(verdict(&outcomes[0]), (Refused, "axioms layer: foo".to_owned()));
    let through = "axiom foo : False\ntheorem bar : False := foo\n";
    let outcomes = check(&mut worker, &[under(through, "\n  exact bar.elim")]);
    assert_eq!(verdict(&outcomes[0]), (Refused, "axioms layer: foo".to_owned()));
    let unchecked =
        "set_option debug.skipKernelTC true in\ntheorem boom : (1 : Nat) = 2 := by decide +kernel\n";
    let outcomes = check(&mut worker, &[under(unchecked, "\n  exact boom")]);
    assert_eq!(outcomes[0].verdict, Refused);
    assert!(outcomes[0].reason.contains("the header: the kernel refuses `"), "{outcomes:?}");
}

/// Statements with binders, layouts and instances that the sets lack.
const SHAPES: &[&str] = &[
    "theorem a.{u, v} {α : Type u} {β : Type v} (f : α → β) ⦃x y : α⦄ (h : x = y) : f x = f y := by",
    "theorem a.{u} {α : Sort u} (x : α) : x = x := by",
    "theorem a {α : Type} [DecidableEq α] (x y : α) : (if x = y then 1 else 2) > 0 := by",
    "theorem a {α : Type} [inst : Inhabited α] (p : α → Prop) (h : ∀ x, p x) : p inst.default := by",
    "theorem a (α : Type) [Add α] [Std.Commutative (α := α) (· + ·)] (x y : α) : x + y = y + x := by",
    "theorem a (n : Nat) [NeZero n] : n ≠ 0 := by",
    "theorem a (n : Nat := 3) (h : n > 0 := by decide) : n ≠ 0 := by",
    "theorem a (f : Nat → Nat) n m (h : n = m) : f n = f m := by",
    "theorem a (_ : 1 = 2) (_h : 2 = 3) : False := by",
    "theorem a {n} (h : n + 1 = 2) : n = (1 : Nat) := by",
    "theorem a (x : _) (h : x = (1 : Int)) : x + 1 = 2 := by",
    "theorem a -- not `: p`\n  (x : Nat) /- nor : this -/ -- (y\n  : -- here\n  x = x -- := by\n  := by",
    "theorem a (x : Nat) : let y := x\n                    y = x := by",
    "theorem a (x : Nat)\n    (h : let y := 1\n         y = x) :\n  let z := 2\n  let w := x + 1\n  z = w := by",
    "theorem a (x y : Nat) (hx : let f : Nat → Nat\n      | 0 => 1\n      | n + 1 => n\n    f x = y) : y = y := by",
    "theorem a (x : Nat) : match x with\n  | 0 => True\n  | n + 1 => n < x := by",
    "theorem a :\n∀ n : Nat,\nn = n := by",
    "theorem a (p q : Prop) : p →\n  q →\n    (p ∧\n  q) := by",
    "theorem a (f : Nat → Nat) (h : f = fun\n  | 0 => 0\n  | n + 1 => n) : f 1 = 0 := by",
    "theorem a (b : Bool) (h : b) : !b = false := by",
    "theorem a (b : Bool) : b || !b := by",
    "theorem a : ∃ x : Nat, x * x = 4 := by",
    "theorem a (s : String) : \") := by\".length + s.length = s.length + 7 := by",
    "theorem a (xs : List Nat) : xs.map (fun x ↦ x + 0) = xs := by",
    "theorem a (x : Nat) (h : x ∈ [1, 2, 3]) : x = 1 ∨ x = 2 ∨ x = 3 := by",
    "theorem a (x : { n : Nat // n > 2 }) : (x : Nat) > 1 := by",
    "theorem a (x : Nat) (h : (x : Int) = -1) : False := by",
    "theorem a : (∀ x : Nat, x = x) ∧ ¬ ∃ x : Nat, x ≠ x := by",
    "theorem a (α : Type) {{x y : α}} (h : x = y) : y = x := by",
    "theorem a «x» (h : «x» = (1 : Nat)) : «x» + 1 = 2 := by",
    "theorem a (x y z : Nat) (h₁ : x < y) (h₂ : y < z := by omega) : x < z := by",
    "theorem a (x y : Nat := 0) : x + y = y + x := by",
    "theorem a (n : Nat) (h : n ≠ 0) (i : Fin n) (j : Fin n := ⟨0, Nat.pos_of_ne_zero h⟩) : i = i ∧ j = j := by",
    "theorem a (n : Nat) [Inhabited (Fin n)] (i : Fin n) (h : i.val = n - 1) : n ≠ 0 := by",
    "theorem a (p : Nat → Prop) (h : p = fun x => x > 0) : p 1 ∧ p = fun x => x > 0 := by",
    "theorem a (p : Nat → Prop) : (∃ x, p x) → ¬ ∀ x, ¬ p x /- the end -/ := by",
    "theorem a : (⟨0, by decide⟩ : Fin 2) = 0 -- := by\n:= by",
    "theorem a : let x := 1; have h : x = 1 := rfl; x = 1 ∧ h = h := by",
    "theorem a : if 1 = 1 then True else ∀ n : Nat, n = n := by",
    "theorem a (x₁ x₂' : Nat) (hx₁! : x₁ = x₂') : x₂' = x₁ := by",
    "theorem a.{u} (α : Type u) (s : α → Prop) (h : ∃ x, s x ∧ ∀ y, s y → y = x) : ∀ x y, s x → s y → x = y := by",
    "theorem a.{u, v} {α : Sort u} {β : α → Sort v} (f g : (x : α) → β x) (h : ∀ x, f x = g x) : f = g := by",
    "/-- Says `: 1 = 2`. -/\ntheorem a (x : Nat) : x = x := by",
    "theorem a (f : {n : Nat} → n = n → Nat) (g : (n : Nat) → [NeZero n] → Fin n) : f (n := 1) rfl = f (n := 1) rfl ∧ g 1 = 0 := by",
    "theorem a (x : Nat) (h : match x with | 0 => False | _ => True) : x ≠ 0 := by",
    "theorem a (a b : Nat) (h : a = b) : b = a ∧ (fun a => a + b) = fun b => b + a := by",
    "theorem a («odd name» : Nat) (h : «odd name» = 1) : «odd name» + 1 = 2 := by",
];

/// Returns a name in the namespace of a statement, which the statement opens.
fn beside(statement: &LeanStatement, name: &str) -> String {
    match statement.declared().namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}.{name}"),
    }
}

/// Returns a statement under another name. If `spread`, each binder and the conclusion are on their own lines.
fn renamed(statement: &LeanStatement, name: &str, spread: bool) -> String {
    let (text, parts) = (&statement.text, &statement.declaration);
    let root = if statement.declared().rooted { "_root_." } else { "" };
    let head = format!("theorem {root}{}", beside(statement, name));
    if !spread || text.contains('\n') {
        return format!("{head}{}", &text[parts.name.end..]);
    }
    let binders = parts.binders.iter().map(|b| format!("\n    {}", &text[b.range.clone()]));
    let binders = binders.collect::<String>();
    format!("{head}{}{binders} :\n  {} := by", universes(statement), statement.conclusion())
}

/// Returns `.{u, v}` after the name, if the statement has universe parameters.
fn universes(statement: &LeanStatement) -> &str {
    let rest = &statement.text[statement.declaration.name.end..];
    rest.find('}').filter(|_| rest.starts_with(".{")).map_or("", |end| &rest[..=end])
}

/// Returns three theorems: a statement, its negation, and that one holds if and only if the other does not. The first two
/// have no proofs, because only their types matter.
fn equivalence(number: usize, said: &LeanStatement, negated: &LeanStatement) -> String {
    // Lean names the universe of each `Type _`.
    let u = match said.text.matches("Type _").count() {
        0 => universes(said),
        1 => ".{u}",
        _ => ".{u, v}",
    };
    let [p, n] = ["p", "n"].map(|letter| format!("{letter}{number}"));
    format!(
        "{}\n  sorry\n{}\n  sorry\ntheorem e{number}{u} : type_of% @{}{u} ↔ ¬ type_of% @{}{u} := Classical.not_not.symm\n",
        renamed(said, &p, false),
        renamed(negated, &n, false),
        beside(said, &p),
        beside(negated, &n),
    )
}

/// Lean proves of each statement that it holds if and only if its negation does not, as it elaborates both. It must reject
/// wrong negations, which negate the conclusion only.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn a_statement_is_true_exactly_if_its_negation_is_not() {
    let mut statements: Vec<String> = core_set().iter().map(|t| t.problem.statement.to_string()).collect();
    let corpus = read_file(&repository().join("data/lean/corpus.jsonl"), "").unwrap();
    let without_header = corpus.targets.iter().filter(|t| t.problem.context.is_empty());
    statements.extend(without_header.map(|t| t.problem.statement.to_string()));
    statements.extend(SHAPES.iter().map(|text| (*text).to_owned()));
    statements.extend(NEIGHBOURS.iter().map(|(text, ..)| (*text).to_owned()));
    let mut read: Vec<LeanStatement> =
        statements.iter().map(|text| LeanStatement::read(text).unwrap()).collect();
    read.extend(read.clone().iter().map(|s| LeanStatement::read(&renamed(s, "spread", true)).unwrap()));
    let mut seen = BTreeSet::new();
    read.retain(|s| seen.insert(s.signature().to_owned()));

    let mut text = String::from("set_option autoImplicit false\n");
    let (mut starts, mut wrong) = (Vec::new(), Vec::new());
    for (number, statement) in read.iter().enumerate() {
        starts.push(text.lines().count());
        let negated = negation(statement).unwrap_or_else(|e| panic!("{e}: {}", statement.text));
        text.push_str(&equivalence(number, statement, &negated));
    }
    for bad in ["(p q : Prop) (h : p ∨ q) : p", "(x : Nat) : x = 1", "{α : Type} (x y : α) : x = y"] {
        let (binders, conclusion) = bad.rsplit_once(" : ").unwrap();
        let number = starts.len();
        wrong.push(number);
        starts.push(text.lines().count());
        let read = |text: String| LeanStatement::read(&text).unwrap();
        let said = read(format!("theorem a {bad} := by"));
        let negated = read(format!("theorem a {binders} : ¬ ({conclusion}) := by"));
        text.push_str(&equivalence(number, &said, &negated));
    }

    let scratch = tempfile::tempdir().unwrap();
    let launch = lean(scratch.path());
    let file = scratch.path().join("judge/Negations.lean");
    std::fs::write(&file, &text).unwrap();
    let ran = std::process::Command::new(&launch.program)
        .args(&launch.args)
        .arg(&file)
        .env_clear()
        .envs(launch.env.iter().cloned())
        .current_dir(&launch.folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    let mut failed: BTreeMap<usize, &str> = BTreeMap::new();
    for line in said.lines().filter(|line| line.contains(": error")) {
        let place = line
            .split("Negations.lean:")
            .nth(1)
            .and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        let line_number = place.unwrap_or_else(|| panic!("{said}"));
        failed.entry(starts.partition_point(|start| *start < line_number) - 1).or_insert(line);
    }
    // Lean warns about every statement that it has no proof.
    let told = said.matches("declaration uses").count();
    assert!(told >= 2 * read.len() - 10, "{told} warnings\n{said}");
    // A statement that Lean cannot elaborate, or only by binding names automatically, has no valid negation.
    let meaningless = ["(n : Nat) : Foo n", ": (1 : Nat) = \"", "(h : p ∧ q) :", "(a : α) (xs : List α) :"];
    let is_meaningless = |s: &LeanStatement| {
        let words = s.signature().split_whitespace().collect::<Vec<_>>().join(" ");
        meaningless.iter().any(|part| words.starts_with(part))
    };
    for (number, statement) in read.iter().enumerate() {
        assert_eq!(
            failed.contains_key(&number),
            is_meaningless(statement),
            "{:?}\n{}",
            failed.get(&number),
            statement.text
        );
    }
    assert!(wrong.iter().all(|number| failed.contains_key(number)), "{failed:?}");
    let meant = read.iter().filter(|s| !is_meaningless(s)).count();
    println!("{meant} statements, each true exactly if its negation is not");
    assert!(meant >= 300, "{meant}");
}

/// Code that writes to the memory of the process that checks it, and turns a theorem of the library into `False`.
const POISON: &str = "open Lean Elab Command in
run_cmd unsafe do
  let some (.axiomInfo known) := (← getEnv).find? ``Nat.add_right_cancel_iff | return
  let place : IO.Ref ConstantVal := unsafeCast known
  place.set { name := ``Nat.add_right_cancel_iff, levelParams := [], type := mkConst ``False }";

/// No layer of a process can resist code that modifies the process. The syntax layer lets no code run, and the second
/// process reads the theorem from the header.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn memory_corruption_is_detected_by_the_second_process() {
    let poisoned = hostile(&Exploit {
        id: "memory".into(),
        statement: "theorem t : (1 : Nat) = 2 := by".into(),
        helpers: POISON.into(),
        proof: "\n  exact Nat.add_right_cancel_iff.elim".into(),
    });
    let outcome = |replay| {
        let scratch = tempfile::tempdir().unwrap();
        check(&mut worker_under(scratch.path(), replay, NO_SYNTAX), std::slice::from_ref(&poisoned)).remove(0)
    };
    let (one, two) = (outcome(false), outcome(true));
    println!("one process: {one:?}; with a second: {two:?}");
    assert_eq!(one.verdict, Proved, "the exploit has no effect, so this test proves nothing");
    assert_eq!(two.verdict, Refused);
}

/// A candidate that ends the process, or tries to, in the middle of a file must not affect the others.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn hostile_candidates_do_not_affect_their_neighbours() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), false);
    let honest =
        |name: &str| candidate(&format!("theorem {name} (p : Prop) (h : p) : p := by"), "", "\n  exact h");
    let bomb = "\n  exact absurd (rfl : Nat.shiftLeft 1 (2^33) = 0) (by simp)";
    let shift = "\n  exact absurd (rfl : 1 <<< ((2 : Nat)^33) = 0) (by simp)";
    let deep = format!("\n  have h : {}True := by trivial\n  exact h.elim", "¬".repeat(20_000));
    let candidates = [
        honest("first"),
        candidate("theorem bomb : False := by", "", bomb),
        honest("second"),
        candidate("theorem deep : False := by", "", &deep),
        honest("third"),
        candidate("theorem shift : False := by", "", shift),
        honest("fourth"),
    ];
    let outcomes = check(&mut worker, &candidates);
    assert_eq!(outcomes[5].reason, "syntax layer: a shift by so many bits");
    println!("the culprits: {:?}; {:?}", outcomes[1], outcomes[3]);
    let panic = "Lean cannot compute a number of this proof: ";
    assert!(outcomes[1].verdict == Verdict::Resource && outcomes[1].reason.starts_with(panic));
    let honest: Vec<&CheckOutcome> = outcomes.iter().step_by(2).collect();
    assert!(honest.iter().all(|o| o.verdict == Proved && o.reason == NO_REPLAY), "{honest:?}");
    for culprit in [&outcomes[1], &outcomes[3]] {
        assert!(matches!(culprit.verdict, Verdict::Resource | Verdict::Refused), "{culprit:?}");
    }
}

/// Proofs that would run for hours, exhaust the memory or end the process.
const BOMBS: [&str; 10] = [
    "\n  exact absurd (rfl : Nat.shiftLeft 1 (2^33) = 0) (by simp)",
    "\n  have h : (2 : Nat) ^ (2 ^ 40) % 7 = 3 := by decide\n  omega",
    "\n  have h : ∀ n : Fin 100000, n.val * n.val < 1 := by decide\n  exact absurd (h 1) (by decide)",
    "\n  have h : (List.replicate 30000000 (0 : Nat)).length = 1 := by decide\n  simp at h",
    "\n  have h : (List.range 3000000).foldl (· + ·) 0 = 1 := rfl\n  omega",
    "\n  repeat (first | skip | rfl)",
    "\n  have h : ∀ a b : Nat, a + b = b + a + 0 := by intro a b; repeat rw [Nat.add_comm]\n  exact h.elim",
    "\n  have h : (fun n : Nat => Nat.rec 0 (fun _ m => m + m + 1) n) 64 = 5 := by rfl\n  omega",
    "\n  iterate 1000000 (have h : True := trivial)\n  omega",
    "\n  have h : Nat.gcd (3 ^ 2000000) (2 ^ 3000000) = 2 := by decide\n  omega",
];

/// Each bomb costs at most its time limit and a start of Lean, and no other proof.
#[test]
#[ignore = "runs Lean: up to an hour of CPU time; `just lean-all` runs it"]
fn ten_bombs_do_not_affect_five_correct_proofs_in_real_lean() {
    let scratch = tempfile::tempdir().unwrap();
    let limits = Limits { start_ms: 900_000, ..Limits::default() };
    let mut worker = FileChecker { limits, ..checker_that(scratch.path(), false, TrustLayers::ALL, true) }
        .worker(0)
        .unwrap();
    let honest = |i| candidate(&format!("theorem honest{i} (p : Prop) (h : p) : p := by"), "", "\n  exact h");
    let bombs = BOMBS
        .iter()
        .enumerate()
        .map(|(i, body)| candidate(&format!("theorem bomb{i} : False := by"), "", body));
    let mut candidates: Vec<Candidate> = bombs.collect();
    for i in 0..5 {
        candidates.insert(3 * i + 1, honest(i));
    }
    check(&mut worker, &[honest(5)]); // Starts Lean.
    let begun = std::time::Instant::now();
    let outcomes = check(&mut worker, &candidates);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{seconds:.0} s for ten bombs and five correct proofs");
    for (candidate, outcome) in candidates.iter().zip(&outcomes) {
        println!("{}: {:?}: {}", candidate.statement, outcome.verdict, outcome.reason);
        if candidate.statement.starts_with("theorem honest") {
            assert_eq!(outcome.verdict, Proved, "{outcome:?}");
        } else {
            assert!(matches!(outcome.verdict, Verdict::Resource | Verdict::Refused), "{outcome:?}");
        }
    }
    assert!(seconds < 200.0 * candidates.len() as f64, "{seconds} s");
}

#[derive(Clone, serde::Deserialize)]
struct Exploit {
    id: String,
    statement: String,
    helpers: String,
    proof: String,
}

fn read_exploits(name: &str) -> Vec<Exploit> {
    let text = std::fs::read_to_string(repository().join("data/lean").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns both catalogues.
fn all_exploits() -> Vec<Exploit> {
    ["exploits.jsonl", "exploits-kernel.jsonl"].into_iter().flat_map(read_exploits).collect()
}

/// Judges exploits as a run does, with the limits on texts, but under the given layers. Returns a list per set of layers.
fn judged_under(worker: &FileWorker, tried: &[Exploit], layers: &[TrustLayers]) -> Vec<Vec<CheckOutcome>> {
    let candidates: Vec<Candidate> = tried
        .iter()
        .map(|e| Candidate {
            header: "import Lean\n".into(),
            ..candidate(&e.statement, &e.helpers, &e.proof)
        })
        .collect();
    let bounded = |c: &Candidate| {
        [&c.statement, &*c.proof.helpers, &c.proof.body]
            .into_iter()
            .try_for_each(|t| Bounds::default().check(t))
    };
    let asked: Vec<&Candidate> = candidates.iter().filter(|c| bounded(c).is_ok()).collect();
    let mut judged = worker.check_under(&asked, layers).into_iter();
    let outcomes = |c: &Candidate| match bounded(c) {
        Ok(()) => judged.next().unwrap(),
        Err(error) => vec![CheckOutcome::new(Refused, format!("bounds: {error}")); layers.len()],
    };
    let of_candidates: Vec<Vec<CheckOutcome>> = candidates.iter().map(outcomes).collect();
    (0..layers.len())
        .map(|set| of_candidates.iter().map(|outcomes| outcomes[set].clone()).collect())
        .collect()
}

/// The page of the documentation that lists all exploits.
const TABLE: &str = "docs/exploits.md";

/// One exploit and what stops it.
struct Row {
    id: String,
    /// The result without layers, the result with all layers but the syntax layer, and what stops it with all layers.
    cells: [String; 3],
}

fn row(exploit: &Exploit, without: &CheckOutcome, with: &CheckOutcome, all: &CheckOutcome) -> Row {
    let cells = [without, with, all].map(stopped_by);
    Row { id: exploit.id.clone(), cells }
}

/// The layer that stops an exploit. Lean's own messages are left out, because they differ between versions.
fn stopped_by(outcome: &CheckOutcome) -> String {
    let layers = ["bounds", "syntax", "messages", "evidence", "kernel", "axioms", "replay"];
    let layer = layers.into_iter().find(|layer| outcome.reason.starts_with(layer));
    match (outcome.verdict, layer) {
        (Verdict::Proved, _) => ACCEPTED.to_owned(),
        (Verdict::Refused, Some(layer)) => format!("{layer} layer"),
        (Verdict::Refused, None) => "an error".to_owned(),
        (other, _) => other.as_str().to_owned(),
    }
}

/// The result of an exploit that succeeds.
const ACCEPTED: &str = "accepted";

/// The beginning of the page.
const HEAD: &str = "\
# Exploits

Each exploit tries to make a checker accept a false statement, or a proof that is not allowed. `data/lean/exploits.jsonl`
and `exploits-kernel.jsonl` contain their texts and titles; this page lists their ids. Real Lean reads each one twice:
without layers, and with all layers except the syntax layer. A heading gives both results. A bullet names what stops the
exploits with all layers. [trust.md](trust.md#exploits) describes the layers. To generate this page:

```
SGS_WRITE_TABLE=1 cargo nextest run --release -p sgs-lean --run-ignored only -E 'test(exploits_are_tried)'
```

Without the variable, the tests fail if the page is out of date.
";

/// The two results in a heading.
const WITHOUT: &str = "Without layers: ";
const ALMOST: &str = "; with all except the syntax layer: ";

/// The page: exploits grouped by the results without the syntax layer, then by what stops them with it.
fn table(rows: &[Row]) -> String {
    let mut groups: BTreeMap<[&str; 2], BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for Row { id, cells: [without, with, rule] } in rows {
        let group = groups.entry([without, with]).or_default();
        group.entry(rule).or_default().push(id);
    }
    let mut text = String::from(HEAD);
    for ([without, with], rules) in groups {
        let count: usize = rules.values().map(Vec::len).sum();
        text.push_str(&format!("\n## {WITHOUT}{without}{ALMOST}{with} ({count})\n\n"));
        for (rule, entries) in rules {
            text.push_str(&format!("- {rule}: {}\n", entries.join(" ")));
        }
    }
    text
}

/// Parses what [`table`] writes.
fn parse_table(text: &str) -> Vec<Row> {
    let (mut rows, mut group) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let results = heading.strip_prefix(WITHOUT).and_then(|results| results.rsplit_once(" ("));
            group = results.and_then(|(results, _)| results.split_once(ALMOST));
        } else if let (Some((without, with)), Some(line)) = (group, line.strip_prefix("- ")) {
            let (rule, entries) = line.split_once(": ").unwrap();
            rows.extend(entries.split(' ').map(|id| {
                let cells = [without, with, rule].map(str::to_owned);
                Row { id: id.to_owned(), cells }
            }));
        }
    }
    rows
}

#[test]
fn the_table_holds_every_exploit() {
    let text = page().0;
    let mut found: BTreeMap<String, Row> =
        parse_table(&text).into_iter().map(|row| (row.id.clone(), row)).collect();
    let listed = |exploit: &Exploit| {
        found.remove(&exploit.id).unwrap_or_else(|| panic!("{TABLE} lacks {}", exploit.id))
    };
    let expected: Vec<Row> = all_exploits().iter().map(listed).collect();
    assert!(found.is_empty(), "{TABLE} lists unknown exploits: {:?}", found.keys());
    assert_eq!(text, table(&expected), "{TABLE} is out of date: it says how to write it");
}

/// Judges every exploit with all layers, and with each except one in turn. The page tells which layer stops it.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean` runs it"]
fn exploits_are_refused_as_the_page_tells() {
    let tried = all_exploits();
    let scratch = tempfile::tempdir().unwrap();
    let without = [
        TrustLayers { messages: false, ..TrustLayers::ALL },
        TrustLayers { kernel: false, ..TrustLayers::ALL },
        TrustLayers { axioms: false, ..TrustLayers::ALL },
    ];
    let layers = [&[TrustLayers::ALL], &without[..]].concat();
    let mut sets = judged_under(&worker(scratch.path(), false), &tried, &layers).into_iter();
    let outcomes = sets.next().unwrap();
    for (set, layers) in sets.zip(&without) {
        for (exploit, outcome) in tried.iter().zip(&set) {
            assert_ne!(outcome.verdict, Proved, "{} under {layers:?}", exploit.id);
        }
    }
    let found: BTreeMap<String, String> = tried
        .iter()
        .zip(&outcomes)
        .map(|(exploit, outcome)| (exploit.id.clone(), stopped_by(outcome)))
        .collect();
    let told: BTreeMap<String, String> = parse_table(&page().0)
        .into_iter()
        .map(|row| {
            let [_, _, all] = row.cells;
            (row.id, all)
        })
        .collect();
    assert_eq!(found, told, "{TABLE} is out of date: it says how to write it");
    let words: BTreeSet<&str> = found.values().map(String::as_str).collect();
    assert!(words.iter().all(|word| *word == "an error" || word.ends_with(" layer")), "{words:?}");
}

/// Lean elaborates every exploit without the syntax layer. Its results are judged once without any layer, and once by
/// messages, kernel and axioms. A second process reads every exploit with all layers.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn exploits_are_tried_for_real_with_and_without_the_layers() {
    let tried = all_exploits();
    let candidates: Vec<Candidate> = tried.iter().map(hostile).collect();
    let scratch = tempfile::tempdir().unwrap();
    let worker = worker(scratch.path(), false);
    let layers = [
        TrustLayers::NONE,
        NO_SYNTAX,
        TrustLayers { messages: false, ..NO_SYNTAX },
        TrustLayers { kernel: false, ..NO_SYNTAX },
        TrustLayers { axioms: false, ..NO_SYNTAX },
    ];
    let asked: Vec<&Candidate> = candidates.iter().collect();
    let mut rows = Vec::new();
    // Without the syntax layer and messages, kernel or axioms.
    let mut accepted_by_two = [0; 3];
    let stripped = worker.check_under(&asked, &layers);
    let all = judged_under(&worker, &tried, &[TrustLayers::ALL]).remove(0);
    for ((exploit, outcomes), all) in tried.iter().zip(stripped).zip(all) {
        let [without, with, fewer @ ..] = <[CheckOutcome; 5]>::try_from(outcomes).unwrap();
        for (count, outcome) in accepted_by_two.iter_mut().zip(fewer) {
            *count += usize::from(outcome.verdict == Proved);
        }
        println!(
            "{}: {:?} / {:?} {} / {}",
            exploit.id, without.verdict, with.verdict, with.reason, all.reason
        );
        rows.push(row(exploit, &without, &with, &all));
    }
    let found = table(&rows);
    if std::env::var_os("SGS_WRITE_TABLE").is_some() {
        write_page(&found, &page().1);
    }
    let count = |column: usize, word: &str| rows.iter().filter(|row| row.cells[column] == word).count();
    // The axioms layer stops every `sorry`, too.
    assert_eq!(accepted_by_two, [0, count(1, "kernel layer"), count(1, "axioms layer")]);
    assert!(count(0, ACCEPTED) >= 20, "without layers, most exploits work, or this test shows nothing");
    for column in [1, 2] {
        let accepted = rows.iter().filter(|row| row.cells[column] == ACCEPTED);
        let accepted: Vec<&str> = accepted.map(|row| row.id.as_str()).collect();
        assert_eq!(accepted, Vec::<&str>::new(), "accepted in column {column}");
        assert_eq!(count(column, "infra"), 0, "no exploit may stop a run");
    }
    assert_eq!(count(2, "resource"), 0, "no exploit may end the process");
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
        let row = rows.iter().find(|row| row.id == id).unwrap();
        assert_eq!(row.cells[1], layer, "{id}");
    }
    let written = page().0;
    assert!(written == found, "{TABLE} differs from the results (it says how to write it):\n{found}");
}

/// Exploits that end the text before the theorem is queried. Each costs two starts of the REPL, so only one of them is
/// tested.
const SILENT: [&str; 6] = ["E9", "E11", "E11-end", "H23", "H24", "H25"];

/// Returns the exploits for the REPL, which are those that are accepted without layers.
fn exploits_for_a_repl() -> Vec<Exploit> {
    let rows = parse_table(&page().0).into_iter();
    let accepted: BTreeSet<String> = rows.filter(|row| row.cells[0] == ACCEPTED).map(|row| row.id).collect();
    let is_tried = |id: &str| accepted.contains(id) && !SILENT.contains(&id);
    all_exploits().into_iter().filter(|e| is_tried(&e.id)).collect()
}

/// Returns the rows of the second part of the page: each finding, and its exploits.
fn by_finding(who: &str, found: &[(&str, String)]) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, finding) in found {
        println!("{who}: {id}: {finding}");
        rows.entry(format!("{who}: {finding}")).or_default().push((*id).to_owned());
    }
    rows
}

/// The beginning of the second part of the page.
const REPL_HEAD: &str = "\
The exploits that are accepted without layers, sent through the community REPL. The judge's two processes then check what
the REPL accepts, without the syntax layer. Of E8, E9, E11, E11-end, H23, H24 and H25, which hide the rest of the file, only
the first is tried, because each costs two starts. `test(exploits_are_tried_through)` writes this part.

";

/// Returns the two parts of the page.
fn page() -> (String, String) {
    let text = std::fs::read_to_string(repository().join(TABLE)).unwrap();
    let (first, second) = text.split_once(REPL_TITLE).unwrap_or((&text, ""));
    (first.to_owned(), second.to_owned())
}

const REPL_TITLE: &str = "\n## Through the community REPL\n\n";

fn write_page(first: &str, second: &str) {
    std::fs::write(repository().join(TABLE), format!("{first}{REPL_TITLE}{second}")).unwrap();
}

/// Returns `Index.lean` with global definitions instead of its local functions. Within the REPL, the interpreter of this
/// build crashes on local functions in a header.
fn index_with_definitions() -> String {
    const COMMAND: &str = "open Lean Compiler Elab Command in\n";
    let index = include_str!("../../../../../lean/wasm/Index.lean");
    let mut sections = index.split(COMMAND);
    let mut text = sections.next().unwrap().to_owned();
    for section in sections {
        let (mut definitions, mut rest, mut is_definition) = (String::new(), String::new(), false);
        for line in section.split_inclusive('\n') {
            let function = line.strip_prefix("  let index");
            is_definition = function.is_some() || (is_definition && line.starts_with("    "));
            match function {
                Some(function) => {
                    definitions.push_str(&format!("open Lean Compiler in\ndef index{function}"))
                }
                None if is_definition => definitions.push_str(&line[2..]),
                None => rest.push_str(line),
            }
        }
        text.extend([&definitions, COMMAND, &rest]);
    }
    text
}

/// Exploits through the community REPL. Those that the REPL accepts are passed to the judge and its second process, as
/// always, but without the syntax layer. The REPL does not have the kernel check a proof again, and this Lean cannot list axioms.
/// The number of exploits that the REPL accepts shows that the judge is needed.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn exploits_are_tried_through_a_repl() {
    let tried = exploits_for_a_repl();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut repl = repl(first.path(), options());
    let mut judge = worker_under(second.path(), true, NO_SYNTAX);

    let (mut alone, mut accepted) = (Vec::new(), Vec::new());
    let header: std::sync::Arc<str> = format!("import Lean\n{}", index_with_definitions()).into();
    for exploit in &tried {
        let candidate = Candidate { header: header.clone(), ..hostile(exploit) };
        let outcome = repl.check(&[&candidate]).remove(0);
        println!("{}: {} ({} starts)", exploit.id, outcome.reason, repl.starts());
        assert_ne!(outcome.verdict, Verdict::Infra, "{}: no exploit may stop a run", exploit.id);
        if outcome.verdict == Proved {
            accepted.push((exploit.id.as_str(), candidate));
        }
        let finding = if outcome.verdict == Proved { ACCEPTED.to_owned() } else { stopped_by(&outcome) };
        alone.push((exploit.id.as_str(), finding));
    }
    assert!(accepted.len() >= 20, "a REPL alone must accept many, or this test proves nothing");

    // Each Lean takes gigabytes of memory.
    drop(repl);
    let asked: Vec<&Candidate> = accepted.iter().map(|(_, candidate)| candidate).collect();
    let judged = judge.check(&asked);
    let findings: Vec<(&str, String)> =
        accepted.iter().zip(&judged).map(|((id, _), outcome)| (*id, stopped_by(outcome))).collect();
    let mut rows = by_finding("REPL", &alone);
    rows.extend(by_finding("judge", &findings));
    assert!(judged.iter().all(|o| o.verdict == Refused), "accepted without the syntax layer: {judged:#?}");

    if std::env::var_os("SGS_WRITE_TABLE").is_some() {
        let mut text = String::from(REPL_HEAD);
        for (finding, ids) in &rows {
            text.push_str(&format!("- {finding} ({}): {}\n", ids.len(), ids.join(" ")));
        }
        write_page(&page().0, &text);
    }
    let written = page().1;
    for (finding, ids) in &rows {
        let count = ids.len();
        let row = written.lines().find(|line| line.starts_with(&format!("- {finding} ("))).unwrap_or("");
        let found = format!("- {finding} ({count}): {}", ids.join(" "));
        assert_eq!(row, found, "try them again: {TABLE} says how");
    }
}

/// Verifies shipped theorems of every kind, in two files that one process serves.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn shipped_theorems_are_proved_by_a_process_that_stays() {
    let mut kinds: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for target in composed().unwrap() {
        let some = kinds.entry(target.source.unwrap()).or_default();
        if some.len() < 6 {
            some.push(candidate(&target.problem.statement, "", &target.proof.unwrap()));
        }
    }
    let candidates: Vec<Candidate> = kinds.into_values().flatten().collect();
    let dir = tempfile::tempdir().unwrap();
    let mut worker = worker_that(dir.path(), true, TrustLayers::ALL, true);
    let (first, second) = candidates.split_at(candidates.len() / 2);
    let mut outcomes = check(&mut worker, first);
    let judges = ["check", "replay"].map(|task| dir.path().join(format!("judge/slot-0/{task}/Judge.lean")));
    for judge in &judges {
        std::fs::remove_file(judge).unwrap();
    }
    outcomes.extend(check(&mut worker, second));
    assert!(!judges.iter().any(|judge| judge.exists()), "the second file has its own process");
    let left = std::fs::read_dir(dir.path().join("work/slot-0")).unwrap().count();
    assert_eq!(left, 0, "files of declarations are left");
    assert!(outcomes.iter().all(|o| o.verdict == Proved), "{outcomes:?}");
}
