//! The round's state machine: order of events, repeated events, crashes, rewards and metrics.

use crate::simulation;
use proptest::prelude::*;
use sgs_selfplay::config::{
    AlgorithmConfig, BatchSize, GuideKind, GuideScope, MalformedReview, Objective, RatePopulation, Selection,
    UnrewardedHandling,
};
use sgs_selfplay::outcome::{ConjectureStatus, ProblemKind, RoundOutcome};
use sgs_selfplay::seed::SeededRng;
use sgs_selfplay::stp::Matching;
use sgs_selfplay::{
    Command, Event, Method, OwnedCondition, ParsedConjecture, ParsedProof, Problem, ProblemId, Review, Round,
    RoundError, RoundMetrics, RunState, TaskKey, TaskKind, Verdict,
};
use simulation::{answer, begin, facts, judgement, play, run, targets};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Answers commands in a random order, with repeated events and with occasional crashes, after each of which a new machine
/// receives all events again, shuffled.
fn play_with_faults(config: &AlgorithmConfig, all: &[Arc<Problem>], state: &RunState, order: u64) -> Round {
    let mut draw = SeededRng::new(order);
    let mut round = begin(config, all, state);
    let mut open = round.pending();
    let mut events: Vec<Event> = Vec::new();
    while !open.is_empty() {
        let command = open.swap_remove(draw.below(open.len() as u64) as usize);
        let event = answer(&command);
        events.push(event.clone());
        open.extend(round.apply(event));
        if draw.below(7) == 0 {
            let again = events[draw.below(events.len() as u64) as usize].clone();
            assert!(round.apply(again).is_empty(), "a repeated event unblocks nothing");
        }
        if draw.below(60) == 0 {
            round = begin(config, all, state);
            let mut journal = events.clone();
            draw.shuffle(&mut journal);
            for event in journal {
                round.apply(event);
            }
            open = round.pending();
        }
    }
    round
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The outcome does not depend on the order of the answers or on crashes.
    #[test]
    fn the_outcome_does_not_depend_on_the_order_of_events(order: u64, method in 0usize..Method::ALL.len(), n in 1usize..8, selected: bool) {
        let mut config = Method::ALL[method].config();
        config.rollouts_per_problem = 3;
        config.conjecturer.conjectures_per_target = 2;
        if selected {
            config.guide.scope = GuideScope::Selected;
        }
        let all = targets(n);
        let (state, _) = run(&config, &all, 1);
        let mut plain = begin(&config, &all, &state);
        play(&mut plain);
        let expected = plain.finish(&state).unwrap();
        let round = play_with_faults(&config, &all, &state, order);
        prop_assert!(round.is_complete());
        prop_assert_eq!(round.unclaimed_events(), 0);
        prop_assert_eq!(round.finish(&state).unwrap(), expected);
    }

    /// The pending commands are those issued and not yet answered, and progress counts them.
    #[test]
    fn pending_commands_are_those_issued_and_not_answered(order: u64, steps in 0usize..200) {
        let config = Method::Sgs.config();
        let all = targets(3);
        let state = RunState::default();
        let mut round = begin(&config, &all, &state);
        let mut draw = SeededRng::new(order);
        let mut open: HashMap<TaskKey, Command> = round.pending().into_iter().map(|c| (c.key().clone(), c)).collect();
        for _ in 0..steps {
            let mut keys: Vec<TaskKey> = open.keys().cloned().collect();
            keys.sort();
            let Some(key) = keys.get(draw.below(keys.len() as u64) as usize) else { break };
            let command = open.remove(key).unwrap();
            for unblocked in round.apply(answer(&command)) {
                prop_assert!(open.insert(unblocked.key().clone(), unblocked).is_none());
            }
        }
        let pending: HashMap<TaskKey, Command> =
            round.pending().into_iter().map(|c| (c.key().clone(), c)).collect();
        prop_assert_eq!(&pending, &open);
        for kind in [TaskKind::Conjecture, TaskKind::Rollout, TaskKind::Judgement, TaskKind::Review] {
            let stage = round.progress().of(kind);
            let waiting = open.keys().filter(|key| key.kind == kind).count() as u64;
            prop_assert_eq!(stage.asked - stage.done, waiting);
        }
        prop_assert_eq!(round.is_complete(), open.is_empty());
    }
}

