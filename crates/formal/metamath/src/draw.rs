//! Seeded random draws that are the same on every machine and in every version.

use sgs_selfplay::seed::SeededRng;

/// A random number generator for splits and corpora, based on [`SeededRng`].
#[derive(Clone, Debug)]
pub struct Draw(SeededRng);

impl Draw {
    /// Creates a generator for a seed and a purpose. Different purposes draw independently.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the purpose.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut draw = Self(SeededRng::new(seed ^ hash));
        draw.bits();
        draw
    }

    /// Creates a generator for one of several numbered items, which draw independently in any order.
    pub fn numbered(seed: u64, purpose: &str, number: u64) -> Self {
        // Mixed twice, because adjacent seeds and numbers would otherwise produce shifted copies of each other.
        let mixed = SeededRng::new(Self::new(seed, purpose).bits() ^ number).next_u64();
        Self(SeededRng::new(mixed))
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `n`, or 0 if `n` is 0. The bias is below 2^-32.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.bits() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// Returns a random item; `None` if the slice is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Targets and corpora depend on these values, so they must never change.
    #[test]
    fn draws_have_their_pinned_values() {
        let mut draw = Draw::new(7, "targets");
        assert_eq!([draw.bits(), draw.bits()], [12969132363083205881, 11981703603545698059]);
        assert_eq!(Draw::numbered(7, "compose", 3).bits(), 13750212248346012532);
    }
}
