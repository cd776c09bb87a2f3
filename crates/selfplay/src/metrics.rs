//! The metrics of a round that follow from its outcome, without clock or trainer.

use crate::data::{Features, FinishReason, Problem, SampleFacts, Verdict};
use crate::entropy::mean;
use crate::outcome::{
    ConjectureOutcome, ConjectureStatus, ProblemKind, ProblemOutcome, RefusalReason, RolloutOutcome,
    RoundOutcome,
};
use crate::rate::{pass_at_k, solve_rate_histogram};
use crate::reward::passes_threshold;
use crate::state::RunState;
use crate::store::fingerprint;
use crate::stp::Matching;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

type Count = u64;
type Value = Option<f64>;

/// A field of [`RoundMetrics`] that is a single number, if it has a value.
trait Scalar {
    fn scalar(&self) -> Option<f64>;
}

impl Scalar for Count {
    fn scalar(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Scalar for Value {
    fn scalar(&self) -> Option<f64> {
        *self
    }
}

macro_rules! round_metrics {
    ($($name:ident: $kind:ident = $meaning:literal;)*) => {
        /// The metrics of one round. A mean over nothing is `None`.
        ///
        /// All metrics depend only on the round's outcome and the state after it. Two runs with the same samples have the
        /// same metrics, regardless of interruptions.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct RoundMetrics {
            $(#[doc = $meaning] pub $name: $kind,)*
            /// pass@j on targets for j = 1, 2, 4, … and k: the mean of the unbiased estimates over judged targets.
            pub target_pass_at: BTreeMap<u32, f64>,
            /// pass@j on conjectures, computed in the same way.
            pub conjecture_pass_at: BTreeMap<u32, f64>,
            /// Number of targets by number of proved rollouts, 0 to k.
            pub target_solve_rates: Vec<u32>,
            /// Number of conjectures by number of proved rollouts, 0 to k.
            pub conjecture_solve_rates: Vec<u32>,
            /// Number of reviewed conjectures by R_guide, rounded down, 0 to 8.
            pub guide_scores: Vec<u32>,
            /// Number of conjectures by normalised reward, in ten bins from 0 to 1.
            pub normalised_rewards: Vec<u32>,
            /// Number of malformed proofs by defect.
            pub proof_defects: BTreeMap<String, u64>,
            /// Number of malformed conjectures by defect.
            pub conjecture_defects: BTreeMap<String, u64>,
            /// Number of malformed reviews by defect.
            pub review_defects: BTreeMap<String, u64>,
        }

        impl RoundMetrics {
            /// Names and descriptions of all scalar metrics, in order.
            pub const DESCRIPTIONS: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $meaning),)*];

            /// Returns the names and values of all scalar metrics that have a value, in order.
            pub fn scalars(&self) -> Vec<(&'static str, f64)> {
                let all = [$((stringify!($name), self.$name.scalar()),)*];
                all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
            }
        }
    };
}