#[test]
fn every_method_runs_and_its_invariants_hold() {
    let all = targets(12);
    for method in Method::ALL {
        let (state, outcomes) = run(&method.config(), &all, 5);
        let mut solved = HashSet::new();
        for outcome in &outcomes {
            check_invariants(method, &all, outcome, &mut solved);
        }
        assert_eq!(state.next_round, 5);
        assert_eq!(solved.len(), state.solved.len(), "{method}");
        assert_eq!(state.generations, outcomes.iter().map(|o| o.generations).sum::<u64>());
        assert!(!state.solved.is_empty());
    }
}

fn check_invariants(
    method: Method,
    all: &[Arc<Problem>],
    outcome: &RoundOutcome,
    solved: &mut HashSet<ProblemId>,
) {
    let config = method.config();
    let k = config.rollouts_per_problem;
    assert_eq!(outcome.rollouts.len(), outcome.problems.len() * k as usize);
    let unsolved = all.iter().filter(|target| !solved.contains(&target.id)).count();
    let requested = outcome.conjectures.len();
    match method {
        Method::Stp => assert!(outcome.round == 0 || unsolved == 0 || requested == unsolved),
        Method::SgsAttempts => {
            assert_eq!(requested == 0, outcome.round == 0 || unsolved == 0);
            assert!(requested <= unsolved * config.conjecturer.conjectures_per_target as usize);
        }
        _ => assert_eq!(requested, if config.conjecturer.on { unsolved } else { 0 }, "{method}"),
    }
    let is_reviewed = config.guide.on && config.guide.kind != GuideKind::Rubric;
    assert_eq!(outcome.reviews.is_empty(), !is_reviewed || unsolved == 0);
    for (target, _) in &outcome.newly_solved {
        assert!(solved.insert(target.clone()), "{target} is solved twice");
    }
    let statements: Vec<&Arc<str>> = outcome.problems.iter().map(|p| &p.problem.statement).collect();
    assert_eq!(statements.iter().collect::<HashSet<_>>().len(), statements.len());
    for conjecture in &outcome.conjectures {
        assert!(conjecture.solve_reward.is_none_or(|r| (0.0..1.0).contains(&r)));
        assert!(conjecture.synth_reward.is_none_or(|r| (0.0..8.0).contains(&r)));
        assert!(conjecture.normalised.is_none_or(|r| (0.0..=1.0).contains(&r)));
        assert!(conjecture.weight.is_none_or(|w| (-1.0..=1.0).contains(&w)));
    }
    assert!(config.solver.train || outcome.solver_examples.is_empty());
    let trains = config.conjecturer.is_trained();
    assert!(trains || outcome.conjecturer_examples.is_empty());
    check_solver_examples(&config, outcome);
}

fn check_solver_examples(config: &AlgorithmConfig, outcome: &RoundOutcome) {
    let rollouts: HashMap<&TaskKey, _> = outcome.rollouts.iter().map(|r| (&r.key, r)).collect();
    let rates: HashMap<&ProblemId, f64> =
        outcome.problems.iter().filter_map(|p| Some((&p.problem.id, p.tally.rate()?))).collect();
    let mut keys = HashSet::new();
    for example in &outcome.solver_examples {
        assert!(keys.insert(&example.key), "{} is trained on twice", example.key);
        assert!(example.generated_tokens > 0);
        if example.key.round != outcome.round {
            assert_eq!(config.solver.objective, Objective::ExpertIteration);
            assert!(example.key.round + 3 > outcome.round);
            continue;
        }
        let rollout = rollouts[&example.key];
        assert_eq!(rollout.weight, Some(example.weight));
        let rate = rates[&example.key.problem];
        match config.solver.objective {
            Objective::ReinforceHalf => assert!(rate > 0.0 && rate <= 0.5),
            Objective::Cispo => assert!(rate > 0.0 && rate < 1.0 && example.group.is_some()),
            Objective::Reinforce | Objective::ExpertIteration => assert!(rate > 0.0),
        }
        if config.solver.objective == Objective::ExpertIteration {
            assert_eq!(rollout.verdict, Verdict::Proved);
        }
    }
}

