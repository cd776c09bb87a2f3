//! Counter-based random numbers.

use sgs_base::philox::{philox4x32, uniform};

/// Known answers of Random123 (`kat_vectors`, philox4x32 10).
#[test]
fn known_answers() {
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, want) in cases {
        assert_eq!(philox4x32(counter, key), want);
    }
}

#[test]
fn uniforms_fill_the_unit_interval() {
    let mut bins = [0usize; 64];
    for seed in 0..1000 {
        for index in 0..100 {
            bins[(uniform(seed, index) * 64.0) as usize] += 1;
        }
    }
    let expected = 100_000.0 / 64.0;
    let chi2: f64 = bins.iter().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
    // 63 degrees of freedom; the bounds are the 1e-4 quantiles.
    assert!((30.0..113.0).contains(&chi2), "{chi2}");
}
