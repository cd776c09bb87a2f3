//! A seeded generator of random numbers: SplitMix64 (Steele, Lea and Flood 2014), not for secrets.

/// The increment of the state: 2^64 divided by the golden ratio, made odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the first number of a seed's stream. Different seeds have different first numbers.
pub fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Shuffles in place (Fisher and Yates, from the end). `below` draws a number below its argument.
pub fn shuffle<T>(items: &mut [T], mut below: impl FnMut(usize) -> usize) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(i + 1));
    }
}

/// A generator of one stream of random numbers.
///
/// There are two ways to draw a number below a bound, and a shuffle for each: [`below`](Self::below) rejects numbers,
/// [`index`](Self::index) multiplies. The results of existing runs depend on both.
#[derive(Clone, Debug)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates the generator of one of a seed's streams, which are independent.
    pub fn stream(seed: u64, stream: u64) -> Self {
        // Mixed twice: otherwise the sequences of adjacent seeds or streams would be shifted copies of each other.
        Self::new(mix(mix(seed) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// Creates the generator of a seed for a purpose. Different purposes draw independently.
    pub fn named(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the purpose.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut rng = Self::new(seed ^ hash);
        rng.next_u64();
        rng
    }

    /// Creates a generator for one of several numbered items, which draw independently in any order.
    pub fn numbered(seed: u64, purpose: &str, number: u64) -> Self {
        // Mixed twice, as in `stream`.
        Self::new(mix(Self::named(seed, purpose).next_u64() ^ number))
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }

    /// Returns the next 53 random bits.
    fn next_u53(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64
    }

    /// Returns a number uniform in `[0, 1)`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        self.next_u53() / (1u64 << 53) as f64
    }

    /// Returns a standard normal number (Box and Muller 1958).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()) as f32
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.next_u53() < p * (1u64 << 53) as f64
    }

    /// Returns a number uniform in `0..bound` without bias, by rejection sampling, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let reject_below = bound.wrapping_neg() % bound;
        loop {
            let x = self.next_u64();
            if x >= reject_below {
                return x % bound;
            }
        }
    }

    /// Shuffles in place; draws with [`below`](Self::below).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        shuffle(items, |n| self.below(n as u64) as usize);
    }

    /// Returns a number uniform in `0..n` (Lemire 2019; the bias is at most 2^-64 n), or 0 if `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Returns a random item, drawn with [`index`](Self::index); `None` if the slice is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Shuffles in place; draws with [`index`](Self::index).
    pub fn shuffle_by_index<T>(&mut self, items: &mut [T]) {
        shuffle(items, |n| self.index(n));
    }
}