#[test]
fn expert_iteration_stops_sampling_at_the_cap() {
    let config = Method::ExpertIteration.config();
    let all = targets(12);
    let (state, outcomes) = run(&config, &all, 8);
    let full = state.proofs.iter().filter(|(_, proofs)| proofs.len() == 16).count();
    assert!(full > 0, "some targets must reach the cap");
    assert!(state.proofs.iter().all(|(_, proofs)| proofs.len() <= 16));
    assert_eq!(outcomes[7].problems.len(), 12 - full);
    let oldest = outcomes[7].solver_examples.iter().map(|e| e.key.round).min();
    assert!(oldest.is_none_or(|round| round >= 5));
}

#[test]
fn a_round_is_empty_and_complete_if_every_target_reached_the_cap() {
    let mut config = Method::ExpertIteration.config();
    config.solver.proofs_cap = 1;
    let all = targets(1);
    let mut state = RunState::default();
    let mut round = begin(&config, &all, &state);
    for command in round.pending() {
        let key = command.key().clone();
        let read = Ok(ParsedProof { text: Arc::from("p"), penalised: false, steps: 1 });
        for judge in round.apply(Event::Rollout { key, read, sample: facts(3) }) {
            let event = Event::Judgement { key: judge.key().clone(), judgement: judgement(Verdict::Proved) };
            assert!(round.apply(event).is_empty());
        }
    }
    state.absorb(&round.finish(&state).unwrap()).unwrap();
    let empty = begin(&config, &all, &state);
    assert!(empty.is_complete());
    let outcome = empty.finish(&state).unwrap();
    assert!(outcome.problems.is_empty());
    assert_eq!(outcome.solver_examples.len(), 1, "the stored proof is still in the window");
    let metrics = RoundMetrics::compute(&outcome, &state, |_| Default::default());
    assert_eq!(metrics.target_solve_rate, None);
    assert_eq!(metrics.cumulative_solve_rate, Some(1.0));
}

/// A round of two targets with predetermined answers.
///
/// Conjectures of `a`: one with 1 of 4 rollouts proved, one malformed. Conjectures of `b`: one with 3 of 4, one equal to `a`.
struct FixedRound {
    config: AlgorithmConfig,
    state: RunState,
    round: Round,
}

fn fixed_round(change: impl FnOnce(&mut AlgorithmConfig)) -> FixedRound {
    let mut config = Method::Sgs.config();
    config.rollouts_per_problem = 4;
    config.conjecturer.conjectures_per_target = 2;
    change(&mut config);
    config.validate().unwrap();
    let state = RunState::default();
    let mut round = begin(&config, &two_targets(), &state);
    let mut open = round.pending();
    while let Some(command) = open.pop() {
        open.extend(round.apply(fixed_answer(&command)));
    }
    FixedRound { config, state, round }
}

fn two_targets() -> Vec<Arc<Problem>> {
    ["a", "b"]
        .map(|name| {
            let statement = Arc::from(format!("|- {name}"));
            Arc::new(Problem {
                id: ProblemId::new(name),
                statement,
                context: Arc::from(format!("ctx-{name}")),
            })
        })
        .to_vec()
}

fn fixed_answer(command: &Command) -> Event {
    let key = command.key().clone();
    let sample = facts(10);
    match command {
        Command::SampleConjecture { .. } => {
            let read = match (key.problem.as_str(), key.index) {
                ("a", 0) => Ok(ParsedConjecture::plain("|- hard")),
                ("a", _) => Err("no-turnstile".to_owned()),
                ("b", 0) => Ok(ParsedConjecture::plain("|- easy")),
                _ => Ok(ParsedConjecture::plain("|- a")),
            };
            Event::Conjecture { key, read, sample }
        }
        Command::SampleRollout { .. } => {
            let read = Ok(ParsedProof { text: Arc::from("proof"), penalised: false, steps: 1 });
            Event::Rollout { key, read, sample }
        }
        Command::Verify { problem, .. } => {
            let proved = match &*problem.statement {
                "|- hard" => 1,
                "|- easy" => 3,
                "|- b" => 2,
                _ => 0,
            };
            let verdict = if key.index < proved { Verdict::Proved } else { Verdict::Refused };
            Event::Judgement { key, judgement: judgement(verdict) }
        }
        Command::SampleReview { target, conjecture, .. } => {
            assert_eq!(target.context, conjecture.context);
            let review = |relevance| Ok(Review { relevance, redundancy: 0.0, complexity: 1.0 });
            let read = match (&*conjecture.statement, key.index) {
                ("|- hard", 0) => Err("no-score".to_owned()),
                ("|- hard", _) => review(4.0),
                _ => review(2.0),
            };
            Event::Review { key, read, sample }
        }
    }
}

