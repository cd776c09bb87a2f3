//! What a finished round comes to: solve rates, rewards, examples to train on.

use crate::config::{ConjectureRule, Fate, GuideKind, MalformedReview, Objective};
use crate::data::{Problem, ProblemId, Review, Role, SampleFacts, Verdict};
use crate::entropy::mean;
use crate::learned::{LearnedGuide, Lesson, Signs, nearest};
use crate::objective::{
    RolloutFacts, rollout_weights, selects_conjecture, selects_target, shaped_reward, stored_weight,
};
use crate::penalty::length_penalty;
use crate::rate::Tally;
use crate::reward::{guide_score, normalise, passes_threshold, solve_reward, synth_reward};
use crate::round::{Origin, Refusal, ReviewState, RolloutState, Round, Slot, SlotState, Work};
use crate::seed::{Stream, shuffle_seed};
use crate::state::{RunState, SolvedTarget};
use crate::store::{StoredProof, admit, fingerprint, in_window};
use crate::stp::{Matching, Provability, select_conjectures};
use crate::task::{Lemma, ReadProof, TaskKey, TaskKind};
use crate::training::{Example, Group};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Everything a round comes to. It is a function of the round's beginning and its events, and of nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundOutcome {
    /// The round's number.
    pub round: u32,
    /// How often the data set was gone through before.
    pub epoch: u64,
    /// k.
    pub rollouts_per_problem: u32,
    /// Targets in the data set.
    pub targets_total: u64,
    /// Targets in the round's batch; expert iteration samples only some of them.
    pub targets_in_batch: u64,
    /// Sampled targets in the batch's order, then accepted conjectures in the order of their slots.
    pub problems: Vec<ProblemOutcome>,
    /// Every conjecture asked for, in the order of the slots.
    pub conjectures: Vec<ConjectureOutcome>,
    /// All rollouts: by problem in the order of `problems`, then by number.
    pub rollouts: Vec<RolloutOutcome>,
    /// All reviews sampled, by conjecture, then by attempt.
    pub reviews: Vec<ReviewOutcome>,
    /// Targets that were proved for the first time, with their first proof.
    pub newly_solved: Vec<(ProblemId, SolvedTarget)>,
    /// Proofs of targets that enter the store, by target.
    pub stored_proofs: Vec<(ProblemId, Vec<StoredProof>)>,
    /// Fingerprints of the accepted conjectures, if later rounds refuse them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<u64>,
    /// Conjectures proved in this round that a proof of their target may cite, if the Solver is to cite them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lemmas: Vec<(ProblemId, Arc<Lemma>)>,
    /// The conjectures that the Solver is trained on, for a learned Guide to see what they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<Lesson>,
    /// The highest conjecture solve rate that is not too easy.
    pub threshold: f64,
    /// What the Solver is trained on; empty if it is not trained.
    pub solver_examples: Vec<Example>,
    /// What the Conjecturer is trained on; empty if it is not trained or if no example has a weight other than 0.
    pub conjecturer_examples: Vec<Example>,
    /// What the chosen conjectures were re-weighted by, under STP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<Matching>,
    /// Rollouts sampled in this round.
    pub generations: u64,
    /// Conjectures sampled in this round.
    pub conjecture_samples: u64,
}

/// Target or conjecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A problem of the user's data set.
    Target,
    /// A problem invented in this round.
    Conjecture,
}

/// One problem of the round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemOutcome {
    /// The problem.
    pub problem: Arc<Problem>,
    /// Target or conjecture.
    pub kind: ProblemKind,
    /// Whether an earlier round had proved it.
    pub solved_before: bool,
    /// Its verdicts.
    pub tally: Tally,
    /// Whether the Solver's rule of selection takes it.
    pub selected: bool,
}

/// What became of one conjecture that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConjectureStatus {
    /// It is a problem of the round.
    Accepted {
        /// Its statement.
        statement: Arc<str>,
    },
    /// A target or an earlier conjecture has the same statement.
    Duplicate {
        /// Its statement.
        statement: Arc<str>,
        /// The problem that has it.
        of: ProblemId,
    },
    /// It is not new.
    Refused {
        /// Its statement.
        statement: Arc<str>,
        /// Why.
        refusal: Refusal,
    },
    /// No well-formed statement could be read.
    Malformed {
        /// The defect's name.
        defect: String,
    },
    /// The system lost it.
    Lost {
        /// Why.
        reason: String,
    },
}

