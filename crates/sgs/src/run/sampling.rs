//! The sampling stage of a round: commands out to the board, results into the journal, then into the round.

use super::Interrupt;
use super::config::RunConfig;
use super::endpoint;
use super::infra::Faults;
use super::tasks::{GENERATE, GenerateResult, GenerateTask, VERIFY, VerifyTask, task_number};
use super::view::View;
use crate::evaluate::encode;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sgs_fleet::{Ending, Finished, Fleet, Payload, Task, TaskId, TaskKind as BoardKind};
use sgs_formal::{FormalSystem, Malformed, Seed};
use sgs_lm::tokenizer::Tokenizer;
use sgs_rundir::{Journal, Record, RecordKey, Ticket};
use sgs_selfplay::{
    Command, Completion, ConjectureSeed, Event, FinishReason, Judgement, Problem, ReadProof, Role, Round,
    SampleFacts, TaskKey, TaskKind,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the journal holds of one task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// What the round learns.
    pub event: Event,
    /// The completion, for tasks that sample.
    pub completion: Option<Completion>,
}

/// The event alone of a record of the journal, for whoever only watches; `None` if it cannot be read.
pub fn event_of(payload: &[u8]) -> Option<Event> {
    #[derive(Deserialize)]
    struct EventAlone {
        event: Event,
    }
    serde_json::from_slice::<EventAlone>(payload).ok().map(|entry| entry.event)
}

/// What sampling needs of its surroundings.
pub struct Stage<'a> {
    /// The configuration.
    pub config: &'a RunConfig,
    /// The formal system.
    pub system: &'a dyn FormalSystem,
    /// The tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// The task board.
    pub fleet: &'a Fleet,
    /// The journal.
    pub journal: &'a Journal,
    /// Whether workers outlive this process: then they keep a result until it is in the journal.
    pub board_lasts: bool,
    /// Set when the user wants to stop.
    pub interrupt: &'a Interrupt,
    /// Number of rounds whose updates the weights have seen.
    pub policy_version: u32,
    /// Fingerprint of the round's weights, if workers elsewhere sample with copies of them.
    pub weights: Option<&'a str>,
    /// Asked while nothing comes in: for how long that has been, and what is waited for. An error ends the stage.
    pub watch: &'a Watch<'a>,
}

/// See [`Stage::watch`].
pub type Watch<'a> = dyn Fn(Duration, &dyn Fn() -> String) -> Result<()> + 'a;

/// Completions of a round by task.
pub type Completions = HashMap<TaskKey, Completion>;

/// How the stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingEnd {
    /// Every task is answered.
    Complete,
    /// The user wants to stop; what was finished is in the journal.
    Interrupted,
}

/// Wall times of the stage, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplingTimes {
    /// The whole stage.
    pub all: f64,
    /// In which the dispatcher had something to do: it works beside the samplers.
    pub dispatcher: f64,
}

/// Results that came off the board together.
struct Batch {
    tasks: Vec<TaskId>,
    entries: Vec<Entry>,
    records: Vec<Record>,
}

/// Results on their way to the disk.
struct Unwritten {
    ticket: Ticket,
    tasks: Vec<TaskId>,
    /// What the round learns of when they are there; `None` if it knows already.
    entries: Option<Vec<Entry>>,
}

/// Results that the round has learned of although the journal does not take them yet.
#[derive(Default)]
struct Early {
    tasks: Vec<TaskId>,
    records: Vec<Record>,
}

/// How the stage came to its end.
pub struct Sampled {
    /// Whether every task is answered.
    pub end: SamplingEnd,
    /// Results that the journal did not take yet, in the order in which they came; only of a complete round.
    pub early: Vec<Record>,
    /// Where the time went.
    pub times: SamplingTimes,
}

/// How soon the dispatcher looks again whether the journal has reached the disk, if nothing else comes in.
const COMMIT_POLL: Duration = Duration::from_millis(1);

/// Whether the journal takes results of the round yet; asked with `true`, waits until it does.
pub type Ready<'a> = dyn FnMut(bool) -> Result<bool> + 'a;

/// A command on the board, with its prompt in tokens.
struct Asked {
    command: Command,
    prompt: Arc<[u32]>,
}

