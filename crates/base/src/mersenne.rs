//! The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998) with the seeding and the shuffle of CPython's `random`,
//! for reproducing the epochs of the paper's code.

use crate::random::shuffle;

const N: usize = 624;
const M: usize = 397;

/// A generator that is seeded like CPython's `random.Random(seed)` with a non-negative integer.
#[derive(Clone, Debug)]
pub struct MersenneTwister {
    words: [u32; N],
    next: usize,
}

impl MersenneTwister {
    /// Seeds the generator through `init_by_array` with the 32-bit digits of the seed, lowest first.
    pub fn new(seed: u64) -> Self {
        let low = seed as u32;
        let high = (seed >> 32) as u32;
        let digits: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        Self { words: init_by_array(digits), next: N }
    }

    /// Returns the next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Draws a number in `0..bound` as CPython does: draws as many high bits as `bound` has until the number is in range.
    /// Returns 0 if `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        if bound == 0 {
            return 0;
        }
        let shift = bound.leading_zeros();
        loop {
            let x = self.next_u32() >> shift;
            if x < bound {
                return x;
            }
        }
    }

    /// Shuffles in place like CPython's `random.shuffle`. Items from position 2^32 on keep their places.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        let end = items.len().min(u32::MAX as usize);
        shuffle(&mut items[..end], |n| self.below(n as u32) as usize);
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }
}

fn init_by_array(key: &[u32]) -> [u32; N] {
    let mut words = [0u32; N];
    words[0] = 19_650_218;
    for i in 1..N {
        let before = words[i - 1] ^ (words[i - 1] >> 30);
        words[i] = before.wrapping_mul(1_812_433_253).wrapping_add(i as u32);
    }
    let (mut i, mut j) = (1, 0);
    for _ in 0..N.max(key.len()) {
        let before = words[i - 1] ^ (words[i - 1] >> 30);
        words[i] = (words[i] ^ before.wrapping_mul(1_664_525)).wrapping_add(key[j]).wrapping_add(j as u32);
        i += 1;
        j = (j + 1) % key.len();
        if i == N {
            words[0] = words[N - 1];
            i = 1;
        }
    }
    for _ in 1..N {
        let before = words[i - 1] ^ (words[i - 1] >> 30);
        words[i] = (words[i] ^ before.wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
        i += 1;
        if i == N {
            words[0] = words[N - 1];
            i = 1;
        }
    }
    words[0] = 0x8000_0000;
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with three values of `random.Random(42).getrandbits(32)` from CPython 3.
    #[test]
    fn the_first_words_equal_those_of_cpython() {
        let mut twister = MersenneTwister::new(42);
        let words: Vec<u32> = (0..3).map(|_| twister.next_u32()).collect();
        assert_eq!(words, CPYTHON_42);
        let mut wide = MersenneTwister::new((7 << 32) + 9);
        let words: Vec<u32> = (0..3).map(|_| wide.next_u32()).collect();
        assert_eq!(words, CPYTHON_WIDE);
    }

    const CPYTHON_42: [u32; 3] = [2746317213, 478163327, 107420369];
    const CPYTHON_WIDE: [u32; 3] = [3666696616, 174776607, 1408883857];
}
