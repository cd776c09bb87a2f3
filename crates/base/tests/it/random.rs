//! The seeded generator.

use sgs_base::random::{SeededRng, mix};

/// The numbers of Vigna's reference implementation, `splitmix64.c`, for this seed.
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

/// The initial weights, targets and corpora of existing runs depend on these values.
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
