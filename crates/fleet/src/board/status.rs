//! Statistics of the board.

use serde::{Deserialize, Serialize};

use super::store::BoardCounters;
use crate::task::{WorkKind, WorkerName};

/// Statistics of a board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoardStatus {
    /// Tasks on the board, open or ended.
    pub tasks: usize,
    /// Whether all workers are told to leave.
    pub draining: bool,
    /// One entry per kind of work, in the order of first submission.
    pub kinds: Vec<KindStats>,
    /// One entry per worker, in the order of their names.
    pub workers: Vec<WorkerStats>,
    /// Seconds for which workers have held tasks since the last outcome. Time without leases does not count.
    #[serde(default)]
    pub stalled_s: f64,
    /// Counts of events since the coordinator started.
    pub counters: BoardCounters,
}

/// Statistics of one kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindStats {
    /// The kind.
    pub kind: WorkKind,
    /// Tasks that wait for a worker.
    pub pending: usize,
    /// Tasks that one or two workers hold.
    pub leased: usize,
    /// Ended tasks that the consumer has not taken yet.
    pub undelivered: usize,
    /// Whether backpressure withholds this kind.
    pub held_back: bool,
    /// Age of the oldest task with a single lease, in seconds.
    pub longest_running_s: Option<f64>,
}

/// Statistics of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// The worker's name.
    pub worker: WorkerName,
    /// Leases held.
    pub leases: usize,
    /// Seconds since the last contact.
    pub silent_s: f64,
    /// Whether the worker is told to leave.
    pub draining: bool,
    /// Remaining back-off in seconds after repeated failures; 0 if the worker may lease.
    #[serde(default, rename = "benched_s")]
    pub backoff_s: f64,
    /// Tasks done.
    pub done: u64,
    /// Leases that failed, died or had their outcome rejected.
    pub failed: u64,
    /// Message of the last such failure.
    pub last_error: Option<String>,
}

impl BoardStatus {
    /// Returns the fraction of ended leases that ended by a fault of the infrastructure (death, crash, failure, rejected
    /// outcome), in 0..=1.
    pub fn infra_rate(&self) -> f64 {
        let c = &self.counters;
        // The worker of a revived lease was not dead after all.
        let bad = (c.died + c.crashed + c.failed + c.rejected).saturating_sub(c.revived.min(c.died));
        let all = bad + c.done;
        if all == 0 { 0.0 } else { bad as f64 / all as f64 }
    }

    /// Describes the `limit` workers with the most failures and their last errors, one per line.
    pub fn worst_workers(&self, limit: usize) -> String {
        let mut failing: Vec<_> = self.workers.iter().filter(|w| w.failed > 0).collect();
        failing.sort_by_key(|w| std::cmp::Reverse(w.failed));
        let lines = failing.iter().take(limit).map(|w| {
            let error = w.last_error.as_deref().unwrap_or("no message");
            format!("{}: {} failed, {} done; last: {error}", w.worker, w.failed, w.done)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
