//! Samples and verifies attempts at problems outside of a run's rounds, on the run's own workers and board.
//!
//! Attempts are not in the journal. The caller stores their results as a whole before it reports them; attempts lost
//! in a crash are repeated with the same seeds.

use crate::StopFlag;
use crate::error::{Result, bail};
use crate::round::dispatcher::{Watch, entries};
use crate::round::infra::FaultCounts;
use crate::round::recheck::RecheckPolicy;
use crate::round::result_parser::Reader;
use crate::workers::tasks::task_number;
use sgs_fleet::{FinishedTask, Fleet, Task, TaskId};
use sgs_selfplay::seed::evaluation_seed;
use sgs_selfplay::{Command, Event, Problem, ProblemId, Progress, TaskKey, TaskKind, Verdict};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of results taken from the board in one call.
const TAKEN_AT_ONCE: usize = 512;

/// The attempts at one problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProblemAttempts {
    pub problem: Arc<Problem>,
    /// Attempts that were judged.
    pub judged: u32,
    /// Attempts that proved it.
    pub proved: u32,
    /// The first proof, in the order of the attempts.
    pub proof: Option<Arc<str>>,
}

/// The state of one attempt.
#[derive(Clone, Debug)]
enum AttemptState {
    Pending,
    Parsed(Arc<str>),
    Judged(Verdict, Option<Arc<str>>),
}

/// A task on the board: its commands and their common prompt, in tokens.
struct OpenTask {
    commands: Vec<Command>,
    prompt: Arc<[u32]>,
}

/// Attempts on the board.
pub(crate) struct Attempts<'a> {
    /// Builds tasks and parses their results.
    pub reader: Reader<'a>,
    /// The task board, which holds no other task of the run.
    pub fleet: &'a Fleet,
    /// Set when the user interrupts the run.
    pub interrupt: &'a StopFlag,
    /// Called while no result arrives.
    pub watch: &'a Watch<'a>,
    /// The run's seed.
    pub seed: u64,
    /// Which verdicts are rechecked. Other workers are never asked.
    pub recheck: RecheckPolicy,
}

impl Attempts<'_> {
    /// Samples every problem `samples` times. Returns `None` if the user interrupts it; the samples are then
    /// discarded.
    ///
    /// # Errors
    /// Returns an error if the board fails, more than 1% of the attempts are lost, or no result arrives for too long.
    pub(crate) fn run(
        &self,
        problems: &[Arc<Problem>],
        samples: u32,
        mut report: impl FnMut(Progress),
    ) -> Result<Option<Vec<ProblemAttempts>>> {
        let mut table = AttemptTable::new(problems, samples);
        let mut last = Instant::now();
        table.submit(self, self.reader.groups(self.commands(problems, samples)))?;
        while !table.open.is_empty() {
            if self.interrupt.is_set() {
                self.fleet.cancel(&table.open())?;
                return Ok(None);
            }
            let finished = self.fleet.take_finished(None, TAKEN_AT_ONCE, Duration::from_millis(200))?;
            if finished.is_empty() {
                (self.watch)(last.elapsed(), &|| {
                    format!("{} tasks of an evaluation are open", table.open.len())
                })?;
            } else {
                last = Instant::now();
                table.apply_finished(self, finished)?;
            }
            report(table.progress);
        }
        Ok(Some(table.by_problem(problems)))
    }

    fn commands(&self, problems: &[Arc<Problem>], samples: u32) -> Vec<Command> {
        let attempt = |problem: &Arc<Problem>, index| Command::SampleRollout {
            key: TaskKey {
                round: self.reader.policy_version,
                kind: TaskKind::Rollout,
                problem: problem.id.clone(),
                index,
            },
            seed: evaluation_seed(self.seed, &problem.id, index),
            problem: Arc::clone(problem),
            lemma: None,
        };
        problems.iter().flat_map(|p| (0..samples).map(move |index| attempt(p, index))).collect()
    }
}

/// The tasks on the board and the results so far.
struct AttemptTable {
    open: HashMap<u64, OpenTask>,
    attempts: HashMap<ProblemId, Vec<AttemptState>>,
    problems: HashMap<ProblemId, Arc<Problem>>,
    progress: Progress,
    faults: FaultCounts,
}

impl AttemptTable {
    fn new(problems: &[Arc<Problem>], samples: u32) -> Self {
        let none = || vec![AttemptState::Pending; samples as usize];
        Self {
            open: HashMap::new(),
            attempts: problems.iter().map(|p| (p.id.clone(), none())).collect(),
            problems: problems.iter().map(|p| (p.id.clone(), Arc::clone(p))).collect(),
            progress: Progress::default(),
            faults: FaultCounts::default(),
        }
    }

