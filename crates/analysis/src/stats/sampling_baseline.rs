//! The sampling baseline: an estimate of what sampling without training would solve, from a few samples of the base model
//! per target.
//!
//! Up to the number of available samples, the estimate is the unbiased pass@k. Beyond, solved targets remain solved, and an
//! unsolved target is solved with the posterior probability under a distribution of solve rates. Two distributions are
//! fitted by maximum likelihood: a beta distribution over the targets, and a beta distribution with an additional fraction
//! of unsolvable targets, which is used only if the counts support it. For many samples, the first one overestimates and
//! the second one underestimates. The estimate is their mean, and the interval covers both.

use super::student::log_gamma;
use super::{Interval, bootstrap::quantile_of_sorted};
use sgs_selfplay::rate::pass_at_k;
use std::collections::BTreeMap;

/// Number of resamples of the targets for the interval.
const RESAMPLES: usize = 200;

/// Maximum number of steps of a search.
const STEPS: usize = 400;

/// Seed of the resamples. It is fixed so that repeated reports agree.
const SEED: u64 = 2027;

/// Number of targets by (samples, successes).
type TallyCounts = Vec<((u32, u32), f64)>;

/// Counts, and the distributions fitted to them: without and with unsolvable targets.
type FittedLaws = (TallyCounts, [BetaLaw; 2]);

/// An estimate of the fraction of targets that the base model solves with any number of samples.
#[derive(Clone, Debug)]
pub struct SamplingBaseline {
    own: FittedLaws,
    /// Fits on resampled targets.
    resampled: Vec<FittedLaws>,
    /// Largest number of samples of a target.
    pub samples: u32,
}

/// A beta distribution of solve rates, with a fraction of unsolvable targets whose rate is 0.
#[derive(Clone, Copy, Debug)]
struct BetaLaw {
    a: f64,
    b: f64,
    out_of_reach: f64,
}

impl SamplingBaseline {
    /// Fits the estimate to the samples and successes of each target. Returns `None` if no sample or every sample is a success.
    pub fn of(tallies: &[(u32, u32)]) -> Option<Self> {
        let tallies: Vec<(u32, u32)> = tallies.iter().copied().filter(|(n, c)| *n > 0 && c <= n).collect();
        let own = fitted(counted(tallies.iter().copied()))?;
        let mut rng = fastrand::Rng::with_seed(SEED);
        let resampled = (0..RESAMPLES)
            .filter_map(|_| {
                let drawn = (0..tallies.len()).filter_map(|_| tallies.get(rng.usize(..tallies.len())));
                fitted(counted(drawn.copied()))
            })
            .collect();
        let samples = tallies.iter().map(|t| t.0).max()?;
        Some(Self { own, resampled, samples })
    }

    /// Returns the fraction of targets that are solved at least once in `samples` samples each, with a 95% bootstrap interval
    /// over the targets: from the lower end of the lower distribution to the upper end of the higher one.
    pub fn solved(&self, samples: f64) -> Interval {
        let [most, least] = shares(&self.own, samples);
        let value = f64::midpoint(most, least);
        let (mut high, mut low): (Vec<f64>, Vec<f64>) = self
            .resampled
            .iter()
            .map(|fitted| shares(fitted, samples))
            .map(|[most, least]| (most.max(least), most.min(least)))
            .unzip();
        if low.is_empty() {
            return Interval { value, low: f64::NAN, high: f64::NAN };
        }
        low.sort_by(f64::total_cmp);
        high.sort_by(f64::total_cmp);
        Interval { value, low: quantile_of_sorted(&low, 0.025), high: quantile_of_sorted(&high, 0.975) }
    }
}

fn counted(tallies: impl Iterator<Item = (u32, u32)>) -> TallyCounts {
    let mut counts: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    tallies.for_each(|tally| *counts.entry(tally).or_default() += 1.0);
    counts.into_iter().collect()
}

fn fitted(counts: TallyCounts) -> Option<FittedLaws> {
    let beta = BetaLaw::of(&counts)?;
    let round_facts = beta.beside_others(&counts);
    // With few targets, a fit can suggest anything. Chance alone exceeds this likelihood ratio in 1% of cases.
    let is_told = round_facts.log_likelihood(&counts) > beta.log_likelihood(&counts) + 2.7;
    Some((counts, [beta, if is_told { round_facts } else { beta }]))
}

/// Returns the fraction of targets that are solved at least once, by each distribution.
fn shares((counts, laws): &FittedLaws, samples: f64) -> [f64; 2] {
    let all: f64 = counts.iter().map(|(_, count)| count).sum();
    laws.map(|law| counts.iter().map(|&((n, c), count)| count * law.chance(n, c, samples)).sum::<f64>() / all)
}