round_metrics! {
    round: Count = "Number of the round, from 0.";
    epoch: Count = "Number of complete passes over the data set before this round.";
    generations: Count = "Rollouts of the Solver up to and including this round, over targets and conjectures.";
    generations_of_round: Count = "Rollouts of the Solver in this round.";
    conjecture_samples_total: Count = "Completions of the Conjecturer up to and including this round; the paper's code counts them as generations.";

    targets: Count = "Targets in the data set.";
    targets_in_batch: Count = "Targets in the round's batch.";
    targets_sampled: Count = "Targets of the batch that were sampled.";
    targets_solved: Count = "Sampled targets proved at least once in this round.";
    targets_newly_solved: Count = "Targets proved for the first time.";
    targets_solved_ever: Count = "Targets proved in any round.";
    cumulative_solve_rate: Value = "targets_solved_ever / targets.";
    target_solve_rate: Value = "Mean solve rate of the judged targets: pass@1.";
    target_share_solved: Value = "Share of the judged targets proved at least once in this round: pass@k.";

    conjectures_asked: Count = "Requested conjectures.";
    conjectures_malformed: Count = "Requested conjectures without a well-formed statement.";
    conjectures_duplicate: Count = "Conjectures equal to a target or an earlier conjecture of the round.";
    conjectures_known: Count = "Conjectures rejected because a theorem that precedes their context is equivalent.";
    conjectures_seen: Count = "Conjectures rejected because they were problems of an earlier round.";
    conjectures_lost: Count = "Conjectures lost because of a system failure.";
    conjectures_accepted: Count = "Conjectures that became problems.";
    conjectures_solved: Count = "Conjectures proved at least once.";
    conjectures_trivial: Count = "Conjectures that earn no reward because a proof was found that is too short.";
    conjectures_suitable: Count = "Conjectures proved at least once that are neither too easy nor trivial: R_solve is positive, or the solve rate is 1 and equals the threshold.";
    conjectures_trained_by_solver: Count = "Conjectures selected by the Solver's selection rule.";
    conjecture_threshold: Value = "Highest conjecture solve rate that does not count as too easy.";
    conjecture_solve_rate: Value = "Mean solve rate of the judged conjectures.";
    conjecture_share_solved: Value = "Share of the judged conjectures proved at least once.";
    conjecture_share_malformed: Value = "Share of the Conjecturer's completions without a well-formed statement.";
    conjecture_share_duplicate: Value = "Share of the Conjecturer's completions that are duplicates.";
    conjecture_share_known: Value = "Share of the Conjecturer's completions that are known.";
    conjecture_share_seen: Value = "Share of the Conjecturer's completions that were seen.";
    conjecture_share_trivial: Value = "conjectures_trivial / conjectures proved at least once.";
    conjecture_share_novel: Value = "Share of the Conjecturer's completions that are not malformed, duplicate or rejected.";
    conjecture_share_padded: Value = "Share of the accepted conjectures that are padded: at least two variables occur once, and more than in the target. Metamath only.";
    conjecture_proof_steps: Value = "Mean number of steps in the shortest proof of a proved conjecture.";
    r_solve: Value = "Mean R_solve of the judged conjectures, 0 to 1.";
    r_guide: Value = "Mean R_guide of the reviewed conjectures, 0 to 8; failed reviews count with their score.";
    r_guide_padded: Value = "Mean R_guide of the reviewed conjectures that are padded. If it rises together with conjecture_share_padded, the Conjecturer probably exploits the Guide.";
    r_synth: Value = "Mean R_synth of the judged conjectures, 0 to 8.";
    reward_normalised: Value = "Mean normalised reward of the conjectures that may be trained on, 0 to 1.";
    conjectures_matched: Value = "STP: selected conjectures that an unsolved target was matched to.";
    conjecture_weight_max: Value = "STP: largest weight of a selected conjecture.";
    conjecture_distance: Value = "STP: mean cosine distance of the unsolved targets to the conjectures that they were matched to, 0 to 2.";
    conjecture_distance_of_equals: Value = "STP: the same distance for a matching in which no conjecture may weigh more than 1, that is, without reweighting. Both matchings are greedy, so the values are upper bounds of Wasserstein distances.";
    review_relevance: Value = "Mean relevance of well-formed reviews, 0 to 5.";
    review_redundancy: Value = "Mean redundancy of well-formed reviews, 0 to 1.";
    review_complexity: Value = "Mean complexity of well-formed reviews, 0 to 4.";

    reviews_sampled: Count = "Completions of the Guide.";
    reviews_malformed: Count = "Completions of the Guide without three sub-scores in range.";
    reviews_failed: Count = "Conjectures without any well-formed review.";
    review_share_malformed: Value = "reviews_malformed / reviews_sampled.";

    target_rollouts_proved: Count = "Rollouts of targets with a valid proof.";
    target_rollouts_refused: Count = "Rollouts of targets with an invalid proof.";
    target_rollouts_malformed: Count = "Rollouts of targets without a well-formed proof.";
    target_rollouts_resource: Count = "Rollouts of targets that exceeded a limit of the checker.";
    target_rollouts_infra: Count = "Rollouts of targets lost because of a system failure.";
    conjecture_rollouts_proved: Count = "Rollouts of conjectures with a valid proof.";
    conjecture_rollouts_refused: Count = "Rollouts of conjectures with an invalid proof.";
    conjecture_rollouts_malformed: Count = "Rollouts of conjectures without a well-formed proof.";
    conjecture_rollouts_resource: Count = "Rollouts of conjectures that exceeded a limit of the checker.";
    conjecture_rollouts_infra: Count = "Rollouts of conjectures lost because of a system failure.";
    proof_share_malformed: Value = "Malformed rollouts / sampled rollouts.";
    infra_share: Value = "Rollouts lost because of a system failure / all rollouts; above 0.01 the run should stop.";
    repair_rollouts: Value = "Rollouts that repair a refused proof; absent if there are none.";
    repair_rollouts_proved: Value = "Those with a valid proof.";
    proofs_penalised: Count = "Proved rollouts with a forbidden tactic in the proof.";
    proofs_distinct: Count = "Distinct proofs among the proved rollouts, counted per problem.";
    rollouts_overlong: Count = "Judged rollouts with a negative length penalty.";

    solver_examples: Count = "Completions that the Solver is trained on.";
    solver_examples_earlier: Count = "Those from earlier rounds.";
    solver_examples_conjectures: Count = "Those of conjectures.";
    solver_examples_negative: Count = "Those with a negative weight.";
    solver_problems: Count = "Distinct problems among them.";
    conjecturer_examples: Count = "Completions that the Conjecturer is trained on.";
    conjecturer_examples_positive: Count = "Those with a positive weight.";

    target_length: Value = "Mean length of the batch's statements, tokens of the formal system.";
    conjecture_length: Value = "Mean length of the conjectures' statements.";
    target_conclusion_length: Value = "Mean length of the targets' conclusions.";
    conjecture_conclusion_length: Value = "Mean length of the conjectures' conclusions.";
    target_share_disjunctive: Value = "Share of the targets with a disjunction in the conclusion.";
    conjecture_share_disjunctive: Value = "Share of the conjectures with a disjunction in the conclusion.";
    target_depth: Value = "Mean nesting depth of the targets' conclusions.";
    conjecture_depth: Value = "Mean nesting depth of the conjectures' conclusions.";
    target_hypotheses: Value = "Mean number of hypotheses of the targets.";
    conjecture_hypotheses: Value = "Mean number of hypotheses of the conjectures.";

    solver_prompt_tokens: Count = "Prompt tokens of the Solver in this round.";
    solver_tokens: Count = "Tokens sampled by the Solver in this round.";
    conjecturer_prompt_tokens: Count = "Prompt tokens of the Conjecturer in this round.";
    conjecturer_tokens: Count = "Tokens sampled by the Conjecturer in this round.";
    guide_prompt_tokens: Count = "Prompt tokens of the Guide in this round.";
    guide_tokens: Count = "Tokens sampled by the Guide in this round.";
    solver_tokens_mean: Value = "Mean tokens of a rollout.";
    conjecturer_tokens_mean: Value = "Mean tokens of a conjecture.";
    guide_tokens_mean: Value = "Mean tokens of a review.";
    solver_share_cut: Value = "Share of the rollouts that ended at the token limit.";
    conjecturer_share_cut: Value = "Share of the conjectures that ended at the token limit.";
    guide_share_cut: Value = "Share of the reviews that ended at the token limit.";
    solver_entropy: Value = "Mean over rollouts of the mean entropy per token, nats.";
    conjecturer_entropy: Value = "Mean over conjectures of the mean entropy per token, nats.";
    guide_entropy: Value = "Mean over reviews of the mean entropy per token, nats.";
    solver_log_prob: Value = "Mean over rollouts of the mean log-probability per token at temperature 1, nats.";
    conjecturer_log_prob: Value = "Mean over conjectures of the mean log-probability per token, nats.";
    guide_log_prob: Value = "Mean over reviews of the mean log-probability per token, nats.";
}

