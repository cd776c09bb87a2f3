//! CPython's generator.

use sgs_base::mersenne::MersenneTwister;

/// Three values of `random.Random(42).getrandbits(32)` from CPython 3.
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
