//! The Conjecturer's reward.

use proptest::prelude::*;
use sgs_selfplay::Review;
use sgs_selfplay::config::{Normalisation, RatePopulation};
use sgs_selfplay::reward::{conjecture_threshold, guide_score, normalise, solve_reward};

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
