//! The algorithm of Self-Guided Self-Play as pure functions over plain data.
//!
//! Invariant: nothing here does I/O, knows a clock, a model or a global random number generator.
//!
//! A run is a fold: [`RunState`] → [`Round`] (commands out, events in) → [`RoundOutcome`] → [`RunState::absorb`].
//! "The paper" is *Scaling Self-Play with Self-Guidance*; where its text and its code differ, an option of
//! [`AlgorithmConfig`] chooses, and `docs/fidelity.md` tells why the default is what it is.
#![forbid(unsafe_code)]

pub mod batch;
pub mod config;
pub mod data;
pub mod duplicates;
pub mod entropy;
pub mod learned;
pub mod mersenne;
pub mod method;
pub mod metrics;
pub mod objective;
pub mod outcome;
pub mod penalty;
pub mod rate;
pub mod reward;
pub mod round;
pub mod seed;
pub mod state;
pub mod store;
pub mod stp;
pub mod task;
pub mod training;
pub mod weights;

pub use config::AlgorithmConfig;
pub use data::*;
pub use method::Method;
pub use metrics::RoundMetrics;
pub use outcome::RoundOutcome;
pub use round::{Progress, Round, RoundError};
pub use state::RunState;
pub use task::{Command, Event, Lemma, OwnedCondition, ReadConjecture, ReadProof, TaskKey, TaskKind};
pub use training::Example;
pub use weights::{Player, Weights};
