//! Entropies.

use sgs_selfplay::entropy::{entropy, mean, truncated_entropy};

#[test]
fn the_entropy_of_a_uniform_distribution_is_the_logarithm_of_its_size() {
    assert!((entropy(&[0.25; 4]) - 4f64.ln()).abs() < 1e-12);
    assert_eq!(entropy(&[1.0, 0.0]), 0.0);
    assert_eq!(truncated_entropy(&[]), 0.0);
    assert_eq!(mean([]), None);
}
