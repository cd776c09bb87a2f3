//! Protection against replayed requests.
//!
//! A request is signed over a challenge of the service and a nonce of the client. Every reply carries the current
//! challenge. The service accepts a nonce once per challenge. It issues a new challenge every minute, or sooner after many
//! requests, and accepts the last two, so that requests in flight stay valid. A client with an older challenge is rejected,
//! finds the current one in the reply, and signs again. So nothing depends on the clients' clocks, and memory is bounded.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ring::hmac;

use crate::signing::{self, Nonce};
use crate::token::TokenError;

/// A new challenge is issued after this time.
const LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of requests per challenge. Each takes 16 bytes and the overhead of a set.
const MAX_REQUESTS: usize = 1 << 18;

/// Issues challenges and remembers the nonces used with them.
#[derive(Debug)]
pub(crate) struct ReplayGuard {
    secret: hmac::Key,
    number: u64,
    since: Instant,
    max_requests: usize,
    current: ChallengeWindow,
    previous: Option<ChallengeWindow>,
}

#[derive(Debug)]
struct ChallengeWindow {
    challenge: Nonce,
    seen: HashSet<Nonce>,
}

impl ChallengeWindow {
    fn new(secret: &hmac::Key, number: u64) -> Self {
        let mut challenge = Nonce::default();
        let sum = hmac::sign(secret, &number.to_be_bytes());
        challenge.iter_mut().zip(sum.as_ref()).for_each(|(to, from)| *to = *from);
        Self { challenge, seen: HashSet::new() }
    }
}

impl ReplayGuard {
    /// Creates a guard with unpredictable challenges.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes.
    pub(crate) fn new(now: Instant) -> Result<Self, TokenError> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &[signing::random()?, signing::random()?].concat());
        let current = ChallengeWindow::new(&secret, 0);
        Ok(Self { secret, number: 0, since: now, max_requests: MAX_REQUESTS, current, previous: None })
    }

    /// Returns the challenge for the next requests.
    pub(crate) fn challenge(&mut self, now: Instant) -> Nonce {
        self.rotate(now);
        self.current.challenge
    }

    /// Returns true, once, if a request with this nonce may use this challenge.
    pub(crate) fn admits(&mut self, challenge: Nonce, nonce: Nonce, now: Instant) -> bool {
        self.rotate(now);
        let windows = [Some(&mut self.current), self.previous.as_mut()];
        let window = windows.into_iter().flatten().find(|window| window.challenge == challenge);
        window.is_some_and(|window| window.seen.insert(nonce))
    }

    fn rotate(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < LIFETIME && self.current.seen.len() < self.max_requests {
            return;
        }
        self.number += 1;
        let next = ChallengeWindow::new(&self.secret, self.number);
        let last = std::mem::replace(&mut self.current, next);
        // After a long time without requests, none can be in flight.
        self.previous = (age < 2 * LIFETIME).then_some(last);
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
    fn a_nonce_is_accepted_once_while_its_challenge_is_valid() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut guard = ReplayGuard::new(start).expect("random");
        let first = guard.challenge(at(0));
        assert!(guard.admits(first, nonce(1), at(1)));
        assert!(!guard.admits(first, nonce(1), at(2)), "a replay");
        assert!(!guard.admits(nonce(0), nonce(2), at(2)), "an unknown challenge");
        let second = guard.challenge(at(61));
        assert_ne!(first, second);
        assert!(guard.admits(first, nonce(3), at(62)), "a request in flight");
        assert!(!guard.admits(first, nonce(1), at(62)), "a replay under the previous challenge");
        assert!(guard.admits(second, nonce(1), at(62)), "the same nonce under another challenge");
        let third = guard.challenge(at(130));
        assert!(!guard.admits(first, nonce(4), at(131)), "a recorded request that was held back");
        assert!(
            !guard.admits(third, nonce(5), at(3731)),
            "a recorded request after an hour without requests"
        );
        let mut other = ReplayGuard::new(start).expect("random");
        assert!(!other.admits(first, nonce(6), at(0)), "a request to another coordinator");
    }

    #[test]
    fn the_number_of_remembered_nonces_is_bounded() {
        let now = Instant::now();
        let mut guard = ReplayGuard { max_requests: 100, ..ReplayGuard::new(now).expect("random") };
        let first = guard.challenge(now);
        for number in 0..1000 {
            let challenge = guard.challenge(now);
            assert!(guard.admits(challenge, nonce(number), now));
            let remembered = guard.current.seen.len() + guard.previous.as_ref().map_or(0, |w| w.seen.len());
            assert!(remembered <= 200, "{remembered}");
        }
        assert!(
            !guard.admits(first, nonce(0), now),
            "the first nonce is forgotten together with its challenge"
        );
    }
}
