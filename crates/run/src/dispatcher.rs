//! The sampling stage of a round: commands out to the board, results into the journal, then into the round.
//!
//! Order of things, for every result without exception: taken off the board, appended to the journal, on the disk,
//! acknowledged to its worker, fed to the round, whose next commands are then submitted. So nothing that is acted on
//! can be lost, and a crash loses only what nobody has acted on.

use crate::event::{RunEvent, Story};
use crate::infra::Faults;
use crate::reading::Reader;
use crate::record::{self, Entry};
use crate::second::{Disagreement, First, Second, Weighed};
use crate::tasks::task_number;
use crate::{Interrupt, asking};
use anyhow::{Error, Result, anyhow, bail};
use rayon::prelude::*;
use sgs_fleet::{Ending, Finished, Fleet, Task, TaskId};
use sgs_rundir::{Journal, Record, RecordKey, Ticket};
use sgs_selfplay::{Command, Completion, Event, Round, TaskKey};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completions of a round by task.
pub type Completions = HashMap<TaskKey, Completion>;

/// Asked while nothing comes in: for how long that has been, and what is waited for. An error ends the stage.
pub type Watch<'a> = dyn Fn(Duration, &dyn Fn() -> String) -> Result<()> + 'a;

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

/// How soon the dispatcher looks again whether the journal has reached the disk, if nothing else comes in.
const COMMIT_POLL: Duration = Duration::from_millis(1);

/// How often the round's counts are told while it goes on.
const TOLD_EVERY: Duration = Duration::from_millis(50);

/// Results taken off the board at once.
const TAKEN_AT_ONCE: usize = 512;

/// A task on the board: its commands, and the prompt that they share, in tokens.
struct Asked {
    commands: Vec<Command>,
    prompt: Arc<[u32]>,
    /// What a worker said already, if this asks another.
    first: Option<First>,
}

/// What a task came to, with its record.
type Read = (Vec<Entry>, Option<Record>);

/// Results on their way to the disk.
struct Unwritten {
    ticket: Ticket,
    tasks: Vec<TaskId>,
    entries: Vec<Entry>,
}

/// A round's sampling stage, between the board and the journal.
pub struct Dispatcher<'a> {
    /// Reads what workers answer.
    pub reader: Reader<'a>,
    pub fleet: &'a Fleet,
    pub journal: &'a Journal,
    /// Set when the user wants to stop.
    pub interrupt: &'a Interrupt,
    pub watch: &'a Watch<'a>,
    pub round: &'a mut Round,
    /// What was sampled in it.
    pub completions: &'a mut Completions,
    /// What of it was lost.
    pub faults: Faults,
    /// Which verdicts are asked again; none at first.
    pub second: Second,
    /// The round's tasks on the board, by their numbers.
    open: HashMap<u64, Asked>,
    unwritten: VecDeque<Unwritten>,
}

