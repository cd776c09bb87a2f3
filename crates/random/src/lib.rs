//! SplitMix64 (Steele, Lea and Flood 2014), written once. Shuffles, initial weights and seeds that are derived from seeds
//! follow from its numbers, and with them what is in old runs: they never change, whatever a library's streams do.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// What the state goes on by from one number to the next: 2^64 over the golden ratio, made odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of numbers: 64 uniform bits each, repeating after 2^64 of them. Passes BigCrush; not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream that a seed begins. Any seed will do, 0 too.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }
}

/// The first number of a seed's stream. No two seeds have the same; those that differ in one bit differ in about half of
/// the number's.
pub fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of Vigna's reference implementation, `splitmix64.c`, for this seed.
    #[test]
    fn the_numbers_are_the_references() {
        let mut stream = SplitMix64::new(1_234_567);
        let numbers = [(); 5].map(|()| stream.next_u64());
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
}
