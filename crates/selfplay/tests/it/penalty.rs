//! Penalties.

use proptest::prelude::*;
use sgs_selfplay::penalty::length_reward;

proptest! {
    #[test]
    fn the_penalty_falls_from_zero_to_minus_one(window in 1u32..100_000, start in 0.0f64..1.0, a: u32, b: u32) {
        let (low, high) = (a.min(b), a.max(b));
        let (at_low, at_high) = (length_reward(low, window, start), length_reward(high, window, start));
        prop_assert!((-1.0..=0.0).contains(&at_low) && at_high <= at_low);
        prop_assert_eq!(length_reward(window, window, start), -1.0);
        prop_assert_eq!(length_reward((start * f64::from(window)) as u32, window, start), 0.0);
    }
}

#[test]
fn degenerate_windows_have_a_defined_penalty() {
    assert_eq!(length_reward(5, 0, 0.8), 0.0);
    assert_eq!(length_reward(11, 10, 1.0), -1.0);
    assert_eq!(length_reward(10, 10, 1.0), 0.0);
}
