//! Request and reply bodies of the HTTP service. `docs/cluster.md` describes the protocol. The replies to lease requests and
//! heartbeats are [`crate::Grant`] and [`crate::HeartbeatAck`].

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::task::{LeaseId, Receipt, Report, WorkKind, WorkerName};

/// Content type of the bodies of calls that change state, and of their replies: postcard. Fields are encoded in the order
/// of their declaration in this file. An incompatible version needs another content type.
pub const POSTCARD: &str = "application/x-sgs-fleet-1";

/// Content type of the board's statistics and of errors.
pub(crate) const JSON: &str = "application/json";

/// Serializes a body.
pub fn write(value: &impl Serialize) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(value).map_err(|e| e.to_string())
}

/// Parses a whole body.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} unexpected bytes at the end", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// Body of `POST /v1/lease`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The worker's name.
    pub worker: WorkerName,
    /// The kind of work.
    pub kind: WorkKind,
    /// Maximum number of leases.
    pub capacity: usize,
    /// Maximum wait for the first lease, in seconds. The service may wait for less.
    pub wait_s: f64,
}

/// Body of `POST /v1/heartbeat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    /// The worker's name.
    pub worker: WorkerName,
    /// The leases that it holds, at most [`MAX_ITEMS`].
    #[serde(deserialize_with = "items")]
    pub tasks: Vec<LeaseId>,
}

/// Body of `POST /v1/results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsRequest {
    /// The worker's name.
    pub worker: WorkerName,
    /// The reports, at most [`MAX_ITEMS`].
    #[serde(deserialize_with = "items")]
    pub results: Vec<Report>,
}

/// Reply to `POST /v1/results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsReply {
    /// The receipts, in the order of the reports.
    pub receipts: Vec<Receipt>,
}

/// Body of every reply whose status is not 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// The problem and its remedy.
    pub error: String,
}

/// Maximum number of leases or reports in a request, and of leases in a reply. They take up to twenty times as much memory
/// as their encoding.
pub const MAX_ITEMS: usize = 65_536;

/// Reads at most [`MAX_ITEMS`] items.
fn items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_ITEMS} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element()? {
                if items.len() == MAX_ITEMS {
                    return Err(A::Error::invalid_length(MAX_ITEMS + 1, &self));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    from.deserialize_seq(Items(PhantomData))
}

/// Durations as numbers of seconds.
pub(crate) mod seconds {
    use super::{Deserialize, Deserializer};
    use serde::{Serializer, de::Error};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{AttemptId, LeaseOutcome, TaskId};
    use proptest::prelude::*;

    fn results(outcomes: Vec<Vec<u8>>) -> ResultsRequest {
        let report = |(id, bytes): (usize, Vec<u8>)| {
            let outcome = match id % 3 {
                0 => LeaseOutcome::Done(bytes.into()),
                1 => LeaseOutcome::Failed(format!("{bytes:?}")),
                _ => LeaseOutcome::Returned,
            };
            Report { task: TaskId(u64::MAX - id as u64), attempt: AttemptId(id as u32), outcome }
        };
        let worker = WorkerName::new("w").expect("a good name");
        ResultsRequest { worker, results: outcomes.into_iter().enumerate().map(report).collect() }
    }

    proptest! {
        #[test]
        fn bodies_round_trip(outcomes in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let call = results(outcomes);
            prop_assert_eq!(&read::<ResultsRequest>(&write(&call).expect("writes")).expect("reads"), &call);
        }

        #[test]
        fn invalid_bodies_are_rejected(bytes in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
            // Any result is fine, as long as it does not panic.
            let _ = read::<ResultsRequest>(&bytes);
            let whole = write(&results(vec![bytes])).expect("writes");
            prop_assert!(read::<ResultsRequest>(&whole[..cut.index(whole.len())]).is_err());
            prop_assert!(read::<ResultsRequest>(&[&whole[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn the_number_of_reports_is_bounded() {
        let worker = WorkerName::new("w").expect("a good name");
        let report = Report { task: TaskId(1), attempt: AttemptId(1), outcome: LeaseOutcome::Returned };
        let mut call = ResultsRequest { worker, results: vec![report.clone(); MAX_ITEMS] };
        assert_eq!(read(&write(&call).expect("writes")), Ok(call.clone()));
        call.results.push(report);
        assert!(read::<ResultsRequest>(&write(&call).expect("writes")).is_err());
    }

    #[test]
    fn names_are_checked() {
        let call = LeaseRequest {
            worker: WorkerName::new("w").expect("a good name"),
            kind: WorkKind::new("x").expect("a good name"),
            capacity: 1,
            wait_s: 0.0,
        };
        let mut bytes = write(&call).expect("writes");
        assert_eq!(read::<LeaseRequest>(&bytes), Ok(call));
        // The worker's name: its length, then "w".
        bytes[1] = b' ';
        assert!(read::<LeaseRequest>(&bytes).is_err());
    }
}
