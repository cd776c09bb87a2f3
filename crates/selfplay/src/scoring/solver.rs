//! The Solver's half of a round's outcome: rewards and weights of rollouts, first proofs, the proof store.

use crate::data::{ProblemId, Role, Verdict};
use crate::objective::{
    RolloutFacts, rollout_weights, selects_conjecture, selects_target, shaped_reward, stored_weight,
};
use crate::outcome::{ProblemKind, ProblemOutcome, RolloutOutcome};
use crate::rate::Tally;
use crate::round::{ProblemOrigin, ProblemState, RolloutState, Round};
use crate::seed::{SeededRng, shuffle_seed};
use crate::state::RunState;
use crate::store::{SolvedTarget, StoredProof, admit, fingerprint, in_window};
use crate::task::{ParsedProof, TaskKey, TaskKind};
use crate::training::{Example, Group, grouped_positions};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(super) struct SolverOutcome {
    pub problems: Vec<ProblemOutcome>,
    pub rollouts: Vec<RolloutOutcome>,
    pub newly_solved: Vec<(ProblemId, SolvedTarget)>,
    pub stored_proofs: Vec<(ProblemId, Vec<StoredProof>)>,
    pub examples: Vec<Example>,
}

impl Round {
    pub(super) fn solver_outcome(&self, state: &RunState) -> SolverOutcome {
        let is_trained = self.config.is_trained_on(Role::Solver);
        let mut outcome = SolverOutcome::default();
        let mut groups = 0;
        for problem in &self.problems {
            let tally = problem.tally();
            let selected = self.is_selected(problem, tally);
            let mut rollouts = self.rollout_outcomes(problem);
            if selected && is_trained {
                self.weigh_rollouts(problem, &mut rollouts, &mut groups, &mut outcome.examples);
            }
            let kind = if problem.is_conjecture() {
                ProblemKind::Conjecture
            } else {
                self.keep_proofs(problem, &rollouts, tally, state, &mut outcome);
                ProblemKind::Target
            };
            outcome.problems.push(ProblemOutcome {
                problem: problem.problem.clone(),
                kind,
                solved_before: problem.origin == ProblemOrigin::Target { solved_before: true },
                tally,
                selected,
            });
            outcome.rollouts.append(&mut rollouts);
        }
        self.limit_conjecture_share(&mut outcome);
        if is_trained && self.config.solver.objective.is_stored() {
            self.add_stored_proofs(state, &mut outcome);
        }
        outcome
    }

    fn is_selected(&self, problem: &ProblemState, tally: Tally) -> bool {
        let Some(rate) = tally.rate() else { return false };
        let selection = self.config.solver.effective_selection();
        match problem.origin {
            ProblemOrigin::Target { solved_before } => selects_target(selection, rate, solved_before),
            ProblemOrigin::Conjecture { .. } => {
                selects_conjecture(selection, rate)
                    && rate <= self.config.solver.conjecture_max_rate
                    && !self.is_trivial(problem)
            }
        }
    }

    /// Drops examples of conjectures, drawn by the run's seed, until their share of all examples is at most
    /// `solver.conjecture_share`. The examples of one group are kept or dropped together.
    fn limit_conjecture_share(&self, outcome: &mut SolverOutcome) {
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
        let mut units =
            grouped_positions(outcome.examples.iter().enumerate().filter(|(_, e)| is_conjecture(e)));
        let seed = shuffle_seed(self.run_seed, "conjecture-share", u64::from(self.number));
        SeededRng::new(seed).shuffle(&mut units);
        let mut dropped = HashSet::new();
        for unit in units {
            match room.checked_sub(unit.len()) {
                Some(rest) => room = rest,
                None => dropped.extend(unit.into_iter().map(|i| outcome.examples[i].key.clone())),
            }
        }
        outcome.examples.retain(|example| !dropped.contains(&example.key));
        for rollout in outcome.rollouts.iter_mut().filter(|rollout| dropped.contains(&rollout.key)) {
            rollout.weight = None;
        }
    }

    fn rollout_outcomes(&self, problem: &ProblemState) -> Vec<RolloutOutcome> {
        let outcome = |(index, state): (u32, &RolloutState)| {
            let key = self.key(TaskKind::Rollout, &problem.problem.id, index);
            let reward = facts_of(state)
                .map(|facts| shaped_reward(&facts, &self.config.penalties, self.context_window));
            rollout_outcome(key, state, reward)
        };
        problem.requested().map(outcome).collect()
    }

