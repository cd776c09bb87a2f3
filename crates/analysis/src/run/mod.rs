//! A run as plain data, which [`read_run`] reads from the run's directory.

mod columns;
mod display;
mod evaluations;
mod reader;
mod table_rows;

pub use columns::ProofText;
pub use display::StatementDisplay;
pub use evaluations::EvaluationData;
pub use reader::{Display, RunReader, read_metrics, read_results, read_run};

use crate::baseline::Baseline;
use crate::fit::CurvePoint;
use sgs_rundir::MetricValues;
use sgs_rundir::metrics::names;
use sgs_selfplay::{Method, Role};

/// The data of a run that figures and reports need.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    /// Name in legends and tables.
    pub name: String,
    /// The method, if the configuration names one.
    pub method: Option<Method>,
    /// The user's name for the method, if the configuration has one.
    pub label: Option<String>,
    /// The size (`metamath-quick`, …), if the configuration names one.
    pub size: Option<String>,
    /// The seed, if the configuration names one.
    pub seed: Option<u64>,
    /// Version of the program that created the run.
    pub version: Option<String>,
    /// The effective configuration as TOML.
    pub config: String,
    /// The measured curve of the base model, if there is one for this configuration.
    pub baseline: Option<Baseline>,
    /// Why the run ended, if it has ended.
    pub ended: Option<String>,
    /// Metrics of the published rounds in ascending order.
    pub rounds: Vec<MetricValues>,
    /// Evaluations in ascending order.
    pub evaluations: Vec<EvaluationData>,
    /// The targets.
    pub targets: Vec<TargetHistory>,
    /// Counts of the reviewed conjectures.
    pub reviews: ReviewCounts,
    /// Examples of conjectures, in order of rounds.
    pub shown_conjectures: Vec<ShownConjecture>,
    /// Solved targets with a proof, latest first.
    pub solved: Vec<SolvedExample>,
    /// Limitations: files that are missing or damaged, and data that were left out.
    pub notes: Vec<String>,
    /// Those of the notes that are about damaged files.
    pub damages: Vec<String>,
}

impl RunData {
    /// Returns a limit of the run (`rounds`, `minutes` or `generations`) if the configuration sets it.
    pub fn limit(&self, key: &str) -> Option<f64> {
        let config: toml::Table = toml::from_str(&self.config).ok()?;
        let limit = config.get(key)?;
        limit.as_float().or_else(|| limit.as_integer().map(|n| n as f64)).filter(|limit| *limit > 0.0)
    }

    /// Returns whether the configuration has a Guide; `None` if it does not say.
    pub fn has_guide(&self) -> Option<bool> {
        let config: toml::Table = toml::from_str(&self.config).ok()?;
        config.get("algorithm")?.get("guide")?.get("on")?.as_bool()
    }
}

/// Numbers of conjectures in all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewCounts {
    /// Conjectures with a score of the Guide.
    pub reviewed: u64,
    /// Those of them whose R_solve is positive.
    pub rewarded: u64,
    /// Those of the rewarded ones that the Guide scored 0.
    pub removed: u64,
}

/// A target over all rounds.
#[derive(Clone, Debug, Default)]
pub struct TargetHistory {
    /// Name of the target.
    pub id: String,
    /// Its statement for display.
    pub statement: String,
    /// The first round with a proof.
    pub solved_round: Option<u32>,
    /// The rounds that sampled it, in ascending order.
    pub rounds: Vec<TargetRound>,
}

/// A target in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetRound {
    /// The round.
    pub round: u32,
    /// Rollouts with a verdict.
    pub judged: u32,
    /// Rollouts with a proof.
    pub proved: u32,
}

/// A conjecture to display.
#[derive(Clone, Debug, Default)]
pub struct ShownConjecture {
    /// Its round.
    pub round: u32,
    /// The target that it was invented for.
    pub target: String,
    /// The target's statement.
    pub target_statement: String,
    /// Its statement, or the completion if it contains no statement.
    pub statement: String,
    /// `accepted`, `duplicate`, `refused`, `malformed` or `lost`.
    pub status: String,
    /// Solve rate, 0 to 1.
    pub solve_rate: Option<f64>,
    /// Relevance, redundancy and complexity, if it was reviewed.
    pub review: Option<[f64; 3]>,
    /// The Guide's completion.
    pub review_text: String,
    /// R_solve, 0 to 1.
    pub r_solve: Option<f64>,
    /// R_guide, 0 to 8.
    pub r_guide: Option<f64>,
    /// R_synth, 0 to 8.
    pub r_synth: Option<f64>,
}

/// A target and its first proof.
#[derive(Clone, Debug, Default)]
pub struct SolvedExample {
    /// The round that solved it.
    pub round: u32,
    /// Name of the target.
    pub id: String,
    /// Its statement.
    pub statement: String,
    /// The proof for display.
    pub proof: String,
    /// Rollouts with a proof and with a verdict in that round.
    pub tally: (u32, u32),
}

