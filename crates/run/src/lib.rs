//! Self-Guided Self-Play as a library: the rounds of a run, its workers, and its training ranks.
//!
//! A run alternates between sampling and training. In each round the Solver attempts its targets, the Conjecturer
//! proposes easier variants of those that it fails to solve, the Guide scores the variants, a formal system verifies
//! every proof, and both policies are trained on the outcome. Every result is durable before anything depends on it, so a
//! run can be killed at any moment and resumed.
//!
//! [`Runner`] is the entry point. It owns everything that a run works with; [`Runner::work`] runs the rounds and reports
//! what happens as [`RunEvent`]s. This crate prints nothing. Errors are [`RunError`]s.
//!
//! # Example
//!
//! Run one round on two theorems of the shipped Metamath set:
//!
//! ```
//! use sgs_run::config::{Layers, device, folder, resolve, system};
//! use sgs_run::{Outcome, RunEvent, Runner, StopFlag, lm_cpu::Cpu, train::policies};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run");
//! let set = ["rounds=1", "algorithm.rollouts_per_problem=2", "sampling.batch=8"];
//! let layers = Layers { set: set.map(str::to_owned).to_vec(), ..Layers::default() };
//! let config = resolve(&layers, std::iter::empty())?.config;
//! let opened = system::metamath("shipped", "quick")?;
//! let runner = Runner {
//!     run: Arc::new(folder::begin(&config, &path)?),
//!     base: policies::base_folder(&config, &path.join("base"))?,
//!     system: opened.system,
//!     targets: opened.targets.into_iter().take(2).map(Arc::new).collect(),
//!     held_out: Vec::new(),
//!     device: Arc::new(Cpu::new(device::threads())?),
//!     config: Arc::new(config),
//!     interrupt: StopFlag::default(),
//!     fleet: None,
//!     process_group: None,
//! };
//! let mut finished = 0;
//! let outcome = runner.work(&mut |event| {
//!     if let RunEvent::RoundFinished { .. } = event {
//!         finished += 1;
//!     }
//! })?;
//! assert_eq!((outcome, finished), (Outcome::Done, 1));
//! # Ok(())
//! # }
//! ```
//!
//! `examples/echo` runs with a custom formal system.
//!
//! # Modules
//!
//! The folders import each other in one direction only: [`config`] ← [`train`] ← [`workers`] ← [`served`] ← [`round`].
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod config;
pub mod error;
mod exit;
pub mod round;
pub mod served;
pub mod train;
pub mod workers;

pub use config::RunConfig;
pub use error::{RunError, Usage};
pub use exit::{Code, Outcome};
pub use round::event::{RoundStage, RunEvent};
pub use round::runner::Runner;
pub use sgs_base::stop::StopFlag;
/// The CPU as a device for models.
pub use sgs_lm_cpu as lm_cpu;
/// NVIDIA GPUs as devices for models.
pub use sgs_lm_cuda as lm_cuda;
