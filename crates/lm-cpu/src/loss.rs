//! Computes log-probabilities and entropies from a block of logits and, in place, the gradient of the loss.

use rayon::prelude::*;

use super::math::{exp, max, sum2};
use super::{rows_per_task, simd};
use sgs_lm::device::RowLoss;

/// Inputs of one row, as in [`sgs_lm::device::LossRows`].
#[derive(Debug, Clone, Copy)]
pub struct LossRowInput {
    /// The token that follows.
    pub target: u32,
    /// Weight of the log-probability in the loss.
    pub weight: f32,
    /// The normaliser alone.
    pub norm: f32,
    /// Log-probability when the token was sampled.
    pub old: f32,
    /// Log-probability under the reference model.
    pub reference: f32,
}

/// Processes every row of `logits` (`[rows, vocabulary]`). `row(i)` returns the inputs of a row; the results
/// are stored in `log_prob` and `entropy` (`[rows]`).
pub fn loss_rows(
    loss: RowLoss,
    vocabulary: usize,
    logits: &mut [f32],
    row: impl Fn(usize) -> LossRowInput + Sync,
    log_prob: &mut [f32],
    entropy: &mut [f32],
) {
    let rows = rows_per_task(vocabulary);
    logits
        .par_chunks_mut(rows * vocabulary)
        .zip(log_prob.par_chunks_mut(rows))
        .zip(entropy.par_chunks_mut(rows))
        .enumerate()
        .for_each(|(task, ((logits, log_prob), entropy))| {
            simd(
                #[inline(always)]
                || {
                    let outputs = log_prob.iter_mut().zip(entropy);
                    for (i, (z, (lp, h))) in logits.chunks_exact_mut(vocabulary).zip(outputs).enumerate() {
                        let row = row(task * rows + i);
                        if loss.backward {
                            (*lp, *h) = backward(loss, row, z);
                        } else {
                            let stats = RowStats::of(z, row.target);
                            (*lp, *h) = (stats.log_prob, stats.entropy);
                        }
                    }
                },
            );
        });
}

/// Statistics of the distribution of a row of logits.
#[derive(Debug, Clone, Copy)]
struct RowStats {
    /// Log-sum-exp of the logits.
    lse: f32,
    log_prob: f32,
    entropy: f32,
}

impl RowStats {
    #[inline(always)]
    fn of(z: &[f32], target: u32) -> Self {
        let peak = max(z);
        let total = sum2(z, z, |a, _| exp(a - peak));
        let weighted = sum2(z, z, |a, _| exp(a - peak) * (a - peak));
        Self::new(z[target as usize], peak, total, weighted)
    }

    /// Computes the largest logit `peak`, `Σ e^(z - peak)` and `Σ e^(z - peak) (z - peak)`.
    #[inline(always)]
    fn new(target_logit: f32, peak: f32, total: f32, weighted: f32) -> Self {
        let log_total = total.ln();
        // The entropy of a distribution with a single certain outcome can round to a negative number.
        let entropy = log_total - weighted / total;
        let entropy = if entropy < 0.0 { 0.0 } else { entropy };
        Self { lse: peak + log_total, log_prob: target_logit - peak - log_total, entropy }
    }
}

/// Returns log-probability and entropy of a row and replaces the row by `∂L/∂z`.
///
/// With `a` the derivative of the loss by `-log p(target)` and `e` the weight of the entropy:
/// `∂L/∂z_j = a (p_j - [j = target]) + e p_j (ln p_j + H)`.
#[inline(always)]
fn backward(loss: RowLoss, row: LossRowInput, z: &mut [f32]) -> (f32, f32) {
    let target = row.target as usize;
    let target_logit = z[target];
    let bonus = loss.entropy_bonus * row.norm;
    if bonus != 0.0 {
        let stats = RowStats::of(z, row.target);
        let a = slope(loss, row, stats.log_prob);
        for z in z.iter_mut() {
            let log_p = *z - stats.lse;
            *z = exp(log_p) * (a + bonus * (log_p + stats.entropy));
        }
        z[target] -= a;
        return (stats.log_prob, stats.entropy);
    }
    let peak = max(z);
    let weighted = {
        for z in z.iter_mut() {
            *z -= peak;
        }
        sum2(z, z, |a, _| exp(a) * a)
    };
    for z in z.iter_mut() {
        *z = exp(*z);
    }
    let total = sum2(z, z, |a, _| a);
    let stats = RowStats::new(target_logit, peak, total, weighted);
    let a = slope(loss, row, stats.log_prob);
    let scale = a / total;
    for z in z.iter_mut() {
        *z *= scale;
    }
    z[target] -= a;
    (stats.log_prob, stats.entropy)
}

/// Returns the derivative of a row's loss by the negative log-probability, for a constant importance ratio.
///
/// The KL penalty is `k (e^(ref - lp) - (ref - lp) - 1)` (Schulman's k3), and its derivative by `lp` is
/// `k (1 - e^(ref - lp))`.
#[inline(always)]
fn slope(loss: RowLoss, row: LossRowInput, log_prob: f32) -> f32 {
    let ratio = match loss.ratio_bounds {
        None => 1.0,
        Some((low, high)) => (log_prob - row.old).exp().clamp(low, high),
    };
    let mut a = row.weight * ratio;
    if loss.kl_penalty != 0.0 {
        a -= loss.kl_penalty * row.norm * (1.0 - (row.reference - log_prob).exp());
    }
    a
}
