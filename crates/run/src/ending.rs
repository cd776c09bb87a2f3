//! How work ends that did not fail, the error that is the caller's mistake, and the exit codes, which scripts may rely on.

use std::process::ExitCode;

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

/// What a process of this program ends with; there are no other codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Everything was done and is well.
    Done = 0,
    /// It failed, or what was looked at is not well.
    Failed = 1,
    /// The command was called in a wrong way.
    Usage = 2,
    /// A rank that another process started ended because another rank did: not the reason, its launcher looks further.
    RankLost = 75,
    /// The user stopped it: 128 and the number of SIGINT, as shells count.
    Interrupted = 130,
}

impl Code {
    /// All, in their order.
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Usage, Self::RankLost, Self::Interrupted];

    /// What it tells a script.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Done => "done",
            Code::Failed => "failed, or what was looked at is not well (a refused proof, a tolerance passed)",
            Code::Usage => "a wrong call: nothing was begun",
            Code::RankLost => "a rank that `--ranks` started ended because another was lost",
            Code::Interrupted => "stopped by the user; what was finished is on the disk",
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        i32::from(code as u8)
    }
}
