//! A board with a lock and a clock, shared by a run and its workers.
//!
//! Threads of this process use the blocking calls of [`Fleet`], the HTTP service its async ones.
//!
//! The board keeps everything in memory; only the consumer's journal is durable. Every result goes through these steps:
//! 1. the consumer [takes](Fleet::take_finished) it;
//! 2. the consumer writes it to its journal;
//! 3. the consumer [removes](Fleet::remove) the task;
//! 4. a remote worker gets its receipt ([`PendingReceipts`]) and deletes its copy.
//!
//! If the coordinator dies before step 4, the worker sends the result again.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::board::{Board, BoardConfig, BoardStatus, SubmitError};
use crate::coordinator::{CallError, Coordinator, Grant, HeartbeatAck};
use crate::task::{
    Epoch, FinishedTask, LeaseId, Receipt, Report, Task, TaskId, Time, WorkKind, WorkerExit, WorkerName,
};
use crate::wait::{SteadyClock, block_until};

struct FleetState {
    board: Board,
    clock: SteadyClock,
    /// Workers that wait for a lease, by kind, longest-waiting first.
    waiting: BTreeMap<WorkKind, BTreeMap<u64, (WorkerName, Waker)>>,
    /// Consumers that wait for ended tasks.
    consumers: BTreeMap<u64, Waker>,
    /// Reports that wait for the consumer to remove or reject a task.
    unsettled: BTreeMap<(TaskId, u64), Waker>,
    next_waiter: u64,
}

struct FleetInner {
    state: Mutex<FleetState>,
    /// Whether the consumer keeps a journal. Then an outcome of a remote worker is safe once its task is off the board;
    /// otherwise, as soon as the board has it.
    has_journal: bool,
}

/// A handle to a shared task board. Clones are handles to the same board.
#[derive(Clone)]
pub struct Fleet(Arc<FleetInner>);

impl Fleet {
    /// Creates a fleet whose tasks live in this process only.
    pub fn in_memory(config: BoardConfig) -> Self {
        Self(Arc::new(FleetInner::new(Board::new(config), false)))
    }

    /// Creates a fleet whose consumer keeps a journal. Workers may still hold leases of earlier coordinators.
    ///
    /// The consumer's first [`Fleet::submit`] must name every open task; until then, no worker is told to abandon a lease.
    /// The consumer [removes](Fleet::remove) a task only after it has written the result to the journal.
    pub fn journalled(config: BoardConfig) -> Self {
        // The epoch is random, so that it almost never equals an earlier one. If it does, leases with equal
        // numbers still differ in their worker.
        let epoch = Epoch::new(fastrand::u32(..));
        Self(Arc::new(FleetInner::new(Board::recovering(config, epoch), true)))
    }

    // For the consumer

    /// Puts tasks on the board and returns the number of new ones. Does not change a task that is already on the board,
    /// open or ended.
    ///
    /// # Errors
    /// Returns an error at the first task that the board rejects. The tasks before it are submitted.
    pub fn submit(&self, tasks: impl IntoIterator<Item = Task>) -> Result<usize, SubmitError> {
        self.0.change(|board, now| {
            let mut new = 0;
            for task in tasks {
                new += usize::from(board.submit(now, task)?);
            }
            board.finish_recovery();
            Ok(new)
        })
    }

    /// Puts a task on the board that `excluded` never gets.
    pub fn submit_excluding(&self, task: Task, excluded: &WorkerName) -> Result<(), SubmitError> {
        let excluded = Some(excluded.clone());
        self.0.change(|board, now| board.submit_excluding(now, task, excluded)).map(drop)
    }

    /// Takes up to `limit` ended tasks, in the order in which they ended. Waits up to `wait` for the first, and one
    /// millisecond more for others. The tasks stay on the board until [`Fleet::remove`].
    pub fn take_finished(&self, limit: usize, wait: Duration) -> Vec<FinishedTask> {
        let deadline = Instant::now() + wait;
        let mut finished = block_until(deadline, self.finished_when_any(limit)).unwrap_or_default();
        if (1..limit).contains(&finished.len()) && Instant::now() + GATHER < deadline {
            thread::sleep(GATHER);
            finished.extend(self.0.change(|board, _| take(board, limit - finished.len())));
        }
        finished
    }

