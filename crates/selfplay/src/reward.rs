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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_population_all_includes_unsolved_conjectures() {
        let rates = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 1.0];
        assert_eq!(conjecture_threshold(&rates, RatePopulation::All, 0.7), 0.25);
        assert_eq!(conjecture_threshold(&rates, RatePopulation::Interior, 0.7), 0.5);
        assert_eq!(solve_reward(0.5, 0.25), 0.0);
        assert_eq!(solve_reward(0.25, 0.25), 0.75);
        assert_eq!(solve_reward(0.0, 0.25), 0.0);
        assert_eq!(conjecture_threshold(&rates, RatePopulation::All, 1.0), 1.0);
    }

    #[test]
    fn equal_rewards_are_normalised_as_configured() {
        assert_eq!(normalise(&[3.0, 3.0], Normalisation::Positive), [1.0, 1.0]);
        assert_eq!(normalise(&[0.0, 0.0], Normalisation::Positive), [0.0, 0.0]);
        assert_eq!(normalise(&[0.0], Normalisation::Reference), [1.0]);
        assert!(normalise(&[], Normalisation::Positive).is_empty());
    }

    #[test]
    fn high_complexity_vetoes_a_conjecture() {
        let review = |complexity| Review { relevance: 5.0, redundancy: 0.0, complexity };
        assert_eq!(guide_score(&review(3.0)), 0.0);
        assert_eq!(guide_score(&review(3.5)), 0.0);
        assert_eq!(guide_score(&review(2.0)), 6.0);
        assert!(!Review { relevance: 100.0, redundancy: 0.0, complexity: 0.0 }.is_in_range());
        assert!(!Review { relevance: f64::NAN, redundancy: 0.0, complexity: 0.0 }.is_in_range());
    }

    proptest! {
        #[test]
        fn at_least_the_configured_share_passes(
            eighths in prop::collection::vec(0u32..=8, 0..60),
            all: bool,
        ) {
            let rates: Vec<f64> = eighths.iter().map(|&e| f64::from(e) / 8.0).collect();
            let population = if all { RatePopulation::All } else { RatePopulation::Interior };
            let threshold = conjecture_threshold(&rates, population, 0.7);
            let counted: Vec<f64> =
                rates.iter().copied().filter(|&r| all || (r > 0.0 && r < 1.0)).collect();
            let below = counted.iter().filter(|&&r| r <= threshold).count();
            prop_assert!(counted.is_empty() || below > (counted.len() as f64 * 0.7) as usize);
            for &rate in &rates {
                let reward = solve_reward(rate, threshold);
                prop_assert!((0.0..1.0).contains(&reward));
                prop_assert!(reward == 0.0 || (rate > 0.0 && rate <= threshold));
            }
        }

        #[test]
        fn normalised_rewards_fill_the_unit_interval(rewards in prop::collection::vec(0.0f64..8.0, 1..40)) {
            let scaled = normalise(&rewards, Normalisation::Positive);
            prop_assert!(scaled.iter().all(|r| (0.0..=1.0).contains(r)));
            for (i, a) in rewards.iter().enumerate() {
                for (j, b) in rewards.iter().enumerate() {
                    prop_assert!(a > b || scaled[i] <= scaled[j]);
                }
            }
        }

        #[test]
        fn guide_score_is_in_range(relevance in 0.0f64..=5.0, redundancy in 0.0f64..=1.0, complexity in 0.0f64..=4.0) {
            let review = Review { relevance, redundancy, complexity };
            prop_assert!(review.is_in_range());
            prop_assert!((0.0..=8.0).contains(&guide_score(&review)));
        }
    }
}
