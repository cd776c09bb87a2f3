//! The task board: a pure state machine over tasks, workers and leases.
//!
//! It knows no clock, does no I/O and never waits: every call gets the time. It lives in memory alone: its consumer
//! keeps what has ended, and after a restart submits again what has not.
//!
//! A task is *pending → leased → done | quarantined*. No operation looks at all tasks, except those that say so;
//! leasing, reporting and expiry cost O(log n) for each task that they touch.
//!
//! Rules that are not obvious:
//!
//! - **Last chance.** A task that is one death short of quarantine is leased to a worker that holds no other such
//!   task, and is never copied. Of all the tasks that sat in a worker when one of them killed it, only the one
//!   that kills again is given up.
//! - **Lost is not dead.** If a lease expires although its worker was heard of since (it asks for work, or its
//!   heartbeats name other tasks), the reply that granted it got lost on the way. That is not held against the task.
//! - **Adoption.** Workers outlive their coordinator. A board that [continues](Board::continuing) another's work does not
//!   know its leases; whoever names one of an open task, in a heartbeat or a report, holds it from then on. Until the
//!   consumer has submitted what is open, nobody can say what is over: such leases are noted and their outcomes wait.

mod queue;
mod status;
mod tables;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::task::{
    Attempt, Cause, Ending, Epoch, Finished, Lease, LeaseId, Outcome, Receipt, Report, Task, TaskId,
    TaskKind, Time, WorkerName,
};
pub use status::{BoardStatus, KindStatus, WorkerStatus};
pub use tables::Counters;
use tables::{Hold, State, Tables};

/// The board's rules. All durations are in the board's own time.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardConfig {
    /// How long a lease lasts without a heartbeat. Default 60 s.
    pub lease: Duration,
    /// After so many failed attempts (deaths, reported failures, rejected outcomes) a task is quarantined. Default 3.
    pub max_attempts: u32,
    /// After so many leases of any fate a task is quarantined, so that nothing circles for ever. At most
    /// [`Attempt::MOST`]. Default 64.
    pub max_leases: u32,
    /// Whether and when running tasks are copied to idle workers.
    pub speculation: Option<Speculation>,
    /// Which kind waits while too much of another is open.
    pub backpressure: Option<Backpressure>,
    /// Most leases that one worker may hold at a time. Default 4,096.
    pub max_leases_per_worker: usize,
    /// Most tasks on the board, open or not yet removed. Default 4 million.
    pub max_tasks: usize,
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
        }
    }
}

/// When nothing is pending, idle workers get second copies of running tasks, longest-running first.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculation {
    /// Tasks that have run for less are not copied. Default 30 s.
    pub min_age: Duration,
    /// Most copies that one request for work is given. Default 16.
    pub max_per_request: usize,
}

impl Default for Speculation {
    fn default() -> Self {
        Self { min_age: Duration::from_secs(30), max_per_request: 16 }
    }
}

/// `hold` is not leased while `limit` or more tasks of kind `while_open` are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backpressure {
    /// The kind that waits, usually generation.
    pub hold: TaskKind,
    /// The kind that piles up, usually verification.
    pub while_open: TaskKind,
    /// Open tasks of `while_open` from which `hold` waits.
    pub limit: usize,
}

impl Backpressure {
    /// Generation waits while `limit` or more verifications are open.
    #[must_use]
    pub fn of_verification(limit: usize) -> Self {
        Self { hold: TaskKind::Generate, while_open: TaskKind::Verify, limit }
    }
}

/// A task that the board does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id is in use for other work.
    #[error("task {0} is on the board with another kind or payload; ids must not be used twice")]
    Conflict(TaskId),
    /// The board is full.
    #[error(
        "task {task}: the board holds {limit} tasks already; remove finished ones before submitting more"
    )]
    Full {
        /// The task that found no room.
        task: TaskId,
        /// [`BoardConfig::max_tasks`].
        limit: usize,
    },
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Leases to drop: finished elsewhere, cancelled, or given to others.
    pub abandon: Vec<LeaseId>,
    /// The worker shall finish what it has, or give it back, and leave.
    pub drain: bool,
}

/// The task board. See the module's text.
#[derive(Debug)]
pub struct Board {
    config: BoardConfig,
    epoch: Epoch,
    tables: Tables,
    /// Leases of another coordinator, named before the consumer has submitted what is open; `None` from then on.
    claims: Option<HashMap<TaskId, (WorkerName, Attempt)>>,
    drain: bool,
}

