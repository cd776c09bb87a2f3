//! The board with a lock, a clock and a log around it: what a run and its workers share.
//!
//! The same handle serves threads of this process ([`Fleet`]'s blocking calls) and the HTTP service (its async ones).
//!
//! Order of things: a change is applied to the board and its record queued under the lock; a writer thread takes what
//! has piled up, appends it to the log and makes it durable in one go (group commit); only then is anybody told.
//! The lock is never held while anything is written, sent or launched.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::board::{Board, BoardConfig, BoardStatus, ReplayError, SubmitError};
use crate::coordinator::{Beat, CallError, Coordinator, Grant};
use crate::log::{LogError, TaskLog};
use crate::record::Record;
use crate::task::{Ending, Finished, LeaseId, Receipt, Report, Task, TaskId, TaskKind, Time, WorkerName};
use crate::wait::{SteadyClock, block_until};

/// A fleet that cannot go on, or work that it does not take.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The task was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The log that was found does not make a board.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log failed earlier; what was promised since cannot be kept.
    #[error("the fleet stopped because its log failed: {0}")]
    Stopped(Arc<str>),
    /// A thread panicked while it changed the board.
    #[error("the task board is broken: a thread panicked while it changed it")]
    Broken,
}

impl From<FleetError> for CallError {
    fn from(error: FleetError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// What the writer thread does next.
enum Job {
    Append(Record),
    /// Replaces the whole log.
    Compact(Vec<Record>),
}

struct State {
    board: Board,
    clock: SteadyClock,
    /// What the writer has not taken yet.
    jobs: Vec<Job>,
    /// Jobs ever queued; the number of the last one.
    queued: u64,
    /// Who waits for work, by kind, longest-waiting first.
    waiting: BTreeMap<TaskKind, BTreeMap<u64, Waker>>,
    /// Who waits for endings.
    consumers: BTreeMap<u64, (Option<TaskKind>, Waker)>,
    next_waiter: u64,
    closing: bool,
}

#[derive(Default)]
struct Written {
    /// Number of the last job that is done.
    upto: u64,
    failed: Option<Arc<str>>,
    waiting: Vec<Waker>,
}

struct Inner {
    state: Mutex<State>,
    /// Tells the writer of new jobs.
    work: Condvar,
    written: Mutex<Written>,
    durable: bool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A handle on the task board; clones are handles on the same board. See the module's text.
#[derive(Clone)]
pub struct Fleet(Arc<Owner>);

/// Ends the writer thread with the last handle.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.closing = true;
        }
        self.0.work.notify_all();
        let writer = self.0.writer.lock().ok().and_then(|mut w| w.take());
        if let Some(writer) = writer {
            // A writer that panicked has nothing more to say: whoever waited for it was told.
            let _ = writer.join();
        }
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("durable", &self.0.0.durable).finish_non_exhaustive()
    }
}

impl Fleet {
    /// A fleet whose tasks live and die with this process.
    #[must_use]
    pub fn in_memory(config: BoardConfig) -> Self {
        Self(Arc::new(Owner(Arc::new(Inner::new(Board::without_records(config), false)))))
    }

    /// A fleet that goes on from `records`, which were read from `log`, and writes there from now on.
    ///
    /// # Errors
    /// [`FleetError::Replay`] if the records are not those of a board; [`FleetError::Log`] if no thread can be started.
    pub fn with_log(
        config: BoardConfig,
        records: impl IntoIterator<Item = Record>,
        log: Box<dyn TaskLog>,
    ) -> Result<Self, FleetError> {
        let inner = Arc::new(Inner::new(Board::replay(config, records, Time::default())?, true));
        let writer = Arc::clone(&inner);
        let thread = thread::Builder::new().name("fleet-log".into()).spawn(move || write_log(&writer, log));
        let thread = thread.map_err(|e| LogError::new("start the log's thread", e))?;
        if let Ok(mut slot) = inner.writer.lock() {
            *slot = Some(thread);
        }
        Ok(Self(Arc::new(Owner(inner))))
    }

    fn inner(&self) -> &Inner {
        &self.0.0
    }

    // The consumer's side

    /// Puts tasks on the board; returns when they are durable. Gives the number of those that are new: a task that is
    /// there already, open or ended, is left as it is, so a round may submit all its tasks again after a restart.
    ///
    /// # Errors
    /// [`FleetError::Submit`] at the first task that is not taken (those before it are), or if the log failed.
    pub fn submit(&self, tasks: impl IntoIterator<Item = Task>) -> Result<usize, FleetError> {
        let mut new = 0;
        let (result, upto) = self.inner().change(|board, now| {
            for task in tasks {
                new += usize::from(board.submit(now, task)?);
            }
            Ok(())
        })?;
        result.map_err(FleetError::Submit)?;
        self.inner().wait_written(upto)?;
        Ok(new)
    }

