//! How long to wait before a request is sent again.

use std::time::{Duration, SystemTime};

/// Shortest and longest pause of our own choosing.
const OWN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Longest pause that a server may ask for.
const ASKED: Duration = Duration::from_secs(300);

/// Pauses that double, each with jitter, so that a hundred threads do not come back in the same instant.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    random: fastrand::Rng,
}

impl Pauses {
    pub fn new(seed: u64) -> Self {
        Self { next: OWN.0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Between half of the current pause and all of it, but no shorter than what the server asked for (to which up to
    /// half a second is added, because everybody was asked for the same).
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let own = self.next.mul_f64(0.5 + self.random.f64() / 2.0);
        self.next = (self.next * 2).min(OWN.1);
        let asked = asked.map(|a| a.min(ASKED) + Duration::from_millis(self.random.u64(0..500)));
        asked.map_or(own, |asked| asked.max(own))
    }
}

/// The pause that a `retry-after` header asks for: a number of seconds, or a date.
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let mut pauses = Pauses::new(1);
        let all: Vec<Duration> = (0..12).map(|_| pauses.next(None)).collect();
        assert!(all[0] >= OWN.0 / 2 && all[0] <= OWN.0);
        assert!(all[3] > all[0] && all.iter().all(|p| *p <= OWN.1), "{all:?}");
        assert!(all[11] >= OWN.1 / 2);
        let other = Pauses::new(2).next(None);
        assert_ne!(other, all[0], "two threads do not come back together");
    }

    #[test]
    fn a_server_may_ask_for_more_but_not_for_ever() {
        let mut pauses = Pauses::new(1);
        let asked = pauses.next(Some(Duration::from_secs(7)));
        assert!(asked >= Duration::from_secs(7) && asked < Duration::from_millis(7500));
        assert!(pauses.next(Some(Duration::from_secs(86400))) <= ASKED + Duration::from_millis(500));
    }

    #[test]
    fn both_forms_of_the_header_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after(" 12", now), Some(Duration::from_secs(12)));
        assert_eq!(retry_after("0.5", now), Some(Duration::from_millis(500)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:30 GMT", now), Some(Duration::ZERO), "it has passed");
        for nonsense in ["", "soon", "-1", "NaN", "1e300"] {
            assert_eq!(retry_after(nonsense, now), None, "{nonsense}");
        }
    }
}