    fn submit(&mut self, env: &Attempts<'_>, groups: Vec<Vec<Command>>) -> Result<()> {
        let mut tasks = Vec::with_capacity(groups.len());
        for commands in groups {
            let Some(first) = commands.first() else { continue };
            let stage = match first {
                Command::Verify { .. } => &mut self.progress.judgements,
                _ => &mut self.progress.rollouts,
            };
            stage.asked += commands.len() as u64;
            commands.iter().for_each(|command| self.faults.note_submitted(command.key().kind));
            let prompt = env.reader.prompt(first)?;
            let (kind, priority, payload) = env.reader.payload(&commands, &prompt)?;
            let id = task_number(commands.iter().map(Command::key), payload.as_bytes());
            tasks.push(Task { id: TaskId(id), kind, priority, payload });
            self.open.insert(id, OpenTask { commands, prompt });
        }
        env.fleet.submit(tasks)?;
        Ok(())
    }

    fn apply_finished(&mut self, env: &Attempts<'_>, finished: Vec<FinishedTask>) -> Result<()> {
        let mut next = Vec::new();
        for FinishedTask { task, result, .. } in finished {
            let Some(open_task) = self.open.remove(&task.0) else {
                env.fleet.remove(&[task])?;
                continue;
            };
            match entries(&env.reader, &env.recheck, &open_task.commands, &open_task.prompt, &result) {
                Ok(Some(entries)) => {
                    env.fleet.remove(&[task])?;
                    next.extend(entries.into_iter().filter_map(|entry| self.apply(entry.event)));
                }
                // Retry the commands one by one to find the one at fault.
                Ok(None) => {
                    env.fleet.remove(&[task])?;
                    self.resubmit_singly(env, open_task.commands)?;
                }
                Err(error) => {
                    tracing::warn!("a worker's answer is refused: {error:#}");
                    env.fleet.reject(task, &format!("{error:#}"))?;
                    self.open.insert(task.0, open_task);
                }
            }
        }
        self.submit(env, env.reader.groups(next))?;
        self.refuse_broken(env)
    }

    /// Ends the evaluation if too many attempts are lost. Open tasks are cancelled, because a failing worker backs off
    /// for ever longer times.
    fn refuse_broken(&self, env: &Attempts<'_>) -> Result<()> {
        if !self.faults.are_too_many() {
            return Ok(());
        }
        env.fleet.cancel(&self.open())?;
        let of = format!("the evaluation after {} rounds", env.reader.policy_version);
        bail!("{}", self.faults.report(&of, &env.fleet.status()?))
    }

    fn open(&self) -> Vec<TaskId> {
        self.open.keys().copied().map(TaskId).collect()
    }

    /// Submits the commands of a failed task one by one.
    fn resubmit_singly(&mut self, env: &Attempts<'_>, commands: Vec<Command>) -> Result<()> {
        let (progress, faults) = (self.progress, self.faults.clone());
        self.submit(env, commands.into_iter().map(|command| vec![command]).collect())?;
        (self.progress, self.faults) = (progress, faults);
        Ok(())
    }

    /// Notes a result; a proof that was read is to be judged.
    fn apply(&mut self, event: Event) -> Option<Command> {
        self.faults.note(&event);
        match event {
            Event::Rollout { key, read: Ok(read), .. } => {
                self.progress.rollouts.done += 1;
                *self.attempt(&key)? = AttemptState::Parsed(Arc::clone(&read.text));
                let problem = Arc::clone(self.problems.get(&key.problem)?);
                let key = key.with_kind(TaskKind::Judgement);
                Some(Command::Verify { key, problem, proof: read.text })
            }
            Event::Rollout { key, read: Err(_), .. } => {
                self.progress.rollouts.done += 1;
                self.end(&key, Verdict::Malformed, None);
                None
            }
            Event::Judgement { key, judgement } => {
                self.progress.judgements.done += 1;
                let proof = match self.attempt(&key)? {
                    AttemptState::Parsed(proof) => Some(Arc::clone(proof)),
                    _ => None,
                };
                self.end(&key, judgement.verdict, proof);
                None
            }
            Event::Lost { key, .. } => {
                self.end(&key, Verdict::Infra, None);
                None
            }
            _ => None,
        }
    }

    fn attempt(&mut self, key: &TaskKey) -> Option<&mut AttemptState> {
        self.attempts.get_mut(&key.problem)?.get_mut(key.index as usize)
    }

    fn end(&mut self, key: &TaskKey, verdict: Verdict, proof: Option<Arc<str>>) {
        if let Some(attempt) = self.attempt(key) {
            *attempt = AttemptState::Judged(verdict, proof);
        }
    }

    /// The attempts by problem, without those that were lost.
    fn by_problem(mut self, problems: &[Arc<Problem>]) -> Vec<ProblemAttempts> {
        let mut out = Vec::with_capacity(problems.len());
        for problem in problems {
            let mut tally =
                ProblemAttempts { problem: Arc::clone(problem), judged: 0, proved: 0, proof: None };
            for attempt in self.attempts.remove(&problem.id).unwrap_or_default() {
                let AttemptState::Judged(verdict, proof) = attempt else { continue };
                tally.judged += u32::from(verdict.is_judged());
                if verdict == Verdict::Proved {
                    tally.proved += 1;
                    tally.proof = tally.proof.or(proof);
                }
            }
            out.push(tally);
        }
        out
    }
}
