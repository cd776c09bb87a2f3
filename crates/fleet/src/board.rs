//! The task board: a pure state machine over tasks, workers and leases.
//!
//! The board has no clock and does no I/O. The time is an argument of every call. It keeps everything in memory. Its
//! consumer stores the results, and after a restart resubmits the tasks that have none.
//!
//! A task is *pending → leased → done | quarantined*. Operations cost O(log n) for each task that they touch; those that
//! visit all workers say so.
//!
//! Rules that are not obvious:
//!
//! - **Suspects.** The death of a worker says little about the tasks that it held. A task becomes a suspect after four
//!   such deaths, or when it is one failed attempt short of quarantine. A suspect is leased only to a worker that holds
//!   nothing else, and is never copied. It is quarantined only if its workers keep dying while they hold it alone.
//! - **Others first.** A worker does not get a task that it has failed as long as another worker could try it. A worker
//!   that fails repeatedly backs off for increasingly long times.
//! - **Excluded workers.** A task may be submitted with an excluded worker, which never gets it, even if no other worker
//!   is available. The consumer uses this to verify a worker's result with a second worker.
//! - **Lost grants.** A lease can expire although its worker was in contact in the meantime: it asked for work, or its
//!   heartbeats named other tasks. The reply that granted the lease was then lost. This does not count against the
//!   task.
//! - **Reclaimed leases.** Workers outlive their coordinator. A [recovering](Board::recovering) board does not know the
//!   leases of the coordinator before it. A worker reclaims such a lease by naming it in a heartbeat or a report. Until
//!   the consumer has submitted the open tasks, the board cannot tell which tasks have ended, so it remembers such leases
//!   and lets their outcomes wait. A failed attempt of a reclaimed lease does not count towards quarantine, because the
//!   board cannot check that the lease was ever granted.

mod queue;
mod status;
mod store;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::coordinator::HeartbeatAck;
use crate::task::{
    AttemptId, Cause, Epoch, FinishedTask, Lease, LeaseId, LeaseOutcome, Payload, Receipt, Report, Task,
    TaskId, TaskResult, Time, WorkKind, WorkerExit, WorkerName,
};
pub use status::{BoardStatus, KindStats, WorkerStats};
pub use store::BoardCounters;
use store::{LeaseState, TaskState, TaskStore};

/// Configuration of a board. All durations are in the board's own time.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardConfig {
    /// Lifetime of a lease without a heartbeat. Default 60 s.
    pub lease: Duration,
    /// Number of failed attempts (crashes, reported failures, rejected outcomes) after which a task is quarantined. Also
    /// the number of deaths of workers that held the task as a suspect and nothing else. At least 1; default 3.
    pub max_attempts: u32,
    /// Number of leases, however they end, after which a task is quarantined, so that no task circulates for ever. At
    /// most [`AttemptId::MAX`]. Default 64.
    pub max_leases: u32,
    /// Whether and when running tasks are copied to idle workers.
    pub speculation: Option<Speculation>,
    /// Which kind is withheld while too many tasks of another kind are open.
    pub backpressure: Option<Backpressure>,
    /// Maximum number of leases that one worker holds at a time. Default 4,096.
    pub max_leases_per_worker: usize,
    /// Maximum number of tasks on the board, open or ended. Default 4 million.
    pub max_tasks: usize,
    /// Maximum size of an outcome, in bytes. A larger one is a failed attempt. Default 64 MiB.
    pub max_outcome_bytes: usize,
    /// Number of bytes of outcomes on the board above which workers must wait with theirs. Default 1 GiB.
    pub max_held_bytes: usize,
}

impl Default for BoardConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            max_attempts: 3,
            max_leases: 64,
            speculation: Some(Speculation::default()),
            backpressure: None,
            max_leases_per_worker: 4096,
            max_tasks: 4_000_000,
            max_outcome_bytes: 64 << 20,
            max_held_bytes: 1 << 30,
        }
    }
}

/// Speculative execution: while nothing is pending, idle workers get copies of running tasks, longest-running first.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculation {
    /// Minimum running time of a task before it is copied. Default 30 s.
    pub min_age: Duration,
    /// Maximum number of copies in one lease request. Default 16.
    pub max_per_request: usize,
}

