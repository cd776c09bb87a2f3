//! The shipped slice, its targets and its corpora, as a whole.
#![allow(clippy::expect_used)]

use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_metamath::corpus::splits::{SplitRule, normal_text, split};
use sgs_metamath::corpus::{conjecturer, guide, solver};
use sgs_metamath::judge::database_proof;
use sgs_metamath::library::Fault;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_metamath::unify::Checker;
use sgs_selfplay::{Judgement, Problem, ProblemId, Verdict};
use std::collections::HashSet;
use std::sync::OnceLock;

fn system() -> &'static Metamath {
    static SYSTEM: OnceLock<Metamath> = OnceLock::new();
    SYSTEM.get_or_init(|| Metamath::shipped().expect("the shipped slice"))
}

#[test]
fn every_target_in_normal_form_is_proved_by_the_databases_own_proof() {
    let system = system();
    let split = split(system.theory(), SplitRule::default());
    assert_eq!(split.targets.len(), 1_000);
    for &target in &split.targets {
        let label = system.theory().label(target);
        let problem = system.problem(label).expect("a problem");
        let steps = database_proof(system.theory(), target, 60).expect("readable").expect("short");
        let proof = write_steps(system.theory(), &steps);
        let completion = system.proof_completion(&proof);
        assert_eq!(system.read_proof(&problem, &completion).expect("well-formed"), proof);
        let judgement = system.verify(&problem, &proof);
        assert_eq!(judgement.verdict, Verdict::Proved, "{label}: {}", judgement.reason);
        // Its last label stands for the target itself or later: citing the target is refused.
        let cited = system.verify(&problem, label);
        assert_eq!(cited.verdict, Verdict::Refused, "{label} proves itself");
    }
}

#[test]
fn proofs_of_a_problem_are_judged_together_as_each_alone() {
    let system = system();
    let syl = system.problem("syl").expect("syl");
    let proofs = ["h1 h2 a1i mpd", "h1 h2 a1i", "syl", "h3", "", "h1 h1 h1", "h1 h2 a1i mpd"];
    let unreadable = Problem { statement: "$p |- (".into(), ..syl.clone() };
    for (problem, proved) in [(&syl, 2), (&unreadable, 0)] {
        let together = system.verify_all(problem, &proofs);
        assert_eq!(together.len(), proofs.len());
        assert_eq!(together.iter().filter(|j| j.verdict == Verdict::Proved).count(), proved);
        for (proof, judged) in proofs.iter().zip(together) {
            let alone = system.verify(problem, proof);
            assert_eq!(Judgement { micros: alone.micros, ..judged }, alone, "{proof}");
        }
    }
}

#[test]
fn no_training_text_states_a_target_and_every_proof_of_the_corpus_holds() {
    let system = system();
    let (theory, book) = (system.theory(), system.book());
    let split = split(theory, SplitRule::default());
    let targets: HashSet<String> = split
        .targets
        .iter()
        .filter_map(|&t| sgs_metamath::system::normal_form_of_rule(theory, t))
        .map(|s| normal_text(theory, &s))
        .collect();
    let print = |text: &str| {
        normal_text(
            theory,
            &Statement::parse(theory, text, StatementLimits::default()).expect("canonical text"),
        )
    };
    let composed: Vec<_> = solver::Composer::new(theory, book, &split).batches(7, 2_000).flatten().collect();
    assert_eq!(composed.len(), 2_000);
    let proofs = solver::theorems(theory, &split).into_iter().chain(solver::sub_proofs(theory, book, &split));
    for example in proofs.chain(composed) {
        assert!(
            !targets.contains(&print(&example.statement)),
            "a target is in the corpus: {}",
            example.statement
        );
        let context = theory.label(example.source);
        let problem = Problem {
            id: ProblemId::new("example"),
            statement: example.statement.as_str().into(),
            context: context.into(),
        };
        let judgement = system.verify(&problem, &example.proof);
        assert_eq!(judgement.verdict, Verdict::Proved, "{}: {}", example.statement, judgement.reason);
    }
    let library = system.library();
    let mut checker = Checker::new();
    let mut fault = |text: &str, source: RuleId| {
        let statement = Statement::parse(theory, text, StatementLimits::default()).expect("canonical text");
        library.fault(theory, book, &mut checker, &statement, theory.rule(source).statement)
    };
    for example in conjecturer::examples(theory, book, library, &split, 7) {
        assert!(
            !targets.contains(&print(&example.conjecture)),
            "a target as a conjecture: {}",
            example.conjecture
        );
        if matches!(example.condition, conjecturer::Condition::Target(_)) {
            assert_eq!(fault(&example.conjecture, example.source), None, "{}", example.conjecture);
        }
    }
    let maker = guide::Maker::new(theory, book, library, &split);
    for example in maker.examples(7, 3) {
        assert!(
            !targets.contains(&print(&example.conjecture)),
            "a target in a review: {}",
            example.conjecture
        );
        assert!(!targets.contains(&print(&example.target)), "a target in a review: {}", example.target);
        assert_eq!(example.relation.helps(), example.review != guide::WORTHLESS);
        if example.relation.helps() {
            assert!((1.0..=5.0).contains(&example.review.relevance));
            assert_eq!(fault(&example.conjecture, example.source), None, "{}", example.conjecture);
        }
    }
    for example in maker.of_targets(7, 2) {
        assert!(targets.contains(&print(&example.target)), "not a target: {}", example.target);
    }
}

