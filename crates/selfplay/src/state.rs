//! The state that persists from round to round.

use crate::data::{Problem, ProblemId};
use crate::outcome::{ProblemKind, RoundOutcome};
use crate::seed::{SeededRng, shuffle_seed};
use crate::store::{ProofStore, SolvedTarget};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Everything that the algorithm remembers of earlier rounds. A run begins with the default state.
///
/// The state changes only through [`RunState::absorb`], so it can be rebuilt from the outcomes of all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Number of the next round.
    pub next_round: u32,
    /// Total number of the Solver's rollouts, over targets and conjectures: the x axis of every scaling plot.
    pub generations: u64,
    /// Total number of the Conjecturer's completions. The paper's code counts them as generations too. Conjectures that no
    /// model samples do not count.
    pub conjecture_samples: u64,
    /// Targets that have been proved at least once.
    pub solved: BTreeMap<ProblemId, SolvedTarget>,
    /// Proofs of targets, up to the cap; expert iteration trains on them.
    pub proofs: ProofStore,
    /// Fingerprints of the conjectures of earlier rounds, if repeated conjectures are rejected.
    #[serde(default)]
    pub seen: Arc<HashSet<u64>>,
    /// Failed proofs of unsolved targets from the last round that sampled each, if conjectures are derived from them.
    #[serde(default)]
    pub attempts: BTreeMap<ProblemId, Vec<Arc<str>>>,
}

/// The error of absorbing the outcome of any round but the next one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot absorb the outcome of round {got}: expected round {expected}")]
pub struct RoundOutOfOrder {
    /// Number of the next round of the state.
    pub expected: u32,
    /// Number of the outcome's round.
    pub got: u32,
}

impl RunState {
    /// Returns whether a target has ever been proved.
    pub fn is_solved(&self, target: &ProblemId) -> bool {
        self.solved.contains_key(target)
    }

    /// Returns the targets that are unsolved after a round whose outcome is not absorbed yet, shuffled by the run's seed.
    /// STP matches targets in this order.
    pub fn unsolved_after<'t>(
        &self,
        outcome: &RoundOutcome,
        targets: &'t [Arc<Problem>],
        run_seed: u64,
    ) -> Vec<&'t Arc<Problem>> {
        let solved_now: HashSet<_> = outcome.newly_solved.iter().map(|(target, _)| target).collect();
        let unsolved =
            |target: &&Arc<Problem>| !self.is_solved(&target.id) && !solved_now.contains(&target.id);
        let mut order: Vec<_> = targets.iter().filter(unsolved).collect();
        SeededRng::new(shuffle_seed(run_seed, "stp-matching", u64::from(outcome.round))).shuffle(&mut order);
        order
    }

    /// Adds a finished round.
    ///
    /// # Errors
    /// Returns an error, and leaves the state unchanged, if the outcome is not that of the next round.
    pub fn absorb(&mut self, outcome: &RoundOutcome) -> Result<(), RoundOutOfOrder> {
        if outcome.round != self.next_round {
            return Err(RoundOutOfOrder { expected: self.next_round, got: outcome.round });
        }
        for (target, first) in &outcome.newly_solved {
            self.solved.entry(target.clone()).or_insert_with(|| first.clone());
        }
        for problem in outcome.problems.iter().filter(|problem| problem.kind == ProblemKind::Target) {
            if let (Some(solved), Some(rate)) =
                (self.solved.get_mut(&problem.problem.id), problem.tally.rate())
            {
                solved.best_rate = solved.best_rate.max(rate);
            }
        }
        for (target, proofs) in &outcome.stored_proofs {
            self.proofs.extend(target, proofs.iter().cloned());
        }
        if !outcome.seen.is_empty() {
            Arc::make_mut(&mut self.seen).extend(&outcome.seen);
        }
        for target in outcome.targets() {
            self.attempts.remove(&target.problem.id);
        }
        self.attempts.extend(outcome.attempts.iter().cloned());
        self.generations += outcome.generations;
        self.conjecture_samples += outcome.conjecture_samples;
        self.next_round += 1;
        Ok(())
    }
}
