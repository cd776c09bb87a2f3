//! A small seeded random number generator for initial weights and shuffling.

use sgs_random::{SplitMix64, mix};

/// A generator of one stream of random numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    numbers: SplitMix64,
}

impl Rng {
    /// Creates the generator of one stream of a seed; different streams are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        // Mixed twice: otherwise the sequences of adjacent seeds or streams would be shifted copies of each
        // other.
        let inner = mix(seed) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self { numbers: SplitMix64::new(mix(inner)) }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.numbers.next_u64()
    }

    /// Returns a number uniform in `[0, 1)`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number uniform in `0..n` (Lemire 2019; the bias is at most 2^-64 n), or 0 for `n = 0`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Returns a standard normal number (Box & Muller 1958).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()) as f32
    }

    /// Shuffles a slice (Fisher & Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The initial weights of existing runs depend on these numbers.
    #[test]
    fn random_streams_are_stable() {
        let draws = [(0, 0), (1, 2), (u64::MAX, 7)].map(|(seed, stream)| Rng::new(seed, stream).next_u64());
        assert_eq!(draws, [2558736989570252433, 5988045206451141598, 17691837326268112423]);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(0, 0), draw(0, 1));
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut rng = Rng::new(7, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<usize> = (0..100).collect();
        Rng::new(3, 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
