//! That a signed request is new: what was recorded and is sent again is refused.
//!
//! Requests are signed over a challenge of the service, which every answer tells, and over a nonce of the client. The
//! service takes a nonce once under a challenge, and gives another challenge each minute, sooner if many have come. It
//! takes the last two, so that what is on the way is not refused; who comes with an older one is told the present one and
//! asks again. So nothing depends on a client's clock, and what is remembered has a bound.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ring::hmac;

use crate::proof::{self, Nonce};
use crate::token::TokenError;

/// A challenge is given out for so long.
const LIFE: Duration = Duration::from_secs(60);
/// Most requests under one challenge: 16 bytes, and what a set adds, are remembered of each.
const MOST: usize = 1 << 18;

/// Challenges, and the nonces that came under those that are taken.
#[derive(Debug)]
pub(crate) struct Freshness {
    secret: hmac::Key,
    number: u64,
    since: Instant,
    most: usize,
    current: Window,
    previous: Option<Window>,
}

#[derive(Debug)]
struct Window {
    challenge: Nonce,
    seen: HashSet<Nonce>,
}

impl Window {
    fn new(secret: &hmac::Key, number: u64) -> Self {
        let mut challenge = Nonce::default();
        let sum = hmac::sign(secret, &number.to_be_bytes());
        challenge.iter_mut().zip(sum.as_ref()).for_each(|(to, from)| *to = *from);
        Self { challenge, seen: HashSet::new() }
    }
}

impl Freshness {
    /// Begins with challenges that nobody has seen.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(now: Instant) -> Result<Self, TokenError> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &[proof::random()?, proof::random()?].concat());
        let current = Window::new(&secret, 0);
        Ok(Self { secret, number: 0, since: now, most: MOST, current, previous: None })
    }

    /// What the next requests are to be signed over.
    pub(crate) fn challenge(&mut self, now: Instant) -> Nonce {
        self.turn(now);
        self.current.challenge
    }

    /// Whether a request with this nonce may come under this challenge. It may once.
    pub(crate) fn admits(&mut self, challenge: Nonce, nonce: Nonce, now: Instant) -> bool {
        self.turn(now);
        let windows = [Some(&mut self.current), self.previous.as_mut()];
        let window = windows.into_iter().flatten().find(|window| window.challenge == challenge);
        window.is_some_and(|window| window.seen.insert(nonce))
    }

    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < LIFE && self.current.seen.len() < self.most {
            return;
        }
        self.number += 1;
        let next = Window::new(&self.secret, self.number);
        let last = std::mem::replace(&mut self.current, next);
        // Nobody has called for long: nothing is on the way.
        self.previous = (age < 2 * LIFE).then_some(last);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(number: u64) -> Nonce {
        u128::from(number).to_be_bytes()
    }

    #[test]
    fn a_nonce_is_taken_once_while_its_challenge_is_young() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut fresh = Freshness::new(start).expect("random");
        let first = fresh.challenge(at(0));
        assert!(fresh.admits(first, nonce(1), at(1)));
        assert!(!fresh.admits(first, nonce(1), at(2)), "a replay");
        assert!(!fresh.admits(nonce(0), nonce(2), at(2)), "a challenge that never was");
        let second = fresh.challenge(at(61));
        assert_ne!(first, second);
        assert!(fresh.admits(first, nonce(3), at(62)), "on the way");
        assert!(!fresh.admits(first, nonce(1), at(62)), "a replay under the last challenge");
        assert!(fresh.admits(second, nonce(1), at(62)), "what was signed over another is another request");
        let third = fresh.challenge(at(130));
        assert!(!fresh.admits(first, nonce(4), at(131)), "recorded and held back");
        // Nobody calls for an hour; then somebody sends what was never delivered.
        assert!(!fresh.admits(third, nonce(5), at(3731)));
        // Another coordinator takes nothing of this one's.
        let mut other = Freshness::new(start).expect("random");
        assert!(!other.admits(first, nonce(6), at(0)));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let now = Instant::now();
        let mut fresh = Freshness { most: 100, ..Freshness::new(now).expect("random") };
        let first = fresh.challenge(now);
        for number in 0..1000 {
            let challenge = fresh.challenge(now);
            assert!(fresh.admits(challenge, nonce(number), now));
            let remembered = fresh.current.seen.len() + fresh.previous.as_ref().map_or(0, |w| w.seen.len());
            assert!(remembered <= 200, "{remembered}");
        }
        assert!(!fresh.admits(first, nonce(0), now), "the first is forgotten, and so is its challenge");
    }
}
