//! Lean behind the trait `FormalSystem`, over scripted processes.

use crate::scripted;
use sgs_formal::FormalSystem;
use sgs_lean::check::{
    CheckerConfig, FileChecker, JudgeProgram, Launch, Limits, NO_REPLAY, Probe, Recycling, ReplChecker,
    TrustLayers,
};
use sgs_lean::prompt::SolverForm;
use sgs_lean::read::Reading;
use sgs_lean::text::{Bounds, LeanStatement};
use sgs_lean::{Lean, LeanConfig, LeanSettings, PreparedLean, StartError, Templates, Version};
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn launch(folder: &Path, args: &[&str]) -> Launch {
    Launch {
        program: scripted::repl(),
        args: args.iter().map(Into::into).collect(),
        env: Vec::new(),
        folder: folder.to_owned(),
        cgroup: None,
    }
}

fn lean(folder: &Path, judge: bool) -> Lean {
    Lean::start(config(folder, judge)).unwrap()
}

fn config(folder: &Path, judge: bool) -> LeanConfig {
    let limits = Limits { proof_ms: 30_000, start_ms: 60_000, ..Limits::default() };
    let checker = ReplChecker {
        launch: launch(folder, &[]),
        options: vec![("autoImplicit".into(), "false".into())],
        probe: Probe::Axioms,
        limits,
        recycling: Recycling::default(),
    };
    let second = judge.then(|| FileChecker {
        judge: JudgeProgram::Built(launch(folder, &[])),
        replay: true,
        scratch: folder.to_owned(),
        options: Vec::new(),
        layers: TrustLayers::ALL,
        limits,
        batch: 8,
        linger_ms: 20,
        keep_alive: false,
    });
    LeanConfig {
        reading: Reading::Lenient,
        form: SolverForm::NonCot,
        templates: Templates::default(),
        bounds: Bounds::default(),
        checker: CheckerConfig::Repl(checker),
        second,
        slots: 2,
        cache: 100,
        version: Version { number: "4.15.0".into(), text: "scripted".into() },
    }
}

fn problem() -> Problem {
    Problem {
        id: ProblemId::new("p"),
        statement: "theorem t (n : ℕ) : n = n := by".into(),
        context: "import Mathlib\n\n".into(),
    }
}

#[test]
fn a_completion_becomes_a_judgement() {
    let folder = tempfile::tempdir().unwrap();
    let lean = lean(folder.path(), false);
    let p = problem();
    let completion = "Here.\n```lean4\nimport Mathlib\n\nlemma aux : True := trivial\ntheorem t (n : ℕ) : n = n := by\n  try rfl\n```";
    let proof = lean.read_proof(&p, completion).unwrap();
    assert!(lean.is_penalised(&proof));
    let proved = lean.verify(&p, &proof);
    assert_eq!(
        (proved.verdict, proved.reason.as_str()),
        (Verdict::Proved, NO_REPLAY),
        "the missing layer is named"
    );
    let refused = lean.verify(&p, "\n  rfl \u{202e}");
    assert_eq!(refused.verdict, Verdict::Refused);
    assert!(refused.reason.starts_with("bounds: the character U+202E"), "{}", refused.reason);
    assert_eq!(lean.status().judged, 1, "what exceeds the limits never reaches Lean");
    assert_eq!(lean.name(), "lean");
    assert!(Lean::identity(&lean).options.contains(&("autoImplicit".into(), "false".into())));
}

#[test]
fn checkers_with_other_bounds_have_another_identity() {
    let folder = tempfile::tempdir().unwrap();
    let short =
        LeanConfig { bounds: Bounds { bytes: 5, ..Bounds::default() }, ..config(folder.path(), false) };
    let (default, short) = (lean(folder.path(), false), Lean::start(short).unwrap());
    assert_eq!(default.verify(&problem(), "\n  rfl").verdict, Verdict::Proved);
    assert_eq!(short.verify(&problem(), "\n  rfl").verdict, Verdict::Refused);
    assert_ne!(Lean::identity(&default), Lean::identity(&short));
    let names = [&default, &short].map(FormalSystem::identity);
    assert!(names[0].ends_with("options: autoImplicit false"), "the name of early versions: {}", names[0]);
    let bounds = "; bounds: 5 bytes, depth 200, numeral 1000, name 500";
    assert_eq!(names[1], format!("{}{bounds}", names[0]));
}

#[test]
fn a_repl_needs_a_statement_with_a_name_and_a_signature() {
    let folder = tempfile::tempdir().unwrap();
    let problem = Problem { statement: "example : 1 = 1 := rfl".into(), ..problem() };
    let outcome = lean(folder.path(), true).outcome(&problem, "\n  rfl");
    assert_eq!(outcome.verdict, Verdict::Refused);
    assert!(outcome.reason.starts_with("statement: "), "{}", outcome.reason);
}

/// Nothing but the judge parses a header or a statement.
#[test]
fn headers_and_statements_reach_the_judge() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), true);
    let judge = CheckerConfig::File(config.second.clone().unwrap());
    let lean = Lean::start(LeanConfig { checker: judge, second: None, ..config }).unwrap();
    let refused = Problem { context: "axiom foo : False\n".into(), ..problem() };
    let outcome = lean.outcome(&refused, "\n  rfl");
    assert_eq!(outcome.reason, "syntax layer: the header contains an axiom");
    let statement = "theorem t : True := by trivial";
    assert!(LeanStatement::read(statement).is_err());
    // The scripted judge accepts it.
    let outcome = lean.outcome(&Problem { statement: statement.into(), ..problem() }, "\n  rfl");
    assert_eq!(outcome.verdict, Verdict::Proved, "{}", outcome.reason);
}

