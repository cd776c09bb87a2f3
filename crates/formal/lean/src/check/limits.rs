//! What one check may cost, and how long a process may live.

use std::time::Duration;

sgs_keys::table! {
    /// Bounds of one check; what exceeds them is killed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Time limit of a proof by the wall clock, milliseconds (paper, Appendix A: 200 s).
        pub proof_ms: u64 = 200_000, in 1..=1_000_000_000,
        /// Time limit of a start with its header, milliseconds; a cold `import Mathlib` was seen to take 104 s.
        pub start_ms: u64 = 300_000, in 1..=1_000_000_000,
        /// Resident memory of a process group, bytes; 5.7 GB of the default's 10 GiB are Mathlib's shared pages.
        pub memory: u64 = 10 << 30, in 1..=1 << 50,
        /// Bytes that a process may write in answer to one request, on either stream.
        pub output: usize = 16 << 20, in 1..=1 << 40,
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

sgs_keys::table! {
    /// When a process is replaced although nothing is wrong with it: a REPL keeps every environment that it ever made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recycling {
        /// Proofs after which a REPL is replaced.
        pub uses: u32 = 100, in 1..=u64::from(u32::MAX),
        /// Age at which a REPL is replaced, milliseconds.
        pub age_ms: u64 = 3_600_000, in 1..=1_000_000_000_000,
        /// Growth of resident memory over what it was after the header at which a REPL is replaced, bytes.
        pub growth: u64 = 1 << 30, in 1..=1 << 50,
    }
}