/// One conjecture that was asked for, with its rewards. A reward is absent where it does not exist: `solve_reward` of a
/// conjecture that nobody judged, `guide_score` of one that was not reviewed, `weight` of one that is not trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConjectureOutcome {
    /// The completion's task.
    pub key: TaskKey,
    /// The conjecture's id as a problem.
    pub id: ProblemId,
    /// The problem it was invented for.
    pub target: ProblemId,
    /// What became of it.
    pub status: ConjectureStatus,
    /// The completion's facts.
    pub sample: Option<SampleFacts>,
    /// Its verdicts, if it was accepted.
    pub tally: Option<Tally>,
    /// Whether it earns nothing since a proof that was found is too short.
    pub trivial: bool,
    /// R_solve, `0..1`.
    pub solve_reward: Option<f64>,
    /// The well-formed review.
    pub review: Option<Review>,
    /// Whether a Guide had its say: by a review, in vain or not, or by the rubric.
    pub reviewed: bool,
    /// Whether it was reviewed in vain.
    pub review_failed: bool,
    /// R_guide, `0..=8`; 1 without a Guide.
    pub guide_score: Option<f64>,
    /// R_synth, `0..8`; under STP 1 or 0.
    pub synth_reward: Option<f64>,
    /// R_synth normalised to `0..=1`.
    pub normalised: Option<f64>,
    /// Weight in the Conjecturer's loss: the normalised reward, or the negative length penalty in its place; under STP
    /// times the weight of [`RoundOutcome::matching`].
    pub weight: Option<f64>,
}

/// One rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutOutcome {
    /// Its task.
    pub key: TaskKey,
    /// The verdict.
    pub verdict: Verdict,
    /// The checker's reason, the defect of a malformed one, or why it was lost; empty for `proved`.
    pub reason: String,
    /// The step of the proof at which the checker stopped, from 1.
    pub step: Option<u32>,
    /// Time in the checker, microseconds.
    pub micros: u64,
    /// The proof, if one was read.
    pub proof: Option<ReadProof>,
    /// The conjecture that the proof was free to cite as a lemma.
    pub lemma: Option<ProblemId>,
    /// The completion's facts; absent if it was lost before it was sampled.
    pub sample: Option<SampleFacts>,
    /// The shaped reward; absent without a verdict.
    pub reward: Option<f64>,
    /// Weight in the Solver's loss of this round, if it is trained on.
    pub weight: Option<f64>,
}

/// One review that was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReviewOutcome {
    /// Its task: the conjecture and the attempt.
    pub key: TaskKey,
    /// The sub-scores, or the defect.
    pub read: Result<Review, String>,
    /// The completion's facts; absent if it was lost.
    pub sample: Option<SampleFacts>,
}

/// A round that still waits for answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("round {round} still waits for {open} tasks, the first is {first}")]
pub struct NotComplete {
    /// The round.
    pub round: u32,
    /// Tasks without an answer.
    pub open: usize,
    /// The first of them.
    pub first: TaskKey,
}

impl Round {
    /// What the round comes to. `state` is the state it began with.
    ///
    /// # Errors
    /// While tasks are open.
    pub fn finish(&self, state: &RunState) -> Result<RoundOutcome, NotComplete> {
        let pending = self.pending();
        if let Some(command) = pending.first() {
            return Err(NotComplete {
                round: self.number,
                open: pending.len(),
                first: command.key().clone(),
            });
        }
        let solver = self.solver_outcome(state);
        let (conjectures, conjecturer_examples) = self.conjecturer_outcome(&state.learned);
        let lessons = self.lessons(&conjectures, &solver, state);
        let sampled = solver.rollouts.iter().filter(|rollout| rollout.sample.is_some());
        Ok(RoundOutcome {
            round: self.number,
            epoch: self.epoch,
            rollouts_per_problem: self.config.rollouts_per_problem,
            targets_total: self.targets_total as u64,
            targets_in_batch: self.batch_size as u64,
            generations: sampled.count() as u64,
            conjecture_samples: conjectures.iter().filter(|c| c.sample.is_some()).count() as u64,
            problems: solver.problems,
            conjectures,
            rollouts: solver.rollouts,
            reviews: self.works.iter().flat_map(|work| self.review_outcomes(work)).collect(),
            newly_solved: solver.newly_solved,
            stored_proofs: solver.stored_proofs,
            seen: self.fingerprints(),
            lemmas: self.lemmas(state),
            lessons,
            threshold: self.conjecture_threshold(),
            solver_examples: solver.examples,
            conjecturer_examples,
            matching: None,
        })
    }

