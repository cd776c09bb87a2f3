//! The rules of the Self-play Theorem Prover (Dong and Ma 2025) that differ from SGS.

use crate::config::StpConfig;
use crate::data::Problem;
use crate::outcome::{ConjectureOutcome, RoundOutcome, examples_of};
use crate::seed::{Stream, shuffle_seed};
use crate::state::RunState;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// What the rule needs to know of one judged conjecture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provability {
    /// Solve rate, `0..=1`.
    pub rate: f64,
    /// Characters of the shortest proof, 0 if there is none.
    pub shortest_proof: u32,
    /// Characters of the statement.
    pub statement: u32,
}

/// Which conjectures train the Conjecturer: those that are barely provable, `0 < s < max_rate`, without the share
/// `elegance_cut` that has the lowest ratio of shortest proof to statement.
///
/// The cut is the ratio at position `floor(n · elegance_cut)` of the sorted ratios; ratios equal to it stay. A single
/// conjecture stays.
pub fn select_conjectures(conjectures: &[Provability], config: &StpConfig) -> Vec<bool> {
    let barely = |c: &Provability| c.rate > 0.0 && c.rate < config.max_rate;
    let ratio = |c: &Provability| f64::from(c.shortest_proof) / f64::from(c.statement.max(1));
    let mut ratios: Vec<f64> = conjectures.iter().filter(|c| barely(c)).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = ratios.get((ratios.len() as f64 * config.elegance_cut) as usize).copied().unwrap_or(0.0);
    conjectures.iter().map(|c| barely(c) && ratio(c) >= cut).collect()
}

/// Draws `wanted` of `available` solved problems: without replacement as long as there are enough, then again from the start of
/// the same shuffle. Empty if there is nothing to draw from.
pub fn draw_solved(available: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..available).collect();
    Stream::new(seed).shuffle(&mut order);
    order.iter().copied().cycle().take(if available == 0 { 0 } else { wanted }).collect()
}

/// The targets that are unsolved after a round, in the order in which they are matched: drawn by the run's seed.
pub fn unsolved_after<'t>(
    outcome: &RoundOutcome,
    before: &RunState,
    targets: &'t [Arc<Problem>],
    run_seed: u64,
) -> Vec<&'t Arc<Problem>> {
    let solved_now: HashSet<_> = outcome.newly_solved.iter().map(|(target, _)| target).collect();
    let unsolved = |target: &&Arc<Problem>| !before.is_solved(&target.id) && !solved_now.contains(&target.id);
    let mut order: Vec<_> = targets.iter().filter(unsolved).collect();
    Stream::new(shuffle_seed(run_seed, "stp-matching", u64::from(outcome.round))).shuffle(&mut order);
    order
}

/// An embedding brought to length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction(Vec<f32>);

impl Direction {
    /// `None` if the embedding is not finite, or zero.
    pub fn of(embedding: &[f32]) -> Option<Self> {
        let length = embedding.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let unit = || embedding.iter().map(|x| (f64::from(*x) / length) as f32).collect();
        (length.is_finite() && length > 0.0).then(|| Self(unit()))
    }

    /// Cosine of the angle between two.
    fn cosine(&self, other: &Self) -> f32 {
        // Eight sums beside each other, whose order is always the same.
        let mut sums = [0.0f32; 8];
        for (a, b) in self.0.chunks(8).zip(other.0.chunks(8)) {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        }
        sums.iter().sum()
    }
}

/// Weights that bring the chosen conjectures nearer to the unsolved targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// Of each conjecture. Their sum is the number of conjectures; without targets all are 0.
    pub weights: Vec<f64>,
    /// Mean cosine distance of a target to its conjecture, `0..=2`; absent without targets. The Wasserstein distance of
    /// the weighted conjectures to the targets is at most this.
    pub distance: Option<f64>,
    /// The same by a matching in which no conjecture may weigh more than 1, never smaller: what equal weights come to.
    pub distance_of_equals: Option<f64>,
}

/// STP's matching in Wasserstein distance, greedily as their code: each target in turn falls to the nearest conjecture
/// whose weight has not come to `max_weight` (at least 1), and adds conjectures / targets to it.
pub fn match_to_targets(conjectures: &[Direction], targets: &[Direction], max_weight: f64) -> Matching {
    let mut shares = [max_weight, 1.0].map(|most| Shares::new(conjectures.len(), targets.len(), most));
    for target in targets {
        let near: Vec<f32> = conjectures.iter().map(|conjecture| conjecture.cosine(target)).collect();
        shares.iter_mut().for_each(|shares| shares.give(&near));
    }
    let [matched, equal] = shares;
    let each = conjectures.len() as f64 / targets.len().max(1) as f64;
    Matching {
        weights: matched.targets.iter().map(|&targets| targets as f64 * each).collect(),
        distance: matched.mean_distance(),
        distance_of_equals: equal.mean_distance(),
    }
}

/// How many targets fell to each conjecture.
struct Shares {
    targets: Vec<usize>,
    /// So many targets bring a conjecture to its largest weight. All of them together have room for every target.
    room: usize,
    distance: f64,
}

