//! What the two updates of a round are made on.

use crate::seed::{Stream, shuffle_seed};
use crate::task::TaskKey;
use serde::{Deserialize, Serialize};

/// One completion to be trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// The completion: a rollout or a conjecture, of this round or (expert iteration) of an earlier one.
    pub key: TaskKey,
    /// Weight of its log-likelihood: a reward in `-1..=1`, or a group advantage under CISPO. May be 0: such an example
    /// has no gradient and counts only in the loss's denominator.
    pub weight: f64,
    pub generated_tokens: u32,
    /// The group that it must be trained with, under CISPO.
    pub group: Option<Group>,
}

/// The rollouts of one problem that are trained on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Number of the group in this round, from 0.
    pub number: u32,
    /// Generated tokens of all its examples: the loss's denominator (paper, Appendix G.3).
    pub tokens: u64,
}

/// The order of one pass over the examples, as positions: shuffled by the seed, the members of a group kept together and
/// in their order. `purpose` tells apart what is shuffled in one round (`"solver"`, `"conjecturer"`), `pass` the passes.
pub fn training_order(
    examples: &[Example],
    run_seed: u64,
    round: u32,
    purpose: &str,
    pass: u32,
) -> Vec<usize> {
    let mut units: Vec<Vec<usize>> = Vec::new();
    for (i, example) in examples.iter().enumerate() {
        let joins = i > 0 && example.group.is_some() && example.group == examples[i - 1].group;
        match units.last_mut() {
            Some(unit) if joins => unit.push(i),
            _ => units.push(vec![i]),
        }
    }
    let counter = (u64::from(round) << 32) | u64::from(pass);
    Stream::new(shuffle_seed(run_seed, purpose, counter)).shuffle(&mut units);
    units.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ProblemId;
    use crate::task::TaskKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn groups_stay_together(sizes in prop::collection::vec(1usize..5, 0..12), grouped: bool, seed: u64) {
            let mut examples = Vec::new();
            for (number, &size) in sizes.iter().enumerate() {
                for index in 0..size as u32 {
                    let problem = ProblemId::new(format!("p{number}"));
                    examples.push(Example {
                        key: TaskKey { round: 1, kind: TaskKind::Rollout, problem, index },
                        weight: 1.0,
                        generated_tokens: 5,
                        group: grouped.then_some(Group { number: number as u32, tokens: 5 * size as u64 }),
                    });
                }
            }
            let order = training_order(&examples, seed, 1, "solver", 0);
            prop_assert_eq!(&order, &training_order(&examples, seed, 1, "solver", 0));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..examples.len()).collect::<Vec<_>>());
            if grouped {
                let mut runs: Vec<u32> = order.iter().map(|&i| examples[i].group.unwrap().number).collect();
                runs.dedup();
                prop_assert_eq!(runs.len(), sizes.len());
                for pair in order.windows(2) {
                    let same = examples[pair[0]].group == examples[pair[1]].group;
                    prop_assert!(!same || pair[1] == pair[0] + 1);
                }
            }
        }
    }
}