impl RoundMetrics {
    /// Computes the metrics of a finished round.
    ///
    /// `after` is the state that has absorbed the outcome. `features` returns the features of a problem's statement.
    pub fn compute(
        outcome: &RoundOutcome,
        after: &RunState,
        features: impl Fn(&Problem) -> Features,
    ) -> Self {
        let mut metrics = Self {
            round: u64::from(outcome.round),
            epoch: outcome.epoch,
            generations: after.generations,
            generations_of_round: outcome.generations,
            conjecture_samples_total: after.conjecture_samples,
            ..Self::default()
        };
        metrics.count_targets(outcome, after);
        metrics.count_conjectures(outcome);
        metrics.average_rewards(&outcome.conjectures);
        outcome.matching.iter().for_each(|matching| metrics.describe_matching(matching));
        metrics.count_reviews(outcome);
        metrics.count_rollouts(outcome);
        metrics.count_examples(outcome);
        metrics.describe_statements(outcome, features);
        metrics.describe_samples(outcome);
        metrics
    }

    fn count_targets(&mut self, outcome: &RoundOutcome, after: &RunState) {
        let targets: Vec<&ProblemOutcome> = outcome.targets().collect();
        self.targets = outcome.targets_total;
        self.targets_in_batch = outcome.targets_in_batch;
        self.targets_sampled = targets.len() as u64;
        self.targets_solved = targets.iter().filter(|target| target.tally.proved > 0).count() as u64;
        self.targets_newly_solved = outcome.newly_solved.len() as u64;
        self.targets_solved_ever = after.solved.len() as u64;
        self.cumulative_solve_rate = ratio(self.targets_solved_ever, self.targets);
        self.target_solve_rate = mean(targets.iter().filter_map(|target| target.tally.rate()));
        self.target_share_solved = share_solved(&targets);
        self.target_pass_at = pass_at(&targets, outcome.rollouts_per_problem);
        let tallies = targets.iter().map(|target| target.tally);
        self.target_solve_rates = solve_rate_histogram(tallies, outcome.rollouts_per_problem);
    }

