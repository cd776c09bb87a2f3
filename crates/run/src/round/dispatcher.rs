//! Runs the sampling stage of a round: submits tasks to the board and feeds their results back to the round.
//!
//! Every result goes through the same steps, in this order:
//! 1. take it from the board;
//! 2. append it to the journal and wait until it is durable;
//! 3. acknowledge it to the worker;
//! 4. apply it to the round, which may produce new commands;
//! 5. submit those commands.
//!
//! Because nothing acts on a result before step 2, a crash can only lose work that no other step depends on.

use crate::StopFlag;
use crate::error::{Result, RunError, bail};
use crate::round::event::{EventStream, RunEvent};
use crate::round::infra::FaultCounts;
use crate::round::recheck::{PendingVerdict, RecheckDecision, RecheckPolicy};
use crate::round::record::{self, Entry};
use crate::round::result_parser::Reader;
use crate::train::update::Completions;
use crate::workers::tasks::task_number;
use rayon::prelude::*;
use sgs_fleet::{FinishedTask, Fleet, Task, TaskId, TaskResult};
use sgs_rundir::{Journal, Record, RecordKey, Ticket};
use sgs_selfplay::{Command, Event, Round};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Called while the stage is idle, with the idle time and a description of the pending work. Returning an error aborts
/// the stage.
pub(crate) type Watch<'a> = dyn Fn(Duration, &dyn Fn() -> String) -> Result<()> + 'a;

/// How the stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplingEnd {
    /// Every task has a result.
    Complete,
    /// The user interrupted the stage. Finished results are in the journal.
    Interrupted,
}

/// Wall times of the stage, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SamplingTimes {
    /// The whole stage.
    pub all: f64,
    /// Time in which the dispatcher was busy. It works in parallel with the samplers.
    pub dispatcher: f64,
}

/// Interval at which the dispatcher polls the journal for durability while nothing else arrives.
const COMMIT_POLL: Duration = Duration::from_millis(1);

/// Interval between progress reports.
const TOLD_EVERY: Duration = Duration::from_millis(50);

/// Maximum number of results taken from the board in one call.
const TAKEN_AT_ONCE: usize = 512;

/// A task on the board: its commands and their common prompt, in tokens.
struct OpenTask {
    commands: Vec<Command>,
    prompt: Arc<[u32]>,
    /// The verdict of the first worker, if this task rechecks it.
    first: Option<PendingVerdict>,
}

/// The entries of a finished task, with their journal record.
type ParsedTask = (Vec<Entry>, Option<Record>);

/// Results that are not yet durable.
struct UnwrittenBatch {
    ticket: Ticket,
    tasks: Vec<TaskId>,
    entries: Vec<Entry>,
}

/// A round's sampling stage, between the board and the journal.
pub(crate) struct Dispatcher<'a> {
    /// Builds tasks and parses their results.
    pub reader: Reader<'a>,
    pub fleet: &'a Fleet,
    pub journal: &'a Journal,
    /// Set when the user interrupts the run.
    pub interrupt: &'a StopFlag,
    pub watch: &'a Watch<'a>,
    pub round: &'a mut Round,
    /// Completions of the round so far.
    pub completions: &'a mut Completions,
    /// Results lost to infrastructure faults.
    pub faults: FaultCounts,
    /// Which verdicts are rechecked. [`RecheckPolicy::Off`] by default.
    pub recheck: RecheckPolicy,
    /// Tasks on the board by number.
    open: HashMap<u64, OpenTask>,
    unwritten: VecDeque<UnwrittenBatch>,
}

impl<'a> Dispatcher<'a> {
    /// Creates the stage without starting it.
    pub(crate) fn new(
        reader: Reader<'a>,
        fleet: &'a Fleet,
        journal: &'a Journal,
        interrupt: &'a StopFlag,
        watch: &'a Watch<'a>,
        round: &'a mut Round,
        completions: &'a mut Completions,
    ) -> Self {
        Self {
            reader,
            fleet,
            journal,
            interrupt,
            watch,
            round,
            completions,
            faults: FaultCounts::default(),
            recheck: RecheckPolicy::Off,
            open: HashMap::new(),
            unwritten: VecDeque::new(),
        }
    }

