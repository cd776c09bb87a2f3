//! Samples tokens from logits, with the log-probability of the token and the entropy of the distribution, in
//! one pass over the vocabulary.
//!
//! The head's product is computed in chunks of the vocabulary. While a chunk is in the cache, its maximum, its
//! sum of exponentials and its entropy term are computed for all columns. Sampling a column then reads the sums
//! of all chunks, but the logits of only one.

use rayon::prelude::*;

use super::panel::{Columns, MAX_WIDTH, product_here};
use crate::gemm::Write;
use crate::{math, simd};
use sgs_base::philox;
use sgs_lm::decode::{SampleSpec, SampledToken, SamplingParams};

/// Tokens per chunk of the vocabulary.
pub(crate) const CHUNK: usize = 128;

/// Statistics of each chunk and column: maximum `m` of the logits `x`, `Σ e^(x-m)`, `Σ (x-m) e^(x-m)`, `Σ e^((x-m)/T)`.
pub(crate) const STATISTICS: usize = 4;

/// Returns the number of statistics for a vocabulary size and a panel width.
pub(crate) fn statistics_len(vocabulary: usize, width: usize) -> usize {
    vocabulary.div_ceil(CHUNK) * STATISTICS * width
}

/// Computes the logits of a panel, `[vocabulary, width]`, and their statistics on all threads. `head` is `[vocabulary,
/// inner]`, and `x` has `inner` features. `inverse_temperature` has one entry per column; it is 1 for greedy sampling.
pub(crate) fn head(
    head: &[f32],
    inner: usize,
    x: Columns<'_>,
    width: usize,
    inverse_temperature: &[f32],
    logits: &mut [f32],
    statistics: &mut [f32],
) {
    let tempered = inverse_temperature.iter().any(|t| *t != 1.0);
    logits
        .par_chunks_mut(CHUNK * width)
        .zip(statistics.par_chunks_mut(STATISTICS * width))
        .zip(head.par_chunks(CHUNK * inner))
        .for_each(|((logits, statistics), head)| {
            product_here(head, inner, x, width, logits, Write::Set);
            summarise(logits, width, tempered.then_some(inverse_temperature), statistics);
        });
}

fn summarise(logits: &[f32], width: usize, inverse_temperature: Option<&[f32]>, statistics: &mut [f32]) {
    simd(
        #[inline(always)]
        || match width {
            16 => summarise_columns::<16>(logits, inverse_temperature, statistics),
            32 => summarise_columns::<32>(logits, inverse_temperature, statistics),
            48 => summarise_columns::<48>(logits, inverse_temperature, statistics),
            _ => summarise_columns::<64>(logits, inverse_temperature, statistics),
        },
    );
}

#[inline(always)]
fn summarise_columns<const W: usize>(
    logits: &[f32],
    inverse_temperature: Option<&[f32]>,
    statistics: &mut [f32],
) {
    let mut peak = [f32::NEG_INFINITY; W];
    for row in logits.chunks_exact(W) {
        for i in 0..W {
            peak[i] = if row[i] > peak[i] { row[i] } else { peak[i] };
        }
    }
    let (mut mass, mut moment) = ([0.0f32; W], [0.0f32; W]);
    for row in logits.chunks_exact(W) {
        for i in 0..W {
            let x = row[i] - peak[i];
            let e = math::exp(x);
            mass[i] += e;
            moment[i] = x.mul_add(e, moment[i]);
        }
    }
    let mut tempered = mass;
    if let Some(inverse) = inverse_temperature {
        tempered = [0.0; W];
        for row in logits.chunks_exact(W) {
            for i in 0..W {
                tempered[i] += math::exp((row[i] - peak[i]) * inverse[i]);
            }
        }
    }
    for (to, from) in statistics.chunks_exact_mut(W).zip([peak, mass, moment, tempered]) {
        to.copy_from_slice(&from);
    }
}

/// The merged statistics of each column's distribution.
pub(crate) struct Totals {
    peak: [f32; MAX_WIDTH],
    mass: [f32; MAX_WIDTH],
    moment: [f32; MAX_WIDTH],
}