impl BetaLaw {
    /// Fits a beta distribution by maximum likelihood.
    fn of(counts: &TallyCounts) -> Option<Self> {
        let proved: f64 = counts.iter().map(|((_, c), count)| f64::from(*c) * count).sum();
        let all: f64 = counts.iter().map(|((n, _), count)| f64::from(*n) * count).sum();
        if proved <= 0.0 || proved >= all {
            return None;
        }
        let at = |[mean, size]: [f64; 2]| Self::at([mean, size, f64::NEG_INFINITY]);
        let start = [(proved / (all - proved)).ln(), 0.0];
        Some(at(highest(start, |x| at(x).log_likelihood(counts))))
    }

    /// Fits a beta distribution with unsolvable targets. It starts from few of them and this distribution, and from many of them
    /// and higher solve rates.
    fn beside_others(&self, counts: &TallyCounts) -> Self {
        let (mean, size) = ((self.a / self.b).ln(), (self.a + self.b).ln());
        let starts = [[mean, size, -2.0], [mean + 1.0, size + 1.0, 0.5]];
        let found = starts.map(|start| Self::at(highest(start, |x| Self::at(x).log_likelihood(counts))));
        let [few, many] = found;
        if few.log_likelihood(counts) >= many.log_likelihood(counts) { few } else { many }
    }

    /// Creates a distribution from the logit of the mean, the logarithm of a + b and the logit of the unsolvable fraction.
    fn at([logit, log_size, out_of_reach]: [f64; 3]) -> Self {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (mean, size) = (logistic(logit), log_size.clamp(-12.0, 12.0).exp());
        Self { a: mean * size, b: (1.0 - mean) * size, out_of_reach: logistic(out_of_reach) }
    }

    fn log_likelihood(&self, counts: &TallyCounts) -> f64 {
        let none = log_beta(self.a, self.b);
        let one = |&((n, c), count): &((u32, u32), f64)| {
            let in_reach = log_beta(self.a + f64::from(c), self.b + f64::from(n - c)) - none;
            let chance = (1.0 - self.out_of_reach) * in_reach.exp();
            count * if c == 0 { chance + self.out_of_reach } else { chance }.ln()
        };
        counts.iter().map(one).sum()
    }

    /// Returns the probability that a target with `c` successes in `n` samples is solved at least once in `samples` samples.
    #[allow(clippy::expect_used, reason = "the formula is used for k <= n only")]
    fn chance(&self, n: u32, c: u32, samples: f64) -> f64 {
        if samples <= f64::from(n) {
            let at = |k: f64| match k as u64 {
                0 => 0.0,
                k => pass_at_k(n.into(), c.into(), k).expect("invariant: k <= n"),
            };
            let (below, rest) = (samples.floor(), samples.fract());
            return at(below) + if rest > 0.0 { rest * (at(below + 1.0) - at(below)) } else { 0.0 };
        }
        if c > 0 {
            return 1.0;
        }
        let failed = self.b + f64::from(n);
        let in_reach =
            (1.0 - self.out_of_reach) * (log_beta(self.a, failed) - log_beta(self.a, self.b)).exp();
        let proved = 1.0 - (log_beta(self.a, self.b + samples) - log_beta(self.a, failed)).exp();
        proved * in_reach / (in_reach + self.out_of_reach)
    }
}

/// Maximises a function by the simplex method of Nelder and Mead (1965), which needs no derivatives.
fn highest<const N: usize>(start: [f64; N], value: impl Fn([f64; N]) -> f64) -> [f64; N] {
    // Values that are not finite count as lowest.
    let value = |x: [f64; N]| Some(value(x)).filter(|v| v.is_finite()).unwrap_or(f64::NEG_INFINITY);
    let at = |x: [f64; N]| (x, value(x));
    let mut simplex = vec![at(start)];
    for i in 0..N {
        let mut corner = start;
        corner[i] += 1.0;
        simplex.push(at(corner));
    }
    for _ in 0..STEPS {
        simplex.sort_by(|x, y| y.1.total_cmp(&x.1));
        let (best, next, worst) = (simplex[0], simplex[N - 1], simplex[N]);
        if best.1 - worst.1 < 1e-7 {
            break;
        }
        let middle: [f64; N] =
            std::array::from_fn(|i| simplex[..N].iter().map(|corner| corner.0[i]).sum::<f64>() / N as f64);
        // A point on the line from the worst corner through the centroid of the others.
        let along = |by: f64| at(std::array::from_fn(|i| middle[i] + by * (middle[i] - worst.0[i])));
        let mirrored = along(1.0);
        simplex[N] = if mirrored.1 > best.1 {
            let farther = along(2.0);
            if farther.1 > mirrored.1 { farther } else { mirrored }
        } else if mirrored.1 > next.1 {
            mirrored
        } else {
            let nearer = along(if mirrored.1 > worst.1 { 0.5 } else { -0.5 });
            if nearer.1 <= worst.1.max(mirrored.1) {
                for corner in &mut simplex[1..] {
                    *corner = at(std::array::from_fn(|i| f64::midpoint(best.0[i], corner.0[i])));
                }
                continue;
            }
            nearer
        };
    }
    simplex.sort_by(|x, y| y.1.total_cmp(&x.1));
    simplex[0].0
}

