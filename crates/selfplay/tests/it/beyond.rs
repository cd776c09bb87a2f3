//! Options beyond the paper: rejecting known conjectures, distinct proofs, a limit on the share of conjectures, lemmas, the
//! rubric, several reviews, retired targets.

use crate::simulation;
use proptest::prelude::*;
use sgs_selfplay::config::{AlgorithmConfig, BatchSize, GuideKind, UnrewardedHandling};
use sgs_selfplay::outcome::{ConjectureOutcome, ConjectureStatus, ProblemKind, RefusalReason, RoundOutcome};
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::seed::SeededRng;
use sgs_selfplay::{
    Command, Event, Method, OwnedCondition, ParsedConjecture, ParsedProof, ProblemId, RoundMetrics, RunState,
    TaskKind, Verdict,
};
use simulation::{answer, begin, facts, judgement, play, run, targets};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Returns a configuration with all options beyond the paper.
fn all_extensions() -> AlgorithmConfig {
    let mut config = Method::Sgs.config();
    config.solver.distinct_examples = true;
    config.solver.conjecture_share = 0.5;
    config.conjecturer.target_share = 0.7;
    config.conjecturer.refuse_known = true;
    config.conjecturer.refuse_seen = true;
    config.conjecturer.min_proof_steps = 4;
    config.conjecturer.max_solve_rate = 0.5;
    config.guide.kind = GuideKind::Rubric;
    config.validate().unwrap();
    config
}