    fn fingerprints(&self) -> Vec<u64> {
        if !self.config.conjecturer.refuse_seen {
            return Vec::new();
        }
        let conjectures = self.works.iter().filter(|work| matches!(work.origin, Origin::Conjecture { .. }));
        conjectures.map(|work| fingerprint(&work.problem.statement)).collect()
    }

    /// The conjectures proved in this round that a proof of their target may cite, for targets that are still unsolved:
    /// each with its first proof. Trivial ones save the Solver nothing.
    fn lemmas(&self, state: &RunState) -> Vec<(ProblemId, Arc<Lemma>)> {
        if self.config.solver.lemma_rollouts == 0 {
            return Vec::new();
        }
        let solved_now: HashSet<&ProblemId> = self
            .works
            .iter()
            .filter(|work| matches!(work.origin, Origin::Target { .. }) && work.tally().proved > 0)
            .map(|work| &work.problem.id)
            .collect();
        let lemma = |slot: &Slot| {
            let SlotState::Accepted { work, read, .. } = &slot.state else { return None };
            let (work, target) = (&self.works[*work], &slot.condition.problem().id);
            if self.is_trivial(work) || state.is_solved(target) || solved_now.contains(target) {
                return None;
            }
            let proof = work.rollouts.iter().find_map(proof_of)?.text.clone();
            let statement = read.lemma.clone()?;
            Some((
                target.clone(),
                Arc::new(Lemma { conjecture: slot.id.clone(), round: self.number, statement, proof }),
            ))
        };
        self.slots.iter().filter_map(lemma).collect()
    }

    /// The conjectures that the Solver is trained on, each with the unsolved targets that it may help.
    fn lessons(
        &self,
        conjectures: &[ConjectureOutcome],
        solver: &SolverOutcome,
        state: &RunState,
    ) -> Vec<Lesson> {
        let guide = &self.config.guide;
        if !guide.on || guide.kind != GuideKind::Learned {
            return Vec::new();
        }
        let trained_on: HashSet<&ProblemId> = solver.examples.iter().map(|e| &e.key.problem).collect();
        let solved_now: HashSet<&ProblemId> = solver.newly_solved.iter().map(|(target, _)| target).collect();
        let unsolved = |id: &ProblemId| !state.is_solved(id) && !solved_now.contains(id);
        let targets = || {
            let works = self.works.iter().filter(|work| matches!(work.origin, Origin::Target { .. }));
            works.map(|work| &work.problem).filter(|problem| unsolved(&problem.id))
        };
        let lesson = |(slot, conjecture): (&Slot, &ConjectureOutcome)| {
            let signs = self.signs(slot, conjecture).filter(|_| trained_on.contains(&slot.id))?;
            let own = slot.condition.problem();
            let others = targets().filter(|problem| problem.id != own.id);
            let near = nearest(&own.statement, others, guide.learned_neighbours as usize);
            let watched: Vec<ProblemId> =
                unsolved(&own.id).then_some(own).into_iter().chain(near).map(|p| p.id.clone()).collect();
            let until = self.number.saturating_add(guide.learned_rounds);
            (!watched.is_empty()).then_some(Lesson { round: self.number, until, watched, signs })
        };
        self.slots.iter().zip(conjectures).filter_map(lesson).collect()
    }

    /// What a learned Guide sees of an accepted conjecture.
    fn signs(&self, slot: &Slot, conjecture: &ConjectureOutcome) -> Option<Signs> {
        let SlotState::Accepted { read, .. } = &slot.state else { return None };
        let rate = conjecture.tally.as_ref().and_then(Tally::rate).unwrap_or(0.0);
        let lengths =
            [&*read.statement, &slot.condition.problem().statement].map(|s| s.split_whitespace().count());
        Some(Signs::of(conjecture.review.as_ref(), read.rubric, rate, lengths[0], lengths[1]))
    }

