//! The Solver's objectives.

use proptest::prelude::*;
use sgs_selfplay::config::{Objective, PenaltyConfig, Selection, SolverConfig};
use sgs_selfplay::objective::{
    RolloutFacts, group_advantages, rollout_weights, selects_conjecture, selects_target, shaped_reward,
};
use sgs_selfplay::{FinishReason, SampleFacts};

fn rollout(proved: bool, penalised: bool, generated: u32) -> RolloutFacts {
    let sample = SampleFacts {
        prompt_tokens: 10,
        generated_tokens: generated,
        finish: FinishReason::Stop,
        entropy: None,
        mean_log_prob: None,
        policy_version: 0,
    };
    RolloutFacts { proved, penalised, proof_characters: 100, sample }
}

#[test]
fn unproved_overlong_rollouts_follow_the_option() {
    let group = [rollout(true, false, 10), rollout(false, false, 85), rollout(true, true, 10)];
    let solver = SolverConfig::default();
    let paper = PenaltyConfig::default();
    let weights = rollout_weights(&group, &solver, &paper, 100);
    assert_eq!(weights[0], Some(1.0));
    assert!((weights[1].unwrap() + 0.75).abs() < 1e-12, "95 of 100 tokens");
    assert_eq!(weights[2], None);
    let code = PenaltyConfig { length_of_unproved: false, ..PenaltyConfig::default() };
    assert_eq!(rollout_weights(&group, &solver, &code, 100), [Some(1.0), None, None]);
    let stored = SolverConfig { objective: Objective::ExpertIteration, ..SolverConfig::default() };
    assert_eq!(rollout_weights(&group, &stored, &paper, 100), [Some(1.0), None, None]);
}

#[test]
fn selections_follow_their_definitions() {
    use Selection::{All, FewProofs, Hard, Mixed, Unsolved};
    for (selection, none, half, most, all) in [
        (All, false, true, true, true),
        (FewProofs, false, true, true, true),
        (Unsolved, false, true, true, true),
        (Hard, false, true, false, false),
        (Mixed, false, true, true, false),
    ] {
        let chosen = [0.0, 0.5, 0.875, 1.0].map(|rate| selects_conjecture(selection, rate));
        assert_eq!(chosen, [none, half, most, all], "{selection:?}");
        assert_eq!(selects_target(selection, 0.5, true), selection != Unsolved);
    }
}

proptest! {
    #[test]
    fn advantages_have_mean_zero_and_at_most_unit_spread(rewards in prop::collection::vec(-1.0f64..=1.0, 2..16)) {
        let Some(advantages) = group_advantages(&rewards, 1e-6) else {
            prop_assert!(rewards.iter().all(|&r| r == 0.0));
            return Ok(());
        };
        let n = rewards.len() as f64;
        prop_assert!(advantages.iter().sum::<f64>().abs() < 1e-6 * n);
        prop_assert!(advantages.iter().map(|a| a * a).sum::<f64>() / n < 1.0 + 1e-9);
        for (i, a) in rewards.iter().enumerate() {
            for (j, b) in rewards.iter().enumerate() {
                prop_assert!(a > b || advantages[i] <= advantages[j]);
            }
        }
    }

    #[test]
    fn shaped_rewards_stay_in_their_range(proved: bool, penalised: bool, generated in 0u32..200, rate in 0.0f64..0.1) {
        let penalties = PenaltyConfig { short_proof_rate: rate, ..PenaltyConfig::default() };
        let reward = shaped_reward(&rollout(proved, penalised, generated), &penalties, 100);
        prop_assert!((-1.0..=1.0).contains(&reward));
        prop_assert!(reward <= 0.0 || (proved && !penalised));
    }
}
