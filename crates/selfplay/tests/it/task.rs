//! Task keys.

use proptest::prelude::*;
use sgs_selfplay::{ProblemId, TaskKey, TaskKind};

#[test]
fn invalid_keys_are_rejected() {
    for text in ["", "1", "1/rollout/2", "1/rollout/2/", "x/rollout/2/p", "1/guess/2/p", "1/rollout/-2/p"] {
        assert!(text.parse::<TaskKey>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn keys_survive_a_round_trip(round: u32, kind in 0usize..4, index: u32, problem in ".{1,20}") {
        let kinds = [TaskKind::Conjecture, TaskKind::Rollout, TaskKind::Judgement, TaskKind::Review];
        let key = TaskKey { round, kind: kinds[kind], problem: ProblemId::new(problem), index };
        prop_assert_eq!(&key.to_string().parse::<TaskKey>().unwrap(), &key);
        let json = serde_json::to_string(&key).unwrap();
        prop_assert_eq!(serde_json::from_str::<TaskKey>(&json).unwrap(), key);
    }

    #[test]
    fn parsing_never_panics(text in ".{0,40}") {
        let _ = text.parse::<TaskKey>();
    }
}