    fn count_conjectures(&mut self, outcome: &RoundOutcome) {
        let accepted: Vec<&ProblemOutcome> = outcome.accepted_conjectures().collect();
        self.conjectures_asked = outcome.conjectures.len() as u64;
        for conjecture in &outcome.conjectures {
            match &conjecture.status {
                ConjectureStatus::Accepted { .. } => self.conjectures_accepted += 1,
                ConjectureStatus::Duplicate { .. } => self.conjectures_duplicate += 1,
                ConjectureStatus::Refused { refusal: RefusalReason::Known(_), .. } => {
                    self.conjectures_known += 1
                }
                ConjectureStatus::Refused { refusal: RefusalReason::Seen, .. } => self.conjectures_seen += 1,
                ConjectureStatus::Lost { .. } => self.conjectures_lost += 1,
                ConjectureStatus::Malformed { defect } => {
                    self.conjectures_malformed += 1;
                    *self.conjecture_defects.entry(defect.clone()).or_default() += 1;
                }
            }
        }
        let suitable = |c: &&ConjectureOutcome| {
            let rate = c.tally.and_then(|tally| tally.rate());
            !c.trivial && rate.is_some_and(|rate| passes_threshold(rate, outcome.threshold))
        };
        self.conjectures_solved = accepted.iter().filter(|c| c.tally.proved > 0).count() as u64;
        self.conjectures_suitable = outcome.conjectures.iter().filter(suitable).count() as u64;
        self.conjectures_trained_by_solver = accepted.iter().filter(|c| c.selected).count() as u64;
        self.conjecture_threshold = (!accepted.is_empty()).then_some(outcome.threshold);
        self.conjecture_solve_rate = mean(accepted.iter().filter_map(|c| c.tally.rate()));
        self.conjecture_share_solved = share_solved(&accepted);
        let sampled = || outcome.conjectures.iter().filter(|c| c.sample.is_some()).map(|c| &c.status);
        let share = |is: fn(&ConjectureStatus) -> bool| {
            ratio(sampled().filter(|status| is(status)).count() as u64, outcome.conjecture_samples)
        };
        self.conjecture_share_malformed = share(|s| matches!(s, ConjectureStatus::Malformed { .. }));
        self.conjecture_share_duplicate = share(|s| matches!(s, ConjectureStatus::Duplicate { .. }));
        self.conjecture_share_known =
            share(|s| matches!(s, ConjectureStatus::Refused { refusal: RefusalReason::Known(_), .. }));
        self.conjecture_share_seen =
            share(|s| matches!(s, ConjectureStatus::Refused { refusal: RefusalReason::Seen, .. }));
        self.conjecture_share_novel = share(|s| matches!(s, ConjectureStatus::Accepted { .. }));
        self.conjectures_trivial = outcome.conjectures.iter().filter(|c| c.trivial).count() as u64;
        self.conjecture_share_trivial = ratio(self.conjectures_trivial, self.conjectures_solved);
        self.conjecture_pass_at = pass_at(&accepted, outcome.rollouts_per_problem);
        let tallies = accepted.iter().map(|c| c.tally);
        self.conjecture_solve_rates = solve_rate_histogram(tallies, outcome.rollouts_per_problem);
    }

