//! A simulated model and checker: the answer to a command is derived from a hash of the command.

use sgs_selfplay::seed::{SeededRng, task_seed};
use sgs_selfplay::{
    AlgorithmConfig, Command, Event, FinishReason, Judgement, ParsedConjecture, ParsedProof, Problem,
    ProblemId, Review, Role, Round, RoundOutcome, RunState, SampleFacts, Verdict,
};
use std::sync::Arc;

pub const WINDOW: u32 = 200;

pub fn targets(n: usize) -> Vec<Arc<Problem>> {
    (0..n)
        .map(|i| {
            Arc::new(Problem {
                id: ProblemId::new(format!("t{i:03}")),
                statement: Arc::from(format!("|- target {i}")),
                context: Arc::from("ctx"),
            })
        })
        .collect()
}

pub fn facts(generated_tokens: u32) -> SampleFacts {
    SampleFacts {
        prompt_tokens: 20,
        generated_tokens,
        finish: FinishReason::Stop,
        entropy: Some(0.5),
        mean_log_prob: Some(-0.5),
        policy_version: 0,
    }
}

pub fn judgement(verdict: Verdict) -> Judgement {
    Judgement { verdict, reason: verdict.as_str().to_owned(), step: None, micros: 10 }
}

/// Returns the random numbers for a command, which depend only on its key and seed.
fn draws(command: &Command) -> SeededRng {
    let key = command.key();
    let salt = command.seed().unwrap_or(7) ^ (key.kind as u64);
    SeededRng::new(task_seed(salt, key.round, Role::Solver, &key.problem, key.index))
}

/// Answers a command.
pub fn answer(command: &Command) -> Event {
    let mut draw = draws(command);
    let sample = facts(1 + draw.below(190) as u32);
    let key = command.key().clone();
    if draw.below(50) == 0 {
        return Event::Lost { key, reason: "worker gone".to_owned() };
    }
    match command {
        Command::SampleConjecture { condition, .. } => {
            let read = match draw.below(10) {
                0 => Err("no-turnstile".to_owned()),
                1 => Ok(ParsedConjecture::plain(condition.problem().statement.clone())),
                2 => Ok(ParsedConjecture::plain("|- popular")),
                n => {
                    let statement: Arc<str> = Arc::from(format!("|- conjecture {}", draw.next_u64() % 5_000));
                    let known = (n == 3).then(|| Arc::from("theorem"));
                    Ok(ParsedConjecture {
                        statement,
                        known,
                        lemma: None,
                        rubric: n as f64 - 2.0,
                        padded: Some(n == 2),
                    })
                }
            };
            Event::Conjecture { key, read, sample }
        }
        Command::SampleRollout { .. } => {
            let read = match draw.below(10) {
                0 => Err("unknown-token".to_owned()),
                n => {
                    let text = Arc::from(format!("proof {}", draw.below(6)));
                    Ok(ParsedProof { text, penalised: n == 1, steps: n as u32 })
                }
            };
            Event::Rollout { key, read, sample }
        }
        Command::Verify { problem, .. } => {
            let difficulty = SeededRng::new(task_seed(1, 0, Role::Guide, &problem.id, 0)).below(10);
            let verdict = match draw.below(10) {
                _ if draw.below(40) == 0 => Verdict::Infra,
                _ if draw.below(40) == 0 => Verdict::Resource,
                n if n >= difficulty => Verdict::Proved,
                _ => Verdict::Refused,
            };
            Event::Judgement { key, judgement: judgement(verdict) }
        }
        Command::SampleReview { .. } => {
            let score = |draw: &mut SeededRng, n| draw.below(n) as f64;
            let review = Review {
                relevance: score(&mut draw, 6),
                redundancy: score(&mut draw, 2),
                complexity: score(&mut draw, 5),
            };
            let read = match draw.below(4) {
                0 => Err("no-score".to_owned()),
                1 => Ok(Review { relevance: 100.0, ..review }),
                _ => Ok(review),
            };
            Event::Review { key, read, sample }
        }
    }
}

pub fn begin(config: &AlgorithmConfig, targets: &[Arc<Problem>], state: &RunState) -> Round {
    Round::new(Arc::new(config.clone()), 42, WINDOW, targets, state).unwrap()
}

/// Answers all commands in the order in which they are issued. Returns the events in that order.
pub fn play(round: &mut Round) -> Vec<Event> {
    let mut queue: std::collections::VecDeque<Command> = round.pending().into();
    let mut events = Vec::new();
    while let Some(command) = queue.pop_front() {
        let event = answer(&command);
        events.push(event.clone());
        queue.extend(round.apply(event));
    }
    assert!(round.is_complete());
    events
}

/// Runs complete rounds, answering commands in the order in which they are issued.
pub fn run(config: &AlgorithmConfig, targets: &[Arc<Problem>], rounds: u32) -> (RunState, Vec<RoundOutcome>) {
    let mut state = RunState::default();
    let mut outcomes = Vec::new();
    for _ in 0..rounds {
        let mut round = begin(config, targets, &state);
        play(&mut round);
        let outcome = round.finish(&state).unwrap();
        state.absorb(&outcome).unwrap();
        outcomes.push(outcome);
    }
    (state, outcomes)
}
