//! The order of training examples.

use proptest::prelude::*;
use sgs_selfplay::training::{Example, Group, training_order};
use sgs_selfplay::{ProblemId, TaskKey, TaskKind};

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