#[test]
fn line_ends_of_other_systems_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let lean = lean(folder.path(), false);
    let problem = Problem {
        id: ProblemId::new("p"),
        statement: "theorem t (n : ℕ) :\r\n  n = n := by".into(),
        context: "import Mathlib\r\n\r\n".into(),
    };
    let outcome =
        lean.outcome(&problem, "lemma aux : True := trivial\r\n-- proof of the target:\r\n\r\n  rfl\r\n");
    assert_eq!(outcome.verdict, Verdict::Proved, "{}", outcome.reason);
}

#[test]
fn equal_proofs_are_judged_once_and_undecided_ones_again() {
    let folder = tempfile::tempdir().unwrap();
    let lean = lean(folder.path(), false);
    for _ in 0..3 {
        assert_eq!(lean.verify(&problem(), "\n  rfl").verdict, Verdict::Proved);
    }
    assert_eq!(lean.status().judged, 1);
    for _ in 0..2 {
        assert_eq!(lean.verify(&problem(), "\n  exact scripted_torn").verdict, Verdict::Infra);
    }
    assert_eq!(lean.status().judged, 3);
}

#[test]
fn the_judge_overrides_the_repl() {
    let folder = tempfile::tempdir().unwrap();
    let lean = lean(folder.path(), true);
    let check = |body: &str| lean.verify(&problem(), body);
    assert_eq!(check("\n  rfl").verdict, Verdict::Proved);
    let axiom = check("\n  exact scripted_replay_axiom");
    assert_eq!(
        (axiom.verdict, axiom.reason.as_str()),
        (Verdict::Refused, "replay layer: axioms layer: cheat")
    );
    assert_eq!(check("\n  exact scripted_replay_denied").verdict, Verdict::Refused);
    assert_eq!(check("\n  exact scripted_replay_crash").verdict, Verdict::Resource);
    assert!(Lean::identity(&lean).judge);
}

#[test]
fn the_scratch_folder_is_new_private_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    // Another user can create a folder whose name is predictable.
    let guessed = std::env::temp_dir().join(format!("sgs-lean-{}", std::process::id()));
    std::fs::create_dir_all(&guessed).unwrap();
    let settings = LeanSettings { scratch: None, ..installation(folder.path(), "4.15.0") };
    let (one, two) = (settings.prepare(&[]).unwrap(), settings.prepare(&[]).unwrap());
    std::fs::remove_dir_all(&guessed).unwrap();
    let scratch = |prepared: &PreparedLean| prepared.lean.folder.parent().unwrap().to_owned();
    let (made, other) = (scratch(&one), scratch(&two));
    assert!(made.is_dir() && made != guessed && made != other);
    assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
    drop(two);
    assert!(!other.exists());
    let lean = one.start().unwrap();
    assert_eq!(lean.verify(&problem(), "\n  rfl").verdict, Verdict::Proved);
    drop(lean);
    assert!(!made.exists());
}

#[test]
fn canaries_detect_a_checker_that_accepts_everything() {
    // The scripted REPL accepts every proof. The canary with a falsehood must detect that.
    let folder = tempfile::tempdir().unwrap();
    match lean(folder.path(), false).canaries("") {
        Err(StartError::Canary { name, found, .. }) => assert_eq!((name, found), ("a falsehood", "proved")),
        other => panic!("{other:?}"),
    }
}

/// Creates an installation with scripted programs.
fn installation(root: &Path, version: &str) -> LeanSettings {
    let toolchain = root.join("elan/toolchains/leanprover--lean4---v4.15.0/bin");
    let repl = root.join("repl/.lake/build/bin");
    let judge = root.join("judge/.lake/build/bin");
    for folder in [&toolchain, &repl, &judge, &root.join("mathlib4")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for program in [repl.join("repl"), judge.join("sgs-judge")] {
        std::fs::copy(scripted::repl(), program).unwrap();
    }
    // The scripted REPL does not print a version, so `lean` is a shell script.
    let lean = toolchain.join("lean");
    std::fs::write(
        &lean,
        format!("#!/bin/sh\necho 'Lean (version {version}, scripted, commit 0, Release)'\n"),
    )
    .unwrap();
    std::fs::set_permissions(&lean, std::fs::Permissions::from_mode(0o755)).unwrap();
    LeanSettings {
        root: root.to_owned(),
        scratch: Some(root.join("scratch")),
        sandbox: false,
        ..LeanSettings::default()
    }
}

#[test]
fn the_version_is_recorded_and_a_mismatch_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lean = installation(folder.path(), "4.15.0").prepare(&[]).unwrap().start().unwrap();
    assert_eq!(Lean::identity(&lean).version.text, "Lean (version 4.15.0, scripted, commit 0, Release)");
    let identity = FormalSystem::identity(&lean);
    assert!(
        identity.contains("4.15.0, scripted") && identity.contains("maxSynthPendingDepth 3"),
        "{identity}"
    );
    assert_eq!(lean.verify(&problem(), "\n  rfl").verdict, Verdict::Proved);

    drop(lean);
    assert!(folder.path().join("scratch").is_dir(), "a configured folder is kept");

    let other = installation(&folder.path().join("other"), "4.16.0-rc1").prepare(&[]).unwrap().start();
    let error = other.err().unwrap().to_string();
    assert!(error.contains("requires Lean 4.15.0") && error.contains("4.16.0-rc1"), "{error}");

    let silent = installation(&folder.path().join("silent"), "4.15.0");
    std::fs::write(
        folder.path().join("silent/elan/toolchains/leanprover--lean4---v4.15.0/bin/lean"),
        "#!/bin/sh\necho no\n",
    )
    .unwrap();
    let error = silent.prepare(&[]).unwrap().start().err().unwrap().to_string();
    assert!(error.contains("--version` printed `no`"), "{error}");
}
