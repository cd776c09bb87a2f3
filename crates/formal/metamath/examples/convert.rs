//! Converts every proof of a database to essential steps, and checks it with unifier and kernel.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]
use sgs_metamath::{judge::*, kernel::*, theory::*, unify::*};
use sgs_selfplay::Verdict;
use std::time::Instant;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit: usize = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(60);
    for path in std::env::args().skip(2) {
        let theory = Theory::read(path.as_ref())?;
        let book = RuleBook::new(&theory);
        let (mut judge, mut kernel) = (Judge::new(), Kernel::new());
        let (mut long, mut bad, mut ok, mut steps_total) = (0, 0, 0, 0);
        let mut cases = Vec::new();
        let start = Instant::now();
        for i in 0..theory.rules().len() {
            let id = RuleId(i as u32);
            let s = theory.rule(id).statement;
            if !theory.database().assertion(s).is_some_and(|a| a.is_theorem()) {
                continue;
            }
            if let Err(e) = verify_theorem(&mut kernel, theory.database(), s) {
                println!("kernel refuses {}: {e}", theory.label(id));
            }
            match database_proof(&theory, id, limit)? {
                None => long += 1,
                Some(steps) => {
                    let goal = Goal::of_rule(&theory, id)?;
                    let d = judge.decide(&theory, &book, &goal, &steps, ProofLimits::default());
                    if d.verdict == Verdict::Proved {
                        ok += 1;
                        steps_total += steps.len();
                        cases.push((goal, steps));
                    } else {
                        bad += 1;
                        if bad < 10 {
                            println!("{}: {d:?}", theory.label(id));
                        }
                    }
                }
            }
        }
        println!(
            "{path}: {ok} accepted, {bad} not, {long} longer than {limit}; {steps_total} steps; {:?}",
            start.elapsed()
        );
        let mut checker = Checker::new();
        for _ in 0..5 {
            let start = Instant::now();
            for (goal, steps) in &cases {
                checker.check(&theory, &book, goal, steps, ProofLimits::default()).map_err(|e| e.reason)?;
            }
            let unifier = start.elapsed();
            let start = Instant::now();
            for (goal, steps) in &cases {
                judge.decide(&theory, &book, goal, steps, ProofLimits::default());
            }
            println!(
                "unifier {:.0}/s, with kernel {:.0}/s",
                cases.len() as f64 / unifier.as_secs_f64(),
                cases.len() as f64 / start.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}
