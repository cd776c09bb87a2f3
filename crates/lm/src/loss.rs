//! The training loss, and statistics for monitoring.
//!
//! Let `lp_t` be the current log-probability of token `t`, `old_t` the one when it was sampled, `ref_t` the one
//! under the reference model, `H_t` the entropy of the full distribution, `w` the weight of the token's
//! sequence, and `n_t` its normaliser. The loss of a batch is
//!
//! `L = Σ_t n_t ( -w r_t lp_t - b H_t + k (e^(ref_t - lp_t) - (ref_t - lp_t) - 1) )`
//!
//! with `r_t = 1`, or for CISPO `r_t = clip(e^(lp_t - old_t), 1 - eps_low, 1 + eps_high)`, which is constant in
//! the gradient (MiniMax 2025, eq. 4; paper, Solver objectives).

use serde::{Deserialize, Serialize};

use crate::device::RowLoss;
use crate::error::{LmError, Result};
use crate::pack::{LossRow, Packed};

/// A sequence to train on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainExample {
    /// Prompt and completion.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens, at least 1; the remaining tokens are the completion.
    pub prompt_len: usize,
    /// Reward or advantage of the sequence; positive or negative. Supervised training ignores it.
    pub weight: f32,
    /// Log-probabilities of the completion's tokens when they were sampled; empty if unknown.
    pub sampled_log_probs: Vec<f32>,
    /// Log-probabilities of the completion's tokens under the reference model; empty without a KL penalty.
    pub reference_log_probs: Vec<f32>,
    /// Weights of the completion's tokens; empty if all are 1. A token of weight 0 does not enter the loss.
    pub token_weights: Vec<f32>,
    /// Under [`Normaliser::Group`], examples of one group share a normaliser.
    pub group: u32,
}

impl TrainExample {
    /// Creates a sequence in which every token after the first is a target, as in pretraining.
    pub fn plain(tokens: Vec<u32>) -> Self {
        Self { tokens, prompt_len: 1, weight: 1.0, ..Self::default() }
    }

    /// Returns the number of tokens of the completion.
    pub fn completion_len(&self) -> usize {
        self.tokens.len().saturating_sub(self.prompt_len)
    }

    /// Returns the number of tokens that enter the loss.
    pub fn loss_tokens(&self) -> usize {
        match self.token_weights.as_slice() {
            [] => self.completion_len(),
            weights => weights.iter().filter(|w| **w != 0.0).count(),
        }
    }

    /// Checks lengths and values; `index` identifies the example in errors.
    pub(crate) fn validate(&self, index: usize, loss: &LossConfig) -> Result<()> {
        let fail = |what: String| Err(LmError::Input(format!("training example {index}: {what}")));
        if self.prompt_len == 0 || self.prompt_len >= self.tokens.len() {
            return fail(format!(
                "the prompt has {} of {} tokens; both prompt and completion need at least one",
                self.prompt_len,
                self.tokens.len()
            ));
        }
        let completion = self.completion_len();
        let needs_old = matches!(loss.objective, Objective::Cispo { .. });
        for (name, numbers, needed) in [
            ("sampled log-probs", &self.sampled_log_probs, needs_old),
            ("reference log-probs", &self.reference_log_probs, loss.kl_penalty != 0.0),
            ("token weights", &self.token_weights, false),
        ] {
            if numbers.len() != completion && (needed || !numbers.is_empty()) {
                return fail(format!("{} {name} for a completion of {completion} tokens", numbers.len()));
            }
            if let Some(bad) = numbers.iter().find(|x| x.is_nan() || **x == f32::INFINITY) {
                return fail(format!("one of its {name} is {bad}"));
            }
        }
        if !self.weight.is_finite() {
            return fail(format!("its weight is {}", self.weight));
        }
        Ok(())
    }
}

/// How a token's log-probability enters the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// Cross-entropy: every sequence has weight 1.
    Supervised,
    /// Log-probability times the weight of its sequence (paper, REINFORCE objective).
    Reinforce,
    /// The weighted log-probability of `Reinforce`, times the clipped importance ratio, which has no gradient.
    Cispo {
        /// Lower bound of the ratio: `1 - eps_low`.
        eps_low: f32,
        /// Upper bound of the ratio: `1 + eps_high`.
        eps_high: f32,
    },
}

