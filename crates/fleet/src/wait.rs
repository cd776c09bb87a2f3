//! Waiting with a deadline, and the clock of the board.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::task::Time;

/// A waiting thread polls at least this often, so that leases expire on time.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until it is ready (`Some`) or the deadline has passed (`None`). Polls at least once.
pub fn block_until<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left.min(POLL_INTERVAL));
    }
}

/// A monotonic clock that never jumps: no lease expires because the process was stopped or the machine was suspended.
#[derive(Debug)]
pub struct SteadyClock {
    last: Instant,
    passed: Duration,
}

/// Maximum advance of the clock between two readings.
const LONGEST_STEP: Duration = Duration::from_secs(5);

impl SteadyClock {
    /// Starts the clock at zero.
    pub fn start() -> Self {
        Self { last: Instant::now(), passed: Duration::ZERO }
    }

    /// Returns the current time.
    pub fn now(&mut self) -> Time {
        let instant = Instant::now();
        self.passed += instant.saturating_duration_since(self.last).min(LONGEST_STEP);
        self.last = instant;
        Time::default().after(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn a_wait_ends_with_the_value_or_the_deadline() {
        assert_eq!(block_until(Instant::now(), ready(3)), Some(3));
        let begun = Instant::now();
        assert_eq!(block_until(begun + Duration::from_millis(30), pending::<()>()), None);
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn the_clock_advances_and_never_jumps() {
        let mut clock = SteadyClock::start();
        let first = clock.now();
        clock.last -= Duration::from_secs(600);
        let second = clock.now();
        assert!(second.since(first) >= LONGEST_STEP && second.since(first) < 2 * LONGEST_STEP);
    }
}
