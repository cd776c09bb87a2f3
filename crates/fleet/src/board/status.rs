//! The board in numbers, for people, dashboards and monitors.

use serde::{Deserialize, Serialize};

use super::tables::Counters;
use crate::task::{TaskKind, WorkerName};

/// The board in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoardStatus {
    /// Tasks on the board, open or ended.
    pub tasks: usize,
    /// Whether workers are being sent home.
    pub draining: bool,
    /// By kind of task, in order of first submission.
    pub kinds: Vec<KindStatus>,
    /// By worker, in order of name.
    pub workers: Vec<WorkerStatus>,
    /// Seconds in which workers held tasks since the last outcome; time without workers does not count.
    #[serde(default)]
    pub stalled_s: f64,
    /// Since the coordinator started.
    pub counters: Counters,
}

/// One kind of task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindStatus {
    pub kind: TaskKind,
    /// Waiting for a worker.
    pub pending: usize,
    /// In the hands of one worker or two.
    pub leased: usize,
    /// Ended and not yet given to the consumer.
    pub undelivered: usize,
    /// Whether back-pressure keeps this kind from being leased.
    pub held_back: bool,
    /// Seconds since the longest-running single lease began.
    pub longest_running_s: Option<f64>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker: WorkerName,
    /// Leases that it holds.
    pub leases: usize,
    /// Seconds since it was last heard of.
    pub silent_s: f64,
    /// Whether it is being sent home.
    pub draining: bool,
    /// Seconds for which it gets no work, because all that it did of late failed; 0 if it does.
    #[serde(default)]
    pub benched_s: f64,
    /// Tasks that have its outcome.
    pub done: u64,
    /// Leases of it that failed, died or gave a rejected outcome.
    pub failed: u64,
    /// Words of the last such failure.
    pub last_error: Option<String>,
}

impl BoardStatus {
    /// Share of ended leases that ended by a fault of the infrastructure (death, failure, rejected outcome); in [0, 1].
    #[must_use]
    pub fn infra_rate(&self) -> f64 {
        let c = &self.counters;
        // A revived lease turned out not to be dead.
        let bad = (c.died + c.crashed + c.failed + c.rejected).saturating_sub(c.revived.min(c.died));
        let all = bad + c.done;
        if all == 0 { 0.0 } else { bad as f64 / all as f64 }
    }

    /// The workers with the most failures and their last errors, for a message that says who and why.
    #[must_use]
    pub fn worst_workers(&self, most: usize) -> String {
        let mut failing: Vec<_> = self.workers.iter().filter(|w| w.failed > 0).collect();
        failing.sort_by_key(|w| std::cmp::Reverse(w.failed));
        let lines = failing.iter().take(most).map(|w| {
            let error = w.last_error.as_deref().unwrap_or("no message");
            format!("{}: {} failed, {} done; last: {error}", w.worker, w.failed, w.done)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