    fn average_rewards(&mut self, conjectures: &[ConjectureOutcome]) {
        self.r_solve = mean(conjectures.iter().filter_map(|c| c.solve_reward));
        self.r_synth = mean(conjectures.iter().filter_map(|c| c.synth_reward));
        self.reward_normalised = mean(conjectures.iter().filter_map(|c| c.normalised));
        // Use only reviewed conjectures, because without a Guide every score is 1.
        let reviewed = || conjectures.iter().filter(|c| c.reviewed);
        self.r_guide = mean(reviewed().filter_map(|c| c.guide_score));
        self.r_guide_padded =
            mean(reviewed().filter(|c| c.padded == Some(true)).filter_map(|c| c.guide_score));
        self.conjecture_share_padded =
            mean(conjectures.iter().filter_map(|c| c.padded).map(|padded| f64::from(u8::from(padded))));
        self.guide_scores = vec![0; 9];
        for score in reviewed().filter_map(|c| c.guide_score) {
            self.guide_scores[(score.max(0.0) as usize).min(8)] += 1;
        }
        self.normalised_rewards = vec![0; 10];
        for reward in conjectures.iter().filter_map(|c| c.normalised) {
            self.normalised_rewards[((reward.max(0.0) * 10.0) as usize).min(9)] += 1;
        }
        let reviews = || conjectures.iter().filter_map(|c| c.review);
        self.review_relevance = mean(reviews().map(|review| review.relevance));
        self.review_redundancy = mean(reviews().map(|review| review.redundancy));
        self.review_complexity = mean(reviews().map(|review| review.complexity));
        self.reviews_failed = conjectures.iter().filter(|c| c.review_failed).count() as u64;
    }

    fn describe_matching(&mut self, matching: &Matching) {
        let weights = || matching.weights.iter().copied();
        self.conjectures_matched = Some(weights().filter(|weight| *weight > 0.0).count() as f64);
        self.conjecture_weight_max = weights().reduce(f64::max);
        self.conjecture_distance = matching.distance;
        self.conjecture_distance_of_equals = matching.distance_of_equals;
    }

    fn count_reviews(&mut self, outcome: &RoundOutcome) {
        for review in outcome.reviews.iter().filter(|review| review.sample.is_some()) {
            self.reviews_sampled += 1;
            if let Err(defect) = &review.read {
                self.reviews_malformed += 1;
                *self.review_defects.entry(defect.clone()).or_default() += 1;
            }
        }
        self.review_share_malformed = ratio(self.reviews_malformed, self.reviews_sampled);
    }

