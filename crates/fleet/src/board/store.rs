//! Tasks, leases and workers of the board, and the operations that keep them consistent. [`super::Board`] decides which
//! operations to apply.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::queue::{PendingQueues, QueueEnd, QueuedTask, Restriction};
use crate::task::{
    AttemptFailure, AttemptId, Cause, Payload, TaskId, TaskResult, Time, WorkKind, WorkerName, shortened,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Pending,
    Leased,
    Done,
    Quarantined,
}

impl TaskState {
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Leased)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    Live,
    Ended(Cause),
    /// The task ended while this lease was live.
    Superseded,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRecord {
    pub attempt: AttemptId,
    pub worker: u32,
    pub started: Time,
    pub deadline: Time,
    pub state: LeaseState,
    /// Whether this board granted it. A reclaimed lease is known only from the worker that names it.
    pub granted: bool,
    /// Whether the task is a suspect and its worker holds nothing else.
    pub alone: bool,
}

#[derive(Debug)]
pub(super) struct TaskEntry {
    pub id: TaskId,
    pub kind: u16,
    pub state: TaskState,
    pub priority: i32,
    pub payload: Payload,
    /// The worker that never gets the task.
    pub excluded: Option<WorkerName>,
    /// Changes whenever the task leaves a queue, which makes its old entry there stale.
    pub ticket: u64,
    /// Failed attempts that count towards quarantine.
    pub faults: u32,
    /// Granted leases that ended because the worker died.
    pub deaths: u32,
    /// Those of `deaths` in which the worker held nothing else.
    pub deaths_alone: u32,
    pub next_attempt: u32,
    pub leases: Vec<LeaseRecord>,
    pub failures: Vec<AttemptFailure>,
    pub result: Option<Box<TaskResult>>,
}

impl TaskEntry {
    pub fn live(&self) -> usize {
        self.leases.iter().filter(|l| l.state == LeaseState::Live).count()
    }

    /// Returns true if the task may be the cause of its workers' deaths: it is one failed attempt short of quarantine, or
    /// dead workers held it repeatedly.
    pub fn is_suspect(&self, max_attempts: u32) -> bool {
        let is_nearly_exhausted = !self.failures.is_empty() && self.faults.saturating_add(1) >= max_attempts;
        is_nearly_exhausted || self.deaths >= SUSPICIOUS_DEATHS
    }

    /// Returns true if the task must not be leased again.
    pub fn is_exhausted(&self, max_attempts: u32) -> bool {
        self.faults >= max_attempts || self.deaths_alone >= max_attempts
    }

    pub fn was_failed_by(&self, worker: &WorkerName) -> bool {
        self.failures.iter().any(|f| f.cause != Cause::Died && f.worker == *worker)
    }

    /// Returns the restriction of the queue that the task belongs in.
    fn restriction(&self) -> Restriction {
        let failure = self.failures.iter().find(|f| f.cause != Cause::Died);
        match (&self.excluded, failure) {
            (Some(excluded), _) => Restriction::Excluded(excluded.clone()),
            (None, Some(failure)) => Restriction::Failed(failure.worker.clone()),
            (None, None) => Restriction::None,
        }
    }

    pub fn lease_of(&self, attempt: AttemptId, worker: u32) -> Option<&LeaseRecord> {
        self.leases.iter().find(|l| l.attempt == attempt && l.worker == worker)
    }

    /// Returns true if this worker may hold one more live lease of the task: at most two workers share a task.
    pub fn has_room_for(&self, worker: u32) -> bool {
        let holds = |l: &LeaseRecord| l.worker == worker && l.state == LeaseState::Live;
        self.state.is_open() && self.live() < 2 && !self.leases.iter().any(holds)
    }

    /// Adds a lease that is not live yet, and forgets the oldest ended lease if there are many.
    fn add_lease(&mut self, attempt: AttemptId, worker: u32, now: Time, granted: bool) {
        if self.leases.len() >= REMEMBERED_LEASES
            && let Some(oldest) = self.leases.iter().position(|l| l.state != LeaseState::Live)
        {
            self.leases.remove(oldest);
        }
        // An outcome is accepted from an expired lease, too, so a reclaimed lease begins as one.
        let state = if granted { LeaseState::Superseded } else { LeaseState::Ended(Cause::Lost) };
        self.leases.push(LeaseRecord {
            attempt,
            worker,
            started: now,
            deadline: now,
            state,
            granted,
            alone: false,
        });
    }
}