#[test]
fn a_fixed_round_has_the_expected_rewards() {
    let FixedRound { state, round, .. } = fixed_round(|_| {});
    let outcome = round.finish(&state).unwrap();
    // Both rates are strictly between 0 and 1. The position is floor(0.7 * 2) = 1, so nothing is too easy.
    assert_eq!(outcome.threshold, 0.75);
    let [hard, malformed, easy, copy] = &outcome.conjectures[..] else { panic!("four slots") };
    assert_eq!(hard.id.as_str(), "c0-a-0");
    assert_eq!((hard.solve_reward, hard.guide_score, hard.synth_reward), (Some(0.75), Some(6.0), Some(4.5)));
    assert_eq!((easy.solve_reward, easy.guide_score, easy.synth_reward), (Some(0.25), Some(4.0), Some(1.0)));
    assert_eq!(malformed.status, ConjectureStatus::Malformed { defect: "no-turnstile".to_owned() });
    // The malformed conjecture has the minimum reward, 0. Normalised: 4.5 / 4.5, 0, 1 / 4.5. The copy is not trained on.
    let weights = [hard, malformed, easy, copy].map(|c| c.weight);
    assert_eq!(weights, [Some(1.0), Some(0.0), Some(1.0 / 4.5), None]);
    assert_eq!(
        copy.status,
        ConjectureStatus::Duplicate { statement: Arc::from("|- a"), of: ProblemId::new("a") }
    );
    assert_eq!(outcome.conjecturer_examples.len(), 3);
    assert_eq!(outcome.reviews.len(), 3, "one review is sampled again");

    // REINFORCE-1/2 selects b (2 of 4) and the hard conjecture (1 of 4), but neither the easy one nor a.
    let trained: Vec<String> = outcome.solver_examples.iter().map(|e| e.key.to_string()).collect();
    assert_eq!(trained, ["0/rollout/0/b", "0/rollout/1/b", "0/rollout/0/c0-a-0"]);
    assert_eq!(outcome.newly_solved.len(), 1);
    assert_eq!(outcome.generations, 16);
    assert_eq!(outcome.conjecture_samples, 4);
}

#[test]
fn a_fixed_round_has_the_expected_rewards_with_the_code_choices() {
    let FixedRound { state, round, .. } = fixed_round(|config| *config = config.clone().with_code_choices());
    let outcome = round.finish(&state).unwrap();
    // The hard conjecture's only review is malformed, so it gets the mean of the others, 4. The raw rewards are 3 and 1.
    let guide: Vec<Option<f64>> = outcome.conjectures.iter().map(|c| c.guide_score).collect();
    assert_eq!(guide, [Some(4.0), None, Some(4.0), None]);
    let weights: Vec<Option<f64>> = outcome.conjectures.iter().map(|c| c.weight).collect();
    assert_eq!(weights, [Some(1.0), None, Some(0.0), None], "the worst selected conjecture has exactly 0");
}

#[test]
fn a_conjecture_above_the_threshold_is_trained_on_with_reward_zero_or_dropped() {
    let FixedRound { state, round, .. } = fixed_round(|config| {
        config.conjecturer.rate_population = RatePopulation::All;
        config.conjecturer.hardest_fraction = 0.4;
    });
    let outcome = round.finish(&state).unwrap();
    assert_eq!(outcome.threshold, 0.25);
    assert_eq!(outcome.conjectures[2].solve_reward, Some(0.0));
    assert_eq!(outcome.conjectures[2].weight, Some(0.0), "too easy: trained on with reward 0");
    let dropped = fixed_round(|config| {
        config.conjecturer.hardest_fraction = 0.4;
        config.conjecturer.unselected = UnrewardedHandling::Dropped;
    });
    assert_eq!(dropped.round.finish(&dropped.state).unwrap().conjectures[2].weight, None);
}

