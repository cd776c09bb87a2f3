//! Tests attempts of several turns (`solver.repair_turns`): which rollouts count, which are trained on, and with which
//! weights.

use crate::simulation::{WINDOW, begin, facts, judgement, targets};
use sgs_selfplay::config::{AlgorithmConfig, Objective};
use sgs_selfplay::objective::group_advantages;
use sgs_selfplay::rate::Tally;
use sgs_selfplay::{
    Command, Event, FailedProof, Judgement, Method, ParsedProof, ProblemId, RoundMetrics, RoundOutcome,
    RunState, SampleFacts, Verdict,
};
use std::sync::Arc;

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Judged(Verdict),
    /// Refused, but the checker does not say why.
    Unexplained,
    /// The completion contains no proof.
    Unparsed,
    /// Lost before it was sampled.
    Unsampled,
    /// Lost before it was judged.
    Unjudged,
}

use Turn::{Judged, Unexplained, Unjudged, Unparsed, Unsampled};

const TURNS: [Turn; 9] = [
    Judged(Verdict::Proved),
    Judged(Verdict::Refused),
    Judged(Verdict::Malformed),
    Judged(Verdict::Resource),
    Judged(Verdict::Infra),
    Unexplained,
    Unparsed,
    Unsampled,
    Unjudged,
];

impl Turn {
    fn verdict(self) -> Verdict {
        match self {
            Judged(verdict) => verdict,
            Unexplained => Verdict::Refused,
            Unparsed => Verdict::Malformed,
            Unsampled | Unjudged => Verdict::Infra,
        }
    }

    /// Returns whether an attempt continues after this turn.
    fn is_repaired(self) -> bool {
        matches!(self, Judged(Verdict::Refused | Verdict::Malformed))
    }
}

fn config(objective: Objective, attempts: u32, turns: u32) -> AlgorithmConfig {
    let mut config = Method::Reinforce.config();
    config.solver.objective = objective;
    config.rollouts_per_problem = attempts;
    config.solver.repair_turns = turns;
    config.validate().unwrap();
    config
}

fn facts_of(index: u32) -> SampleFacts {
    facts(5 + index)
}

/// Plays a round of the target `t000`. Turn t of attempt i ends as `turn(i, t)`.
fn play(config: &AlgorithmConfig, state: &RunState, turn: impl Fn(u32, u32) -> Turn) -> RoundOutcome {
    let k = config.rollouts_per_problem;
    let at = |index: u32| turn(index % k, index / k);
    let mut round = begin(config, &targets(1), state);
    let mut open = round.pending();
    while let Some(command) = open.pop() {
        let (key, index) = (command.key().clone(), command.key().index);
        assert!(round.pending().contains(&command), "a resumed round asks for the same");
        let event = match &command {
            Command::SampleRollout { failed, .. } => {
                let shown =
                    failed.as_ref().map(|failed| (failed.proof.to_string(), failed.error.to_string()));
                let before = index.checked_sub(k);
                let name =
                    |before: u32| (format!("proof {before}"), at(before).verdict().as_str().to_owned());
                assert_eq!(shown, before.map(name), "the last proof and its error");
                match at(index) {
                    Unsampled => Event::Lost { key, reason: "gone".to_owned() },
                    Unparsed => {
                        Event::Rollout { key, read: Err("no-end".to_owned()), sample: facts_of(index) }
                    }
                    _ => {
                        let text = Arc::from(format!("proof {index}"));
                        let read = Ok(ParsedProof { text, penalised: false, steps: 1 });
                        Event::Rollout { key, read, sample: facts_of(index) }
                    }
                }
            }
            Command::Verify { .. } => match at(index) {
                Unjudged => Event::Lost { key, reason: "gone".to_owned() },
                Unexplained => {
                    let judgement = Judgement { reason: String::new(), ..judgement(Verdict::Refused) };
                    Event::Judgement { key, judgement }
                }
                turn => Event::Judgement { key, judgement: judgement(turn.verdict()) },
            },
            other => panic!("{other:?}"),
        };
        open.extend(round.apply(event));
    }
    assert!(round.is_complete());
    round.finish(state).unwrap()
}