    /// Applies the journal's records of the round and returns the number of results. If the round `is_open`, discards
    /// lost results, so that their tasks are tried again.
    ///
    /// # Errors
    /// Returns an error if the journal is damaged.
    pub(crate) fn replay(&mut self, is_open: bool) -> Result<u64> {
        let mut count = 0;
        let (mut damaged, mut lost): (Vec<String>, Vec<RecordKey>) = (Vec::new(), Vec::new());
        let Self { round, completions, faults, .. } = self;
        self.journal.reader().for_each_record(round.number(), None, |record| {
            match record::entries(&record.payload) {
                Ok(entries) => {
                    for entry in entries {
                        // A lost result is the only entry of its record: commands that fail together are retried one
                        // by one.
                        if is_open && matches!(entry.event, Event::Lost { .. }) {
                            lost.push(record.key.clone());
                            continue;
                        }
                        faults.note_submitted(entry.event.key().kind);
                        faults.note(&entry.event);
                        if let Some(completion) = entry.completion {
                            completions.insert(entry.event.key().clone(), completion);
                        }
                        round.apply(entry.event);
                        count += 1;
                    }
                }
                Err(error) => damaged.push(format!("{:?}: {error:#}", record.key)),
            }
            Ok(())
        })?;
        if let Some(first) = damaged.first() {
            bail!(
                "{} records of round {} in the journal cannot be read, the first is {first}; resume with the program \
                 that began the run, or move journal.sqlite away: the run then goes on after its last published round",
                damaged.len(),
                self.round.number()
            );
        }
        if !lost.is_empty() {
            tracing::info!("round {}: {} lost tasks are tried again", self.round.number(), lost.len());
            // Remove the records before the tasks are submitted again: of two records with the same key the journal
            // keeps the first.
            self.journal.remove(lost)?;
        }
        Ok(count)
    }

    /// Runs until every task of the round has a durable result.
    ///
    /// # Errors
    /// Returns an error if the board or the journal fails, too many results are lost, or no result arrives for too
    /// long.
    pub(crate) fn run(&mut self, events: &mut EventStream<'_>) -> Result<(SamplingEnd, SamplingTimes)> {
        let start = Instant::now();
        let mut times = SamplingTimes::default();
        let (mut last, mut reported) = (start, start);
        let pending = self.round.pending();
        self.completions.reserve(pending.len());
        self.submit(pending)?;
        while !self.round.is_complete() && !self.interrupt.is_set() {
            let wait = if self.unwritten.is_empty() { Duration::from_millis(200) } else { COMMIT_POLL };
            let finished = self.fleet.take_finished(None, TAKEN_AT_ONCE, wait)?;
            let came = Instant::now();
            if finished.is_empty() {
                (self.watch)(last.elapsed(), &|| self.describe_open())?;
            } else {
                last = came;
                self.parse_results(finished)?;
            }
            self.apply_durable(events)?;
            if reported.elapsed() >= TOLD_EVERY {
                reported = Instant::now();
                events.emit(RunEvent::Progress(self.round.progress()));
            }
            times.dispatcher += came.elapsed().as_secs_f64();
        }
        events.emit(RunEvent::Progress(self.round.progress()));
        let complete = self.round.is_complete();
        // Keep finished results and acknowledge them, although the stage ends early.
        for batch in std::mem::take(&mut self.unwritten) {
            self.journal.wait(batch.ticket)?;
            self.fleet.remove(&batch.tasks)?;
        }
        times.all = start.elapsed().as_secs_f64();
        Ok((if complete { SamplingEnd::Complete } else { SamplingEnd::Interrupted }, times))
    }

    /// Number of tokens sampled in the round so far.
    pub(crate) fn sampled_tokens(&self) -> u64 {
        self.completions.values().map(|c| c.tokens.len() as u64).sum()
    }

