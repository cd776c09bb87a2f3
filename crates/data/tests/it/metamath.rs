//! Tests of the complete Metamath corpora of the shipped slice.

use sgs_data::metamath::{BuildOptions, build, conjecturer, guide, solver};
use sgs_formal::{Condition, FormalSystem};
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::splits::{SplitRule, split};
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_metamath::unify::Unifier;
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::collections::HashSet;
use std::sync::OnceLock;

fn system() -> &'static Metamath {
    static SYSTEM: OnceLock<Metamath> = OnceLock::new();
    SYSTEM.get_or_init(|| Metamath::shipped().expect("the shipped slice"))
}

#[test]
fn no_training_text_states_a_target_and_every_proof_of_the_corpus_holds() {
    let system = system();
    let theory = system.theory();
    let split = split(theory, SplitRule::default());
    let targets: HashSet<String> = split
        .targets
        .iter()
        .filter_map(|&t| sgs_metamath::statement::normal_form_of_rule(theory, t))
        .map(|s| normal_text(theory, &s))
        .collect();
    let print = |text: &str| {
        normal_text(
            theory,
            &Statement::parse(theory, text, StatementLimits::default()).expect("canonical text"),
        )
    };
    let composed: Vec<_> =
        solver::Composed::new(system, &split, usize::MAX).batches(7, 500).flatten().collect();
    assert_eq!(composed.len(), 500);
    let proofs = solver::theorems(theory, &split).into_iter().chain(solver::sub_proofs(theory, &split));
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
    let library = system.assertion_index();
    let mut unifier = Unifier::new();
    let mut fault = |text: &str, source: RuleId| {
        let statement = Statement::parse(theory, text, StatementLimits::default()).expect("canonical text");
        library.triviality(theory, &mut unifier, &statement, theory.rule(source).statement)
    };
    for example in conjecturer::examples(system, &split, 7) {
        assert!(
            !targets.contains(&print(&example.conjecture)),
            "a target as a conjecture: {}",
            example.conjecture
        );
        if matches!(example.condition, conjecturer::Condition::Target(_)) {
            assert_eq!(fault(&example.conjecture, example.source), None, "{}", example.conjecture);
        }
    }
    let maker = guide::Maker::new(system, &split);
    for example in maker.examples(7, 1) {
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
fn composed_theorems_do_not_depend_on_the_number_of_threads() {
    let system = system();
    let split = split(system.theory(), SplitRule::default());
    let composer = solver::Composed::new(system, &split, usize::MAX);
    let texts = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| composer.batches(5, 300).flatten().map(|e| e.statement).collect::<Vec<_>>())
    };
    assert_eq!(texts(1), texts(3));
}

#[test]
fn corpora_are_the_same_for_a_seed_and_differ_between_seeds() {
    let system = system();
    let split = split(system.theory(), SplitRule::default());
    let composer = solver::Composed::new(system, &split, usize::MAX);
    let texts = |seed| composer.batches(seed, 50).flatten().map(|e| e.statement).collect::<Vec<_>>();
    assert_eq!(texts(1), texts(1));
    assert_ne!(texts(1), texts(2));
}

#[test]
fn conjectures_of_the_corpus_read_back_in_their_context() {
    let system = system();
    let theory = system.theory();
    let split = split(theory, SplitRule::default());
    for example in conjecturer::examples(system, &split, 3).iter().step_by(7) {
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
fn a_build_reports_each_file_before_it_is_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("small.mm");
    let small = "$c ( ) -> wff |- $. $v p q $. wp $f wff p $. wq $f wff q $. wi $a wff ( p -> q ) $.\n\
        ax-1 $a |- ( p -> ( q -> p ) ) $.\n";
    std::fs::write(&source, small).expect("a file");
    let options = BuildOptions {
        source: Some(source),
        out: dir.path().join("out"),
        seed: 1,
        composed: 0,
        reviews: 1,
        max_steps: None,
    };
    let steps = std::sync::Mutex::new(Vec::new());
    build(&options, &|step| steps.lock().unwrap().push(step)).expect("the corpora");
    let steps = steps.into_inner().unwrap();
    assert!(steps.contains(&"making solver.parquet, file 1 of 5".to_owned()), "{steps:?}");
}