    /// Events that were kept for a task that this round never had.
    pub fn unclaimed_events(&self) -> u64 {
        self.unclaimed()
    }

    fn review_outcomes(&self, work: &Work) -> Vec<ReviewOutcome> {
        let outcome = |(index, attempt): (u32, &crate::round::ReviewAttempt)| ReviewOutcome {
            key: TaskKey {
                round: self.number,
                kind: TaskKind::Review,
                problem: work.problem.id.clone(),
                index,
            },
            read: attempt.read.clone(),
            sample: attempt.sample,
        };
        (0u32..).zip(&work.review.attempts).map(outcome).collect()
    }
}

// ---------------------------------------------------------------------------------------------------------- the Solver

#[derive(Default)]
struct SolverOutcome {
    problems: Vec<ProblemOutcome>,
    rollouts: Vec<RolloutOutcome>,
    newly_solved: Vec<(ProblemId, SolvedTarget)>,
    stored_proofs: Vec<(ProblemId, Vec<StoredProof>)>,
    examples: Vec<Example>,
}

impl Round {
    fn solver_outcome(&self, state: &RunState) -> SolverOutcome {
        let mut outcome = SolverOutcome::default();
        let mut groups = 0;
        for work in &self.works {
            let tally = work.tally();
            let selected = self.is_selected(work, tally);
            let mut rollouts = self.rollout_outcomes(work);
            if selected && self.config.is_trained_on(Role::Solver) {
                self.weigh_rollouts(work, &mut rollouts, &mut groups, &mut outcome.examples);
            }
            let solved_before = work.origin == Origin::Target { solved_before: true };
            let kind = match work.origin {
                Origin::Target { .. } => {
                    self.keep_proofs(work, &rollouts, tally, state, &mut outcome);
                    ProblemKind::Target
                }
                Origin::Conjecture { .. } => ProblemKind::Conjecture,
            };
            outcome.problems.push(ProblemOutcome {
                problem: work.problem.clone(),
                kind,
                solved_before,
                tally,
                selected,
            });
            outcome.rollouts.append(&mut rollouts);
        }
        self.bound_conjectures(&mut outcome);
        if self.config.is_trained_on(Role::Solver)
            && self.config.solver.objective == Objective::ExpertIteration
        {
            self.train_on_the_store(state, &mut outcome);
        }
        outcome
    }

    fn is_selected(&self, work: &Work, tally: Tally) -> bool {
        let Some(rate) = tally.rate() else { return false };
        let selection = self.config.solver.effective_selection();
        match work.origin {
            Origin::Target { solved_before } => selects_target(selection, rate, solved_before),
            Origin::Conjecture { .. } => selects_conjecture(selection, rate) && !self.is_trivial(work),
        }
    }

    /// Leaves out proofs of conjectures, drawn by the run's seed, until those that stay are at most their share of the
    /// examples. Examples of one group stay or go together.
    fn bound_conjectures(&self, outcome: &mut SolverOutcome) {
        let share = self.config.solver.conjecture_share;
        if share >= 1.0 {
            return;
        }
        let conjectures: HashSet<&ProblemId> = outcome
            .problems
            .iter()
            .filter(|problem| problem.kind == ProblemKind::Conjecture)
            .map(|problem| &problem.problem.id)
            .collect();
        let is_conjecture = |example: &Example| conjectures.contains(&example.key.problem);
        let targets = outcome.examples.iter().filter(|example| !is_conjecture(example)).count();
        let mut room = (share / (1.0 - share) * targets as f64).floor() as usize;
        let mut units: Vec<Vec<usize>> = Vec::new();
        for (i, example) in outcome.examples.iter().enumerate().filter(|(_, e)| is_conjecture(e)) {
            match units.last_mut() {
                Some(unit) if example.group.is_some() && outcome.examples[unit[0]].group == example.group => {
                    unit.push(i)
                }
                _ => units.push(vec![i]),
            }
        }
        let seed = shuffle_seed(self.run_seed, "conjecture-share", u64::from(self.number));
        Stream::new(seed).shuffle(&mut units);
        let mut left_out = HashSet::new();
        for unit in units {
            match room.checked_sub(unit.len()) {
                Some(rest) => room = rest,
                None => left_out.extend(unit.into_iter().map(|i| outcome.examples[i].key.clone())),
            }
        }
        outcome.examples.retain(|example| !left_out.contains(&example.key));
        for rollout in outcome.rollouts.iter_mut().filter(|rollout| left_out.contains(&rollout.key)) {
            rollout.weight = None;
        }
    }