/// Divisor of a token's loss. A batch contains all micro-batches of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normaliser {
    /// Loss tokens of its sequence times sequences of the batch: the mean over sequences of their means.
    Sequence,
    /// Loss tokens of the batch.
    Token,
    /// Loss tokens of its group times groups of the batch.
    Group,
}

/// The loss of a training run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossConfig {
    /// How log-probabilities enter the loss.
    pub objective: Objective,
    /// The divisor.
    pub normaliser: Normaliser,
    /// Coefficient `b` of the entropy bonus; 0 disables it.
    pub entropy_bonus: f32,
    /// Coefficient `k` of the KL penalty towards the reference log-probabilities; 0 disables it.
    pub kl_penalty: f32,
}

impl LossConfig {
    /// Creates a loss from an objective and a normaliser, without bonus and penalty.
    pub fn new(objective: Objective, normaliser: Normaliser) -> Self {
        Self { objective, normaliser, entropy_bonus: 0.0, kl_penalty: 0.0 }
    }

    /// Returns the mean cross-entropy over loss tokens.
    pub fn supervised() -> Self {
        Self::new(Objective::Supervised, Normaliser::Token)
    }

    /// Returns the parameters that the loss kernel needs.
    pub fn row_loss(&self) -> RowLoss {
        RowLoss {
            ratio_bounds: self.ratio_bounds(),
            entropy_bonus: self.entropy_bonus,
            kl_penalty: self.kl_penalty,
            backward: true,
        }
    }

    fn ratio_bounds(&self) -> Option<(f32, f32)> {
        match self.objective {
            Objective::Cispo { eps_low, eps_high } => Some((1.0 - eps_low, 1.0 + eps_high)),
            Objective::Supervised | Objective::Reinforce => None,
        }
    }

    fn sequence_weight(&self, example: &TrainExample) -> f32 {
        match self.objective {
            Objective::Supervised => 1.0,
            Objective::Reinforce | Objective::Cispo { .. } => example.weight,
        }
    }

    /// Returns whether an example cannot change any parameter; only its tokens then count, in the normaliser.
    pub(crate) fn is_inert(&self, example: &TrainExample) -> bool {
        self.entropy_bonus == 0.0 && self.kl_penalty == 0.0 && self.sequence_weight(example) == 0.0
    }

    /// Writes the normaliser `n_t` of every example of a batch to `norms`.
    pub(crate) fn norms(&self, batch: &[&TrainExample], norms: &mut Vec<f32>) {
        norms.clear();
        let inverse = |n: usize| if n == 0 { 0.0 } else { (1.0 / n as f64) as f32 };
        match self.normaliser {
            Normaliser::Sequence => {
                norms.extend(batch.iter().map(|e| inverse(e.loss_tokens() * batch.len())));
            }
            Normaliser::Token => {
                let tokens = batch.iter().map(|e| e.loss_tokens()).sum();
                norms.extend(batch.iter().map(|_| inverse(tokens)));
            }
            Normaliser::Group => {
                let first = |i: usize| batch[..i].iter().all(|e| e.group != batch[i].group);
                let groups = (0..batch.len()).filter(|i| first(*i)).count();
                norms.extend(batch.iter().map(|example| {
                    let group_members = batch.iter().filter(|e| e.group == example.group);
                    inverse(groups * group_members.map(|e| e.loss_tokens()).sum::<usize>())
                }));
            }
        }
    }

    /// Appends an example with normaliser `norm` to a micro-batch.
    pub(crate) fn pack(&self, example: &TrainExample, norm: f32, packed: &mut Packed) {
        let weight = self.sequence_weight(example) * norm;
        let number = |numbers: &[f32], i: usize| numbers.get(i).copied().unwrap_or(f32::NAN);
        let rows = (0..example.completion_len()).filter_map(|i| {
            let token_weight = example.token_weights.get(i).copied().unwrap_or(1.0);
            (token_weight != 0.0).then(|| LossRow {
                index: example.prompt_len + i - 1,
                target: example.tokens[example.prompt_len + i],
                weight: weight * token_weight,
                norm,
                old: number(&example.sampled_log_probs, i),
                reference: number(&example.reference_log_probs, i),
            })
        });
        packed.push(&example.tokens[..example.tokens.len() - 1], rows);
    }
}

