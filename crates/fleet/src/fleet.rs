//! The board with a lock and a clock around it: what a run and its workers share.
//!
//! The same handle serves threads of this process ([`Fleet`]'s blocking calls) and the HTTP service (its async ones).
//!
//! The board is in memory, its consumer's journal is the only durable place. Order of things: the consumer
//! [takes](Fleet::take_finished) what has ended, writes it down, and [removes](Fleet::remove) it; only then does a worker
//! elsewhere hear that its outcome is safe ([`Reported`]). Until then the worker keeps it, so that a coordinator that dies
//! in between gets it again. The lock is never held while anything is sent or launched.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::board::{Board, BoardConfig, BoardStatus, SubmitError};
use crate::coordinator::{Beat, CallError, Coordinator, Grant};
use crate::task::{
    End, Ending, Epoch, Finished, LeaseId, Receipt, Report, Task, TaskId, TaskKind, Time, WorkerName,
};
use crate::wait::{SteadyClock, block_until};

/// A fleet that cannot go on, or work that it does not take.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The task was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A thread panicked while it changed the board.
    #[error("the task board is broken: a thread panicked while it changed it")]
    Broken,
}

impl From<FleetError> for CallError {
    fn from(error: FleetError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// What an outcome's safety hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The tasks live and die with this process: an outcome is safe as soon as the board has it.
    Process,
    /// The consumer keeps a journal: an outcome from elsewhere is safe once its task is off the board.
    Journal,
}

struct State {
    board: Board,
    clock: SteadyClock,
    /// Who waits for work, by kind, longest-waiting first.
    waiting: BTreeMap<TaskKind, BTreeMap<u64, (WorkerName, Waker)>>,
    /// Who waits for endings.
    consumers: BTreeMap<u64, (Option<TaskKind>, Waker)>,
    /// Who waits for the consumer to be done with a task.
    unsettled: BTreeMap<(TaskId, u64), Waker>,
    next_waiter: u64,
}

struct Inner {
    state: Mutex<State>,
    memory: Memory,
}

/// A handle on the task board; clones are handles on the same board. See the module's text.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("memory", &self.0.memory).finish_non_exhaustive()
    }
}

impl Fleet {
    /// A fleet whose tasks live and die with this process.
    #[must_use]
    pub fn in_memory(config: BoardConfig) -> Self {
        Self(Arc::new(Inner::new(Board::new(config), Memory::Process)))
    }

    /// A fleet whose consumer keeps a journal: it goes on with what coordinators before it have leased out.
    ///
    /// The consumer's first [`Fleet::submit`] has to name every task that is open; before it, nothing that a worker
    /// holds is called off. A task is [removed](Fleet::remove) when its ending is written down, not before.
    #[must_use]
    pub fn journalled(config: BoardConfig) -> Self {
        // Differs from those before it but by one chance in a million; then leases of the same number are told apart by
        // their worker.
        let epoch = Epoch::new(fastrand::u32(..));
        Self(Arc::new(Inner::new(Board::continuing(config, epoch), Memory::Journal)))
    }

    fn inner(&self) -> &Inner {
        &self.0
    }

    // The consumer's side

    /// Puts tasks on the board. Gives the number of those that are new: a task that is there already, open or ended, is
    /// left as it is.
    ///
    /// # Errors
    /// [`FleetError::Submit`] at the first task that is not taken (those before it are).
    pub fn submit(&self, tasks: impl IntoIterator<Item = Task>) -> Result<usize, FleetError> {
        let mut new = 0;
        let result = self.inner().change(|board, now| {
            for task in tasks {
                new += usize::from(board.submit(now, task)?);
            }
            board.open_up();
            Ok(())
        })?;
        result.map_err(FleetError::Submit)?;
        Ok(new)
    }

    /// Puts a task on the board that `barred` never gets: a second opinion on what it has answered.
    ///
    /// # Errors
    /// [`FleetError::Submit`] if the task is not taken.
    pub fn submit_barring(&self, task: Task, barred: &WorkerName) -> Result<(), FleetError> {
        let barred = Some(barred.clone());
        self.inner().change(|board, now| board.submit_barring(now, task, barred))??;
        Ok(())
    }