/// Plays every pair of turns of one attempt, next to an attempt that is proved at once, under every objective.
#[test]
fn every_pair_of_turns_follows_the_rules() {
    for objective in
        [Objective::Reinforce, Objective::ReinforceHalf, Objective::ExpertIteration, Objective::Cispo]
    {
        for (first, second) in TURNS.iter().flat_map(|first| TURNS.map(|second| (*first, second))) {
            let config = config(objective, 2, 1);
            let state = RunState::default();
            let outcome = play(&config, &state, |attempt, turn| match (attempt, turn) {
                (0, 0) => first,
                (0, _) => second,
                _ => Judged(Verdict::Proved),
            });
            let case = format!("{objective:?}: {first:?}, then {second:?}");
            let mut turns = vec![(0, first), (1, Judged(Verdict::Proved))];
            turns.extend(first.is_repaired().then_some((2, second)));
            let rows: Vec<(u32, Verdict)> =
                outcome.rollouts.iter().map(|row| (row.key.index, row.verdict)).collect();
            let expected: Vec<(u32, Verdict)> = turns.iter().map(|(i, turn)| (*i, turn.verdict())).collect();
            assert_eq!(rows, expected, "{case}: each turn is a rollout");

            let last = if first.is_repaired() { second.verdict() } else { first.verdict() };
            let (proved, judged) = (u32::from(last == Verdict::Proved), u32::from(last.is_judged()));
            let tally = Tally { proved: 1 + proved, judged: 1 + judged, infra: 1 - judged };
            assert_eq!(outcome.problems[0].tally, tally, "{case}: the last turn decides");
            let sampled = turns.iter().filter(|(_, turn)| *turn != Unsampled).count();
            assert_eq!(outcome.generations, sampled as u64, "{case}: each turn is a generation");
            let solved_by = u32::from(first.verdict() != Verdict::Proved);
            assert_eq!(outcome.newly_solved[0].1.index, solved_by, "{case}");

            let counted: Vec<(u32, Turn)> =
                turns.iter().copied().filter(|(_, turn)| turn.verdict().is_judged()).collect();
            let rewards: Vec<f64> = counted
                .iter()
                .map(|(_, turn)| f64::from(u8::from(turn.verdict() == Verdict::Proved)))
                .collect();
            let selected = objective != Objective::ReinforceHalf || 2 * tally.proved <= tally.judged;
            let selected = selected && (objective != Objective::Cispo || tally.proved < tally.judged);
            let weights: Vec<Option<f64>> = match objective {
                _ if !selected => vec![None; counted.len()],
                Objective::Cispo => {
                    let advantages = group_advantages(&rewards, config.solver.advantage_epsilon).unwrap();
                    advantages.into_iter().map(Some).collect()
                }
                _ => rewards.iter().map(|reward| (*reward > 0.0).then_some(*reward)).collect(),
            };
            let weights: Vec<(u32, f64)> =
                counted.iter().zip(weights).filter_map(|((i, _), weight)| Some((*i, weight?))).collect();
            let trained: Vec<(u32, f64)> =
                outcome.solver_examples.iter().map(|example| (example.key.index, example.weight)).collect();
            assert_eq!(trained, weights, "{case}: each turn has its own weight");
            let rows = outcome.rollouts.iter().filter_map(|row| Some((row.key.index, row.weight?)));
            assert_eq!(rows.collect::<Vec<_>>(), weights, "{case}: in the table, too");
            let metrics = RoundMetrics::compute(&outcome, &RunState::default(), |_| Default::default());
            let repaired = first.is_repaired().then_some((1.0, f64::from(proved)));
            assert_eq!(metrics.repair_rollouts.zip(metrics.repair_rollouts_proved), repaired, "{case}");
        }
    }
}

#[test]
fn an_attempt_counts_once_in_the_solve_rate() {
    let repaired = |proved: u32| {
        let config = config(Objective::ReinforceHalf, 4, 1);
        let turn = |attempt, turn| match turn {
            1 if attempt < proved => Judged(Verdict::Proved),
            _ => Judged(Verdict::Refused),
        };
        let outcome = play(&config, &RunState::default(), turn);
        assert_eq!(outcome.problems[0].tally, Tally { proved, judged: 4, infra: 0 });
        outcome.solver_examples.iter().map(|example| example.key.index).collect::<Vec<_>>()
    };
    assert_eq!(repaired(2), [4, 5], "half of the attempts are proved, though only a quarter of the rollouts");
    assert!(repaired(3).is_empty(), "more than half of the attempts");
}

#[test]
fn an_attempt_has_at_most_its_turns_and_ends_with_a_proof() {
    let config = config(Objective::Reinforce, 2, 3);
    let turn = |attempt, turn| match (attempt, turn) {
        (1, 2) => Judged(Verdict::Proved),
        _ => Judged(Verdict::Refused),
    };
    let mut state = RunState::default();
    let outcome = play(&config, &state, turn);
    let indices: Vec<u32> = outcome.rollouts.iter().map(|rollout| rollout.key.index).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 5, 6], "four turns of one attempt, three of the other");
    assert_eq!(outcome.problems[0].tally, Tally { proved: 1, judged: 2, infra: 0 });
    state.absorb(&outcome).unwrap();
    assert_eq!((state.generations, state.solved.len()), (7, 1));
    assert_eq!(state.solved[&ProblemId::new("t000")].index, 5);
}

