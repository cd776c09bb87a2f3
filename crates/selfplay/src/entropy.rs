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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entropy_of_a_uniform_distribution_is_the_logarithm_of_its_size() {
        assert!((entropy(&[0.25; 4]) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(entropy(&[1.0, 0.0]), 0.0);
        assert_eq!(truncated_entropy(&[]), 0.0);
        assert_eq!(mean([]), None);
    }
}