/// Merges the statistics of the chunks and rescales their last row to the column's maximum.
pub(crate) fn merge(statistics: &mut [f32], width: usize, inverse_temperature: &[f32]) -> Totals {
    let (mut peak, mut mass, mut moment) =
        ([f32::NEG_INFINITY; MAX_WIDTH], [0.0f32; MAX_WIDTH], [0.0f32; MAX_WIDTH]);
    simd(
        #[inline(always)]
        || {
            for chunk in statistics.chunks_exact(STATISTICS * width) {
                for (peak, m) in peak.iter_mut().zip(&chunk[..width]) {
                    *peak = if m > peak { *m } else { *peak };
                }
            }
            for chunk in statistics.chunks_exact_mut(STATISTICS * width) {
                let (fixed, tempered) = chunk.split_at_mut(3 * width);
                for i in 0..width {
                    let below = fixed[i] - peak[i];
                    let scale = math::exp(below);
                    mass[i] = scale.mul_add(fixed[width + i], mass[i]);
                    let own = below.mul_add(fixed[width + i], fixed[2 * width + i]);
                    moment[i] = scale.mul_add(own, moment[i]);
                    tempered[i] *= math::exp(below * inverse_temperature[i]);
                }
            }
        },
    );
    Totals { peak, mass, moment }
}

/// Logits and statistics of a panel.
pub(crate) struct PanelLogits<'a> {
    pub logits: &'a [f32],
    pub statistics: &'a [f32],
    pub totals: &'a Totals,
    pub width: usize,
}

impl PanelLogits<'_> {
    /// Samples the next token of one column.
    pub fn draw(&self, column: usize, draw: &SampleSpec, candidates: &mut Vec<(f32, u32)>) -> SampledToken {
        let totals = self.totals;
        let (peak, mass, moment) = (totals.peak[column], totals.mass[column], totals.moment[column]);
        if !(peak.is_finite() && mass.is_finite() && moment.is_finite()) {
            return SampledToken { token: 0, log_prob: f32::NAN, entropy: f32::NAN, finite: false };
        }
        let uniform = philox::uniform(draw.seed, draw.index);
        let token = if draw.params.temperature == 0.0 {
            self.most_probable(column, peak)
        } else if draw.params.truncates() {
            self.fill_candidates(column, candidates);
            truncated(candidates, draw.params, uniform)
        } else {
            self.whole(column, draw.params.temperature, uniform)
        };
        let log_mass = f64::from(mass).ln();
        let logit = f64::from(self.logit(token as usize, column));
        SampledToken {
            token,
            log_prob: (logit - f64::from(peak) - log_mass) as f32,
            // The entropy is -Σ p ln p with p = e^(x - peak) / mass.
            entropy: (log_mass - f64::from(moment) / f64::from(mass)).max(0.0) as f32,
            finite: true,
        }
    }

    fn logit(&self, token: usize, column: usize) -> f32 {
        self.logits[token * self.width + column]
    }

    fn vocabulary(&self) -> usize {
        self.logits.len() / self.width
    }

    /// Returns the first token with the largest logit.
    fn most_probable(&self, column: usize, peak: f32) -> u32 {
        let chunks = self.statistics.chunks_exact(STATISTICS * self.width);
        let chunk = chunks.enumerate().find(|(_, s)| s[column] == peak).map_or(0, |(i, _)| i);
        let first = chunk * CHUNK;
        let end = (first + CHUNK).min(self.vocabulary());
        (first..end).find(|t| self.logit(*t, column) == peak).unwrap_or(first) as u32
    }

    /// Inverts the cumulative distribution at `uniform`: returns the first token whose cumulative probability
    /// exceeds it.
    fn whole(&self, column: usize, temperature: f32, uniform: f64) -> u32 {
        let sums = || {
            let chunks = self.statistics.chunks_exact(STATISTICS * self.width);
            chunks.map(|s| f64::from(s[3 * self.width + column]))
        };
        let mut left = uniform * sums().sum::<f64>();
        let (mut chosen, mut last) = (None, 0);
        for (index, sum) in sums().enumerate() {
            if sum > 0.0 {
                last = index;
                if left < sum {
                    chosen = Some(index);
                    break;
                }
            }
            left -= sum;
        }
        // Rounding may leave a rest after the last chunk; it belongs to the end of that chunk.
        let chunk = chosen.unwrap_or(last);
        let share = if chosen.is_some() { left } else { f64::MAX };
        let own_peak = self.statistics[chunk * STATISTICS * self.width + column];
        let below = (own_peak - self.totals.peak[column]) / temperature;
        // Rescale to the chunk's own maximum, so that its terms cannot all underflow.
        self.within(chunk, column, own_peak, 1.0 / temperature, share / f64::from(math::exp(below)))
    }

    /// Returns the first token of a chunk whose cumulative `e^((x - peak) / T)` exceeds `left`, or the last
    /// token with a positive probability.
    fn within(&self, chunk: usize, column: usize, peak: f32, inverse_temperature: f32, left: f64) -> u32 {
        let first = chunk * CHUNK;
        let count = CHUNK.min(self.vocabulary() - first);
        let mut mass = [0.0f32; CHUNK];
        for (i, mass) in mass[..count].iter_mut().enumerate() {
            *mass = self.logit(first + i, column);
        }
        simd(
            #[inline(always)]
            || mass.iter_mut().for_each(|m| *m = math::exp((*m - peak) * inverse_temperature)),
        );
        // Use f32 and the same order as the chunk's sum.
        let (mut sum, mut last) = (0.0f32, 0);
        for (i, mass) in mass[..count].iter().enumerate() {
            sum += mass;
            if f64::from(sum) > left {
                return (first + i) as u32;
            }
            if *mass > 2e-38 {
                last = i;
            }
        }
        (first + last) as u32
    }

    fn fill_candidates(&self, column: usize, candidates: &mut Vec<(f32, u32)>) {
        candidates.clear();
        candidates.extend((0..self.vocabulary()).map(|t| (self.logit(t, column), t as u32)));
    }
}

