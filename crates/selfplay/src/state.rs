//! What persists from round to round.

use crate::data::ProblemId;
use crate::learned::LearnedGuide;
use crate::outcome::{ProblemKind, RoundOutcome};
use crate::store::ProofStore;
use crate::task::Lemma;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Everything the algorithm remembers of earlier rounds. The empty state begins a run.
///
/// It changes by [`RunState::absorb`] alone, so it can be rebuilt from the outcomes of all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Number of the round to come.
    pub next_round: u32,
    /// Rollouts of the Solver so far, over targets and conjectures: the x axis of every scaling plot.
    pub generations: u64,
    /// Completions of the Conjecturer so far. The paper's code counts them as generations too.
    pub conjecture_samples: u64,
    /// Targets that were proved at least once, for ever.
    pub solved: BTreeMap<ProblemId, SolvedTarget>,
    /// Proofs of targets, up to the cap: what expert iteration trains on.
    pub proofs: ProofStore,
    /// Fingerprints of the conjectures that were problems of a round, if such are refused later.
    #[serde(default)]
    pub seen: Arc<HashSet<u64>>,
    /// For each target that was never proved the conjectures proved for it, oldest first, at most [`LEMMAS_KEPT`].
    #[serde(default)]
    pub lemmas: BTreeMap<ProblemId, Vec<Arc<Lemma>>>,
    /// What the learned Guide knows, if the run has one.
    #[serde(default)]
    pub learned: LearnedGuide,
}

/// Lemmas that are kept for a target; older ones make room.
pub const LEMMAS_KEPT: usize = 16;

/// A solved target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolvedTarget {
    /// The round of the first proof.
    pub round: u32,
    /// The first proved rollout of that round.
    pub index: u32,
    /// The first proof.
    pub proof: Arc<str>,
    /// The best solve rate of any round.
    pub best_rate: f64,
}

/// An outcome that does not belong to the round to come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the outcome of round {got} cannot be absorbed: the state waits for round {expected}")]
pub struct OutOfOrder {
    /// The round that the state waits for.
    pub expected: u32,
    /// The outcome's round.
    pub got: u32,
}

impl RunState {
    /// Whether a target was ever proved.
    pub fn is_solved(&self, target: &ProblemId) -> bool {
        self.solved.contains_key(target)
    }

    /// Adds a finished round.
    ///
    /// # Errors
    /// If the outcome is not of the round to come; the state is unchanged.
    pub fn absorb(&mut self, outcome: &RoundOutcome) -> Result<(), OutOfOrder> {
        if outcome.round != self.next_round {
            return Err(OutOfOrder { expected: self.next_round, got: outcome.round });
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
        for (target, lemma) in &outcome.lemmas {
            let kept = self.lemmas.entry(target.clone()).or_default();
            kept.retain(|old| old.statement != lemma.statement);
            kept.push(lemma.clone());
            kept.drain(..kept.len().saturating_sub(LEMMAS_KEPT));
        }
        self.lemmas.retain(|target, _| !self.solved.contains_key(target));
        // After the round's first proofs: a target may have fallen in the last round that counts.
        self.learned.absorb(outcome.round, &outcome.lessons, &self.solved);
        self.generations += outcome.generations;
        self.conjecture_samples += outcome.conjecture_samples;
        self.next_round += 1;
        Ok(())
    }
}
