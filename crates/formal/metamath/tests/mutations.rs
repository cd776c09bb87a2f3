//! Damaged proofs: unifier and kernel agree, and verifiers that others wrote agree with the kernel.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod mutants;
mod verifiers;

use mutants::{Accepted, Mutator, mutate_operations, try_mutants, without_one_distinct};
use sgs_metamath::export::{FreshLabels, theorem_block};
use sgs_metamath::judge::{Judge, kernel_accepts, true_proofs};
use sgs_metamath::kernel::Kernel;
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::{Goal, ProofLimits, RuleBook};
use sgs_selfplay::Verdict;
use sgs_selfplay::seed::Stream;
use std::collections::BTreeSet;
use std::path::Path;

fn mini() -> Theory {
    Theory::read(Path::new("tests/data/mini.mm")).unwrap()
}

/// The database with a theorem appended for each goal and proof, and the labels of those.
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

/// Damages `proofs` full proofs and compares the kernel's verdict with that of `metamath-rs` on each.
fn compare_kernels(theory: &Theory, count: usize, seed: u64) -> (usize, usize) {
    let book = RuleBook::new(theory);
    let proofs = true_proofs(theory, 60);
    let (mut judge, mut kernel, mut stream) = (Judge::new(), Kernel::new(), Stream::new(seed));
    let (mut theorems, mut ours) = (Vec::new(), Vec::new());
    while theorems.len() < count {
        let proof = &proofs[stream.below(proofs.len() as u64) as usize];
        let mut goal = Goal::of_rule(theory, proof.rule).unwrap();
        let mut ops = judge.prove(theory, &book, &goal, &proof.steps, ProofLimits::default()).unwrap();
        match (stream.below(4), without_one_distinct(theory, proof.rule, &mut stream)) {
            (0, Some(weaker)) => goal = weaker,
            _ => ops = mutate_operations(theory, &goal, &ops, &mut stream),
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
    assert!(theirs.keys().all(|l| known.contains(l)), "a statement of the base database is refused");
    let accepted = ours.iter().filter(|&&o| o).count();
    (accepted, ours.len() - accepted)
}

#[test]
fn unifier_and_kernel_agree_on_damaged_proofs() {
    let theory = mini();
    let book = RuleBook::new(&theory);
    let proofs = true_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let outcome = try_mutants(&theory, &book, &mutator, 7, 20_000, 2_000);
    println!("{}", outcome.tally);
    assert_eq!(outcome.disagreements, Vec::<String>::new());
    assert_eq!(outcome.tally.of(Verdict::Infra), 0);
    assert_eq!(outcome.tally.total(), 20_000);
    assert!(outcome.tally.of(Verdict::Proved) > 200 && outcome.tally.of(Verdict::Refused) > 15_000);
    let (text, _) = extended(&theory, &outcome.accepted);
    assert_eq!(verifiers::metamath_rs(text), Default::default());
}

#[test]
fn mutants_do_not_depend_on_threads() {
    let theory = mini();
    let book = RuleBook::new(&theory);
    let proofs = true_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| try_mutants(&theory, &book, &mutator, 3, 2_200, 0).tally)
    };
    assert_eq!(on(1), on(2));
}

#[test]
fn the_kernel_agrees_with_another_verifier() {
    let (accepted, refused) = compare_kernels(&mini(), 3_000, 11);
    println!("{accepted} accepted by both, {refused} refused by both");
    assert!(accepted > 100 && refused > 1_000);
}

#[test]
#[ignore = "minutes: a million mutants of set.mm's first theorems, and twenty thousand through metamath-rs"]
fn a_million_mutants() {
    let theory = Theory::new(sgs_metamath::slice::shipped().unwrap()).unwrap();
    let book = RuleBook::new(&theory);
    let proofs = true_proofs(&theory, 60);
    let mutator = Mutator::new(&theory, &proofs);
    let outcome = try_mutants(&theory, &book, &mutator, 1, 1_000_000, 20_000);
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
        println!("and by the metamath program");
    }
    let (accepted, refused) = compare_kernels(&theory, 5_000, 13);
    println!("damaged full proofs: {accepted} accepted by kernel and metamath-rs, {refused} refused by both");
}
