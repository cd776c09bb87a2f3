//! What travels between the coordinator and its workers: tasks, leases, outcomes.
//!
//! Payloads are opaque bytes. The fleet never looks inside, so it serves generation, verification and
//! anything else that can be written down as "these bytes in, those bytes out".

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::name::{Digest, FileName, NameError, TaskKind, WorkerName};

/// Names a task. The submitter chooses it, so that submitting the same work again after a crash is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Numbers the leases of one task. `(task, attempt)` names one lease for ever: the lower 12 bits count a coordinator's
/// leases of the task from 1, the upper 20 are the coordinator's [`Epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// Most leases of one task under one coordinator.
    pub const MOST: u32 = (1 << Self::COUNT_BITS) - 1;
    const COUNT_BITS: u32 = 12;

    /// Whose lease it is.
    #[must_use]
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::COUNT_BITS)
    }
}

/// One life of a coordinator. The leases that it grants carry it, so that those of the coordinator before are told
/// from its own although both count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// The epoch of that number, modulo 2^20.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number % (1 << (32 - Attempt::COUNT_BITS)))
    }

    /// The lease of that number, at most [`Attempt::MOST`], in this epoch.
    #[must_use]
    pub fn attempt(self, number: u32) -> Attempt {
        Attempt((self.0 << Attempt::COUNT_BITS) | number.min(Attempt::MOST))
    }
}

/// A moment of the board's own clock: milliseconds since an arbitrary start, never a wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// This moment and `span` later, to the millisecond; saturates.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Opaque bytes, shared and immutable.
///
/// In JSON a payload that is UTF-8 stands as a string, any other as `{"base64": "…"}`; in binary formats as bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Arc<[u8]>> for Payload {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(bytes)
    }
}

mod payload_serde {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::{Error, MapAccess, SeqAccess, Visitor};
    use serde::ser::SerializeMap;

    use super::{Deserialize, Deserializer, Payload, Serialize, Serializer, fmt};

    impl Serialize for Payload {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            if !to.is_human_readable() {
                return to.serialize_bytes(self.as_bytes());
            }
            match std::str::from_utf8(self.as_bytes()) {
                Ok(text) => to.serialize_str(text),
                Err(_) => {
                    let mut map = to.serialize_map(Some(1))?;
                    map.serialize_entry("base64", &STANDARD.encode(self.as_bytes()))?;
                    map.end()
                }
            }
        }
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Payload;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, or an object with the key \"base64\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Payload, E> {
            Ok(text.into())
        }

        fn visit_string<E: Error>(self, text: String) -> Result<Payload, E> {
            Ok(text.into())
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
            Ok(bytes.into())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Payload, E> {
            Ok(bytes.into())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Payload, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = seq.next_element::<u8>()? {
                bytes.push(byte);
            }
            Ok(bytes.into())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Payload, A::Error> {
            match (map.next_entry::<String, String>()?, map.next_key::<String>()?) {
                (Some((key, text)), None) if key == "base64" => {
                    STANDARD.decode(text).map(Payload::from).map_err(A::Error::custom)
                }
                _ => Err(A::Error::custom("a payload object has exactly the key \"base64\"")),
            }
        }
    }

    impl<'de> Deserialize<'de> for Payload {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            if from.is_human_readable() {
                from.deserialize_any(Bytes)
            } else {
                from.deserialize_byte_buf(Bytes)
            }
        }
    }
}

/// A piece of work, as the submitter gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name, chosen by the submitter.
    pub id: TaskId,
    /// What sort of worker it needs.
    pub kind: TaskKind,
    /// Higher goes first; equal priorities go in order of submission.
    pub priority: i32,
    /// What the worker gets.
    pub payload: Payload,
}

/// One task in the hands of one worker, until done, given back or expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub task: TaskId,
    /// Which lease of the task this is.
    pub attempt: Attempt,
    /// What sort of worker the task needs.
    pub kind: TaskKind,
    /// What to work on.
    pub payload: Payload,
}

/// Names a lease without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId {
    pub task: TaskId,
    /// Which lease of the task.
    pub attempt: Attempt,
}

