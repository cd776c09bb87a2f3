//! The interface between the pool and the two kinds of checkers.

use super::assemble::Candidate;
use super::evidence::CheckOutcome;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The process or processes behind one slot of a pool: a persistent REPL, or one judge process per file.
pub trait Backend: Send {
    /// Returns the maximum number of candidates in one call.
    fn batch(&self) -> usize;
    /// Returns whether a candidate with this header can be judged without starting another process.
    fn prefers(&self, header: &str) -> bool;
    /// Judges candidates that share a header, and returns their outcomes in order.
    fn check(&mut self, candidates: &[&Candidate]) -> Vec<CheckOutcome>;
    /// Returns how long a slot waits for further candidates before it starts an incomplete batch.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }
    /// Returns the maximum duration of a call of [`Backend::check`], for the caller's watchdog.
    fn deadline(&self, candidates: usize) -> Duration;
}

/// Returns an unpredictable, unique name of 64 random bits.
pub(super) fn fresh_nonce() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNTER.fetch_add(1, Ordering::Relaxed));
    format!("{:016x}", hasher.finish())
}
