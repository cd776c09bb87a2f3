//! The interface between workers and their coordinator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::task::{Lease, LeaseId, Receipt, Report, WorkKind, WorkerName};

/// Reply to a lease request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The granted leases. May be empty.
    pub leases: Vec<Lease>,
    /// Lifetime of the leases without a heartbeat. Not a date, because clocks may differ.
    #[serde(with = "crate::wire::seconds")]
    pub lease_time: Duration,
    /// The worker must finish or return its leases, and leave.
    pub drain: bool,
}

/// Reply to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAck {
    /// Leases to drop: finished elsewhere, cancelled, or given to other workers.
    pub abandon: Vec<LeaseId>,
    /// Lifetime of the other leases from now.
    #[serde(with = "crate::wire::seconds")]
    pub lease_time: Duration,
    /// The worker must finish or return its leases, and leave.
    pub drain: bool,
}

/// Why a call to the coordinator failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The coordinator is down, restarting or overloaded. A retry may succeed.
    #[error("the coordinator cannot be reached: {0}")]
    Unavailable(String),
    /// The coordinator rejects the call, for example because of a wrong token. A retry does not help.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
}

/// A source of tasks for workers: a [`crate::Fleet`] in the same process, or a [`crate::Client`] over HTTP.
///
/// All calls are idempotent.
pub trait Coordinator: Send + Sync {
    /// Leases up to `capacity` tasks of a kind. Waits up to `wait` for the first.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not reply.
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError>;

    /// Sends a heartbeat that names every lease that the worker holds.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not reply.
    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError>;

    /// Reports ended leases. The receipts are in the order of the reports.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not reply; the coordinator may have taken any number of the reports.
    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError>;
}
