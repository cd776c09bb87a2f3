//! A run on disk: configuration, journal, tables, checkpoints, metrics, resume.
//!
//! Invariant: whatever stands under a final name is whole; whatever was acknowledged survives the process.
//! Every file and column is described in `docs/formats.md`.
#![forbid(unsafe_code)]

pub mod checkpoints;
pub mod directories;
pub mod error;
pub mod evaluations;
pub mod files;
pub mod frozen;
pub mod journal;
pub mod lock;
pub mod metrics;
pub mod outcome;
pub mod resume;
pub mod rounds;
pub mod rows;
pub mod run;
pub mod table;
#[doc(hidden)]
pub mod write_point;

pub use checkpoints::{Checkpoint, Checkpoints, KeepPolicy, PreparedCheckpoint};
pub use error::{CallerError, Error, Result};
pub use evaluations::Evaluation;
pub use frozen::FrozenConfig;
pub use journal::{Journal, JournalLimits, Record, RecordKey, Stage, Ticket};
pub use metrics::{Histogram, MetricSink, MetricSinks, MetricValues};
pub use outcome::{OutcomeSources, read_outcome, write_outcome};
pub use resume::{NextStep, ResumePlan};
pub use rounds::{PreparedRound, PublishedRound, RoundTables};
pub use run::{RunDir, RunOptions, RunView};
