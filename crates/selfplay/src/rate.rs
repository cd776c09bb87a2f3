//! Solve rates and pass@k.

use crate::data::Verdict;
use serde::{Deserialize, Serialize};

/// Counts of the verdicts of one problem in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Rollouts with a valid proof.
    pub proved: u32,
    /// Rollouts with any verdict except `infra`.
    pub judged: u32,
    /// Rollouts that were lost or could not be judged.
    pub infra: u32,
}

impl Tally {
    /// Counts verdicts.
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            if !verdict.is_judged() {
                tally.infra += 1;
                continue;
            }
            tally.judged += 1;
            tally.proved += u32::from(verdict == Verdict::Proved);
        }
        tally
    }

    /// Returns the solve rate s(x) = proved / judged in `0..=1` (paper, §3.2); `None` if nothing was judged.
    pub fn rate(&self) -> Option<f64> {
        (self.judged > 0).then(|| f64::from(self.proved) / f64::from(self.judged))
    }
}

/// Returns the unbiased estimate of pass@k from `correct` successes in `samples` attempts: the probability that `k`
/// attempts drawn without replacement contain a success, `1 - C(n-c, k) / C(n, k)` (Chen et al. 2021, eq. 1).
///
/// Returns `None` if `k` is 0, if there are fewer than `k` samples, or if `correct > samples`.
pub fn pass_at_k(samples: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || samples < k || correct > samples {
        return None;
    }
    if samples - correct < k {
        return Some(1.0);
    }
    let all_fail: f64 = (samples - correct + 1..=samples).map(|i| 1.0 - k as f64 / i as f64).product();
    Some(1.0 - all_fail)
}

/// Returns the number of problems by number of proved rollouts, `0..=k`. The bin follows from the solve rate, so a
/// problem with lost rollouts is in the nearest bin, and one without judged rollouts is in none.
pub fn solve_rate_histogram(tallies: impl IntoIterator<Item = Tally>, k: u32) -> Vec<u32> {
    let mut bins = vec![0u32; k as usize + 1];
    for rate in tallies.into_iter().filter_map(|tally| tally.rate()) {
        bins[(rate * f64::from(k)).round() as usize] += 1;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn infra_does_not_count_as_an_attempt() {
        let tally = Tally::of([
            Verdict::Proved,
            Verdict::Infra,
            Verdict::Refused,
            Verdict::Malformed,
            Verdict::Resource,
        ]);
        assert_eq!(tally, Tally { proved: 1, judged: 4, infra: 1 });
        assert_eq!(tally.rate(), Some(0.25));
        assert_eq!(Tally::of([Verdict::Infra]).rate(), None);
    }

    #[test]
    fn pass_at_k_has_the_known_values() {
        assert_eq!(pass_at_k(8, 0, 4), Some(0.0));
        assert_eq!(pass_at_k(8, 8, 1), Some(1.0));
        assert_eq!(pass_at_k(8, 2, 8), Some(1.0));
        assert!((pass_at_k(4, 1, 2).unwrap() - 0.5).abs() < 1e-15);
        assert_eq!(pass_at_k(3, 1, 4), None);
        assert_eq!(pass_at_k(3, 1, 0), None);
        assert_eq!(pass_at_k(3, 4, 1), None);
    }

    fn binomial(n: u64, k: u64) -> f64 {
        if k > n { 0.0 } else { (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product() }
    }

    proptest! {
        #[test]
        fn pass_at_k_is_the_ratio_of_binomials(n in 1u64..60, c in 0u64..60, k in 1u64..60) {
            prop_assume!(c <= n && k <= n);
            let exact = 1.0 - binomial(n - c, k) / binomial(n, k);
            prop_assert!((pass_at_k(n, c, k).unwrap() - exact).abs() < 1e-9);
        }

        #[test]
        fn the_histogram_contains_every_judged_problem(proved in prop::collection::vec(0u32..=8, 0..40)) {
            let tallies: Vec<Tally> = proved.iter().map(|&p| Tally { proved: p, judged: 8, infra: 0 }).collect();
            let bins = solve_rate_histogram(tallies.iter().copied(), 8);
            prop_assert_eq!(bins.len(), 9);
            for (p, &count) in bins.iter().enumerate() {
                prop_assert_eq!(count as usize, proved.iter().filter(|&&x| x as usize == p).count());
            }
        }
    }
}
