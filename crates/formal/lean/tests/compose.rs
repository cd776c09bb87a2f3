//! Composed theorems: what follows from a seed, and what every production must keep to before Lean is asked.
#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use sgs_lean::admit;
use sgs_lean::compose::{Theorem, compose, shape};
use sgs_lean::data::{Target, composed, composed_held_out};
use sgs_lean::read::Proof;
use sgs_lean::text::{Bounds, Statement, canonical_statement};
use sgs_selfplay::seed::Stream;
use std::collections::{BTreeMap, HashSet};

fn some(seed: u64) -> Vec<Theorem> {
    (0..600).flat_map(|number| compose(seed, number, number % 6)).collect()
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
fn every_theorem_is_canonical_and_passes_the_textual_layer() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for theorem in some(3) {
        let text = theorem.statement("t");
        let (statement, repair) = canonical_statement(&text).unwrap();
        assert_eq!((statement.text.as_str(), repair), (text.as_str(), None));
        assert_eq!(statement.signature(), theorem.signature());
        let proof = Proof::new(theorem.proof());
        admit(&statement, &proof, &Bounds::default()).unwrap_or_else(|e| panic!("{text}{}: {e}", proof.body));
        *kinds.entry(theorem.kind).or_default() += 1;
    }
    assert!(kinds.len() >= 15 && kinds.values().all(|n| *n >= 2), "{kinds:?}");
}

#[test]
fn other_names_are_the_same_shape() {
    let mut draw = Stream::new(7);
    let mut differ = 0;
    for theorem in some(4) {
        let renamed = theorem.with_other_names(&mut draw);
        assert_eq!(shape(&renamed.signature()), shape(&theorem.signature()));
        differ += usize::from(renamed != theorem);
    }
    assert!(differ > 400, "{differ}");
    let swapped = ["(p q : Prop) (h1 : p ∧ q) : q", "(q p : Prop) (h3 : q ∧ p) : p"].map(shape);
    assert_eq!(swapped[0], swapped[1]);
    assert_ne!(shape("(p q : Prop) (h1 : p ∧ q) : q"), shape("(p q : Prop) (h1 : p ∧ q) : p"));
}

fn shapes(targets: &[Target]) -> HashSet<String> {
    targets.iter().map(|t| shape(Statement::read(&t.problem.statement).unwrap().signature())).collect()
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
