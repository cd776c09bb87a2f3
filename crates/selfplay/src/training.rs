//! Training examples of a round's updates.

use crate::seed::{SeededRng, shuffle_seed};
use crate::task::TaskKey;
use serde::{Deserialize, Serialize};

/// A completion to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// The completion: a rollout or a conjecture of this round, or (expert iteration) of an earlier one.
    pub key: TaskKey,
    /// Weight of its log-likelihood: a reward in `-1..=1`, or a group advantage under CISPO. An example of weight 0 has
    /// no gradient and counts only in the denominator of the loss.
    pub weight: f64,
    /// Number of sampled tokens.
    pub generated_tokens: u32,
    /// The group that it is trained with, under CISPO.
    pub group: Option<Group>,
}

/// The rollouts of a problem that are trained on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Number of the group within the round, from 0.
    pub number: u32,
    /// Generated tokens of all its examples, the denominator of the loss (paper, Appendix G.3).
    pub tokens: u64,
}

/// Returns the order of one pass over the examples, as positions: shuffled by the seed, with the members of a group kept
/// together and in order. `purpose` is `"solver"` or `"conjecturer"`; shuffles of different purposes or passes differ.
pub fn training_order(
    examples: &[Example],
    run_seed: u64,
    round: u32,
    purpose: &str,
    pass: u32,
) -> Vec<usize> {
    let mut units = grouped_positions(examples.iter().enumerate());
    let counter = (u64::from(round) << 32) | u64::from(pass);
    SeededRng::new(shuffle_seed(run_seed, purpose, counter)).shuffle(&mut units);
    units.concat()
}

/// Splits the positions of examples into units that are kept together: the members of a group, or a single example. The
/// members of a group must follow each other.
pub(crate) fn grouped_positions<'a>(examples: impl Iterator<Item = (usize, &'a Example)>) -> Vec<Vec<usize>> {
    let mut units: Vec<Vec<usize>> = Vec::new();
    let mut group_before = None;
    for (position, example) in examples {
        match units.last_mut() {
            Some(unit) if example.group.is_some() && example.group == group_before => unit.push(position),
            _ => units.push(vec![position]),
        }
        group_before = example.group;
    }
    units
}