/// The board's view of a worker.
#[derive(Debug)]
pub(super) struct WorkerEntry {
    pub name: WorkerName,
    pub last_seen: Time,
    /// When to check this worker's leases next. An alarm in the heap with another time is stale.
    alarm: Time,
    /// Live leases: the task's slot, and the attempt.
    pub leases: FxHashMap<u32, AttemptId>,
    /// Index of the kind that the worker last asked for.
    pub asks_for: Option<usize>,
    /// Whether the worker holds a suspect and therefore gets nothing else.
    pub is_occupied: bool,
    /// Failures since its last outcome that the consumer kept.
    pub consecutive_failures: u32,
    /// The worker gets no work before this time.
    pub backoff_until: Time,
    /// Length of the last back-off.
    backoff: Duration,
    pub done: u64,
    pub failed: u64,
    pub last_error: Option<String>,
}

impl WorkerEntry {
    /// Counts a failure. After several in a row, the worker backs off, each time for longer.
    fn back_off_if_due(&mut self, now: Time) {
        self.consecutive_failures += 1;
        if self.consecutive_failures >= BACK_OFF_AFTER && self.backoff_until <= now {
            self.backoff = (2 * self.backoff).clamp(BACK_OFF.0, BACK_OFF.1);
            self.backoff_until = now.after(self.backoff);
        }
    }

    fn reset_backoff(&mut self) {
        self.consecutive_failures = 0;
        self.backoff_until = Time::default();
        self.backoff = Duration::ZERO;
    }
}

/// Queues and counts of one kind of work.
#[derive(Debug)]
pub(super) struct KindQueues {
    pub kind: WorkKind,
    pub pending: PendingQueues,
    /// Pending tasks that are suspects.
    pub suspects: PendingQueues,
    pub pending_count: usize,
    pub suspect_count: usize,
    pub leased_count: usize,
    /// Tasks with exactly one live lease, longest-running first: the candidates for a copy.
    pub single: BTreeSet<(Time, u32)>,
    /// Ended tasks that the consumer has not taken yet.
    pub finished_count: usize,
}

impl KindQueues {
    pub fn open(&self) -> usize {
        self.pending_count + self.leased_count
    }
}

/// Counts of the board's events since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BoardCounters {
    /// Tasks submitted.
    pub submitted: u64,
    /// Tasks done.
    pub done: u64,
    /// Tasks quarantined.
    pub quarantined: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Leases granted, including copies.
    pub leases: u64,
    /// Leases that were speculative copies.
    pub copies: u64,
    /// Leases that ended because their worker died.
    pub died: u64,
    /// Leases that ended because their worker's process crashed.
    #[serde(default)]
    pub crashed: u64,
    /// Leases that the worker reported as failed.
    pub failed: u64,
    /// Outcomes that the consumer rejected.
    pub rejected: u64,
    /// Leases whose grant never reached the worker.
    pub lost: u64,
    /// Leases that the worker returned.
    pub returned: u64,
    /// Expired leases that became live again.
    pub revived: u64,
    /// Leases of an earlier coordinator that were reclaimed.
    #[serde(default, rename = "adopted")]
    pub reclaimed: u64,
    /// Outcomes accepted after their lease had expired.
    pub late: u64,
    /// Reports of leases that had already ended.
    pub duplicates: u64,
    /// Reports of leases that the sender never held.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct TaskStore {
    lease_time: Duration,
    max_attempts: u32,
    max_leases_per_worker: usize,
    slots: Vec<Option<TaskEntry>>,
    free: Vec<u32>,
    by_id: FxHashMap<TaskId, u32>,
    pub kinds: Vec<KindQueues>,
    /// Ended tasks for the consumer, in the order in which they ended.
    finished: VecDeque<QueuedTask>,
    pub workers: FxHashMap<u32, WorkerEntry>,
    worker_ids: HashMap<WorkerName, u32>,
    next_worker: u32,
    alarms: BinaryHeap<Reverse<(Time, u32)>>,
    next_ticket: u64,
    pub counters: BoardCounters,
    /// Bytes of the outcomes on the board.
    pub held_bytes: usize,
}

