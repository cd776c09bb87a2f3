//! The attempts of an evaluation, on the run's own workers and board.

use crate::round::dispatcher::Work;
use crate::round::event::EventStream;
use crate::round::record::Entry;
use crate::workers::attempts::{AttemptSummary, ProblemAttempts};
use sgs_selfplay::seed::evaluation_seed;
use sgs_selfplay::{Command, Event, Problem, ProblemId, Progress, TaskKey, TaskKind, Verdict};
use std::collections::HashMap;
use std::sync::Arc;

/// The state of one attempt.
#[derive(Clone, Debug)]
enum Attempt {
    Pending,
    Parsed(Arc<str>),
    Judged(Verdict, Option<Arc<str>>),
}

/// The same number of attempts at each of some problems.
pub(crate) struct Attempts<'a> {
    problems: &'a [Arc<Problem>],
    /// Number of rounds whose updates the Solver's weights have seen.
    after: u32,
    /// The run's seed.
    seed: u64,
    attempts: HashMap<ProblemId, (&'a Arc<Problem>, Vec<Attempt>)>,
    /// Attempts without a verdict.
    left: usize,
    progress: Progress,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(problems: &'a [Arc<Problem>], samples: u32, after: u32, seed: u64) -> Self {
        let pending = || vec![Attempt::Pending; samples as usize];
        let attempts: HashMap<_, _> = problems.iter().map(|p| (p.id.clone(), (p, pending()))).collect();
        let left = attempts.len() * samples as usize;
        Self { problems, after, seed, attempts, left, progress: Progress::default() }
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
        (problem, attempts.get_mut(key.index as usize).expect(known))
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
            for (index, _) in (0..).zip(&self.attempts[&problem.id].1) {
                let id = problem.id.clone();
                commands.push(Command::SampleRollout {
                    seed: evaluation_seed(self.seed, &id, index),
                    key: TaskKey { round: self.after, kind: TaskKind::Rollout, problem: id, index },
                    problem: Arc::clone(problem),
                    lemma: None,
                });
            }
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
                self.end(&key, judgement.verdict);
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
