//! What is minimised, and what monitoring wants to know about it.
//!
//! With `lp_t` the log-prob of token `t` now, `old_t` when it was sampled, `ref_t` under the reference
//! model, `H_t` the entropy of the full distribution, `w` the weight of the token's sequence and `n_t` its
//! normaliser, the loss of a batch is
//!
//! `L = Σ_t n_t ( -w r_t lp_t - b H_t + k (e^(ref_t - lp_t) - (ref_t - lp_t) - 1) )`
//!
//! with `r_t = 1`, or for CISPO `r_t = clip(e^(lp_t - old_t), 1 - eps_low, 1 + eps_high)` held constant in
//! the gradient (MiniMax 2025, eq. 4; paper, Solver objectives).

use serde::{Deserialize, Serialize};

use crate::device::RowLoss;
use crate::error::{LmError, Result};
use crate::pack::{LossRow, Packed};

/// One sequence to learn from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Prompt and completion.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt, at least 1; what follows is the completion.
    pub prompt_len: usize,
    /// Reward or advantage of the sequence; of either sign. Supervised training ignores it.
    pub weight: f32,
    /// Log-probs of the completion's tokens when they were sampled, or empty if unknown.
    pub sampled_log_probs: Vec<f32>,
    /// Log-probs of the completion's tokens under the reference model, or empty without a KL penalty.
    pub reference_log_probs: Vec<f32>,
    /// Weights of the completion's tokens, or empty for all 1; a token of weight 0 is no loss token.
    pub token_weights: Vec<f32>,
    /// Examples of one group share a normaliser under [`Normaliser::Group`].
    pub group: u32,
}

impl Example {
    /// A sequence whose every token after the first is learned, as in pretraining.
    pub fn plain(tokens: Vec<u32>) -> Self {
        Self { tokens, prompt_len: 1, weight: 1.0, ..Self::default() }
    }

    /// Number of tokens of the completion.
    pub fn completion_len(&self) -> usize {
        self.tokens.len().saturating_sub(self.prompt_len)
    }

    /// Number of tokens that enter the loss.
    pub fn loss_tokens(&self) -> usize {
        match self.token_weights.as_slice() {
            [] => self.completion_len(),
            weights => weights.iter().filter(|w| **w != 0.0).count(),
        }
    }