impl<'a> Dispatcher<'a> {
    /// A stage that has not begun.
    pub fn new(
        reader: Reader<'a>,
        fleet: &'a Fleet,
        journal: &'a Journal,
        interrupt: &'a Interrupt,
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
            faults: Faults::default(),
            second: Second::Nothing,
            open: HashMap::new(),
            unwritten: VecDeque::new(),
        }
    }

    /// Feeds the journal's records of the round back into it; gives how many results there were. What was lost is
    /// forgotten if the round `is_open`: it is tried again.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn replay(&mut self, is_open: bool) -> Result<u64> {
        let mut count = 0;
        let (mut damaged, mut lost): (Vec<String>, Vec<RecordKey>) = (Vec::new(), Vec::new());
        let Self { round, completions, faults, .. } = self;
        self.journal.reader().for_each_record(round.number(), None, |record| {
            match record::entries(&record.payload) {
                Ok(entries) => {
                    for entry in entries {
                        // It is all of its record: what several commands lose together is tried one by one.
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
            // Before they are asked for again: of two records with one key the journal keeps the first.
            self.journal.remove(lost)?;
        }
        Ok(count)
    }

    /// Works until every task of the round is answered and on the disk.
    ///
    /// # Errors
    /// The board or the journal fails, too much was lost, or nothing has come in for too long.
    pub fn run(&mut self, story: &mut Story<'_>) -> Result<(SamplingEnd, SamplingTimes)> {
        let start = Instant::now();
        let mut times = SamplingTimes::default();
        let (mut last, mut told) = (start, start);
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
                self.take(finished)?;
            }
            self.apply_durable(story)?;
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                story.tell(RunEvent::Progress(self.round.progress()));
            }
            times.dispatcher += came.elapsed().as_secs_f64();
        }
        story.tell(RunEvent::Progress(self.round.progress()));
        let complete = self.round.is_complete();
        // What was finished is kept although the stage ends early; its workers hear of it.
        for batch in std::mem::take(&mut self.unwritten) {
            self.journal.wait(batch.ticket)?;
            self.fleet.remove(&batch.tasks)?;
        }
        times.all = start.elapsed().as_secs_f64();
        Ok((if complete { SamplingEnd::Complete } else { SamplingEnd::Interrupted }, times))
    }

    /// Tokens of the round's completions so far.
    pub fn sampled_tokens(&self) -> u64 {
        self.completions.values().map(|c| c.tokens.len() as u64).sum()
    }

    fn describe_open(&self) -> String {
        let first = self.round.pending().first().map(|c| c.key().to_string()).unwrap_or_default();
        format!("{} tasks are open, the first is {first}", self.open.len())
    }

    /// Reads results and hands them to the journal. Those that make no sense go back to the board, against their worker.
    /// If too much was lost, or two workers differ, the rest is written and the stage ends: a resumed run then tries what
    /// was not again.
    fn take(&mut self, finished: Vec<Finished>) -> Result<()> {
        let (mut tasks, mut answered) = (Vec::with_capacity(finished.len()), Vec::new());
        for f in finished {
            match self.open.remove(&f.task.0) {
                Some(asked) => answered.push((f.task, asked, f.ending)),
                // Nobody asks for it any more.
                None => tasks.push(f.task),
            }
        }
        let read: Vec<Result<Option<Read>>> = {
            let (reader, second) = (&self.reader, &self.second);
            let read = |(_, asked, ending): &(TaskId, Asked, Ending)| {
                let found = entries(reader, second, &asked.commands, &asked.prompt, ending)?;
                let Some(mut found) = found else { return Ok(None) };
                let record = record::record(&mut found)?;
                Ok(Some((found, record)))
            };
            // A GPU answers in hundreds at a time.
            answered.par_iter().with_min_len(asking::READ_BY_ONE).map(read).collect()
        };
        let expected = answered.iter().map(|(_, asked, _)| asked.commands.len()).sum();
        let (mut entries, mut records) = (Vec::with_capacity(expected), Vec::with_capacity(answered.len()));
        let mut stop: Option<Error> = None;
        for ((task, mut asked, ending), read) in answered.into_iter().zip(read) {
            let weighed = match read {
                Ok(Some((found, record))) => {
                    let is_second = asked.first.is_some();
                    let weighed = self.second.weigh(asked.first.take(), &ending, found);
                    weighed.map(|weighed| Some((weighed, record, is_second))).map_err(Error::from)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match weighed {
                Ok(Some((Weighed::Waits(first), ..))) => {
                    // Its worker need not keep it: nobody has acted on it, and after a crash both are asked again. Were
                    // it to wait for the second opinion, two workers could wait for each other's.
                    self.fleet.remove(&[task])?;
                    self.ask_another(first, asked.commands)?;
                }
                Ok(Some((Weighed::Counts(mut found), mut record, is_second))) => {
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
                // Several commands failed as one task: whose fault it was shows when each stands alone.
                Ok(None) => {
                    self.fleet.remove(&[task])?;
                    self.put(asked.commands.into_iter().map(|command| vec![command]).collect())?;
                }
                Err(error) => {
                    if error.is::<Disagreement>() {
                        stop.get_or_insert(error);
                    } else {
                        tracing::warn!("a worker's answer is refused: {error:#}");
                        // Nothing of it is journalled: the board gives the task to another, under its old number.
                        self.fleet.reject(task, &format!("{error:#}"))?;
                    }
                    self.open.insert(task.0, asked);
                }
            }
        }
        let ticket = self.journal.append(records)?;
        if stop.is_none() && self.faults.are_too_many() {
            let of = format!("round {}", self.round.number());
            stop = Some(anyhow!("{}", self.faults.report(&of, &self.fleet.status()?)));
        }
        if let Some(error) = stop {
            // On the disk before their workers hear of it, here too. Nothing is applied: resume replays it.
            self.journal.wait(ticket)?;
            self.fleet.remove(&tasks)?;
            return Err(error);
        }
        self.unwritten.push_back(Unwritten { ticket, tasks, entries });
        Ok(())
    }

    /// Asks another worker about what the first says is proved; after everything else, so that nobody waits behind tasks
    /// that are not for everybody.
    fn ask_another(&mut self, first: First, commands: Vec<Command>) -> Result<()> {
        let (kind, _, payload) = self.reader.payload(&commands, &[])?;
        // Not the first task, whatever it is about.
        let id = task_number(commands.iter().map(Command::key), &[payload.as_bytes(), b"again"].concat());
        let task = Task { id: TaskId(id), kind, priority: -1, payload };
        self.fleet.submit_barring(task, &first.worker)?;
        self.open.insert(id, Asked { commands, prompt: Arc::default(), first: Some(first) });
        Ok(())
    }

    /// Acknowledges and applies what has reached the disk, in the order in which it came.
    fn apply_durable(&mut self, story: &mut Story<'_>) -> Result<()> {
        while let Some(batch) = self.unwritten.front()
            && self.journal.is_durable(batch.ticket)?
            && let Some(batch) = self.unwritten.pop_front()
        {
            // Only now: a worker that hears of it forgets its result.
            self.fleet.remove(&batch.tasks)?;
            let mut commands = Vec::new();
            for entry in batch.entries {
                story.result(&entry.event);
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
        self.put(groups)
    }

    /// Puts tasks on the board.
    fn put(&mut self, groups: Vec<Vec<Command>>) -> Result<()> {
        let mut tasks = Vec::with_capacity(groups.len());
        let prompts = self.reader.prompts(&groups)?;
        for (commands, prompt) in groups.into_iter().zip(prompts) {
            let (kind, priority, payload) = self.reader.payload(&commands, &prompt)?;
            let id = task_number(commands.iter().map(Command::key), payload.as_bytes());
            tasks.push(Task { id: TaskId(id), kind, priority, payload });
            self.open.insert(id, Asked { commands, prompt, first: None });
        }
        self.fleet.submit(tasks)?;
        Ok(())
    }
}

/// What a task came to: an entry for each of its commands, or `None` if they must be tried one by one.
///
/// # Errors
/// The answer is none, or holds a proof that does not hold when it is checked again here.
pub fn entries(
    reader: &Reader<'_>,
    second: &Second,
    commands: &[Command],
    prompt: &Arc<[u32]>,
    ending: &Ending,
) -> Result<Option<Vec<Entry>>> {
    match ending {
        Ending::Done { outcome, worker, .. } => {
            let entries = reader.read(commands, prompt, outcome.as_bytes())?;
            second.confirm_here(reader.system, commands, &entries, worker)?;
            Ok(Some(entries))
        }
        Ending::Quarantined { .. } if commands.len() > 1 => Ok(None),
        Ending::Quarantined { failures } => {
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
