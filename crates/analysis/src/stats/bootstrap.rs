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

impl Interval {
    /// Describes the position of a value relative to the interval, which the text before has named.
    pub fn place(&self, value: f64) -> &'static str {
        if value < self.low {
            "below that range"
        } else if value > self.high {
            "above that range"
        } else {
            "within that range"
        }
    }
}

/// Returns the mean of `values` with a percentile bootstrap interval at `level` from `resamples` resamples. The result
/// depends on the seed only. Returns `None` if `values` is empty.
pub fn bootstrap_mean(values: &[f64], level: f64, resamples: usize, seed: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len();
    let value = values.iter().sum::<f64>() / n as f64;
    let mut rng = fastrand::Rng::with_seed(seed);
    let resample = |_| (0..n).filter_map(|_| values.get(rng.usize(..n))).sum::<f64>() / n as f64;
    Some(percentiles(value, level, (0..resamples.max(1)).map(resample).collect()))
}

/// Returns the interval that contains the middle fraction `level` of the resampled means.
fn percentiles(value: f64, level: f64, mut means: Vec<f64>) -> Interval {
    means.sort_by(f64::total_cmp);
    let low = quantile_of_sorted(&means, 0.5 - level / 2.0);
    Interval { value, low, high: quantile_of_sorted(&means, 0.5 + level / 2.0) }
}

/// Returns the mean of a matrix, whose rows have the same length, with a percentile bootstrap interval at `level`. Each
/// resample draws rows and columns with replacement, so that the interval covers the choice of both. The result depends on
/// the seed only. Returns `None` for an empty matrix.
pub fn bootstrap_matrix(rows: &[Vec<f64>], level: f64, resamples: usize, seed: u64) -> Option<Interval> {
    let columns = rows.first().map(Vec::len).filter(|columns| *columns > 0)?;
    let count = (rows.len() * columns) as f64;
    let mut rng = fastrand::Rng::with_seed(seed);
    let resample = |_| {
        let mut drawn = vec![0.0; columns];
        (0..columns).for_each(|_| drawn[rng.usize(..columns)] += 1.0);
        let sum_of = |row: &Vec<f64>| row.iter().zip(&drawn).map(|(x, times)| x * times).sum::<f64>();
        (0..rows.len()).map(|_| sum_of(&rows[rng.usize(..rows.len())])).sum::<f64>() / count
    };
    let value = rows.iter().flatten().sum::<f64>() / count;
    Some(percentiles(value, level, (0..resamples.max(1)).map(resample).collect()))
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
        let values = |n: usize| (0..n).map(|i| f64::from(u8::from(i.is_multiple_of(4)))).collect::<Vec<_>>();
        let small = bootstrap_mean(&values(40), 0.95, 2000, 1).unwrap();
        let large = bootstrap_mean(&values(4000), 0.95, 2000, 1).unwrap();
        assert_eq!(large.value, 0.25);
        assert!(small.low < 0.25 && 0.25 < small.high);
        // Use the normal approximation: 2 · 1.96 · sqrt(p (1 - p) / n).
        let expected = 2.0 * 1.96 * (0.25_f64 * 0.75 / 4000.0).sqrt();
        assert!(((large.high - large.low) / expected - 1.0).abs() < 0.1, "{large:?} {expected}");
        assert_eq!(bootstrap_mean(&[], 0.95, 10, 1), None);
    }

    #[test]
    fn the_interval_of_a_matrix_covers_rows_and_columns() {
        let width = |rows: &[Vec<f64>]| {
            let found = bootstrap_matrix(rows, 0.95, 2000, 1).unwrap();
            (found.value, found.high - found.low)
        };
        let column = |i: usize| f64::from(u8::from(i.is_multiple_of(4)));
        // The rows are equal, so only the columns vary, as in `bootstrap_mean`.
        let equal = vec![(0..400).map(column).collect::<Vec<_>>(); 5];
        let expected = 2.0 * 1.96 * (0.25_f64 * 0.75 / 400.0).sqrt();
        let (value, over_columns) = width(&equal);
        assert_eq!(value, 0.25);
        assert!((over_columns / expected - 1.0).abs() < 0.1, "{over_columns} {expected}");
        // Rows that differ by a constant widen the interval, because their standard error is 0.1 * sqrt(2 / 5).
        let shifted: Vec<Vec<f64>> =
            (-2..=2).map(|row| (0..400).map(|i| column(i) + 0.1 * f64::from(row)).collect()).collect();
        let expected = (expected.powi(2) + (2.0 * 1.96 * 0.1 * (2.0_f64 / 5.0).sqrt()).powi(2)).sqrt();
        let (value, over_both) = width(&shifted);
        assert!(
            (value - 0.25).abs() < 1e-12 && (over_both / expected - 1.0).abs() < 0.1,
            "{over_both} {expected}"
        );
        assert_eq!(bootstrap_matrix(&[], 0.95, 10, 1), None);
        assert_eq!(bootstrap_matrix(&[Vec::new()], 0.95, 10, 1), None);
    }

    #[test]
    fn pass_at_k_ignores_problems_with_too_few_samples() {
        let tallies = [(8, 0), (8, 8), (4, 4), (0, 0)];
        assert_eq!(pass_at_k_interval(&tallies, 8, 0.95, 1).unwrap().value, 0.5);
        assert_eq!(pass_at_k_interval(&[(1, 1)], 2, 0.95, 1), None);
    }
}