    async fn finished_when_any(&self, limit: usize) -> Vec<FinishedTask> {
        let mut waiter = ConsumerWaiter { inner: &self.0, id: None };
        poll_fn(|context| {
            let taken = self.0.change(|board, now| {
                board.expire(now);
                take(board, limit)
            });
            if !taken.is_empty() {
                return Poll::Ready(taken);
            }
            if waiter.register(context.waker()) {
                // A task ended before the registration: poll again.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }

    /// Removes ended tasks whose results the consumer has stored. Their workers may then delete their copies. Returns
    /// the number of removed tasks.
    pub fn remove(&self, tasks: &[TaskId]) -> usize {
        let removed = |board: &mut Board, _| tasks.iter().filter(|task| board.remove(**task)).count();
        let removed = self.0.change(removed);
        self.0.wake_reporters(tasks);
        removed
    }

    /// Cancels open tasks, and returns how many were open.
    pub fn cancel(&self, tasks: &[TaskId]) -> usize {
        let cancelled = |board: &mut Board, _| tasks.iter().filter(|task| board.cancel(**task)).count();
        self.0.change(cancelled)
    }

    /// Makes a done task pending again, because its outcome is unusable. Counts against the task and its worker.
    pub fn reject(&self, task: TaskId, reason: &str) -> bool {
        let rejected = self.0.change(|board, now| board.reject(now, task, reason));
        self.0.wake_reporters(&[task]);
        rejected
    }

    /// Returns true if none of these tasks is on the board as a task of another kind.
    pub fn are_of_kind(&self, tasks: impl IntoIterator<Item = TaskId>, kind: &WorkKind) -> bool {
        let state = self.0.lock();
        tasks.into_iter().all(|task| state.board.kind(task).is_none_or(|found| found == kind))
    }

    /// Starts or stops draining. While draining, workers are told to finish or return their leases, and leave.
    pub fn set_drain(&self, drain: bool) {
        self.0.change(|board, _| board.set_drain(drain));
        if drain {
            self.0.wake_all_workers();
        }
    }

    /// Ends the leases of a worker whose process has ended, as its launcher reports.
    pub fn worker_ended(&self, worker: &WorkerName, end: WorkerExit, reason: &str) {
        self.0.change(|board, now| board.worker_ended(now, worker, end, reason));
    }

    /// Returns the board's statistics.
    pub fn status(&self) -> BoardStatus {
        let mut state = self.0.lock();
        let now = state.clock.now();
        state.board.status(now)
    }

    /// Expires overdue leases, and wakes the workers that can then have work. Must be called a few times per second,
    /// unless a thread of this process waits in a blocking call, which does the same.
    pub fn tick(&self) {
        self.0.change(Board::expire);
        self.0.wake_for_time();
    }

    // For workers, asynchronously

    /// Waits until a lease can be granted or the worker must leave. Dropping the future stops the wait.
    pub async fn lease_when_any(&self, worker: &WorkerName, kind: &WorkKind, capacity: usize) -> Grant {
        let mut waiter = WorkerWaiter { inner: &self.0, kind, id: None };
        poll_fn(|context| {
            let grant = self.0.lease_or_wait(worker, capacity, &mut waiter, context.waker());
            grant.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Returns an empty grant, the reply to a lease request whose wait has ended.
    pub fn empty_grant(&self) -> Grant {
        let lease_time = self.0.lock().board.config().lease;
        Grant { leases: Vec::new(), lease_time, drain: false }
    }

    /// Handles a heartbeat. See [`Coordinator::heartbeat`].
    pub fn heartbeat_ack(&self, worker: &WorkerName, held: &[LeaseId]) -> HeartbeatAck {
        self.0.change(|board, now| board.heartbeat(now, worker, held))
    }

    /// Takes reports from a worker.
    pub fn accept_reports(&self, worker: &WorkerName, reports: Vec<Report>) -> PendingReceipts {
        let take = |board: &mut Board, now| {
            let taken = reports.into_iter().map(|report| {
                let lease = LeaseId { task: report.task, attempt: report.attempt };
                (lease, board.report(now, worker, report))
            });
            taken.collect()
        };
        let receipts = self.0.change(take);
        PendingReceipts { fleet: self.clone(), worker: worker.clone(), receipts, waiter: None }
    }
}

/// Reports that the board has taken. The consumer may still have to store their outcomes.
pub struct PendingReceipts {
    fleet: Fleet,
    worker: WorkerName,
    receipts: Vec<(LeaseId, Receipt)>,
    waiter: Option<(TaskId, u64)>,
}

impl PendingReceipts {
    /// Waits until every outcome is stored, rejected or superfluous. Dropping the future stops the wait.
    pub async fn settled(&mut self) {
        if !self.fleet.0.has_journal {
            return;
        }
        let mut from = 0;
        poll_fn(|context| match self.next_unsettled(&mut from, context.waker()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Registers at the first outcome, from `from` on, that is not stored. Returns false if there is none.
    fn next_unsettled(&mut self, from: &mut usize, waker: &Waker) -> bool {
        let mut state = self.fleet.0.lock();
        if let Some(waiter) = self.waiter.take() {
            state.unsettled.remove(&waiter);
        }
        for (lease, receipt) in &self.receipts[*from..] {
            // A duplicate may be a report that was sent again because the receipt of the first was lost.
            let may_wait = matches!(receipt, Receipt::Accepted | Receipt::Duplicate);
            if may_wait && state.board.is_unsettled(&self.worker, *lease) {
                state.next_waiter += 1;
                let waiter = (lease.task, state.next_waiter);
                state.unsettled.insert(waiter, waker.clone());
                self.waiter = Some(waiter);
                return true;
            }
            *from += 1;
        }
        false
    }

    /// Returns the receipts in the order of the reports. An outcome that is not stored yet gets [`Receipt::Waiting`].
    pub fn receipts(self) -> Vec<Receipt> {
        let inner = &self.fleet.0;
        let state = inner.lock();
        let final_receipt = |(lease, receipt): &(LeaseId, Receipt)| match receipt {
            Receipt::Accepted | Receipt::Duplicate if inner.has_journal => {
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
        self.receipts.iter().map(final_receipt).collect()
    }
}

impl Drop for PendingReceipts {
    fn drop(&mut self) {
        if let (Some(waiter), Ok(mut state)) = (self.waiter, self.fleet.0.state.lock()) {
            state.unsettled.remove(&waiter);
        }
    }
}

/// How long a consumer collects ended tasks, unless it wants only one. Waking the consumer for each task would cost the
/// coordinator more than handling the tasks.
const GATHER: Duration = Duration::from_millis(1);

fn take(board: &mut Board, limit: usize) -> Vec<FinishedTask> {
    std::iter::from_fn(|| board.next_finished()).take(limit).collect()
}

impl Coordinator for Fleet {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        let grant = block_until(Instant::now() + wait, self.lease_when_any(worker, kind, capacity));
        Ok(grant.unwrap_or_else(|| self.empty_grant()))
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        Ok(self.heartbeat_ack(worker, held))
    }

    /// Does not wait for the consumer, because a session in this process ends with the board and has nothing to keep.
    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let reported = self.accept_reports(worker, reports);
        Ok(reported.receipts.iter().map(|(_, receipt)| *receipt).collect())
    }
}

impl FleetInner {
    fn new(board: Board, has_journal: bool) -> Self {
        let state = FleetState {
            board,
            clock: SteadyClock::start(),
            waiting: BTreeMap::new(),
            consumers: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            next_waiter: 0,
        };
        Self { state: Mutex::new(state), has_journal }
    }

    #[allow(clippy::expect_used, reason = "a panic during a change leaves the board in an unknown state")]
    fn lock(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().expect("invariant: no change of the board panics")
    }

    /// Changes the board and wakes the waiters that can proceed.
    fn change<T>(&self, change: impl FnOnce(&mut Board, Time) -> T) -> T {
        let mut state = self.lock();
        let now = state.clock.now();
        let value = change(&mut state.board, now);
        let wakers = state.wakeable(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        value
    }

    /// Grants leases, or registers the waker under the same lock, so that no task is missed.
    fn lease_or_wait(
        &self,
        worker: &WorkerName,
        capacity: usize,
        waiter: &mut WorkerWaiter<'_>,
        waker: &Waker,
    ) -> Option<Grant> {
        let mut state = self.lock();
        let now = state.clock.now();
        let leases = state.board.lease(now, worker, waiter.kind, capacity);
        let drain = state.board.is_draining();
        let grant = (!leases.is_empty() || drain || capacity == 0).then(|| Grant {
            leases,
            lease_time: state.board.config().lease,
            drain,
        });
        match grant {
            Some(_) => waiter.leave(&mut state),
            None => waiter.wait(&mut state, worker, waker),
        }
        let wakers = state.wakeable(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        grant
    }

    /// Wakes waiting workers that can have work because time has passed: copies of old tasks, the end of a back-off.
    fn wake_for_time(&self) {
        let mut state = self.lock();
        let now = state.clock.now();
        let mut wakers = Vec::new();
        let FleetState { board, waiting, .. } = &mut *state;
        for (kind, queue) in waiting.iter_mut() {
            wakers.extend(take_waiters(queue, usize::MAX, |worker| board.has_work_for(now, worker, kind)));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wake_all_workers(&self) {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().flat_map(BTreeMap::into_values).for_each(|(_, waker)| waker.wake());
    }

    /// Wakes reports that wait for these tasks.
    fn wake_reporters(&self, tasks: &[TaskId]) {
        if !self.has_journal {
            return;
        }
        let mut state = self.lock();
        let mut wakers = Vec::new();
        for task in tasks {
            let of_task = (*task, 0)..=(*task, u64::MAX);
            wakers.extend(state.unsettled.extract_if(of_task, |_, _| true).map(|(_, waker)| waker));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl FleetState {
    /// Unregisters and returns the workers that can lease pending tasks, and the consumers if a task has ended.
    fn wakeable(&mut self, now: Time) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let board = &mut self.board;
        for (kind, queue) in self.waiting.iter_mut().filter(|(_, queue)| !queue.is_empty()) {
            let number = board.pending(kind, queue.len());
            wakers.extend(take_waiters(queue, number, |worker| board.has_work_for(now, worker, kind)));
        }
        if self.board.undelivered() > 0 {
            wakers.extend(std::mem::take(&mut self.consumers).into_values());
        }
        wakers
    }
}

/// Unregisters up to `number` waiters for which `may_have` is true, longest-waiting first.
fn take_waiters(
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

/// A registered worker that waits for a lease. Unregisters itself when dropped.
struct WorkerWaiter<'a> {
    inner: &'a FleetInner,
    kind: &'a WorkKind,
    id: Option<u64>,
}

impl WorkerWaiter<'_> {
    fn wait(&mut self, state: &mut FleetState, worker: &WorkerName, waker: &Waker) {
        let id = *self.id.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        let waiting = (worker.clone(), waker.clone());
        state.waiting.entry(self.kind.clone()).or_default().insert(id, waiting);
    }

    fn leave(&mut self, state: &mut FleetState) {
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

impl Drop for WorkerWaiter<'_> {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        let Ok(mut state) = self.inner.state.lock() else { return };
        self.leave(&mut state);
        let now = state.clock.now();
        // This waiter may have been woken for a task that it no longer takes, so wake the next one.
        let wakers = state.wakeable(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A registered consumer that waits for ended tasks. Unregisters itself when dropped.
struct ConsumerWaiter<'a> {
    inner: &'a FleetInner,
    id: Option<u64>,
}

impl ConsumerWaiter<'_> {
    /// Registers the waker. Returns true if a task has ended in the meantime.
    fn register(&mut self, waker: &Waker) -> bool {
        let mut state = self.inner.lock();
        let id = *self.id.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.consumers.insert(id, waker.clone());
        state.board.undelivered() > 0
    }
}

impl Drop for ConsumerWaiter<'_> {
    fn drop(&mut self) {
        if let (Some(id), Ok(mut state)) = (self.id, self.inner.state.lock()) {
            state.consumers.remove(&id);
        }
    }
}
