//! What one check may cost, and how long a process may live.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bounds of one check; what exceeds them is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Wall clock of one proof, milliseconds (the paper: 200 s).
    pub proof_ms: u64,
    /// Wall clock of a process's start with its header, milliseconds.
    pub start_ms: u64,
    /// Resident memory of a process group, bytes.
    pub memory: u64,
    /// Bytes that a process may write in answer to one request, on either stream.
    pub output: usize,
}

impl Default for Limits {
    /// 200 s a proof (paper, Appendix A), 300 s for the header (a cold `import Mathlib` was seen to take 104 s),
    /// 10 GiB (5.7 GB of which are Mathlib's shared pages), 16 MiB of answer.
    fn default() -> Self {
        Self { proof_ms: 200_000, start_ms: 300_000, memory: 10 << 30, output: 16 << 20 }
    }
}

impl Limits {
    /// Wall clock of one proof.
    pub fn proof(&self) -> Duration {
        Duration::from_millis(self.proof_ms)
    }

    /// Wall clock of a start.
    pub fn start(&self) -> Duration {
        Duration::from_millis(self.start_ms)
    }
}

/// When a process is replaced although nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recycling {
    /// Proofs checked.
    pub uses: u32,
    /// Age, milliseconds.
    pub age_ms: u64,
    /// Growth of resident memory over what it was after the header, bytes.
    pub growth: u64,
}

impl Default for Recycling {
    /// A REPL keeps every environment it ever made, so that it must go after some; 1 GiB of growth ends it earlier.
    fn default() -> Self {
        Self { uses: 100, age_ms: 3_600_000, growth: 1 << 30 }
    }
}
