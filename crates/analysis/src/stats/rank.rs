//! Correlation of ranks.

/// Spearman's rank correlation of pairs, ties ranked in the middle. `None` for fewer than three pairs, or where one side
/// has a single value.
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

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |i: &usize| values.get(*i).copied().unwrap_or(f64::NAN);
    order.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let mut out = vec![0.0; values.len()];
    let mut start = 0;
    for tie in order.chunk_by(|a, b| value(a) == value(b)) {
        let rank = start as f64 + (tie.len() as f64 + 1.0) / 2.0;
        for &i in tie {
            out.splice(i..=i, [rank]);
        }
        start += tie.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_correlated_as_in_textbooks() {
        // SciPy's spearmanr of these: 0.8207826816681233 (ties on both sides).
        let pairs = [(1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (4.0, 8.0), (5.0, 7.0)];
        assert!((rank_correlation(&pairs).unwrap() - 0.820_782_681_668_123_3).abs() < 1e-12);
        let turned = pairs.map(|(x, y)| (x, -y));
        assert!((rank_correlation(&turned).unwrap() + 0.820_782_681_668_123_3).abs() < 1e-12);
        assert_eq!(rank_correlation(&[(1.0, 2.0), (3.0, 2.0), (2.0, 2.0)]), None);
        assert_eq!(rank_correlation(&pairs[..2]), None);
    }
}
