//! Rank statistics.

/// Returns Spearman's rank correlation of pairs, with mean ranks for ties. Returns `None` for fewer than three pairs, or if
/// all values on one side are equal.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let (x, y) = (ranks(pairs.iter().map(|p| p.0)), ranks(pairs.iter().map(|p| p.1)));
    let middle = (pairs.len() as f64 + 1.0) / 2.0;
    let product =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    let size = (product(&x, &x) * product(&y, &y)).sqrt();
    (size > 0.0).then(|| product(&x, &y) / size)
}

/// Returns the area under the ROC curve: the probability that a value of `better` exceeds one of `worse`, counting ties as
/// half. Returns `None` if either is empty.
pub fn area_under_curve(better: &[f64], worse: &[f64]) -> Option<f64> {
    if better.is_empty() || worse.is_empty() {
        return None;
    }
    let (n, m) = (better.len() as f64, worse.len() as f64);
    let sum: f64 = ranks(better.iter().chain(worse).copied()).iter().take(better.len()).sum();
    Some((sum - n * (n + 1.0) / 2.0) / (n * m))
}

/// Returns ranks from 1. Equal values get the mean of their ranks.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |i: &usize| values[*i];
    order.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let mut out = vec![0.0; values.len()];
    let mut start = 0;
    for tie in order.chunk_by(|a, b| value(a) == value(b)) {
        let rank = start as f64 + (tie.len() as f64 + 1.0) / 2.0;
        for &i in tie {
            out[i] = rank;
        }
        start += tie.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_the_fraction_of_pairs_in_order() {
        let (better, worse) = ([3.0, 2.0, 8.0], [1.0, 2.0, 2.0, 9.0]);
        let wins = |b: f64| worse.iter().map(|w| f64::from(b > *w) + 0.5 * f64::from(b == *w)).sum::<f64>();
        let share = better.iter().map(|b| wins(*b)).sum::<f64>() / 12.0;
        assert!((area_under_curve(&better, &worse).unwrap() - share).abs() < 1e-12, "{share}");
        assert_eq!(area_under_curve(&[], &worse), None);
    }

    #[test]
    fn rank_correlations_match_scipy() {
        // SciPy's spearmanr returns 0.8207826816681233 for these pairs, which have ties on both sides.
        let pairs = [(1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (4.0, 8.0), (5.0, 7.0)];
        assert!((rank_correlation(&pairs).unwrap() - 0.820_782_681_668_123_3).abs() < 1e-12);
        let turned = pairs.map(|(x, y)| (x, -y));
        assert!((rank_correlation(&turned).unwrap() + 0.820_782_681_668_123_3).abs() < 1e-12);
        assert_eq!(rank_correlation(&[(1.0, 2.0), (3.0, 2.0), (2.0, 2.0)]), None);
        assert_eq!(rank_correlation(&pairs[..2]), None);
    }
}
