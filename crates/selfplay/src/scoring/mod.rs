//! Computes the outcome of a complete round: rewards, training examples and everything that the run's state absorbs.

mod conjecturer;
mod solver;

use crate::data::{ProblemId, Verdict};
use crate::outcome::{ReviewOutcome, RoundOutcome, conjecturer_examples};
use crate::round::{ProblemState, ReviewAttempt, RolloutState, Round};
use crate::state::RunState;
use crate::store::fingerprint;
use crate::task::{ParsedProof, TaskKey, TaskKind};
use std::sync::Arc;

/// The error of finishing a round that still has unanswered tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {round} still waits for {open} tasks, the first is {first}")]
pub struct RoundNotComplete {
    /// Number of the round.
    pub round: u32,
    /// Number of unanswered tasks.
    pub open: usize,
    /// The first unanswered task.
    pub first: TaskKey,
}

impl Round {
    /// Computes the round's outcome. `state` must be the state that the round was created with.
    ///
    /// # Errors
    /// Returns an error if a task is unanswered.
    pub fn finish(&self, state: &RunState) -> Result<RoundOutcome, RoundNotComplete> {
        let pending = self.pending();
        if let Some(command) = pending.first() {
            return Err(RoundNotComplete {
                round: self.number,
                open: pending.len(),
                first: command.key().clone(),
            });
        }
        let solver = self.solver_outcome(state);
        let conjectures = self.conjecture_outcomes();
        let sampled = solver.rollouts.iter().filter(|rollout| rollout.sample.is_some());
        Ok(RoundOutcome {
            round: self.number,
            epoch: self.epoch,
            rollouts_per_problem: self.config.rollouts_per_problem,
            targets_total: self.targets_total as u64,
            targets_in_batch: self.batch_size as u64,
            generations: sampled.count() as u64,
            conjecture_samples: conjectures.iter().filter(|c| c.sample.is_some()).count() as u64,
            conjecturer_examples: conjecturer_examples(&conjectures),
            problems: solver.problems,
            conjectures,
            rollouts: solver.rollouts,
            reviews: self.problems.iter().flat_map(|problem| self.review_outcomes(problem)).collect(),
            newly_solved: solver.newly_solved,
            stored_proofs: solver.stored_proofs,
            seen: self.conjecture_fingerprints(),
            attempts: self.attempts(state),
            threshold: self.conjecture_threshold(),
            solver_examples: solver.examples,
            matching: None,
        })
    }

    fn conjecture_fingerprints(&self) -> Vec<u64> {
        if !self.config.conjecturer.refuse_seen {
            return Vec::new();
        }
        let conjectures = self.problems.iter().filter(|problem| problem.is_conjecture());
        conjectures.map(|conjecture| fingerprint(&conjecture.problem.statement)).collect()
    }

    /// Returns the refused proofs of the targets that are still unsolved, in the order of the rollouts, at most as many as
    /// conjectures may be derived from. Proofs that are too short to contain a conjecture are left out.
    fn attempts(&self, state: &RunState) -> Vec<(ProblemId, Vec<Arc<str>>)> {
        let config = &self.config.conjecturer;
        let limit = config.derived_per_target() as usize;
        if limit == 0 {
            return Vec::new();
        }
        let unsolved = |problem: &&ProblemState| {
            !problem.is_conjecture() && problem.tally().proved == 0 && !state.is_solved(&problem.problem.id)
        };
        let attempts = |problem: &ProblemState| {
            let mut proofs: Vec<Arc<str>> = Vec::new();
            for proof in problem.rollouts.iter().filter_map(refused_proof) {
                let is_new = proof.steps >= config.attempt_min_steps && !proofs.contains(&proof.text);
                if is_new && proofs.len() < limit {
                    proofs.push(proof.text.clone());
                }
            }
            (!proofs.is_empty()).then(|| (problem.problem.id.clone(), proofs))
        };
        self.problems.iter().filter(unsolved).filter_map(attempts).collect()
    }

    fn review_outcomes(&self, problem: &ProblemState) -> Vec<ReviewOutcome> {
        let outcome = |(index, attempt): (u32, &ReviewAttempt)| ReviewOutcome {
            key: self.key(TaskKind::Review, &problem.problem.id, index),
            read: attempt.read.clone(),
            sample: attempt.sample,
        };
        (0u32..).zip(&problem.review.attempts).map(outcome).collect()
    }
}

fn refused_proof(rollout: &RolloutState) -> Option<&ParsedProof> {
    match rollout {
        RolloutState::Judged { proof, judgement, .. } if judgement.verdict == Verdict::Refused => Some(proof),
        _ => None,
    }
}