/// Names of metrics that several figures or commands use.
pub mod metric {
    /// Number of generations, the x axis of scaling plots.
    pub const GENERATIONS: &str = "generations";
    /// Solved targets / targets.
    pub const CUMULATIVE: &str = "cumulative_solve_rate";
    /// Number of targets.
    pub const TARGETS: &str = "targets";
    /// Number of targets proved in any round.
    pub const SOLVED_EVER: &str = "targets_solved_ever";
    /// pass@1 on targets.
    pub const TARGET_RATE: &str = "target_solve_rate";
    /// pass@k on targets.
    pub const TARGET_SHARE: &str = "target_share_solved";
    /// Mean solve rate of conjectures.
    pub const CONJECTURE_RATE: &str = "conjecture_solve_rate";
    /// Number of conjectures that became problems.
    pub const CONJECTURES_ACCEPTED: &str = "conjectures_accepted";
    /// Number of conjectures that were proved.
    pub const CONJECTURES_SOLVED: &str = "conjectures_solved";
    /// Number of conjectures that the Solver is trained on.
    pub const TRAINED: &str = "conjectures_trained_by_solver";
    /// Mean R_guide.
    pub const R_GUIDE: &str = "r_guide";
    /// Mean R_synth.
    pub const R_SYNTH: &str = "r_synth";
    /// Mean entropy per Solver token in nats.
    pub const SOLVER_ENTROPY: &str = "solver_entropy";
    /// Mean entropy per Conjecturer token in nats.
    pub const CONJECTURER_ENTROPY: &str = "conjecturer_entropy";
    /// Fraction of conjectures without a well-formed statement.
    pub const CONJECTURE_MALFORMED: &str = "conjecture_share_malformed";
    /// Fraction of accepted conjectures that are padded.
    pub const CONJECTURE_PADDED: &str = "conjecture_share_padded";
}

impl RunData {
    /// Returns a round's number by name. The stored name may have a prefix (`data/generations` for `generations`), as in older
    /// runs.
    pub fn value(round: &MetricValues, name: &str) -> Option<f64> {
        let exact = round.scalars.get(name).copied();
        exact
            .or_else(|| {
                let below = |key: &String| key.strip_suffix(name).is_some_and(|rest| rest.ends_with('/'));
                round.scalars.iter().find(|(key, _)| below(key)).map(|(_, v)| *v)
            })
            .filter(|v| v.is_finite())
    }

    /// Returns a number over generations. Rounds without it, or without generations, are omitted.
    pub fn series(&self, name: &str) -> Vec<(f64, f64)> {
        self.rounds
            .iter()
            .filter_map(|r| Some((Self::value(r, metric::GENERATIONS)?, Self::value(r, name)?)))
            .collect()
    }

    /// Returns a number over generations for a curve. Between two rounds that do not follow each other, because those between
    /// them are missing or lack the number, is a point without a value, which interrupts the curve.
    pub(crate) fn plotted(&self, name: &str) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut before = None;
        for round in &self.rounds {
            let of = |name| Self::value(round, name);
            let (Some(x), Some(y)) = (of(metric::GENERATIONS), of(name)) else { continue };
            if let Some((number, last)) = before.replace((round.round, x))
                && round.round > number + 1
            {
                points.push((0.5 * (last + x), f64::NAN));
            }
            points.push((x, y));
        }
        points
    }

    /// Returns whether the Solver has attempted conjectures.
    pub fn has_conjectures(&self) -> bool {
        self.by_round(metric::CONJECTURES_ACCEPTED).iter().any(|(_, n)| *n > 0.0)
    }

    /// Returns a number over rounds.
    pub fn by_round(&self, name: &str) -> Vec<(f64, f64)> {
        self.rounds.iter().filter_map(|r| Some((f64::from(r.round), Self::value(r, name)?))).collect()
    }

    /// Returns the last value of a number.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.rounds.iter().rev().find_map(|r| Self::value(r, name))
    }

    /// Returns the cumulative solve rate over generations.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let points = self.series(metric::CUMULATIVE).into_iter();
        points.map(|(generations, rate)| CurvePoint { generations, rate }).collect()
    }

    /// Returns the seconds from the start of the run to the end of each round, by generations. They are sums of the rounds'
    /// durations, which exclude pauses, if every round has one, and otherwise times of publication since the first round.
    pub fn clock(&self) -> Vec<(f64, f64)> {
        let durations: Option<Vec<f64>> = self.rounds.iter().map(round_seconds).collect();
        let start = self.rounds.first().map_or(0.0, |r| r.unix_time);
        let mut total = 0.0;
        let point = |(i, round): (usize, &MetricValues)| {
            total += durations.as_ref().map_or(0.0, |seconds| seconds[i]);
            let elapsed = if durations.is_some() { total } else { round.unix_time - start };
            Some((Self::value(round, metric::GENERATIONS)?, elapsed))
        };
        self.rounds.iter().enumerate().filter_map(point).collect()
    }

    /// Returns the tokens that all roles have sampled by the end of each round, as pairs of round and tokens.
    pub fn sampled_tokens(&self) -> Vec<(u32, f64)> {
        let tokens = |round: &MetricValues| -> f64 {
            let roles = [Role::Solver, Role::Conjecturer, Role::Guide];
            roles.iter().filter_map(|role| Self::value(round, &format!("{}_tokens", role.as_str()))).sum()
        };
        let mut total = 0.0;
        let add = |round: &MetricValues| {
            total += tokens(round);
            (round.round, total)
        };
        self.rounds.iter().map(add).collect()
    }

    /// Returns whether the run has no rounds.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }
}