#[test]
fn the_selected_scope_reviews_only_after_all_verdicts() {
    let fixed = fixed_round(|config| {
        config.guide.scope = GuideScope::Selected;
        config.conjecturer.hardest_fraction = 0.4;
    });
    let outcome = fixed.round.finish(&fixed.state).unwrap();
    let reviewed: HashSet<&str> = outcome.reviews.iter().map(|r| r.key.problem.as_str()).collect();
    assert_eq!(reviewed, HashSet::from(["c0-a-0"]), "only the suitable conjecture");
    assert_eq!(outcome.conjectures[2].guide_score, None);

    let mut round = begin(&fixed.config, &two_targets(), &fixed.state);
    let early = round.pending().into_iter().flat_map(|command| round.apply(fixed_answer(&command)));
    assert!(early.into_iter().all(|command| command.key().kind != TaskKind::Review));
}

#[test]
fn a_conjecture_without_a_well_formed_review_scores_zero_or_the_mean() {
    for (malformed, expected) in [(MalformedReview::Zero, 0.0), (MalformedReview::Mean, 4.0)] {
        let fixed = fixed_round(|config| {
            config.guide.resamples = 0;
            config.guide.malformed = malformed;
        });
        let outcome = fixed.round.finish(&fixed.state).unwrap();
        let hard = &outcome.conjectures[0];
        assert!(hard.review_failed && hard.review.is_none());
        assert_eq!(hard.guide_score, Some(expected));
    }
}

#[test]
fn a_fixed_round_has_the_expected_metrics() {
    let FixedRound { mut state, round, .. } = fixed_round(|_| {});
    let outcome = round.finish(&state).unwrap();
    state.absorb(&outcome).unwrap();
    let features = |problem: &Problem| sgs_selfplay::Features {
        length: problem.statement.len() as u32,
        disjunctions: u32::from(&*problem.statement == "|- hard"),
        ..Default::default()
    };
    let metrics = RoundMetrics::compute(&outcome, &state, features);
    assert_eq!(metrics.generations, 16);
    assert_eq!(metrics.cumulative_solve_rate, Some(0.5));
    assert_eq!(metrics.target_solve_rate, Some(0.25));
    assert_eq!(metrics.target_share_solved, Some(0.5));
    assert_eq!(metrics.target_solve_rates, [1, 0, 1, 0, 0]);
    assert_eq!(metrics.conjecture_solve_rates, [0, 1, 0, 1, 0]);
    assert_eq!(metrics.r_solve, Some(0.5));
    assert_eq!(metrics.r_guide, Some(5.0));
    assert_eq!(metrics.r_synth, Some(2.75));
    assert_eq!(metrics.guide_scores, [0, 0, 0, 0, 1, 0, 1, 0, 0]);
    assert_eq!(metrics.review_relevance, Some(3.0));
    assert_eq!(metrics.review_share_malformed, Some(1.0 / 3.0));
    assert_eq!(metrics.conjecture_share_malformed, Some(0.25));
    assert_eq!(metrics.conjecture_share_duplicate, Some(0.25));
    assert_eq!(metrics.conjecture_share_disjunctive, Some(0.5));
    assert_eq!(metrics.target_share_disjunctive, Some(0.0));
    assert_eq!(metrics.conjecture_length, Some(7.0));
    assert_eq!(metrics.target_rollouts_refused, 6);
    assert_eq!(metrics.proofs_distinct, 3, "b, hard and easy have one proof each");
    assert_eq!(metrics.solver_tokens, 160);
    assert_eq!(metrics.solver_examples_conjectures, 1);
    assert_eq!(metrics.conjecturer_examples_positive, 2);
    assert_eq!(metrics.target_pass_at.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(metrics.target_pass_at[&4], 0.5);
    assert_eq!(metrics.conjecture_defects["no-turnstile"], 1);

    let scalars = metrics.scalars();
    assert!(scalars.iter().all(|(_, value)| value.is_finite()));
    let names: HashSet<&str> = RoundMetrics::DESCRIPTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), RoundMetrics::DESCRIPTIONS.len());
    assert!(scalars.iter().all(|(name, _)| names.contains(name)));
    let text = serde_json::to_string(&metrics).unwrap();
    assert_eq!(serde_json::from_str::<RoundMetrics>(&text).unwrap(), metrics);
}