    fn rollout_outcomes(&self, work: &Work) -> Vec<RolloutOutcome> {
        let outcome = |(index, state): (u32, &RolloutState)| {
            let key = TaskKey {
                round: self.number,
                kind: TaskKind::Rollout,
                problem: work.problem.id.clone(),
                index,
            };
            let facts = facts_of(state);
            let reward =
                facts.map(|facts| shaped_reward(&facts, &self.config.penalties, self.context_window));
            let lemma = work.lemma_of(index).map(|lemma| lemma.conjecture.clone());
            RolloutOutcome { lemma, ..rollout_outcome(key, state, reward) }
        };
        (0u32..).zip(&work.rollouts).map(outcome).collect()
    }

    /// Weighs a selected problem's rollouts, and makes examples of them. Targets of expert iteration get their examples
    /// from the store instead.
    fn weigh_rollouts(
        &self,
        work: &Work,
        rollouts: &mut [RolloutOutcome],
        groups: &mut u32,
        examples: &mut Vec<Example>,
    ) {
        let stored = self.config.solver.objective == Objective::ExpertIteration;
        if stored && matches!(work.origin, Origin::Target { .. }) {
            return;
        }
        let repeated = self.repeated_proofs(work);
        let judged: Vec<(usize, RolloutFacts)> = work
            .rollouts
            .iter()
            .enumerate()
            .filter(|(i, _)| !repeated.contains(i))
            .filter_map(|(i, state)| Some((i, facts_of(state)?)))
            .filter(|(_, facts)| facts.sample.generated_tokens > 0)
            .collect();
        let facts: Vec<RolloutFacts> = judged.iter().map(|(_, facts)| *facts).collect();
        let weights =
            rollout_weights(&facts, &self.config.solver, &self.config.penalties, self.context_window);
        let tokens = facts.iter().map(|facts| u64::from(facts.sample.generated_tokens)).sum();
        let group = self.config.solver.objective.is_grouped().then_some(Group { number: *groups, tokens });
        let before = examples.len();
        for ((i, facts), weight) in judged.into_iter().zip(weights) {
            rollouts[i].weight = weight;
            let key = rollouts[i].key.clone();
            let generated_tokens = facts.sample.generated_tokens;
            examples.extend(weight.map(|weight| Example { key, weight, generated_tokens, group }));
        }
        *groups += u32::from(examples.len() > before);
    }

    /// Rollouts whose proof an earlier one of the problem has found, if such are left out. The same proof by another
    /// lemma is another completion to another prompt.
    fn repeated_proofs(&self, work: &Work) -> HashSet<usize> {
        let mut repeated = HashSet::new();
        if !self.config.solver.distinct_examples {
            return repeated;
        }
        let mut found = HashSet::new();
        for (i, state) in work.rollouts.iter().enumerate() {
            let lemma = work.lemma_of(i as u32).map(|lemma| &lemma.statement);
            if let Some(proof) = proof_of(state)
                && !found.insert((&proof.text, lemma))
            {
                repeated.insert(i);
            }
        }
        repeated
    }

    /// Notes a target's first proof, and which of its proofs enter the store.
    fn keep_proofs(
        &self,
        work: &Work,
        rollouts: &[RolloutOutcome],
        tally: Tally,
        state: &RunState,
        outcome: &mut SolverOutcome,
    ) {
        let target = &work.problem.id;
        let proved =
            rollouts.iter().zip(&work.rollouts).filter(|(rollout, _)| rollout.verdict == Verdict::Proved);
        let mut proofs = Vec::new();
        for (rollout, rollout_state) in proved {
            let (Some(proof), Some(facts)) = (&rollout.proof, facts_of(rollout_state)) else { continue };
            if proofs.is_empty() && !state.is_solved(target) {
                let first = SolvedTarget {
                    round: self.number,
                    index: rollout.key.index,
                    proof: proof.text.clone(),
                    best_rate: tally.rate().unwrap_or(0.0),
                };
                outcome.newly_solved.push((target.clone(), first));
            }
            proofs.push(StoredProof {
                round: self.number,
                index: rollout.key.index,
                weight: stored_weight(&facts, &self.config.penalties, self.context_window),
                generated_tokens: facts.sample.generated_tokens,
                fingerprint: fingerprint(&proof.text),
            });
        }
        let solver = &self.config.solver;
        let admitted = admit(state.proofs.of(target), &proofs, solver.proofs_cap, solver.distinct_proofs);
        if !admitted.is_empty() {
            outcome.stored_proofs.push((target.clone(), admitted));
        }
    }