#[test]
fn the_library_knows_what_stands_before_a_place_and_what_follows_at_once() {
    let system = system();
    let (theory, book, library) = (system.theory(), system.book(), system.library());
    let mut checker = Checker::new();
    let place = |label: &str| theory.rule(theory.find(label).expect("a theorem")).statement;
    let mut fault = |text: &str, label: &str| {
        let statement = Statement::parse(theory, text, StatementLimits::default()).expect("canonical text");
        library.fault(theory, book, &mut checker, &statement, place(label))
    };
    assert_eq!(fault("$p |- ( ch -> ch )", "idd"), Some(Fault::Known));
    assert_eq!(fault("$p |- ( ch -> ch )", "id"), None, "it is not known before its own place");
    assert_eq!(fault("$p |- ( ( ph -> ps ) -> ( ph -> ps ) )", "idd"), Some(Fault::OneStep));
    assert_eq!(fault("$e |- ch $e |- ( ch -> ( ph -> ps ) ) $p |- ( ph -> ps )", "id"), Some(Fault::OneStep));
    assert_eq!(fault("$e |- ph $e |- ps $p |- ( ph -> ch )", "id"), None);
    assert_eq!(fault("$p |- ( ph -> ps )", "syl"), None);
}

#[test]
fn a_conjecture_is_shown_in_the_names_of_its_target_and_the_place_is_told() {
    let system = system();
    let problem = |statement: &str| Problem {
        id: ProblemId::new("p"),
        statement: statement.into(),
        context: "syl".into(),
    };
    let target = problem("$e |- ( ph -> ps ) $e |- ( ps -> ch ) $p |- ( ph -> ch )");
    let shown = system.guide_prompt(&target, &problem("$p |- ( ( ph -> ps ) -> ( th -> ( ph -> ps ) ) )"));
    let Prompt::Raw(shown) = shown else { panic!("not raw text") };
    assert!(shown.starts_with("<guide> <at-0> $e |- ( ph -> ps ) $e"), "{shown}");
    // Two variables take names of the target, so that both have a formula in common.
    let conjecture = shown.split("<conjecture> ").nth(1).expect("a conjecture");
    let formulas = ["( ph -> ps )", "( ps -> ch )", "( ph -> ch )"];
    assert!(formulas.iter().any(|f| conjecture.matches(f).count() == 2), "{shown}");
}

#[test]
fn composed_theorems_do_not_depend_on_the_number_of_threads() {
    let system = system();
    let (theory, book) = (system.theory(), system.book());
    let split = split(theory, SplitRule::default());
    let composer = solver::Composer::new(theory, book, &split);
    let texts = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| composer.batches(5, 300).flatten().map(|e| e.statement).collect::<Vec<_>>())
    };
    assert_eq!(texts(1), texts(3));
}

#[test]
fn corpora_are_the_same_for_a_seed_and_differ_between_seeds() {
    let system = system();
    let (theory, book) = (system.theory(), system.book());
    let split = split(theory, SplitRule::default());
    let composer = solver::Composer::new(theory, book, &split);
    let texts = |seed| composer.batches(seed, 50).flatten().map(|e| e.statement).collect::<Vec<_>>();
    assert_eq!(texts(1), texts(1));
    assert_ne!(texts(1), texts(2));
}

#[test]
fn conjectures_of_the_corpus_read_back_in_their_context() {
    let system = system();
    let (theory, book) = (system.theory(), system.book());
    let split = split(theory, SplitRule::default());
    for example in conjecturer::examples(theory, book, system.library(), &split, 3).iter().step_by(7) {
        let target = system.problem(theory.label(example.source)).expect("a theorem");
        let read = system.read_conjecture(Condition::Target(&target), &example.conjecture);
        let read = read.unwrap_or_else(|e| panic!("{}: {e}", example.conjecture));
        // Normal form is a fixed point.
        let again = system.read_conjecture(Condition::Target(&target), &read.statement).expect("normal form");
        assert_eq!(read.statement, again.statement);
        assert_eq!(read.known, again.known, "whatever the variables are called");
        assert!((0.0..=8.0).contains(&read.rubric));
    }
}

#[test]
fn malformed_completions_have_their_own_reasons() {
    let system = system();
    let target = system.problem("syl").expect("syl");
    let kind =
        |text: &str| system.read_conjecture(Condition::Target(&target), text).expect_err("malformed").kind;
    assert_eq!(kind(""), "no-conclusion");
    assert_eq!(kind("|- ph"), "no-keyword");
    assert_eq!(kind("$p ( ph -> ph )"), "no-turnstile");
    assert_eq!(kind("$p |- ( ph -> ph"), "no-formula");
    assert_eq!(kind("$p |- ( ph -> nonsense )"), "unknown-symbol");
    assert_eq!(kind("$p |- ph $e |- ps"), "after-conclusion");
    assert_eq!(kind("$d x $p |- A. x ph"), "distinct");
    assert_eq!(kind("$p |- A = B"), "later-symbol");
    assert_eq!(kind(&format!("$p |- {}ph", "-. ".repeat(400))), "too-long");
    assert_eq!(system.read_proof(&target, "h1 h3").expect_err("malformed").kind, "no-such-hypothesis");
    assert_eq!(system.read_proof(&target, "h1 ph").expect_err("malformed").kind, "no-label");
    assert_eq!(
        system.read_review("relevance-6 redundancy-0 complexity-0").expect_err("malformed").kind,
        "no-relevance"
    );
    assert!(system.read_review("relevance-5 redundancy-1 complexity-4").is_ok());
    assert!(
        matches!(system.solver_prompt(&target), Prompt::Raw(p) if p.starts_with("<solver> <at-0> $e |- ( ph -> ps )"))
    );
}
