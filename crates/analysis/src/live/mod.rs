//! The live page: a read-only web page that shows the report of a run in progress and is updated by server-sent events.
//!
//! ```text
//! GET /          the page
//! GET /fragment  the sections of the page as JSON
//! GET /events    server-sent events: `version` (figures changed), `status` (JSON of [`LiveStatus`]), and at the end
//!                `figures` (JSON of the sections)
//! GET /status    the last status as JSON
//! ```

mod server;
mod watch;

pub use server::{LiveError, LiveOptions, LiveServer};
pub use watch::follow;

use serde::Serialize;

/// The message of a finished run. An open page keeps it after the server has stopped.
pub const FINISHED: &str = "finished";

/// The current activity of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveStatus {
    /// The round in progress.
    pub round: Option<u32>,
    /// Stages of the round with their progress, in order.
    pub stages: Vec<LiveStage>,
    /// Number of tasks by state, such as `pending`, `leased`, `done` and `quarantined`.
    pub queue: Vec<(String, u64)>,
    /// The workers.
    pub workers: Vec<LiveWorker>,
    /// The latest proofs and conjectures, newest first.
    pub recent: Vec<Recent>,
    /// A message such as "finished" or "stopped at the end of round 7".
    pub message: String,
}

/// Progress of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveStage {
    /// Name.
    pub name: String,
    /// Completed tasks.
    pub done: u64,
    /// All tasks; 0 if unknown.
    pub total: u64,
    /// Tasks per second, if measured.
    pub rate: Option<f64>,
}

/// Status of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveWorker {
    /// Name.
    pub name: String,
    /// Kind of its tasks: `generate`, `verify`, …
    pub kind: String,
    /// Number of leased tasks.
    pub tasks: u64,
    /// Seconds since its last message.
    pub silent_s: f64,
}

/// A recent proof or conjecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recent {
    /// `proof` or `conjecture`.
    pub kind: String,
    /// The problem's name.
    pub problem: String,
    /// The problem's statement.
    pub statement: String,
    /// The proof or the review.
    pub text: String,
    /// The scores as text.
    pub scores: String,
}