#[test]
fn the_outcome_and_the_state_survive_a_round_trip() {
    let (state, outcomes) = run(&Method::Stp.config(), &targets(6), 3);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), state);
    for outcome in &outcomes {
        let text = serde_json::to_string(outcome).unwrap();
        assert_eq!(&serde_json::from_str::<RoundOutcome>(&text).unwrap(), outcome);
    }
    let mut rebuilt = RunState::default();
    for outcome in &outcomes {
        rebuilt.absorb(outcome).unwrap();
    }
    assert_eq!(rebuilt, state);
    assert!(rebuilt.absorb(&outcomes[0]).is_err(), "a round can be absorbed only once");
    assert_eq!(rebuilt, state);
}

#[test]
fn unknown_and_repeated_events_are_counted_and_ignored() {
    let config = Method::Sgs.config();
    let all = targets(2);
    let state = RunState::default();
    let mut round = begin(&config, &all, &state);
    let before = round.pending();
    let key =
        |round, kind, problem: &str, index| TaskKey { round, kind, problem: ProblemId::new(problem), index };
    let sample = facts(1);
    let proof = || Ok(ParsedProof { text: Arc::from("p"), penalised: false, steps: 1 });
    let foreign = [
        Event::Rollout { key: key(1, TaskKind::Rollout, "t000", 0), read: proof(), sample },
        Event::Rollout { key: key(0, TaskKind::Rollout, "t000", 8), read: proof(), sample },
        Event::Rollout { key: key(0, TaskKind::Rollout, "unknown", 0), read: proof(), sample },
        Event::Rollout { key: key(0, TaskKind::Conjecture, "t000", 0), read: proof(), sample },
        Event::Conjecture { key: key(0, TaskKind::Conjecture, "t000", 1), read: Err(String::new()), sample },
        Event::Judgement {
            key: key(0, TaskKind::Judgement, "t000", 99),
            judgement: judgement(Verdict::Proved),
        },
        Event::Review { key: key(0, TaskKind::Review, "t000", 0), read: Err(String::new()), sample },
        Event::Lost { key: key(9, TaskKind::Rollout, "t000", 0), reason: String::new() },
    ];
    let count = foreign.len() as u64;
    for event in foreign {
        assert!(round.apply(event).is_empty());
    }
    assert_eq!(round.ignored().unknown, count);
    assert_eq!(round.pending(), before);

    let event = Event::Rollout { key: key(0, TaskKind::Rollout, "t000", 0), read: proof(), sample };
    assert_eq!(round.apply(event.clone()).len(), 1);
    assert!(round.apply(event).is_empty());
    assert_eq!(round.ignored().repeated, 1);
    let error = round.finish(&state).unwrap_err();
    assert_eq!(error.open, before.len());
    assert!(error.to_string().contains("0/conjecture/0/t000"));
}

#[test]
fn lost_rollouts_do_not_count_as_failed_attempts() {
    let config = Method::Reinforce.config();
    let all = targets(1);
    let state = RunState::default();
    let mut round = begin(&config, &all, &state);
    for command in round.pending() {
        let key = command.key().clone();
        if key.index < 4 {
            round.apply(Event::Lost { key, reason: "node gone".to_owned() });
            continue;
        }
        let read = Ok(ParsedProof { text: Arc::from("p"), penalised: false, steps: 1 });
        for judge in round.apply(Event::Rollout { key, read, sample: facts(3) }) {
            let key = judge.key().clone();
            round.apply(match key.index {
                4 => Event::Lost { key, reason: "checker gone".to_owned() },
                5 => Event::Judgement { key, judgement: judgement(Verdict::Proved) },
                _ => Event::Judgement { key, judgement: judgement(Verdict::Refused) },
            });
        }
    }
    let outcome = round.finish(&state).unwrap();
    let tally = outcome.problems[0].tally;
    assert_eq!((tally.proved, tally.judged, tally.infra), (1, 3, 5));
    assert_eq!(outcome.generations, 4, "a rollout lost before sampling is not a generation");
    assert_eq!(outcome.solver_examples.len(), 1);
    let first = &outcome.newly_solved[0];
    assert_eq!((first.0.as_str(), first.1.index), ("t000", 5));
}

