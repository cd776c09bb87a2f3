//! Draws all figures from synthetic runs: `cargo run --release -p sgs-analysis --example gallery DIR`.

#![allow(clippy::print_stdout)]

#[path = "../tests/it/synthetic/mod.rs"]
mod synthetic;

use sgs_analysis::figures::{FigureOptions, Yardstick};
use sgs_analysis::report;
use sgs_selfplay::Method;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("give a directory to write into")?);
    let size = synthetic::Size { rounds: 160, targets: 1000 };
    let methods = [
        Method::Sgs,
        Method::ReinforceHalf,
        Method::SgsNoGuide,
        Method::SgsFrozenConjecturer,
        Method::SgsNoConditioning,
        Method::ExpertIteration,
        Method::Cispo,
    ];
    let runs: Vec<_> = (1..).zip(methods).map(|(seed, m)| synthetic::run(m, seed, size)).collect();
    let yardstick = Yardstick { label: "larger model, pass@4".into(), rate: 0.57 };
    let options = FigureOptions { yardsticks: vec![yardstick], ..FigureOptions::default() };
    for (name, runs) in [("single", &runs[..1]), ("comparison", &runs[..])] {
        let written = report::write(runs, &dir.join(name), &options)?;
        println!("{}", written.index.display());
    }
    Ok(())
}
