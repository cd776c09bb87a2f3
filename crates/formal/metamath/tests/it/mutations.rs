//! Mutated proofs: unifier and kernel agree, and third-party verifiers agree with the kernel.

use crate::mutants;
use crate::verifiers;
use mutants::{Accepted, Mutator, mutate_operations, try_mutants, without_one_distinct};
use sgs_metamath::export::{FreshLabels, theorem_block};
use sgs_metamath::judge::{Judge, kernel_accepts};
use sgs_metamath::kernel::Kernel;
use sgs_metamath::theorem_proofs::theorem_proofs;
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::{Goal, ProofLimits};
use sgs_selfplay::Verdict;
use sgs_selfplay::seed::SeededRng;
use std::collections::BTreeSet;
use std::path::Path;

fn mini() -> Theory {
    Theory::read(Path::new("tests/data/mini.mm")).unwrap()
}

/// Appends a theorem to the database for each goal and proof. Returns the text and the labels of the theorems.
fn extended(theory: &Theory, theorems: &[Accepted]) -> (Vec<u8>, Vec<String>) {
    let mut labels = FreshLabels::new(theory);
    let (mut text, mut names) = (theory.database().text(), Vec::new());
    for t in theorems {
        let label = labels.next("m");
        text.extend_from_slice(theorem_block(theory, &t.goal, &t.ops, &label, "").unwrap().as_bytes());
        names.push(label);
    }
    (text, names)
}

/// Mutates `count` full proofs and compares the kernel's verdicts with those of `metamath-rs`.
fn compare_kernels(theory: &Theory, count: usize, seed: u64) -> (usize, usize) {
    let proofs = theorem_proofs(theory, 60);
    let (mut judge, mut kernel, mut rng) = (Judge::new(), Kernel::new(), SeededRng::new(seed));
    let (mut theorems, mut ours) = (Vec::new(), Vec::new());
    while theorems.len() < count {
        let proof = &proofs[rng.below(proofs.len() as u64) as usize];
        let mut goal = Goal::of_rule(theory, proof.rule).unwrap();
        let mut ops = judge.prove(theory, &goal, &proof.steps, ProofLimits::default()).unwrap();
        match (rng.below(4), without_one_distinct(theory, proof.rule, &mut rng)) {
            (0, Some(weaker)) => goal = weaker,
            _ => ops = mutate_operations(theory, &goal, &ops, &mut rng),
        }
        ours.push(kernel_accepts(&mut kernel, theory, &goal, &ops).is_ok());
        theorems.push(Accepted { goal, ops });
    }
    let (text, labels) = extended(theory, &theorems);
    let theirs = verifiers::metamath_rs(text);
    for ((label, &ours), t) in labels.iter().zip(&ours).zip(&theorems) {
        let theirs_says = theirs.get(label);
        assert_eq!(ours, theirs_says.is_none(), "{label}: {theirs_says:?}\n{:?}", t.ops);
    }
    let known: BTreeSet<&String> = labels.iter().collect();
    assert!(theirs.keys().all(|l| known.contains(l)), "a statement of the original database is rejected");
    let accepted = ours.iter().filter(|&&o| o).count();
    (accepted, ours.len() - accepted)
}

#[test]
fn unifier_and_kernel_agree_on_mutated_proofs() {
    let theory = mini();
    let proofs = theorem_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let outcome = try_mutants(&theory, &mutator, 7, 20_000, 2_000);
    println!("{}", outcome.tally);
    assert_eq!(outcome.disagreements, Vec::<String>::new());
    assert_eq!(outcome.tally.of(Verdict::Infra), 0);
    assert_eq!(outcome.tally.total(), 20_000);
    assert!(outcome.tally.of(Verdict::Proved) > 200 && outcome.tally.of(Verdict::Refused) > 15_000);
    let (text, _) = extended(&theory, &outcome.accepted);
    assert_eq!(verifiers::metamath_rs(text), Default::default());
}

#[test]
fn mutants_do_not_depend_on_the_number_of_threads() {
    let theory = mini();
    let proofs = theorem_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| try_mutants(&theory, &mutator, 3, 2_200, 0).tally)
    };
    assert_eq!(on(1), on(2));
}

#[test]
fn the_kernel_agrees_with_metamath_rs() {
    let (accepted, refused) = compare_kernels(&mini(), 3_000, 11);
    println!("{accepted} accepted by both, {refused} rejected by both");
    assert!(accepted > 100 && refused > 1_000);
}

#[test]
#[ignore = "takes minutes: a million mutants of set.mm's first theorems, twenty thousand of them checked by metamath-rs"]
fn a_million_mutants_reveal_no_disagreement() {
    let theory = Theory::new(sgs_metamath::slice::shipped().unwrap()).unwrap();
    let proofs = theorem_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let outcome = try_mutants(&theory, &mutator, 1, 1_000_000, 20_000);
    println!("{}", outcome.tally);
    assert_eq!(outcome.disagreements, Vec::<String>::new());
    let (text, labels) = extended(&theory, &outcome.accepted);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutants.mm");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(verifiers::metamath_rs(text), Default::default());
    println!("{} accepted mutants verified by metamath-rs", labels.len());
    if let Some(verdict) = verifiers::metamath_c(&path) {
        verdict.unwrap();
        println!("accepted mutants verified by the metamath program");
    }
    let (accepted, refused) = compare_kernels(&theory, 5_000, 13);
    println!(
        "mutated full proofs: {accepted} accepted by kernel and metamath-rs, {refused} rejected by both"
    );
}
