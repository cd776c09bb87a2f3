//! Entropies of sampled text, in nats per token.

/// Entropy of one whole distribution, `-Σ p ln p`; probabilities of 0 count as nothing.
pub fn entropy(probabilities: &[f64]) -> f64 {
    -probabilities.iter().filter(|&&p| p > 0.0).map(|&p| p * p.ln()).sum::<f64>()
}

/// Entropy estimated from the log-probabilities of a few top tokens: they are renormalised to sum to 1, then
/// `-Σ p ln(p + 1e-10)`. This is the number that the paper's code logs (its top 10 and the sampled token); it is below
/// the entropy of the whole distribution. 0 for an empty list.
pub fn truncated_entropy(top_log_probs: &[f64]) -> f64 {
    let total: f64 = top_log_probs.iter().map(|lp| lp.exp()).sum();
    if total <= 0.0 {
        return 0.0;
    }
    -top_log_probs.iter().map(|lp| lp.exp() / total).map(|p| p * (p + 1e-10).ln()).sum::<f64>()
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0u64), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_distribution_has_the_logarithm_of_its_size() {
        assert!((entropy(&[0.25; 4]) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(entropy(&[1.0, 0.0]), 0.0);
        assert_eq!(truncated_entropy(&[]), 0.0);
        assert_eq!(mean([]), None);
    }
}