/// Returns the wall time of a round in seconds.
pub(crate) fn round_seconds(round: &MetricValues) -> Option<f64> {
    RunData::value(round, names::TIME_ROUND)
}

/// Names of the stages that a round's wall time consists of.
pub(crate) const STAGES: [&str; 7] = [
    "sampling conjectures",
    "sampling rollouts",
    "sampling reviews",
    "rest of sampling",
    "Solver's update",
    "Conjecturer's update",
    "everything else",
];

/// Returns the wall time of each of [`STAGES`] in seconds, or `None` if none is measured. They add up to that of the round.
/// The roles are sampled at the same time, so the time of the sampling stage is divided among them in proportion to the time
/// that each spent in the sampler.
pub(crate) fn stage_seconds(round: &MetricValues) -> Option<[f64; 7]> {
    let of = |name: &str| RunData::value(round, name);
    let roles = [names::TIME_CONJECTURES, names::TIME_ROLLOUTS, names::TIME_REVIEWS].map(of);
    let later = [names::TIME_UPDATE_SOLVER, names::TIME_UPDATE_CONJECTURER].map(of);
    let (sampling, whole) = (of(names::TIME_SAMPLING), round_seconds(round));
    if roles.iter().chain(&later).chain([&sampling, &whole]).all(Option::is_none) {
        return None;
    }
    let in_sampler = roles.iter().flatten().sum::<f64>();
    let sampling = sampling.unwrap_or(in_sampler);
    let share = if in_sampler > sampling { sampling / in_sampler } else { 1.0 };
    let [conjectures, rollouts, reviews] = roles.map(|role| share * role.unwrap_or(0.0));
    let [solver, conjecturer] = later.map(|update| update.unwrap_or(0.0));
    let rest_of_sampling = (sampling - in_sampler).max(0.0);
    let known = sampling + solver + conjecturer;
    let rest = (whole.unwrap_or(known) - known).max(0.0);
    Some([conjectures, rollouts, reviews, rest_of_sampling, solver, conjecturer, rest])
}

/// Returns the wall time of each of `STAGES` in all rounds of a run, in seconds.
pub fn stage_totals(run: &RunData) -> [f64; 7] {
    let times: Vec<[f64; 7]> = run.rounds.iter().filter_map(stage_seconds).collect();
    std::array::from_fn(|stage| times.iter().map(|time| time[stage]).sum())
}

impl RunData {
    /// Returns the name of the run's method in legends, if the method is known.
    pub fn method_label(&self) -> Option<&str> {
        let own = self.method?.label();
        Some(self.label.as_deref().unwrap_or(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_that_overlap_add_up_to_the_wall_time_of_the_round() {
        let mut round = MetricValues::new(0);
        for (name, seconds) in [
            (names::TIME_CONJECTURES, 30.0),
            (names::TIME_ROLLOUTS, 45.0),
            (names::TIME_REVIEWS, 15.0),
            (names::TIME_SAMPLING, 60.0),
            (names::TIME_UPDATE_SOLVER, 5.0),
            (names::TIME_ROUND, 70.0),
        ] {
            round.set(name, seconds);
        }
        assert_eq!(stage_seconds(&round), Some([20.0, 30.0, 10.0, 0.0, 5.0, 0.0, 5.0]));
        round.set(names::TIME_SAMPLING, 100.0);
        round.set(names::TIME_ROUND, 110.0);
        assert_eq!(stage_seconds(&round), Some([30.0, 45.0, 15.0, 10.0, 5.0, 0.0, 5.0]));
        let run = RunData { rounds: vec![round.clone(), round], ..RunData::default() };
        assert_eq!(stage_totals(&run).iter().sum::<f64>(), 220.0);
        assert_eq!(stage_seconds(&MetricValues::new(0)), None);
    }
}
