//! Limits of one check, and the lifetime of a REPL.

use sgs_formal::process::Quota;
use std::time::Duration;

/// Wall-clock limit of a start, in milliseconds, unless another one is set.
const START_MS: u64 = 300_000;

sgs_keys::table! {
    /// Limits of one check. A process that exceeds one is killed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Wall-clock limit of a proof, in milliseconds (paper, Appendix A: 200 s).
        pub proof_ms: u64 = 200_000, in 1..=1_000_000_000,
        /// Wall-clock limit of a start with its header, in milliseconds; 0 for 300,000 (a cold `import Mathlib` took 104 s),
        /// or 900,000 with wasm, where a start takes 80 s of CPU time.
        pub start_ms: u64 = 0, in 0..=1_000_000_000,
        /// Resident memory of a process group, in bytes; 5.7 GB of the default are Mathlib's shared pages.
        pub memory: u64 = 10 << 30, in 1..=1 << 50,
        /// Bytes that a process may write in response to one request, on either stream.
        pub output: usize = 16 << 20, in 1..=1 << 40,
    }
}

impl Limits {
    /// Returns the limits of an exchange with a process.
    pub fn quota(&self) -> Quota {
        Quota { memory: self.memory, output: self.output }
    }

    /// Returns the wall-clock limit of a proof.
    pub fn proof(&self) -> Duration {
        Duration::from_millis(self.proof_ms)
    }

    /// Returns the wall-clock limit of a start.
    pub fn start(&self) -> Duration {
        Duration::from_millis(if self.start_ms == 0 { START_MS } else { self.start_ms })
    }
}

sgs_keys::table! {
    /// When a healthy REPL is replaced. A REPL keeps every environment that it has created.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recycling {
        /// Proofs after which a REPL is replaced.
        pub uses: u32 = 100, in 1..=u64::from(u32::MAX),
        /// Age at which a REPL is replaced, in milliseconds.
        pub age_ms: u64 = 3_600_000, in 1..=1_000_000_000_000,
        /// Growth of resident memory, relative to its size after loading the header, at which a REPL is replaced, in bytes.
        pub growth: u64 = 1 << 30, in 1..=1 << 50,
    }
}