impl Default for Speculation {
    fn default() -> Self {
        Self { min_age: Duration::from_secs(30), max_per_request: 16 }
    }
}

/// Withholds tasks of kind `hold` while `limit` or more tasks of kind `while_open` are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backpressure {
    /// The kind that is withheld.
    pub hold: WorkKind,
    /// The kind whose open tasks are counted.
    pub while_open: WorkKind,
    /// Number of open tasks of `while_open` from which `hold` is withheld.
    pub limit: usize,
}

/// Why the board rejects a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id belongs to another task.
    #[error("task {0} is on the board with another kind or payload; ids must not be used twice")]
    Conflict(TaskId),
    /// The board is full.
    #[error(
        "task {task}: the board holds {limit} tasks already; remove finished ones before submitting more"
    )]
    Full {
        /// The rejected task.
        task: TaskId,
        /// [`BoardConfig::max_tasks`].
        limit: usize,
    },
}

/// The task board. See the [module documentation](self).
#[derive(Debug)]
pub struct Board {
    config: BoardConfig,
    epoch: Epoch,
    store: TaskStore,
    /// When time was last accounted, and for how long workers have held tasks since the last outcome.
    stall: (Time, Duration),
    /// Leases of an earlier coordinator whose task has not been submitted yet; `None` after the recovery.
    unmatched: Option<HashMap<TaskId, (WorkerName, AttemptId)>>,
    drain: bool,
}

impl Board {
    /// Creates an empty board.
    pub fn new(mut config: BoardConfig) -> Self {
        config.max_attempts = config.max_attempts.max(1);
        let store = TaskStore::new(config.lease, config.max_attempts, config.max_leases_per_worker);
        let stall = (Time::default(), Duration::ZERO);
        Self { config, epoch: Epoch::default(), store, stall, unmatched: None, drain: false }
    }

    /// Creates an empty board whose tasks may already be leased by earlier coordinators. `epoch` must differ from theirs.
    /// The recovery lasts until [`Board::finish_recovery`].
    pub fn recovering(config: BoardConfig, epoch: Epoch) -> Self {
        Self { epoch, unmatched: Some(HashMap::new()), ..Self::new(config) }
    }

    /// Ends the recovery: from now on, a task that is not on the board has ended.
    pub fn finish_recovery(&mut self) {
        self.unmatched = None;
    }

    /// Returns the configuration.
    pub fn config(&self) -> &BoardConfig {
        &self.config
    }

    // For the consumer

    /// Puts a task on the board, last within its priority. Returns false if the same task is already there.
    ///
    /// # Errors
    /// Returns an error if the id belongs to another task, or the board is full.
    pub fn submit(&mut self, now: Time, task: Task) -> Result<bool, SubmitError> {
        self.submit_excluding(now, task, None)
    }

    /// Does the same as [`Board::submit`], but never leases the task to `excluded`.
    pub fn submit_excluding(
        &mut self,
        now: Time,
        task: Task,
        excluded: Option<WorkerName>,
    ) -> Result<bool, SubmitError> {
        if let Some((_, entry)) = self.store.find(task.id) {
            let same =
                self.store.kinds[usize::from(entry.kind)].kind == task.kind && entry.payload == task.payload;
            return if same { Ok(false) } else { Err(SubmitError::Conflict(task.id)) };
        }
        if self.store.len() >= self.config.max_tasks {
            return Err(SubmitError::Full { task: task.id, limit: self.config.max_tasks });
        }
        let Task { id, kind, priority, payload } = task;
        self.store.submit(id, &kind, priority, payload, excluded);
        if let Some((worker, attempt)) = self.unmatched.as_mut().and_then(|leases| leases.remove(&id)) {
            let worker = self.store.see_worker(&worker, now);
            self.store.reclaim(now, id, attempt, worker);
        }
        Ok(true)
    }

    /// Returns the next ended task, in the order in which tasks ended. It stays on the board until it is removed.
    pub fn next_finished(&mut self) -> Option<FinishedTask> {
        let slot = self.store.next_finished()?;
        let entry = self.store.entry(slot);
        Some(FinishedTask {
            task: entry.id,
            kind: self.store.kinds[usize::from(entry.kind)].kind.clone(),
            result: entry.result.as_deref()?.clone(),
        })
    }