impl Shares {
    fn new(conjectures: usize, targets: usize, most: f64) -> Self {
        let room = (most * targets as f64 / conjectures.max(1) as f64).ceil() as usize;
        Self { targets: vec![0; conjectures], room, distance: 0.0 }
    }

    /// Gives a target, whose cosines to the conjectures are `near`, to the nearest with room; of equals to the first.
    fn give(&mut self, near: &[f32]) {
        let free = (0..near.len()).filter(|&i| self.targets[i] < self.room);
        if let Some(nearest) = free.reduce(|best, i| if near[i] > near[best] { i } else { best }) {
            self.targets[nearest] += 1;
            self.distance += (1.0 - f64::from(near[nearest])).max(0.0);
        }
    }

    fn mean_distance(&self) -> Option<f64> {
        let given: usize = self.targets.iter().sum();
        (given > 0).then(|| self.distance / given as f64)
    }
}

impl RoundOutcome {
    /// The conjectures that the Conjecturer is trained towards, in the order of the slots.
    pub fn chosen_conjectures(&self) -> impl Iterator<Item = &ConjectureOutcome> {
        self.conjectures.iter().filter(is_chosen)
    }

    /// Multiplies the weights of the chosen conjectures by those of a matching, in their order. What no target fell to
    /// does not train the Conjecturer.
    pub fn reweigh(&mut self, matching: Matching) {
        let chosen = self.conjectures.iter_mut().filter(|conjecture| is_chosen(&&**conjecture));
        for (conjecture, factor) in chosen.zip(&matching.weights) {
            conjecture.weight =
                conjecture.weight.map(|weight| weight * factor).filter(|weight| *weight > 0.0);
        }
        self.conjecturer_examples = examples_of(&self.conjectures);
        self.matching = Some(matching);
    }
}

fn is_chosen(conjecture: &&ConjectureOutcome) -> bool {
    conjecture.weight.is_some_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn barely_provable_and_elegant() {
        let of = |rate, shortest_proof| Provability { rate, shortest_proof, statement: 100 };
        let conjectures = [
            of(0.0, 0),
            of(0.125, 50),
            of(0.125, 10),
            of(0.25, 99),
            of(0.125, 80),
            of(0.125, 70),
            of(0.125, 60),
        ];
        let chosen = select_conjectures(&conjectures, &StpConfig::default());
        assert_eq!(chosen, [false, true, false, false, true, true, true]);
        assert_eq!(select_conjectures(&conjectures[2..3], &StpConfig::default()), [true]);
    }

    fn directions(embeddings: &[Vec<f32>]) -> Vec<Direction> {
        embeddings.iter().map(|e| Direction::of(e).unwrap()).collect()
    }

    #[test]
    fn targets_fall_to_the_nearest_conjecture_with_room() {
        let at = |degrees: f32| vec![2.0 * degrees.to_radians().cos(), 2.0 * degrees.to_radians().sin()];
        // Two conjectures and four targets: each target brings 1/2, and a weight of 1.5 has room for three.
        let conjectures = directions(&[at(0.0), at(90.0)]);
        let targets = directions(&[at(10.0), at(20.0), at(30.0), at(40.0)]);
        let matching = match_to_targets(&conjectures, &targets, 1.5);
        assert_eq!(matching.weights, [1.5, 0.5], "the fourth finds the first conjecture full");
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
            assert_eq!(Direction::of(&broken), None);
        }
    }

    /// The least mean distance of any way to give targets to conjectures with so much room each.
    fn least(near: &[Vec<f64>], room: &mut [usize]) -> f64 {
        let Some((first, rest)) = near.split_first() else { return 0.0 };
        let mut best = f64::INFINITY;
        for i in (0..room.len()).filter(|&i| room[i] > 0).collect::<Vec<_>>() {
            room[i] -= 1;
            best = best.min(1.0 - first[i] + least(rest, room));
            room[i] += 1;
        }
        best
    }

    fn embeddings(most: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
        prop::collection::vec(prop::collection::vec(0.1f32..1.0, 9), 1..most)
    }

    proptest! {
        #[test]
        fn a_matching_is_between_the_best_and_that_of_equals(
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
            let best = least(&near, &mut vec![room; c.len()]) / m;
            let (distance, equals) = (matching.distance.unwrap(), matching.distance_of_equals.unwrap());
            prop_assert!(best - 1e-6 <= distance && distance <= equals + 1e-9, "{best} {distance} {equals}");
        }

        #[test]
        fn solved_problems_are_spread_evenly(available in 0usize..20, wanted in 0usize..60, seed: u64) {
            let drawn = draw_solved(available, wanted, seed);
            prop_assert_eq!(drawn.len(), if available == 0 { 0 } else { wanted });
            for i in 0..available {
                let times = drawn.iter().filter(|&&d| d == i).count();
                prop_assert!(times == wanted / available || times == wanted.div_ceil(available));
            }
        }
    }
}