/// How long a worker without leases is remembered.
const REMEMBERED_WORKER: Duration = Duration::from_secs(3600);
/// Leases that are remembered per task, to accept outcomes that arrive late.
const REMEMBERED_LEASES: usize = 16;
/// Maximum number of failed attempts remembered per task: the latest. Without a limit, workers under many names could
/// report any number.
const REMEMBERED_FAILURES: usize = 16;
/// A task becomes a suspect after this many deaths of workers that held it. Fewer deaths are probably accidents. A
/// worker holds many tasks, and each of them would then need its own worker.
const SUSPICIOUS_DEATHS: u32 = 4;
/// A worker backs off after this many failures in a row.
const BACK_OFF_AFTER: u32 = 5;
/// The shortest and the longest back-off of a worker. Each is twice as long as the previous one.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// A lease request skips at most this many tasks of a queue that the worker must not take.
const MAX_SKIPPED: usize = 64;

impl TaskStore {
    pub fn new(lease_time: Duration, max_attempts: u32, max_leases_per_worker: usize) -> Self {
        Self { lease_time, max_attempts, max_leases_per_worker, ..Self::default() }
    }

    // Queries

    pub fn find(&self, task: TaskId) -> Option<(u32, &TaskEntry)> {
        let slot = *self.by_id.get(&task)?;
        Some((slot, self.entry(slot)))
    }

    /// Returns a task that is on the board.
    fn known(&self, task: TaskId) -> (u32, &TaskEntry) {
        occupied(self.find(task))
    }

    pub fn entry(&self, slot: u32) -> &TaskEntry {
        occupied(self.slots[slot as usize].as_ref())
    }