/// Samples from the most probable tokens only: first the `top_k` most probable ones, then the smallest number of them
/// whose probabilities reach `top_p` of the rest. Both apply after the temperature; equal logits are ordered by id.
pub fn truncated(candidates: &mut [(f32, u32)], params: SamplingParams, uniform: f64) -> u32 {
    let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let peak = candidates.iter().map(|c| c.0).fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| (f64::from(logit - peak) / f64::from(params.temperature)).exp();
    let mut kept = candidates.len();
    if params.top_k > 0 && (params.top_k as usize) < kept {
        kept = params.top_k as usize;
        candidates.select_nth_unstable_by(kept - 1, order);
    }
    let candidates = &mut candidates[..kept];
    let mut total: f64 = candidates.iter().map(|c| weight(c.0)).sum();
    let mut sorted = 0;
    if params.top_p < 1.0 {
        let wanted = f64::from(params.top_p) * total;
        let mut sum = 0.0;
        let mut enough = 0;
        // Most of the probability is on few tokens: sort a few first, and more only if these do not suffice.
        while enough == 0 {
            let end = (sorted.max(32) * 4).min(candidates.len());
            if end < candidates.len() {
                candidates[sorted..].select_nth_unstable_by(end - sorted - 1, order);
            }
            candidates[sorted..end].sort_unstable_by(order);
            for (i, candidate) in candidates[sorted..end].iter().enumerate() {
                sum += weight(candidate.0);
                if sum >= wanted {
                    enough = sorted + i + 1;
                    break;
                }
            }
            sorted = end;
            if end == candidates.len() && enough == 0 {
                enough = end;
            }
        }
        (kept, total) = (enough, sum);
    }
    let candidates = &mut candidates[..kept];
    if sorted == 0 {
        candidates.sort_unstable_by(order);
    }
    let mut left = uniform * total;
    for candidate in candidates.iter() {
        left -= weight(candidate.0);
        if left < 0.0 {
            return candidate.1;
        }
    }
    candidates.last().map_or(0, |c| c.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_base::random::SeededRng;
    use sgs_lm::decode::RequestId;

    struct Fixture {
        vocabulary: usize,
        width: usize,
        logits: Vec<f32>,
        statistics: Vec<f32>,
        totals: Totals,
    }

    /// Sets the logits directly, by applying the head to unit vectors.
    fn fixture(columns: &[Vec<f32>], temperatures: &[f32]) -> Fixture {
        let (vocabulary, width) = (columns[0].len(), columns.len());
        let mut logits = vec![0.0; vocabulary * width];
        let mut weights = vec![0.0; vocabulary * width];
        for (c, column) in columns.iter().enumerate() {
            column.iter().enumerate().for_each(|(t, x)| weights[t * width + c] = *x);
        }
        let mut unit = vec![0.0; width * width];
        (0..width).for_each(|c| unit[c * width + c] = 1.0);
        let inverse: Vec<f32> = temperatures.iter().map(|t| if *t == 0.0 { 1.0 } else { 1.0 / t }).collect();
        let mut statistics = vec![0.0; statistics_len(vocabulary, width)];
        head(&weights, width, Columns::F32(&unit), width, &inverse, &mut logits, &mut statistics);
        let totals = merge(&mut statistics, width, &inverse);
        Fixture { vocabulary, width, logits, statistics, totals }
    }

    impl Fixture {
        fn draw(&self, column: usize, seed: u64, params: SamplingParams) -> SampledToken {
            let panel = PanelLogits {
                logits: &self.logits,
                statistics: &self.statistics,
                totals: &self.totals,
                width: self.width,
            };
            let draw = SampleSpec { id: RequestId(0), seed, index: 3, params };
            panel.draw(column, &draw, &mut Vec::with_capacity(self.vocabulary))
        }
    }

    fn columns(vocabulary: usize, spread: f32) -> Vec<Vec<f32>> {
        let mut rng = SeededRng::stream(3, vocabulary as u64);
        (0..32).map(|c| (0..vocabulary).map(|_| spread * rng.normal() + c as f32).collect()).collect()
    }

    fn exact(column: &[f32], temperature: f64) -> Vec<f64> {
        let peak = column.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f64> = column.iter().map(|x| (f64::from(x - peak) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }

    #[test]
    fn log_probs_and_entropies_are_the_models_at_every_temperature() {
        for (vocabulary, spread) in [(1, 1.0), (5, 1.0), (128, 3.0), (1000, 8.0), (1000, 0.0), (1000, 80.0)] {
            let columns = columns(vocabulary, spread);
            let temperatures: Vec<f32> = (0..32).map(|c| [1.0, 0.0, 0.5, 2.0][c % 4]).collect();
            let fixture = fixture(&columns, &temperatures);
            for (c, column) in columns.iter().enumerate() {
                let params = SamplingParams { temperature: temperatures[c], ..SamplingParams::default() };
                let sampled = fixture.draw(c, 7, params);
                let p = exact(column, 1.0);
                let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
                assert!((f64::from(sampled.entropy) - entropy).abs() < 1e-5, "{vocabulary} {spread}");
                let want = p[sampled.token as usize].ln();
                assert!(
                    (f64::from(sampled.log_prob) - want).abs() < 2e-5,
                    "{vocabulary} {spread} {} {want}",
                    sampled.log_prob
                );
                if temperatures[c] == 0.0 {
                    assert!(p.iter().all(|q| *q <= p[sampled.token as usize]));
                }
            }
        }
    }

    /// Checks that samples follow the distribution with temperature and truncation.
    #[test]
    fn frequencies_match_probabilities() {
        let vocabulary = 300;
        let column = columns(vocabulary, 1.5).swap_remove(0);
        for (temperature, top_p, top_k) in
            [(1.0, 1.0, 0), (0.6, 1.0, 0), (1.7, 1.0, 20), (1.0, 0.8, 0), (0.9, 0.5, 40)]
        {
            let params = SamplingParams { temperature, top_p, top_k };
            let fixture = fixture(&vec![column.clone(); 16], &[temperature; 16]);
            let mut p = exact(&column, f64::from(temperature));
            let mut order: Vec<usize> = (0..vocabulary).collect();
            order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
            if top_k > 0 {
                order[top_k as usize..].iter().for_each(|t| p[*t] = 0.0);
            }
            let total: f64 = p.iter().sum();
            let mut sum = 0.0;
            for t in order {
                if sum >= f64::from(top_p) * total {
                    p[t] = 0.0;
                }
                sum += p[t];
            }
            let total: f64 = p.iter().sum();
            let draws = 100_000;
            let mut counts = vec![0.0f64; vocabulary];
            (0..draws).for_each(|seed| {
                counts[fixture.draw(seed as usize % 16, seed, params).token as usize] += 1.0
            });
            let (mut chi2, mut bins, mut rest) = (0.0, 0.0, (0.0, 0.0));
            for (n, p) in counts.iter().zip(&p) {
                let expected = p / total * draws as f64;
                assert!(*p > 0.0 || *n == 0.0, "an excluded token was sampled");
                if expected > 10.0 {
                    chi2 += (n - expected).powi(2) / expected;
                    bins += 1.0;
                } else {
                    rest = (rest.0 + n, rest.1 + expected);
                }
            }
            if rest.1 > 10.0 {
                chi2 += (rest.0 - rest.1).powi(2) / rest.1;
                bins += 1.0;
            }
            let df: f64 = bins - 1.0;
            assert!(chi2 < df + 5.0 * (2.0 * df).sqrt() + 5.0, "{params:?}: {chi2} over {df}");
        }
    }

    #[test]
    fn a_distant_chunk_with_all_the_mass_is_found() {
        let mut column = vec![-90.0f32; 1000];
        column[777] = 30.0;
        column[778] = 29.0;
        let fixture = fixture(&vec![column; 16], &[1.0; 16]);
        let ones = (0..1000).filter(|s| fixture.draw(0, *s, SamplingParams::default()).token == 777).count();
        let all = (0..1000).all(|s| matches!(fixture.draw(5, s, SamplingParams::default()).token, 777 | 778));
        assert!(all && (680..780).contains(&ones), "{ones}");
    }

    #[test]
    fn logits_that_are_not_finite_are_reported() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut columns = columns(200, 1.0);
            columns[3][150] = bad;
            // The unit vectors spread a NaN over its row, so every column of this panel is invalid.
            let fixture = fixture(&columns, &[1.0; 32]);
            assert!(!fixture.draw(3, 1, SamplingParams::default()).finite);
        }
    }
}
