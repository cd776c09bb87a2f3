//! Fuzz test of databases: parsing, grammar, and both checkers on every proof.

use crate::fuzzing::Fuzzer;
use sgs_metamath::database::Database;
use sgs_metamath::judge::Judge;
use sgs_metamath::kernel::{Kernel, verify_theorem};
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits};
use sgs_selfplay::Verdict;

/// Parses a database and checks its proofs. Returns the number of rules if it is valid.
fn check(text: &[u8]) -> Option<usize> {
    let database = Database::parse("fuzz.mm", text).ok()?;
    let mut kernel = Kernel::new();
    let verify = |id| verify_theorem(&mut kernel, &database, id).is_ok();
    let verified: Vec<_> = database.assertions().map(|(id, _, _)| id).map(verify).collect();
    let ids: Vec<_> = database.assertions().map(|(id, _, _)| id).collect();
    let theory = Theory::new(database).ok()?;
    let mut judge = Judge::new();
    for rule in (0..theory.rules().len() as u32).map(RuleId) {
        let Ok(Some(steps)) = theorem_proof(&theory, rule, 60) else { continue };
        let Ok(goal) = Goal::of_rule(&theory, rule) else { continue };
        let decision = judge.decide(&theory, &goal, &steps, ProofLimits::default());
        let at = ids.binary_search(&theory.rule(rule).statement).unwrap();
        let refused =
            decision.verdict == Verdict::Infra || verified[at] && decision.verdict == Verdict::Refused;
        assert!(!refused, "{}: the database's own proof is refused: {}", theory.label(rule), decision.reason);
    }
    Some(theory.rules().len())
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_databases() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/database");
    let corpus =
        ["seed-demo0", "seed-postfix", "seed-tiny"].map(|name| std::fs::read(seeds.join(name)).unwrap());
    let mut fuzzer = Fuzzer::new(corpus.to_vec());
    while let Some(bytes) = fuzzer.input() {
        if check(&bytes).is_some() {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("databases");
}
