//! Parses arbitrary bytes as a database and as a theory, then parses, converts and checks every proof.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sgs_metamath::database::Database;
use sgs_metamath::judge::Judge;
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::kernel::{Kernel, verify_theorem};
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits};
use sgs_selfplay::Verdict;

fuzz_target!(|text: &[u8]| {
    let Ok(database) = Database::parse("fuzz.mm", text) else { return };
    let mut kernel = Kernel::new();
    let verified: Vec<bool> =
        database.assertions().map(|(id, _, _)| verify_theorem(&mut kernel, &database, id).is_ok()).collect();
    let ids: Vec<_> = database.assertions().map(|(id, _, _)| id).collect();
    let Ok(theory) = Theory::new(database) else { return };
    let mut judge = Judge::new();
    for i in 0..theory.rules().len() {
        let rule = RuleId(i as u32);
        let Ok(Some(steps)) = theorem_proof(&theory, rule, 60) else { continue };
        let Ok(goal) = Goal::of_rule(&theory, rule) else { continue };
        let decision = judge.decide(&theory, &goal, &steps, ProofLimits::default());
        assert_ne!(decision.verdict, Verdict::Infra, "{}: {}", theory.label(rule), decision.reason);
        // A proof that the kernel accepts must also be accepted by the unifier if all of its steps prove formulas.
        let at = ids.binary_search(&theory.rule(rule).statement).unwrap();
        if verified[at] && decision.verdict == Verdict::Refused {
            panic!("{}: the database's own proof is refused: {}", theory.label(rule), decision.reason);
        }
    }
});