    fn entry_mut(&mut self, slot: u32) -> &mut TaskEntry {
        occupied(self.slots[slot as usize].as_mut())
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn kind_index(&self, kind: &WorkKind) -> Option<usize> {
        self.kinds.iter().position(|k| k.kind == *kind)
    }

    pub fn worker_id(&self, name: &WorkerName) -> Option<u32> {
        self.worker_ids.get(name).copied()
    }

    fn worker_named(&mut self, name: &WorkerName) -> Option<&mut WorkerEntry> {
        self.worker_ids.get(name).and_then(|id| self.workers.get_mut(id))
    }

    fn is_current(slots: &[Option<TaskEntry>], queued: QueuedTask) -> bool {
        matches!(slots.get(queued.slot as usize), Some(Some(e)) if e.ticket == queued.ticket)
    }

    /// Returns the next pending task of a kind for this worker. A suspect is returned only if the worker holds nothing.
    pub fn next_pending(&mut self, now: Time, kind: usize, worker: u32) -> Option<u32> {
        let w = self.workers.get(&worker)?;
        if w.is_occupied {
            return None;
        }
        let (slots, workers, lease_time) = (&self.slots, &self.workers, self.lease_time);
        let is_current = |queued| Self::is_current(slots, queued);
        let fits = |queued: QueuedTask| {
            may_have(workers, lease_time, now, occupied(slots[queued.slot as usize].as_ref()), worker)
        };
        let k = &mut self.kinds[kind];
        let suspect = match w.leases.is_empty() {
            true => k.suspects.first(&w.name, is_current, fits, MAX_SKIPPED),
            false => None,
        };
        suspect.or_else(|| k.pending.first(&w.name, is_current, fits, MAX_SKIPPED)).map(|queued| queued.slot)
    }

    /// Returns true if this worker may have this task: it is not excluded, and has not failed the task unless no other
    /// worker can take it.
    pub fn may_have(&self, now: Time, slot: u32, worker: u32) -> bool {
        may_have(&self.workers, self.lease_time, now, self.entry(slot), worker)
    }

    /// Returns true if this worker may hold another lease.
    pub fn has_hands_free(&self, worker: u32) -> bool {
        self.workers.get(&worker).is_some_and(|w| w.leases.len() < self.max_leases_per_worker)
    }

    /// Takes the next ended task from the delivery queue.
    pub fn next_finished(&mut self) -> Option<u32> {
        while let Some(queued) = self.finished.pop_front() {
            if Self::is_current(&self.slots, queued) {
                let kind = usize::from(self.entry(queued.slot).kind);
                self.kinds[kind].finished_count -= 1;
                return Some(queued.slot);
            }
        }
        None
    }

    /// Returns the number of ended tasks that the consumer has not taken yet.
    pub fn undelivered(&self) -> usize {
        self.kinds.iter().map(|k| k.finished_count).sum()
    }

    // Workers

    /// Returns the worker of this name, after noting that it was seen. Adds it if it is unknown.
    pub fn see_worker(&mut self, name: &WorkerName, now: Time) -> u32 {
        if let Some(&id) = self.worker_ids.get(name)
            && let Some(worker) = self.workers.get_mut(&id)
        {
            worker.last_seen = worker.last_seen.max(now);
            return id;
        }
        let id = self.next_worker;
        self.next_worker += 1;
        let alarm = now.after(REMEMBERED_WORKER);
        let worker = WorkerEntry {
            name: name.clone(),
            last_seen: now,
            alarm,
            leases: FxHashMap::default(),
            asks_for: None,
            is_occupied: false,
            consecutive_failures: 0,
            backoff_until: Time::default(),
            backoff: Duration::ZERO,
            done: 0,
            failed: 0,
            last_error: None,
        };
        self.workers.insert(id, worker);
        self.worker_ids.insert(name.clone(), id);
        self.alarms.push(Reverse((alarm, id)));
        id
    }

    /// Returns a worker whose leases may have expired.
    pub fn next_alarm(&mut self, now: Time) -> Option<u32> {
        while let Some(&Reverse((time, id))) = self.alarms.peek() {
            if time > now {
                return None;
            }
            self.alarms.pop();
            if self.workers.get(&id).is_some_and(|w| w.alarm == time) {
                return Some(id);
            }
        }
        None
    }

    /// Returns a worker's leases that are past their deadline, in order of slot.
    pub fn expired(&self, worker: u32, now: Time) -> Vec<(u32, AttemptId)> {
        let leases = self.workers.get(&worker).into_iter().flat_map(|w| &w.leases);
        let mut expired: Vec<(u32, AttemptId)> =
            leases.map(|(s, a)| (*s, *a)).filter(|(s, a)| self.deadline(*s, *a) <= now).collect();
        expired.sort_unstable();
        expired
    }

    /// Sets a worker's next alarm to its first deadline, or forgets the worker if it has been idle for long.
    pub fn rearm(&mut self, worker: u32, now: Time) {
        let Some(w) = self.workers.get(&worker) else { return };
        let first = w.leases.iter().map(|(slot, attempt)| self.deadline(*slot, *attempt)).min();
        let alarm = first.unwrap_or(w.last_seen.after(REMEMBERED_WORKER));
        if first.is_none() && alarm <= now {
            if let Some(w) = self.workers.remove(&worker) {
                self.worker_ids.remove(&w.name);
            }
            return;
        }
        if let Some(w) = self.workers.get_mut(&worker) {
            w.alarm = alarm;
            self.alarms.push(Reverse((alarm, worker)));
        }
    }

    fn deadline(&self, slot: u32, attempt: AttemptId) -> Time {
        let lease = self.entry(slot).leases.iter().find(|l| l.attempt == attempt);
        lease.map_or(Time(0), |l| l.deadline)
    }

    /// Moves the deadline of a live lease.
    pub fn extend(&mut self, slot: u32, attempt: AttemptId, deadline: Time) {
        if let Some(lease) = self.entry_mut(slot).leases.iter_mut().find(|l| l.attempt == attempt) {
            lease.deadline = deadline;
        }
    }

    // Operations. Each panics if it does not fit the state: continuing with a corrupt state could lose tasks.

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    #[allow(clippy::expect_used, reason = "a program has a few kinds of work")]
    fn kind_or_new(&mut self, kind: &WorkKind) -> u16 {
        let index = self.kind_index(kind).unwrap_or_else(|| {
            self.kinds.push(KindQueues {
                kind: kind.clone(),
                pending: PendingQueues::default(),
                suspects: PendingQueues::default(),
                pending_count: 0,
                suspect_count: 0,
                leased_count: 0,
                single: BTreeSet::new(),
                finished_count: 0,
            });
            self.kinds.len() - 1
        });
        u16::try_from(index).expect("invariant: at most 65,536 kinds of work")
    }

    #[allow(clippy::expect_used, reason = "memory ends before the numbers of slots")]
    fn insert(&mut self, entry: TaskEntry) -> u32 {
        let id = entry.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("invariant: at most 2^32 tasks");
                self.slots.push(Some(entry));
                slot
            }
        };
        self.by_id.insert(id, slot);
        slot
    }

    pub fn submit(
        &mut self,
        id: TaskId,
        kind: &WorkKind,
        priority: i32,
        payload: Payload,
        excluded: Option<WorkerName>,
    ) {
        assert!(!self.by_id.contains_key(&id), "invariant: the task is not on the board");
        let kind = self.kind_or_new(kind);
        let slot = self.insert(TaskEntry {
            id,
            kind,
            state: TaskState::Pending,
            priority,
            payload,
            excluded,
            ticket: 0,
            faults: 0,
            deaths: 0,
            deaths_alone: 0,
            next_attempt: 1,
            leases: Vec::new(),
            failures: Vec::new(),
            result: None,
        });
        self.enqueue(slot, QueueEnd::Back);
        self.counters.submitted += 1;
    }

    /// Puts a task without a live lease into its queue.
    fn enqueue(&mut self, slot: u32, end: QueueEnd) {
        let ticket = self.ticket();
        let entry = occupied(self.slots[slot as usize].as_mut());
        entry.ticket = ticket;
        entry.state = TaskState::Pending;
        let kind = &mut self.kinds[usize::from(entry.kind)];
        let suspect = entry.is_suspect(self.max_attempts);
        let queue = if suspect { &mut kind.suspects } else { &mut kind.pending };
        queue.push(entry.restriction(), entry.priority, QueuedTask { slot, ticket }, end);
        kind.pending_count += 1;
        kind.suspect_count += usize::from(suspect);
    }

    /// Takes a pending task out of its queue.
    fn dequeue(&mut self, slot: u32) {
        let ticket = self.ticket();
        let max_attempts = self.max_attempts;
        let entry = self.entry_mut(slot);
        entry.ticket = ticket;
        let (kind, suspect) = (usize::from(entry.kind), entry.is_suspect(max_attempts));
        let slots = &self.slots;
        let kind = &mut self.kinds[kind];
        kind.pending_count -= 1;
        kind.suspect_count -= usize::from(suspect);
        let is_current = |queued| Self::is_current(slots, queued);
        kind.pending.compact(kind.pending_count - kind.suspect_count, is_current);
        kind.suspects.compact(kind.suspect_count, is_current);
    }

    /// Makes a lease live and updates queues, counts and its worker.
    fn activate(&mut self, now: Time, slot: u32, attempt: AttemptId) {
        let others = self.entry(slot).live();
        if others == 0 {
            self.dequeue(slot);
        }
        let deadline = now.after(self.lease_time);
        let entry = occupied(self.slots[slot as usize].as_mut());
        let kind = &mut self.kinds[usize::from(entry.kind)];
        if others == 0 {
            entry.state = TaskState::Leased;
            kind.leased_count += 1;
        }
        if let Some(other) = entry.leases.iter().find(|l| l.state == LeaseState::Live) {
            kind.single.remove(&(other.started, slot));
        }
        let suspect = entry.is_suspect(self.max_attempts);
        let Some(lease) = entry.leases.iter_mut().find(|l| l.attempt == attempt) else { return };
        lease.state = LeaseState::Live;
        lease.deadline = deadline;
        // A revived or reclaimed suspect may not be its worker's only task. In that case, the worker's death proves
        // nothing.
        lease.alone = suspect && self.workers.get(&lease.worker).is_some_and(|w| w.leases.is_empty());
        if others == 0 && !suspect {
            kind.single.insert((lease.started, slot));
        }
        if let Some(worker) = self.workers.get_mut(&lease.worker) {
            worker.leases.insert(slot, attempt);
            worker.is_occupied |= lease.alone;
            if deadline < worker.alarm {
                worker.alarm = deadline;
                self.alarms.push(Reverse((deadline, lease.worker)));
            }
        }
    }

    /// Ends a live lease and updates counts and its worker. The caller requeues or closes the task.
    fn deactivate(&mut self, slot: u32, attempt: AttemptId, state: LeaseState) {
        let entry = occupied(self.slots[slot as usize].as_mut());
        let suspect = entry.is_suspect(self.max_attempts);
        let Some(lease) = entry.leases.iter_mut().find(|l| l.attempt == attempt) else { return };
        let kind = &mut self.kinds[usize::from(entry.kind)];
        kind.single.remove(&(lease.started, slot));
        lease.state = state;
        if let Some(worker) = self.workers.get_mut(&lease.worker) {
            worker.leases.remove(&slot);
            worker.is_occupied &= !lease.alone;
        }
        let mut live = entry.leases.iter().filter(|l| l.state == LeaseState::Live);
        if let (Some(only), None) = (live.next(), live.next())
            && !suspect
        {
            kind.single.insert((only.started, slot));
        }
    }

    pub fn grant(&mut self, now: Time, id: TaskId, attempt: AttemptId, name: &WorkerName) {
        let (slot, entry) = self.known(id);
        assert!(entry.leases.iter().all(|l| l.attempt != attempt), "invariant: the attempt is new");
        let worker = self.see_worker(name, now);
        let entry = self.entry_mut(slot);
        assert!(entry.has_room_for(worker), "invariant: the task is open and has room for another lease");
        let copies = entry.live();
        entry.next_attempt += 1;
        entry.add_lease(attempt, worker, now, true);
        self.activate(now, slot, attempt);
        self.counters.leases += 1;
        self.counters.copies += u64::from(copies > 0);
    }

    /// Takes over a lease that an earlier coordinator granted. It becomes live if the task and the worker have room for it;
    /// otherwise it counts as expired, and its outcome is still accepted.
    ///
    /// Returns false if the task has ended, excludes the worker, was failed by it, or has another lease of this number.
    pub fn reclaim(&mut self, now: Time, id: TaskId, attempt: AttemptId, worker: u32) -> bool {
        let Some(slot) = self.by_id.get(&id).copied() else { return false };
        let has_hands_free = self.has_hands_free(worker);
        let Some(name) = self.workers.get(&worker).map(|w| &w.name) else { return false };
        let entry = occupied(self.slots[slot as usize].as_mut());
        let is_refused = entry.excluded.as_ref() == Some(name) || entry.was_failed_by(name);
        if is_refused || !entry.state.is_open() || entry.leases.iter().any(|l| l.attempt == attempt) {
            return false;
        }
        let has_room = has_hands_free && entry.has_room_for(worker);
        entry.add_lease(attempt, worker, now, false);
        if has_room {
            self.activate(now, slot, attempt);
        }
        self.counters.reclaimed += 1;
        true
    }

    pub fn end(&mut self, now: Time, id: TaskId, attempt: AttemptId, cause: Cause, message: &str) {
        let (slot, entry) = self.known(id);
        let lease = occupied(entry.leases.iter().find(|l| l.attempt == attempt));
        assert_eq!(lease.state, LeaseState::Live, "invariant: the lease has not ended");
        let (alone, granted) = (lease.alone, lease.granted);
        let worker = occupied(self.workers.get(&lease.worker)).name.clone();
        self.deactivate(slot, attempt, LeaseState::Ended(cause));
        if cause.counts() {
            let failure = AttemptFailure { attempt, worker, cause, message: shortened(message) };
            self.note_failure(now, slot, alone, granted, failure);
        }
        let entry = self.entry(slot);
        let (live, kind) = (entry.live(), usize::from(entry.kind));
        if live == 0 {
            self.kinds[kind].leased_count -= 1;
            self.enqueue(slot, QueueEnd::Front);
        }
        match cause {
            Cause::Died => self.counters.died += 1,
            Cause::Crashed => self.counters.crashed += 1,
            Cause::Failed => self.counters.failed += 1,
            Cause::Rejected => self.counters.rejected += 1,
            Cause::Lost => self.counters.lost += 1,
            Cause::Returned => self.counters.returned += 1,
        }
    }

    /// Records a failed attempt of a worker. Only a granted lease counts against the task, because a worker could
    /// otherwise quarantine tasks by naming leases that no coordinator gave it.
    fn note_failure(&mut self, now: Time, slot: u32, alone: bool, granted: bool, failure: AttemptFailure) {
        if let Some(w) = self.worker_named(&failure.worker) {
            w.failed += 1;
            w.last_error = Some(failure.message.clone());
            if matches!(failure.cause, Cause::Failed | Cause::Rejected) {
                w.back_off_if_due(now);
            }
        }
        let max_attempts = self.max_attempts;
        let entry = self.entry_mut(slot);
        match failure.cause {
            Cause::Died if !granted => return,
            _ if !granted => {}
            Cause::Died => {
                entry.deaths += 1;
                entry.deaths_alone += u32::from(alone);
            }
            // Any task of the worker may have caused the crash. The crash can make each of them a suspect, but it never
            // quarantines one.
            Cause::Crashed if !alone => entry.faults = (entry.faults + 1).min(max_attempts - 1),
            _ => entry.faults += 1,
        }
        if entry.failures.len() >= REMEMBERED_FAILURES {
            entry.failures.remove(0);
        }
        entry.failures.push(failure);
    }

    pub fn revive(&mut self, now: Time, id: TaskId, attempt: AttemptId) {
        let (slot, entry) = self.known(id);
        assert!(entry.state.is_open(), "invariant: the task is open");
        let lease = occupied(entry.leases.iter().find(|l| l.attempt == attempt));
        let LeaseState::Ended(cause @ (Cause::Died | Cause::Lost)) = lease.state else {
            unreachable!("invariant: the lease has expired")
        };
        let (worker, alone, granted) = (lease.worker, lease.alone, lease.granted);
        if cause == Cause::Died {
            if granted {
                // The death count decides which queue the task is in, so leave the queue before changing it.
                let is_pending = entry.live() == 0;
                if is_pending {
                    self.dequeue(slot);
                }
                let entry = self.entry_mut(slot);
                entry.deaths -= 1;
                entry.deaths_alone -= u32::from(alone);
                entry.failures.retain(|f| f.attempt != attempt);
                if is_pending {
                    self.enqueue(slot, QueueEnd::Front);
                }
            }
            if let Some(w) = self.workers.get_mut(&worker) {
                w.failed = w.failed.saturating_sub(1);
            }
        }
        self.activate(now, slot, attempt);
        self.counters.revived += 1;
    }

    /// Ends every live lease and takes the task out of its queue, before the task itself ends.
    fn close(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (state, kind) = (entry.state, usize::from(entry.kind));
        let live: Vec<AttemptId> =
            entry.leases.iter().filter(|l| l.state == LeaseState::Live).map(|l| l.attempt).collect();
        for attempt in live {
            self.deactivate(slot, attempt, LeaseState::Superseded);
        }
        match state {
            TaskState::Pending => self.dequeue(slot),
            TaskState::Leased => self.kinds[kind].leased_count -= 1,
            TaskState::Done | TaskState::Quarantined => {}
        }
    }

    /// Records a task's result and queues it for the consumer.
    fn finish(&mut self, slot: u32, state: TaskState, result: TaskResult) {
        let ticket = self.ticket();
        let entry = self.entry_mut(slot);
        entry.state = state;
        entry.ticket = ticket;
        entry.result = Some(Box::new(result));
        let kind = usize::from(entry.kind);
        self.kinds[kind].finished_count += 1;
        self.finished.push_back(QueuedTask { slot, ticket });
    }

    pub fn done(&mut self, id: TaskId, attempt: AttemptId, outcome: Payload) {
        let (slot, entry) = self.known(id);
        assert!(entry.state.is_open(), "invariant: the task is open");
        let lease = occupied(entry.leases.iter().find(|l| l.attempt == attempt));
        let late = lease.state != LeaseState::Live;
        let holder = lease.worker;
        let worker = occupied(self.workers.get_mut(&holder));
        worker.done += 1;
        let worker = worker.name.clone();
        self.close(slot);
        self.held_bytes += outcome.as_bytes().len();
        self.finish(slot, TaskState::Done, TaskResult::Done { outcome, worker, attempt });
        self.counters.done += 1;
        self.counters.late += u64::from(late);
    }

    pub fn quarantine(&mut self, id: TaskId) {
        let (slot, entry) = self.known(id);
        assert_eq!(entry.state, TaskState::Pending, "invariant: only a pending task is quarantined");
        let failures = entry.failures.clone();
        self.close(slot);
        self.finish(slot, TaskState::Quarantined, TaskResult::Quarantined { failures });
        self.counters.quarantined += 1;
    }

    /// Makes a done task pending again, because the consumer rejected its outcome.
    pub fn reopen(&mut self, now: Time, id: TaskId, message: &str) {
        let (slot, entry) = self.known(id);
        let Some(TaskResult::Done { attempt, worker, outcome }) = entry.result.as_deref() else {
            unreachable!("invariant: the task has an outcome")
        };
        let (attempt, worker, bytes) = (*attempt, worker.clone(), outcome.as_bytes().len());
        self.held_bytes -= bytes;
        self.undeliver(slot);
        let entry = self.entry_mut(slot);
        entry.result = None;
        let lease = occupied(entry.leases.iter_mut().find(|l| l.attempt == attempt));
        lease.state = LeaseState::Ended(Cause::Rejected);
        let granted = lease.granted;
        if let Some(w) = self.worker_named(&worker) {
            w.done = w.done.saturating_sub(1);
        }
        let failure = AttemptFailure { attempt, worker, cause: Cause::Rejected, message: shortened(message) };
        self.note_failure(now, slot, true, granted, failure);
        self.enqueue(slot, QueueEnd::Front);
        self.counters.rejected += 1;
        self.counters.done = self.counters.done.saturating_sub(1);
    }

    /// Takes an ended task from the delivery queue, if it is there.
    fn undeliver(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (kind, ticket) = (usize::from(entry.kind), entry.ticket);
        if entry.result.is_none() {
            return;
        }
        // Tasks end in the order of their tickets, so binary search finds the entry.
        if let Ok(at) = self.finished.binary_search_by_key(&ticket, |queued| queued.ticket)
            && self.finished.get(at).is_some_and(|queued| queued.slot == slot)
        {
            self.kinds[kind].finished_count -= 1;
        }
        self.entry_mut(slot).ticket = self.ticket();
        let slots = &self.slots;
        if self.finished.len() > 2 * self.undelivered() + 1024 {
            self.finished.retain(|queued| Self::is_current(slots, *queued));
        }
    }

    pub fn remove(&mut self, id: TaskId) {
        let (slot, entry) = self.known(id);
        let open = entry.state.is_open();
        // A worker's back-off ends only with an outcome that the consumer kept, because an outcome that was only
        // reported may still be rejected.
        if let Some(TaskResult::Done { worker, outcome, .. }) = entry.result.as_deref() {
            let (worker, bytes) = (worker.clone(), outcome.as_bytes().len());
            self.held_bytes -= bytes;
            if let Some(worker) = self.worker_named(&worker) {
                worker.reset_backoff();
            }
        }
        self.close(slot);
        self.undeliver(slot);
        self.by_id.remove(&id);
        self.slots[slot as usize] = None;
        self.free.push(slot);
        self.counters.cancelled += u64::from(open);
    }
}

/// See [`TaskStore::may_have`].
fn may_have(
    workers: &FxHashMap<u32, WorkerEntry>,
    lease_time: Duration,
    now: Time,
    entry: &TaskEntry,
    worker: u32,
) -> bool {
    let Some(w) = workers.get(&worker) else { return false };
    let could_try = |(id, other): (&u32, &WorkerEntry)| {
        *id != worker
            && other.asks_for == Some(usize::from(entry.kind))
            && other.backoff_until <= now
            && now.since(other.last_seen) < lease_time
            && !entry.was_failed_by(&other.name)
            && entry.excluded.as_ref() != Some(&other.name)
    };
    entry.excluded.as_ref() != Some(&w.name)
        && (!entry.was_failed_by(&w.name) || !workers.iter().any(could_try))
}

#[allow(clippy::expect_used, reason = "queues, leases and ids refer only to what exists")]
fn occupied<T>(entry: Option<T>) -> T {
    entry.expect("invariant: a reference leads to a task, a lease or a worker")
}
