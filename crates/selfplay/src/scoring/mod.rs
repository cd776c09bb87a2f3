//! Computes the outcome of a complete round: rewards, training examples and everything that the run's state absorbs.

mod conjecturer;
mod solver;

use crate::config::GuideKind;
use crate::data::{ProblemId, Verdict};
use crate::learned::{GuideExample, GuideFeatures, nearest};
use crate::outcome::{ConjectureOutcome, ReviewOutcome, RoundOutcome, conjecturer_examples};
use crate::rate::Tally;
use crate::round::{ConjectureSlot, ProblemState, ReviewAttempt, RolloutState, Round, SlotState};
use crate::state::RunState;
use crate::store::fingerprint;
use crate::task::{ParsedProof, TaskKey, TaskKind};
use solver::SolverOutcome;
use std::collections::HashSet;
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
        let conjectures = self.conjecture_outcomes(&state.learned);
        let guide_examples = self.guide_examples(&conjectures, &solver, state);
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
            guide_examples,
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

    /// Returns the learned Guide's examples: the conjectures that the Solver is trained on, each with the unsolved
    /// targets that it may help.
    fn guide_examples(
        &self,
        conjectures: &[ConjectureOutcome],
        solver: &SolverOutcome,
        state: &RunState,
    ) -> Vec<GuideExample> {
        let guide = &self.config.guide;
        if !guide.on || guide.kind != GuideKind::Learned {
            return Vec::new();
        }
        let trained_on: HashSet<&ProblemId> = solver.examples.iter().map(|e| &e.key.problem).collect();
        let solved_now: HashSet<&ProblemId> = solver.newly_solved.iter().map(|(target, _)| target).collect();
        let unsolved = |id: &ProblemId| !state.is_solved(id) && !solved_now.contains(id);
        let targets = || {
            let targets = self.problems.iter().filter(|problem| !problem.is_conjecture());
            targets.map(|target| &target.problem).filter(|problem| unsolved(&problem.id))
        };
        let example = |(slot, conjecture): (&ConjectureSlot, &ConjectureOutcome)| {
            let features = self.guide_features(slot, conjecture).filter(|_| trained_on.contains(&slot.id))?;
            let own = slot.condition.problem();
            let others = targets().filter(|problem| problem.id != own.id);
            let near = nearest(&own.statement, others, guide.learned_neighbours as usize);
            let watched: Vec<ProblemId> =
                unsolved(&own.id).then_some(own).into_iter().chain(near).map(|p| p.id.clone()).collect();
            let until = self.number.saturating_add(guide.learned_rounds);
            (!watched.is_empty()).then_some(GuideExample { round: self.number, until, watched, features })
        };
        self.slots.iter().zip(conjectures).filter_map(example).collect()
    }

    /// Returns the learned Guide's features of a conjecture, if the conjecture was accepted.
    fn guide_features(&self, slot: &ConjectureSlot, conjecture: &ConjectureOutcome) -> Option<GuideFeatures> {
        let SlotState::Accepted { read, .. } = &slot.state else { return None };
        let rate = conjecture.tally.as_ref().and_then(Tally::rate).unwrap_or(0.0);
        let lengths =
            [&*read.statement, &slot.condition.problem().statement].map(|s| s.split_whitespace().count());
        Some(GuideFeatures::of(conjecture.review.as_ref(), read.rubric, rate, lengths[0], lengths[1]))
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