impl Lease {
    /// The lease's name.
    #[must_use]
    pub fn id(&self) -> LeaseId {
        LeaseId { task: self.task, attempt: self.attempt }
    }
}

/// How a worker ends a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work is done; these bytes are its result.
    Done(Payload),
    /// The worker itself failed (not the proof, not the problem): counts as one failed attempt, with the reason.
    Failed(String),
    /// Given back untouched, as when a worker drains: counts for nothing.
    Returned,
}

/// The end of one lease, as a worker reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub task: TaskId,
    /// The lease of it that ends.
    pub attempt: Attempt,
    pub outcome: Outcome,
}

/// What became of a report. All but [`Receipt::Waiting`] are final: a worker never needs to send that report again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    /// This outcome is the task's.
    Accepted,
    /// The failure or return is noted; the task goes to somebody else.
    Noted,
    /// The task or the lease had ended before, or the task is not on the board any more; nothing changed.
    Duplicate,
    /// The coordinator never gave this worker that lease; nothing changed.
    Refused,
    /// The consumer could not use this outcome; it counts as a failed attempt of this worker.
    Rejected,
    /// The outcome is not safe yet: keep it and send the report again.
    Waiting,
}

/// Why a lease ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The worker is gone: silent past the deadline, killed, preempted, its machine off. Says nothing of the task, unless
    /// the same one is there every time.
    Died,
    /// The worker's process brought itself down (a segmentation fault, an abort). A failed attempt.
    Crashed,
    /// The worker said that it failed. A failed attempt.
    Failed,
    /// The consumer found the outcome unusable. A failed attempt.
    Rejected,
    /// The worker lives but does not know of the lease: the reply that granted it never arrived.
    Lost,
    /// The worker gave it back.
    Returned,
}

impl Cause {
    /// Whether an end of this sort is written down among the task's failures.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, Self::Died | Self::Crashed | Self::Failed | Self::Rejected)
    }
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Of its own will and without an error.
    Well,
    /// It brought itself down: a signal that only a fault of the program raises, or its memory's limit.
    Crashed,
    /// Any other way: killed, preempted, cancelled, with an error, unknown.
    Gone,
}

/// One lease that ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub attempt: Attempt,
    pub worker: WorkerName,
    pub cause: Cause,
    /// In words: the worker's error, or when it was last heard of.
    pub message: String,
}

/// A task that has ended, for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub task: TaskId,
    pub kind: TaskKind,
    pub ending: Ending,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// A worker did it.
    Done { outcome: Payload, worker: WorkerName, attempt: Attempt },
    /// It broke too many workers; nobody will get it again.
    Quarantined {
        /// Every lease of it that ended badly, in order.
        failures: Vec<Failure>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_survive_json_as_text_or_base64() {
        for bytes in [b"".as_slice(), b"plain", b"{\"a\":\"\\\"\"}", &[0xff, 0x00, 0xfe], "∀x".as_bytes()] {
            let payload = Payload::from(bytes);
            let json = serde_json::to_string(&payload).expect("serialises");
            assert_eq!(serde_json::from_str::<Payload>(&json).expect("reads"), payload, "{json}");
        }
        assert_eq!(serde_json::to_string(&Payload::from("x")).expect("serialises"), "\"x\"");
        assert!(serde_json::from_str::<Payload>("{\"base32\":\"aa\"}").is_err());
        assert!(serde_json::from_str::<Payload>("{\"base64\":\"?\"}").is_err());
        assert!(serde_json::from_str::<Payload>("17").is_err());
    }

    #[test]
    fn outcomes_read_as_people_would_write_them() {
        let report: Report =
            serde_json::from_str(r#"{"task":7,"attempt":1,"outcome":{"done":"ok"}}"#).expect("reads");
        assert_eq!(report.outcome, Outcome::Done("ok".into()));
        let report: Report =
            serde_json::from_str(r#"{"task":7,"attempt":1,"outcome":"returned"}"#).expect("reads");
        assert_eq!(report.outcome, Outcome::Returned);
    }
}