#[test]
fn stp_conditions_on_solved_targets_and_their_proofs() {
    let config = Method::Stp.config();
    let all = targets(12);
    let (state, _) = run(&config, &all, 1);
    let round = begin(&config, &all, &state);
    let seeds: Vec<Command> =
        round.pending().into_iter().filter(|c| c.key().kind == TaskKind::Conjecture).collect();
    assert_eq!(seeds.len(), 12 - state.solved.len());
    for command in seeds {
        let Command::SampleConjecture { condition: OwnedCondition::Solved { problem, proof }, .. } = command
        else {
            panic!("{command:?}")
        };
        let solved = &state.solved[&problem.id];
        assert!(solved.best_rate > 0.35);
        assert_eq!(solved.proof, proof);
    }
}

#[test]
fn stp_weights_conjectures_by_their_matching() {
    let mut config = Method::Stp.config();
    config.conjecturer.stp.max_rate = 1.0;
    let all = targets(200);
    let (_, outcomes) = run(&config, &all, 2);
    let before = outcomes.iter().position(|o| o.chosen_conjectures().count() > 2).unwrap();
    let mut state = RunState::default();
    outcomes[..before].iter().for_each(|outcome| state.absorb(outcome).unwrap());
    let plain = &outcomes[before];
    let ids = |outcome: &RoundOutcome| {
        outcome.chosen_conjectures().map(|c| (c.key.clone(), c.weight.unwrap())).collect::<Vec<_>>()
    };
    let chosen = ids(plain);
    assert!(plain.matching.is_none() && chosen.iter().all(|(_, weight)| *weight == 1.0));

    let mut outcome = plain.clone();
    let weights: Vec<f64> = (0..chosen.len()).map(|i| if i == 0 { 0.0 } else { i as f64 / 2.0 }).collect();
    let matching = Matching { weights, distance: Some(0.25), distance_of_equals: Some(0.5) };
    outcome.reweigh(matching.clone());
    let expected: Vec<_> = chosen
        .iter()
        .zip(&matching.weights)
        .skip(1)
        .map(|((key, _), weight)| (key.clone(), *weight))
        .collect();
    assert_eq!(ids(&outcome), expected, "an unmatched conjecture is left out");
    let examples = outcome.conjecturer_examples.iter().map(|e| (e.key.clone(), e.weight)).collect::<Vec<_>>();
    assert_eq!(examples, expected);
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<RoundOutcome>(&text).unwrap(), outcome);
    let metrics = RoundMetrics::compute(&outcome, &state, |_| Default::default());
    assert_eq!(metrics.conjectures_matched, Some(expected.len() as f64));
    assert_eq!((metrics.conjecture_distance, metrics.conjecture_distance_of_equals), (Some(0.25), Some(0.5)));
    outcome.reweigh(Matching { weights: vec![0.0; expected.len()], ..Matching::default() });
    assert!(outcome.conjecturer_examples.is_empty(), "all weights are 0");

    let order = |seed| state.unsolved_after(plain, &all, seed).into_iter().map(|t| &t.id).collect::<Vec<_>>();
    let (first, other) = (order(1), order(2));
    assert_ne!(first, other, "the order depends on the seed");
    state.absorb(plain).unwrap();
    let unsolved: HashSet<_> = all.iter().map(|t| &t.id).filter(|id| !state.is_solved(id)).collect();
    assert_eq!(first.len(), unsolved.len());
    assert_eq!(first.into_iter().collect::<HashSet<_>>(), unsolved);
}

#[test]
fn a_batch_samples_only_its_own_targets() {
    let mut config = Method::Sgs.config();
    config.batch.size = BatchSize::Count(NonZeroU32::new(3).unwrap());
    let all = targets(7);
    let (_, outcomes) = run(&config, &all, 3);
    let mut seen = Vec::new();
    for outcome in &outcomes {
        assert_eq!(outcome.epoch, 0);
        seen.extend(outcome.targets().map(|t| t.problem.id.clone()));
        assert!(outcome.problems.iter().filter(|p| p.kind == ProblemKind::Target).count() <= 3);
    }
    seen.sort();
    assert_eq!(seen, all.iter().map(|t| t.id.clone()).collect::<Vec<_>>());
}