/// Statistics of the loss tokens of one or more steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossStats {
    /// Loss of the batch, or the mean over several steps.
    pub loss: f64,
    /// Loss tokens that were processed. Sequences of weight 0 are skipped unless a bonus or penalty needs them.
    pub tokens: usize,
    /// Number of optimizer steps.
    pub steps: usize,
    /// Mean log-probability of the tokens.
    pub mean_log_prob: f64,
    /// Mean entropy of the full distributions, in nats.
    pub entropy: f64,
    /// Number of tokens whose log-probability at sampling time is known; the next five values are over these.
    pub sampled_tokens: usize,
    /// Mean importance ratio `e^(lp - old)`, before clipping.
    pub mean_ratio: f64,
    /// Fraction of ratios below the lower bound.
    pub clipped_low: f64,
    /// Fraction of ratios above the upper bound.
    pub clipped_high: f64,
    /// Mean of `|lp - old|`: in the first step of a round, the disagreement between trainer and sampler.
    pub log_prob_gap: f64,
    /// Largest `|lp - old|`.
    pub max_log_prob_gap: f64,
    /// Mean estimate of the KL divergence from the reference model (k3), if there is a penalty.
    pub kl: f64,
}

impl LossStats {
    /// Merges the statistics of two sets of tokens, weighted by their counts.
    pub fn merge(&mut self, other: &Self) {
        let mean = |a: f64, na: usize, b: f64, nb: usize| {
            if na + nb == 0 { 0.0 } else { (a * na as f64 + b * nb as f64) / (na + nb) as f64 }
        };
        let (n, m) = (self.tokens, other.tokens);
        let (s, r) = (self.sampled_tokens, other.sampled_tokens);
        self.loss = mean(self.loss, self.steps, other.loss, other.steps);
        self.mean_log_prob = mean(self.mean_log_prob, n, other.mean_log_prob, m);
        self.entropy = mean(self.entropy, n, other.entropy, m);
        self.kl = mean(self.kl, n, other.kl, m);
        self.mean_ratio = mean(self.mean_ratio, s, other.mean_ratio, r);
        self.clipped_low = mean(self.clipped_low, s, other.clipped_low, r);
        self.clipped_high = mean(self.clipped_high, s, other.clipped_high, r);
        self.log_prob_gap = mean(self.log_prob_gap, s, other.log_prob_gap, r);
        self.max_log_prob_gap = self.max_log_prob_gap.max(other.max_log_prob_gap);
        self.tokens += m;
        self.sampled_tokens += r;
        self.steps += other.steps;
    }
}

/// Running sums of one step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossSums {
    loss: f64,
    tokens: usize,
    log_prob: f64,
    entropy: f64,
    kl: f64,
    sampled: usize,
    ratio: f64,
    low: usize,
    high: usize,
    gap: f64,
    max_gap: f64,
}

impl LossSums {
    /// Adds the rows of a micro-batch, with their log-probabilities and entropies.
    pub(crate) fn add(&mut self, loss: &LossConfig, packed: &Packed, log_prob: &[f32], entropy: &[f32]) {
        let bounds = loss.ratio_bounds();
        for (i, (lp, h)) in log_prob.iter().zip(entropy).enumerate() {
            let (lp, h) = (f64::from(*lp), f64::from(*h));
            let (weight, norm) = (f64::from(packed.weight[i]), f64::from(packed.norm[i]));
            let old = f64::from(packed.old[i]);
            let mut ratio = 1.0;
            if !old.is_nan() {
                let raw = (lp - old).exp();
                self.sampled += 1;
                self.ratio += raw;
                self.gap += (lp - old).abs();
                self.max_gap = self.max_gap.max((lp - old).abs());
                if let Some((low, high)) = bounds {
                    self.low += usize::from(raw < f64::from(low));
                    self.high += usize::from(raw > f64::from(high));
                }
            }
            if let Some((low, high)) = bounds {
                ratio = (lp - old).exp().clamp(f64::from(low), f64::from(high));
            }
            let mut term = -weight * ratio * lp - norm * f64::from(loss.entropy_bonus) * h;
            if loss.kl_penalty != 0.0 {
                let ahead = f64::from(packed.reference[i]) - lp;
                let kl = ahead.exp() - ahead - 1.0;
                self.kl += kl;
                term += norm * f64::from(loss.kl_penalty) * kl;
            }
            self.loss += term;
            self.log_prob += lp;
            self.entropy += h;
        }
        self.tokens += log_prob.len();
    }

