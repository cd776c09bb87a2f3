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
//! - **Suspects.** That a worker is gone says nothing of the tasks that it held. A task that was there when four were lost,
//!   or that is one failed attempt short of quarantine, is a suspect: it is leased to a worker that holds nothing else
//!   and gets nothing else meanwhile, and is never copied. Only what ends a worker alone, again and again, is given up.
//! - **Others first.** A worker does not get again what it has failed while another is there to try. One that only fails
//!   pauses, each time for longer.
//! - **Second opinions.** A task may be submitted for everybody but one worker, whose name never holds it, however alone it is.
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
    Attempt, Cause, End, Ending, Epoch, Finished, Lease, LeaseId, Outcome, Receipt, Report, Task, TaskId,
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
    /// After so many failed attempts (crashes, reported failures, rejected outcomes), or after so many workers lost that
    /// held it as a suspect and nothing else, a task is quarantined. Default 3.
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
    /// The kind that waits.
    pub hold: TaskKind,
    /// The kind that piles up.
    pub while_open: TaskKind,
    /// Open tasks of `while_open` from which `hold` waits.
    pub limit: usize,
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
    /// When time was last looked at, and for how long workers have held tasks since the last outcome.
    stall: (Time, Duration),
    /// Leases of another coordinator, named before the consumer has submitted what is open; `None` from then on.
    claims: Option<HashMap<TaskId, (WorkerName, Attempt)>>,
    drain: bool,
}

impl Board {
    /// An empty board of new work.
    #[must_use]
    pub fn new(config: BoardConfig) -> Self {
        let tables = Tables::new(config.lease, config.max_attempts.max(1));
        let stall = (Time::default(), Duration::ZERO);
        Self { config, epoch: Epoch::default(), tables, stall, claims: None, drain: false }
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
        self.submit_barring(now, task, None)
    }

    /// [`Board::submit`], for everybody but `barred`: what one worker has answered, and another shall be asked.
    ///
    /// # Errors
    /// As [`Board::submit`].
    pub fn submit_barring(
        &mut self,
        now: Time,
        task: Task,
        barred: Option<WorkerName>,
    ) -> Result<bool, SubmitError> {
        if let Some((_, entry)) = self.tables.find(task.id) {
            let same =
                self.tables.kinds[usize::from(entry.kind)].kind == task.kind && entry.payload == task.payload;
            return if same { Ok(false) } else { Err(SubmitError::Conflict(task.id)) };
        }
        if self.tables.len() >= self.config.max_tasks {
            return Err(SubmitError::Full { task: task.id, limit: self.config.max_tasks });
        }
        let Task { id, kind, priority, payload } = task;
        sure(self.tables.submit(id, &kind, priority, payload, barred));
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
    pub fn reject(&mut self, now: Time, task: TaskId, reason: &str) -> bool {
        let done = self.tables.find(task).is_some_and(|(_, e)| e.state == State::Done);
        if done {
            sure(self.tables.reopen(now, task, reason));
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
        let Some(index) = self.tables.kind_index(kind) else { return Vec::new() };
        if let Some(w) = self.tables.workers.get_mut(&id) {
            w.asks_for = Some(index);
        }
        let room = capacity.min(self.room_of(now, id));
        if self.drain || self.holds_back(kind) {
            return Vec::new();
        }
        let mut leases = Vec::with_capacity(room.min(self.tables.kinds[index].pending_count));
        while leases.len() < room {
            let Some(slot) = self.tables.next_pending(now, index, id) else { break };
            leases.extend(self.grant(now, worker, kind, slot));
        }
        let is_occupied = self.tables.workers.get(&id).is_some_and(|w| w.is_occupied);
        if self.tables.kinds[index].pending_count == 0 && !is_occupied {
            for slot in self.worth_copying(now, index, room - leases.len(), id) {
                leases.extend(self.grant(now, worker, kind, slot));
            }
        }
        leases
    }

    /// How many more leases a worker may hold now.
    fn room_of(&self, now: Time, worker: u32) -> usize {
        match self.tables.workers.get(&worker) {
            Some(w) if !w.drain && !w.is_occupied && w.benched.0 <= now => {
                self.config.max_leases_per_worker.saturating_sub(w.leases.len())
            }
            _ => 0,
        }
    }

    /// Whether a worker that asks for this kind now would get something.
    pub fn has_work_for(&mut self, now: Time, worker: &WorkerName, kind: &TaskKind) -> bool {
        let Some(index) = self.tables.kind_index(kind) else { return false };
        let Some(id) = self.tables.worker_id(worker) else { return false };
        if self.drain || self.holds_back(kind) || self.room_of(now, id) == 0 {
            return false;
        }
        match self.tables.kinds[index].pending_count {
            0 => !self.worth_copying(now, index, 1, id).is_empty(),
            _ => self.tables.next_pending(now, index, id).is_some(),
        }
    }

    fn grant(&mut self, now: Time, worker: &WorkerName, kind: &TaskKind, slot: u32) -> Option<Lease> {
        let entry = self.tables.entry(slot)?;
        let (task, payload) = (entry.id, entry.payload.clone());
        let attempt = self.epoch.attempt(entry.next_attempt);
        sure(self.tables.grant(now, task, attempt, worker));
        Some(Lease { task, attempt, kind: kind.clone(), payload })
    }

    /// Slots of running tasks that may be copied, longest-running first, except those of `worker` itself.
    fn worth_copying(&self, now: Time, kind: usize, room: usize, worker: u32) -> Vec<u32> {
        let Some(rule) = &self.config.speculation else { return Vec::new() };
        let own = self.tables.workers.get(&worker).map(|w| &w.leases);
        let old_enough = |started: Time| now.since(started) >= rule.min_age;
        let running = self.tables.kinds[kind].single.iter().take_while(|(started, _)| old_enough(*started));
        running
            .map(|(_, slot)| *slot)
            .filter(|slot| own.is_none_or(|own| !own.contains_key(slot)))
            .filter(|slot| {
                self.tables.entry(*slot).is_some_and(|e| !e.is_suspect(self.config.max_attempts.max(1)))
            })
            .filter(|slot| self.tables.may_have(now, *slot, worker))
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
                self.stall = (now, Duration::ZERO);
                Receipt::Accepted
            }
            Outcome::Failed(message) if hold == Hold::Live => {
                self.end(now, LeaseId { task, attempt }, Cause::Failed, message);
                Receipt::Noted
            }
            Outcome::Returned if hold == Hold::Live => {
                self.end(now, LeaseId { task, attempt }, Cause::Returned, String::new());
                Receipt::Noted
            }
            _ => Receipt::Duplicate,
        }
    }

