//! Converts every proof of the given databases to essential steps and checks it with the unifier and the kernel.
//!
//! Usage: `convert MAX_STEPS DATABASE…`
#![allow(clippy::print_stdout, reason = "a command-line program")]

use sgs_metamath::judge::Judge;
use sgs_metamath::kernel::{Kernel, verify_theorem};
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits};
use sgs_selfplay::Verdict;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit: usize = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(60);
    for path in std::env::args().skip(2) {
        let theory = Theory::read(path.as_ref())?;
        let (mut judge, mut kernel) = (Judge::new(), Kernel::new());
        let (mut accepted, mut rejected, mut longer, mut steps_total) = (0, 0, 0, 0);
        let start = Instant::now();
        for id in (0..theory.rules().len()).map(|i| RuleId(i as u32)) {
            if !theory.assertion(id).is_theorem() {
                continue;
            }
            if let Err(error) = verify_theorem(&mut kernel, theory.database(), theory.rule(id).statement) {
                println!("the kernel rejects {}: {error}", theory.label(id));
            }
            let Some(steps) = theorem_proof(&theory, id, limit)? else {
                longer += 1;
                continue;
            };
            let goal = Goal::of_rule(&theory, id)?;
            let decision = judge.decide(&theory, &goal, &steps, ProofLimits::default());
            if decision.verdict == Verdict::Proved {
                accepted += 1;
                steps_total += steps.len();
            } else {
                rejected += 1;
                if rejected < 10 {
                    println!("{}: {decision:?}", theory.label(id));
                }
            }
        }
        println!(
            "{path}: {accepted} accepted, {rejected} rejected, {longer} longer than {limit} steps; \
             {steps_total} steps in {:?}",
            start.elapsed()
        );
    }
    Ok(())
}
