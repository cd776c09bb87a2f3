//! Tasks, leases and outcomes: the data exchanged between coordinator and workers.
//!
//! Payloads are opaque bytes, which the fleet never inspects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::name::{Digest, FileName, NameError, WorkKind, WorkerName};

/// Identifies a task. Chosen by the submitter, so that the same task is recognised when it is submitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Numbers the leases of one task. `(task, attempt)` identifies a lease for ever: the lower 12 bits count a coordinator's
/// leases of the task from 1, the upper 20 bits are the coordinator's [`Epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(pub u32);

impl AttemptId {
    /// Maximum number of leases of one task in one epoch.
    pub const MAX: u32 = (1 << Self::COUNT_BITS) - 1;
    const COUNT_BITS: u32 = 12;

    /// Returns the epoch of the coordinator that granted the lease.
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::COUNT_BITS)
    }
}

/// Identifies one lifetime of a coordinator. Every attempt contains it, so that leases of an earlier coordinator differ
/// from its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// Creates an epoch from a number, modulo 2^20.
    pub fn new(number: u32) -> Self {
        Self(number % (1 << (32 - AttemptId::COUNT_BITS)))
    }

    /// Returns the attempt with this number, at most [`AttemptId::MAX`], in this epoch.
    pub fn attempt(self, number: u32) -> AttemptId {
        AttemptId((self.0 << AttemptId::COUNT_BITS) | number.min(AttemptId::MAX))
    }
}

/// A time of the board's clock, in milliseconds since an arbitrary start. Not related to wall-clock time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `span` later. Saturates.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time passed since `earlier`, or zero if `earlier` is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Opaque bytes, shared and immutable.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl<T: AsRef<[u8]>> From<T> for Payload {
    fn from(bytes: T) -> Self {
        Self(bytes.as_ref().into())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(<&[u8]>::deserialize(from)?.into())
    }
}

/// A unit of work, as submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's id, chosen by the submitter.
    pub id: TaskId,
    /// The kind of work, which selects the workers.
    pub kind: WorkKind,
    /// Higher priorities are leased first; equal ones in the order of submission.
    pub priority: i32,
    /// The input of the worker.
    pub payload: Payload,
}

/// The right of one worker to work on a task, until it is done, returned or expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The number of the lease among those of the task.
    pub attempt: AttemptId,
    /// The kind of work.
    pub kind: WorkKind,
    /// The input of the worker.
    pub payload: Payload,
}

/// Identifies a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId {
    /// The task.
    pub task: TaskId,
    /// The number of the lease among those of the task.
    pub attempt: AttemptId,
}

impl Lease {
    /// Returns the lease's id.
    pub fn id(&self) -> LeaseId {
        LeaseId { task: self.task, attempt: self.attempt }
    }
}

/// How a lease ended, as its worker reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseOutcome {
    /// The work is done, with this result.
    Done(Payload),
    /// The worker failed (not the proof or the problem), for this reason. At most 4 KiB of the reason are kept. Counts
    /// as a failed attempt.
    Failed(#[serde(deserialize_with = "short_message")] String),
    /// The worker returned the task without working on it, for example because it drains. Does not count.
    Returned,
}

/// Maximum size of the message of a failure, in bytes.
const MAX_MESSAGE: usize = 4096;
/// The end of a message that was cut.
const CUT: &str = " … (cut)";

/// Copies the message of a failure, and cuts it if it is long.
pub(crate) fn shortened(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    format!("{}{CUT}", &message[..message.floor_char_boundary(MAX_MESSAGE - CUT.len())])
}

fn short_message<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(shortened(&String::deserialize(from)?))
}

/// A worker's report that a lease has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The task.
    pub task: TaskId,
    /// The number of the lease that ended.
    pub attempt: AttemptId,
    /// How it ended.
    pub outcome: LeaseOutcome,
}

/// Reply to a report. All receipts except [`Receipt::Waiting`] are final, so the worker need not send the report again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receipt {
    /// The outcome is now the task's result.
    Accepted,
    /// The failure or return is recorded. The task goes to another worker.
    Noted,
    /// The task or the lease had already ended, or the task is not on the board. Nothing changed.
    Duplicate,
    /// The coordinator knows of no such lease of this worker. Nothing changed.
    Refused,
    /// The consumer rejected the outcome. Counts as a failed attempt.
    Rejected,
    /// The outcome is not safe yet, so the worker must keep it and send the report again.
    Waiting,
}

/// Why a lease ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The worker is gone: silent past the deadline, killed or preempted. Does not indicate a fault of the task unless it
    /// happens repeatedly.
    Died,
    /// The worker's process crashed (a segmentation fault, an abort). A failed attempt.
    Crashed,
    /// The worker reported a failure. A failed attempt.
    Failed,
    /// The consumer rejected the outcome. A failed attempt.
    Rejected,
    /// The worker is alive but does not know of the lease, because the reply that granted it was lost.
    Lost,
    /// The worker returned the task.
    Returned,
}

impl Cause {
    /// Returns true if such an end is recorded among the task's failures.
    pub fn counts(self) -> bool {
        matches!(self, Self::Died | Self::Crashed | Self::Failed | Self::Rejected)
    }
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerExit {
    /// It exited on its own, without an error.
    Well,
    /// It crashed: a signal caused by a fault of the program, or its memory limit.
    Crashed,
    /// Any other end: killed, preempted, cancelled, exited with an error, or unknown.
    Gone,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// The lease.
    pub attempt: AttemptId,
    /// The worker that held it.
    pub worker: WorkerName,
    /// Why it ended.
    pub cause: Cause,
    /// The worker's error, or a description of its end. At most 4 KiB.
    pub message: String,
}

/// A task that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTask {
    /// The task.
    pub task: TaskId,
    /// Its kind.
    pub kind: WorkKind,
    /// Its result.
    pub result: TaskResult,
}

/// Result of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskResult {
    /// A worker completed the task.
    Done {
        /// The worker's result.
        outcome: Payload,
        /// The worker.
        worker: WorkerName,
        /// The lease that gave the result.
        attempt: AttemptId,
    },
    /// Too many attempts failed; the task is not leased again.
    Quarantined {
        /// The last failed attempts, at most 16, in order.
        failures: Vec<AttemptFailure>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_when_they_are_read() {
        let read = |text: String| -> String {
            let bytes = crate::wire::write(&LeaseOutcome::Failed(text)).expect("writes");
            match crate::wire::read(&bytes).expect("reads") {
                LeaseOutcome::Failed(text) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read("∀\n".repeat(1024)), "∀\n".repeat(1024));
        let cut = read("∀".repeat(1_000_000));
        assert_eq!(cut, format!("{}{CUT}", "∀".repeat((MAX_MESSAGE - CUT.len()) / 3)));
        assert_eq!(read(cut.clone()), cut);
    }
}
