//! Bootstrap confidence intervals.

use serde::Serialize;
use sgs_selfplay::rate::pass_at_k;

/// An estimate with a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Returns the mean of `values` with a percentile bootstrap interval at `level` from `resamples` resamples. The result
/// depends on the seed only. Returns `None` if there are no values.
pub fn bootstrap_mean(values: &[f64], level: f64, resamples: usize, seed: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len();
    let value = values.iter().sum::<f64>() / n as f64;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut means: Vec<f64> = (0..resamples.max(1))
        .map(|_| (0..n).filter_map(|_| values.get(rng.usize(..n))).sum::<f64>() / n as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    Some(Interval {
        value,
        low: quantile_of_sorted(&means, 0.5 - level / 2.0),
        high: quantile_of_sorted(&means, 0.5 + level / 2.0),
    })
}

/// Returns a quantile with linear interpolation, or NaN for an empty slice.
fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let position = p.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let below = position.floor() as usize;
    let share = position - below as f64;
    match (sorted.get(below), sorted.get(below + 1)) {
        (Some(a), Some(b)) => a + share * (b - a),
        (Some(a), None) => *a,
        _ => f64::NAN,
    }
}

/// Returns the mean of the unbiased pass@k over problems, given as (samples, successes), with a bootstrap interval over the
/// problems. Problems with fewer than `k` samples are ignored. Returns `None` if none remain.
pub fn pass_at_k_interval(tallies: &[(u32, u32)], k: u32, level: f64, seed: u64) -> Option<Interval> {
    let values: Vec<f64> = tallies
        .iter()
        .filter_map(|&(samples, correct)| pass_at_k(samples.into(), correct.into(), k.into()))
        .collect();
    bootstrap_mean(&values, level, 1000, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_shrinks_with_the_sample_and_contains_the_mean() {
        let values = |n: usize| (0..n).map(|i| f64::from(u8::from(i % 4 == 0))).collect::<Vec<_>>();
        let small = bootstrap_mean(&values(40), 0.95, 2000, 1).unwrap();
        let large = bootstrap_mean(&values(4000), 0.95, 2000, 1).unwrap();
        assert_eq!(large.value, 0.25);
        assert!(small.low < 0.25 && 0.25 < small.high);
        // The normal approximation: 2 · 1.96 · sqrt(p (1 - p) / n).
        let expected = 2.0 * 1.96 * (0.25_f64 * 0.75 / 4000.0).sqrt();
        assert!(((large.high - large.low) / expected - 1.0).abs() < 0.1, "{large:?} {expected}");
        assert_eq!(bootstrap_mean(&[], 0.95, 10, 1), None);
    }

    #[test]
    fn pass_at_k_ignores_problems_with_too_few_samples() {
        let tallies = [(8, 0), (8, 8), (4, 4), (0, 0)];
        assert_eq!(pass_at_k_interval(&tallies, 8, 0.95, 1).unwrap().value, 0.5);
        assert_eq!(pass_at_k_interval(&[(1, 1)], 2, 0.95, 1), None);
    }
}
