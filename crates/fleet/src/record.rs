//! What the board did, as plain data: written to a log before it is acknowledged, and replayed after a crash.

use serde::{Deserialize, Serialize};

use crate::task::{Attempt, Cause, Ending, Payload, TaskId, TaskKind, WorkerName};

/// One change of the board. The board is exactly what its records, applied in order, make it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A task was put on the board, last among its priority.
    Submitted {
        /// Its name.
        task: TaskId,
        /// The worker it needs.
        kind: TaskKind,
        /// Higher goes first.
        priority: i32,
        /// The work.
        payload: Payload,
    },
    /// A worker got a lease of the task.
    Leased {
        /// The task.
        task: TaskId,
        /// Number of the lease.
        attempt: Attempt,
        /// Who got it.
        worker: WorkerName,
    },
    /// A lease ended without an outcome.
    Ended {
        /// The task.
        task: TaskId,
        /// Which lease.
        attempt: Attempt,
        /// Why.
        cause: Cause,
        /// In words.
        message: String,
    },
    /// A lease that had expired came back to life: its worker still works on it.
    Revived {
        /// The task.
        task: TaskId,
        /// Which lease.
        attempt: Attempt,
    },
    /// The task has its outcome.
    Done {
        /// The task.
        task: TaskId,
        /// The lease that won.
        attempt: Attempt,
        /// The result.
        outcome: Payload,
    },
    /// The task broke too many workers.
    Quarantined {
        /// The task.
        task: TaskId,
    },
    /// The consumer found the outcome unusable: the task is open again.
    Reopened {
        /// The task.
        task: TaskId,
        /// Why.
        message: String,
    },
    /// The task left the board: its ending was taken over by the consumer, or it was cancelled.
    Removed {
        /// The task.
        task: TaskId,
    },
    /// A whole task, last among its priority: what compaction writes instead of the task's history.
    Restored(Box<Restored>),
}

impl Record {
    /// Whether a promise to somebody hangs on this record: it has to be on disk before they hear of it.
    /// The others may be lost in a crash at the price of repeated work, never of lost or doubled work.
    #[must_use]
    pub fn is_promise(&self) -> bool {
        !matches!(self, Self::Leased { .. } | Self::Revived { .. })
    }
}

/// One task with its whole state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Its name.
    pub task: TaskId,
    /// The worker it needs.
    pub kind: TaskKind,
    /// Higher goes first.
    pub priority: i32,
    /// The work.
    pub payload: Payload,
    /// Its leases: number, holder, and how it ended if it did.
    pub attempts: Vec<(Attempt, WorkerName, Option<Cause>)>,
    /// The number that the next lease gets.
    pub next_attempt: u32,
    /// Leases that ended badly, with their messages.
    pub failures: Vec<crate::task::Failure>,
    /// Its ending, if it has one.
    pub ending: Option<Ending>,
}