/// Runs rounds of a single target `t000`. `conjecture` returns the Conjecturer's statement in a round. `proof` returns the
/// proof and its number of steps if a rollout is to succeed.
fn run_one_target(
    config: &AlgorithmConfig,
    rounds: u32,
    conjecture: impl Fn(u32) -> ParsedConjecture,
    proof: impl Fn(&Command) -> Option<(&'static str, u32)>,
) -> (RunState, Vec<RoundOutcome>) {
    let all = targets(1);
    let mut state = RunState::default();
    let mut outcomes = Vec::new();
    for number in 0..rounds {
        let mut round = begin(config, &all, &state);
        let mut open = round.pending();
        let mut holds = HashSet::new();
        while let Some(command) = open.pop() {
            let (key, sample) = (command.key().clone(), facts(5));
            let event = match &command {
                Command::SampleConjecture { .. } => {
                    Event::Conjecture { key, read: Ok(conjecture(number)), sample }
                }
                Command::SampleRollout { .. } => {
                    let found = proof(&command);
                    if found.is_some() {
                        holds.insert(key.with_kind(TaskKind::Judgement));
                    }
                    let (text, steps) = found.unwrap_or(("wrong", 1));
                    let read = ParsedProof { text: Arc::from(text), penalised: false, steps };
                    Event::Rollout { key, read: Ok(read), sample }
                }
                Command::Verify { .. } => {
                    let verdict = if holds.contains(&key) { Verdict::Proved } else { Verdict::Refused };
                    Event::Judgement { key, judgement: judgement(verdict) }
                }
                Command::SampleReview { .. } => answer(&command),
            };
            open.extend(round.apply(event));
        }
        let outcome = round.finish(&state).unwrap();
        state.absorb(&outcome).unwrap();
        outcomes.push(outcome);
    }
    (state, outcomes)
}

fn metrics(outcome: &RoundOutcome, state: &RunState) -> RoundMetrics {
    RoundMetrics::compute(outcome, state, |_| Default::default())
}

fn citable(statement: &str) -> ParsedConjecture {
    ParsedConjecture { rubric: 4.0, ..ParsedConjecture::plain(statement) }
}

#[test]
fn known_and_repeated_conjectures_are_rejected_and_counted() {
    let mut config = Method::SgsNoGuide.config();
    config.conjecturer.refuse_known = true;
    config.conjecturer.refuse_seen = true;
    let write = |round| match round {
        0 => ParsedConjecture { known: Some(Arc::from("syl")), ..ParsedConjecture::plain("|- old") },
        _ => ParsedConjecture::plain("|- new"),
    };
    let (state, outcomes) = run_one_target(&config, 3, write, |_| None);
    let refusal = |outcome: &RoundOutcome| match &outcome.conjectures[0].status {
        ConjectureStatus::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    };
    assert_eq!(refusal(&outcomes[0]), Some(RefusalReason::Known(Arc::from("syl"))));
    assert_eq!(refusal(&outcomes[1]), None);
    assert_eq!(refusal(&outcomes[2]), Some(RefusalReason::Seen));
    assert_eq!(outcomes.map_generations(), [8, 16, 8], "a rejected conjecture gets no rollouts");
    assert!(outcomes[2].conjecturer_examples.is_empty(), "a rejected conjecture is not trained on");
    assert_eq!(metrics(&outcomes[0], &state).conjectures_known, 1);
    assert_eq!(metrics(&outcomes[2], &state).conjecture_share_seen, Some(1.0));
    assert_eq!(metrics(&outcomes[1], &state).conjecture_share_novel, Some(1.0));
    // With the paper's defaults, neither is rejected.
    let (_, outcomes) = run_one_target(&Method::SgsNoGuide.config(), 3, write, |_| None);
    assert!(outcomes.iter().all(|outcome| refusal(outcome).is_none()));
}

trait Generations {
    fn map_generations(&self) -> Vec<u64>;
}

impl Generations for Vec<RoundOutcome> {
    fn map_generations(&self) -> Vec<u64> {
        self.iter().map(|outcome| outcome.generations).collect()
    }
}

#[test]
fn trivial_conjectures_earn_nothing_and_are_not_trained_on() {
    let mut config = Method::SgsNoGuide.config();
    config.conjecturer.unselected = UnrewardedHandling::Zero;
    // Two of eight rollouts prove the conjecture, one of them in a single step.
    let proof = |command: &Command| match (command.key().problem.as_str(), command.key().index) {
        ("t000", _) => None,
        (_, 0) => Some(("short", 1)),
        (_, 1) => Some(("long", 5)),
        _ => None,
    };
    let write = |_| ParsedConjecture::plain("|- c");
    let (_, outcomes) = run_one_target(&config, 1, write, proof);
    assert!(outcomes[0].conjectures[0].solve_reward.unwrap() > 0.0);
    assert_eq!(outcomes[0].solver_examples.len(), 2);
    config.conjecturer.min_proof_steps = 2;
    let (state, outcomes) = run_one_target(&config, 1, write, proof);
    let conjecture = &outcomes[0].conjectures[0];
    assert!(conjecture.trivial);
    assert_eq!((conjecture.solve_reward, conjecture.weight), (Some(0.0), None));
    assert!(outcomes[0].solver_examples.is_empty());
    assert_eq!(outcomes[0].threshold, 0.0, "trivial conjectures do not count in the threshold");
    let metrics = metrics(&outcomes[0], &state);
    assert_eq!((metrics.conjectures_trivial, metrics.conjecture_proof_steps), (1, Some(1.0)));
}

#[test]
fn max_solve_rate_limits_the_threshold() {
    let mut config = Method::SgsNoGuide.config();
    let proof = |command: &Command| {
        let conjecture = command.key().problem.as_str() != "t000";
        (conjecture && command.key().index < 6).then_some(("proof", 3))
    };
    let write = |_| ParsedConjecture::plain("|- c");
    assert_eq!(run_one_target(&config, 1, write, proof).1[0].conjectures[0].solve_reward, Some(0.25));
    config.conjecturer.max_solve_rate = 0.5;
    assert_eq!(run_one_target(&config, 1, write, proof).1[0].conjectures[0].solve_reward, Some(0.0));
}

#[test]
fn equal_proofs_are_trained_on_once_and_the_share_of_conjectures_is_limited() {
    let mut config = Method::SgsNoGuide.config();
    let proof = |command: &Command| match (command.key().problem.as_str(), command.key().index) {
        ("t000", 0 | 1) => Some(("same", 3)),
        ("t000", 2) => Some(("other", 3)),
        ("t000", _) => None,
        (_, 0..4) => Some((["a", "b", "c", "c"][command.key().index as usize], 3)),
        _ => None,
    };
    let write = |_| ParsedConjecture::plain("|- c");
    let trained = |config: &AlgorithmConfig| {
        let (_, outcomes) = run_one_target(config, 1, write, proof);
        let weighted: Vec<_> = outcomes[0].rollouts.iter().filter(|r| r.weight.is_some()).collect();
        assert_eq!(weighted.len(), outcomes[0].solver_examples.len());
        let of_target = outcomes[0].solver_examples.iter().filter(|e| e.key.problem.as_str() == "t000");
        (of_target.count(), outcomes[0].solver_examples.len())
    };
    assert_eq!(trained(&config), (3, 7));
    config.solver.distinct_examples = true;
    assert_eq!(trained(&config), (2, 5));
    config.solver.conjecture_share = 0.34;
    assert_eq!(trained(&config), (2, 3), "at most 2 * 0.34 / 0.66 examples of conjectures");
    config.solver.conjecture_share = 0.0;
    assert_eq!(trained(&config), (2, 2));
}

#[test]
fn only_a_share_of_the_unsolved_targets_gets_conjectures() {
    let mut config = Method::SgsNoGuide.config();
    config.conjecturer.target_share = 0.25;
    let all = targets(40);
    let chosen = |seed: u64| -> Vec<ProblemId> {
        let state = RunState { next_round: seed as u32, ..RunState::default() };
        let round = begin(&config, &all, &state);
        let keys = round.pending().into_iter().map(|command| command.key().clone());
        keys.filter(|key| key.kind == TaskKind::Conjecture).map(|key| key.problem).collect()
    };
    let first = chosen(0);
    assert_eq!(first.len(), 10);
    assert!(first.is_sorted(), "the targets keep the order of the batch");
    assert_ne!(first, chosen(1), "the next round draws other targets");
    config.conjecturer.target_share = 0.001;
    assert_eq!(begin(&config, &all, &RunState::default()).progress().conjectures.asked, 1);
}

#[test]
fn the_rubric_replaces_reviews() {
    let mut config = Method::Sgs.config();
    config.guide.kind = GuideKind::Rubric;
    let proof = |command: &Command| {
        let conjecture = command.key().problem.as_str() != "t000";
        (conjecture && command.key().index == 0).then_some(("p", 3))
    };
    let (state, outcomes) = run_one_target(&config, 1, |_| citable("|- c"), proof);
    let conjecture = &outcomes[0].conjectures[0];
    assert!(outcomes[0].reviews.is_empty());
    assert_eq!((conjecture.guide_score, conjecture.synth_reward), (Some(4.0), Some(4.0 * 0.875)));
    let metrics = metrics(&outcomes[0], &state);
    assert_eq!(metrics.r_guide, Some(4.0));
    assert_eq!((metrics.conjecture_share_padded, metrics.r_guide_padded), (None, None), "it is not known");
}

/// Whether a conjecture is padded is known only if the formal system says so. A score without a Guide is not one of padding.
#[test]
fn padded_conjectures_and_their_scores_are_counted() {
    let with = |guide: bool, padded: bool| {
        let mut config = Method::Sgs.config();
        (config.guide.on, config.guide.kind) = (guide, GuideKind::Rubric);
        let write = |_| ParsedConjecture { padded: Some(padded), ..citable("|- c") };
        let (state, outcomes) = run_one_target(&config, 1, write, |_| None);
        let metrics = metrics(&outcomes[0], &state);
        (metrics.conjecture_share_padded, metrics.r_guide_padded)
    };
    assert_eq!(with(true, true), (Some(1.0), Some(4.0)));
    assert_eq!(with(true, false), (Some(0.0), None));
    assert_eq!(with(false, true), (Some(1.0), None));
}

/// A conjecture's score is the mean over its reviews. Up to `resamples` malformed reviews are sampled again.
#[test]
fn several_reviews_are_averaged() {
    let mut config = Method::Sgs.config();
    (config.guide.samples, config.guide.resamples) = (6, 3);
    let (_, outcomes) = run(&config, &targets(40), 2);
    let mut seen = [0; 2];
    for outcome in &outcomes {
        for conjecture in outcome.conjectures.iter().filter(|c| c.reviewed) {
            let mine = outcome.reviews.iter().filter(|review| review.key.problem == conjecture.id);
            let (read, lost): (Vec<_>, Vec<_>) = mine.clone().partition(|review| review.read.is_ok());
            let was_lost = lost.iter().any(|review| review.sample.is_none());
            assert!(was_lost || read.len() == 6 || lost.len() == 4, "{} {}", read.len(), lost.len());
            let scores = read.iter().filter_map(|review| review.read.as_ref().ok()).map(guide_score);
            let mean = (!read.is_empty()).then(|| scores.sum::<f64>() / read.len() as f64);
            let score = conjecture.guide_score.unwrap();
            assert!((mean.unwrap_or(0.0) - score).abs() < 1e-12, "{mean:?} {score}");
            seen[usize::from(read.len() == 6)] += 1;
        }
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");
}

/// Targets with enough proofs are no longer sampled, under every objective, and all others are.
#[test]
fn targets_with_enough_proofs_are_retired() {
    for method in [Method::Sgs, Method::SamplingOnly, Method::Cispo] {
        let mut config = method.config();
        config.batch.retire_after = 9;
        let all = targets(30);
        let (state, outcomes) = run(&config, &all, 8);
        let mut proofs = HashMap::new();
        for outcome in &outcomes {
            let sampled: HashSet<&ProblemId> = outcome.targets().map(|target| &target.problem.id).collect();
            for target in &all {
                let enough = proofs.get(&target.id).is_some_and(|found| *found >= 9);
                assert_eq!(sampled.contains(&target.id), !enough, "{method} {}", target.id);
            }
            for target in outcome.targets() {
                *proofs.entry(target.problem.id.clone()).or_insert(0) += target.tally.proved;
            }
        }
        let retired = proofs.values().filter(|found| **found >= 9).count();
        assert!(retired > 3 && retired < 30, "{method}: {retired}");
        assert_eq!(state.solved.len(), proofs.values().filter(|found| **found > 0).count());
    }
}

/// Each round samples the configured share of the retired targets, a different one each time.
#[test]
fn some_retired_targets_are_rehearsed() {
    let mut config = Method::SamplingOnly.config();
    (config.batch.retire_after, config.batch.rehearsed_share) = (9, 0.25);
    let all = targets(60);
    let (_, outcomes) = run(&config, &all, 12);
    let mut proofs = HashMap::new();
    let (mut rehearsed, mut rounds) = (HashSet::new(), 0);
    for outcome in &outcomes {
        let retired: HashSet<ProblemId> = proofs
            .iter()
            .filter(|(_, found)| **found >= 9)
            .map(|(id, _): (&ProblemId, _)| id.clone())
            .collect();
        let again: Vec<ProblemId> = outcome
            .targets()
            .map(|target| target.problem.id.clone())
            .filter(|id| retired.contains(id))
            .collect();
        assert_eq!(again.len(), retired.len().div_ceil(4));
        rounds += usize::from(!again.is_empty());
        rehearsed.extend(again);
        for target in outcome.targets() {
            *proofs.entry(target.problem.id.clone()).or_insert(0) += target.tally.proved;
        }
    }
    assert!(rounds > 5 && rehearsed.len() > 15, "{rounds} rounds, {}", rehearsed.len());
}

#[test]
fn all_extensions_together_keep_their_invariants() {
    let config = all_extensions();
    let (state, outcomes) = run(&config, &targets(60), 8);
    let mut seen = HashSet::new();
    let mut refused = 0;
    for outcome in &outcomes {
        for conjecture in &outcome.conjectures {
            match &conjecture.status {
                ConjectureStatus::Accepted { statement } => {
                    assert!(seen.insert(statement.clone()), "{statement} is accepted twice")
                }
                ConjectureStatus::Refused { .. } => refused += 1,
                _ => {}
            }
            assert!(!conjecture.trivial || conjecture.weight.is_none());
            assert!(conjecture.guide_score.is_none_or(|score| (0.0..=8.0).contains(&score)));
        }
        let conjectures: HashSet<&ProblemId> = outcome
            .problems
            .iter()
            .filter(|p| p.kind == ProblemKind::Conjecture)
            .map(|p| &p.problem.id)
            .collect();
        let examples = &outcome.solver_examples;
        let of_conjectures = examples.iter().filter(|e| conjectures.contains(&e.key.problem)).count();
        assert!(2 * of_conjectures <= examples.len());
        assert!(outcome.reviews.is_empty());
    }
    assert!(refused > 0);
    assert_eq!(state.seen.len(), seen.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The outcome does not depend on the order of the answers.
    #[test]
    fn the_outcome_does_not_depend_on_the_order_of_events(
        order: u64, n in 1usize..8, turns in 0u32..3, reviewed: bool,
    ) {
        let mut config = all_extensions();
        config.solver.repair_turns = turns;
        if reviewed {
            (config.guide.kind, config.guide.samples) = (GuideKind::Model, 3);
        }
        let all = targets(n);
        let (state, _) = run(&config, &all, 2);
        let mut plain = begin(&config, &all, &state);
        play(&mut plain);
        let mut shuffled = begin(&config, &all, &state);
        let mut draw = SeededRng::new(order);
        let mut open = shuffled.pending();
        while !open.is_empty() {
            let command = open.swap_remove(draw.below(open.len() as u64) as usize);
            open.extend(shuffled.apply(answer(&command)));
        }
        prop_assert_eq!(shuffled.finish(&state).unwrap(), plain.finish(&state).unwrap());
    }

    /// Serialising and deserialising the state does not change it.
    #[test]
    fn the_state_survives_a_round_trip(n in 1usize..6) {
        let mut config = all_extensions();
        config.guide.kind = GuideKind::Model;
        let (state, _) = run(&config, &targets(n), 3);
        let text = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), state);
    }
}

#[test]
fn refused_proofs_of_unsolved_targets_become_the_conditions_of_the_next_conjectures() {
    let mut alone = Method::SgsAttempts.config();
    alone.conjecturer.conjectures_per_target = 2;
    check_attempts(alone);
    // Combine them with the conjectures of a model, whose weights they must not change.
    let mut beside = Method::SgsNoGuide.config();
    beside.conjecturer.attempts_per_target = 2;
    check_attempts(beside);
}

fn check_attempts(mut config: AlgorithmConfig) {
    config.batch.size = BatchSize::Count(120.try_into().unwrap());
    config.conjecturer.attempt_min_steps = 3;
    let sampled = if config.conjecturer.is_sampled() { 1 } else { 0 };
    let all = targets(200);
    let mut state = RunState::default();
    // Collect the refused proofs of each target's last sampled round from the rollouts of the outcomes.
    let mut expected: HashMap<ProblemId, Vec<Arc<str>>> = HashMap::new();
    let (mut conditions, mut short, mut repeated, mut dropped) = (0, 0, 0, 0);
    let mut weights = 0;
    for _ in 0..12 {
        let mut round = begin(&config, &all, &state);
        let mut samples = HashSet::new();
        for command in round.pending() {
            let Command::SampleConjecture { key, condition, .. } = command else { continue };
            match condition {
                OwnedCondition::Attempt { problem, proof } => {
                    assert_eq!(proof, expected[&problem.id][(key.index - sampled) as usize]);
                    conditions += 1;
                }
                _ => assert!(key.index < sampled && samples.insert(key)),
            }
        }
        play(&mut round);
        let outcome = round.finish(&state).unwrap();
        let is_sample = |conjecture: &&ConjectureOutcome| {
            conjecture.sample.is_some() && samples.contains(&conjecture.key)
        };
        let answered = outcome.conjectures.iter().filter(is_sample).count() as u64;
        assert_eq!(outcome.conjecture_samples, answered, "the attempts are rollouts");
        if sampled > 0 {
            let mut without = config.clone();
            without.conjecturer.attempts_per_target = 0;
            let mut round = begin(&without, &all, &state);
            play(&mut round);
            let plain = round.finish(&state).unwrap();
            assert_eq!(outcome.conjecturer_examples, plain.conjecturer_examples);
            assert_eq!(outcome.threshold, plain.threshold);
            let samples = |outcome: &RoundOutcome| {
                let m = metrics(outcome, &state);
                let malformed = m.conjecture_share_malformed;
                (malformed, m.conjecture_share_duplicate, m.conjecture_share_novel, m.conjecturer_tokens)
            };
            assert_eq!(samples(&outcome), samples(&plain), "nothing derived counts as a sample");
            weights += plain.conjecturer_examples.len();
        }
        let normalised = outcome.conjectures.iter().filter(|conjecture| conjecture.normalised.is_some());
        assert!(sampled == 0 || normalised.clone().all(|conjecture| samples.contains(&conjecture.key)));
        for target in outcome.targets() {
            expected.remove(&target.problem.id);
        }
        for rollout in outcome.rollouts.iter().filter(|rollout| rollout.verdict == Verdict::Refused) {
            let (target, proof) = (&rollout.key.problem, rollout.proof.as_ref().unwrap());
            if all.iter().any(|problem| problem.id == *target) {
                let kept = expected.entry(target.clone()).or_default();
                match (proof.steps >= 3, kept.contains(&proof.text), kept.len() < 2) {
                    (false, ..) => short += 1,
                    (_, true, _) => repeated += 1,
                    (.., false) => dropped += 1,
                    _ => kept.push(proof.text.clone()),
                }
            }
        }
        state.absorb(&outcome).unwrap();
        expected.retain(|target, proofs| !state.is_solved(target) && !proofs.is_empty());
        assert_eq!(expected, state.attempts.clone().into_iter().collect());
    }
    assert!(
        [conditions, short, repeated, dropped].iter().all(|count| *count > 20),
        "{conditions} {short} {repeated} {dropped}"
    );
    assert!(sampled == 0 || weights > 100, "{weights}");
}
