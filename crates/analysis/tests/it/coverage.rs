//! Tests that the coverage of confidence intervals matches their level.

use sgs_analysis::fit::{CurvePoint, Cut, FitOptions, Parameter, ScalingLaw, fit};
use std::ops::RangeInclusive;

/// Creates a synthetic run with 200 rounds of 40,000 generations and independent normal noise.
fn synthetic(seed: u64) -> (ScalingLaw, Vec<CurvePoint>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let law = ScalingLaw {
        initial: 0.2 + 0.2 * rng.f64(),
        origin: 120e3,
        asymptote: 0.6 + 0.25 * rng.f64(),
        midpoint: 0.5e6 + 1.5e6 * rng.f64(),
        steepness: 0.8 + 0.6 * rng.f64(),
    };
    let mut curve = Vec::with_capacity(200);
    for i in 1..=200 {
        let generations = 40e3 * f64::from(i);
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        let noise = 0.002 * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        // The anchor has no noise, because the law treats R_0 as known.
        let rate = law.rate(generations) + if generations == law.origin { 0.0 } else { noise };
        curve.push(CurvePoint { generations, rate });
    }
    (law, curve)
}

/// The expectation is 237.5, with a standard deviation of 3.4.
#[test]
fn intervals_of_95_percent_contain_the_truth_in_95_percent_of_250_runs() {
    assert_intervals_hold(250, 227..=248);
}

/// The expectation is 950, with a standard deviation of 7. For 10,000 other seeds, the three intervals contained the truth
/// 9,526, 9,480 and 9,522 times, and the band 9,485 times.
#[test]
#[ignore = "some seconds: 1,000 runs; .ci/run runs it"]
fn intervals_of_95_percent_contain_the_truth_in_95_percent_of_1000_runs() {
    assert_intervals_hold(1000, 929..=971);
}

/// Asserts that the intervals of so many synthetic runs contain the truth as often as they claim.
fn assert_intervals_hold(runs: u64, expected: RangeInclusive<u32>) {
    let options = FitOptions { cut: Cut::At(100e3), ..FitOptions::default() };
    let mut held = [0_u32; 3];
    let mut held_band = 0_u32;
    for seed in 0..runs {
        let (law, curve) = synthetic(seed);
        let fit = fit(&curve, &options).unwrap();
        assert!(fit.is_identified(), "seed {seed}: {:?}", fit.warnings);
        for (parameter, truth) in Parameter::ALL.into_iter().zip(law.parameters()) {
            let (low, high) = fit.interval(parameter, 0.95).unwrap();
            held[parameter as usize] += u32::from(low <= truth && truth <= high);
        }
        let (low, high) = fit.band(3e6, 0.95).unwrap();
        held_band += u32::from((low..=high).contains(&law.rate(3e6)));
    }
    println!("held: A, C_mid, B {held:?}, band at 3e6 {held_band}");
    for count in held.into_iter().chain([held_band]) {
        assert!(expected.contains(&count), "held {held:?}, band {held_band} of {runs}");
    }
}
