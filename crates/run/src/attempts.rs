//! Attempts at problems beside a run's rounds: sampled and judged by the run's own workers, over the same board.
//!
//! Nothing of them is journalled. What they come to is on the disk, whole, before anything is told of it or depends on
//! it; attempts that are lost in a crash are made again, with the same seeds.

use crate::Interrupt;
use crate::dispatcher::{Watch, entries};
use crate::infra::Faults;
use crate::reading::Reader;
use crate::second::Second;
use crate::tasks::task_number;
use anyhow::{Result, bail};
use sgs_fleet::{Finished, Fleet, Task, TaskId};
use sgs_selfplay::seed::evaluation_seed;
use sgs_selfplay::{Command, Event, Problem, ProblemId, Progress, TaskKey, TaskKind, Verdict};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Results taken off the board at once.
const TAKEN_AT_ONCE: usize = 512;

/// What was tried of one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub problem: Arc<Problem>,
    /// Attempts that were judged.
    pub judged: u32,
    /// Attempts that proved it.
    pub proved: u32,
    /// The first proof, in the order of the attempts.
    pub proof: Option<Arc<str>>,
}

/// What became of an attempt.
#[derive(Clone, Debug)]
enum Attempt {
    Open,
    Read(Arc<str>),
    Judged(Verdict, Option<Arc<str>>),
}

/// A task on the board: its commands, and the prompt that they share, in tokens.
struct Asked {
    commands: Vec<Command>,
    prompt: Arc<[u32]>,
}

/// Attempts on the board.
pub struct Attempts<'a> {
    /// Asks workers and reads what they answer.
    pub reader: Reader<'a>,
    /// The task board, on which nothing else of the run stands.
    pub fleet: &'a Fleet,
    /// Set when the user wants to stop.
    pub interrupt: &'a Interrupt,
    /// Asked while nothing comes in.
    pub watch: &'a Watch<'a>,
    /// The run's seed.
    pub seed: u64,
    /// Which verdicts are checked again: those that this process checks; other workers are not asked.
    pub second: Second,
}