impl Board {
    /// An empty board of new work.
    #[must_use]
    pub fn new(config: BoardConfig) -> Self {
        let tables = Tables::new(config.lease, config.max_attempts.max(1));
        Self { config, epoch: Epoch::default(), tables, claims: None, drain: false }
    }

    /// An empty board for work that workers may hold already, by leases of coordinators before this one. `epoch` must be
    /// none of theirs. It learns what is open until [`Board::open_up`].
    #[must_use]
    pub fn continuing(config: BoardConfig, epoch: Epoch) -> Self {
        Self { epoch, claims: Some(HashMap::new()), ..Self::new(config) }
    }

    /// From now on a task that is not on the board is over.
    pub fn open_up(&mut self) {
        self.claims = None;
    }

    /// The rules.
    #[must_use]
    pub fn config(&self) -> &BoardConfig {
        &self.config
    }

    // The consumer's side

    /// Puts a task on the board, last among its priority. `false` if the very same task is there already.
    ///
    /// # Errors
    /// [`SubmitError`] if the id is taken by other work or the board is full.
    pub fn submit(&mut self, now: Time, task: Task) -> Result<bool, SubmitError> {
        if let Some((_, entry)) = self.tables.find(task.id) {
            let same =
                self.tables.kinds[usize::from(entry.kind)].kind == task.kind && entry.payload == task.payload;
            return if same { Ok(false) } else { Err(SubmitError::Conflict(task.id)) };
        }
        if self.tables.len() >= self.config.max_tasks {
            return Err(SubmitError::Full { task: task.id, limit: self.config.max_tasks });
        }
        let Task { id, kind, priority, payload } = task;
        sure(self.tables.submit(id, &kind, priority, payload));
        if let Some((worker, attempt)) = self.claims.as_mut().and_then(|claims| claims.remove(&id)) {
            let worker = self.tables.see_worker(&worker, now);
            self.tables.adopt(now, id, attempt, worker);
        }
        Ok(true)
    }

    /// The next ended task, of one kind or of any, in order of ending. It stays on the board until it is removed.
    pub fn next_finished(&mut self, kind: Option<&TaskKind>) -> Option<Finished> {
        let index = match kind {
            Some(kind) => Some(self.tables.kind_index(kind)?),
            None => None,
        };
        let slot = self.tables.next_finished(index)?;
        let entry = self.tables.entry(slot)?;
        Some(Finished {
            task: entry.id,
            kind: self.tables.kinds[usize::from(entry.kind)].kind.clone(),
            ending: entry.ending.as_deref()?.clone(),
        })
    }

