//! Solve rates and pass@k.

use proptest::prelude::*;
use sgs_selfplay::Verdict;
use sgs_selfplay::rate::{Tally, pass_at_k, solve_rate_histogram};

#[test]
fn infra_does_not_count_as_an_attempt() {
    let tally =
        Tally::of([Verdict::Proved, Verdict::Infra, Verdict::Refused, Verdict::Malformed, Verdict::Resource]);
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