#[test]
fn ids_must_be_unique() {
    let mut all = targets(2);
    all.push(all[0].clone());
    let config = Arc::new(Method::Sgs.config());
    let error = Round::new(config.clone(), 1, 100, &all, &RunState::default()).unwrap_err();
    assert_eq!(error, RoundError::RepeatedTarget(ProblemId::new("t000")));
    let mut all = targets(1);
    let clash = Problem { id: ProblemId::new("c0-t000-0"), ..(*all[0]).clone() };
    all.push(Arc::new(clash));
    let error = Round::new(config, 1, 100, &all, &RunState::default()).unwrap_err();
    assert_eq!(error, RoundError::ClashingName(ProblemId::new("c0-t000-0")));
}

#[test]
fn cispo_groups_are_complete() {
    let mut config = Method::Cispo.config();
    config.penalties.length = false;
    let (_, outcomes) = run(&config, &targets(12), 1);
    let outcome = &outcomes[0];
    assert!(!outcome.solver_examples.is_empty());
    let mut groups: HashMap<u32, Vec<_>> = HashMap::new();
    for example in &outcome.solver_examples {
        groups.entry(example.group.unwrap().number).or_default().push(example);
    }
    for (number, members) in groups {
        let problem = &members[0].key.problem;
        assert!(members.iter().all(|m| &m.key.problem == problem), "group {number}");
        let tally = outcome.problems.iter().find(|p| &p.problem.id == problem).unwrap().tally;
        assert_eq!(members.len(), tally.judged as usize);
        let tokens: u64 = members.iter().map(|m| u64::from(m.generated_tokens)).sum();
        assert_eq!(members[0].group.unwrap().tokens, tokens);
        assert!(members.iter().map(|m| m.weight).sum::<f64>().abs() < 1e-6);
    }
}

#[test]
fn overlong_conjectures_get_the_length_penalty() {
    let fixed = fixed_round(|config| config.penalties.length_start = 0.1);
    // There are 20 prompt tokens and 10 generated tokens in a window of 200 whose first 20 tokens are free, so the
    // penalty is -(30 - 20) / 180.
    let outcome = fixed.round.finish(&fixed.state).unwrap();
    let trained: Vec<f64> = outcome.conjecturer_examples.iter().map(|e| e.weight).collect();
    assert_eq!(trained.len(), 3);
    assert!(trained.iter().all(|w| (w + 10.0 / 180.0).abs() < 1e-12));
}

#[test]
fn the_selection_rule_can_differ_from_the_objective() {
    let fixed = fixed_round(|config| {
        config.solver.objective = Objective::Reinforce;
        config.solver.selection = Selection::Mixed;
    });
    let outcome = fixed.round.finish(&fixed.state).unwrap();
    let selected: Vec<&str> =
        outcome.problems.iter().filter(|p| p.selected).map(|p| p.problem.id.as_str()).collect();
    assert_eq!(selected, ["b", "c0-a-0", "c0-b-0"]);
}

#[test]
fn conjectures_above_the_maximum_solve_rate_are_not_trained_on() {
    // The conjectures have the rates 1/4 and 3/4, and target b has 2/4. The limit does not apply to targets.
    for (limit, expected) in [
        (0.75, &["b", "b", "c0-a-0", "c0-b-0", "c0-b-0", "c0-b-0"][..]),
        (0.5, &["b", "b", "c0-a-0"]),
        (0.25, &["b", "b", "c0-a-0"]),
        (0.2, &["b", "b"]),
    ] {
        let fixed = fixed_round(|config| {
            config.solver.objective = Objective::Reinforce;
            config.solver.conjecture_max_rate = limit;
        });
        let outcome = fixed.round.finish(&fixed.state).unwrap();
        let mut trained: Vec<&str> = outcome
            .solver_examples
            .iter()
            .filter(|example| example.weight > 0.0)
            .map(|example| example.key.problem.as_str())
            .collect();
        trained.sort_unstable();
        assert_eq!(trained, expected, "{limit}");
    }
}
