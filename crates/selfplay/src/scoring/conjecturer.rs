//! The Conjecturer's half of a round's outcome: R_solve, R_guide, R_synth and the weights that follow (paper, §3.2).

use super::solver::{characters, facts_of};
use crate::config::{ConjectureRule, GuideKind, MalformedReview, UnrewardedHandling};
use crate::data::{Review, Role};
use crate::entropy::mean;
use crate::outcome::{ConjectureOutcome, ConjectureStatus};
use crate::penalty::length_penalty;
use crate::rate::Tally;
use crate::reward::{guide_score, normalise, passes_threshold, solve_reward, synth_reward};
use crate::round::{ConjectureSlot, ProblemState, ReviewState, Round, SlotState};
use crate::stp::{Provability, select_conjectures};

impl Round {
    pub(super) fn conjecture_outcomes(&self) -> Vec<ConjectureOutcome> {
        let mut conjectures: Vec<ConjectureOutcome> =
            self.slots.iter().map(|slot| self.unrewarded_conjecture(slot)).collect();
        self.score_reviews(&mut conjectures);
        let candidates = self.reward_conjectures(&mut conjectures);
        self.weigh_conjectures(&mut conjectures, &candidates);
        conjectures
    }

    /// Returns the outcome of a conjecture without its rewards.
    fn unrewarded_conjecture(&self, slot: &ConjectureSlot) -> ConjectureOutcome {
        let (status, sample, problem) = match slot.state.clone() {
            SlotState::Waiting | SlotState::Read { .. } => {
                unreachable!("invariant: a round is scored only after every conjecture is decided")
            }
            SlotState::Accepted { problem, sample, .. } => {
                let problem = &self.problems[problem];
                let statement = problem.problem.statement.clone();
                (ConjectureStatus::Accepted { statement }, Some(sample), Some(problem))
            }
            SlotState::Closed { status, sample } => (status, sample, None),
        };
        let is_sampled = self.config.conjecturer.is_sampled() && !self.is_derived(slot);
        let reviews = problem.map(|problem| &problem.review);
        let review = reviews.and_then(mean_review);
        let reviewed = reviews.is_some_and(|reviews| reviews.wanted);
        ConjectureOutcome {
            key: slot.key.clone(),
            id: slot.id.clone(),
            target: slot.condition.problem().id.clone(),
            status,
            padded: match &slot.state {
                SlotState::Accepted { read, .. } => read.padded,
                _ => None,
            },
            sample: sample.filter(|_| is_sampled),
            tally: problem.map(ProblemState::tally),
            trivial: problem.is_some_and(|problem| self.is_trivial(problem)),
            solve_reward: None,
            review,
            reviewed,
            review_failed: reviewed && review.is_none(),
            guide_score: None,
            synth_reward: None,
            normalised: None,
            weight: None,
        }
    }

    /// Sets R_guide of every reviewed conjecture, or of every accepted one in a run without a Guide.
    fn score_reviews(&self, conjectures: &mut [ConjectureOutcome]) {
        let guide = &self.config.guide;
        let scores: Vec<Option<f64>> = self.slots.iter().map(|slot| self.mean_guide_score(slot)).collect();
        let failed = match guide.malformed {
            MalformedReview::Zero => 0.0,
            MalformedReview::Mean => mean(scores.iter().flatten().copied()).unwrap_or(0.0),
        };
        for ((slot, conjecture), score) in self.slots.iter().zip(conjectures).zip(scores) {
            let SlotState::Accepted { read, .. } = &slot.state else { continue };
            conjecture.reviewed |= guide.on && guide.kind == GuideKind::Rubric;
            conjecture.guide_score = match (guide.on, guide.kind) {
                (false, _) => Some(1.0),
                (true, GuideKind::Rubric) => Some(read.rubric.clamp(0.0, 8.0)),
                (true, GuideKind::Model) => score.or(conjecture.review_failed.then_some(failed)),
            };
        }
    }

    /// Returns the mean score of a conjecture's well-formed reviews. This differs from the score of the mean review,
    /// because each review has its own veto.
    fn mean_guide_score(&self, slot: &ConjectureSlot) -> Option<f64> {
        let SlotState::Accepted { problem, .. } = slot.state else { return None };
        mean(self.problems[problem].review.well_formed().map(guide_score))
    }

