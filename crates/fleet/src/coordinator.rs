//! The coordinator as a worker sees it: three calls, in this process or over the network.

use std::time::Duration;

use crate::task::{Lease, LeaseId, Receipt, Report, TaskKind, WorkerName};

/// Answer to a request for work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The leases; may be none.
    pub leases: Vec<Lease>,
    /// How long they last without a heartbeat.
    pub lease_time: Duration,
    /// No more work will come: finish and leave.
    pub drain: bool,
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    pub abandon: Vec<LeaseId>,
    /// How long the others last from now.
    pub lease_time: Duration,
    /// No more work will come: finish and leave.
    pub drain: bool,
}

/// A call that did not come through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Trying again later may help: the coordinator is away, restarting or overloaded.
    #[error("the coordinator cannot be reached: {0}")]
    Away(String),
    /// Trying again will not help: a wrong token, a malformed request.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
}

/// What workers talk to: the board of this process ([`crate::Fleet`]) or one behind HTTP (`Client`).
/// Every call may be repeated without harm.
pub trait Coordinator: Send + Sync {
    /// Up to `capacity` leases of a kind; waits up to `wait` for the first.
    ///
    /// # Errors
    /// [`CallError`] if no answer came.
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &TaskKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError>;

    /// A sign of life, with every lease in hand.
    ///
    /// # Errors
    /// [`CallError`] if no answer came.
    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, CallError>;

    /// Ends leases. The receipts are in the order of the reports.
    ///
    /// # Errors
    /// [`CallError`] if no answer came; then none, some or all of the reports may have been taken.
    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError>;
}
