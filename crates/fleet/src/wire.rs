//! Bodies of the service's calls. JSON; see `docs/cluster.md` for the protocol in words.

use serde::{Deserialize, Serialize};

use crate::task::{Lease, LeaseId, Receipt, Report, TaskKind, WorkerName};

/// `POST /v1/lease`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Who asks.
    pub worker: WorkerName,
    /// For what kind of task.
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
    /// Who lives.
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
    /// Whose leases end.
    pub worker: WorkerName,
    /// How.
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
