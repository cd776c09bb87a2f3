//! Estimates the remaining time of a run.

use std::time::{Duration, Instant};

/// Number of latest rounds to average over: the duration of a round changes while the model learns.
const ROUNDS: usize = 10;

/// Estimates the remaining time from the durations of finished rounds.
pub struct EtaEstimator {
    started: Instant,
    /// Time after which no round starts.
    limit: Option<Duration>,
    /// Duration of each finished round, in seconds.
    seconds: Vec<f64>,
}

impl EtaEstimator {
    /// Creates an estimator. `minutes` is the time budget of the run (0: unlimited), `worked` the seconds already spent,
    /// `seconds` the durations of the finished rounds.
    pub fn new(minutes: f64, worked: f64, seconds: Vec<f64>) -> Self {
        let limit = (minutes > 0.0).then(|| Duration::from_secs_f64((60.0 * minutes - worked).max(0.0)));
        Self { started: Instant::now(), limit, seconds }
    }

    /// Records the duration of a finished round.
    pub fn record(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }

    /// Returns the remaining time after `done` of `rounds` rounds as text; `None` if nothing is known yet.
    pub fn left(&self, done: u32, rounds: u32) -> Option<String> {
        let limit = self.limit.map(|limit| limit.saturating_sub(self.started.elapsed()).as_secs_f64());
        Some(duration_text(left(&self.seconds, limit, rounds.saturating_sub(done))?))
    }
}

/// Returns the seconds that `rounds` rounds take. A time limit cuts this to the limit plus the round in progress at that
/// moment.
fn left(seconds: &[f64], limit: Option<f64>, rounds: u32) -> Option<f64> {
    let last = &seconds[seconds.len().saturating_sub(ROUNDS)..];
    let mean = (!last.is_empty()).then(|| last.iter().sum::<f64>() / last.len() as f64);
    let all = mean.map(|mean| mean * f64::from(rounds));
    match (all, limit.map(|limit| limit + mean.unwrap_or(0.0))) {
        (Some(all), Some(limit)) => Some(all.min(limit)),
        (all, limit) => all.or(limit),
    }
}

/// Formats a duration: `40 s`, `12 min`, `3.5 h`, `2.1 days`.
pub fn duration_text(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 129_600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_from_the_latest_rounds_and_the_limit() {
        assert_eq!(left(&[], None, 5), None);
        assert_eq!(left(&[], Some(60.0), 5), Some(60.0));
        assert_eq!(left(&[2.0, 4.0], None, 5), Some(15.0));
        assert_eq!(left(&[2.0, 4.0], Some(4.0), 5), Some(7.0));
        let long = [&[100.0; 5][..], &[1.0; ROUNDS]].concat();
        assert_eq!(left(&long, None, 10), Some(10.0));
        assert_eq!(
            ["40 s", "12 min", "3.5 h", "2.1 days"],
            [40.0, 720.0, 12_600.0, 181_440.0].map(duration_text).each_ref().map(String::as_str)
        );
    }
}
