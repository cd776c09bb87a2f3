//! The databases of Debian's package `metamath-databases`, if installed: every formula parses, every proof is valid, and every
//! short proof can be reconstructed from its essential steps.

use crate::verifiers;
use rayon::prelude::*;
use sgs_metamath::judge::Judge;
use sgs_metamath::kernel::{Kernel, verify_theorem};
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits};
use sgs_selfplay::Verdict;
use std::time::Instant;

const STEPS: usize = 60;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: usize,
    longer: usize,
}

/// Converts and judges every proof of a database. Panics at the first that is rejected.
fn all_proofs(name: &str, at_least: usize) {
    let Some(path) = verifiers::debian(name) else { return };
    let start = Instant::now();
    let theory = Theory::read(&path).unwrap();
    let parsed = start.elapsed();
    let counts = (0..theory.rules().len())
        .into_par_iter()
        .map_init(Judge::new, |judge, i| {
            let rule = RuleId(i as u32);
            let assertion = theory.assertion(rule);
            if !assertion.is_theorem() {
                return Counts::default();
            }
            let Some(steps) = theorem_proof(&theory, rule, STEPS).unwrap() else {
                return Counts { accepted: 0, longer: 1 };
            };
            let goal = Goal::of_rule(&theory, rule).unwrap();
            let decision = judge.decide(&theory, &goal, &steps, ProofLimits::default());
            assert_eq!(decision.verdict, Verdict::Proved, "{}: {}", theory.label(rule), decision.reason);
            Counts { accepted: 1, longer: 0 }
        })
        .reduce(Counts::default, |a, b| Counts {
            accepted: a.accepted + b.accepted,
            longer: a.longer + b.longer,
        });
    println!(
        "{name}: parsed {} assertions in {parsed:?}; {} proofs of at most {STEPS} steps accepted, none rejected, {} longer",
        theory.rules().len(),
        counts.accepted,
        counts.longer
    );
    assert!(counts.accepted >= at_least, "{name} is much smaller than in 2021: {counts:?}");
}

/// Checks every proof of a database with the kernel only.
fn kernel_verifies(name: &str) {
    let Some(path) = verifiers::debian(name) else { return };
    let database = sgs_metamath::database::Database::read(&path).unwrap();
    let theorems: Vec<_> =
        database.assertions().filter(|(_, _, a)| a.is_theorem()).map(|(id, _, _)| id).collect();
    theorems.par_iter().for_each_init(Kernel::new, |kernel, &id| {
        verify_theorem(kernel, &database, id)
            .unwrap_or_else(|e| panic!("{}: {e}", database.statement(id).label));
    });
    println!("{name}: the kernel verifies {} theorems", theorems.len());
    assert!(!theorems.is_empty());
}

#[test]
fn all_proofs_of_ql_are_accepted() {
    all_proofs("ql.mm", 1_000);
}

#[test]
fn all_proofs_of_hol_are_accepted() {
    all_proofs("hol.mm", 100);
}

#[test]
fn all_proofs_of_nf_are_accepted() {
    all_proofs("nf.mm", 5_500);
}

#[test]
fn all_proofs_of_iset_are_accepted() {
    all_proofs("iset.mm", 8_000);
}

#[test]
fn all_proofs_of_set_are_accepted() {
    all_proofs("set.mm", 30_000);
}

#[test]
fn the_kernel_verifies_all_databases() {
    for name in ["ql.mm", "hol.mm", "nf.mm", "iset.mm", "set.mm", "demo0.mm", "miu.mm", "big-unifier.mm"] {
        kernel_verifies(name);
    }
}
