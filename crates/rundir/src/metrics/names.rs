//! Names and descriptions of a round's metrics.

use super::{Histogram, MetricValues};
use crate::rows::EvaluatedSet;
use sgs_selfplay::RoundMetrics;
use std::collections::BTreeMap;

macro_rules! names {
    ($($constant:ident = $name:literal: $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*

        /// Names and descriptions of the metrics that are measured. Those that are computed from the round's outcome are in
        /// [`RoundMetrics::DESCRIPTIONS`].
        pub const MEASURED: &[(&str, &str)] = &[$(($name, $meaning)),*];
    };
}

names! {
    TIME_ROUND = "time_round_s": "Wall time of the round, seconds; for an interrupted round, of the process that finished it.";
    TIME_SAMPLING = "time_sampling_s": "Wall time from the first task of the round to the last verdict or review, seconds. Sampling and checking overlap within it.";
    TIME_CONJECTURES = "time_conjectures_s": "Wall time in the sampler of this process that samples conjectures, seconds; absent where other processes sample.";
    TIME_ROLLOUTS = "time_rollouts_s": "Wall time in the sampler of this process that samples rollouts, seconds; absent where other processes sample.";
    TIME_REVIEWS = "time_reviews_s": "Wall time in the sampler of this process that samples reviews, seconds; absent where other processes sample.";
    TIME_DISPATCHER = "time_dispatcher_s": "Wall time in which the dispatcher read results, wrote them, submitted tasks or verified proofs of a quick system, seconds. It overlaps with sampling.";
    TIME_CHECKS = "time_checks_s": "Time in the checker, seconds, summed over its threads or workers.";
    TIME_UPDATE_SOLVER = "time_update_solver_s": "Wall time of the Solver's update, seconds.";
    TIME_UPDATE_CONJECTURER = "time_update_conjecturer_s": "Wall time of the Conjecturer's update, seconds.";
    TIME_MATCHING = "time_matching_s": "Wall time of embedding statements and matching conjectures to targets, under STP, seconds.";
    TIME_SNAPSHOT = "time_snapshot_s": "Wall time of copying the trained weights and optimizer states to the host, seconds; the copy is then written during the next round.";
    TIME_PUBLISH = "time_publish_s": "Wall time of writing the previous round's checkpoint and tables, seconds. It overlaps with the sampling and the updates.";
    TIME_PUBLISH_CHECKPOINT = "time_publish_checkpoint_s": "Part of time_publish_s: writing, checksumming and flushing the checkpoint, seconds. It overlaps with time_publish_tables_s.";
    TIME_PUBLISH_TABLES = "time_publish_tables_s": "Part of time_publish_s: writing, checksumming and flushing the tables, seconds.";
    TIME_PUBLISH_WAIT = "time_publish_wait_s": "Wall time in which the round only waited for the publication of the previous round, seconds.";
    SAMPLED_TOKENS_PER_S = "sampled_tokens_per_s": "Tokens sampled by all roles, divided by time_sampling_s.";
    TRAINED_TOKENS_PER_S = "trained_tokens_per_s": "Tokens of both updates, prompts included, divided by the time of both updates.";
    MEMORY_PEAK = "memory_peak_bytes": "Largest resident memory of the process so far, bytes.";
    RECORDS_REPEATED = "records_repeated": "Results that arrived again after they were journalled; the first one is kept.";
    SOLVER_LOSS = "solver_loss": "Mean loss over the steps of the Solver's update.";
    SOLVER_GRADIENT_NORM = "solver_gradient_norm": "Mean norm of the gradient before clipping over the steps of the Solver's update.";
    SOLVER_STEPS = "solver_steps": "Optimizer steps of the Solver's update.";
    SOLVER_LEARNING_RATE = "solver_learning_rate": "Learning rate of the last step of the Solver's update.";
    SOLVER_TRAINED_TOKENS = "solver_trained_tokens": "Sampled tokens that the Solver was trained on.";
    SOLVER_LOG_PROB_GAP = "solver_log_prob_gap": "Mean absolute difference between the trainer's and the sampler's log-probability of a token before the first step of the Solver's update, nats.";
    SOLVER_LOG_PROB_GAP_MAX = "solver_log_prob_gap_max": "Largest such difference, nats.";
    SOLVER_SHARE_CLIPPED = "solver_share_clipped": "Fraction of the tokens whose importance ratio was clipped, under CISPO.";
    SOLVER_KL = "solver_kl": "Estimated KL divergence of the Solver from the base model per token, nats, if it is measured.";
    CONJECTURER_LOSS = "conjecturer_loss": "Mean loss over the steps of the Conjecturer's update.";
    CONJECTURER_GRADIENT_NORM = "conjecturer_gradient_norm": "Mean norm of the gradient before clipping over the steps of the Conjecturer's update.";
    CONJECTURER_STEPS = "conjecturer_steps": "Optimizer steps of the Conjecturer's update.";
    CONJECTURER_LEARNING_RATE = "conjecturer_learning_rate": "Learning rate of the last step of the Conjecturer's update.";
    CONJECTURER_TRAINED_TOKENS = "conjecturer_trained_tokens": "Sampled tokens that the Conjecturer was trained on.";
    CONJECTURER_LOG_PROB_GAP = "conjecturer_log_prob_gap": "Like solver_log_prob_gap, for the Conjecturer.";
    CONJECTURER_LOG_PROB_GAP_MAX = "conjecturer_log_prob_gap_max": "Largest such difference, nats.";
}

/// Metrics of each rank, whose number follows a `/`. Rank 0 is the coordinator; idle time refers to the rank's device.
pub const OF_RANKS: [&str; 6] = [
    "rank_sampling_idle",
    "rank_update_idle",
    "rank_memory_peak_bytes",
    "rank_device_memory_peak_bytes",
    "rank_written_bytes",
    "rank_sent_bytes",
];

/// Prefixes of the names of an evaluation's metrics. A round's metrics do not have them.
pub const EVALUATION_GROUPS: [&str; 2] = [HELD_OUT, BASE_TARGETS];

/// Prefix of the metrics of held-out problems.
pub const HELD_OUT: &str = "held_out/";

/// Prefix of the metrics of the base model on the run's targets.
pub const BASE_TARGETS: &str = "base_targets/";

/// Returns the prefix of an evaluation's metrics for a set of problems.
pub fn evaluation_group(set: EvaluatedSet) -> &'static str {
    match set {
        EvaluatedSet::HeldOut => HELD_OUT,
        EvaluatedSet::Targets => BASE_TARGETS,
    }
}

