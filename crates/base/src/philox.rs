//! Counter-based random numbers. They are a pure function of seed and position, so a request's samples do not
//! depend on other requests.

/// Philox4x32 with 10 rounds (Salmon, Moraes, Dror & Shaw, SC 2011): four random words for a counter and a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    /// Golden ratio and sqrt(3) - 1: the Weyl sequence of round keys.
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

/// Returns a number uniform in `[0, 1)`, a multiple of 2^-53: it determines the `index`-th new token of a
/// request.
pub fn uniform(seed: u64, index: u32) -> f64 {
    let words = philox4x32([index, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(words[0]) << 32 | u64::from(words[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
