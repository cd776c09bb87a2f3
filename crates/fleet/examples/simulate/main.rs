//! Simulates rounds at the paper's scale and at ten times that, with and without speculation and pipelining. Prints the
//! table of `docs/cluster.md`.
//!
//! ```text
//! cargo run --release -p sgs-fleet --example simulate [FIGURE.svg]
//! ```
#![allow(clippy::print_stdout)]

mod simulation;

use std::fmt::Write;
use std::time::Instant;

use simulation::{Scenario, Simulated, simulate};

const CASES: [(&str, bool, bool); 4] = [
    ("neither", false, false),
    ("speculation", true, false),
    ("pipelining", false, true),
    ("both", true, true),
];

fn main() -> std::io::Result<()> {
    let mut bars = Vec::new();
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
            bars.push((format!("{scale}x {name}"), mean(|r| r.most_s), mean(|r| r.round_s)));
        }
    }
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, figure(&bars)),
        None => Ok(()),
    }
}

/// Draws bars of the rounds' durations. The darker part is the time until 99% of the verdicts were available.
fn figure(bars: &[(String, f64, f64)]) -> String {
    let longest = bars.iter().map(|(_, _, round)| *round).fold(1.0, f64::max);
    let height = 40 + 28 * bars.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"720\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\">Duration of a round in seconds (dark: until 99% of the verdicts are available)</text>\n"
    );
    for (row, (name, most, round)) in bars.iter().enumerate() {
        let (y, scale) = (36 + 28 * row, 480.0 / longest);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{}\">{name}</text><rect x=\"150\" y=\"{y}\" width=\"{:.1}\" height=\"20\" \
             fill=\"#9ecae1\"/><rect x=\"150\" y=\"{y}\" width=\"{:.1}\" height=\"20\" fill=\"#3182bd\"/>\
             <text x=\"{:.1}\" y=\"{}\">{round:.0}</text>",
            y + 15,
            round * scale,
            most * scale,
            156.0 + round * scale,
            y + 15,
        );
    }
    svg + "</svg>\n"
}
