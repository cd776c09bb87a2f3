//! The metrics of a round: those of its outcome, and those measured while it ran.

use super::publication::StatementFeatures;
use super::update_record::UpdateRecord;
use sgs_rundir::metrics::{MetricValues, names};
use sgs_selfplay::{RoundMetrics, RoundOutcome, RunState};
use std::time::Duration;

/// Returns the metrics of a round. `state` has absorbed its outcome; `repeated` counts results that reached the journal
/// more than once.
pub(crate) fn round_metrics(
    state: &RunState,
    outcome: &RoundOutcome,
    features: &StatementFeatures,
    kept: &UpdateRecord,
    repeated: u64,
    elapsed: Duration,
) -> MetricValues {
    let round = RoundMetrics::compute(outcome, state, |problem| features.of(problem));
    let mut metrics = MetricValues::of_round(&round);
    add_measured(&mut metrics, outcome, kept);
    metrics.set(names::RECORDS_REPEATED, repeated as f64);
    metrics.set(names::TIME_ROUND, elapsed.as_secs_f64());
    metrics
}

fn add_measured(metrics: &mut MetricValues, outcome: &RoundOutcome, kept: &UpdateRecord) {
    let t = &kept.times;
    metrics.set(names::TIME_SAMPLING, t.sampling);
    if t.sampler != [0.0; 3] {
        let [rollouts, conjectures, reviews] = t.sampler;
        metrics.set(names::TIME_ROLLOUTS, rollouts);
        metrics.set(names::TIME_CONJECTURES, conjectures);
        metrics.set(names::TIME_REVIEWS, reviews);
    }
    metrics.set(names::TIME_DISPATCHER, t.dispatcher);
    if kept.matching.is_some() {
        metrics.set(names::TIME_MATCHING, t.matching);
    }
    metrics.set(names::TIME_SNAPSHOT, t.snapshot);
    metrics.set(names::TIME_PUBLISH, t.publishing.all);
    metrics.set(names::TIME_PUBLISH_CHECKPOINT, t.publishing.checkpoint);
    metrics.set(names::TIME_PUBLISH_TABLES, t.publishing.tables);
    metrics.set(names::TIME_PUBLISH_WAIT, t.publish_wait);
    let micros = outcome.rollouts.iter().fold(0u64, |sum, r| sum.saturating_add(r.micros));
    metrics.set(names::TIME_CHECKS, micros as f64 / 1e6);
    if t.sampling > 0.0 {
        metrics.set(names::SAMPLED_TOKENS_PER_S, t.sampled_tokens as f64 / t.sampling);
    }
    if let Some(bytes) = sgs_base::host::peak_memory() {
        metrics.set(names::MEMORY_PEAK, bytes as f64);
    }
    for (rank, usage) in kept.update.ranks.iter().enumerate() {
        for (name, value) in names::OF_RANKS.iter().zip(usage) {
            value.iter().for_each(|value| metrics.set(format!("{name}/{rank}"), *value));
        }
    }
    let (mut tokens, mut seconds) = (0, 0.0);
    if let Some(r) = &kept.update.solver {
        (tokens, seconds) = (tokens + r.tokens, seconds + r.seconds);
        metrics.set(names::TIME_UPDATE_SOLVER, r.seconds);
        metrics.set(names::SOLVER_LOSS, r.loss);
        metrics.set(names::SOLVER_GRADIENT_NORM, r.gradient_norm);
        metrics.set(names::SOLVER_STEPS, r.steps as f64);
        metrics.set(names::SOLVER_LEARNING_RATE, r.learning_rate);
        metrics.set(names::SOLVER_TRAINED_TOKENS, r.trained_tokens as f64);
        metrics.set(names::SOLVER_LOG_PROB_GAP, r.log_prob_gap);
        metrics.set(names::SOLVER_LOG_PROB_GAP_MAX, r.log_prob_gap_max);
        metrics.set(names::SOLVER_SHARE_CLIPPED, r.clipped);
        if let Some(kl) = r.kl {
            metrics.set(names::SOLVER_KL, kl);
        }
    }
    if let Some(r) = &kept.update.conjecturer {
        (tokens, seconds) = (tokens + r.tokens, seconds + r.seconds);
        metrics.set(names::TIME_UPDATE_CONJECTURER, r.seconds);
        metrics.set(names::CONJECTURER_LOSS, r.loss);
        metrics.set(names::CONJECTURER_GRADIENT_NORM, r.gradient_norm);
        metrics.set(names::CONJECTURER_STEPS, r.steps as f64);
        metrics.set(names::CONJECTURER_LEARNING_RATE, r.learning_rate);
        metrics.set(names::CONJECTURER_TRAINED_TOKENS, r.trained_tokens as f64);
        metrics.set(names::CONJECTURER_LOG_PROB_GAP, r.log_prob_gap);
        metrics.set(names::CONJECTURER_LOG_PROB_GAP_MAX, r.log_prob_gap_max);
    }
    if seconds > 0.0 {
        metrics.set(names::TRAINED_TOKENS_PER_S, tokens as f64 / seconds);
    }
}