fn log_beta(a: f64, b: f64) -> f64 {
    log_gamma(a) + log_gamma(b) - log_gamma(a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solve rates drawn from a beta distribution with a = 0.1 and b = 1.4.
    fn rates(count: usize) -> Vec<f64> {
        let mut rng = fastrand::Rng::with_seed(5);
        // Jöhnk's method: exact for any a and b, but slow.
        let mut draw = || loop {
            let (x, y) = (rng.f64().powf(1.0 / 0.1), rng.f64().powf(1.0 / 1.4));
            if x + y <= 1.0 && x + y > 0.0 {
                return x / (x + y);
            }
        };
        (0..count).map(|_| draw()).collect()
    }

    #[test]
    fn many_samples_are_predicted_from_few() {
        let rates = rates(2000);
        let mut rng = fastrand::Rng::with_seed(9);
        let tallies: Vec<(u32, u32)> =
            rates.iter().map(|p| (16, (0..16).map(|_| u32::from(rng.f64() < *p)).sum())).collect();
        let alone = SamplingBaseline::of(&tallies).unwrap();
        for samples in [64.0, 1000.0] {
            let truth = rates.iter().map(|p| 1.0 - (1.0 - p).powf(samples)).sum::<f64>() / rates.len() as f64;
            let found = alone.solved(samples);
            assert!(found.low < truth && truth < found.high, "{samples}: {found:?}, in truth {truth}");
            assert!((found.value - truth).abs() < 0.02, "{samples}: {found:?}, in truth {truth}");
            assert!(found.high - found.low < 0.1);
        }
    }

    #[test]
    fn unsolvable_targets_are_assumed_only_if_the_counts_support_them() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut tally = || {
            let rate = 0.6 * rng.f64();
            (16, (0..16).map(|_| u32::from(rng.f64() < rate)).sum())
        };
        let reachable: Vec<(u32, u32)> = (0..2000).map(|_| tally()).collect();
        let never = vec![(16, 0); 3000];
        let both = SamplingBaseline::of(&[reachable.clone(), never].concat()).unwrap();
        let [beta, round_facts] = both.own.1;
        assert!(
            beta.out_of_reach == 0.0 && (0.4..0.65).contains(&round_facts.out_of_reach),
            "{round_facts:?}"
        );
        let [most, least] = shares(&both.own, 1e5);
        assert!(least < 0.5 && most > least + 0.05, "{most} {least}");
        let found = both.solved(1e5);
        assert!(found.low <= least && found.high >= most, "{found:?}");
        assert_eq!(
            SamplingBaseline::of(&reachable[..40]).unwrap().own.1[1].out_of_reach,
            0.0,
            "forty targets are too few"
        );
    }

    #[test]
    fn the_estimate_is_exact_up_to_the_counted_samples_and_continuous_beyond() {
        let tallies = [(8, 0), (8, 1), (8, 8), (8, 0)];
        let alone = SamplingBaseline::of(&tallies).unwrap();
        let exact = |k: u64| tallies.iter().map(|t| pass_at_k(8, t.1.into(), k).unwrap()).sum::<f64>() / 4.0;
        for k in 1..=8 {
            assert!((alone.solved(k as f64).value - exact(k)).abs() < 1e-12);
        }
        assert_eq!(alone.solved(0.0).value, 0.0);
        let beyond = alone.solved(8.01).value;
        assert!((beyond - 0.5).abs() < 1e-2 && beyond >= 0.5, "{beyond}");
        let far: Vec<f64> = [16.0, 64.0, 1e4].map(|k| alone.solved(k).value).to_vec();
        assert!(far.windows(2).all(|w| w[0] < w[1]) && far.iter().all(|x| *x <= 1.0), "{far:?}");
    }

    #[test]
    fn there_is_no_estimate_without_both_successes_and_failures() {
        assert!(SamplingBaseline::of(&[]).is_none());
        assert!(SamplingBaseline::of(&[(8, 0), (8, 0)]).is_none());
        assert!(SamplingBaseline::of(&[(8, 8)]).is_none());
    }
}