    fn count_rollouts(&mut self, outcome: &RoundOutcome) {
        let mut shortest: Vec<f64> = Vec::new();
        let by_problem = outcome.rollouts.chunk_by(|a, b| a.key.problem == b.key.problem);
        for (rollouts, problem) in by_problem.zip(&outcome.problems) {
            let mut proofs = HashSet::new();
            for rollout in rollouts {
                *self.verdict_count(problem.kind, rollout.verdict) += 1;
                self.count_proof(rollout, &mut proofs);
            }
            self.proofs_distinct += proofs.len() as u64;
            let proved = || rollouts.iter().filter(|rollout| rollout.verdict == Verdict::Proved);
            if problem.kind == ProblemKind::Conjecture {
                let steps = proved().filter_map(|r| r.proof.as_ref()).map(|proof| proof.steps).min();
                shortest.extend(steps.map(f64::from));
            }
        }
        self.conjecture_proof_steps = mean(shortest);
        let repairs = || outcome.rollouts.iter().filter(|r| r.key.index >= outcome.rollouts_per_problem);
        let proved = repairs().filter(|rollout| rollout.verdict == Verdict::Proved).count();
        self.repair_rollouts = Some(repairs().count() as f64).filter(|count| *count > 0.0);
        self.repair_rollouts_proved = self.repair_rollouts.map(|_| proved as f64);
        let malformed = self.target_rollouts_malformed + self.conjecture_rollouts_malformed;
        let infra = self.target_rollouts_infra + self.conjecture_rollouts_infra;
        self.proof_share_malformed = ratio(malformed, outcome.generations);
        self.infra_share = ratio(infra, outcome.rollouts.len() as u64);
    }

    fn count_proof(&mut self, rollout: &RolloutOutcome, proofs: &mut HashSet<u64>) {
        match (rollout.verdict, &rollout.proof) {
            (Verdict::Proved, Some(proof)) => {
                self.proofs_penalised += u64::from(proof.penalised);
                proofs.insert(fingerprint(&proof.text));
            }
            (Verdict::Malformed, _) => *self.proof_defects.entry(rollout.reason.clone()).or_default() += 1,
            _ => {}
        }
        self.rollouts_overlong += u64::from(rollout.reward.is_some_and(|reward| reward < 0.0));
    }

    fn verdict_count(&mut self, kind: ProblemKind, verdict: Verdict) -> &mut u64 {
        match (kind, verdict) {
            (ProblemKind::Target, Verdict::Proved) => &mut self.target_rollouts_proved,
            (ProblemKind::Target, Verdict::Refused) => &mut self.target_rollouts_refused,
            (ProblemKind::Target, Verdict::Malformed) => &mut self.target_rollouts_malformed,
            (ProblemKind::Target, Verdict::Resource) => &mut self.target_rollouts_resource,
            (ProblemKind::Target, Verdict::Infra) => &mut self.target_rollouts_infra,
            (ProblemKind::Conjecture, Verdict::Proved) => &mut self.conjecture_rollouts_proved,
            (ProblemKind::Conjecture, Verdict::Refused) => &mut self.conjecture_rollouts_refused,
            (ProblemKind::Conjecture, Verdict::Malformed) => &mut self.conjecture_rollouts_malformed,
            (ProblemKind::Conjecture, Verdict::Resource) => &mut self.conjecture_rollouts_resource,
            (ProblemKind::Conjecture, Verdict::Infra) => &mut self.conjecture_rollouts_infra,
        }
    }

    fn count_examples(&mut self, outcome: &RoundOutcome) {
        let kinds: HashMap<_, _> = outcome.problems.iter().map(|p| (&p.problem.id, p.kind)).collect();
        let examples = &outcome.solver_examples;
        let count = |predicate: &dyn Fn(&crate::training::Example) -> bool| {
            examples.iter().filter(|example| predicate(example)).count() as u64
        };
        self.solver_examples = examples.len() as u64;
        self.solver_examples_earlier = count(&|example| example.key.round != outcome.round);
        self.solver_examples_conjectures =
            count(&|example| kinds.get(&example.key.problem) == Some(&ProblemKind::Conjecture));
        self.solver_examples_negative = count(&|example| example.weight < 0.0);
        let problems: HashSet<_> = examples.iter().map(|example| &example.key.problem).collect();
        self.solver_problems = problems.len() as u64;
        self.conjecturer_examples = outcome.conjecturer_examples.len() as u64;
        let positive = outcome.conjecturer_examples.iter().filter(|example| example.weight > 0.0);
        self.conjecturer_examples_positive = positive.count() as u64;
    }