    /// Removes an ended task. Returns false if it is absent or still open.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let ended = self.store.find(task).is_some_and(|(_, e)| !e.state.is_open());
        if ended {
            self.store.remove(task);
        }
        ended
    }

    /// Cancels an open task. Its worker is told in the reply to its next heartbeat. Returns false if the task is absent or
    /// has ended.
    pub fn cancel(&mut self, task: TaskId) -> bool {
        let open = self.store.find(task).is_some_and(|(_, e)| e.state.is_open());
        if open {
            self.store.remove(task);
        }
        open
    }

    /// Makes a done task pending again because its outcome is unusable. Counts as a failed attempt of its worker. Returns
    /// false if the task is absent or has no outcome.
    pub fn reject(&mut self, now: Time, task: TaskId, reason: &str) -> bool {
        let done = self.store.find(task).is_some_and(|(_, e)| e.state == TaskState::Done);
        if done {
            self.store.reopen(now, task, reason);
            self.quarantine_if_due(task);
        }
        done
    }

    /// Starts or stops draining: while draining, no leases are granted and every worker is told to leave.
    pub fn set_drain(&mut self, drain: bool) {
        self.drain = drain;
    }

    // For workers

    /// Grants up to `capacity` leases of a kind to a worker. If nothing is pending, they are copies of running tasks.
    pub fn lease(&mut self, now: Time, worker: &WorkerName, kind: &WorkKind, capacity: usize) -> Vec<Lease> {
        self.expire(now);
        let id = self.store.see_worker(worker, now);
        let Some(index) = self.store.kind_index(kind) else { return Vec::new() };
        if let Some(w) = self.store.workers.get_mut(&id) {
            w.asks_for = Some(index);
        }
        let room = capacity.min(self.room_of(now, id));
        if self.drain || self.is_held_back(kind) {
            return Vec::new();
        }
        let mut leases = Vec::with_capacity(room.min(self.store.kinds[index].pending_count));
        while leases.len() < room {
            let Some(slot) = self.store.next_pending(now, index, id) else { break };
            leases.extend(self.grant(now, worker, kind, slot));
        }
        let is_occupied = self.store.workers.get(&id).is_some_and(|w| w.is_occupied);
        if self.store.kinds[index].pending_count == 0 && !is_occupied {
            for slot in self.copy_candidates(now, index, room - leases.len(), id) {
                leases.extend(self.grant(now, worker, kind, slot));
            }
        }
        leases
    }

    /// Returns how many more leases a worker may hold now.
    fn room_of(&self, now: Time, worker: u32) -> usize {
        match self.store.workers.get(&worker) {
            Some(w) if !w.is_occupied && w.backoff_until <= now => {
                self.config.max_leases_per_worker.saturating_sub(w.leases.len())
            }
            _ => 0,
        }
    }

    /// Returns true if a lease request of this worker would be granted now.
    pub fn has_work_for(&mut self, now: Time, worker: &WorkerName, kind: &WorkKind) -> bool {
        let Some(index) = self.store.kind_index(kind) else { return false };
        let Some(id) = self.store.worker_id(worker) else { return false };
        if self.drain || self.is_held_back(kind) || self.room_of(now, id) == 0 {
            return false;
        }
        match self.store.kinds[index].pending_count {
            0 => !self.copy_candidates(now, index, 1, id).is_empty(),
            _ => self.store.next_pending(now, index, id).is_some(),
        }
    }

    fn grant(&mut self, now: Time, worker: &WorkerName, kind: &WorkKind, slot: u32) -> Option<Lease> {
        let entry = self.store.entry(slot);
        let (task, payload) = (entry.id, entry.payload.clone());
        let attempt = self.epoch.attempt(entry.next_attempt);
        self.store.grant(now, task, attempt, worker);
        Some(Lease { task, attempt, kind: kind.clone(), payload })
    }

    /// Returns the slots of running tasks that may be copied to `worker`, longest-running first.
    fn copy_candidates(&self, now: Time, kind: usize, room: usize, worker: u32) -> Vec<u32> {
        let Some(rule) = &self.config.speculation else { return Vec::new() };
        let own = self.store.workers.get(&worker).map(|w| &w.leases);
        let old_enough = |started: Time| now.since(started) >= rule.min_age;
        let running = self.store.kinds[kind].single.iter().take_while(|(started, _)| old_enough(*started));
        running
            .map(|(_, slot)| *slot)
            .filter(|slot| own.is_none_or(|own| !own.contains_key(slot)))
            .filter(|slot| !self.store.entry(*slot).is_suspect(self.config.max_attempts))
            .filter(|slot| self.store.may_have(now, *slot, worker))
            .take(room.min(rule.max_per_request))
            .collect()
    }

    fn is_held_back(&self, kind: &WorkKind) -> bool {
        let Some(rule) = self.config.backpressure.as_ref().filter(|rule| rule.hold == *kind) else {
            return false;
        };
        let open = self.store.kind_index(&rule.while_open).map_or(0, |index| self.store.kinds[index].open());
        open >= rule.limit
    }

    /// Handles a heartbeat that names the leases that the worker holds: extends them, and returns those to abandon. An
    /// expired lease becomes live again unless the task has ended or two other workers hold it.
    pub fn heartbeat(&mut self, now: Time, worker: &WorkerName, held: &[LeaseId]) -> HeartbeatAck {
        let id = self.store.see_worker(worker, now);
        let mut abandon = Vec::new();
        let deadline = now.after(self.config.lease);
        for lease in held {
            if !self.keep_alive(now, id, *lease, deadline) && !self.remember_unmatched(worker, *lease) {
                abandon.push(*lease);
            }
        }
        self.expire(now);
        HeartbeatAck { abandon, lease_time: self.config.lease, drain: self.drain }
    }

    /// Extends, revives or reclaims a lease. Returns false if the worker must abandon it.
    fn keep_alive(&mut self, now: Time, worker: u32, lease: LeaseId, deadline: Time) -> bool {
        let Some((slot, entry)) = self.store.find(lease.task) else { return false };
        let has_room = entry.has_room_for(worker) && self.store.has_hands_free(worker);
        match entry.lease_of(lease.attempt, worker).map(|lease| lease.state) {
            Some(LeaseState::Live) => {
                self.store.extend(slot, lease.attempt, deadline);
                true
            }
            Some(LeaseState::Ended(Cause::Died | Cause::Lost)) if has_room => {
                self.store.revive(now, lease.task, lease.attempt);
                true
            }
            None if has_room && self.is_foreign(lease.attempt) => {
                self.store.reclaim(now, lease.task, lease.attempt, worker)
            }
            _ => false,
        }
    }

    fn is_foreign(&self, attempt: AttemptId) -> bool {
        attempt.epoch() != self.epoch
    }

    /// Remembers a lease of an earlier coordinator until its task is submitted. Returns false outside the recovery.
    fn remember_unmatched(&mut self, worker: &WorkerName, lease: LeaseId) -> bool {
        let unknown = self.store.find(lease.task).is_none() && self.is_foreign(lease.attempt);
        let Some(unmatched) = self.unmatched.as_mut().filter(|_| unknown) else { return false };
        if unmatched.len() < self.config.max_tasks {
            unmatched.insert(lease.task, (worker.clone(), lease.attempt));
        }
        true
    }

    /// Handles a worker's report that a lease has ended. Repeating a report changes nothing.
    pub fn report(&mut self, now: Time, worker: &WorkerName, report: Report) -> Receipt {
        let receipt = self.apply_report(now, worker, report);
        match receipt {
            Receipt::Duplicate => self.store.counters.duplicates += 1,
            Receipt::Refused => self.store.counters.refused += 1,
            Receipt::Accepted | Receipt::Noted | Receipt::Rejected | Receipt::Waiting => {}
        }
        receipt
    }

    fn apply_report(&mut self, now: Time, worker: &WorkerName, report: Report) -> Receipt {
        let Report { task, attempt, outcome } = report;
        if self.remember_unmatched(worker, LeaseId { task, attempt }) {
            return Receipt::Waiting;
        }
        let Some((_, entry)) = self.store.find(task) else { return Receipt::Duplicate };
        let is_foreign = self.is_foreign(attempt);
        if is_foreign && entry.state.is_open() {
            // A result that was finished under the earlier coordinator counts, whichever worker holds the task now.
            let id = self.store.see_worker(worker, now);
            self.store.reclaim(now, task, attempt, id);
        }
        let Some((_, entry)) = self.store.find(task) else { return Receipt::Duplicate };
        let held = self.store.worker_id(worker).and_then(|id| entry.lease_of(attempt, id));
        let Some(held) = held else {
            let is_over = is_foreign && !entry.state.is_open();
            return if is_over { Receipt::Duplicate } else { Receipt::Refused };
        };
        let (state, hold) = (entry.state, held.state);
        self.store.see_worker(worker, now);
        let expired = matches!(hold, LeaseState::Live | LeaseState::Ended(Cause::Died | Cause::Lost));
        let is_result = state.is_open() && expired;
        match self.bounded(outcome) {
            // The consumer is slower than the workers.
            LeaseOutcome::Done(outcome) if is_result && self.is_full_with(&outcome) => Receipt::Waiting,
            LeaseOutcome::Done(outcome) if is_result => {
                self.store.done(task, attempt, outcome);
                self.stall = (now, Duration::ZERO);
                Receipt::Accepted
            }
            LeaseOutcome::Failed(message) if hold == LeaseState::Live => {
                self.end(now, LeaseId { task, attempt }, Cause::Failed, message);
                Receipt::Noted
            }
            LeaseOutcome::Returned if hold == LeaseState::Live => {
                self.end(now, LeaseId { task, attempt }, Cause::Returned, String::new());
                Receipt::Noted
            }
            _ => Receipt::Duplicate,
        }
    }

    /// Converts an outcome that is too large to a failure.
    fn bounded(&self, outcome: LeaseOutcome) -> LeaseOutcome {
        let most = self.config.max_outcome_bytes;
        match outcome {
            LeaseOutcome::Done(outcome) if outcome.as_bytes().len() > most => {
                let bytes = outcome.as_bytes().len();
                LeaseOutcome::Failed(format!("an outcome of {bytes} bytes, at most {most} are allowed"))
            }
            outcome => outcome,
        }
    }

    /// Returns true if this outcome must wait until the consumer has removed others. The first one never waits.
    fn is_full_with(&self, outcome: &Payload) -> bool {
        let held = self.store.held_bytes;
        held > 0 && held.saturating_add(outcome.as_bytes().len()) > self.config.max_held_bytes
    }

    /// Ends all leases of a worker whose process has ended, before their deadlines.
    pub fn worker_ended(&mut self, now: Time, worker: &WorkerName, end: WorkerExit, reason: &str) {
        if let Some(unmatched) = &mut self.unmatched {
            unmatched.retain(|_, (holder, _)| holder != worker);
        }
        let Some(w) = self.store.worker_id(worker).and_then(|id| self.store.workers.get(&id)) else {
            return;
        };
        let cause = match end {
            // A worker that exits cleanly has returned all leases that it knew of.
            WorkerExit::Well => Cause::Lost,
            WorkerExit::Crashed => Cause::Crashed,
            WorkerExit::Gone => Cause::Died,
        };
        let held: BTreeSet<(u32, AttemptId)> =
            w.leases.iter().map(|(slot, attempt)| (*slot, *attempt)).collect();
        for (slot, attempt) in held.into_iter().rev() {
            let task = self.store.entry(slot).id;
            self.end(now, LeaseId { task, attempt }, cause, reason.to_owned());
        }
    }

    /// Ends the leases whose deadlines have passed.
    pub fn expire(&mut self, now: Time) {
        self.stall = (now, self.stalled(now));
        while let Some(worker) = self.store.next_alarm(now) {
            let expired = self.store.expired(worker, now);
            let Some(w) = self.store.workers.get(&worker) else { continue };
            let silent = now.since(w.last_seen);
            let dead = silent >= self.config.lease;
            let (cause, message) = if dead {
                (Cause::Died, format!("no contact for {:.1} s", silent.as_secs_f64()))
            } else {
                (Cause::Lost, String::new())
            };
            for (slot, attempt) in expired.into_iter().rev() {
                let task = self.store.entry(slot).id;
                self.end(now, LeaseId { task, attempt }, cause, message.clone());
            }
            self.store.rearm(worker, now);
        }
    }

    /// Returns how long workers have held tasks since the last outcome.
    fn stalled(&self, now: Time) -> Duration {
        let (since, stalled) = self.stall;
        let at_work = self.store.kinds.iter().any(|k| k.leased_count > 0);
        if at_work { stalled + now.since(since) } else { stalled }
    }

    fn end(&mut self, now: Time, lease: LeaseId, cause: Cause, message: String) {
        self.store.end(now, lease.task, lease.attempt, cause, &message);
        self.quarantine_if_due(lease.task);
    }

    fn quarantine_if_due(&mut self, task: TaskId) {
        let Some((_, entry)) = self.store.find(task) else { return };
        let broken = entry.is_exhausted(self.config.max_attempts);
        let circling = entry.next_attempt > self.config.max_leases.min(AttemptId::MAX - 1);
        if entry.state == TaskState::Pending && (broken || circling) {
            self.store.quarantine(task);
        }
    }

    // Views

    /// Returns the number of pending tasks of a kind that may be leased now, at most `limit`.
    pub fn pending(&self, kind: &WorkKind, limit: usize) -> usize {
        let Some(index) = self.store.kind_index(kind) else { return 0 };
        if self.drain || self.is_held_back(kind) {
            0
        } else {
            self.store.kinds[index].pending_count.min(limit)
        }
    }

    /// Returns the number of ended tasks that the consumer has not taken yet.
    pub fn undelivered(&self) -> usize {
        self.store.undelivered()
    }

    /// Returns true if the board is draining.
    pub fn is_draining(&self) -> bool {
        self.drain
    }

    /// Returns the result of a task that is on the board and has ended.
    pub fn result(&self, task: TaskId) -> Option<&TaskResult> {
        self.store.find(task)?.1.result.as_deref()
    }

    /// Returns the kind of a task that is on the board.
    pub fn kind(&self, task: TaskId) -> Option<&WorkKind> {
        self.store.find(task).map(|(_, entry)| &self.store.kinds[usize::from(entry.kind)].kind)
    }

    /// Returns the board's statistics. Visits all workers.
    pub fn status(&self, now: Time) -> BoardStatus {
        let oldest = |single: &BTreeSet<(Time, u32)>| {
            single.first().map(|(started, _)| now.since(*started).as_secs_f64())
        };
        let kinds = self.store.kinds.iter().map(|k| KindStats {
            kind: k.kind.clone(),
            pending: k.pending_count,
            leased: k.leased_count,
            undelivered: k.finished_count,
            held_back: self.is_held_back(&k.kind),
            longest_running_s: oldest(&k.single),
        });
        let mut workers: Vec<WorkerStats> = self
            .store
            .workers
            .values()
            .map(|w| WorkerStats {
                worker: w.name.clone(),
                leases: w.leases.len(),
                silent_s: now.since(w.last_seen).as_secs_f64(),
                draining: self.drain,
                backoff_s: w.backoff_until.since(now).as_secs_f64(),
                done: w.done,
                failed: w.failed,
                last_error: w.last_error.clone(),
            })
            .collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        BoardStatus {
            tasks: self.store.len(),
            draining: self.drain,
            kinds: kinds.collect(),
            workers,
            stalled_s: self.stalled(now).as_secs_f64(),
            counters: self.store.counters,
        }
    }

    /// Returns the counts of the board's events.
    pub fn counters(&self) -> BoardCounters {
        self.store.counters
    }

    /// Returns true if this lease gave the task its outcome and the consumer has not removed the task yet.
    pub fn is_unsettled(&self, worker: &WorkerName, lease: LeaseId) -> bool {
        matches!(self.result(lease.task),
            Some(TaskResult::Done { worker: whose, attempt, .. }) if *attempt == lease.attempt && whose == worker)
    }

    /// Returns true if the consumer rejected the outcome of this lease.
    pub fn was_rejected(&self, worker: &WorkerName, lease: LeaseId) -> bool {
        let Some((_, entry)) = self.store.find(lease.task) else { return false };
        let lease = self.store.worker_id(worker).and_then(|id| entry.lease_of(lease.attempt, id));
        lease.is_some_and(|lease| lease.state == LeaseState::Ended(Cause::Rejected))
    }
}
