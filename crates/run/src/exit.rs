//! Outcomes of successful work and the exit codes, which scripts may rely on.

use std::process::ExitCode;

/// How a command or a run ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// The work was done and found a problem (a rejected proof, an exceeded tolerance).
    Failed,
    /// The user interrupted it. Finished work is on disk.
    Interrupted,
}

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Success.
    Done = 0,
    /// An error, or the work found a problem.
    Failed = 1,
    /// The command was used incorrectly.
    Usage = 2,
    /// A launched rank exited because another rank did. The launcher looks for the actual cause.
    RankLost = 75,
    /// The user interrupted it: 128 plus the number of SIGINT, as in shells.
    Interrupted = 130,
}

impl Code {
    /// All codes, in order.
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Usage, Self::RankLost, Self::Interrupted];

    /// Returns the meaning of the exit code for scripts.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Done => "done; for `verify`: every proof got a verdict",
            Code::Failed => "failure, or a check did not pass",
            Code::Usage => "wrong arguments or files, or a missing requirement; nothing was started",
            Code::RankLost => "a rank exited because another rank died",
            Code::Interrupted => "interrupted; finished work is on disk",
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