    /// Up to `most` ended tasks, of one kind or of any, in order of ending; waits up to `wait` for the first, and a
    /// millisecond more for others.
    /// They stay on the board until [`Fleet::remove`]; after a restart those not removed are given again.
    ///
    /// # Errors
    /// If the log failed.
    pub fn take_finished(
        &self,
        kind: Option<&TaskKind>,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Finished>, FleetError> {
        let deadline = Instant::now() + wait;
        let Some(finished) = block_until(deadline, self.finished_when_any(kind, most)) else {
            return Ok(Vec::new());
        };
        let (mut finished, mut upto) = finished?;
        if finished.len() < most && Instant::now() + GATHER < deadline {
            thread::sleep(GATHER);
            let more;
            (more, upto) = self.inner().change(|board, _| take(board, kind, most - finished.len()))?;
            finished.extend(more);
        }
        self.inner().wait_written(upto)?;
        Ok(finished)
    }

    /// The next ended task, of any kind. See [`Fleet::take_finished`].
    ///
    /// # Errors
    /// If the log failed.
    pub fn next_finished(&self, wait: Duration) -> Result<Option<Finished>, FleetError> {
        Ok(self.take_finished(None, 1, wait)?.pop())
    }

    async fn finished_when_any(
        &self,
        kind: Option<&TaskKind>,
        most: usize,
    ) -> Result<(Vec<Finished>, u64), FleetError> {
        let mut place = ConsumerPlace { inner: self.inner(), id: None };
        poll_fn(|context| {
            let waker = context.waker();
            let taken = self.inner().change(|board, now| {
                board.expire(now);
                take(board, kind, most)
            });
            match taken {
                Err(error) => Poll::Ready(Err(error)),
                Ok((taken, upto)) if !taken.is_empty() => Poll::Ready(Ok((taken, upto))),
                Ok(_) => match place.register(kind, waker) {
                    Err(error) => Poll::Ready(Err(error)),
                    // Something ended between the look and the registration: look again.
                    Ok(true) => {
                        waker.wake_by_ref();
                        Poll::Pending
                    }
                    Ok(false) => Poll::Pending,
                },
            }
        })
        .await
    }

    /// Takes ended tasks off the board: their consumer has stored them. Gives the number of those that were there.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn remove(&self, tasks: &[TaskId]) -> Result<usize, FleetError> {
        let removed = |board: &mut Board, now| tasks.iter().filter(|task| board.remove(now, **task)).count();
        Ok(self.inner().change(removed)?.0)
    }

