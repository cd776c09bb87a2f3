//! Simulates rounds at the paper's scale and at ten times that, with and without speculation and pipelining, and prints a
//! table: `cargo run --release -p sgs-fleet --example simulate`.
#![allow(clippy::print_stdout)]

mod simulation;

use std::time::Instant;

use simulation::{Scenario, Simulated, simulate};

const CASES: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("speculation", true, false),
    ("pipelining", false, true),
    ("both", true, true),
];

fn main() {
    println!(
        "| scale | with | round s | 99% by s | generation s | GPU use | CPU use | waste | copies | deaths | board calls/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for scale in [1, 10] {
        for (name, speculation, pipelining) in CASES {
            let begun = Instant::now();
            let runs: Vec<Simulated> = (1..=5)
                .map(|seed| {
                    simulate(Scenario { speculation, pipelining, seed, ..Scenario::paper().times(scale) })
                })
                .collect();
            let took = begun.elapsed().as_secs_f64();
            let mean = |of: fn(&Simulated) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            let calls: u64 = runs.iter().map(|r| r.calls).sum();
            println!(
                "| {scale}x | {name} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.3} | {:.0} | {:.1} | {:.0} |",
                mean(|r| r.round_s),
                mean(|r| r.most_s),
                mean(|r| r.generation_s),
                mean(|r| r.gpu_use),
                mean(|r| r.cpu_use),
                mean(|r| r.waste),
                mean(|r| r.copies as f64),
                mean(|r| r.deaths as f64),
                calls as f64 / took,
            );
        }
    }
}