    /// Returns the sums as a list of numbers, for other ranks.
    pub(crate) fn numbers(&self) -> [f64; 11] {
        let count = |n: usize| n as f64;
        [
            self.loss,
            count(self.tokens),
            self.log_prob,
            self.entropy,
            self.kl,
            count(self.sampled),
            self.ratio,
            count(self.low),
            count(self.high),
            self.gap,
            self.max_gap,
        ]
    }

    /// Adds another rank's [`LossSums::numbers`].
    pub(crate) fn join(&mut self, numbers: &[f64]) {
        let [loss, tokens, log_prob, entropy, kl, sampled, ratio, low, high, gap, max_gap, ..] = *numbers
        else {
            return;
        };
        let count = |n: f64| n as usize;
        self.loss += loss;
        self.tokens += count(tokens);
        self.log_prob += log_prob;
        self.entropy += entropy;
        self.kl += kl;
        self.sampled += count(sampled);
        self.ratio += ratio;
        self.low += count(low);
        self.high += count(high);
        self.gap += gap;
        self.max_gap = self.max_gap.max(max_gap);
    }

    pub(crate) fn stats(&self) -> LossStats {
        let per = |x: f64, n: usize| if n == 0 { 0.0 } else { x / n as f64 };
        LossStats {
            loss: self.loss,
            tokens: self.tokens,
            steps: 1,
            mean_log_prob: per(self.log_prob, self.tokens),
            entropy: per(self.entropy, self.tokens),
            sampled_tokens: self.sampled,
            mean_ratio: per(self.ratio, self.sampled),
            clipped_low: per(self.low as f64, self.sampled),
            clipped_high: per(self.high as f64, self.sampled),
            log_prob_gap: per(self.gap, self.sampled),
            max_log_prob_gap: self.max_gap,
            kl: per(self.kl, self.tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(completion: usize, group: u32) -> TrainExample {
        TrainExample {
            tokens: vec![1; completion + 2],
            prompt_len: 2,
            weight: 1.0,
            group,
            ..TrainExample::default()
        }
    }

    #[test]
    fn normalisers_sum_to_one_over_a_batch() {
        let examples = [example(3, 0), example(5, 0), example(1, 7)];
        let batch: Vec<&TrainExample> = examples.iter().collect();
        for normaliser in [Normaliser::Sequence, Normaliser::Token, Normaliser::Group] {
            let mut norms = Vec::new();
            LossConfig::new(Objective::Reinforce, normaliser).norms(&batch, &mut norms);
            let total: f32 = norms.iter().zip(&examples).map(|(n, e)| n * e.loss_tokens() as f32).sum();
            assert!((total - 1.0).abs() < 1e-6, "{normaliser:?} {total}");
        }
        let mut norms = Vec::new();
        LossConfig::new(Objective::Reinforce, Normaliser::Group).norms(&batch, &mut norms);
        assert_eq!(norms, [1.0 / 16.0, 1.0 / 16.0, 0.5]);
    }

    #[test]
    fn bad_examples_are_named() {
        let cispo = LossConfig::new(Objective::Cispo { eps_low: 1.0, eps_high: 3.0 }, Normaliser::Token);
        let error = example(3, 0).validate(4, &cispo).unwrap_err().to_string();
        assert!(error.contains("example 4") && error.contains("sampled log-probs"), "{error}");
        let supervised = LossConfig::supervised();
        assert!(example(0, 0).validate(0, &supervised).is_err());
        let nan = TrainExample { weight: f32::NAN, ..example(1, 0) };
        assert!(nan.validate(0, &supervised).is_err());
    }

    #[test]
    fn merged_stats_are_token_weighted_means() {
        let mut a = LossStats { loss: 1.0, tokens: 1, steps: 1, entropy: 4.0, ..LossStats::default() };
        a.merge(&LossStats { loss: 3.0, tokens: 3, steps: 1, entropy: 0.0, ..LossStats::default() });
        assert_eq!((a.loss, a.tokens, a.steps, a.entropy), (2.0, 4, 2, 1.0));
    }
}
