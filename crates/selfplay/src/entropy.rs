//! Entropies of sampled text, in nats per token.

/// Returns the entropy of a full distribution, `-Σ p ln p`, with `0 ln 0 = 0`.
pub fn entropy(probabilities: &[f64]) -> f64 {
    -probabilities.iter().filter(|&&p| p > 0.0).map(|&p| p * p.ln()).sum::<f64>()
}

/// Estimates the entropy from the log-probabilities of the top tokens: renormalises them to sum to 1 and returns
/// `-Σ p ln(p + 1e-10)`. The paper's code logs this number for the top 10 tokens and the sampled one. It is lower than
/// the entropy of the full distribution. Returns 0 for an empty list.
pub fn truncated_entropy(top_log_probs: &[f64]) -> f64 {
    let total: f64 = top_log_probs.iter().map(|lp| lp.exp()).sum();
    if total <= 0.0 {
        return 0.0;
    }
    -top_log_probs.iter().map(|lp| lp.exp() / total).map(|p| p * (p + 1e-10).ln()).sum::<f64>()
}

/// Returns the arithmetic mean; `None` for an empty sequence.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0u64), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}