    /// Expert iteration: the proofs of the last rounds, this one included, from the store as it is after this round.
    fn train_on_the_store(&self, state: &RunState, outcome: &mut SolverOutcome) {
        let mut store = state.proofs.clone();
        for (target, proofs) in &outcome.stored_proofs {
            store.extend(target, proofs.iter().cloned());
        }
        let mut examples = Vec::new();
        for (target, proofs) in store.iter() {
            let fresh =
                proofs.iter().filter(|proof| in_window(proof.round, self.number, self.config.solver.window));
            for proof in fresh.filter(|proof| proof.generated_tokens > 0) {
                let Some(weight) = proof.weight else { continue };
                let kind = TaskKind::Rollout;
                let key = TaskKey { round: proof.round, kind, problem: target.clone(), index: proof.index };
                examples.push(Example { key, weight, generated_tokens: proof.generated_tokens, group: None });
            }
        }
        let weights: HashMap<&TaskKey, f64> =
            examples.iter().map(|example| (&example.key, example.weight)).collect();
        for rollout in &mut outcome.rollouts {
            if let Some(&weight) = weights.get(&rollout.key) {
                rollout.weight = Some(weight);
            }
        }
        examples.append(&mut outcome.examples);
        outcome.examples = examples;
    }
}

/// What the reward of a judged rollout depends on; `None` for one that was lost or that the checker could not judge.
fn facts_of(state: &RolloutState) -> Option<RolloutFacts> {
    match state {
        RolloutState::Judged { proof, sample, judgement } if judgement.verdict.is_judged() => {
            Some(RolloutFacts {
                proved: judgement.verdict == Verdict::Proved,
                penalised: proof.penalised,
                proof_characters: characters(&proof.text),
                sample: *sample,
            })
        }
        RolloutState::Malformed { sample, .. } => {
            Some(RolloutFacts { proved: false, penalised: false, proof_characters: 0, sample: *sample })
        }
        _ => None,
    }
}

/// The proof of a rollout that holds.
fn proof_of(state: &RolloutState) -> Option<&ReadProof> {
    match state {
        RolloutState::Judged { proof, judgement, .. } if judgement.verdict == Verdict::Proved => Some(proof),
        _ => None,
    }
}