    /// Up to `most` ended tasks, of one kind or of any, in order of ending; waits up to `wait` for the first, and a
    /// millisecond more for others.
    /// They stay on the board until [`Fleet::remove`].
    ///
    /// # Errors
    /// If the fleet is broken.
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
        let mut finished = finished?;
        if finished.len() < most && Instant::now() + GATHER < deadline {
            thread::sleep(GATHER);
            finished.extend(self.inner().change(|board, _| take(board, kind, most - finished.len()))?);
        }
        Ok(finished)
    }

    /// The next ended task, of any kind. See [`Fleet::take_finished`].
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn next_finished(&self, wait: Duration) -> Result<Option<Finished>, FleetError> {
        Ok(self.take_finished(None, 1, wait)?.pop())
    }

    async fn finished_when_any(
        &self,
        kind: Option<&TaskKind>,
        most: usize,
    ) -> Result<Vec<Finished>, FleetError> {
        let mut place = ConsumerPlace { inner: self.inner(), id: None };
        poll_fn(|context| {
            let waker = context.waker();
            let taken = self.inner().change(|board, now| {
                board.expire(now);
                take(board, kind, most)
            });
            match taken {
                Err(error) => Poll::Ready(Err(error)),
                Ok(taken) if !taken.is_empty() => Poll::Ready(Ok(taken)),
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

    /// Takes ended tasks off the board: their consumer has stored them, and those who did them may forget them. Gives the
    /// number of those that were there.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn remove(&self, tasks: &[TaskId]) -> Result<usize, FleetError> {
        let removed = |board: &mut Board, _| tasks.iter().filter(|task| board.remove(**task)).count();
        let removed = self.inner().change(removed)?;
        self.inner().wake_reporters(tasks)?;
        Ok(removed)
    }

    /// Takes open tasks off the board: nobody needs them any more. Gives the number of those that were open.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn cancel(&self, tasks: &[TaskId]) -> Result<usize, FleetError> {
        let cancelled = |board: &mut Board, _| tasks.iter().filter(|task| board.cancel(**task)).count();
        self.inner().change(cancelled)
    }

    /// Sends a done task back because its outcome cannot be used; counts against its worker and the task.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn reject(&self, task: TaskId, reason: &str) -> Result<bool, FleetError> {
        let rejected = self.inner().change(|board, now| board.reject(now, task, reason))?;
        self.inner().wake_reporters(&[task])?;
        Ok(rejected)
    }

    /// A task's ending, if it is on the board and has ended.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn ending(&self, task: TaskId) -> Result<Option<Ending>, FleetError> {
        Ok(self.inner().lock()?.board.ending(task).cloned())
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
        let known = self.inner().change(|board, _| board.drain_worker(worker))?;
        self.inner().wake_everybody()?;
        Ok(known)
    }

    /// A launcher saw this worker's process end: its leases go to others at once.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn worker_ended(&self, worker: &WorkerName, end: End, reason: &str) -> Result<(), FleetError> {
        self.inner().change(|board, now| board.worker_ended(now, worker, end, reason))
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
        self.inner().wake_for_time()
    }

    // The workers' side, for async callers

    /// Leases for a worker as soon as there are any, or none and `drain`. Drop the future to stop waiting.
    ///
    /// # Errors
    /// If the fleet is broken.
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
    /// If the fleet is broken.
    pub fn beat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, FleetError> {
        let (pulse, lease_time) =
            self.inner().change(|board, now| (board.heartbeat(now, worker, held), board.config().lease))?;
        Ok(Beat { abandon: pulse.abandon, lease_time, drain: pulse.drain })
    }

    /// Takes reports.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn take_reports(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Reported, FleetError> {
        let take = |board: &mut Board, now| {
            let taken = reports.into_iter().map(|report| {
                let lease = LeaseId { task: report.task, attempt: report.attempt };
                (lease, board.report(now, worker, report))
            });
            taken.collect()
        };
        let receipts = self.inner().change(take)?;
        Ok(Reported { fleet: self.clone(), worker: worker.clone(), receipts, place: None })
    }
}

/// Reports that the board has taken, and whose outcomes the consumer may still have to write down.
#[derive(Debug)]
pub struct Reported {
    fleet: Fleet,
    worker: WorkerName,
    receipts: Vec<(LeaseId, Receipt)>,
    place: Option<(TaskId, u64)>,
}

