//! The attempts of an evaluation, on the run's own workers and board.

use crate::round::dispatcher::Work;
use crate::round::event::EventStream;
use crate::round::record::Entry;
use crate::workers::attempts::{AttemptSummary, ProblemAttempts};
use sgs_selfplay::config::SolverConfig;
use sgs_selfplay::objective::is_repaired;
use sgs_selfplay::seed::evaluation_seed;
use sgs_selfplay::{
    Command, Event, FailedProof, Judgement, Problem, ProblemId, Progress, TaskKey, TaskKind, Verdict,
};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Attempt {
    Pending,
    Parsed(Arc<str>),
    Judged(Verdict, Option<Arc<str>>),
}

/// The same number of attempts at each of some problems. As in a round, turn t of attempt i has the index
/// `t * samples + i`.
pub(crate) struct Attempts<'a> {
    problems: &'a [Arc<Problem>],
    /// Number of attempts at each problem.
    samples: u32,
    solver: &'a SolverConfig,
    /// Number of rounds whose updates the Solver's weights have seen.
    after: u32,
    seed: u64,
    attempts: HashMap<ProblemId, (&'a Arc<Problem>, Vec<Attempt>)>,
    /// Attempts without a verdict.
    left: usize,
    progress: Progress,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(
        problems: &'a [Arc<Problem>],
        samples: u32,
        solver: &'a SolverConfig,
        after: u32,
        seed: u64,
    ) -> Self {
        let pending = || vec![Attempt::Pending; samples as usize];
        let attempts: HashMap<_, _> = problems.iter().map(|p| (p.id.clone(), (p, pending()))).collect();
        let left = attempts.len() * samples as usize;
        Self { problems, samples, solver, after, seed, attempts, left, progress: Progress::default() }
    }

    /// Returns the attempts at each problem, without those that were lost.
    pub(crate) fn by_problem(self) -> Vec<ProblemAttempts> {
        let of = |problem: &Arc<Problem>| {
            let mut summary = AttemptSummary::default();
            for attempt in &self.attempts[&problem.id].1 {
                if let Attempt::Judged(verdict, proof) = attempt {
                    summary.add(*verdict, proof.as_ref());
                }
            }
            ProblemAttempts { problem: Arc::clone(problem), summary }
        };
        self.problems.iter().map(of).collect()
    }

    #[allow(clippy::expect_used, reason = "every result has the key of a command")]
    fn attempt(&mut self, key: &TaskKey) -> (&'a Arc<Problem>, &mut Attempt) {
        let known = "invariant: results have the keys of commands";
        let (problem, attempts) = self.attempts.get_mut(&key.problem).expect(known);
        (problem, attempts.get_mut((key.index % self.samples) as usize).expect(known))
    }

    fn rollout(&self, problem: &Arc<Problem>, index: u32, failed: Option<Arc<FailedProof>>) -> Command {
        let id = problem.id.clone();
        Command::SampleRollout {
            seed: evaluation_seed(self.seed, &id, index),
            key: TaskKey { round: self.after, kind: TaskKind::Rollout, problem: id, index },
            problem: Arc::clone(problem),
            failed,
        }
    }

    /// Returns the next turn of an attempt whose proof was judged, if there is one.
    fn next_turn(&mut self, key: &TaskKey, judgement: &Judgement) -> Option<Command> {
        if !is_repaired(judgement, key.index / self.samples, self.solver) {
            return None;
        }
        let (problem, attempt) = self.attempt(key);
        let Attempt::Parsed(proof) = std::mem::replace(attempt, Attempt::Pending) else {
            unreachable!("invariant: a proof was parsed before it was judged")
        };
        self.progress.rollouts.asked += 1;
        let failed = Arc::new(FailedProof::new(proof, judgement));
        Some(self.rollout(problem, key.index + self.samples, Some(failed)))
    }

    fn end(&mut self, key: &TaskKey, verdict: Verdict) {
        let (_, attempt) = self.attempt(key);
        let proof = match attempt {
            Attempt::Parsed(proof) => Some(Arc::clone(proof)),
            _ => None,
        };
        *attempt = Attempt::Judged(verdict, proof);
        self.left -= 1;
    }
}