impl Attempts<'_> {
    /// Tries every problem so many times. `None` if the user interrupted it; what was sampled is then forgotten.
    ///
    /// # Errors
    /// The board fails, more than one in a hundred of the attempts is lost, or nothing has come in for too long.
    pub fn run(
        &self,
        problems: &[Arc<Problem>],
        samples: u32,
        mut tell: impl FnMut(Progress),
    ) -> Result<Option<Vec<Tried>>> {
        let mut desk = Desk::new(problems, samples);
        let mut last = Instant::now();
        desk.put(self, self.reader.groups(self.commands(problems, samples)))?;
        while !desk.open.is_empty() {
            if self.interrupt.is_set() {
                self.fleet.cancel(&desk.open())?;
                return Ok(None);
            }
            let finished = self.fleet.take_finished(None, TAKEN_AT_ONCE, Duration::from_millis(200))?;
            if finished.is_empty() {
                (self.watch)(last.elapsed(), &|| {
                    format!("{} tasks of an evaluation are open", desk.open.len())
                })?;
            } else {
                last = Instant::now();
                desk.take(self, finished)?;
            }
            tell(desk.progress);
        }
        Ok(Some(desk.tried(problems)))
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

/// What is on the board, and what has come back.
struct Desk {
    open: HashMap<u64, Asked>,
    attempts: HashMap<ProblemId, Vec<Attempt>>,
    problems: HashMap<ProblemId, Arc<Problem>>,
    progress: Progress,
    faults: Faults,
}

impl Desk {
    fn new(problems: &[Arc<Problem>], samples: u32) -> Self {
        let none = || vec![Attempt::Open; samples as usize];
        Self {
            open: HashMap::new(),
            attempts: problems.iter().map(|p| (p.id.clone(), none())).collect(),
            problems: problems.iter().map(|p| (p.id.clone(), Arc::clone(p))).collect(),
            progress: Progress::default(),
            faults: Faults::default(),
        }
    }

    fn put(&mut self, on: &Attempts<'_>, groups: Vec<Vec<Command>>) -> Result<()> {
        let mut tasks = Vec::with_capacity(groups.len());
        for commands in groups {
            let Some(first) = commands.first() else { continue };
            let stage = match first {
                Command::Verify { .. } => &mut self.progress.judgements,
                _ => &mut self.progress.rollouts,
            };
            stage.asked += commands.len() as u64;
            commands.iter().for_each(|command| self.faults.note_submitted(command.key().kind));
            let prompt = on.reader.prompt(first)?;
            let (kind, priority, payload) = on.reader.payload(&commands, &prompt)?;
            let id = task_number(commands.iter().map(Command::key), payload.as_bytes());
            tasks.push(Task { id: TaskId(id), kind, priority, payload });
            self.open.insert(id, Asked { commands, prompt });
        }
        on.fleet.submit(tasks)?;
        Ok(())
    }

    fn take(&mut self, on: &Attempts<'_>, finished: Vec<Finished>) -> Result<()> {
        let mut next = Vec::new();
        for Finished { task, ending, .. } in finished {
            let Some(asked) = self.open.remove(&task.0) else {
                on.fleet.remove(&[task])?;
                continue;
            };
            match entries(&on.reader, &on.second, &asked.commands, &asked.prompt, &ending) {
                Ok(Some(entries)) => {
                    on.fleet.remove(&[task])?;
                    next.extend(entries.into_iter().filter_map(|entry| self.note(entry.event)));
                }
                // Whose fault it was shows when each stands alone.
                Ok(None) => {
                    on.fleet.remove(&[task])?;
                    self.put_again(on, asked.commands)?;
                }
                Err(error) => {
                    tracing::warn!("a worker's answer is refused: {error:#}");
                    on.fleet.reject(task, &format!("{error:#}"))?;
                    self.open.insert(task.0, asked);
                }
            }
        }
        self.put(on, on.reader.groups(next))?;
        self.refuse_broken(on)
    }

    /// Ends the evaluation when too much of it is lost. What is left need not fail first: a broken worker pauses after its
    /// failures, each time for longer.
    fn refuse_broken(&self, on: &Attempts<'_>) -> Result<()> {
        if !self.faults.are_too_many() {
            return Ok(());
        }
        on.fleet.cancel(&self.open())?;
        let of = format!("the evaluation after {} rounds", on.reader.policy_version);
        bail!("{}", self.faults.report(&of, &on.fleet.status()?))
    }

    fn open(&self) -> Vec<TaskId> {
        self.open.keys().copied().map(TaskId).collect()
    }

    /// Puts commands of a task that failed on the board one by one.
    fn put_again(&mut self, on: &Attempts<'_>, commands: Vec<Command>) -> Result<()> {
        let (progress, faults) = (self.progress, self.faults.clone());
        self.put(on, commands.into_iter().map(|command| vec![command]).collect())?;
        (self.progress, self.faults) = (progress, faults);
        Ok(())
    }

    /// Notes a result; a proof that was read is to be judged.
    fn note(&mut self, event: Event) -> Option<Command> {
        self.faults.note(&event);
        match event {
            Event::Rollout { key, read: Ok(read), .. } => {
                self.progress.rollouts.done += 1;
                *self.attempt(&key)? = Attempt::Read(Arc::clone(&read.text));
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
                    Attempt::Read(proof) => Some(Arc::clone(proof)),
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

    fn attempt(&mut self, key: &TaskKey) -> Option<&mut Attempt> {
        self.attempts.get_mut(&key.problem)?.get_mut(key.index as usize)
    }

    fn end(&mut self, key: &TaskKey, verdict: Verdict, proof: Option<Arc<str>>) {
        if let Some(attempt) = self.attempt(key) {
            *attempt = Attempt::Judged(verdict, proof);
        }
    }

    /// The attempts by problem, without those that were lost.
    fn tried(mut self, problems: &[Arc<Problem>]) -> Vec<Tried> {
        let mut out = Vec::with_capacity(problems.len());
        for problem in problems {
            let mut tried = Tried { problem: Arc::clone(problem), judged: 0, proved: 0, proof: None };
            for attempt in self.attempts.remove(&problem.id).unwrap_or_default() {
                let Attempt::Judged(verdict, proof) = attempt else { continue };
                tried.judged += u32::from(verdict.is_judged());
                if verdict == Verdict::Proved {
                    tried.proved += 1;
                    tried.proof = tried.proof.or(proof);
                }
            }
            out.push(tried);
        }
        out
    }
}
