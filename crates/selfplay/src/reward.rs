//! Rewards of the Conjecturer: R_solve, R_guide, R_synth and their normalisation (paper, §3.2 and Appendix G.5).

use crate::config::{Normalisation, RatePopulation};
use crate::data::Review;

/// Returns the highest solve rate that is not "in the top 30% of solve rates within the current batch" (paper, §3.2).
///
/// `rates` are the solve rates of the round's conjectures, in any order; `hardest_fraction` is 0.7. With n rates in the
/// population, in ascending order, the threshold is the one at position `floor(0.7 n)`, computed in 64-bit floating
/// point and truncated exactly as in the paper's code (90 rates give position 62, not 63). Rates equal to the
/// threshold pass. An empty population gives 0, so that nothing passes.
pub fn conjecture_threshold(rates: &[f64], population: RatePopulation, hardest_fraction: f64) -> f64 {
    let counts = |rate: f64| match population {
        RatePopulation::Interior => rate > 0.0 && rate < 1.0,
        RatePopulation::All => true,
    };
    let mut sorted: Vec<f64> = rates.iter().copied().filter(|&rate| counts(rate)).collect();
    sorted.sort_by(f64::total_cmp);
    let position = (sorted.len() as f64 * hardest_fraction) as usize;
    sorted.get(position).or(sorted.last()).copied().unwrap_or(0.0)
}

/// Returns R_solve in `0..1`: 0 for an unsolved conjecture or one above the threshold, otherwise `1 - s` (paper, §3.2).
pub fn solve_reward(rate: f64, threshold: f64) -> f64 {
    if passes_threshold(rate, threshold) { 1.0 - rate } else { 0.0 }
}

/// Returns whether a conjecture is solved at least once and is not too easy.
pub fn passes_threshold(rate: f64, threshold: f64) -> bool {
    rate > 0.0 && rate <= threshold
}

/// Returns R_guide in `0..=8` (paper, Appendix E.3): 0 if the conclusion's complexity is high (3) or very high (4), otherwise
/// `relevance + (2 - complexity) + (1 - redundancy)`, at least 0.
pub fn guide_score(review: &Review) -> f64 {
    if review.complexity >= 3.0 {
        return 0.0;
    }
    (review.relevance + (2.0 - review.complexity) + (1.0 - review.redundancy)).max(0.0)
}

/// Returns R_synth = R_solve · R_guide, in `0..8` (paper, §3.2).
pub fn synth_reward(solve: f64, guide: f64) -> f64 {
    solve * guide
}

/// Maps rewards to `0..=1` by `(r - min) / (max - min)` (paper, Appendix G.5).
///
/// The formula is undefined if all rewards are equal. [`Normalisation::Positive`] then returns 1 for positive rewards and 0
/// for others; [`Normalisation::Reference`] always returns 1.
pub fn normalise(rewards: &[f64], normalisation: Normalisation) -> Vec<f64> {
    let min = rewards.iter().copied().fold(f64::INFINITY, f64::min);
    let max = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let one = |r: f64| match normalisation {
        _ if max > min => (r - min) / (max - min),
        Normalisation::Positive if max <= 0.0 => 0.0,
        Normalisation::Positive | Normalisation::Reference => 1.0,
    };
    rewards.iter().map(|&r| one(r)).collect()
}