impl Work for Attempts<'_> {
    fn name(&self) -> String {
        format!("the evaluation after {} rounds", self.after)
    }

    fn describe_open(&self, tasks: usize) -> String {
        format!("{tasks} tasks of an evaluation are open")
    }

    fn begin(&mut self) -> Vec<Command> {
        let mut commands = Vec::with_capacity(self.left);
        for problem in self.problems {
            commands.extend((0..self.samples).map(|index| self.rollout(problem, index, None)));
        }
        self.progress.rollouts.asked = commands.len() as u64;
        commands
    }

    fn apply(&mut self, entry: Entry, _: &mut EventStream<'_>) -> Vec<Command> {
        match entry.event {
            Event::Rollout { key, read, .. } => {
                self.progress.rollouts.done += 1;
                let Ok(read) = read else {
                    self.end(&key, Verdict::Malformed);
                    return Vec::new();
                };
                self.progress.judgements.asked += 1;
                let (problem, attempt) = self.attempt(&key);
                *attempt = Attempt::Parsed(Arc::clone(&read.text));
                let key = key.with_kind(TaskKind::Judgement);
                return vec![Command::Verify { key, problem: Arc::clone(problem), proof: read.text }];
            }
            Event::Judgement { key, judgement } => {
                self.progress.judgements.done += 1;
                match self.next_turn(&key, &judgement) {
                    Some(command) => return vec![command],
                    None => self.end(&key, judgement.verdict),
                }
            }
            Event::Lost { key, .. } => self.end(&key, Verdict::Infra),
            Event::Conjecture { .. } | Event::Review { .. } => {
                unreachable!("invariant: an evaluation samples the Solver alone")
            }
        }
        Vec::new()
    }

    fn is_complete(&self) -> bool {
        self.left == 0
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_selfplay::{FinishReason, ParsedProof, SampleFacts};

    fn sampled(command: &Command, text: &str) -> Event {
        let sample = SampleFacts {
            prompt_tokens: 1,
            generated_tokens: 1,
            finish: FinishReason::Stop,
            entropy: None,
            mean_log_prob: None,
            policy_version: 3,
        };
        let read = Ok(ParsedProof { text: text.into(), penalised: false, steps: 1 });
        Event::Rollout { key: command.key().clone(), read, sample }
    }

    fn judged(command: &Command, verdict: Verdict) -> Event {
        let judgement = Judgement { verdict, reason: "no".into(), step: None, micros: 0 };
        Event::Judgement { key: command.key().clone(), judgement }
    }

    #[test]
    fn a_refused_attempt_continues_and_counts_once() {
        let problem = Problem { id: ProblemId::new("p"), statement: "s".into(), context: "".into() };
        let problems = [Arc::new(problem)];
        let solver = SolverConfig { repair_turns: 1, ..SolverConfig::default() };
        let mut attempts = Attempts::new(&problems, 2, &solver, 3, 7);
        let mut listener = |_: crate::RunEvent<'_>| {};
        let mut events = EventStream::new(&problems, &mut listener);
        let mut apply = |event| attempts.apply(Entry { event, completion: None }, &mut events);
        let first = Attempts::new(&problems, 2, &solver, 3, 7).begin();
        let verify = apply(sampled(&first[0], "wrong"));
        let second = apply(judged(&verify[0], Verdict::Refused));
        let [Command::SampleRollout { key, failed: Some(failed), seed, .. }] = &second[..] else {
            panic!("{second:?}")
        };
        assert_eq!((key.index, &*failed.proof, &*failed.error), (2, "wrong", "no"));
        assert_eq!(*seed, evaluation_seed(7, &key.problem, 2));
        let verify = apply(sampled(&second[0], "right"));
        assert!(apply(judged(&verify[0], Verdict::Proved)).is_empty());
        let verify = apply(sampled(&first[1], "right"));
        assert!(apply(judged(&verify[0], Verdict::Proved)).is_empty());
        assert!(attempts.is_complete());
        assert_eq!(attempts.progress().rollouts.done, 3);
        let summary = attempts.by_problem().remove(0).summary;
        assert_eq!((summary.judged, summary.proved, summary.proof.as_deref()), (2, 2, Some("right")));
    }
}
