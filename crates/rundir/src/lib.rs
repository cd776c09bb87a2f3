//! A run on disk: configuration, journal, tables, checkpoints, metrics, resume.
//!
//! A run is one directory:
//!
//! ```text
//! config.toml      the frozen configuration      journal.sqlite  results of the rounds in progress
//! rounds/0007/     tables of a published round   metrics.jsonl   metrics of all rounds
//! checkpoints/     trained weights               tensorboard/    the same as TensorBoard event files
//! evaluations/     held-out evaluations          lock            held by the process that works on the run
//! ```
//!
//! [`RunDir`] opens a run for work, and [`RunView`] for reading. Two rules hold at every moment, even if the process is
//! killed: a file or directory under its final name is complete, and a result that was acknowledged is on disk. Every file
//! and column is described in `docs/formats.md`.
//!
//! ```
//! use sgs_rundir::{FrozenConfig, MetricValues, Record, RecordKey, RunDir};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path().join("run");
//! let config = FrozenConfig { text: "seed = 1\n".into(), version: "0.1.0".into(), data: Default::default() };
//! let run = RunDir::create(&folder, &config, None)?;
//!
//! run.start_round(0)?;
//! let key = RecordKey { round: 0, kind: "rollout".into(), problem: "syl".into(), index: 0 };
//! run.journal().append_durably(vec![Record { key, payload: b"a proof".to_vec() }])?;
//! run.finish_sampling(0)?;
//! run.publish_checkpoint(0, "", |dir| Ok(std::fs::write(dir.join("weights"), b"...")?))?;
//! run.publish_round(&MetricValues::new(0), |_tables| Ok(()))?;
//!
//! assert_eq!(run.plan(0)?.round, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checkpoints;
pub mod directories;
pub mod end;
pub mod error;
pub mod evaluations;
pub mod files;
pub mod frozen;
pub mod journal;
pub mod lock;
pub mod metrics;
pub mod new_run;
pub mod outcome;
mod recovery;
pub mod resume;
pub mod rounds;
pub mod rows;
pub mod run;
pub mod table;
pub mod view;
#[doc(hidden)]
pub mod write_point;

pub use checkpoints::{Checkpoint, Checkpoints, KeepPolicy, PreparedCheckpoint};
pub use end::{EndReason, RunEnd};
pub use error::{CallerError, Error, Result};
pub use evaluations::Evaluation;
pub use frozen::FrozenConfig;
pub use journal::{Journal, JournalStage, Record, RecordKey, Ticket};
pub use metrics::{Histogram, MetricSinks, MetricValues};
pub use new_run::NewRun;
pub use outcome::{OutcomeSources, read_outcome, write_outcome};
pub use resume::{NextStep, ResumePlan};
pub use rounds::{PreparedRound, PublishedRound, RoundTables};
pub use run::RunDir;
pub use view::RunView;