    /// Sets the weights of a selected problem's rollouts and adds the weighted rollouts to `examples`. Targets under
    /// expert iteration are left out, because their examples come from the proof store.
    fn weigh_rollouts(
        &self,
        problem: &ProblemState,
        rollouts: &mut [RolloutOutcome],
        groups: &mut u32,
        examples: &mut Vec<Example>,
    ) {
        if self.config.solver.objective.is_stored() && !problem.is_conjecture() {
            return;
        }
        let repeated = self.repeated_proofs(problem);
        let judged: Vec<(usize, RolloutFacts)> = problem
            .requested()
            .enumerate()
            .filter(|(_, (index, _))| !repeated.contains(index))
            .filter_map(|(i, (_, state))| Some((i, facts_of(state)?)))
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

    /// Returns the indices of rollouts that repeat the proof of an earlier rollout of the problem, if
    /// `solver.distinct_examples` is on. Equal proofs that repair different ones are kept: they answer different prompts.
    fn repeated_proofs(&self, problem: &ProblemState) -> HashSet<u32> {
        let mut repeated = HashSet::new();
        if !self.config.solver.distinct_examples {
            return repeated;
        }
        let mut found = HashSet::new();
        for (index, state) in problem.requested() {
            let failed = problem.repaired_by(index).map(|(proof, _)| &proof.text);
            if let Some(proof) = proof_of(state)
                && !found.insert((&proof.text, failed))
            {
                repeated.insert(index);
            }
        }
        repeated
    }

    /// Records a target's first proof and the proofs that enter the store.
    fn keep_proofs(
        &self,
        problem: &ProblemState,
        rollouts: &[RolloutOutcome],
        tally: Tally,
        state: &RunState,
        outcome: &mut SolverOutcome,
    ) {
        let target = &problem.problem.id;
        let proved = rollouts.iter().zip(problem.requested()).filter_map(|(rollout, (_, rollout_state))| {
            Some((rollout.key.index, proof_of(rollout_state)?, facts_of(rollout_state)?))
        });
        let mut proofs = Vec::new();
        for (index, proof, facts) in proved {
            if proofs.is_empty() && !state.is_solved(target) {
                #[allow(clippy::expect_used, reason = "the proved rollout counts as judged")]
                let best_rate = tally.rate().expect("invariant: a problem with a proof has a solve rate");
                let first = SolvedTarget { round: self.number, index, proof: proof.text.clone(), best_rate };
                outcome.newly_solved.push((target.clone(), first));
            }
            proofs.push(StoredProof {
                round: self.number,
                index,
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

    /// Prepends the stored proofs of the last `solver.window` rounds, including this one, to the examples (expert
    /// iteration; paper, Appendix G.4).
    fn add_stored_proofs(&self, state: &RunState, outcome: &mut SolverOutcome) {
        let mut store = state.proofs.clone();
        for (target, proofs) in &outcome.stored_proofs {
            store.extend(target, proofs.iter().cloned());
        }
        let mut examples = Vec::new();
        for (target, proofs) in store.iter() {
            let recent =
                proofs.iter().filter(|proof| in_window(proof.round, self.number, self.config.solver.window));
            for proof in recent.filter(|proof| proof.generated_tokens > 0) {
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

/// Returns the facts that a judged rollout's reward depends on; `None` if the rollout was lost or not judged.
pub(super) fn facts_of(state: &RolloutState) -> Option<RolloutFacts> {
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

/// Returns the proof of a rollout whose verdict is `proved`.
pub(super) fn proof_of(state: &RolloutState) -> Option<&ParsedProof> {
    match state {
        RolloutState::Judged { proof, judgement, .. } if judgement.verdict == Verdict::Proved => Some(proof),
        _ => None,
    }
}

/// Returns the length of a text in Unicode code points.
pub(super) fn characters(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn rollout_outcome(key: TaskKey, state: &RolloutState, reward: Option<f64>) -> RolloutOutcome {
    let (verdict, reason, judgement, proof, sample) = match state {
        RolloutState::Judged { proof, sample, judgement } => {
            (judgement.verdict, &judgement.reason, Some(judgement), Some(proof), Some(*sample))
        }
        RolloutState::Malformed { defect, sample } => (Verdict::Malformed, defect, None, None, Some(*sample)),
        RolloutState::Lost { reason, sampled } => {
            let (proof, sample) = sampled.as_ref().map(|(proof, sample)| (proof, *sample)).unzip();
            (Verdict::Infra, reason, None, proof, sample)
        }
        RolloutState::Unrequested | RolloutState::Waiting | RolloutState::Sampled { .. } => {
            unreachable!("invariant: a round is scored only after every rollout is judged or lost")
        }
    };
    RolloutOutcome {
        key,
        verdict,
        reason: reason.clone(),
        step: judgement.and_then(|judgement| judgement.step),
        micros: judgement.map_or(0, |judgement| judgement.micros),
        proof: proof.cloned(),
        sample,
        reward,
        weight: None,
    }
}