    /// Checks lengths and numbers; `index` names the example in errors.
    pub(crate) fn validate(&self, index: usize, loss: &LossConfig) -> Result<()> {
        let fail = |what: String| Err(LmError::Input(format!("training example {index}: {what}")));
        if self.prompt_len == 0 || self.prompt_len >= self.tokens.len() {
            return fail(format!(
                "a prompt of {} in {} tokens; at least one token must come before and after",
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

/// How a token's log-prob enters the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// Cross-entropy: every sequence has weight 1.
    Supervised,
    /// Log-prob times the weight of its sequence (paper, eq. of the REINFORCE objective).
    Reinforce,
    /// The same times the clipped importance ratio, which has no gradient.
    Cispo {
        /// The ratio is at least `1 - eps_low`.
        eps_low: f32,
        /// The ratio is at most `1 + eps_high`.
        eps_high: f32,
    },
}

/// By what a token's loss is divided; the batch is that of one optimiser step, all micro-batches together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normaliser {
    /// Its sequence's loss tokens times the batch's sequences: the mean over sequences of their means.
    Sequence,
    /// The batch's loss tokens.
    Token,
    /// Its group's loss tokens times the batch's groups.
    Group,
}

/// The loss of a training run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossConfig {
    /// How log-probs enter.
    pub objective: Objective,
    /// By what they are divided.
    pub normaliser: Normaliser,
    /// Coefficient `b` of the entropy bonus; 0 for none.
    pub entropy_bonus: f32,
    /// Coefficient `k` of the KL penalty towards the reference log-probs; 0 for none.
    pub kl_penalty: f32,
}

impl LossConfig {
    /// An objective and normaliser without bonus and penalty.
    pub fn new(objective: Objective, normaliser: Normaliser) -> Self {
        Self { objective, normaliser, entropy_bonus: 0.0, kl_penalty: 0.0 }
    }

    /// Mean cross-entropy over loss tokens.
    pub fn supervised() -> Self {
        Self::new(Objective::Supervised, Normaliser::Token)
    }

    /// The part that the kernel of the loss rows needs.
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

    fn sequence_weight(&self, example: &Example) -> f32 {
        match self.objective {
            Objective::Supervised => 1.0,
            Objective::Reinforce | Objective::Cispo { .. } => example.weight,
        }
    }

    /// Whether an example can move no parameter, so that only its tokens count, in the normaliser.
    pub(crate) fn is_inert(&self, example: &Example) -> bool {
        self.entropy_bonus == 0.0 && self.kl_penalty == 0.0 && self.sequence_weight(example) == 0.0
    }

    /// The normaliser `n_t` of every example of a batch, into `norms`.
    pub(crate) fn norms(&self, batch: &[&Example], norms: &mut Vec<f32>) {
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
                    let mates = batch.iter().filter(|e| e.group == example.group);
                    inverse(groups * mates.map(|e| e.loss_tokens()).sum::<usize>())
                }));
            }
        }
    }

    /// Appends an example with normaliser `norm` to a micro-batch.
    pub(crate) fn pack(&self, example: &Example, norm: f32, packed: &mut Packed) {
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

/// What monitoring wants to know about the loss tokens of a step, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossStats {
    /// Loss of the batch; over several steps, their mean.
    pub loss: f64,
    /// Loss tokens that were run (those of sequences of weight 0 are skipped unless a bonus or penalty
    /// needs them).
    pub tokens: usize,
    /// Optimiser steps behind these numbers.
    pub steps: usize,
    /// Mean log-prob of the tokens.
    pub mean_log_prob: f64,
    /// Mean entropy of the full distributions, in nats.
    pub entropy: f64,
    /// Tokens whose sampling-time log-prob was given; the next five are means over these.
    pub sampled_tokens: usize,
    /// Mean importance ratio `e^(lp - old)`, before clipping.
    pub mean_ratio: f64,
    /// Share of ratios below the lower bound.
    pub clipped_low: f64,
    /// Share of ratios above the upper bound.
    pub clipped_high: f64,
    /// Mean of `|lp - old|`: in the first step of a round, how far trainer and sampler disagree.
    pub log_prob_gap: f64,
    /// Largest `|lp - old|`.
    pub max_log_prob_gap: f64,
    /// Mean estimate of the KL divergence from the reference model (k3), if a penalty was asked for.
    pub kl: f64,
}

impl LossStats {
    /// Joins the numbers of two sets of tokens, weighted by their counts.
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
    /// Adds a micro-batch's rows, given their log-probs and entropies.
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

    /// The sums as plain numbers, for other ranks.
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

    fn example(completion: usize, group: u32) -> Example {
        Example { tokens: vec![1; completion + 2], prompt_len: 2, weight: 1.0, group, ..Example::default() }
    }

    #[test]
    fn normalisers_sum_to_one_over_a_batch() {
        let examples = [example(3, 0), example(5, 0), example(1, 7)];
        let batch: Vec<&Example> = examples.iter().collect();
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
        let nan = Example { weight: f32::NAN, ..example(1, 0) };
        assert!(nan.validate(0, &supervised).is_err());
    }

    #[test]
    fn merged_stats_are_token_weighted_means() {
        let mut a = LossStats { loss: 1.0, tokens: 1, steps: 1, entropy: 4.0, ..LossStats::default() };
        a.merge(&LossStats { loss: 3.0, tokens: 3, steps: 1, entropy: 0.0, ..LossStats::default() });
        assert_eq!((a.loss, a.tokens, a.steps, a.entropy), (2.0, 4, 2, 1.0));
    }
}
