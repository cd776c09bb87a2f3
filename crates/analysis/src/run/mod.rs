//! A run as the analysis sees it: plain data, filled from a run's directory by [`read_run`] or by hand.

mod columns;
mod config_search;
mod evaluations;
mod inventions;
mod reader;

pub use evaluations::EvaluationData;
pub use inventions::{InventedRound, Inventions, Kind, Origin, Statement};
pub use reader::{Display, Identity, ReadError, ReadOptions, RunReader, read_run};

use crate::fit::CurvePoint;
use sgs_rundir::metrics::names;
use sgs_rundir::{Histogram, MetricValues};
use sgs_selfplay::{Features, Method};

/// Everything that figures and reports are made of.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    /// What the run is called in legends and tables.
    pub name: String,
    /// Its method, where the configuration names one.
    pub method: Option<Method>,
    /// Its size (`metamath-quick`, …), where the configuration names one.
    pub size: Option<String>,
    /// The seed of the run, where the configuration names one.
    pub seed: Option<u64>,
    /// Version of the program that made it.
    pub version: Option<String>,
    /// The whole effective configuration, TOML.
    pub config: String,
    /// Published rounds, ascending.
    pub rounds: Vec<MetricValues>,
    /// Evaluations, ascending.
    pub evaluations: Vec<EvaluationData>,
    pub targets: Vec<TargetHistory>,
    /// What was invented, and what the Guide made of it.
    pub inventions: Inventions,
    /// Conjectures of some rounds, in order of rounds.
    pub conjectures: Vec<ConjectureExample>,
    /// Targets with a proof, in the order in which they were solved.
    pub solved: Vec<SolvedExample>,
    /// What a reader must know: files that are missing or damaged, what was left out.
    pub notes: Vec<String>,
}

/// Numbers that are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub sum: f64,
    /// How many there are.
    pub count: u64,
}

impl Tally {
    /// Adds a number, if there is one.
    pub fn add(&mut self, number: Option<f64>) {
        if let Some(number) = number.filter(|n| n.is_finite()) {
            (self.sum, self.count) = (self.sum + number, self.count + 1);
        }
    }

    /// Their mean.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// One target over the rounds.
#[derive(Clone, Debug, Default)]
pub struct TargetHistory {
    pub id: String,
    /// Its statement, for people.
    pub statement: String,
    /// Features of the statement.
    pub features: Features,
    /// The first round with a proof.
    pub solved_round: Option<u32>,
    /// What happened in each round in which it took part, ascending.
    pub rounds: Vec<TargetRound>,
}

/// One target in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetRound {
    pub round: u32,
    /// Rollouts with a verdict.
    pub judged: u32,
    /// Rollouts with a proof.
    pub proved: u32,
    /// Whether a conjecture of this target was fit to train the Solver; `None` if none was asked for.
    pub conjecture: Option<bool>,
}

/// A conjecture worth showing.
#[derive(Clone, Debug, Default)]
pub struct ConjectureExample {
    /// The round that invented it.
    pub round: u32,
    /// The target for which it was invented.
    pub target: String,
    /// The target's statement.
    pub target_statement: String,
    /// The conjecture's statement, or the completion that holds none.
    pub statement: String,
    /// `accepted`, `duplicate`, `refused`, `malformed` or `lost`.
    pub status: String,
    /// Solve rate, 0 to 1.
    pub solve_rate: Option<f64>,
    /// Relevance, redundancy and complexity, where it was reviewed.
    pub review: Option<[f64; 3]>,
    /// What the Guide wrote.
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
    pub id: String,
    pub statement: String,
    /// The proof, for people.
    pub proof: String,
    /// Rollouts with a proof and with a verdict in that round.
    pub tally: (u32, u32),
}

