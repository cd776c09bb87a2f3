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
        // Mix twice, because otherwise the sequences of adjacent seeds or streams would be shifted copies of each
        // other.
        Self::new(mix(mix(seed) ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// Creates the generator of a seed for a purpose. Different purposes draw independently.
    pub fn named(seed: u64, purpose: &str) -> Self {
        // Hash the purpose with FNV-1a.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut rng = Self::new(seed ^ hash);
        rng.next_u64();
        rng
    }

    /// Creates a generator for one of several numbered items, which draw independently in any order.
    pub fn numbered(seed: u64, purpose: &str, number: u64) -> Self {
        // Mix twice, as in `stream`.
        Self::new(mix(Self::named(seed, purpose).next_u64() ^ number))
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }

    /// Returns the next 53 random bits as a number.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the numbers with those of Vigna's reference implementation, `splitmix64.c`, for this seed.
    #[test]
    fn numbers_equal_those_of_the_reference() {
        let mut rng = SeededRng::new(1_234_567);
        let numbers = [(); 5].map(|()| rng.next_u64());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
        assert_eq!(mix(1_234_567), numbers[0]);
    }

    /// Checks values that the initial weights, targets and corpora of existing runs depend on.
    #[test]
    fn streams_have_their_pinned_values() {
        let first = |(seed, stream)| SeededRng::stream(seed, stream).next_u64();
        assert_eq!(
            [(0, 0), (1, 2), (u64::MAX, 7)].map(first),
            [2558736989570252433, 5988045206451141598, 17691837326268112423]
        );
        let mut targets = SeededRng::named(7, "targets");
        assert_eq!([targets.next_u64(), targets.next_u64()], [12969132363083205881, 11981703603545698059]);
        assert_eq!(SeededRng::numbered(7, "compose", 3).next_u64(), 13750212248346012532);
        let shuffled = |shuffle: fn(&mut SeededRng, &mut [u32; 8])| {
            let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
            shuffle(&mut SeededRng::new(5), &mut items);
            items
        };
        assert_eq!(shuffled(|rng, items| rng.shuffle(items)), [0, 7, 3, 1, 4, 6, 5, 2]);
        assert_eq!(shuffled(|rng, items| rng.shuffle_by_index(items)), [7, 2, 6, 4, 0, 1, 5, 3]);
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut rng = SeededRng::new(1);
        let draws: [fn(&mut SeededRng) -> usize; 2] = [|rng| rng.below(3) as usize, |rng| rng.index(3)];
        for draw in draws {
            let mut counts = [0u32; 3];
            for _ in 0..30_000 {
                counts[draw(&mut rng)] += 1;
            }
            assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
        }
        assert_eq!((rng.below(0), rng.index(0)), (0, 0));
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut rng = SeededRng::stream(7, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
