//! Tasks to workers and results back.
//!
//! One [`board::Board`] holds the tasks of a run: a pure state machine that is driven by time as an argument.
//! A [`Fleet`] is that board with a lock and a clock: threads of the same process work through it directly,
//! others over HTTP; the code is the same.
//!
//! Invariants: the fleet knows nothing of proofs or models (payloads are opaque bytes) and keeps nothing on disk (its
//! consumer has the journal); every wait has a deadline; no lock is held while anything is launched or sent.
#![forbid(unsafe_code)]

#[cfg(feature = "http")]
pub mod bench;
pub mod board;
#[cfg(feature = "http")]
pub mod client;
pub mod coordinator;
#[cfg(feature = "http")]
pub mod descriptors;
pub mod fleet;
#[cfg(feature = "http")]
mod fresh;
pub mod launch;
pub mod name;
#[cfg(feature = "http")]
mod proof;
#[cfg(feature = "http")]
pub mod service;
pub mod shelf;
pub mod task;
#[cfg(feature = "http")]
pub mod token;
pub mod wait;
pub mod wire;
pub mod worker;

pub use board::{Backpressure, Board, BoardConfig, BoardStatus, Speculation};
#[cfg(feature = "http")]
pub use client::Client;
pub use coordinator::{Beat, CallError, Coordinator, Grant};
pub use fleet::{Fleet, FleetError, Reported};
pub use launch::{
    CrashRules, GivenUp, Job, JobId, LaunchError, Launcher, LocalLauncher, SlurmConfig, SlurmLauncher,
    Supervisor, SupervisorStatus, visible_device,
};
#[cfg(feature = "http")]
pub use service::{Service, ServiceConfig, ServiceError, TlsFiles};
pub use shelf::{Part, Shelf};
pub use task::*;
#[cfg(feature = "http")]
pub use token::{Token, TokenError};
pub use worker::{Cancel, Drain, Session, Summary, WorkerConfig, WorkerError, serve};