/// Names of metrics that figures use.
pub mod metric {
    /// x axis of every scaling plot.
    pub const GENERATIONS: &str = "generations";
    /// Solved targets / targets.
    pub const CUMULATIVE: &str = "cumulative_solve_rate";
    /// Number of targets.
    pub const TARGETS: &str = "targets";
    /// Targets proved in any round.
    pub const SOLVED_EVER: &str = "targets_solved_ever";
    /// pass@1 on targets.
    pub const TARGET_RATE: &str = "target_solve_rate";
    /// pass@k on targets.
    pub const TARGET_SHARE: &str = "target_share_solved";
    /// Mean solve rate of conjectures.
    pub const CONJECTURE_RATE: &str = "conjecture_solve_rate";
    /// Conjectures that the Solver is trained on.
    pub const TRAINED: &str = "conjectures_trained_by_solver";
    /// Mean R_solve.
    pub const R_SOLVE: &str = "r_solve";
    /// Mean R_guide.
    pub const R_GUIDE: &str = "r_guide";
    /// Mean R_synth.
    pub const R_SYNTH: &str = "r_synth";
    /// Share of conjectures with a disjunctive conclusion.
    pub const CONJECTURE_DISJUNCTIVE: &str = "conjecture_share_disjunctive";
    /// Share of targets with a disjunctive conclusion.
    pub const TARGET_DISJUNCTIVE: &str = "target_share_disjunctive";
    /// Mean length of conjectures' conclusions.
    pub const CONJECTURE_CONCLUSION: &str = "conjecture_conclusion_length";
    /// Mean length of targets' conclusions.
    pub const TARGET_CONCLUSION: &str = "target_conclusion_length";
    /// Mean entropy per token of the Solver, nats.
    pub const SOLVER_ENTROPY: &str = "solver_entropy";
    /// Mean entropy per token of the Conjecturer, nats.
    pub const CONJECTURER_ENTROPY: &str = "conjecturer_entropy";
    /// Histogram of the targets' solve rates.
    pub const TARGET_RATES: &str = "target_solve_rates";
    /// Histogram of the conjectures' solve rates.
    pub const CONJECTURE_RATES: &str = "conjecture_solve_rates";
    /// Share of the rollouts without a readable proof.
    pub const PROOF_MALFORMED: &str = "proof_share_malformed";
    /// Share of the conjectures without a well-formed statement.
    pub const CONJECTURE_MALFORMED: &str = "conjecture_share_malformed";
    /// Share of the reviews without three scores.
    pub const REVIEW_MALFORMED: &str = "review_share_malformed";
    /// Share of the rollouts that the system lost.
    pub const INFRA: &str = "infra_share";
    /// Mean tokens of a rollout.
    pub const SOLVER_TOKENS: &str = "solver_tokens_mean";
    /// Mean tokens of a conjecture.
    pub const CONJECTURER_TOKENS: &str = "conjecturer_tokens_mean";
}

impl RunData {
    /// A number by name in one round. A name may stand below a prefix (`data/generations` for `generations`), as
    /// sinks and older runs write it.
    pub fn value(round: &MetricValues, name: &str) -> Option<f64> {
        let exact = round.scalars.get(name).copied();
        exact
            .or_else(|| {
                let below = |key: &String| key.strip_suffix(name).is_some_and(|rest| rest.ends_with('/'));
                round.scalars.iter().find(|(key, _)| below(key)).map(|(_, v)| *v)
            })
            .filter(|v| v.is_finite())
    }