    /// Takes an ended task off the board: its consumer has it. `false` if it is not there or still open.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let ended = self.tables.find(task).is_some_and(|(_, e)| !e.state.is_open());
        if ended {
            sure(self.tables.remove(task));
        }
        ended
    }

    /// Takes an open task off the board: nobody needs it. Who works on it hears so at the next heartbeat.
    /// `false` if it is not there or has ended.
    pub fn cancel(&mut self, task: TaskId) -> bool {
        let open = self.tables.find(task).is_some_and(|(_, e)| e.state.is_open());
        if open {
            sure(self.tables.remove(task));
        }
        open
    }

    /// Sends a done task back because its outcome cannot be used: a failed attempt of the worker whose it is.
    /// `false` if the task is not there or has no outcome.
    pub fn reject(&mut self, task: TaskId, reason: &str) -> bool {
        let done = self.tables.find(task).is_some_and(|(_, e)| e.state == State::Done);
        if done {
            sure(self.tables.reopen(task, reason));
            self.quarantine_if_due(task);
        }
        done
    }

    /// From now on (or no longer) no leases are granted and every worker hears that it shall leave.
    pub fn set_drain(&mut self, drain: bool) {
        self.drain = drain;
    }

    /// One worker gets no more leases and hears that it shall leave. `false` if nobody of that name is known.
    pub fn drain_worker(&mut self, worker: &WorkerName) -> bool {
        let worker = self.tables.worker_id(worker).and_then(|id| self.tables.workers.get_mut(&id));
        worker.map(|w| w.drain = true).is_some()
    }

    // The workers' side

    /// Up to `capacity` leases of a kind for a worker. When nothing is pending these are copies of running tasks.
    pub fn lease(&mut self, now: Time, worker: &WorkerName, kind: &TaskKind, capacity: usize) -> Vec<Lease> {
        self.expire(now);
        let id = self.tables.see_worker(worker, now);
        let Some(w) = self.tables.workers.get(&id) else { return Vec::new() };
        let room = capacity.min(self.config.max_leases_per_worker.saturating_sub(w.leases.len()));
        let Some(index) = self.tables.kind_index(kind) else { return Vec::new() };
        if self.drain || w.drain || self.holds_back(kind) {
            return Vec::new();
        }
        let mut leases = Vec::with_capacity(room.min(self.tables.kinds[index].pending_count));
        while leases.len() < room {
            let first = self.tables.workers.get(&id).is_some_and(|w| w.last_chances == 0);
            let Some(slot) = self.tables.next_pending(index, first) else { break };
            leases.extend(self.grant(now, worker, kind, slot));
        }
        if self.tables.kinds[index].pending_count == 0 {
            for slot in self.worth_copying(now, index, room - leases.len(), Some(id)) {
                leases.extend(self.grant(now, worker, kind, slot));
            }
        }
        leases
    }

    fn grant(&mut self, now: Time, worker: &WorkerName, kind: &TaskKind, slot: u32) -> Option<Lease> {
        let entry = self.tables.entry(slot)?;
        let (task, payload) = (entry.id, entry.payload.clone());
        let attempt = self.epoch.attempt(entry.next_attempt);
        sure(self.tables.grant(now, task, attempt, worker));
        Some(Lease { task, attempt, kind: kind.clone(), payload })
    }

    /// Slots of running tasks that may be copied, longest-running first, except those of `worker` itself.
    fn worth_copying(&self, now: Time, kind: usize, room: usize, worker: Option<u32>) -> Vec<u32> {
        let Some(rule) = &self.config.speculation else { return Vec::new() };
        let own = worker.and_then(|id| self.tables.workers.get(&id)).map(|w| &w.leases);
        let old_enough = |started: Time| now.since(started) >= rule.min_age;
        let running = self.tables.kinds[kind].single.iter().take_while(|(started, _)| old_enough(*started));
        running
            .map(|(_, slot)| *slot)
            .filter(|slot| own.is_none_or(|own| !own.contains_key(slot)))
            .take(room.min(rule.max_per_request))
            .collect()
    }

    fn holds_back(&self, kind: &TaskKind) -> bool {
        let Some(rule) = self.config.backpressure.as_ref().filter(|rule| rule.hold == *kind) else {
            return false;
        };
        let open =
            self.tables.kind_index(&rule.while_open).map_or(0, |index| self.tables.kinds[index].open());
        open >= rule.limit
    }

    /// How many leases of a kind could be granted now to a worker that has none; counts at most `limit`.
    #[must_use]
    pub fn available(&self, now: Time, kind: &TaskKind, limit: usize) -> usize {
        let Some(index) = self.tables.kind_index(kind) else { return 0 };
        if self.drain || self.holds_back(kind) {
            return 0;
        }
        match self.tables.kinds[index].pending_count {
            0 => self.worth_copying(now, index, limit, None).len(),
            pending => pending.min(limit),
        }
    }

    /// A sign of life with what the worker has in hand: extends those leases, and names those to drop. A lease that
    /// had expired lives on unless the task has ended or two others have it.
    pub fn heartbeat(&mut self, now: Time, worker: &WorkerName, held: &[LeaseId]) -> Pulse {
        let id = self.tables.see_worker(worker, now);
        let mut pulse = Pulse { abandon: Vec::new(), drain: self.is_draining(worker) };
        let deadline = now.after(self.config.lease);
        for lease in held {
            if !self.keep_alive(now, id, *lease, deadline) && !self.claim(worker, *lease) {
                pulse.abandon.push(*lease);
            }
        }
        self.expire(now);
        pulse
    }

    /// Extends, revives or adopts a lease; `false` if the worker shall drop it.
    fn keep_alive(&mut self, now: Time, worker: u32, lease: LeaseId, deadline: Time) -> bool {
        let Some((slot, entry)) = self.tables.find(lease.task) else { return false };
        let has_room = entry.state.is_open()
            && entry.live() < 2
            && !entry.held.iter().any(|h| h.worker == worker && h.hold == Hold::Live);
        match entry.held_by(lease.attempt, worker).map(|held| held.hold) {
            Some(Hold::Live) => {
                self.tables.extend(slot, lease.attempt, deadline);
                true
            }
            Some(Hold::Ended(Cause::Died | Cause::Lost)) if has_room => {
                sure(self.tables.revive(now, lease.task, lease.attempt));
                true
            }
            None if has_room && self.is_anothers(lease.attempt) => {
                self.tables.adopt(now, lease.task, lease.attempt, worker)
            }
            _ => false,
        }
    }

    fn is_anothers(&self, attempt: Attempt) -> bool {
        attempt.epoch() != self.epoch
    }

    /// Notes a lease of another coordinator while it is not known what is open; `false` if that is known.
    fn claim(&mut self, worker: &WorkerName, lease: LeaseId) -> bool {
        let unknown = self.tables.find(lease.task).is_none() && self.is_anothers(lease.attempt);
        let Some(claims) = self.claims.as_mut().filter(|_| unknown) else { return false };
        if claims.len() < self.config.max_tasks {
            claims.insert(lease.task, (worker.clone(), lease.attempt));
        }
        true
    }

    /// Takes the end of a lease from its worker. Sending it again changes nothing.
    pub fn report(&mut self, now: Time, worker: &WorkerName, report: Report) -> Receipt {
        let receipt = self.judge(now, worker, report);
        match receipt {
            Receipt::Duplicate => self.tables.counters.duplicates += 1,
            Receipt::Refused => self.tables.counters.refused += 1,
            Receipt::Accepted | Receipt::Noted | Receipt::Rejected | Receipt::Waiting => {}
        }
        receipt
    }

    fn judge(&mut self, now: Time, worker: &WorkerName, report: Report) -> Receipt {
        let Report { task, attempt, outcome } = report;
        if self.claim(worker, LeaseId { task, attempt }) {
            return Receipt::Waiting;
        }
        let Some((_, entry)) = self.tables.find(task) else { return Receipt::Duplicate };
        let is_anothers = self.is_anothers(attempt);
        if is_anothers && entry.state.is_open() {
            // What a worker finished under the coordinator before counts whoever has the task now.
            let id = self.tables.see_worker(worker, now);
            self.tables.adopt(now, task, attempt, id);
        }
        let Some((_, entry)) = self.tables.find(task) else { return Receipt::Duplicate };
        let held = self.tables.worker_id(worker).and_then(|id| entry.held_by(attempt, id));
        let Some(held) = held else {
            let is_over = is_anothers && !entry.state.is_open();
            return if is_over { Receipt::Duplicate } else { Receipt::Refused };
        };
        let (state, hold) = (entry.state, held.hold);
        self.tables.see_worker(worker, now);
        let expired = matches!(hold, Hold::Live | Hold::Ended(Cause::Died | Cause::Lost));
        match outcome {
            Outcome::Done(outcome) if state.is_open() && expired => {
                sure(self.tables.done(task, attempt, outcome));
                Receipt::Accepted
            }
            Outcome::Failed(message) if hold == Hold::Live => {
                self.end(LeaseId { task, attempt }, Cause::Failed, message);
                Receipt::Noted
            }
            Outcome::Returned if hold == Hold::Live => {
                self.end(LeaseId { task, attempt }, Cause::Returned, String::new());
                Receipt::Noted
            }
            _ => Receipt::Duplicate,
        }
    }

    /// Ends all leases of a worker whose process is known to be dead, without waiting for their deadlines.
    pub fn worker_died(&mut self, worker: &WorkerName, reason: &str) {
        let Some(w) = self.tables.worker_id(worker).and_then(|id| self.tables.workers.get(&id)) else {
            return;
        };
        let held: BTreeSet<(u32, Attempt)> =
            w.leases.iter().map(|(slot, attempt)| (*slot, *attempt)).collect();
        for (slot, attempt) in held.into_iter().rev() {
            let Some(task) = self.tables.entry(slot).map(|e| e.id) else { continue };
            self.end(LeaseId { task, attempt }, Cause::Died, reason.to_owned());
        }
    }

    /// Ends the leases whose deadline has passed.
    pub fn expire(&mut self, now: Time) {
        while let Some(worker) = self.tables.next_alarm(now) {
            let slots = self.tables.expired(worker, now);
            let Some(w) = self.tables.workers.get(&worker) else { continue };
            let silent = now.since(w.last_seen);
            let dead = silent >= self.config.lease;
            let (cause, message) = if dead {
                (Cause::Died, format!("not heard of for {:.1} s", silent.as_secs_f64()))
            } else {
                (Cause::Lost, String::new())
            };
            let leases: Vec<(u32, Attempt)> =
                slots.iter().filter_map(|slot| Some((*slot, *w.leases.get(slot)?))).collect();
            for (slot, attempt) in leases.into_iter().rev() {
                let Some(task) = self.tables.entry(slot).map(|e| e.id) else { continue };
                self.end(LeaseId { task, attempt }, cause, message.clone());
            }
            self.tables.rearm(worker, now);
        }
    }

    /// The first moment at which [`Board::expire`] may have something to do.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        self.tables.first_alarm()
    }

    fn end(&mut self, lease: LeaseId, cause: Cause, message: String) {
        sure(self.tables.end(lease.task, lease.attempt, cause, &message));
        self.quarantine_if_due(lease.task);
    }

    fn quarantine_if_due(&mut self, task: TaskId) {
        let Some((_, entry)) = self.tables.find(task) else { return };
        let broken = entry.deaths >= self.config.max_attempts.max(1);
        let circling = entry.next_attempt > self.config.max_leases.min(Attempt::MOST - 1);
        if entry.state == State::Pending && (broken || circling) {
            sure(self.tables.quarantine(task));
        }
    }

    // Views

    /// Number of tasks on the board, open or ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether the board holds no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.len() == 0
    }

    /// Number of open tasks of a kind.
    #[must_use]
    pub fn open(&self, kind: &TaskKind) -> usize {
        self.tables.kind_index(kind).map_or(0, |index| self.tables.kinds[index].open())
    }

    /// How many pending tasks of a kind may be leased now; counts at most `limit`. Looks at nothing else.
    #[must_use]
    pub fn pending(&self, kind: &TaskKind, limit: usize) -> usize {
        let Some(index) = self.tables.kind_index(kind) else { return 0 };
        if self.drain || self.holds_back(kind) {
            0
        } else {
            self.tables.kinds[index].pending_count.min(limit)
        }
    }

    /// Number of ended tasks, of one kind or of any, that the consumer has not been given yet.
    #[must_use]
    pub fn undelivered(&self, kind: Option<&TaskKind>) -> usize {
        self.tables
            .kinds
            .iter()
            .filter(|k| kind.is_none_or(|kind| k.kind == *kind))
            .map(|k| k.finished_count)
            .sum()
    }

    /// Whether a worker gets no more leases and shall leave.
    #[must_use]
    pub fn is_draining(&self, worker: &WorkerName) -> bool {
        let worker = self.tables.worker_id(worker).and_then(|id| self.tables.workers.get(&id));
        self.drain || worker.is_some_and(|w| w.drain)
    }

    /// A task's ending, if it is on the board and has ended.
    #[must_use]
    pub fn ending(&self, task: TaskId) -> Option<&Ending> {
        self.tables.find(task)?.1.ending.as_deref()
    }

    /// Whether a task is on the board.
    #[must_use]
    pub fn contains(&self, task: TaskId) -> bool {
        self.tables.find(task).is_some()
    }

    /// Numbers for people and monitors. Looks at all workers.
    #[must_use]
    pub fn status(&self, now: Time) -> BoardStatus {
        let oldest = |single: &BTreeSet<(Time, u32)>| {
            single.first().map(|(started, _)| now.since(*started).as_secs_f64())
        };
        let kinds = self.tables.kinds.iter().map(|k| KindStatus {
            kind: k.kind.clone(),
            pending: k.pending_count,
            leased: k.leased_count,
            undelivered: k.finished_count,
            held_back: self.holds_back(&k.kind),
            longest_running_s: oldest(&k.single),
        });
        let mut workers: Vec<WorkerStatus> = self
            .tables
            .workers
            .values()
            .map(|w| WorkerStatus {
                worker: w.name.clone(),
                leases: w.leases.len(),
                silent_s: now.since(w.last_seen).as_secs_f64(),
                draining: self.drain || w.drain,
                done: w.done,
                failed: w.failed,
                last_error: w.last_error.clone(),
            })
            .collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        BoardStatus {
            tasks: self.tables.len(),
            draining: self.drain,
            kinds: kinds.collect(),
            workers,
            counters: self.tables.counters,
        }
    }

    /// How many of each thing happened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.tables.counters
    }

    /// Whether this lease gave the task the outcome that the consumer has not taken off the board yet.
    #[must_use]
    pub fn is_unsettled(&self, worker: &WorkerName, lease: LeaseId) -> bool {
        matches!(self.ending(lease.task),
            Some(Ending::Done { worker: whose, attempt, .. }) if *attempt == lease.attempt && whose == worker)
    }

    /// Whether the consumer could not use the outcome of this lease.
    #[must_use]
    pub fn was_rejected(&self, worker: &WorkerName, lease: LeaseId) -> bool {
        let Some((_, entry)) = self.tables.find(lease.task) else { return false };
        let held = self.tables.worker_id(worker).and_then(|id| entry.held_by(lease.attempt, id));
        held.is_some_and(|held| held.hold == Hold::Ended(Cause::Rejected))
    }
}

/// The board has checked what its tables ask for. If they still refuse, its books are wrong, and going on would hand out
/// or lose work by chance.
fn sure(applied: Result<(), &'static str>) {
    assert_eq!(applied, Ok(()), "a decision of the board does not fit its state");
}
