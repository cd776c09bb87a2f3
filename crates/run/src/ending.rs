//! How work ends that did not fail, and the error that is the caller's mistake.

/// How a command or a run ended, if not by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done and is well.
    Done,
    /// The work was done, and what it looked at is not well (a refused proof, a tolerance passed).
    Failed,
    /// The user stopped it; what was finished is on the disk.
    Interrupted,
}

/// A mistake in how something was asked for, as opposed to one in what was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);
