//! When to replace a worker, and when to stop trying. No clock, no processes: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::task::Time;

/// What counts as a crash and how many are too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashRules {
    /// A worker that ends sooner has crashed, however it ended. Default 60 s.
    pub shortest_life: Duration,
    /// Pause after the first crash; doubles with every round of crashes. Default 2 s.
    pub first_pause: Duration,
    /// Longest pause. Default 5 minutes.
    pub longest_pause: Duration,
    /// Crashes older than this are forgotten. Default 15 minutes.
    pub window: Duration,
    /// Crashes within the window that are borne, beyond `per_worker` for each wanted worker. Default 5.
    pub budget: usize,
    /// See `budget`. Default 2.
    pub per_worker: usize,
}

impl Default for CrashRules {
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

/// Back-off and crash budget.
#[derive(Clone, Debug)]
pub struct KeepAlive {
    rules: CrashRules,
    /// Crashes within the window, oldest first.
    crashes: VecDeque<Time>,
    pause: Duration,
    /// No launch before this moment.
    not_before: Time,
}

impl KeepAlive {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(rules: CrashRules) -> Self {
        let pause = rules.first_pause;
        Self { rules, crashes: VecDeque::new(), pause, not_before: Time::default() }
    }

    /// A worker ended that had lived so long. Gives whether that was a crash.
    pub fn ended(&mut self, now: Time, lived: Duration) -> bool {
        if lived >= self.rules.shortest_life {
            self.pause = self.rules.first_pause;
            return false;
        }
        self.crashed(now);
        true
    }

    /// A worker crashed, or could not be started at all.
    pub fn crashed(&mut self, now: Time) {
        self.crashes.push_back(now);
        self.postpone(now);
    }

    /// Something went wrong: no launch for a while, and for longer the next time. Troubles of one moment count once.
    pub fn postpone(&mut self, now: Time) {
        if now >= self.not_before {
            self.not_before = now.after(self.pause);
            self.pause = (self.pause * 2).min(self.rules.longest_pause);
        }
    }

    /// Whether workers may be started now.
    #[must_use]
    pub fn may_launch(&self, now: Time) -> bool {
        now >= self.not_before
    }

    /// Whether there were more crashes within the window than are borne for so many workers.
    pub fn has_given_up(&mut self, now: Time, wanted: usize) -> bool {
        while self.crashes.front().is_some_and(|at| now.since(*at) > self.rules.window) {
            self.crashes.pop_front();
        }
        self.crashes.len() > self.rules.budget + self.rules.per_worker * wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    /// Workers that crash at once, all of them, every time: rounds until the budget is spent, and when.
    fn crash_loop(wanted: usize) -> (usize, Time) {
        let mut keep = KeepAlive::new(CrashRules::default());
        let mut now = Time(0);
        for round in 1.. {
            while !keep.may_launch(now) {
                now = Time(now.0 + SECOND / 2);
            }
            for _ in 0..wanted {
                assert!(keep.ended(now, Duration::from_secs(1)));
            }
            if keep.has_given_up(now, wanted) {
                return (round, now);
            }
            assert!(round < 100, "never gives up");
        }
        unreachable!("the loop returns")
    }

    #[test]
    fn crash_loops_are_given_up_in_minutes_whatever_their_number() {
        for wanted in [1, 2, 8, 64, 128] {
            let (rounds, when) = crash_loop(wanted);
            assert!((3..=8).contains(&rounds), "{wanted} workers: {rounds} rounds");
            assert!(when.0 < 600 * SECOND, "{wanted} workers: after {} s", when.0 / SECOND);
        }
    }

    #[test]
    fn pauses_double_and_a_long_life_resets_them() {
        let mut keep = KeepAlive::new(CrashRules::default());
        let mut now = Time(0);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            keep.ended(now, Duration::ZERO);
            let before = now;
            while !keep.may_launch(now) {
                now = Time(now.0 + SECOND);
            }
            pauses.push(now.since(before).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!(!keep.ended(now, Duration::from_secs(3600)));
        assert!(keep.may_launch(now), "who lived long is replaced at once");
        keep.ended(now, Duration::ZERO);
        assert!(!keep.may_launch(now) && keep.may_launch(now.after(Duration::from_secs(2))));
    }

    #[test]
    fn a_death_now_and_then_is_borne_for_ever() {
        let mut keep = KeepAlive::new(CrashRules::default());
        for hour in 0..1000 {
            let now = Time(hour * 3600 * SECOND);
            keep.ended(now, Duration::ZERO);
            keep.ended(now, Duration::from_secs(3000));
            assert!(!keep.has_given_up(now, 1));
        }
    }
}