impl Stage<'_> {
    /// Feeds the journal's records of the round back into it.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn replay(
        &self,
        round: &mut Round,
        completions: &mut Completions,
        faults: &mut Faults,
    ) -> Result<u64> {
        let mut count = 0;
        self.journal.reader().for_each_record(round.number(), None, |record| {
            if let Ok(entry) = serde_json::from_slice::<Entry>(&record.payload) {
                if let Some(completion) = entry.completion {
                    completions.insert(entry.event.key().clone(), completion);
                }
                if entry.event.key().kind == TaskKind::Rollout {
                    faults.note_rollout();
                }
                faults.note(&entry.event);
                round.apply(entry.event);
                count += 1;
            } else {
                tracing::warn!("a record of the journal cannot be read: {:?}", record.key);
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Works until every task of the round is answered.
    ///
    /// A result is in the journal before the next step depends on it. While the round before is still on its way to
    /// the disk (`ready` says so), and until the journal has caught up after that, results and what depends on them
    /// are in memory together: a crash takes them back, and the same seeds give them again. In the journal a result
    /// never stands without those that led to it.
    ///
    /// # Errors
    /// The board or the journal fails, or nothing has come in for ten minutes.
    pub fn run(
        &self,
        round: &mut Round,
        completions: &mut Completions,
        faults: &mut Faults,
        ready: &mut Ready<'_>,
        view: &mut View,
    ) -> Result<Sampled> {
        let start = Instant::now();
        let mut times = SamplingTimes::default();
        let mut open: HashMap<u64, Asked> = HashMap::new();
        let mut unwritten: VecDeque<Unwritten> = VecDeque::new();
        let mut early = Early::default();
        let mut last = start;
        self.submit(round.pending(), &mut open, faults)?;
        while !round.is_complete() && !self.interrupt.is_set() {
            let idle = unwritten.is_empty() && early.records.is_empty();
            let wait = if idle { Duration::from_millis(200) } else { COMMIT_POLL };
            let finished = self.fleet.take_finished(None, 512, wait)?;
            let came = Instant::now();
            if finished.is_empty() {
                (self.watch)(last.elapsed(), &|| {
                    let first = round.pending().first().map(|c| c.key().to_string()).unwrap_or_default();
                    format!("{} tasks are open, the first is {first}", open.len())
                })?;
            } else {
                last = came;
            }
            let batch = self.take(round.number(), finished, &mut open, faults, &mut early, ready)?;
            let ready = ready(false)?;
            let behind = !ready || !early.records.is_empty() || unwritten.iter().any(|u| u.entries.is_none());
            early.tasks.extend(batch.tasks);
            early.records.extend(batch.records);
            let mut entries = Some(batch.entries);
            if behind && let Some(entries) = entries.take() {
                let commands = apply(entries, round, completions, view);
                self.submit(commands, &mut open, faults)?;
            }
            if ready && !early.records.is_empty() {
                let Early { tasks, records } = std::mem::take(&mut early);
                unwritten.push_back(Unwritten { ticket: self.journal.append(records)?, tasks, entries });
            }
            while let Some(batch) = unwritten.front()
                && self.journal.is_durable(batch.ticket)?
                && let Some(batch) = unwritten.pop_front()
            {
                self.fleet.remove(&batch.tasks)?;
                let commands = apply(batch.entries.unwrap_or_default(), round, completions, view);
                self.submit(commands, &mut open, faults)?;
            }
            view.progress(round);
            times.dispatcher += came.elapsed().as_secs_f64();
        }
        let end = if round.is_complete() { SamplingEnd::Complete } else { SamplingEnd::Interrupted };
        let wait = self.board_lasts || end == SamplingEnd::Interrupted;
        if wait {
            self.write_early(std::mem::take(&mut early), ready)?;
        }
        for batch in unwritten {
            if wait {
                self.journal.wait(batch.ticket)?;
            }
            self.fleet.remove(&batch.tasks)?;
        }
        self.fleet.remove(&early.tasks)?;
        times.all = start.elapsed().as_secs_f64();
        Ok(Sampled { end, early: early.records, times })
    }

    /// Reads results. Those that make no sense go back to the board, against their worker. If too much was lost, what
    /// was not is written and the stage ends: a resumed run then tries the rest again.
    fn take(
        &self,
        round: u32,
        finished: Vec<Finished>,
        open: &mut HashMap<u64, Asked>,
        faults: &mut Faults,
        early: &mut Early,
        ready: &mut Ready<'_>,
    ) -> Result<Batch> {
        let (tasks, mut entries) = self.entries(finished, open)?;
        entries.iter().for_each(|entry| faults.note(&entry.event));
        let stop = faults.are_too_many(open.len());
        if stop {
            entries.retain(|entry| !matches!(entry.event, Event::Lost { .. }));
        }
        let records = entries.iter().map(record).collect::<Result<Vec<_>>>()?;
        if stop {
            self.write_early(std::mem::take(early), ready)?;
            ready(true)?;
            self.journal.append_durably(records)?;
            self.fleet.remove(&tasks)?;
            bail!("{}", faults.report(round, open.len(), &self.fleet.status()?));
        }
        Ok(Batch { tasks, entries, records })
    }

    /// Writes what the round knows of already, as soon as the journal takes it.
    fn write_early(&self, early: Early, ready: &mut Ready<'_>) -> Result<()> {
        if !early.records.is_empty() {
            ready(true)?;
            self.journal.append_durably(early.records)?;
            self.fleet.remove(&early.tasks)?;
        }
        Ok(())
    }

    fn submit(
        &self,
        commands: Vec<Command>,
        open: &mut HashMap<u64, Asked>,
        faults: &mut Faults,
    ) -> Result<()> {
        let mut tasks = Vec::with_capacity(commands.len());
        // The k rollouts of a problem come one after the other and have one prompt.
        let mut previous: Option<(Arc<Problem>, Arc<[u32]>)> = None;
        for command in commands {
            let id = task_number(command.key());
            let prompt = match (&command, &previous) {
                (Command::SampleRollout { problem, .. }, Some((p, prompt))) if Arc::ptr_eq(problem, p) => {
                    Arc::clone(prompt)
                }
                _ => self.prompt(&command)?,
            };
            if let Command::SampleRollout { problem, .. } = &command {
                faults.note_rollout();
                previous = Some((Arc::clone(problem), Arc::clone(&prompt)));
            }
            let (kind, priority, payload) = self.payload(&command, &prompt)?;
            tasks.push(Task { id: TaskId(id), kind, priority, payload });
            open.insert(id, Asked { command, prompt });
        }
        self.fleet.submit(tasks)?;
        Ok(())
    }

    /// The prompt of a command in tokens; empty for a check.
    fn prompt(&self, command: &Command) -> Result<Arc<[u32]>> {
        let prompt = match command {
            Command::Judge { .. } => return Ok(Arc::default()),
            Command::SampleConjecture { conditioning, .. } => {
                self.system.conjecturer_prompt(seed_of(conditioning))
            }
            Command::SampleReview { target, conjecture, .. } => self.system.guide_prompt(target, conjecture),
            Command::SampleRollout { problem, .. } => self.system.solver_prompt(problem),
        };
        encode(self.tokenizer, &prompt)
    }

    /// What a worker gets. The Conjecturer goes first, because the rest of the round waits for it.
    fn payload(&self, command: &Command, prompt: &[u32]) -> Result<(BoardKind, i32, Payload)> {
        let s = &self.config.sampling;
        let (role, limit, priority) = match command {
            Command::Judge { problem, proof, .. } => {
                let checker = Some(self.system.identity());
                let task = VerifyTask { problem: (**problem).clone(), proof: proof.to_string(), checker };
                return Ok((VERIFY, 0, serde_json::to_vec(&task)?.into()));
            }
            Command::SampleConjecture { .. } => (Role::Conjecturer, s.conjecturer_tokens, 2),
            Command::SampleReview { .. } => (Role::Guide, s.guide_tokens, 1),
            Command::SampleRollout { .. } => (Role::Solver, s.solver_tokens, 0),
        };
        let task = GenerateTask {
            role,
            policy: self.policy_version,
            prompt: prompt.to_vec(),
            seed: command.seed().unwrap_or(0),
            max_new_tokens: limit,
            temperature: self.config.algorithm.temperature as f32,
        };
        let kind = if s.endpoint.plays(role) { endpoint::board_kind()? } else { GENERATE };
        Ok((kind, priority, serde_json::to_vec(&task)?.into()))
    }

    /// The tasks that are done with, and what they came to.
    fn entries(
        &self,
        finished: Vec<Finished>,
        open: &mut HashMap<u64, Asked>,
    ) -> Result<(Vec<TaskId>, Vec<Entry>)> {
        let mut tasks = Vec::with_capacity(finished.len());
        let mut entries = Vec::with_capacity(finished.len());
        for f in finished {
            // Nobody asks for it any more.
            let Some(asked) = open.remove(&f.task.0) else {
                tasks.push(f.task);
                continue;
            };
            match self.entry(&asked, f.ending) {
                Ok(entry) => {
                    tasks.push(f.task);
                    entries.push(entry);
                }
                Err(error) => {
                    tracing::warn!("task {}: {error:#}", asked.command.key());
                    self.fleet.reject(f.task, &format!("{error:#}"))?;
                    open.insert(f.task.0, asked);
                }
            }
        }
        Ok((tasks, entries))
    }

    fn entry(&self, asked: &Asked, ending: Ending) -> Result<Entry> {
        let command = &asked.command;
        Ok(match ending {
            Ending::Done { outcome, .. } => {
                self.read(command, Arc::clone(&asked.prompt), outcome.as_bytes())?
            }
            Ending::Quarantined { failures } => {
                let reasons: Vec<&str> = failures.iter().map(|f| f.message.as_str()).collect();
                lost(command, format!("given up after {} failures: {}", failures.len(), reasons.join("; ")))
            }
        })
    }

    fn read(&self, command: &Command, prompt: Arc<[u32]>, bytes: &[u8]) -> Result<Entry> {
        if let Command::Judge { key, .. } = command {
            let judgement: Judgement = serde_json::from_slice(bytes).context("a verdict from a worker")?;
            return Ok(Entry { event: Event::Judgement { key: key.clone(), judgement }, completion: None });
        }
        let result: GenerateResult = serde_json::from_slice(bytes).context("a completion from a worker")?;
        self.check(&result)?;
        let completion = self.completion(prompt, result)?;
        let sample = SampleFacts::of(&completion);
        let key = command.key().clone();
        let event = match command {
            Command::SampleConjecture { conditioning, .. } => {
                let read = ended(&completion)
                    .and_then(|()| self.system.read_conjecture(seed_of(conditioning), &completion.text));
                Event::Conjecture { key, read: read.map_err(|e| e.kind), sample }
            }
            Command::SampleRollout { problem, .. } => {
                let read =
                    ended(&completion).and_then(|()| self.system.read_proof(problem, &completion.text));
                let read = read.map(|text| {
                    let penalised = self.system.is_penalised(&text);
                    ReadProof { text: text.into(), penalised }
                });
                Event::Rollout { key, read: read.map_err(|e| e.kind), sample }
            }
            _ => {
                let read = ended(&completion).and_then(|()| self.system.read_review(&completion.text));
                Event::Review { key, read: read.map_err(|e| e.kind), sample }
            }
        };
        Ok(Entry { event, completion: Some(completion) })
    }

    /// Refuses what no worker with the round's weights can have sampled.
    fn check(&self, result: &GenerateResult) -> Result<()> {
        if let (Some(found), Some(expected)) = (&result.weights, self.weights) {
            ensure!(found == expected, "sampled with weights {found}, the round's are {expected}");
        }
        let (tokens, log_probs) = (result.tokens.len(), result.log_probs.len());
        ensure!(tokens == log_probs, "{tokens} tokens with {log_probs} log-probs");
        ensure!(result.log_probs.iter().all(|p| p.is_finite()), "a log-prob is not a number");
        Ok(())
    }

    fn completion(&self, prompt: Arc<[u32]>, result: GenerateResult) -> Result<Completion> {
        Ok(Completion {
            text: self.tokenizer.decode(&result.tokens)?,
            prompt_tokens: prompt,
            tokens: result.tokens,
            log_probs: result.log_probs,
            entropy: result.entropy,
            finish: result.finish,
            policy_version: self.policy_version,
        })
    }
}

/// Feeds results into the round; returns what is to be done next.
fn apply(
    entries: Vec<Entry>,
    round: &mut Round,
    completions: &mut Completions,
    view: &mut View,
) -> Vec<Command> {
    let mut commands = Vec::new();
    for entry in entries {
        view.event(&entry.event);
        if let Some(completion) = entry.completion {
            completions.insert(entry.event.key().clone(), completion);
        }
        commands.extend(round.apply(entry.event));
    }
    commands
}

/// A completion that was cut off says nothing, whatever its text.
fn ended(completion: &Completion) -> Result<(), Malformed> {
    match completion.finish {
        FinishReason::Stop => Ok(()),
        FinishReason::Length => Err(Malformed::new("no-end", "the completion reached its longest length")),
        FinishReason::Refused => {
            Err(Malformed::new("prompt-too-long", "the prompt does not fit into the context"))
        }
        FinishReason::Cancelled => Err(Malformed::new("cancelled", "the completion was cancelled")),
    }
}

fn seed_of(conditioning: &ConjectureSeed) -> Seed<'_> {
    match conditioning {
        ConjectureSeed::Target(problem) => Seed::Target(problem),
        ConjectureSeed::Solved { problem, proof } => Seed::Solved { problem, proof },
        ConjectureSeed::Nothing(problem) => Seed::Nothing(problem),
    }
}

fn lost(command: &Command, reason: String) -> Entry {
    tracing::warn!("task {} is lost: {reason}", command.key());
    Entry { event: Event::Lost { key: command.key().clone(), reason }, completion: None }
}

fn record(entry: &Entry) -> Result<Record> {
    Ok(Record { key: RecordKey::from(entry.event.key()), payload: serde_json::to_vec(entry)? })
}