    /// Ends all leases of a worker whose process has ended, without waiting for their deadlines.
    pub fn worker_ended(&mut self, now: Time, worker: &WorkerName, end: End, reason: &str) {
        if let Some(claims) = &mut self.claims {
            claims.retain(|_, (claimant, _)| claimant != worker);
        }
        let Some(w) = self.tables.worker_id(worker).and_then(|id| self.tables.workers.get(&id)) else {
            return;
        };
        let cause = match end {
            // It gave back what it knew of.
            End::Well => Cause::Lost,
            End::Crashed => Cause::Crashed,
            End::Gone => Cause::Died,
        };
        let held: BTreeSet<(u32, Attempt)> =
            w.leases.iter().map(|(slot, attempt)| (*slot, *attempt)).collect();
        for (slot, attempt) in held.into_iter().rev() {
            let Some(task) = self.tables.entry(slot).map(|e| e.id) else { continue };
            self.end(now, LeaseId { task, attempt }, cause, reason.to_owned());
        }
    }

    /// Ends the leases whose deadline has passed.
    pub fn expire(&mut self, now: Time) {
        self.stall = (now, self.stalled(now));
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
                self.end(now, LeaseId { task, attempt }, cause, message.clone());
            }
            self.tables.rearm(worker, now);
        }
    }

    /// For how long workers have held tasks since the last outcome.
    fn stalled(&self, now: Time) -> Duration {
        let (since, stalled) = self.stall;
        let at_work = self.tables.kinds.iter().any(|k| k.leased_count > 0);
        if at_work { stalled + now.since(since) } else { stalled }
    }

    fn end(&mut self, now: Time, lease: LeaseId, cause: Cause, message: String) {
        sure(self.tables.end(now, lease.task, lease.attempt, cause, &message));
        self.quarantine_if_due(lease.task);
    }

    fn quarantine_if_due(&mut self, task: TaskId) {
        let Some((_, entry)) = self.tables.find(task) else { return };
        let broken = entry.is_beyond_hope(self.config.max_attempts.max(1));
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
                benched_s: w.benched.0.since(now).as_secs_f64(),
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
            stalled_s: self.stalled(now).as_secs_f64(),
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