    /// Takes open tasks off the board: nobody needs them any more. Gives the number of those that were open.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn cancel(&self, tasks: &[TaskId]) -> Result<usize, FleetError> {
        let cancelled =
            |board: &mut Board, now| tasks.iter().filter(|task| board.cancel(now, **task)).count();
        Ok(self.inner().change(cancelled)?.0)
    }

    /// Sends a done task back because its outcome cannot be used; counts against its worker and the task.
    ///
    /// # Errors
    /// If the log failed.
    pub fn reject(&self, task: TaskId, reason: &str) -> Result<bool, FleetError> {
        let (rejected, upto) = self.inner().change(|board, now| board.reject(now, task, reason))?;
        self.inner().wait_written(upto)?;
        Ok(rejected)
    }

    /// A task's ending, if it is on the board and has ended.
    ///
    /// # Errors
    /// If the log failed.
    pub fn ending(&self, task: TaskId) -> Result<Option<Ending>, FleetError> {
        let (ending, upto) = self.inner().change(|board, _| board.ending(task).cloned())?;
        self.inner().wait_written(upto)?;
        Ok(ending)
    }

    /// Sends every worker home once it has finished what it holds (or takes that back).
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn set_drain(&self, drain: bool) -> Result<(), FleetError> {
        self.inner().change(|board, _| board.set_drain(drain))?;
        if drain {
            self.inner().wake_everybody()?;
        }
        Ok(())
    }

    /// Sends one worker home. `false` if nobody of that name is known.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn drain_worker(&self, worker: &WorkerName) -> Result<bool, FleetError> {
        let known = self.inner().change(|board, _| board.drain_worker(worker))?.0;
        self.inner().wake_everybody()?;
        Ok(known)
    }

    /// A launcher saw this worker's process end: its leases go to others at once.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn worker_died(&self, worker: &WorkerName, reason: &str) -> Result<(), FleetError> {
        self.inner().change(|board, now| board.worker_died(now, worker, reason))?;
        Ok(())
    }

    /// Numbers for people and monitors.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn status(&self) -> Result<BoardStatus, FleetError> {
        let mut state = self.inner().lock()?;
        let now = state.clock.now();
        Ok(state.board.status(now))
    }

    /// Lets overdue leases expire and wakes who can have work by that. Call it a few times a second when nobody of
    /// this process waits in a blocking call; those do it themselves.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn tick(&self) -> Result<(), FleetError> {
        self.inner().change(Board::expire)?;
        self.inner().wake_for_copies()
    }

    /// Rewrites the log as what the board is now, without its history; returns when that is durable.
    /// For the time between two rounds: it looks at all tasks.
    ///
    /// # Errors
    /// If the log failed.
    pub fn compact(&self) -> Result<(), FleetError> {
        if !self.inner().durable {
            return Ok(());
        }
        let upto = {
            let mut state = self.inner().lock()?;
            let snapshot = state.board.snapshot();
            state.jobs.push(Job::Compact(snapshot));
            state.queued += 1;
            state.queued
        };
        self.inner().work.notify_one();
        self.inner().wait_written(upto)
    }

    /// Returns when everything that has happened so far is in the log.
    ///
    /// # Errors
    /// If the log failed.
    pub fn flush(&self) -> Result<(), FleetError> {
        let upto = self.inner().lock()?.queued;
        self.inner().wait_written(upto)
    }

    // The workers' side, for async callers

    /// Leases for a worker as soon as there are any, or none and `drain`. Drop the future to stop waiting.
    ///
    /// # Errors
    /// If the fleet is broken or its log failed.
    pub async fn lease_when_any(
        &self,
        worker: &WorkerName,
        kind: &TaskKind,
        capacity: usize,
    ) -> Result<Grant, FleetError> {
        let mut place = WorkerPlace { inner: self.inner(), kind, id: None };
        poll_fn(|context| match self.inner().lease_or_wait(worker, capacity, &mut place, context.waker()) {
            Ok(Some(grant)) => Poll::Ready(Ok(grant)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    /// An empty grant: what a worker gets whose wait was in vain.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn no_grant(&self) -> Result<Grant, FleetError> {
        let lease_time = self.inner().lock()?.board.config().lease;
        Ok(Grant { leases: Vec::new(), lease_time, drain: false })
    }

    /// See [`Coordinator::heartbeat`].
    ///
    /// # Errors
    /// If the fleet is broken or its log failed.
    pub fn beat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, FleetError> {
        let ((pulse, lease_time), _) =
            self.inner().change(|board, now| (board.heartbeat(now, worker, held), board.config().lease))?;
        Ok(Beat { abandon: pulse.abandon, lease_time, drain: pulse.drain })
    }

    /// Takes reports; the receipts are a promise once the future ends.
    ///
    /// # Errors
    /// If the fleet is broken or its log failed.
    pub async fn report_durably(
        &self,
        worker: &WorkerName,
        reports: Vec<Report>,
    ) -> Result<Vec<Receipt>, FleetError> {
        let take = |board: &mut Board, now| {
            reports.into_iter().map(|report| board.report(now, worker, report)).collect::<Vec<_>>()
        };
        let (receipts, upto) = self.inner().change(take)?;
        // A duplicate may be one of an outcome that is still on its way to the disk.
        if receipts.iter().any(|r| matches!(r, Receipt::Accepted | Receipt::Duplicate)) {
            self.inner().written(upto).await?;
        }
        Ok(receipts)
    }
}

/// A consumer that is woken for every ending costs the coordinator more than the endings do; so it gathers those of
/// this long, unless it wants only one.
const GATHER: Duration = Duration::from_millis(1);

fn take(board: &mut Board, kind: Option<&TaskKind>, most: usize) -> Vec<Finished> {
    std::iter::from_fn(|| board.next_finished(kind)).take(most).collect()
}

impl Coordinator for Fleet {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &TaskKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        match block_until(Instant::now() + wait, self.lease_when_any(worker, kind, capacity)) {
            Some(grant) => Ok(grant?),
            None => Ok(self.no_grant()?),
        }
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, CallError> {
        Ok(self.beat(worker, held)?)
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        match block_until(Instant::now() + LOG_PATIENCE, self.report_durably(worker, reports)) {
            Some(receipts) => Ok(receipts?),
            None => Err(CallError::Away(log_stuck())),
        }
    }
}

/// How long anybody waits for the log before that is an error.
const LOG_PATIENCE: Duration = Duration::from_secs(120);

fn log_stuck() -> String {
    format!("the log has not taken a record for {} s (disk full or hanging?)", LOG_PATIENCE.as_secs())
}

impl Inner {
    fn new(board: Board, durable: bool) -> Self {
        Self {
            state: Mutex::new(State {
                board,
                clock: SteadyClock::start(),
                jobs: Vec::new(),
                queued: 0,
                waiting: BTreeMap::new(),
                consumers: BTreeMap::new(),
                next_waiter: 0,
                closing: false,
            }),
            work: Condvar::new(),
            written: Mutex::new(Written::default()),
            durable,
            writer: Mutex::new(None),
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, FleetError> {
        self.state.lock().map_err(|_| FleetError::Broken)
    }

    /// Changes the board, queues the records of it, and wakes whom it concerns. Gives the number of the last job.
    fn change<T>(&self, change: impl FnOnce(&mut Board, Time) -> T) -> Result<(T, u64), FleetError> {
        if let Some(reason) = self.written.lock().map_err(|_| FleetError::Broken)?.failed.clone() {
            return Err(FleetError::Stopped(reason));
        }
        let mut state = self.lock()?;
        let now = state.clock.now();
        let value = change(&mut state.board, now);
        let (wakers, queued, new) = state.settle();
        drop(state);
        if new {
            self.work.notify_one();
        }
        wakers.into_iter().for_each(Waker::wake);
        Ok((value, queued))
    }

    /// Grants leases, or notes the waker under the same lock, so that no task can slip in between.
    fn lease_or_wait(
        &self,
        worker: &WorkerName,
        capacity: usize,
        place: &mut WorkerPlace<'_>,
        waker: &Waker,
    ) -> Result<Option<Grant>, FleetError> {
        if let Some(reason) = self.written.lock().map_err(|_| FleetError::Broken)?.failed.clone() {
            return Err(FleetError::Stopped(reason));
        }
        let mut state = self.lock()?;
        let now = state.clock.now();
        let leases = state.board.lease(now, worker, place.kind, capacity);
        let drain = state.board.is_draining(worker);
        let grant = (!leases.is_empty() || drain || capacity == 0).then(|| Grant {
            leases,
            lease_time: state.board.config().lease,
            drain,
        });
        match grant {
            Some(_) => place.leave(&mut state),
            None => place.wait(&mut state, waker),
        }
        let (wakers, _, new) = state.settle();
        drop(state);
        if new {
            self.work.notify_one();
        }
        wakers.into_iter().for_each(Waker::wake);
        Ok(grant)
    }

    /// Wakes as many waiting workers as could have copies now.
    fn wake_for_copies(&self) -> Result<(), FleetError> {
        let mut state = self.lock()?;
        let now = state.clock.now();
        let mut wakers = Vec::new();
        let State { board, waiting, .. } = &mut *state;
        for (kind, queue) in waiting.iter_mut() {
            let number = board.available(now, kind, queue.len());
            wakers.extend(std::iter::from_fn(|| queue.pop_first()).take(number).map(|(_, waker)| waker));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn wake_everybody(&self) -> Result<(), FleetError> {
        let mut state = self.lock()?;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().flat_map(BTreeMap::into_values).for_each(Waker::wake);
        Ok(())
    }

    fn wait_written(&self, upto: u64) -> Result<(), FleetError> {
        match block_until(Instant::now() + LOG_PATIENCE, self.written(upto)) {
            Some(result) => result,
            None => Err(FleetError::Stopped(log_stuck().into())),
        }
    }

    /// Ready once the job of that number is done.
    async fn written(&self, upto: u64) -> Result<(), FleetError> {
        if !self.durable {
            return Ok(());
        }
        poll_fn(|context| {
            let Ok(mut written) = self.written.lock() else { return Poll::Ready(Err(FleetError::Broken)) };
            if written.upto >= upto {
                return Poll::Ready(Ok(()));
            }
            if let Some(reason) = &written.failed {
                return Poll::Ready(Err(FleetError::Stopped(Arc::clone(reason))));
            }
            if !written.waiting.iter().any(|w| w.will_wake(context.waker())) {
                written.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl State {
    /// Queues the board's new records, and picks whom to wake: the workers that pending tasks await, and the
    /// consumers if something has ended. Gives the wakers, the number of the last job, and whether there is a new one.
    fn settle(&mut self) -> (Vec<Waker>, u64, bool) {
        let records = self.board.take_records();
        let new = !records.is_empty();
        self.queued += records.len() as u64;
        self.jobs.extend(records.into_iter().map(Job::Append));
        let mut wakers = Vec::new();
        for (kind, queue) in self.waiting.iter_mut().filter(|(_, queue)| !queue.is_empty()) {
            let number = self.board.pending(kind, queue.len());
            wakers.extend(std::iter::from_fn(|| queue.pop_first()).take(number).map(|(_, waker)| waker));
        }
        let board = &self.board;
        let served = self.consumers.extract_if(.., |_, (kind, _)| board.undelivered(kind.as_ref()) > 0);
        wakers.extend(served.map(|(_, (_, waker))| waker));
        (wakers, self.queued, new)
    }
}

/// A worker's place among those that wait; given up when the wait is.
struct WorkerPlace<'a> {
    inner: &'a Inner,
    kind: &'a TaskKind,
    id: Option<u64>,
}

impl WorkerPlace<'_> {
    fn wait(&mut self, state: &mut State, waker: &Waker) {
        let id = *self.id.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.waiting.entry(self.kind.clone()).or_default().insert(id, waker.clone());
    }

    fn leave(&mut self, state: &mut State) {
        if let Some(id) = self.id.take()
            && let Some(queue) = state.waiting.get_mut(self.kind)
        {
            queue.remove(&id);
            if queue.is_empty() {
                state.waiting.remove(self.kind);
            }
        }
    }
}

impl Drop for WorkerPlace<'_> {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        let Ok(mut state) = self.inner.state.lock() else { return };
        self.leave(&mut state);
        // This waiter may have been woken for a task that it will not take now: the next one shall.
        let (wakers, _, _) = state.settle();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A consumer's place among those that wait for endings.
struct ConsumerPlace<'a> {
    inner: &'a Inner,
    id: Option<u64>,
}

impl ConsumerPlace<'_> {
    /// Notes the waker; `true` if something has ended in the meantime.
    fn register(&mut self, kind: Option<&TaskKind>, waker: &Waker) -> Result<bool, FleetError> {
        let mut state = self.inner.lock()?;
        let id = *self.id.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.consumers.insert(id, (kind.cloned(), waker.clone()));
        Ok(state.board.undelivered(kind) > 0)
    }
}

impl Drop for ConsumerPlace<'_> {
    fn drop(&mut self) {
        if let (Some(id), Ok(mut state)) = (self.id, self.inner.state.lock()) {
            state.consumers.remove(&id);
        }
    }
}

/// The writer thread: everything that has piled up goes to the log in one go.
fn write_log(inner: &Inner, mut log: Box<dyn TaskLog>) {
    let _guard = WriterGuard(inner);
    loop {
        let Ok(mut state) = inner.state.lock() else { return };
        while state.jobs.is_empty() && !state.closing {
            let Ok((next, _)) = inner.work.wait_timeout(state, Duration::from_secs(1)) else { return };
            state = next;
        }
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        if jobs.is_empty() {
            return;
        }
        let number = jobs.len() as u64;
        let result = write_jobs(log.as_mut(), jobs);
        let Ok(mut written) = inner.written.lock() else { return };
        match result {
            Ok(()) => written.upto += number,
            Err(error) => written.failed = Some(error.to_string().into()),
        }
        let waiting = std::mem::take(&mut written.waiting);
        let failed = written.failed.is_some();
        drop(written);
        waiting.into_iter().for_each(Waker::wake);
        if failed {
            return;
        }
    }
}

fn write_jobs(log: &mut dyn TaskLog, jobs: Vec<Job>) -> Result<(), LogError> {
    let mut batch = Vec::with_capacity(jobs.len());
    for job in jobs {
        match job {
            Job::Append(record) => batch.push(record),
            Job::Compact(snapshot) => {
                // The snapshot holds all that was queued before it.
                batch.clear();
                log.replace(&snapshot)?;
            }
        }
    }
    if batch.is_empty() { Ok(()) } else { log.append(&batch) }
}

/// If the writer dies, everybody who waits for it hears so.
struct WriterGuard<'a>(&'a Inner);

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let Ok(mut written) = self.0.written.lock() else { return };
        if written.failed.is_none() {
            written.failed = Some("the log's thread has ended".into());
        }
        let waiting = std::mem::take(&mut written.waiting);
        drop(written);
        waiting.into_iter().for_each(Waker::wake);
    }
}
