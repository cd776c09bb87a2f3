//! Sampling seeds.

use sgs_selfplay::seed::{evaluation_seed, task_seed};
use sgs_selfplay::{ProblemId, Role};

/// Existing runs depend on the layout of the hashed bytes, so these values must never change.
#[test]
fn seeds_have_their_pinned_values() {
    let id = ProblemId::new("a1i");
    let pinned: Vec<u64> = [(0, 0, Role::Solver, 0), (42, 7, Role::Conjecturer, 1), (42, 7, Role::Guide, 1)]
        .into_iter()
        .map(|(run, round, role, index)| task_seed(run, round, role, &id, index))
        .collect();
    assert_eq!(pinned, PINNED);
}

const PINNED: [u64; 3] = [10972304305233224775, 10764262907731438047, 4765962863831472070];

#[test]
fn the_seed_depends_on_every_part_of_the_key() {
    let (a, b) = (ProblemId::new("a"), ProblemId::new("b"));
    let base = task_seed(1, 2, Role::Solver, &a, 3);
    let others = [
        task_seed(2, 2, Role::Solver, &a, 3),
        task_seed(1, 3, Role::Solver, &a, 3),
        task_seed(1, 2, Role::Guide, &a, 3),
        task_seed(1, 2, Role::Solver, &b, 3),
        task_seed(1, 2, Role::Solver, &a, 4),
    ];
    assert!(others.iter().all(|&seed| seed != base));
}

#[test]
fn evaluation_seeds_differ_from_task_seeds() {
    let (a, b) = (ProblemId::new("a"), ProblemId::new("b"));
    let seed = evaluation_seed(1, &a, 3);
    assert_eq!(seed, evaluation_seed(1, &a, 3));
    let others = [evaluation_seed(2, &a, 3), evaluation_seed(1, &b, 3), evaluation_seed(1, &a, 4)];
    assert!(others.iter().all(|&other| other != seed));
    assert!((0..100).all(|round| task_seed(1, round, Role::Solver, &a, 3) != seed));
}
