//! Conjectures that are derived from proofs, and composed ones.

use rayon::prelude::*;
use sgs_base::random::SeededRng;
use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_metamath::composed_sets::{ComposedSet, HELD_OUT_EACH, TARGETS_EACH};
use sgs_metamath::composer::inferences;
use sgs_metamath::congruences::Congruences;
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::{SplitRule, split};
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::system::Metamath;
use sgs_metamath::unify::Unifier;
use sgs_selfplay::config::ComposedKind;
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::collections::HashSet;

#[test]
fn a_proof_is_read_as_the_most_general_statement_that_it_proves() {
    let system = Metamath::shipped().unwrap();
    let target = system.problem("pm2.61").unwrap();
    let condition = Condition::Target(&target);
    let Some(Prompt::Raw(prompt)) = system.derivation_prompt(condition) else { panic!("no prompt") };
    assert!(prompt.ends_with("<conjecture> <proof>"), "{prompt}");
    // Hypotheses are renumbered in the order of their use.
    let read = system.read_derivation(condition, "h3 h7 ~syl ~con3i").unwrap();
    assert_eq!(&*read.statement, "$e |- ( ph -> ps ) $e |- ( ps -> ch ) $p |- ( -. ch -> -. ph )");
    assert_eq!(read.known, None);
    let problem =
        Problem { id: ProblemId::new("c"), statement: read.statement, context: target.context.clone() };
    assert_eq!(system.verify(&problem, "h1 h2 syl con3i").verdict, Verdict::Proved);
    assert_eq!(system.read_derivation(condition, "~id ~a1i").unwrap().known.as_deref(), Some("idd"));
    for (proof, defect) in [
        ("h1", "no-theorem"),
        ("~ax-1 ~ax-1", "no-theorem"),
        ("~pm2.61d1", "no-theorem"),
        ("( ph", "no-label"),
        ("", "empty-proof"),
    ] {
        assert_eq!(system.read_derivation(condition, proof).unwrap_err().kind, defect, "{proof}");
    }
    assert!(system.read_derivation(condition, &"h1 ".repeat(10_000)).is_err());
}

#[test]
fn the_largest_valid_part_of_an_attempt_is_a_conjecture() {
    let system = Metamath::shipped().unwrap();
    let target = system.problem("pm2.61").unwrap();
    let read = |proof: &str| system.derive_from_part(&target, 1, proof);
    // `mpd` needs another formula first, so only the part before it is valid.
    let read_part = read("h1 h2 syl con3i h1 h2 ax-1 con3i mpd mpd mpd mpd").unwrap();
    assert_eq!(&*read_part.statement, "$e |- ( ph -> ps ) $e |- ( ps -> ch ) $p |- ( -. ch -> -. ph )");
    assert_eq!(read("h1").unwrap_err().kind, "no-theorem");
    assert_eq!(read("mpd syl").unwrap_err().kind, "no-theorem");
    assert!(read("nonsense").is_err());
    // Parts that are too short are not conjectures.
    assert!(system.derive_from_part(&target, 2, "h1 h2 syl con3i").is_ok());
    assert_eq!(system.derive_from_part(&target, 3, "h1 h2 syl con3i").unwrap_err().kind, "no-theorem");
}

#[test]
fn composed_conjectures_depend_on_their_seed_alone_and_have_the_length_asked_for() {
    let system = Metamath::shipped().unwrap();
    let target = system.problem("cbvex").unwrap();
    let compose = |seed| system.compose(&target, ComposedKind::Random, 5..=6, seed).unwrap().statement;
    let statements: HashSet<_> = (0..20).map(compose).collect();
    assert!(statements.len() > 15);
    assert_eq!(compose(3), compose(3));
    assert!(system.compose(&target, ComposedKind::Random, 25..=30, 1).is_none());
    let nowhere = Problem { context: "no such label".into(), ..target };
    assert!(system.compose(&nowhere, ComposedKind::Random, 2..=24, 1).is_none());
}

#[test]
fn composed_congruences_are_theorems_of_their_context() {
    let system = Metamath::shipped().unwrap();
    let theory = system.theory();
    let congruences = Congruences::new(theory, &split(theory, SplitRule::default()).lessons);
    let mut unifier = Unifier::new();
    for context in [None, theory.find("cbvex"), theory.find("infxpenlem")] {
        let compose = |number| {
            let mut draw = SeededRng::numbered(1, "congruence", number);
            congruences.compose(theory, &mut unifier, &mut draw, 3..=6, context)
        };
        let composed: Vec<_> = (0..100).filter_map(compose).collect();
        assert!(composed.len() > 20, "{}", composed.len());
        for (theorem, _) in composed {
            assert!(context.is_none_or(|context| context == theorem.rule));
            assert!((3..=6).contains(&inferences(&theorem.steps)));
            let problem = Problem {
                id: ProblemId::new("c"),
                statement: theorem.statement.text(theory).into(),
                context: theory.label(theorem.rule).into(),
            };
            let proof = write_steps(theory, &theorem.steps);
            assert_eq!(system.verify(&problem, &proof).verdict, Verdict::Proved, "{}", problem.statement);
        }
    }
    // Conjectures of this kind are nested congruences, too.
    let target = system.problem("infxpenlem").unwrap();
    for seed in 0..20 {
        let made = system.compose(&target, ComposedKind::Congruence, 3..=10, seed).unwrap();
        let conclusion = made.statement.split("$p |- ( ph -> ").nth(1).unwrap().to_owned();
        assert!(conclusion.contains(" <-> ") || conclusion.contains(" = "), "{}", made.statement);
    }
}

#[test]
fn composed_problems_are_distinct_statements_in_normal_form() {
    let system = Metamath::shipped().unwrap();
    let theory = system.theory();
    let problems = ComposedSet::ALL.map(ComposedSet::problems);
    for (set, problems) in ComposedSet::ALL.iter().zip(&problems) {
        for steps in set.inferences() {
            let count =
                |held_out| problems.iter().filter(|p| p.steps == steps && p.held_out == held_out).count();
            assert_eq!((count(false), count(true)), (TARGETS_EACH, HELD_OUT_EACH), "{}", set.name());
        }
    }
    let mut seen = HashSet::new();
    for problem in problems.iter().flatten() {
        let read = system.problem_from_text(&problem.id, &problem.statement, &problem.context).unwrap();
        assert_eq!(*read.statement, *problem.statement);
        let statement = Statement::parse(theory, &problem.statement, StatementLimits::default()).unwrap();
        assert!(seen.insert(normal_text(theory, &statement)), "{}", problem.id);
        assert!(
            system.read_conjecture(Condition::Target(&read), &problem.statement).unwrap().known.is_none()
        );
    }
}

/// Runs tasks of a parallel iterator that all need the composer first. One of them creates it, and the others wait.
#[test]
fn parallel_tasks_can_create_the_composer() {
    let (finished, is_finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(16).build().unwrap();
        for repetition in 0..5 {
            let system = Metamath::shipped().unwrap();
            let target = system.problem("pm2.61").unwrap();
            let compose = |seed: u64| system.compose(&target, ComposedKind::Random, 2..=24, seed).is_some();
            let found =
                pool.install(|| (0..500).into_par_iter().filter(|&i| compose(500 * repetition + i)).count());
            assert!(found > 0);
        }
        finished.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(60);
    is_finished.recv_timeout(limit).expect("the tasks wait for each other");
}