    /// A histogram by name in one round, if it is well-formed.
    pub fn histogram<'a>(round: &'a MetricValues, name: &str) -> Option<&'a Histogram> {
        round.histograms.get(name).filter(|h| h.is_valid() && !h.counts.is_empty())
    }

    /// A number over generations; rounds without it, or without generations, are left out.
    pub fn series(&self, name: &str) -> Vec<(f64, f64)> {
        self.rounds
            .iter()
            .filter_map(|r| Some((Self::value(r, metric::GENERATIONS)?, Self::value(r, name)?)))
            .collect()
    }

    /// A number over rounds.
    pub fn by_round(&self, name: &str) -> Vec<(f64, f64)> {
        self.rounds.iter().filter_map(|r| Some((f64::from(r.round), Self::value(r, name)?))).collect()
    }

    /// The last value of a number.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.rounds.iter().rev().find_map(|r| Self::value(r, name))
    }

    /// The cumulative solve rate over generations.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let points = self.series(metric::CUMULATIVE).into_iter();
        points.map(|(generations, rate)| CurvePoint { generations, rate }).collect()
    }

    /// Seconds from the start of the run to the end of each round, by generations: the rounds' own durations where
    /// every round has one (so that pauses do not count), else the time of publication since the first round.
    pub fn clock(&self) -> Vec<(f64, f64)> {
        let durations: Option<Vec<f64>> = self.rounds.iter().map(round_seconds).collect();
        let start = self.rounds.first().map_or(0.0, |r| r.unix_time);
        let mut total = 0.0;
        let mut out = Vec::with_capacity(self.rounds.len());
        for (i, round) in self.rounds.iter().enumerate() {
            let elapsed = match durations.as_ref().and_then(|d| d.get(i)) {
                Some(seconds) => {
                    total += seconds;
                    total
                }
                None => round.unix_time - start,
            };
            if let Some(generations) = Self::value(round, metric::GENERATIONS) {
                out.push((generations, elapsed));
            }
        }
        out
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }
}

/// Wall time of a round in seconds.
pub(crate) fn round_seconds(round: &MetricValues) -> Option<f64> {
    RunData::value(round, names::TIME_ROUND)
}

/// Names of the parts that a round's wall time is made of.
pub(crate) const STAGES: [&str; 7] = [
    "sampling conjectures",
    "sampling rollouts",
    "sampling reviews",
    "rest of sampling",
    "Solver's update",
    "Conjecturer's update",
    "everything else",
];

/// Wall time of each of [`STAGES`] in a round, seconds; they add up to the round, as far as it measures them. `None`
/// if it measures nothing.
pub(crate) fn stage_seconds(round: &MetricValues) -> Option<[f64; 7]> {
    let of = |name: &str| RunData::value(round, name);
    let roles = [names::TIME_CONJECTURES, names::TIME_ROLLOUTS, names::TIME_REVIEWS].map(of);
    let later = [names::TIME_UPDATE_SOLVER, names::TIME_UPDATE_CONJECTURER].map(of);
    let (sampling, whole) = (of(names::TIME_SAMPLING), round_seconds(round));
    if roles.iter().chain(&later).chain([&sampling, &whole]).all(Option::is_none) {
        return None;
    }
    let [conjectures, rollouts, reviews] = roles.map(Option::unwrap_or_default);
    let [solver, conjecturer] = later.map(Option::unwrap_or_default);
    let sampled = conjectures + rollouts + reviews;
    let rest_of_sampling = (sampling.unwrap_or(sampled) - sampled).max(0.0);
    let known = sampled + rest_of_sampling + solver + conjecturer;
    let rest = (whole.unwrap_or(known) - known).max(0.0);
    Some([conjectures, rollouts, reviews, rest_of_sampling, solver, conjecturer, rest])
}

/// A method's name in legends.
pub fn method_label(method: Method) -> &'static str {
    match method {
        Method::Sgs => "SGS",
        Method::ReinforceHalf => "RL (REINFORCE-1/2)",
        Method::Reinforce => "RL (REINFORCE)",
        Method::ExpertIteration => "Expert iteration",
        Method::Cispo => "CISPO",
        Method::SgsNoGuide => "No Guide",
        Method::SgsLearnedGuide => "Learned Guide",
        Method::SgsFrozenConjecturer => "Frozen Conjecturer",
        Method::SgsNoConditioning => "No problem conditioning",
        Method::SgsCispo => "SGS with CISPO",
        Method::Stp => "STP",
        Method::SamplingOnly => "Parallel sampling",
    }
}