impl Reported {
    /// Ready once every outcome's fate is known: written down, rejected or not wanted. Drop the future to stop waiting.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub async fn settled(&mut self) -> Result<(), FleetError> {
        if self.fleet.inner().memory == Memory::Process {
            return Ok(());
        }
        let mut from = 0;
        poll_fn(|context| match self.next_unsettled(&mut from, context.waker()) {
            Ok(true) => Poll::Pending,
            Ok(false) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    /// Waits at the first outcome, from `from` on, that is not written down; `false` if there is none.
    fn next_unsettled(&mut self, from: &mut usize, waker: &Waker) -> Result<bool, FleetError> {
        let inner = self.fleet.inner();
        let mut state = inner.lock()?;
        if let Some(place) = self.place.take() {
            state.unsettled.remove(&place);
        }
        for (lease, receipt) in self.receipts.get(*from..).unwrap_or_default() {
            // A duplicate may be the very outcome that was sent before.
            let may_wait = matches!(receipt, Receipt::Accepted | Receipt::Duplicate);
            if may_wait && state.board.is_unsettled(&self.worker, *lease) {
                state.next_waiter += 1;
                let place = (lease.task, state.next_waiter);
                state.unsettled.insert(place, waker.clone());
                self.place = Some(place);
                return Ok(true);
            }
            *from += 1;
        }
        Ok(false)
    }

    /// What the worker is told, in the order of the reports: [`Receipt::Waiting`] for what is not written down yet.
    ///
    /// # Errors
    /// If the fleet is broken.
    pub fn receipts(self) -> Result<Vec<Receipt>, FleetError> {
        let inner = self.fleet.inner();
        let state = inner.lock()?;
        let final_receipt = |(lease, receipt): &(LeaseId, Receipt)| match receipt {
            Receipt::Accepted | Receipt::Duplicate if inner.memory == Memory::Journal => {
                if state.board.is_unsettled(&self.worker, *lease) {
                    Receipt::Waiting
                } else if state.board.was_rejected(&self.worker, *lease) {
                    Receipt::Rejected
                } else {
                    *receipt
                }
            }
            _ => *receipt,
        };
        Ok(self.receipts.iter().map(final_receipt).collect())
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        if let (Some(place), Ok(mut state)) = (self.place, self.fleet.0.state.lock()) {
            state.unsettled.remove(&place);
        }
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

    /// Does not wait for the consumer: a session of this process dies with the board, so it has nothing to keep.
    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let reported = self.take_reports(worker, reports)?;
        Ok(reported.receipts.iter().map(|(_, receipt)| *receipt).collect())
    }
}

impl Inner {
    fn new(board: Board, memory: Memory) -> Self {
        let state = State {
            board,
            clock: SteadyClock::start(),
            waiting: BTreeMap::new(),
            consumers: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            next_waiter: 0,
        };
        Self { state: Mutex::new(state), memory }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, FleetError> {
        self.state.lock().map_err(|_| FleetError::Broken)
    }

    /// Changes the board and wakes whom it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut Board, Time) -> T) -> Result<T, FleetError> {
        let mut state = self.lock()?;
        let now = state.clock.now();
        let value = change(&mut state.board, now);
        let wakers = state.whom_to_wake(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(value)
    }

    /// Grants leases, or notes the waker under the same lock, so that no task can slip in between.
    fn lease_or_wait(
        &self,
        worker: &WorkerName,
        capacity: usize,
        place: &mut WorkerPlace<'_>,
        waker: &Waker,
    ) -> Result<Option<Grant>, FleetError> {
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
            None => place.wait(&mut state, worker, waker),
        }
        let wakers = state.whom_to_wake(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(grant)
    }

    /// Wakes the waiting workers for whom the mere passing of time has made work: copies, the end of a pause.
    fn wake_for_time(&self) -> Result<(), FleetError> {
        let mut state = self.lock()?;
        let now = state.clock.now();
        let mut wakers = Vec::new();
        let State { board, waiting, .. } = &mut *state;
        for (kind, queue) in waiting.iter_mut() {
            wakers.extend(serve(queue, usize::MAX, |worker| board.has_work_for(now, worker, kind)));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn wake_everybody(&self) -> Result<(), FleetError> {
        let mut state = self.lock()?;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().flat_map(BTreeMap::into_values).for_each(|(_, waker)| waker.wake());
        Ok(())
    }

    /// Wakes those who wait for the consumer to be done with these tasks.
    fn wake_reporters(&self, tasks: &[TaskId]) -> Result<(), FleetError> {
        if self.memory == Memory::Process {
            return Ok(());
        }
        let mut state = self.lock()?;
        let mut wakers = Vec::new();
        for task in tasks {
            let of_task = (*task, 0)..=(*task, u64::MAX);
            wakers.extend(state.unsettled.extract_if(of_task, |_, _| true).map(|(_, waker)| waker));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl State {
    /// The workers that pending tasks await, and the consumers if something has ended; none of them waits any more.
    fn whom_to_wake(&mut self, now: Time) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let board = &mut self.board;
        for (kind, queue) in self.waiting.iter_mut().filter(|(_, queue)| !queue.is_empty()) {
            let number = board.pending(kind, queue.len());
            wakers.extend(serve(queue, number, |worker| board.has_work_for(now, worker, kind)));
        }
        let board = &self.board;
        let served = self.consumers.extract_if(.., |_, (kind, _)| board.undelivered(kind.as_ref()) > 0);
        wakers.extend(served.map(|(_, (_, waker))| waker));
        wakers
    }
}

/// Takes up to `number` of those that wait, longest-waiting first, who `may_have` something.
fn serve(
    queue: &mut BTreeMap<u64, (WorkerName, Waker)>,
    number: usize,
    mut may_have: impl FnMut(&WorkerName) -> bool,
) -> Vec<Waker> {
    if number == 0 {
        return Vec::new();
    }
    let served = queue.extract_if(.., |_, (worker, _)| may_have(worker));
    served.take(number).map(|(_, (_, waker))| waker).collect()
}

/// A worker's place among those that wait; given up when the wait is.
struct WorkerPlace<'a> {
    inner: &'a Inner,
    kind: &'a TaskKind,
    id: Option<u64>,
}

impl WorkerPlace<'_> {
    fn wait(&mut self, state: &mut State, worker: &WorkerName, waker: &Waker) {
        let id = *self.id.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        let waiting = (worker.clone(), waker.clone());
        state.waiting.entry(self.kind.clone()).or_default().insert(id, waiting);
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
        let now = state.clock.now();
        // This waiter may have been woken for a task that it will not take now: the next one shall.
        let wakers = state.whom_to_wake(now);
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