    /// Sets R_solve and R_synth. Returns the positions and rewards of the conjectures that may be trained on.
    fn reward_conjectures(&self, conjectures: &mut [ConjectureOutcome]) -> Vec<(usize, f64)> {
        let config = &self.config.conjecturer;
        let threshold = self.conjecture_threshold();
        let stp_selected = self.stp_selection(conjectures);
        let mut candidates = Vec::new();
        for (i, (slot, conjecture)) in self.slots.iter().zip(conjectures).enumerate() {
            let is_derived = self.is_derived(slot);
            if matches!(conjecture.status, ConjectureStatus::Malformed { .. }) {
                if !is_derived && config.malformed == UnrewardedHandling::Zero {
                    candidates.push((i, 0.0));
                }
                continue;
            }
            let Some(rate) = conjecture.tally.as_ref().and_then(Tally::rate) else { continue };
            let solve = if conjecture.trivial { 0.0 } else { solve_reward(rate, threshold) };
            let (reward, selected) = match config.rule {
                ConjectureRule::Stp => (f64::from(u8::from(stp_selected[i])), stp_selected[i]),
                ConjectureRule::Sgs => {
                    let guide = conjecture.guide_score.unwrap_or(0.0);
                    (synth_reward(solve, guide), passes_threshold(rate, threshold))
                }
            };
            conjecture.solve_reward = Some(solve);
            conjecture.synth_reward = Some(reward);
            let is_candidate = selected || config.unselected == UnrewardedHandling::Zero;
            if !is_derived && !conjecture.trivial && is_candidate {
                candidates.push((i, reward));
            }
        }
        candidates
    }

    /// Returns, for each conjecture, whether STP selects it; all false under another rule.
    fn stp_selection(&self, conjectures: &[ConjectureOutcome]) -> Vec<bool> {
        if self.config.conjecturer.rule != ConjectureRule::Stp {
            return vec![false; conjectures.len()];
        }
        let provability = |(slot, conjecture): (&ConjectureSlot, &ConjectureOutcome)| {
            let problem = match slot.state {
                SlotState::Accepted { problem, .. } if !self.is_derived(slot) => problem,
                _ => return Provability { rate: 0.0, shortest_proof: 0, statement: 0 },
            };
            let problem = &self.problems[problem];
            let proofs = problem.rollouts.iter().filter_map(facts_of).filter(|facts| facts.proved);
            Provability {
                rate: conjecture.tally.as_ref().and_then(Tally::rate).unwrap_or(0.0),
                shortest_proof: proofs.map(|facts| facts.proof_characters).min().unwrap_or(0),
                statement: characters(&problem.problem.statement),
            }
        };
        let all: Vec<Provability> = self.slots.iter().zip(conjectures).map(provability).collect();
        select_conjectures(&all, &self.config.conjecturer.stp)
    }

    /// Sets the normalised rewards and the weights of the candidates.
    fn weigh_conjectures(&self, conjectures: &mut [ConjectureOutcome], candidates: &[(usize, f64)]) {
        let rewards: Vec<f64> = candidates.iter().map(|&(_, reward)| reward).collect();
        let config = &self.config.conjecturer;
        let normalised = match config.rule.is_normalised() {
            true => normalise(&rewards, config.normalisation),
            false => rewards,
        };
        for (&(i, _), normalised) in candidates.iter().zip(normalised) {
            let conjecture = &mut conjectures[i];
            conjecture.normalised = Some(normalised);
            let Some(sample) = conjecture.sample.filter(|sample| sample.generated_tokens > 0) else {
                continue;
            };
            if self.config.is_trained_on(Role::Conjecturer) {
                let penalty = length_penalty(&sample, &self.config.penalties, self.context_window);
                conjecture.weight = Some(if penalty < 0.0 { penalty } else { normalised });
            }
        }
    }
}

/// Returns the means of the sub-scores over the well-formed reviews; `None` if there are none.
fn mean_review(reviews: &ReviewState) -> Option<Review> {
    let of = |score: fn(&Review) -> f64| mean(reviews.well_formed().map(score));
    Some(Review {
        relevance: of(|r| r.relevance)?,
        redundancy: of(|r| r.redundancy)?,
        complexity: of(|r| r.complexity)?,
    })
}
