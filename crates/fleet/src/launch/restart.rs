//! When to restart a worker, and when to give up. Pure: the time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::task::Time;

/// Back-off and crash budget of a [`Supervisor`](crate::Supervisor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// A worker that ends sooner has crashed, however it ended. Default 60 s.
    pub shortest_life: Duration,
    /// Pause after the first crash. Doubles with every round of crashes. Default 2 s.
    pub first_pause: Duration,
    /// Maximum pause. Default 5 minutes.
    pub longest_pause: Duration,
    /// Crashes older than this are forgotten. Default 15 minutes.
    pub window: Duration,
    /// Crashes tolerated within the window, in addition to `per_worker` for each wanted worker. Default 5.
    pub budget: usize,
    /// Crashes tolerated within the window per wanted worker. Default 2.
    pub per_worker: usize,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            shortest_life: Duration::from_secs(60),
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(300),
            window: Duration::from_secs(900),
            budget: 5,
            per_worker: 2,
        }
    }
}

/// Tracks crashes and applies a [`RestartPolicy`] to them.
#[derive(Clone, Debug)]
pub(super) struct RestartTracker {
    policy: RestartPolicy,
    /// Times of recent crashes, oldest first.
    crashes: VecDeque<Time>,
    pause: Duration,
    /// No launch before this time.
    not_before: Time,
}

impl RestartTracker {
    pub fn new(policy: RestartPolicy) -> Self {
        let pause = policy.first_pause;
        Self { policy, crashes: VecDeque::new(), pause, not_before: Time::default() }
    }

    /// Records the end of a worker after `lifetime`. Returns true if that counts as a crash.
    pub fn worker_ended(&mut self, now: Time, lifetime: Duration) -> bool {
        if lifetime >= self.policy.shortest_life {
            self.pause = self.policy.first_pause;
            return false;
        }
        self.crashed(now);
        true
    }

    /// Records a crash, or a worker that could not be started. Forgets crashes that have left the window.
    pub fn crashed(&mut self, now: Time) {
        let window = self.policy.window;
        self.crashes.retain(|at| now.since(*at) <= window);
        self.crashes.push_back(now);
        self.postpone(now);
    }

    /// Postpones the next launch, each time for longer. Several failures at the same time count once.
    pub fn postpone(&mut self, now: Time) {
        if now >= self.not_before {
            self.not_before = now.after(self.pause);
            self.pause = (self.pause * 2).min(self.policy.longest_pause);
        }
    }

    /// Returns true if workers may be started now.
    pub fn may_launch(&self, now: Time) -> bool {
        now >= self.not_before
    }

    /// Returns true if the crash budget for `wanted` workers is exceeded.
    pub fn is_over_budget(&self, now: Time, wanted: usize) -> bool {
        let recent = self.crashes.iter().filter(|at| now.since(**at) <= self.policy.window).count();
        recent > self.policy.budget + self.policy.per_worker * wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    /// Lets all workers crash at once, every time. Returns the number of rounds until the budget is exceeded, and the
    /// time.
    fn crash_loop(wanted: usize) -> (usize, Time) {
        let mut tracker = RestartTracker::new(RestartPolicy::default());
        let mut now = Time(0);
        for round in 1.. {
            while !tracker.may_launch(now) {
                now = Time(now.0 + SECOND / 2);
            }
            for _ in 0..wanted {
                assert!(tracker.worker_ended(now, Duration::from_secs(1)));
            }
            if tracker.is_over_budget(now, wanted) {
                return (round, now);
            }
            assert!(round < 100, "never gives up");
        }
        unreachable!("the loop returns")
    }

    #[test]
    fn a_crash_loop_ends_within_minutes_for_any_number_of_workers() {
        for wanted in [1, 2, 8, 64, 128] {
            let (rounds, when) = crash_loop(wanted);
            assert!((3..=8).contains(&rounds), "{wanted} workers: {rounds} rounds");
            assert!(when.0 < 600 * SECOND, "{wanted} workers: after {} s", when.0 / SECOND);
        }
    }

    #[test]
    fn pauses_double_and_a_long_life_resets_them() {
        let mut tracker = RestartTracker::new(RestartPolicy::default());
        let mut now = Time(0);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            tracker.worker_ended(now, Duration::ZERO);
            let before = now;
            while !tracker.may_launch(now) {
                now = Time(now.0 + SECOND);
            }
            pauses.push(now.since(before).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!(!tracker.worker_ended(now, Duration::from_secs(3600)));
        assert!(tracker.may_launch(now), "a worker that lived long is replaced at once");
        tracker.worker_ended(now, Duration::ZERO);
        assert!(!tracker.may_launch(now) && tracker.may_launch(now.after(Duration::from_secs(2))));
    }

    #[test]
    fn occasional_crashes_are_tolerated_for_ever() {
        let mut tracker = RestartTracker::new(RestartPolicy::default());
        for hour in 0..1000 {
            let now = Time(hour * 3600 * SECOND);
            tracker.worker_ended(now, Duration::ZERO);
            tracker.worker_ended(now, Duration::from_secs(3000));
            assert!(!tracker.is_over_budget(now, 1));
        }
        assert!(tracker.crashes.len() <= 2, "old crashes are forgotten");
    }
}
