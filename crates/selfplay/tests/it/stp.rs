//! STP: selection and matching.

use proptest::prelude::*;
use sgs_selfplay::config::StpConfig;
use sgs_selfplay::stp::{
    Matching, Provability, UnitEmbedding, draw_solved, match_to_targets, select_conjectures,
};

#[test]
fn barely_provable_conjectures_with_long_proofs_are_selected() {
    let of = |rate, shortest_proof| Provability { rate, shortest_proof, statement: 100 };
    let conjectures =
        [of(0.0, 0), of(0.125, 50), of(0.125, 10), of(0.25, 99), of(0.125, 80), of(0.125, 70), of(0.125, 60)];
    let chosen = select_conjectures(&conjectures, &StpConfig::default());
    assert_eq!(chosen, [false, true, false, false, true, true, true]);
    assert_eq!(select_conjectures(&conjectures[2..3], &StpConfig::default()), [true]);
}

fn directions(embeddings: &[Vec<f32>]) -> Vec<UnitEmbedding> {
    embeddings.iter().map(|e| UnitEmbedding::of(e).unwrap()).collect()
}

#[test]
fn targets_are_matched_to_the_nearest_conjecture_with_free_capacity() {
    let at = |degrees: f32| vec![2.0 * degrees.to_radians().cos(), 2.0 * degrees.to_radians().sin()];
    // With two conjectures and four targets, each target adds 1/2, so a maximum weight of 1.5 allows three targets.
    let conjectures = directions(&[at(0.0), at(90.0)]);
    let targets = directions(&[at(10.0), at(20.0), at(30.0), at(40.0)]);
    let matching = match_to_targets(&conjectures, &targets, 1.5);
    assert_eq!(
        matching.weights,
        [1.5, 0.5],
        "the first conjecture is full when the fourth target is matched"
    );
    let cosine = |degrees: f64| 1.0 - degrees.to_radians().cos();
    let close = |got: Option<f64>, degrees: [f64; 4]| {
        (got.unwrap() - degrees.map(cosine).iter().sum::<f64>() / 4.0).abs() < 1e-6
    };
    assert!(close(matching.distance, [10.0, 20.0, 30.0, 50.0]), "{matching:?}");
    assert!(close(matching.distance_of_equals, [10.0, 20.0, 60.0, 50.0]), "{matching:?}");
    assert_eq!(match_to_targets(&conjectures[..1], &targets, 4.0).weights, [1.0]);
    let nothing = match_to_targets(&conjectures, &[], 4.0);
    assert_eq!((nothing.weights.as_slice(), nothing.distance), (&[0.0, 0.0][..], None));
    assert_eq!(match_to_targets(&[], &targets, 4.0), Matching::default());
    for broken in [vec![0.0; 3], vec![1.0, f32::NAN], vec![f32::INFINITY]] {
        assert_eq!(UnitEmbedding::of(&broken), None);
    }
}

/// Returns the minimum total distance over all assignments of targets to conjectures with the given capacities.
fn minimum(near: &[Vec<f64>], room: &mut [usize]) -> f64 {
    let Some((first, rest)) = near.split_first() else { return 0.0 };
    let mut best = f64::INFINITY;
    for i in (0..room.len()).filter(|&i| room[i] > 0).collect::<Vec<_>>() {
        room[i] -= 1;
        best = best.min(1.0 - first[i] + minimum(rest, room));
        room[i] += 1;
    }
    best
}

fn embeddings(most: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
    prop::collection::vec(prop::collection::vec(0.1f32..1.0, 9), 1..most)
}

proptest! {
    #[test]
    fn a_matching_is_between_the_optimum_and_equal_weights(
        conjectures in embeddings(4), targets in embeddings(6), max_weight in 1.0f64..5.0,
    ) {
        let (c, t) = (directions(&conjectures), directions(&targets));
        let matching = match_to_targets(&c, &t, max_weight);
        let (n, m) = (c.len() as f64, t.len() as f64);
        prop_assert!((matching.weights.iter().sum::<f64>() - n).abs() < 1e-9);
        prop_assert!(matching.weights.iter().all(|w| *w < max_weight + n / m + 1e-9));
        let length = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let cosine = |a: &[f32], b: &[f32]| {
            let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            dot / length(a) / length(b)
        };
        let near: Vec<Vec<f64>> =
            targets.iter().map(|t| conjectures.iter().map(|c| cosine(c, t)).collect()).collect();
        let room = (max_weight * m / n).ceil() as usize;
        let best = minimum(&near, &mut vec![room; c.len()]) / m;
        let (distance, equals) = (matching.distance.unwrap(), matching.distance_of_equals.unwrap());
        prop_assert!(best - 1e-6 <= distance && distance <= equals + 1e-9, "{best} {distance} {equals}");
    }

    #[test]
    fn solved_problems_are_drawn_evenly(available in 0usize..20, wanted in 0usize..60, seed: u64) {
        let drawn = draw_solved(available, wanted, seed);
        prop_assert_eq!(drawn.len(), if available == 0 { 0 } else { wanted });
        for i in 0..available {
            let times = drawn.iter().filter(|&&d| d == i).count();
            prop_assert!(times == wanted / available || times == wanted.div_ceil(available));
        }
    }
}
