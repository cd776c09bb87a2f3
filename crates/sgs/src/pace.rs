//! Progress of a run towards the first of its limits, and the time left.

use sgs_run::config::RunConfig;
use std::time::Instant;

/// Number of latest rounds to average over. It is small because the duration of a round changes while the model learns.
const ROUNDS: usize = 10;

/// The limits of a run and what it has done so far.
pub struct Pace {
    started: Instant,
    limits: Limits,
    /// Seconds of work in earlier sessions.
    worked: f64,
    /// Duration of each finished round, in seconds.
    seconds: Vec<f64>,
    /// The Solver's generations so far.
    generations: f64,
}

/// The limits of a run. A time or a number of generations of 0 means no limit.
#[derive(Clone, Copy)]
struct Limits {
    rounds: f64,
    seconds: f64,
    generations: f64,
}

impl Pace {
    /// Creates the pace of a run. `worked` is the time of earlier sessions, `seconds` has the durations of the finished
    /// rounds, and `generations` is their number of generations.
    pub fn new(config: &RunConfig, worked: f64, seconds: Vec<f64>, generations: f64) -> Self {
        let limits = Limits {
            rounds: f64::from(config.rounds),
            seconds: 60.0 * config.minutes,
            generations: config.generations as f64,
        };
        Self { started: Instant::now(), limits, worked, seconds, generations }
    }

    /// Records a finished round, with the generations of the run so far.
    pub fn record(&mut self, seconds: f64, generations: f64) {
        self.seconds.push(seconds);
        self.generations = generations;
    }

    /// Returns the fraction of the run that is done, of which `round` is the fraction of the current round.
    pub fn done(&self, round: f64) -> f64 {
        done(self.limits, self.seconds.len() as f64 + round, self.elapsed(), self.generations)
    }

    /// Returns the remaining time as text; `None` if nothing is known yet. Before the first round has ended, only the time
    /// limit is known.
    pub fn left(&self) -> Option<String> {
        let left = left(self.limits, &self.seconds, self.elapsed(), self.generations)?;
        let about = if self.seconds.is_empty() { "at most" } else { "about" };
        Some(format!("{about} {}", duration_text(left)))
    }

    fn elapsed(&self) -> f64 {
        self.worked + self.started.elapsed().as_secs_f64()
    }
}

fn done(limits: Limits, rounds: f64, elapsed: f64, generations: f64) -> f64 {
    let share = |done: f64, limit: f64| if limit > 0.0 { done / limit } else { 0.0 };
    let shares = [
        share(rounds, limits.rounds),
        share(elapsed, limits.seconds),
        share(generations, limits.generations),
    ];
    shares.into_iter().fold(0.0, f64::max).min(1.0)
}

/// Returns the seconds until the first limit. The round in progress when the time limit is reached is completed.
fn left(limits: Limits, seconds: &[f64], elapsed: f64, generations: f64) -> Option<f64> {
    let last = &seconds[seconds.len().saturating_sub(ROUNDS)..];
    let mean = (!last.is_empty()).then(|| last.iter().sum::<f64>() / last.len() as f64);
    let by_rounds = mean.map(|mean| {
        let mut rounds = (limits.rounds - seconds.len() as f64).max(0.0);
        let each = generations / seconds.len() as f64;
        if limits.generations > 0.0 && each > 0.0 {
            rounds = rounds.min(((limits.generations - generations) / each).max(0.0).ceil());
        }
        mean * rounds
    });
    let by_time =
        (limits.seconds > 0.0).then(|| (limits.seconds - elapsed).max(0.0) + mean.unwrap_or_default());
    match (by_rounds, by_time) {
        (Some(rounds), Some(time)) => Some(rounds.min(time)),
        (rounds, time) => rounds.or(time),
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
    fn before_the_first_round_the_time_limit_is_an_upper_bound() {
        let config = RunConfig { minutes: 6.0, rounds: 5, ..RunConfig::default() };
        let mut pace = Pace::new(&config, 0.0, Vec::new(), 0.0);
        assert_eq!(pace.left().as_deref(), Some("at most 6 min"));
        pace.record(2.0, 100.0);
        assert_eq!(pace.left().as_deref(), Some("about 8 s"));
    }

    #[test]
    fn the_first_limit_decides() {
        let limits = |rounds, seconds, generations| Limits { rounds, seconds, generations };
        let rounds_only = limits(5.0, 0.0, 0.0);
        assert_eq!(left(rounds_only, &[], 0.0, 0.0), None);
        assert_eq!(left(limits(5.0, 60.0, 0.0), &[], 0.0, 0.0), Some(60.0));
        assert_eq!(left(rounds_only, &[2.0, 4.0], 6.0, 200.0), Some(9.0));
        assert_eq!(left(limits(5.0, 10.0, 0.0), &[2.0, 4.0], 6.0, 200.0), Some(7.0));
        // Two rounds made 200 generations, and the next round reaches the limit.
        assert_eq!(left(limits(5.0, 0.0, 300.0), &[2.0, 4.0], 6.0, 200.0), Some(3.0));
        let long = [&[100.0; 5][..], &[1.0; ROUNDS]].concat();
        assert_eq!(left(limits(25.0, 0.0, 0.0), &long, 0.0, 0.0), Some(10.0));
        assert_eq!(done(rounds_only, 2.5, 6.0, 200.0), 0.5);
        assert_eq!(done(limits(5.0, 10.0, 0.0), 2.5, 6.0, 200.0), 0.6);
        assert_eq!(done(limits(5.0, 10.0, 250.0), 2.5, 6.0, 200.0), 0.8);
        assert_eq!(done(limits(5.0, 1.0, 0.0), 2.5, 6.0, 0.0), 1.0);
        assert_eq!(
            ["40 s", "12 min", "3.5 h", "2.1 days"],
            [40.0, 720.0, 12_600.0, 181_440.0].map(duration_text).each_ref().map(String::as_str)
        );
    }
}