fn characters(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn rollout_outcome(key: TaskKey, state: &RolloutState, reward: Option<f64>) -> RolloutOutcome {
    let mut outcome = RolloutOutcome {
        key,
        verdict: state.verdict().unwrap_or(Verdict::Infra),
        reason: String::new(),
        step: None,
        micros: 0,
        proof: None,
        lemma: None,
        sample: None,
        reward,
        weight: None,
    };
    match state {
        RolloutState::Waiting => {}
        RolloutState::Sampled { proof, sample } => {
            outcome.proof = Some(proof.clone());
            outcome.sample = Some(*sample);
        }
        RolloutState::Judged { proof, sample, judgement } => {
            outcome.proof = Some(proof.clone());
            outcome.sample = Some(*sample);
            outcome.reason = judgement.reason.clone();
            outcome.step = judgement.step;
            outcome.micros = judgement.micros;
        }
        RolloutState::Malformed { defect, sample } => {
            outcome.reason = defect.clone();
            outcome.sample = Some(*sample);
        }
        RolloutState::Lost { reason, sampled } => {
            outcome.reason = reason.clone();
            if let Some((proof, sample)) = sampled {
                outcome.proof = Some(proof.clone());
                outcome.sample = Some(*sample);
            }
        }
    }
    outcome
}

// ----------------------------------------------------------------------------------------------------- the Conjecturer

impl Round {
    fn conjecturer_outcome(&self, learned: &LearnedGuide) -> (Vec<ConjectureOutcome>, Vec<Example>) {
        let mut conjectures: Vec<ConjectureOutcome> =
            self.slots.iter().map(|slot| self.conjecture(slot)).collect();
        self.score_reviews(&mut conjectures, learned);
        let candidates = self.reward_conjectures(&mut conjectures);
        self.weigh_conjectures(&mut conjectures, &candidates);
        let examples = examples_of(&conjectures);
        (conjectures, examples)
    }

    /// A conjecture before its rewards.
    fn conjecture(&self, slot: &Slot) -> ConjectureOutcome {
        let (status, sample, work) = match &slot.state {
            SlotState::Waiting => (ConjectureStatus::Lost { reason: String::new() }, None, None),
            // Every slot is decided once nothing is open; a read one is then either accepted or a duplicate.
            SlotState::Read { read, sample } => {
                (ConjectureStatus::Accepted { statement: read.statement.clone() }, Some(*sample), None)
            }
            SlotState::Accepted { work, sample, .. } => {
                let work = &self.works[*work];
                let statement = work.problem.statement.clone();
                (ConjectureStatus::Accepted { statement }, Some(*sample), Some(work))
            }
            SlotState::Duplicate { statement, of, sample } => (
                ConjectureStatus::Duplicate { statement: statement.clone(), of: of.clone() },
                Some(*sample),
                None,
            ),
            SlotState::Refused { statement, refusal, sample } => {
                let (statement, refusal) = (statement.clone(), refusal.clone());
                (ConjectureStatus::Refused { statement, refusal }, Some(*sample), None)
            }
            SlotState::Malformed { defect, sample } => {
                (ConjectureStatus::Malformed { defect: defect.clone() }, Some(*sample), None)
            }
            SlotState::Lost { reason } => (ConjectureStatus::Lost { reason: reason.clone() }, None, None),
        };
        let reviews = work.map(|work| &work.review);
        let review = reviews.and_then(mean_review);
        ConjectureOutcome {
            key: slot.key.clone(),
            id: slot.id.clone(),
            target: slot.condition.problem().id.clone(),
            status,
            sample,
            tally: work.map(Work::tally),
            trivial: work.is_some_and(|work| self.is_trivial(work)),
            solve_reward: None,
            review,
            reviewed: reviews.is_some_and(|reviews| reviews.wanted),
            review_failed: review.is_none() && reviews.is_some_and(|reviews| reviews.wanted),
            guide_score: None,
            synth_reward: None,
            normalised: None,
            weight: None,
        }
    }

    /// R_guide of every conjecture that was reviewed, and of all without a Guide.
    fn score_reviews(&self, conjectures: &mut [ConjectureOutcome], learned: &LearnedGuide) {
        // A score is the mean over a conjecture's reviews, each with its veto; not the score of the mean review.
        let read: Vec<Option<f64>> = self.slots.iter().map(|slot| self.score_of_reviews(slot)).collect();
        let failed = match self.config.guide.malformed {
            MalformedReview::Zero => 0.0,
            MalformedReview::Mean => mean(read.iter().flatten().copied()).unwrap_or(0.0),
        };
        let guide = &self.config.guide;
        for ((slot, conjecture), score) in self.slots.iter().zip(conjectures).zip(read) {
            let SlotState::Accepted { read, .. } = &slot.state else { continue };
            conjecture.reviewed |= guide.on && guide.kind == GuideKind::Rubric;
            conjecture.guide_score = match (guide.on, guide.kind) {
                (false, _) => Some(1.0),
                (true, GuideKind::Rubric) => Some(read.rubric.clamp(0.0, 8.0)),
                (true, GuideKind::Model) => score.or(conjecture.review_failed.then_some(failed)),
                (true, GuideKind::Learned) => self.signs(slot, conjecture).map(|signs| learned.score(&signs)),
            };
        }
    }

    fn score_of_reviews(&self, slot: &Slot) -> Option<f64> {
        let SlotState::Accepted { work, .. } = slot.state else { return None };
        mean(self.works[work].review.well_formed().map(guide_score))
    }

    /// R_solve and R_synth; gives the positions of the conjectures that may be trained on, with their reward.
    fn reward_conjectures(&self, conjectures: &mut [ConjectureOutcome]) -> Vec<(usize, f64)> {
        let config = &self.config.conjecturer;
        let threshold = self.conjecture_threshold();
        let elegant = self.barely_provable(conjectures);
        let mut candidates = Vec::new();
        for (i, conjecture) in conjectures.iter_mut().enumerate() {
            if matches!(conjecture.status, ConjectureStatus::Malformed { .. }) {
                if config.malformed == Fate::Zero {
                    candidates.push((i, 0.0));
                }
                continue;
            }
            let Some(rate) = conjecture.tally.as_ref().and_then(Tally::rate) else { continue };
            let solve = if conjecture.trivial { 0.0 } else { solve_reward(rate, threshold) };
            let (reward, selected) = match config.rule {
                ConjectureRule::Stp => (f64::from(u8::from(elegant[i])), elegant[i]),
                ConjectureRule::Sgs => {
                    let guide = conjecture.guide_score.unwrap_or(0.0);
                    (synth_reward(solve, guide), passes_threshold(rate, threshold))
                }
            };
            conjecture.solve_reward = Some(solve);
            conjecture.synth_reward = Some(reward);
            if !conjecture.trivial && (selected || config.unselected == Fate::Zero) {
                candidates.push((i, reward));
            }
        }
        candidates
    }

    /// STP's selection, by position; all false under another rule.
    fn barely_provable(&self, conjectures: &[ConjectureOutcome]) -> Vec<bool> {
        if self.config.conjecturer.rule != ConjectureRule::Stp {
            return vec![false; conjectures.len()];
        }
        let provability = |(slot, conjecture): (&Slot, &ConjectureOutcome)| {
            let rate = conjecture.tally.as_ref().and_then(Tally::rate).unwrap_or(0.0);
            let SlotState::Accepted { work, .. } = slot.state else {
                return Provability { rate: 0.0, shortest_proof: 0, statement: 0 };
            };
            let work = &self.works[work];
            let proofs = work.rollouts.iter().filter_map(facts_of).filter(|facts| facts.proved);
            let shortest_proof = proofs.map(|facts| facts.proof_characters).min().unwrap_or(0);
            Provability { rate, shortest_proof, statement: characters(&work.problem.statement) }
        };
        let all: Vec<Provability> = self.slots.iter().zip(conjectures).map(provability).collect();
        select_conjectures(&all, &self.config.conjecturer.stp)
    }

    /// Normalised rewards and weights of the candidates.
    fn weigh_conjectures(&self, conjectures: &mut [ConjectureOutcome], candidates: &[(usize, f64)]) {
        let rewards: Vec<f64> = candidates.iter().map(|&(_, reward)| reward).collect();
        let normalised = match self.config.conjecturer.rule {
            ConjectureRule::Sgs => normalise(&rewards, self.config.conjecturer.normalisation),
            ConjectureRule::Stp => rewards,
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

/// The mean of the sub-scores over the well-formed reviews.
fn mean_review(reviews: &ReviewState) -> Option<Review> {
    let of = |score: fn(&Review) -> f64| mean(reviews.well_formed().map(score));
    Some(Review {
        relevance: of(|r| r.relevance)?,
        redundancy: of(|r| r.redundancy)?,
        complexity: of(|r| r.complexity)?,
    })
}

/// What the Conjecturer is trained on: nothing, if no weight is other than 0.
pub(crate) fn examples_of(conjectures: &[ConjectureOutcome]) -> Vec<Example> {
    let examples: Vec<Example> = conjectures.iter().filter_map(example_of).collect();
    let signal = examples.iter().any(|example| example.weight != 0.0);
    if signal { examples } else { Vec::new() }
}

fn example_of(conjecture: &ConjectureOutcome) -> Option<Example> {
    let (weight, sample) = (conjecture.weight?, conjecture.sample?);
    let generated_tokens = sample.generated_tokens;
    Some(Example { key: conjecture.key.clone(), weight, generated_tokens, group: None })
}

impl RoundOutcome {
    /// Outcomes of the sampled targets.
    pub fn targets(&self) -> impl Iterator<Item = &ProblemOutcome> {
        self.problems.iter().filter(|problem| problem.kind == ProblemKind::Target)
    }

    /// Outcomes of the accepted conjectures.
    pub fn accepted_conjectures(&self) -> impl Iterator<Item = &ProblemOutcome> {
        self.problems.iter().filter(|problem| problem.kind == ProblemKind::Conjecture)
    }
}
