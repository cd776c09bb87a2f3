//! Counter-based random numbers. They are a pure function of seed and position, so a request's samples do not
//! depend on other requests.

/// Computes Philox4x32 with 10 rounds (Salmon, Moraes, Dror & Shaw, SC 2011): four random words for a counter and a
/// key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    /// Increments of the Weyl sequence of round keys: the golden ratio and sqrt(3) - 1.
    const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let a = u64::from(c[0]) * u64::from(MULTIPLIERS[0]);
        let b = u64::from(c[2]) * u64::from(MULTIPLIERS[1]);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// Returns a number uniform in `[0, 1)`, a multiple of 2^-53, which determines the `index`-th new token of a request.
pub fn uniform(seed: u64, index: u32) -> f64 {
    let words = philox4x32([index, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(words[0]) << 32 | u64::from(words[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the known answers of Random123 (`kat_vectors`, philox4x32 10).
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
        // There are 63 degrees of freedom; the bounds are the 1e-4 quantiles.
        assert!((30.0..113.0).contains(&chi2), "{chi2}");
    }
}
