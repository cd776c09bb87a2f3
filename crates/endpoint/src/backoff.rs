//! Delays between the attempts of a request.

use std::time::{Duration, SystemTime};

/// Minimum and maximum delay, unless the server requests a longer one.
const DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Maximum delay that a server may request.
const MAX_ASKED: Duration = Duration::from_secs(300);

/// Exponential back-off with jitter, which keeps many threads from retrying at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Self { next: DELAY.0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns a delay between half of the current one and all of it, and doubles the current one. The delay is at least the one
    /// requested by the server, plus up to half a second, because all clients get the same request.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let own = self.next.mul_f64(0.5 + self.random.f64() / 2.0);
        self.next = (self.next * 2).min(DELAY.1);
        let asked = asked.map(|a| a.min(MAX_ASKED) + Duration::from_millis(self.random.u64(0..500)));
        asked.map_or(own, |asked| asked.max(own))
    }
}

/// Parses a `retry-after` header: a number of seconds, or a date.
pub(crate) fn retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(header).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_are_bounded() {
        let mut backoff = Backoff::new(1);
        let all: Vec<Duration> = (0..12).map(|_| backoff.next(None)).collect();
        assert!(all[0] >= DELAY.0 / 2 && all[0] <= DELAY.0);
        assert!(all[3] > all[0] && all.iter().all(|p| *p <= DELAY.1), "{all:?}");
        assert!(all[11] >= DELAY.1 / 2);
        let other = Backoff::new(2).next(None);
        assert_ne!(other, all[0], "two threads do not retry together");
    }

    #[test]
    fn the_delay_that_a_server_asks_for_is_bounded() {
        let mut backoff = Backoff::new(1);
        let asked = backoff.next(Some(Duration::from_secs(7)));
        assert!(asked >= Duration::from_secs(7) && asked < Duration::from_millis(7500));
        assert!(backoff.next(Some(Duration::from_secs(86400))) <= MAX_ASKED + Duration::from_millis(500));
    }

    #[test]
    fn both_formats_of_the_header_are_parsed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after(" 12", now), Some(Duration::from_secs(12)));
        assert_eq!(retry_after("0.5", now), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:30 GMT", now), Some(Duration::ZERO), "in the past");
        for nonsense in ["", "soon", "-1", "NaN", "1e300"] {
            assert_eq!(retry_after(nonsense, now), None, "{nonsense}");
        }
    }
}