    fn describe_statements(&mut self, outcome: &RoundOutcome, features: impl Fn(&Problem) -> Features) {
        let of = |problems: Vec<&ProblemOutcome>| -> Vec<Features> {
            problems.into_iter().map(|problem| features(&problem.problem)).collect()
        };
        let targets = of(outcome.targets().collect());
        let conjectures = of(outcome.accepted_conjectures().collect());
        let average =
            |all: &[Features], feature: fn(&Features) -> u32| mean(all.iter().map(|f| f64::from(feature(f))));
        self.target_length = average(&targets, |f| f.length);
        self.conjecture_length = average(&conjectures, |f| f.length);
        self.target_conclusion_length = average(&targets, |f| f.conclusion_length);
        self.conjecture_conclusion_length = average(&conjectures, |f| f.conclusion_length);
        self.target_share_disjunctive = average(&targets, |f| u32::from(f.disjunctions > 0));
        self.conjecture_share_disjunctive = average(&conjectures, |f| u32::from(f.disjunctions > 0));
        self.target_depth = average(&targets, |f| f.depth);
        self.conjecture_depth = average(&conjectures, |f| f.depth);
        self.target_hypotheses = average(&targets, |f| f.hypotheses);
        self.conjecture_hypotheses = average(&conjectures, |f| f.hypotheses);
    }

    fn describe_samples(&mut self, outcome: &RoundOutcome) {
        macro_rules! describe {
            ($samples:expr => $prompt:ident, $tokens:ident, $mean:ident, $cut:ident, $entropy:ident, $log_prob:ident) => {
                let samples: Vec<SampleFacts> = $samples.collect();
                let count = samples.len() as u64;
                let cut = samples.iter().filter(|s| s.finish == FinishReason::Length).count() as u64;
                self.$prompt = samples.iter().map(|s| u64::from(s.prompt_tokens)).sum();
                self.$tokens = samples.iter().map(|s| u64::from(s.generated_tokens)).sum();
                self.$mean = ratio(self.$tokens, count);
                self.$cut = ratio(cut, count);
                self.$entropy = mean(samples.iter().filter_map(|s| s.entropy).map(f64::from));
                self.$log_prob = mean(samples.iter().filter_map(|s| s.mean_log_prob).map(f64::from));
            };
        }
        describe!(outcome.rollouts.iter().filter_map(|rollout| rollout.sample) => solver_prompt_tokens, solver_tokens,
            solver_tokens_mean, solver_share_cut, solver_entropy, solver_log_prob);
        describe!(outcome.conjectures.iter().filter_map(|c| c.sample) => conjecturer_prompt_tokens, conjecturer_tokens,
            conjecturer_tokens_mean, conjecturer_share_cut, conjecturer_entropy, conjecturer_log_prob);
        describe!(outcome.reviews.iter().filter_map(|review| review.sample) => guide_prompt_tokens, guide_tokens,
            guide_tokens_mean, guide_share_cut, guide_entropy, guide_log_prob);
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn share_solved(problems: &[&ProblemOutcome]) -> Option<f64> {
    let judged = problems.iter().filter(|problem| problem.tally.judged > 0);
    mean(judged.map(|problem| f64::from(u8::from(problem.tally.proved > 0))))
}

/// Returns the mean unbiased pass@j over the problems with at least j judged rollouts, for j = 1, 2, 4, … and k.
fn pass_at(problems: &[&ProblemOutcome], k: u32) -> BTreeMap<u32, f64> {
    let powers = std::iter::successors(Some(1u32), |j| j.checked_mul(2)).take_while(|&j| j < k);
    let estimate = |j: u32| {
        let one = |p: &&ProblemOutcome| pass_at_k(p.tally.judged.into(), p.tally.proved.into(), j.into());
        Some((j, mean(problems.iter().filter_map(one))?))
    };
    powers.chain([k]).filter_map(estimate).collect()
}
