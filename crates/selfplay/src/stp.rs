//! Rules of the Self-play Theorem Prover (STP; Dong and Ma 2025) that differ from SGS.

use crate::config::StpConfig;
use crate::seed::SeededRng;
use serde::{Deserialize, Serialize};

/// The facts about a judged conjecture that STP's selection depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provability {
    /// Solve rate, `0..=1`.
    pub rate: f64,
    /// Length of the shortest proof in characters; 0 if there is none.
    pub shortest_proof: u32,
    /// Length of the statement in characters.
    pub statement: u32,
}

/// Selects the conjectures that train the Conjecturer: those that are barely provable, `0 < s < max_rate`, except the share
/// `elegance_cut` with the lowest ratio of shortest proof to statement.
///
/// The cut is the ratio at position `floor(n · elegance_cut)` of the sorted ratios; conjectures with a ratio equal to the
/// cut are selected. A single barely provable conjecture is always selected.
pub fn select_conjectures(conjectures: &[Provability], config: &StpConfig) -> Vec<bool> {
    let barely = |c: &Provability| c.rate > 0.0 && c.rate < config.max_rate;
    let ratio = |c: &Provability| f64::from(c.shortest_proof) / f64::from(c.statement.max(1));
    let mut ratios: Vec<f64> = conjectures.iter().filter(|c| barely(c)).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = ratios.get((ratios.len() as f64 * config.elegance_cut) as usize).copied().unwrap_or(0.0);
    conjectures.iter().map(|c| barely(c) && ratio(c) >= cut).collect()
}

/// Draws `wanted` of `available` solved problems without replacement, continuing from the start of the same shuffle if
/// there are too few. Returns an empty list if there are none.
pub fn draw_solved(available: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..available).collect();
    SeededRng::new(seed).shuffle(&mut order);
    order.iter().copied().cycle().take(if available == 0 { 0 } else { wanted }).collect()
}

/// An embedding normalised to length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitEmbedding(Vec<f32>);

impl UnitEmbedding {
    /// Normalises an embedding. Returns `None` if it is zero or not finite.
    pub fn of(embedding: &[f32]) -> Option<Self> {
        let length = embedding.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let unit = || embedding.iter().map(|x| (f64::from(*x) / length) as f32).collect();
        (length.is_finite() && length > 0.0).then(|| Self(unit()))
    }

    /// Returns the cosine of the angle between two embeddings.
    fn cosine(&self, other: &Self) -> f32 {
        // Use eight partial sums in a fixed order, so that the loop vectorises and the result is reproducible.
        let mut sums = [0.0f32; 8];
        for (a, b) in self.0.chunks(8).zip(other.0.chunks(8)) {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        }
        sums.iter().sum()
    }
}

/// Weights that bring the distribution of the selected conjectures closer to that of the unsolved targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matching {
    /// Weight of each conjecture. The weights sum to the number of conjectures; without targets they are all 0.
    pub weights: Vec<f64>,
    /// Mean cosine distance of a target to its conjecture, in `0..=2`; `None` without targets. It is an upper bound of the
    /// Wasserstein distance between the weighted conjectures and the targets.
    pub distance: Option<f64>,
    /// The same distance for a matching in which no conjecture may weigh more than 1, as with equal weights.
    pub distance_of_equals: Option<f64>,
}

/// Computes STP's matching in Wasserstein distance, greedily as in STP's code: each target in turn is matched to the
/// nearest conjecture whose weight is below `max_weight` (at least 1), and adds (conjectures / targets) to that weight.
pub fn match_to_targets(
    conjectures: &[UnitEmbedding],
    targets: &[UnitEmbedding],
    max_weight: f64,
) -> Matching {
    let mut assignments = [max_weight, 1.0].map(|max| Assignment::new(conjectures.len(), targets.len(), max));
    for target in targets {
        let cosines: Vec<f32> = conjectures.iter().map(|conjecture| conjecture.cosine(target)).collect();
        assignments.iter_mut().for_each(|assignment| assignment.assign(&cosines));
    }
    let [matched, equal] = assignments;
    let each = conjectures.len() as f64 / targets.len().max(1) as f64;
    Matching {
        weights: matched.targets.iter().map(|&targets| targets as f64 * each).collect(),
        distance: matched.mean_distance(),
        distance_of_equals: equal.mean_distance(),
    }
}

/// A greedy assignment of targets to conjectures.
struct Assignment {
    targets: Vec<usize>,
    /// Number of targets at which a conjecture reaches its maximum weight. The total capacity suffices for all targets.
    capacity: usize,
    distance: f64,
}

impl Assignment {
    fn new(conjectures: usize, targets: usize, max_weight: f64) -> Self {
        let capacity = (max_weight * targets as f64 / conjectures.max(1) as f64).ceil() as usize;
        Self { targets: vec![0; conjectures], capacity, distance: 0.0 }
    }

    /// Assigns a target, given its cosines with the conjectures, to the nearest with free capacity; ties go to the first.
    fn assign(&mut self, cosines: &[f32]) {
        let free = (0..cosines.len()).filter(|&i| self.targets[i] < self.capacity);
        if let Some(nearest) = free.reduce(|best, i| if cosines[i] > cosines[best] { i } else { best }) {
            self.targets[nearest] += 1;
            self.distance += (1.0 - f64::from(cosines[nearest])).max(0.0);
        }
    }

    fn mean_distance(&self) -> Option<f64> {
        let assigned: usize = self.targets.iter().sum();
        (assigned > 0).then(|| self.distance / assigned as f64)
    }
}
