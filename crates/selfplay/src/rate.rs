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