#[test]
fn an_overlong_turn_is_penalised_like_any_unproved_rollout() {
    let mut config = config(Objective::Reinforce, 1, 1);
    let turn = |_, turn| Judged(if turn == 0 { Verdict::Refused } else { Verdict::Proved });
    let trained = |config: &AlgorithmConfig| {
        let outcome = play(config, &RunState::default(), turn);
        outcome
            .solver_examples
            .iter()
            .map(|example| (example.key.index, example.weight < 0.0))
            .collect::<Vec<_>>()
    };
    // Prompt and completion have 25 and 26 tokens.
    config.penalties.length_start = 24.5 / f64::from(WINDOW);
    assert_eq!(trained(&config), [(0, true), (1, true)]);
    config.penalties.length_of_unproved = false;
    assert_eq!(trained(&config), [(1, true)]);
}

#[test]
fn equal_repairs_of_different_proofs_are_different_examples() {
    let mut config = config(Objective::Reinforce, 2, 1);
    config.solver.distinct_examples = true;
    let repairs = |second: &str| {
        let mut round = begin(&config, &targets(1), &RunState::default());
        let mut open = round.pending();
        while let Some(command) = open.pop() {
            let key = command.key().clone();
            let text = match key.index {
                0 => "wrong",
                1 => second,
                _ => "right",
            };
            open.extend(round.apply(match &command {
                Command::Verify { proof, .. } => {
                    let verdict = if &**proof == "right" { Verdict::Proved } else { Verdict::Refused };
                    Event::Judgement { key, judgement: judgement(verdict) }
                }
                _ => {
                    let read = ParsedProof { text: text.into(), penalised: false, steps: 1 };
                    Event::Rollout { key, read: Ok(read), sample: facts(5) }
                }
            }));
        }
        round.finish(&RunState::default()).unwrap().solver_examples.len()
    };
    assert_eq!((repairs("wrong"), repairs("wrong too")), (1, 2));
}

#[test]
fn a_turn_shows_a_bounded_error() {
    let config = config(Objective::Reinforce, 1, 1);
    let state = RunState { next_round: 1, ..RunState::default() };
    let mut round = begin(&config, &targets(1), &state);
    let first = round.pending().remove(0);
    assert!(matches!(&first, Command::SampleRollout { failed: None, .. }));
    let read = ParsedProof { text: "wrong".into(), penalised: false, steps: 1 };
    let verify = round.apply(Event::Rollout { key: first.key().clone(), read: Ok(read), sample: facts(5) });
    let judgement = Judgement {
        reason: "∀".repeat(FailedProof::MAX_ERROR + 1),
        step: Some(7),
        ..judgement(Verdict::Refused)
    };
    let next = round.apply(Event::Judgement { key: verify[0].key().clone(), judgement });
    let [Command::SampleRollout { key, failed: Some(failed), .. }] = &next[..] else { panic!("{next:?}") };
    assert_eq!((key.index, failed.error.chars().count(), failed.step), (1, FailedProof::MAX_ERROR, Some(7)));
    assert_ne!(next[0].seed(), first.seed());
}

#[test]
fn results_of_a_turn_may_arrive_before_its_command() {
    let config = config(Objective::Reinforce, 1, 1);
    let turn = |_, turn| Judged(if turn == 0 { Verdict::Refused } else { Verdict::Proved });
    let expected = play(&config, &RunState::default(), turn);
    let mut round = begin(&config, &targets(1), &RunState::default());
    let key = round.pending()[0].key().clone();
    let keyed = |index| sgs_selfplay::TaskKey { index, ..key.clone() };
    let rollout = |index: u32| {
        let read = ParsedProof { text: format!("proof {index}").into(), penalised: false, steps: 1 };
        Event::Rollout { key: keyed(index), read: Ok(read), sample: facts_of(index) }
    };
    let judged = |index: u32| Event::Judgement {
        key: keyed(index).with_kind(sgs_selfplay::TaskKind::Judgement),
        judgement: judgement(turn(0, index).verdict()),
    };
    for event in [judged(1), rollout(1), judged(0), judged(1), rollout(0)] {
        assert!(round.apply(event).is_empty());
    }
    assert!(round.is_complete());
    assert_eq!((round.ignored().repeated, round.unclaimed_events()), (1, 0));
    assert_eq!(round.finish(&RunState::default()).unwrap(), expected);
    let beyond = round.apply(rollout(2));
    assert!(beyond.is_empty() && round.ignored().unknown == 1, "there is no third turn");
}
