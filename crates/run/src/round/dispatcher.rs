//! Submits commands to the board as tasks, and feeds their results back to the work that they belong to, a round or an
//! evaluation.
//!
//! Every result goes through the same steps, in this order:
//! 1. take it from the board;
//! 2. validate and parse it;
//! 3. append it to the journal and wait until it is durable;
//! 4. acknowledge it to the worker;
//! 5. apply it to the work, which may produce new commands;
//! 6. submit those commands.
//!
//! Because nothing acts on a result before step 3, a crash can only lose work that no other step depends on. Two kinds of
//! results are acknowledged after step 2 and never applied, because their tasks are submitted again: a verdict that another
//! worker must confirm, and the failure of several commands as one task. An evaluation has no journal, so it skips step 3:
//! its results are stored together when it is complete, and a crash repeats it with the same seeds.
//!
//! Proofs for a quick formal system are verified in step 6, by the threads of this process. Their verdicts go through
//! steps 3 and 5.

use crate::error::{Result, RunError};
use crate::round::event::{EventStream, RunEvent};
use crate::round::infra::FaultCounts;
use crate::round::recheck::{PendingVerdict, RecheckDecision, RecheckPolicy};
use crate::round::record::{self, Entry};
use crate::round::result_parser::judgement_entries;
use crate::round::run_workers::RunWorkers;
use crate::round::sampling_context::SamplingContext;
use crate::round::task_builder::{MIN_ITEMS_PER_THREAD, TaskCommands};
use crate::workers::tasks::task_number;
use crate::workers::verify;
use rayon::prelude::*;
use sgs_fleet::{FinishedTask, Fleet, TaskId, TaskResult};
use sgs_rundir::{Journal, Record, Ticket};
use sgs_selfplay::{Command, Event, Progress};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Work that consists of commands.
pub(crate) trait Work {
    /// Its name in messages, such as `round 3`.
    fn name(&self) -> String;
    /// Describes the pending work, which is on the board as this many tasks.
    fn describe_open(&self, tasks: usize) -> String;
    fn begin(&mut self) -> Vec<Command>;
    /// Applies a result and returns the commands that follow from it.
    fn apply(&mut self, entry: Entry, events: &mut EventStream<'_>) -> Vec<Command>;
    /// Returns true if every command has a result.
    fn is_complete(&self) -> bool;
    /// Returns the counts so far.
    fn progress(&self) -> Progress;
}

/// Wall times of the dispatcher, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SamplingTimes {
    /// From the first command to the last result.
    pub all: f64,
    /// Time in which the dispatcher was busy. It works in parallel with the samplers.
    pub dispatcher: f64,
}

/// Interval at which the dispatcher polls the journal for durability while nothing else arrives.
const COMMIT_POLL: Duration = Duration::from_millis(1);

const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of results taken from the board in one call.
const MAX_RESULTS_PER_CALL: usize = 512;

struct OpenTask {
    task: TaskCommands,
    /// The verdict of the first worker, if this task rechecks it.
    first: Option<PendingVerdict>,
}

/// The entries of a finished task, with their journal record or the reason why it cannot be encoded.
type ParsedTask = (Vec<Entry>, Result<Option<Record>>);

/// A task from the board with its result.
type AnsweredTask = (TaskId, OpenTask, TaskResult);

/// Results that are not yet applied.
struct UnappliedBatch {
    /// `None` without a journal: there is nothing to wait for.
    ticket: Option<Ticket>,
    tasks: Vec<TaskId>,
    entries: Vec<Entry>,
}

/// Results of one call to the board.
#[derive(Default)]
struct ParsedBatch {
    /// Tasks to acknowledge once the records are durable.
    tasks: Vec<TaskId>,
    entries: Vec<Entry>,
    records: Vec<Record>,
    /// The first disagreement of two workers, which ends the run.
    disagreement: Option<RunError>,
}

/// Orders everything that happens between the board, the journal and the work.
pub(crate) struct Dispatcher<'a> {
    context: SamplingContext<'a>,
    workers: &'a RunWorkers,
    fleet: &'a Fleet,
    journal: Option<&'a Journal>,
    /// Which verdicts are rechecked.
    recheck: RecheckPolicy,
    /// Results lost to infrastructure faults.
    pub faults: FaultCounts,
    /// Tasks on the board by number.
    open: HashMap<u64, OpenTask>,
    unapplied: VecDeque<UnappliedBatch>,
}

