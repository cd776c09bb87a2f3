//! The report while the run goes: a read-only page on this machine that follows the run by server-sent events.
//!
//! ```text
//! GET /          the page
//! GET /fragment  what the page shows, part by part, as JSON, when an event says that it changed
//! GET /events    server-sent events: `version` (figures changed) and `status` (JSON of [`Status`])
//! GET /status    the last status as JSON
//! ```

mod server;
mod watch;

pub use server::{LiveError, LiveOptions, LiveServer};
pub use watch::follow;

use serde::Serialize;

/// The message of a run that has come to its end: an open page keeps it when nobody answers any more.
pub const FINISHED: &str = "finished";

/// What happens right now, as far as the run tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// The round that is being worked on.
    pub round: Option<u32>,
    /// Stages of the round with their progress, in order.
    pub stages: Vec<StageProgress>,
    /// Numbers of tasks by state, such as `pending`, `leased`, `done`, `quarantined`.
    pub queue: Vec<(String, u64)>,
    pub workers: Vec<WorkerStatus>,
    /// The latest proofs and conjectures, newest first.
    pub recent: Vec<Recent>,
    /// One sentence for people, such as "finished" or "stopped at the end of round 7".
    pub message: String,
}

/// Progress of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageProgress {
    pub name: String,
    /// Done so far.
    pub done: u64,
    /// To do in all; 0 if unknown.
    pub total: u64,
    /// Per second, if measured.
    pub rate: Option<f64>,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerStatus {
    pub name: String,
    /// What it does: `generate`, `verify`, …
    pub kind: String,
    /// Tasks that it holds.
    pub tasks: u64,
    /// Seconds since it was last heard of.
    pub silent_s: f64,
}

/// A proof or a conjecture that has just been made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recent {
    /// `proof` or `conjecture`.
    pub kind: String,
    /// The problem's name.
    pub problem: String,
    pub statement: String,
    /// The proof, or the review.
    pub text: String,
    /// Scores in a few words.
    pub scores: String,
}
