//! Distributes tasks to workers and collects their results.
//!
//! - A [`Board`] holds the tasks of a run. It is a pure state machine: time is an argument.
//! - A [`Fleet`] wraps a board in a lock and a clock. Threads of the same process lease tasks from it directly.
//! - A [`Service`] exposes a fleet over HTTPS, and a [`Client`] calls it. Both sides implement [`Coordinator`], so a
//!   worker runs the same code in either case.
//! - A [`WorkerSession`] is the worker's end of the protocol: it keeps leases alive and delivers results.
//!   [`run_worker`] is a ready-made loop on top of it.
//! - A [`Supervisor`] starts worker processes, locally or through Slurm, and replaces those that end.
//!
//! Invariants: payloads are opaque bytes, and the fleet does not depend on proofs or models. It stores nothing on disk,
//! because its consumer keeps a journal. Every wait has a deadline. No lock is held while something is launched or
//! sent.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use sgs_fleet::{
//!     BoardConfig, Fleet, Lease, StopFlag, Task, TaskId, TaskResult, WorkKind, WorkerConfig, WorkerName, run_worker,
//! };
//!
//! let kind = WorkKind::new("upper").unwrap();
//! let fleet = Fleet::in_memory(BoardConfig::default());
//! fleet.submit([Task { id: TaskId(1), kind: kind.clone(), priority: 0, payload: "abc".into() }]).unwrap();
//!
//! let drain = StopFlag::default();
//! let worker = std::thread::spawn({
//!     let (coordinator, drain) = (Arc::new(fleet.clone()), drain.clone());
//!     let config = WorkerConfig::new(WorkerName::new("worker-0").unwrap(), kind);
//!     let upper = |lease: &Lease, _: &StopFlag| Ok(lease.payload.as_bytes().to_ascii_uppercase().into());
//!     move || run_worker(coordinator, config, drain, 1, upper)
//! });
//!
//! let finished = fleet.take_finished(1, Duration::from_secs(60)).remove(0);
//! let TaskResult::Done { outcome, .. } = finished.result else { panic!("quarantined") };
//! assert_eq!(outcome.as_bytes(), b"ABC");
//! fleet.remove(&[finished.task]);
//!
//! drain.set();
//! assert_eq!(worker.join().unwrap().unwrap().accepted, 1);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod artifacts;
pub mod board;
mod client;
mod connector;
mod coordinator;
pub mod descriptors;
mod fleet;
pub mod launch;
mod name;
mod service;
mod task;
pub mod token;
pub mod wait;
pub mod wire;
mod worker;

pub use artifacts::{ArtifactChunk, ArtifactStore};
pub use board::{Backpressure, Board, BoardConfig, BoardStatus, Speculation, SubmitError};
pub use client::Client;
pub use coordinator::{CallError, Coordinator, Grant, HeartbeatAck};
pub use fleet::{Fleet, PendingReceipts};
pub use launch::{
    CrashLoop, JobId, LaunchError, Launcher, LocalLauncher, RestartPolicy, SlurmConfig, SlurmLauncher,
    Supervisor, SupervisorStatus, WorkerJob, visible_device,
};
pub use service::{Service, ServiceConfig, ServiceError};
pub use sgs_base::stop::StopFlag;
pub use task::*;
pub use token::{AuthToken, TokenError};
pub use worker::{WorkerConfig, WorkerError, WorkerSession, WorkerSummary, run_worker, stop_on_signals};
