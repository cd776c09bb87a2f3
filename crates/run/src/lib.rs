//! A run of self-play as a library: the stages of each round joined, on disk at every step.
//!
//! [`Runner`] is the entry: it holds what a run works with and goes through its rounds. What happens is told as
//! [`RunEvent`]s; this crate draws nothing and knows no terminal.
#![forbid(unsafe_code)]

mod asking;
pub mod attempts;
pub mod authority;
pub mod base_model;
pub mod config;
pub mod device;
pub mod dispatcher;
mod ending;
pub mod endpoint;
pub mod evaluate;
pub mod evaluation;
pub mod event;

pub mod filter;
pub mod folder;
pub mod forecast;
pub mod generate;
pub mod guide;
pub mod held_out;
pub mod infra;
pub mod lean;
pub mod lean_set;
pub mod ledger;
pub mod machine;
mod matching;
pub mod policies;
pub mod publish;
pub mod ranks;
pub mod reading;
pub mod recipe;
pub mod record;
mod runner;
pub mod seats;
pub mod second;
mod served;
pub mod system;
pub mod tasks;
pub mod teacher;
pub mod update;
pub mod verify;
pub mod workers;

pub use ending::{Code, Outcome, Usage};
pub use event::{RoundStage, RunEvent};
pub use runner::{Kept, Runner};
#[doc(hidden)]
pub use sgs_lm as lm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when the user wants the run to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
