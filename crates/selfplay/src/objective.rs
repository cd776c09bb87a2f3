//! The Solver's objectives (paper, Appendix G): which problems are trained on, and with which weights.
//!
//! # Attempts of several turns
//!
//! With `solver.repair_turns`, an attempt whose proof is refused continues with another rollout, whose prompt shows the
//! proof and the checker's error. Each rollout is a turn of its attempt. The rules:
//!
//! - An attempt counts once in the solve rate, with the verdict of its last turn ([`attempt_verdict`]). If that turn is
//!   lost, so is the attempt, which then does not count as a failed one.
//! - A target is solved if one of its attempts is proved. The cumulative solve rate therefore counts proofs of every
//!   turn.
//! - Every turn that is sampled is a generation.
//! - Every turn is a rollout with its own prompt, verdict and reward, and has the weight that the objective gives such
//!   a rollout ([`rollout_weights`]). A turn that was repaired counts as an unproved rollout, even if a later turn
//!   proves the problem. Under CISPO, all turns of a problem are one group.

use crate::config::{PenaltyConfig, Selection, SolverConfig};
use crate::data::{Judgement, SampleFacts, Verdict};
use crate::penalty::{length_penalty, short_proof_weight};

/// Returns whether a target is trained on, given its solve rate in this round. The rate counts verdicts before any penalty.
///
/// `selection` is that of `SolverConfig::effective_selection`. Under [`Selection::FewProofs`], the rule selects the targets
/// whose new proofs enter the store that is trained on.
pub fn selects_target(selection: Selection, rate: f64, solved_before: bool) -> bool {
    match selection {
        Selection::Unsolved => rate > 0.0 && !solved_before,
        other => selects_conjecture(other, rate),
    }
}

/// Returns whether a conjecture is trained on, given its solve rate. `selection` has the same meaning as for
/// [`selects_target`].
pub fn selects_conjecture(selection: Selection, rate: f64) -> bool {
    match selection {
        Selection::Hard => rate > 0.0 && rate <= 0.5,
        Selection::Mixed => rate > 0.0 && rate < 1.0,
        Selection::All | Selection::Unsolved | Selection::FewProofs => rate > 0.0,
        Selection::Auto => unreachable!("invariant: `effective_selection` replaces it"),
    }
}

/// Returns whether an attempt continues after its turn number `turn`, from 0: the checker refused the proof and said why.
pub fn is_repaired(judgement: &Judgement, turn: u32, solver: &SolverConfig) -> bool {
    let refused = matches!(judgement.verdict, Verdict::Refused | Verdict::Malformed);
    refused && !judgement.reason.is_empty() && turn < solver.repair_turns
}

/// Returns the verdict of an attempt from those of its requested turns, in order: that of the last turn. `None` if that turn
/// has no verdict yet.
pub fn attempt_verdict(turns: impl Iterator<Item = Option<Verdict>>) -> Option<Verdict> {
    turns.last().flatten()
}

/// The facts that the reward of a judged rollout depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RolloutFacts {
    /// v(y): whether the proof is valid.
    pub proved: bool,
    /// Whether the proof uses a tactic that the formal system marks as forbidden.
    pub penalised: bool,
    /// Length of the proof in Unicode code points.
    pub proof_characters: u32,
    /// Facts about the completion.
    pub sample: SampleFacts,
}

impl RolloutFacts {
    /// Returns whether the rollout earns a reward of 1 before the length penalty.
    fn earns(&self, penalties: &PenaltyConfig) -> bool {
        let limit = penalties.max_proof_characters;
        let too_long = limit > 0 && self.proof_characters > limit;
        let forbidden = penalties.forbidden_tactics && self.penalised;
        self.proved && !too_long && !forbidden
    }
}

/// Returns the shaped reward of a rollout in `-1..=1` (paper, §4.1): v(y), or 0 if the proof uses a forbidden tactic or is
/// too long. A negative length penalty *replaces* the reward. STP multiplies it by its weight for short proofs.
pub fn shaped_reward(rollout: &RolloutFacts, penalties: &PenaltyConfig, window: u32) -> f64 {
    let penalty = length_penalty(&rollout.sample, penalties, window);
    if penalty < 0.0 {
        return penalty;
    }
    if !rollout.earns(penalties) {
        return 0.0;
    }
    if penalties.short_proof_rate > 0.0 {
        return short_proof_weight(rollout.proof_characters, penalties.short_proof_rate);
    }
    1.0
}

/// Returns the weight of each rollout of a selected problem in the Solver's loss; `None` if it is not trained on.
///
/// REINFORCE and expert iteration: the shaped reward if it is not 0. Unproved rollouts with a length penalty count only
/// under `penalties.length_of_unproved`, and never in expert iteration. CISPO: the group advantage of every rollout;
/// `None` if all shaped rewards of the group are 0.
pub fn rollout_weights(
    group: &[RolloutFacts],
    solver: &SolverConfig,
    penalties: &PenaltyConfig,
    window: u32,
) -> Vec<Option<f64>> {
    let rewards: Vec<f64> = group.iter().map(|rollout| shaped_reward(rollout, penalties, window)).collect();
    if solver.objective.is_grouped() {
        return match group_advantages(&rewards, solver.advantage_epsilon) {
            Some(advantages) => advantages.into_iter().map(Some).collect(),
            None => vec![None; group.len()],
        };
    }
    let unproved_too = penalties.length_of_unproved && !solver.objective.is_stored();
    let weight = |(rollout, reward): (&RolloutFacts, f64)| {
        (reward != 0.0 && (unproved_too || rollout.earns(penalties))).then_some(reward)
    };
    group.iter().zip(rewards).map(weight).collect()
}

/// Returns the weight of a stored proof under expert iteration; `None` if it is not trained on.
pub fn stored_weight(rollout: &RolloutFacts, penalties: &PenaltyConfig, window: u32) -> Option<f64> {
    rollout.earns(penalties).then(|| shaped_reward(rollout, penalties, window))
}

/// Returns the group advantages `(r - mean) / (std + epsilon)` with the population standard deviation (paper, Appendix G.3;
/// its code uses epsilon = 1e-6). Returns `None` if all rewards are 0. Equal rewards have advantage 0.
pub fn group_advantages(rewards: &[f64], epsilon: f64) -> Option<Vec<f64>> {
    if rewards.iter().all(|&r| r == 0.0) {
        return None;
    }
    let n = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / n;
    let variance = rewards.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / n;
    let scale = variance.sqrt() + epsilon;
    let equal = rewards.iter().all(|r| r == &rewards[0]);
    Some(rewards.iter().map(|r| if equal || scale == 0.0 { 0.0 } else { (r - mean) / scale }).collect())
}
