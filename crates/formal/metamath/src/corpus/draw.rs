//! Seeded random draws that stay the same on every machine and in every version.

use sgs_selfplay::seed::Stream;

/// Draws from a [`Stream`], which is fixed by its definition.
#[derive(Clone, Debug)]
pub struct Draw(Stream);

impl Draw {
    /// A stream for a seed and a purpose, so that different purposes draw independently.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the purpose.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut draw = Self(Stream::new(seed ^ hash));
        draw.bits();
        draw
    }

    /// The stream of one of many things that draw independently, in whatever order they are made.
    pub fn numbered(seed: u64, purpose: &str, number: u64) -> Self {
        // Mixed twice: streams of neighbouring seeds and numbers would else be the same one, shifted.
        let mixed = Stream::new(Self::new(seed, purpose).bits() ^ number).next_u64();
        Self(Stream::new(mixed))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n` (0 if `n` is 0); the bias of the multiplication is below 2^-32.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Whether an event of this probability happens.
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.bits() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Shuffles (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Targets and corpora follow from these: they must never change.
    #[test]
    fn draws_stay_what_they_are() {
        let mut draw = Draw::new(7, "targets");
        assert_eq!([draw.bits(), draw.bits()], [12969132363083205881, 11981703603545698059]);
        assert_eq!(Draw::numbered(7, "compose", 3).bits(), 13750212248346012532);
    }
}