    fn describe_open(&self) -> String {
        let first = self.round.pending().first().map(|c| c.key().to_string()).unwrap_or_default();
        format!("{} tasks are open, the first is {first}", self.open.len())
    }

    /// Parses results and appends them to the journal. Returns invalid results to the board and blames their workers.
    /// If too many results are lost, or two workers disagree, writes the remaining results and returns an error; a
    /// resumed run retries the rest.
    fn parse_results(&mut self, finished: Vec<FinishedTask>) -> Result<()> {
        let (mut tasks, mut answered) = (Vec::with_capacity(finished.len()), Vec::new());
        for f in finished {
            match self.open.remove(&f.task.0) {
                Some(open_task) => answered.push((f.task, open_task, f.result)),
                // The task was cancelled or already has a result.
                None => tasks.push(f.task),
            }
        }
        let read: Vec<Result<Option<ParsedTask>>> = {
            let (reader, recheck) = (&self.reader, &self.recheck);
            let read = |(_, open_task, ending): &(TaskId, OpenTask, TaskResult)| {
                let found = entries(reader, recheck, &open_task.commands, &open_task.prompt, ending)?;
                let Some(mut found) = found else { return Ok(None) };
                let record = record::record(&mut found)?;
                Ok(Some((found, record)))
            };
            // A GPU returns hundreds of results at a time.
            answered.par_iter().with_min_len(super::task_builder::READ_BY_ONE).map(read).collect()
        };
        let expected = answered.iter().map(|(_, open_task, _)| open_task.commands.len()).sum();
        let (mut entries, mut records) = (Vec::with_capacity(expected), Vec::with_capacity(answered.len()));
        let mut stop: Option<RunError> = None;
        for ((task, mut open_task, ending), read) in answered.into_iter().zip(read) {
            let decision = match read {
                Ok(Some((found, record))) => {
                    let is_second = open_task.first.is_some();
                    let decision = self.recheck.decide(open_task.first.take(), &ending, found);
                    decision.map(|decision| Some((decision, record, is_second))).map_err(RunError::from)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match decision {
                Ok(Some((RecheckDecision::Pending(first), ..))) => {
                    // Acknowledge it now. Nothing depends on it, and after a crash both tasks run again. If the worker
                    // had to keep it until the recheck, two workers could deadlock on each other's.
                    self.fleet.remove(&[task])?;
                    self.submit_recheck(first, open_task.commands)?;
                }
                Ok(Some((RecheckDecision::Accepted(mut found), mut record, is_second))) => {
                    tasks.push(task);
                    found.iter().for_each(|entry| self.faults.note(&entry.event));
                    if self.faults.are_too_many() {
                        found.retain(|entry| !matches!(entry.event, Event::Lost { .. }));
                    }
                    if is_second || self.faults.are_too_many() {
                        record = record::record(&mut found)?;
                    }
                    records.extend(record);
                    entries.extend(found);
                }
                // Several commands failed as one task. Retry them one by one to find the one at fault.
                Ok(None) => {
                    self.fleet.remove(&[task])?;
                    self.submit_groups(
                        open_task.commands.into_iter().map(|command| vec![command]).collect(),
                    )?;
                }
                Err(error) => {
                    if matches!(error, RunError::Disagreement(_)) {
                        stop.get_or_insert(error);
                    } else {
                        tracing::warn!("a worker's answer is refused: {error:#}");
                        // None of it is in the journal. The board leases the task to another worker under the same
                        // number.
                        self.fleet.reject(task, &format!("{error:#}"))?;
                    }
                    self.open.insert(task.0, open_task);
                }
            }
        }
        let ticket = self.journal.append(records)?;
        if stop.is_none() && self.faults.are_too_many() {
            let of = format!("round {}", self.round.number());
            stop = Some(RunError::Failed(self.faults.report(&of, &self.fleet.status()?)));
        }
        if let Some(error) = stop {
            // As everywhere: durable before it is acknowledged. Nothing is applied here, because resuming the run
            // replays the journal.
            self.journal.wait(ticket)?;
            self.fleet.remove(&tasks)?;
            return Err(error);
        }
        self.unwritten.push_back(UnwrittenBatch { ticket, tasks, entries });
        Ok(())
    }

    /// Submits a task to another worker to recheck a verdict. It has the lowest priority, so that tasks that every
    /// worker may take come first.
    fn submit_recheck(&mut self, first: PendingVerdict, commands: Vec<Command>) -> Result<()> {
        let (kind, _, payload) = self.reader.payload(&commands, &[])?;
        // The salt makes the number differ from that of the first task.
        let id = task_number(commands.iter().map(Command::key), &[payload.as_bytes(), b"again"].concat());
        let task = Task { id: TaskId(id), kind, priority: -1, payload };
        self.fleet.submit_excluding(task, &first.worker)?;
        self.open.insert(id, OpenTask { commands, prompt: Arc::default(), first: Some(first) });
        Ok(())
    }

    /// Acknowledges and applies durable results in the order of their arrival.
    fn apply_durable(&mut self, events: &mut EventStream<'_>) -> Result<()> {
        while let Some(batch) = self.unwritten.front()
            && self.journal.is_durable(batch.ticket)?
            && let Some(batch) = self.unwritten.pop_front()
        {
            // Acknowledge only after the journal is durable: the worker deletes its copy when it sees the
            // acknowledgement.
            self.fleet.remove(&batch.tasks)?;
            let mut commands = Vec::new();
            for entry in batch.entries {
                events.result(&entry.event);
                if let Some(completion) = entry.completion {
                    self.completions.insert(entry.event.key().clone(), completion);
                }
                commands.extend(self.round.apply(entry.event));
            }
            self.submit(commands)?;
        }
        Ok(())
    }

    fn submit(&mut self, commands: Vec<Command>) -> Result<()> {
        commands.iter().for_each(|command| self.faults.note_submitted(command.key().kind));
        let groups = self.reader.groups(commands);
        self.submit_groups(groups)
    }

    /// Submits groups of commands as tasks.
    fn submit_groups(&mut self, groups: Vec<Vec<Command>>) -> Result<()> {
        let mut tasks = Vec::with_capacity(groups.len());
        let prompts = self.reader.prompts(&groups)?;
        for (commands, prompt) in groups.into_iter().zip(prompts) {
            let (kind, priority, payload) = self.reader.payload(&commands, &prompt)?;
            let id = task_number(commands.iter().map(Command::key), payload.as_bytes());
            tasks.push(Task { id: TaskId(id), kind, priority, payload });
            self.open.insert(id, OpenTask { commands, prompt, first: None });
        }
        self.fleet.submit(tasks)?;
        Ok(())
    }
}

/// Returns one entry for each command of a finished task, or `None` if the commands must be retried one by one.
///
/// # Errors
/// Returns an error if the result cannot be parsed, or if a local recheck rejects one of its proofs.
pub(crate) fn entries(
    reader: &Reader<'_>,
    recheck: &RecheckPolicy,
    commands: &[Command],
    prompt: &Arc<[u32]>,
    ending: &TaskResult,
) -> Result<Option<Vec<Entry>>> {
    match ending {
        TaskResult::Done { outcome, worker, .. } => {
            let entries = reader.read(commands, prompt, outcome.as_bytes())?;
            recheck.confirm_locally(reader.system, commands, &entries, worker)?;
            Ok(Some(entries))
        }
        TaskResult::Quarantined { .. } if commands.len() > 1 => Ok(None),
        TaskResult::Quarantined { failures } => {
            let reasons: Vec<&str> = failures.iter().map(|f| f.message.as_str()).collect();
            let reason = format!("given up after {} failures: {}", failures.len(), reasons.join("; "));
            let lost = |command: &Command| {
                tracing::warn!("task {} is lost: {reason}", command.key());
                let event = Event::Lost { key: command.key().clone(), reason: reason.clone() };
                Entry { event, completion: None }
            };
            Ok(Some(commands.iter().map(lost).collect()))
        }
    }
}
