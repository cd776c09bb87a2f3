//! Bodies of the service's calls, in two forms: a compact one for workers, JSON for people. See `docs/cluster.md` for the
//! protocol in words.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::task::{Lease, LeaseId, Receipt, Report, TaskKind, WorkerName};

/// How a body is written. Its content type says which form it is; an answer has the form of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people and their tools.
    Json,
    /// postcard, the fields in the order in which they stand in this file. Another version has another content type.
    Binary,
}

impl Form {
    /// The form of that content type.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or("").trim();
        [Self::Json, Self::Binary].into_iter().find(|form| kind.eq_ignore_ascii_case(form.content_type()))
    }

    /// Its content type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Binary => "application/x-sgs-fleet-1",
        }
    }

    /// Writes a body.
    ///
    /// # Errors
    /// What cannot be written, in words.
    pub fn write(self, value: &impl Serialize) -> Result<Vec<u8>, String> {
        match self {
            Self::Json => serde_json::to_vec(value).map_err(|e| e.to_string()),
            Self::Binary => postcard::to_stdvec(value).map_err(|e| e.to_string()),
        }
    }

    /// Reads a body, all of it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        match self {
            Self::Json => serde_json::from_slice(bytes).map_err(|e| e.to_string()),
            Self::Binary => match postcard::take_from_bytes(bytes) {
                Ok((value, [])) => Ok(value),
                Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

/// `POST /v1/lease`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRequest {
    pub worker: WorkerName,
    pub kind: TaskKind,
    /// For how many at most.
    pub capacity: usize,
    /// Seconds to wait for the first; the service caps it.
    #[serde(default)]
    pub wait_s: f64,
}

/// Answer to `POST /v1/lease`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseReply {
    /// The leases; may be none.
    pub tasks: Vec<Lease>,
    /// Seconds that they last without a heartbeat. A duration, not a date: clocks may differ.
    pub lease_s: f64,
    /// Finish and leave.
    #[serde(default)]
    pub drain: bool,
}

/// `POST /v1/heartbeat`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    pub worker: WorkerName,
    /// What it has in hand.
    pub tasks: Vec<LeaseId>,
}

/// Answer to `POST /v1/heartbeat`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// What it shall drop.
    pub abandon: Vec<LeaseId>,
    /// Seconds that the rest lasts from now.
    pub lease_s: f64,
    /// Finish and leave.
    #[serde(default)]
    pub drain: bool,
}

/// `POST /v1/results`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsRequest {
    pub worker: WorkerName,
    pub results: Vec<Report>,
}

/// Answer to `POST /v1/results`, in the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsReply {
    /// What became of each.
    pub receipts: Vec<Receipt>,
}

/// Body of every answer that is not 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// What was wrong, and what to do.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Attempt, Outcome, TaskId};
    use proptest::prelude::*;

    fn results(outcomes: Vec<Vec<u8>>) -> ResultsRequest {
        let report = |(id, bytes): (usize, Vec<u8>)| {
            let outcome = match id % 3 {
                0 => Outcome::Done(bytes.into()),
                1 => Outcome::Failed(format!("{bytes:?}")),
                _ => Outcome::Returned,
            };
            Report { task: TaskId(u64::MAX - id as u64), attempt: Attempt(id as u32), outcome }
        };
        let worker = WorkerName::new("w").expect("a good name");
        ResultsRequest { worker, results: outcomes.into_iter().enumerate().map(report).collect() }
    }

    proptest! {
        #[test]
        fn both_forms_say_the_same(outcomes in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let call = results(outcomes);
            for form in [Form::Json, Form::Binary] {
                let bytes = form.write(&call).expect("writes");
                prop_assert_eq!(&form.read::<ResultsRequest>(&bytes).expect("reads"), &call);
            }
        }

        #[test]
        fn what_is_not_a_body_is_refused(bytes in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
            // Whatever it is, it is an answer and no panic.
            let _ = Form::Binary.read::<ResultsRequest>(&bytes);
            let whole = Form::Binary.write(&results(vec![bytes])).expect("writes");
            prop_assert!(Form::Binary.read::<ResultsRequest>(&whole[..cut.index(whole.len())]).is_err());
            prop_assert!(Form::Binary.read::<ResultsRequest>(&[&whole[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn names_are_checked_in_both_forms() {
        let call = LeaseRequest {
            worker: WorkerName::new("w").expect("a good name"),
            kind: TaskKind::new("x").expect("a good name"),
            capacity: 1,
            wait_s: 0.0,
        };
        let mut bytes = Form::Binary.write(&call).expect("writes");
        assert_eq!(Form::Binary.read::<LeaseRequest>(&bytes), Ok(call));
        // The worker's name: its length, then "w".
        bytes[1] = b' ';
        assert!(Form::Binary.read::<LeaseRequest>(&bytes).is_err());
        assert_eq!(Form::of("Application/JSON; charset=utf-8"), Some(Form::Json));
        assert_eq!(Form::of("application/x-sgs-fleet-2"), None);
    }
}