impl MetricValues {
    /// Returns the metrics of a round's outcome: its scalars; pass@j as `target_pass_at_<j>` and `conjecture_pass_at_<j>`;
    /// defects as `proof_defects/<defect>` and so on; and its histograms.
    #[allow(clippy::expect_used, reason = "the number comes from a 32-bit one")]
    pub fn of_round(round: &RoundMetrics) -> Self {
        let number = u32::try_from(round.round).expect("invariant: rounds are numbered with 32 bits");
        let mut values = Self::new(number);
        for (name, value) in round.scalars() {
            values.set(name, value);
        }
        for (name, rates) in
            [("target_pass_at", &round.target_pass_at), ("conjecture_pass_at", &round.conjecture_pass_at)]
        {
            rates.iter().for_each(|(j, &rate)| values.set(format!("{name}_{j}"), rate));
        }
        values.set_defects("proof_defects", &round.proof_defects);
        values.set_defects("conjecture_defects", &round.conjecture_defects);
        values.set_defects("review_defects", &round.review_defects);
        let histograms = [
            ("target_solve_rates", &round.target_solve_rates, -0.5, 1.0),
            ("conjecture_solve_rates", &round.conjecture_solve_rates, -0.5, 1.0),
            ("guide_scores", &round.guide_scores, 0.0, 1.0),
            ("normalised_rewards", &round.normalised_rewards, 0.0, 0.1),
        ];
        for (name, counts, first, width) in histograms {
            if counts.iter().any(|&count| count > 0) {
                let counts = counts.iter().map(|&count| u64::from(count)).collect();
                values.set_histogram(name, Histogram::equal_width(first, width, counts));
            }
        }
        values
    }

    fn set_defects(&mut self, name: &str, defects: &BTreeMap<String, u64>) {
        defects.iter().for_each(|(defect, &count)| self.set(format!("{name}/{defect}"), count as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_every_metric_of_the_outcome_is_included() {
        let described = RoundMetrics::DESCRIPTIONS.iter().chain(MEASURED).map(|(name, _)| *name);
        let distinct: BTreeSet<_> = described.clone().collect();
        assert_eq!(distinct.len(), described.count());
        let round = RoundMetrics {
            round: 3,
            cumulative_solve_rate: Some(0.5),
            target_pass_at: [(8, 0.75)].into(),
            proof_defects: [("no-end".to_owned(), 4)].into(),
            target_solve_rates: vec![2, 0, 1],
            ..RoundMetrics::default()
        };
        let values = MetricValues::of_round(&round);
        assert_eq!(values.round, 3);
        assert_eq!(values.scalars["cumulative_solve_rate"], 0.5);
        assert_eq!(values.scalars["target_pass_at_8"], 0.75);
        assert_eq!(values.scalars["proof_defects/no-end"], 4.0);
        assert!(!values.scalars.contains_key("r_guide"), "a metric without a value is absent");
        let histogram = &values.histograms["target_solve_rates"];
        assert_eq!(
            (&histogram.edges[..], &histogram.counts[..]),
            (&[-0.5, 0.5, 1.5, 2.5][..], &[2, 0, 1][..])
        );
        assert_eq!(values.histograms.len(), 1);
    }
}