impl<'a> Dispatcher<'a> {
    /// Creates a dispatcher. Only work with a `journal` may have its verdicts rechecked by other workers.
    pub(crate) fn new(
        context: SamplingContext<'a>,
        workers: &'a RunWorkers,
        journal: Option<&'a Journal>,
        recheck: RecheckPolicy,
    ) -> Self {
        Self {
            context,
            workers,
            fleet: workers.fleet(),
            journal,
            recheck,
            faults: FaultCounts::default(),
            open: HashMap::new(),
            unapplied: VecDeque::new(),
        }
    }

    /// Runs until the work is complete and its results are durable, or the user interrupts it. Then the work is not
    /// complete, and finished results are in the journal, if there is one.
    ///
    /// # Errors
    /// Returns an error if the board or the journal fails, too many results are lost, or no result arrives for too
    /// long.
    pub(crate) fn run(&mut self, work: &mut dyn Work, events: &mut EventStream<'_>) -> Result<SamplingTimes> {
        let start = Instant::now();
        let mut times = SamplingTimes::default();
        let (mut last, mut reported) = (start, start);
        self.submit(work.begin())?;
        while !work.is_complete() && !self.workers.is_interrupted() {
            let wait = if self.unapplied.is_empty() { Duration::from_millis(200) } else { COMMIT_POLL };
            let finished = self.fleet.take_finished(MAX_RESULTS_PER_CALL, wait);
            let came = Instant::now();
            if finished.is_empty() {
                self.workers.check(last.elapsed(), &|| work.describe_open(self.open.len()))?;
            } else {
                last = came;
                self.parse_results(finished, work)?;
            }
            self.apply_durable(work, events)?;
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                events.emit(RunEvent::Progress(work.progress()));
            }
            times.dispatcher += came.elapsed().as_secs_f64();
        }
        events.emit(RunEvent::Progress(work.progress()));
        // Keep finished results and acknowledge them, although the user interrupts the rest.
        for batch in std::mem::take(&mut self.unapplied) {
            self.wait(batch.ticket)?;
            self.fleet.remove(&batch.tasks);
        }
        if !work.is_complete() {
            self.cancel_unrecorded()?;
        }
        times.all = start.elapsed().as_secs_f64();
        Ok(times)
    }

    /// Parses results and appends them to the journal. Returns invalid results to the board and blames their workers.
    /// If too many results are lost, or two workers disagree, writes the remaining results and returns an error; a
    /// resumed run retries the rest.
    fn parse_results(&mut self, finished: Vec<FinishedTask>, work: &dyn Work) -> Result<()> {
        let mut batch = ParsedBatch::default();
        let mut answered = Vec::new();
        for f in finished {
            match self.open.remove(&f.task.0) {
                Some(open_task) => answered.push((f.task, open_task, f.result)),
                // The task was cancelled or already has a result.
                None => batch.tasks.push(f.task),
            }
        }
        let parsed = self.parse_all(&answered);
        for (task, parsed) in answered.into_iter().zip(parsed) {
            self.take_parsed(task, parsed, &mut batch)?;
        }
        let ParsedBatch { tasks, entries, records, disagreement } = batch;
        let ticket = self.journal.map(|journal| journal.append(records)).transpose()?;
        let stop = match disagreement {
            None if self.faults.are_too_many() => {
                Some(RunError::Failed(self.faults.report(&work.name(), &self.fleet.status())))
            }
            disagreement => disagreement,
        };
        if let Some(error) = stop {
            // As for every result, wait until it is durable before it is acknowledged. Nothing is applied here, because
            // the resumed run replays the journal.
            self.wait(ticket)?;
            self.fleet.remove(&tasks);
            self.cancel_unrecorded()?;
            return Err(error);
        }
        self.unapplied.push_back(UnappliedBatch { ticket, tasks, entries });
        Ok(())
    }

    /// Adds a parsed result to the batch, submits its tasks again, or rejects it.
    fn take_parsed(
        &mut self,
        (id, mut open_task, ending): AnsweredTask,
        parsed: Result<Option<ParsedTask>>,
        batch: &mut ParsedBatch,
    ) -> Result<()> {
        let is_second = open_task.first.is_some();
        let decision = parsed.and_then(|parsed| {
            let Some((found, record)) = parsed else { return Ok(None) };
            Ok(Some((self.recheck.decide(open_task.first.take(), &ending, found)?, record)))
        });
        match decision {
            Ok(Some((RecheckDecision::Pending(first), _))) => {
                // Acknowledge it now. Nothing depends on it, and after a crash both tasks run again. If each worker
                // had to keep its result until the recheck, two workers could wait for each other forever.
                self.fleet.remove(&[id]);
                self.submit_recheck(first, open_task.task.commands)
            }
            Ok(Some((RecheckDecision::Accepted(mut found), mut record))) => {
                batch.tasks.push(id);
                found.iter().for_each(|entry| self.faults.note(&entry.event));
                if self.faults.are_too_many() {
                    found.retain(|entry| !matches!(entry.event, Event::Lost { .. }));
                }
                if is_second || self.faults.are_too_many() {
                    record = record::record(&mut found);
                }
                batch.records.extend(record?);
                batch.entries.extend(found);
                Ok(())
            }
            // Several commands failed as one task. Retry them one by one to find the one at fault.
            Ok(None) => {
                self.fleet.remove(&[id]);
                let single = open_task.task.commands.into_iter().map(|command| vec![command]);
                self.submit_groups(single.collect())
            }
            Err(error) => {
                if matches!(error, RunError::Disagreement(_)) {
                    batch.disagreement.get_or_insert(error);
                } else {
                    tracing::warn!("a worker's result is rejected: {error:#}");
                    // None of it is in the journal. The board leases the task to another worker under the same
                    // number.
                    self.fleet.reject(id, &format!("{error:#}"));
                }
                self.open.insert(id.0, open_task);
                Ok(())
            }
        }
    }

    /// Parses and validates results in parallel, because a GPU returns hundreds at a time.
    fn parse_all(&self, answered: &[AnsweredTask]) -> Vec<Result<Option<ParsedTask>>> {
        let (context, recheck, has_journal) = (&self.context, &self.recheck, self.journal.is_some());
        let parse = |(_, open_task, ending): &AnsweredTask| {
            let found = entries(context, recheck, &open_task.task, ending)?;
            let Some(mut found) = found else { return Ok(None) };
            let record = if has_journal { record::record(&mut found) } else { Ok(None) };
            Ok(Some((found, record)))
        };
        answered.par_iter().with_min_len(MIN_ITEMS_PER_THREAD).map(parse).collect()
    }

    /// Submits a task to another worker to recheck a verdict. It has the lowest priority, so that tasks that every
    /// worker may take come first.
    fn submit_recheck(&mut self, first: PendingVerdict, commands: Vec<Command>) -> Result<()> {
        let (mut task, commands) = self.context.task(commands, Arc::default())?;
        // The salt makes the number differ from that of the first task.
        let salted = [task.payload.as_bytes(), b"again"].concat();
        task.id = TaskId(task_number(commands.commands.iter().map(Command::key), &salted));
        task.priority = -1;
        let number = task.id.0;
        self.fleet.submit_excluding(task, &first.worker)?;
        self.open.insert(number, OpenTask { task: commands, first: Some(first) });
        Ok(())
    }

    /// Acknowledges and applies durable results in the order of their arrival.
    fn apply_durable(&mut self, work: &mut dyn Work, events: &mut EventStream<'_>) -> Result<()> {
        while let Some(batch) = self.unapplied.front()
            && self.is_durable(batch.ticket)?
            && let Some(batch) = self.unapplied.pop_front()
        {
            // Acknowledge only after the journal is durable: the worker deletes its copy when it sees the
            // acknowledgement.
            self.fleet.remove(&batch.tasks);
            // Submit only after the whole batch is applied, so that its proofs can share tasks.
            let commands = batch.entries.into_iter().flat_map(|entry| work.apply(entry, events)).collect();
            self.submit(commands)?;
        }
        Ok(())
    }

    fn is_durable(&self, ticket: Option<Ticket>) -> Result<bool> {
        self.journal.zip(ticket).map_or(Ok(true), |(journal, ticket)| Ok(journal.is_durable(ticket)?))
    }

    fn wait(&self, ticket: Option<Ticket>) -> Result<()> {
        self.journal.zip(ticket).map_or(Ok(()), |(journal, ticket)| Ok(journal.wait(ticket)?))
    }

    /// Cancels the open tasks of work without a journal. The results of such work are discarded, and a worker whose
    /// tasks fail would back off for increasingly long times. The tasks of a round are kept, because workers that
    /// outlive this process report them to the resumed run.
    fn cancel_unrecorded(&mut self) -> Result<()> {
        if self.journal.is_none() {
            let open: Vec<TaskId> = self.open.drain().map(|(number, _)| TaskId(number)).collect();
            self.fleet.cancel(&open);
        }
        Ok(())
    }

    fn submit(&mut self, commands: Vec<Command>) -> Result<()> {
        commands.iter().for_each(|command| self.faults.note_submitted(command.key().kind));
        let mut groups = self.context.groups(commands);
        if self.workers.verifies_in_place(self.context.system) {
            groups = self.verify_in_place(groups)?;
        }
        self.submit_groups(groups)
    }

    /// Verifies the groups of proofs in this process and appends their verdicts to the journal. Returns the other groups,
    /// and the groups whose checker failed: the board retries these and counts their failures.
    fn verify_in_place(&mut self, groups: Vec<Vec<Command>>) -> Result<Vec<Vec<Command>>> {
        let is_verified = |group: &Vec<Command>| matches!(group.first(), Some(Command::Verify { .. }));
        let (proofs, mut others): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_verified);
        if proofs.is_empty() {
            return Ok(others);
        }
        let (context, has_journal) = (&self.context, self.journal.is_some());
        let verify = |group: &Vec<Command>| -> Result<(Vec<Entry>, Option<Record>)> {
            let judgements = verify::judgements(context.system, &context.verify_task(group));
            let mut found = judgement_entries(group, judgements)?;
            let record = if has_journal { record::record(&mut found) } else { Ok(None) };
            Ok((found, record?))
        };
        let verified: Vec<_> = proofs.par_iter().map(verify).collect();
        let (mut entries, mut records) = (Vec::new(), Vec::new());
        for (group, verified) in proofs.into_iter().zip(verified) {
            match verified {
                Ok((found, record)) => {
                    found.iter().for_each(|entry| self.faults.note(&entry.event));
                    entries.extend(found);
                    records.extend(record);
                }
                Err(error) => {
                    verify::note_failure(&format!("{error:#}"));
                    others.push(group);
                }
            }
        }
        let ticket = self.journal.map(|journal| journal.append(records)).transpose()?;
        self.unapplied.push_back(UnappliedBatch { ticket, tasks: Vec::new(), entries });
        Ok(others)
    }

    fn submit_groups(&mut self, groups: Vec<Vec<Command>>) -> Result<()> {
        let mut tasks = Vec::with_capacity(groups.len());
        for (on_board, task) in self.context.tasks(groups)? {
            self.open.insert(on_board.id.0, OpenTask { task, first: None });
            tasks.push(on_board);
        }
        self.fleet.submit(tasks)?;
        Ok(())
    }
}

/// Returns one entry for each command of a finished task, or `None` if the commands must be retried one by one.
///
/// # Errors
/// Returns an error if the result cannot be parsed, or if a local recheck rejects one of its proofs.
fn entries(
    context: &SamplingContext<'_>,
    recheck: &RecheckPolicy,
    task: &TaskCommands,
    ending: &TaskResult,
) -> Result<Option<Vec<Entry>>> {
    let TaskCommands { commands, prompt } = task;
    match ending {
        TaskResult::Done { outcome, worker, .. } => {
            let entries = context.parse_result(commands, prompt, outcome.as_bytes())?;
            recheck.confirm_locally(context.system, commands, &entries, worker)?;
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
