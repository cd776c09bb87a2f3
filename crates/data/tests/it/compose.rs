//! Tests of composed theorems: determinism, canonical form and, with Lean, validity.

use sgs_data::lean::compose::{Theorem, compose, shape};
use sgs_lean::check::Limits;
use sgs_lean::data::{Target, composed, composed_held_out};
use sgs_lean::text::{Bounds, LeanStatement, canonical_statement};
use sgs_lean::{Backing, LeanSettings};
use sgs_selfplay::seed::SeededRng;
use sgs_selfplay::{Problem, ProblemId, Verdict};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

fn some(seed: u64) -> Vec<Theorem> {
    (0..240).flat_map(|number| compose(seed, number, number % 6)).collect()
}

#[test]
fn theorems_follow_from_their_seed() {
    let (one, other) = (some(1), some(2));
    assert_eq!(one, some(1));
    let shapes = |all: &[Theorem]| all.iter().map(|t| shape(&t.signature())).collect::<HashSet<_>>();
    let (one, other) = (shapes(&one), shapes(&other));
    assert!(one.intersection(&other).count() * 2 < one.len(), "two seeds give mostly the same");
}

#[test]
fn every_theorem_is_canonical_and_passes_the_limits() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for theorem in some(3) {
        let text = theorem.statement("t");
        let statement = canonical_statement(&text).unwrap();
        assert_eq!(statement.text, text);
        assert_eq!(statement.signature(), theorem.signature());
        for text in [&statement.text, &theorem.proof()] {
            Bounds::default().check(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        *kinds.entry(theorem.kind).or_default() += 1;
    }
    assert!(kinds.len() >= 15 && kinds.values().all(|n| *n >= 2), "{kinds:?}");
}

#[test]
fn other_names_are_the_same_shape() {
    let mut draw = SeededRng::new(7);
    let mut differ = 0;
    for theorem in some(4) {
        let renamed = theorem.with_other_names(&mut draw);
        assert_eq!(shape(&renamed.signature()), shape(&theorem.signature()));
        differ += usize::from(renamed != theorem);
    }
    assert!(differ > 160, "{differ}");
    let swapped = ["(p q : Prop) (h1 : p ∧ q) : q", "(q p : Prop) (h3 : q ∧ p) : p"].map(shape);
    assert_eq!(swapped[0], swapped[1]);
    assert_ne!(shape("(p q : Prop) (h1 : p ∧ q) : q"), shape("(p q : Prop) (h1 : p ∧ q) : p"));
}

fn shapes(targets: &[Target]) -> HashSet<String> {
    targets.iter().map(|t| shape(LeanStatement::read(&t.problem.statement).unwrap().signature())).collect()
}

#[test]
fn the_shipped_sets_share_no_theorem() {
    let (targets, held_out) = (composed().unwrap(), composed_held_out().unwrap());
    assert!(targets.len() >= 100 && held_out.len() >= 50, "{} and {}", targets.len(), held_out.len());
    let (of_targets, of_held_out) = (shapes(&targets), shapes(&held_out));
    assert_eq!((of_targets.len(), of_held_out.len()), (targets.len(), held_out.len()));
    assert!(of_targets.is_disjoint(&of_held_out));
    assert!(targets.iter().chain(&held_out).all(|t| t.proof.is_some()));
}

/// Draws every production of the generator at every level and checks the theorems with Lean. Lean may refuse one draw
/// in a hundred, if `simp` has already closed the goal.
#[test]
#[ignore = "runs Lean: minutes of CPU time; `just lean-all` runs it"]
fn real_lean_proves_theorems_of_every_production() {
    let mut kinds: BTreeMap<&str, Vec<Theorem>> = BTreeMap::new();
    for number in 0..4000 {
        for theorem in compose(11, number, number % 6).into_iter().take(1) {
            let some = kinds.entry(theorem.kind).or_default();
            if some.len() < 6 {
                some.push(theorem);
            }
        }
    }
    assert!(kinds.len() >= 15 && kinds.values().all(|some| some.len() == 6), "{:?}", kinds.keys());
    let theorems: Vec<Theorem> = kinds.into_values().flatten().collect();
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lean/wasm");
    let settings = LeanSettings {
        backing: Backing::Wasm,
        root: std::env::var_os("SGS_LEAN_WASM").map_or_else(default, PathBuf::from).canonicalize().unwrap(),
        slots: 1,
        theorems_per_file: 1_000,
        // A start takes more than a minute on an idle machine, and longer on a busy one.
        limits: Limits { start_ms: 900_000, proof_ms: 600_000, ..Limits::default() },
        // These proofs are our own, and the sandbox's launcher is another package's binary.
        sandbox: false,
        ..LeanSettings::default()
    };
    let lean = settings.prepare(&[]).unwrap().start().unwrap();
    let verify = |theorem: &Theorem| {
        let (id, statement) = (ProblemId::new("t"), theorem.statement("t"));
        let problem = Problem { id, statement: statement.into(), context: "".into() };
        lean.outcome(&problem, &theorem.proof())
    };
    // Verify all proofs at once, so that one start of Lean suffices.
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = theorems.iter().map(|theorem| scope.spawn(|| verify(theorem))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let refused: Vec<_> = outcomes.iter().filter(|o| o.verdict != Verdict::Proved).collect();
    assert!(refused.len() <= 4 && refused.iter().all(|o| o.reason.contains("No goals")), "{refused:?}");
}
