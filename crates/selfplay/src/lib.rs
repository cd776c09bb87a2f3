//! The algorithm of Self-Guided Self-Play as pure functions over plain data.
//!
//! Nothing in this crate does I/O, reads a clock, calls a model or uses a global random number generator.
//!
//! A run folds rounds into a state:
//!
//! 1. [`Round::new`] selects the targets of a round from the [`RunState`].
//! 2. [`Round::pending`] and [`Round::apply`] return [`Command`]s: sample a conjecture, a rollout or a review, or verify a
//!    proof. The caller performs them and passes the results to [`Round::apply`] as [`Event`]s, in any order.
//! 3. [`Round::finish`] computes the [`RoundOutcome`]: solve rates, rewards and training examples.
//! 4. [`RunState::absorb`] adds the outcome to the state for the next round.
//!
//! In this crate, "the paper" is *Scaling Self-Play with Self-Guidance*. Where the paper's text and its code differ, an
//! option of [`AlgorithmConfig`] selects one of them; `docs/fidelity.md` explains the defaults.
//!
//! ```
//! use sgs_selfplay::{Event, Method, Problem, ProblemId, Round, RunState};
//! use std::sync::Arc;
//!
//! let config = Arc::new(Method::Sgs.config());
//! let target = Problem { id: ProblemId::new("id"), statement: "|- ( ph -> ph )".into(), context: "".into() };
//! let mut state = RunState::default();
//! let mut round = Round::new(config, 1, 4096, &[Arc::new(target)], &state)?;
//! let mut commands = round.pending();
//! while let Some(command) = commands.pop() {
//!     // A real run samples the model or calls the checker here.
//!     let event = Event::Lost { key: command.key().clone(), reason: "no model".to_owned() };
//!     commands.extend(round.apply(event));
//! }
//! let outcome = round.finish(&state)?;
//! assert_eq!(outcome.rollouts.len(), 8);
//! state.absorb(&outcome)?;
//! assert_eq!(state.next_round, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod batch;
pub mod config;
mod data;
mod duplicates;
pub mod entropy;
mod method;
mod metrics;
pub mod objective;
pub mod outcome;
pub mod penalty;
pub mod rate;
pub mod reward;
pub mod round;
mod scoring;
pub mod seed;
pub mod state;
pub mod store;
pub mod stp;
mod task;
pub mod training;
mod weights;

pub use config::AlgorithmConfig;
pub use data::{
    Completion, Features, FinishReason, Judgement, Problem, ProblemId, Review, Role, SampleFacts, Verdict,
};
pub use method::{Method, UnknownMethod};
pub use metrics::RoundMetrics;
pub use outcome::RoundOutcome;
pub use round::{Progress, Round, RoundError};
pub use scoring::RoundNotComplete;
pub use state::RunState;
pub use task::{
    BadTaskKey, Command, Event, FailedProof, OwnedCondition, ParsedConjecture, ParsedProof, TaskKey, TaskKind,
};
pub use training::Example;
pub use weights::{RoleBackend, Weights};
