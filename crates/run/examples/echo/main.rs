//! Uses this crate as a library, with a custom formal system:
//! `cargo run --release -p sgs-run --example echo -- FOLDER`.
//!
//! The Solver learns to write a word that it is asked for. This is not mathematics, but the loop needs nothing else,
//! because it uses a formal system only through the trait.

mod system;

use sgs_run::config::device;
use sgs_run::config::folder;
use sgs_run::config::{self, Layers};
use sgs_run::lm_cpu::Cpu;
use sgs_run::train::policies;
use sgs_run::{RunEvent, Runner, StopFlag};
use std::sync::Arc;

fn main() -> anyhow::Result<()> {
    let out = std::env::args_os().nth(1).map_or_else(|| "runs/echo".into(), std::path::PathBuf::from);
    let set = [
        "rounds=5",
        "algorithm.solver.learning_rate=1e-4",
        "sampling.solver_tokens=4",
        // The shipped model has not learned this system's reviews.
        "algorithm.guide.min_readable=0",
    ];
    let layers = Layers { set: set.map(str::to_owned).to_vec(), ..Layers::default() };
    let config = config::resolve(&layers, std::env::vars())?.config;
    let runner = Runner {
        run: Arc::new(folder::begin(&config, &out)?),
        base: policies::base_folder(&config, &out.join("base"))?,
        system: Arc::new(system::Echo),
        targets: system::targets(),
        held_out: Vec::new(),
        device: Arc::new(Cpu::new(device::threads())?),
        config: Arc::new(config),
        interrupt: StopFlag::default(),
        fleet: None,
        process_group: None,
    };
    runner.work(&mut |event| {
        if let RunEvent::RoundFinished { outcome, metrics } = event {
            let rate = metrics.scalars.get("target_solve_rate").copied().unwrap_or_default();
            eprintln!("round {}: {:.1} % of the words were written", outcome.round, 100.0 * rate);
        }
    })?;
    Ok(())
}
