//! The board's books, and the changes that keep them in order. What is to change is decided in [`super::Board`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::queue::{End, KeptFrom, Pending, Place};
use crate::task::{Attempt, Cause, Ending, Failure, Payload, TaskId, TaskKind, Time, WorkerName};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Leased,
    Done,
    Quarantined,
}

impl State {
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Leased)
    }
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Live,
    Ended(Cause),
    /// The task ended while this lease was live.
    Over,
}

/// One lease of a task.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub attempt: Attempt,
    pub worker: u32,
    pub started: Time,
    pub deadline: Time,
    pub hold: Hold,
    /// The task is a suspect, and all that its worker holds.
    pub alone: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub id: TaskId,
    pub kind: u16,
    pub state: State,
    pub priority: i32,
    pub payload: Payload,
    /// Who never gets it.
    pub barred: Option<WorkerName>,
    /// Changes whenever the task leaves a queue, so that its old place there is void.
    pub ticket: u64,
    pub faults: u32,
    /// Leases that ended because the worker was gone.
    pub deaths: u32,
    /// Those of them in which the worker held nothing else.
    pub deaths_alone: u32,
    pub next_attempt: u32,
    pub held: Vec<Held>,
    pub failures: Vec<Failure>,
    pub ending: Option<Box<Ending>>,
}

impl Entry {
    pub fn live(&self) -> usize {
        self.held.iter().filter(|h| h.hold == Hold::Live).count()
    }

    /// Whether the task may be what brings its workers down: one failed attempt short of quarantine, or among what dead
    /// workers held again and again.
    pub fn is_suspect(&self, max_attempts: u32) -> bool {
        let is_nearly_out = !self.failures.is_empty() && self.faults.saturating_add(1) >= max_attempts;
        is_nearly_out || self.deaths >= SUSPICIOUS_DEATHS
    }

    /// Whether nobody shall get the task again.
    pub fn is_beyond_hope(&self, max_attempts: u32) -> bool {
        self.faults >= max_attempts || self.deaths_alone >= max_attempts
    }

    /// Whether this worker has failed the task before.
    pub fn was_failed_by(&self, worker: &WorkerName) -> bool {
        self.failures.iter().any(|f| f.cause != Cause::Died && f.worker == *worker)
    }

    /// Whom the task is kept from, or the first of them.
    fn kept_from(&self) -> KeptFrom {
        let failure = self.failures.iter().find(|f| f.cause != Cause::Died);
        match (&self.barred, failure) {
            (Some(barred), _) => KeptFrom::Barred(barred.clone()),
            (None, Some(failure)) => KeptFrom::Failed(failure.worker.clone()),
            (None, None) => KeptFrom::Nobody,
        }
    }

    pub fn held_by(&self, attempt: Attempt, worker: u32) -> Option<&Held> {
        self.held.iter().find(|h| h.attempt == attempt && h.worker == worker)
    }

    /// Adds a lease, not live yet, in place of the oldest that has ended if there are many.
    fn note(&mut self, attempt: Attempt, worker: u32, now: Time, hold: Hold) {
        if self.held.len() >= REMEMBER_LEASES
            && let Some(oldest) = self.held.iter().position(|h| h.hold != Hold::Live)
        {
            self.held.remove(oldest);
        }
        self.held.push(Held { attempt, worker, started: now, deadline: now, hold, alone: false });
    }
}

/// A worker as the board sees it.
#[derive(Debug)]
pub(super) struct Worker {
    pub name: WorkerName,
    pub last_seen: Time,
    /// When to look at this worker again; the alarm in the heap with another time is void.
    alarm: Time,
    /// Its live leases: slot of the task, number of the lease.
    pub leases: FxHashMap<u32, Attempt>,
    /// The kind that it last asked for, by index.
    pub asks_for: Option<usize>,
    /// Whether what it holds is a suspect, which is left alone with it.
    pub is_occupied: bool,
    /// Failures since its last outcome that was kept.
    pub failed_in_a_row: u32,
    /// Until when it gets no work, because all that it did of late failed; and how long that pause is.
    pub benched: (Time, Duration),
    pub drain: bool,
    pub done: u64,
    pub failed: u64,
    pub last_error: Option<String>,
}

impl Worker {
    /// Notes a failure; if there were only failures of late, the worker pauses, each time for longer.
    fn bench_if_due(&mut self, now: Time) {
        self.failed_in_a_row += 1;
        if self.failed_in_a_row >= BENCHED_AFTER && self.benched.0 <= now {
            let pause = (2 * self.benched.1).clamp(BENCH.0, BENCH.1);
            self.benched = (now.after(pause), pause);
        }
    }
}

/// Everything of one task kind.
#[derive(Debug)]
pub(super) struct Kind {
    pub kind: TaskKind,
    pub pending: Pending,
    /// Pending tasks that are suspects.
    pub suspects: Pending,
    pub pending_count: usize,
    pub suspect_count: usize,
    pub leased_count: usize,
    /// Tasks with exactly one live lease, longest-running first: what may be copied.
    pub single: BTreeSet<(Time, u32)>,
    /// Ended tasks that the consumer has not been given yet, in order of ending.
    pub finished: VecDeque<(u64, Place)>,
    pub finished_count: usize,
}

impl Kind {
    pub fn open(&self) -> usize {
        self.pending_count + self.leased_count
    }
}

/// How many of each thing happened since the board was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Tasks put on the board.
    pub submitted: u64,
    /// Tasks with an outcome.
    pub done: u64,
    pub quarantined: u64,
    pub cancelled: u64,
    /// Leases granted, copies included.
    pub leases: u64,
    /// Leases that were second copies.
    pub copies: u64,
    /// Leases that ended because their worker was gone.
    pub died: u64,
    /// Leases that ended because their worker's process brought itself down.
    #[serde(default)]
    pub crashed: u64,
    /// Leases that the worker reported as failed.
    pub failed: u64,
    /// Outcomes that the consumer rejected.
    pub rejected: u64,
    /// Leases that the worker never heard of.
    pub lost: u64,
    pub returned: u64,
    /// Expired leases that came back to life.
    pub revived: u64,
    /// Leases of a coordinator before this one that went on.
    #[serde(default)]
    pub adopted: u64,
    /// Outcomes accepted after their lease had expired.
    pub late: u64,
    /// Reports of what had ended before.
    pub duplicates: u64,
    /// Reports of leases that the sender never had.
    pub refused: u64,
}

#[derive(Debug)]
pub(super) struct Tables {
    lease: Duration,
    max_attempts: u32,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_id: FxHashMap<TaskId, u32>,
    pub kinds: Vec<Kind>,
    pub workers: FxHashMap<u32, Worker>,
    worker_ids: HashMap<WorkerName, u32>,
    next_worker: u32,
    alarms: BinaryHeap<Reverse<(Time, u32)>>,
    next_ticket: u64,
    pub counters: Counters,
}

/// How long a worker without leases is remembered.
const REMEMBER_WORKER: Duration = Duration::from_secs(3600);
/// Ended leases of one task that are remembered, for their late outcomes.
const REMEMBER_LEASES: usize = 16;
/// A task that was in the hands of so many dead workers is a suspect. Fewer are an accident: workers hold many tasks, and
/// each of these would have to wait for a worker of its own.
const SUSPICIOUS_DEATHS: u32 = 4;
/// A worker that has failed so often since its last outcome is benched.
const BENCHED_AFTER: u32 = 5;
/// The first and the longest pause of a benched worker. Each is twice the one before.
const BENCH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Of a queue's tasks, so many that a worker may not have are passed over for it. Those that it is barred from, or was the
/// first to fail, stand in queues of their own.
const PASSED_OVER: usize = 64;

impl Tables {
    pub fn new(lease: Duration, max_attempts: u32) -> Self {
        Self {
            lease,
            max_attempts,
            slots: Vec::new(),
            free: Vec::new(),
            by_id: FxHashMap::default(),
            kinds: Vec::new(),
            workers: FxHashMap::default(),
            worker_ids: HashMap::new(),
            next_worker: 0,
            alarms: BinaryHeap::new(),
            next_ticket: 0,
            counters: Counters::default(),
        }
    }

    // Look-ups

    pub fn find(&self, task: TaskId) -> Option<(u32, &Entry)> {
        let slot = *self.by_id.get(&task)?;
        Some((slot, self.entry(slot)?))
    }

    pub fn entry(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn kind_index(&self, kind: &TaskKind) -> Option<usize> {
        self.kinds.iter().position(|k| k.kind == *kind)
    }

    pub fn worker_id(&self, name: &WorkerName) -> Option<u32> {
        self.worker_ids.get(name).copied()
    }

    /// Whether a queue place or finished place still means something.
    pub fn is_valid(slots: &[Option<Entry>], place: Place) -> bool {
        matches!(slots.get(place.slot as usize), Some(Some(e)) if e.ticket == place.ticket)
    }

    /// The next pending task of a kind for this worker. A suspect only for one that holds nothing.
    pub fn next_pending(&mut self, now: Time, kind: usize, worker: u32) -> Option<u32> {
        let w = self.workers.get(&worker)?;
        if w.is_occupied {
            return None;
        }
        let (slots, workers, lease) = (&self.slots, &self.workers, self.lease);
        let valid = |place| Self::is_valid(slots, place);
        let fits = |place: Place| {
            let entry = slots.get(place.slot as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| may_have(workers, lease, now, entry, worker))
        };
        let k = &mut self.kinds[kind];
        let suspect =
            if w.leases.is_empty() { k.suspects.first(&w.name, valid, fits, PASSED_OVER) } else { None };
        suspect.or_else(|| k.pending.first(&w.name, valid, fits, PASSED_OVER)).map(|place| place.slot)
    }

    /// Whether this worker may have this task: it is not barred from it, and has not failed it or nobody else is there to
    /// try.
    pub fn may_have(&self, now: Time, slot: u32, worker: u32) -> bool {
        self.entry(slot).is_some_and(|entry| may_have(&self.workers, self.lease, now, entry, worker))
    }

    fn is_barred(&self, slot: u32, worker: u32) -> bool {
        let barred = self.entry(slot).and_then(|entry| entry.barred.as_ref());
        barred.is_some() && barred == self.workers.get(&worker).map(|w| &w.name)
    }

    /// Takes the next ended task off the queue of those to be delivered.
    pub fn next_finished(&mut self, kind: Option<usize>) -> Option<u32> {
        let slots = &self.slots;
        let mut best: Option<(u64, usize, u32)> = None;
        for (index, k) in self.kinds.iter_mut().enumerate().filter(|(i, _)| kind.is_none_or(|k| k == *i)) {
            while let Some(&(order, place)) = k.finished.front() {
                if !Self::is_valid(slots, place) {
                    k.finished.pop_front();
                    continue;
                }
                if best.is_none_or(|(first, _, _)| order < first) {
                    best = Some((order, index, place.slot));
                }
                break;
            }
        }
        let (_, index, slot) = best?;
        self.kinds[index].finished.pop_front();
        self.kinds[index].finished_count -= 1;
        Some(slot)
    }

    // Workers

    /// The worker of that name, made if need be, seen now.
    pub fn see_worker(&mut self, name: &WorkerName, now: Time) -> u32 {
        if let Some(&id) = self.worker_ids.get(name)
            && let Some(worker) = self.workers.get_mut(&id)
        {
            worker.last_seen = worker.last_seen.max(now);
            return id;
        }
        let id = self.next_worker;
        self.next_worker += 1;
        let alarm = now.after(REMEMBER_WORKER);
        let worker = Worker {
            name: name.clone(),
            last_seen: now,
            alarm,
            leases: FxHashMap::default(),
            asks_for: None,
            is_occupied: false,
            failed_in_a_row: 0,
            benched: (Time::default(), Duration::ZERO),
            drain: false,
            done: 0,
            failed: 0,
            last_error: None,
        };
        self.workers.insert(id, worker);
        self.worker_ids.insert(name.clone(), id);
        self.alarms.push(Reverse((alarm, id)));
        id
    }

    /// A worker that has to be looked at because a lease of it may have expired.
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

    /// The slots of a worker's leases that are past their deadline, in order of slot.
    pub fn expired(&self, worker: u32, now: Time) -> Vec<u32> {
        let Some(w) = self.workers.get(&worker) else { return Vec::new() };
        let mut slots: Vec<u32> = w
            .leases
            .iter()
            .filter(|(slot, attempt)| self.deadline(**slot, **attempt) <= now)
            .map(|(s, _)| *s)
            .collect();
        slots.sort_unstable();
        slots
    }

    /// Sets a worker's next alarm to its first deadline, or forgets it if it has been idle for long.
    pub fn rearm(&mut self, worker: u32, now: Time) {
        let Some(w) = self.workers.get(&worker) else { return };
        let first = w.leases.iter().map(|(slot, attempt)| self.deadline(*slot, *attempt)).min();
        let alarm = first.unwrap_or(w.last_seen.after(REMEMBER_WORKER));
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

    fn deadline(&self, slot: u32, attempt: Attempt) -> Time {
        let held = self.entry(slot).and_then(|e| e.held.iter().find(|h| h.attempt == attempt));
        held.map_or(Time(0), |h| h.deadline)
    }

    /// Moves the deadline of a live lease.
    pub fn extend(&mut self, slot: u32, attempt: Attempt, deadline: Time) {
        if let Some(entry) = self.entry_mut(slot)
            && let Some(held) = entry.held.iter_mut().find(|h| h.attempt == attempt)
        {
            held.deadline = deadline;
        }
    }

    // Changes. Each says what is wrong if it does not fit the state; then nothing has changed.

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn kind_or_new(&mut self, kind: &TaskKind) -> Result<u16, &'static str> {
        let index = self.kind_index(kind).unwrap_or_else(|| {
            self.kinds.push(Kind {
                kind: kind.clone(),
                pending: Pending::default(),
                suspects: Pending::default(),
                pending_count: 0,
                suspect_count: 0,
                leased_count: 0,
                single: BTreeSet::new(),
                finished: VecDeque::new(),
                finished_count: 0,
            });
            self.kinds.len() - 1
        });
        u16::try_from(index).map_err(|_| "more than 65,536 task kinds")
    }

    fn insert(&mut self, entry: Entry) -> Result<u32, &'static str> {
        let id = entry.id;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).map_err(|_| "more than 2^32 tasks")?;
                self.slots.push(Some(entry));
                slot
            }
        };
        self.by_id.insert(id, slot);
        Ok(slot)
    }

    pub fn submit(
        &mut self,
        id: TaskId,
        kind: &TaskKind,
        priority: i32,
        payload: Payload,
        barred: Option<WorkerName>,
    ) -> Result<(), &'static str> {
        if self.by_id.contains_key(&id) {
            return Err("the task is on the board already");
        }
        let kind = self.kind_or_new(kind)?;
        let slot = self.insert(Entry {
            id,
            kind,
            state: State::Pending,
            priority,
            payload,
            barred,
            ticket: 0,
            faults: 0,
            deaths: 0,
            deaths_alone: 0,
            next_attempt: 1,
            held: Vec::new(),
            failures: Vec::new(),
            ending: None,
        })?;
        self.enqueue(slot, End::Back);
        self.counters.submitted += 1;
        Ok(())
    }

    /// Puts a task that has no live lease into its queue.
    fn enqueue(&mut self, slot: u32, end: End) {
        let ticket = self.ticket();
        let max_attempts = self.max_attempts;
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        entry.ticket = ticket;
        entry.state = State::Pending;
        let kind = &mut self.kinds[usize::from(entry.kind)];
        let suspect = entry.is_suspect(max_attempts);
        let queue = if suspect { &mut kind.suspects } else { &mut kind.pending };
        queue.push(entry.kept_from(), entry.priority, Place { slot, ticket }, end);
        kind.pending_count += 1;
        kind.suspect_count += usize::from(suspect);
    }

    /// Takes a pending task out of its queue.
    fn dequeue(&mut self, slot: u32) {
        let ticket = self.ticket();
        let max_attempts = self.max_attempts;
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        entry.ticket = ticket;
        let kind = usize::from(entry.kind);
        let suspect = entry.is_suspect(max_attempts);
        let slots = &self.slots;
        let kind = &mut self.kinds[kind];
        kind.pending_count -= 1;
        kind.suspect_count -= usize::from(suspect);
        let valid = |place| Self::is_valid(slots, place);
        kind.pending.tidy(kind.pending_count - kind.suspect_count, valid);
        kind.suspects.tidy(kind.suspect_count, valid);
    }

    /// Makes a lease live and puts the books right.
    fn enliven(&mut self, now: Time, slot: u32, attempt: Attempt) {
        let Some(entry) = self.entry(slot) else { return };
        let others = entry.live();
        if others == 0 {
            self.dequeue(slot);
        }
        let deadline = now.after(self.lease);
        let max_attempts = self.max_attempts;
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let kind = &mut self.kinds[usize::from(entry.kind)];
        if others == 0 {
            entry.state = State::Leased;
            kind.leased_count += 1;
        }
        if let Some(other) = entry.held.iter().find(|h| h.hold == Hold::Live) {
            kind.single.remove(&(other.started, slot));
        }
        let suspect = entry.is_suspect(max_attempts);
        let Some(held) = entry.held.iter_mut().find(|h| h.attempt == attempt) else { return };
        held.hold = Hold::Live;
        held.deadline = deadline;
        // A suspect that is revived or adopted may have company; then its worker's death proves nothing.
        held.alone = suspect && self.workers.get(&held.worker).is_some_and(|w| w.leases.is_empty());
        if others == 0 && !suspect {
            kind.single.insert((held.started, slot));
        }
        if let Some(worker) = self.workers.get_mut(&held.worker) {
            worker.leases.insert(slot, attempt);
            worker.is_occupied |= held.alone;
            if deadline < worker.alarm {
                worker.alarm = deadline;
                self.alarms.push(Reverse((deadline, held.worker)));
            }
        }
    }

    /// Takes life from a lease and puts the books right, except for the task's place.
    fn still(&mut self, slot: u32, attempt: Attempt, hold: Hold) {
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let suspect = entry.is_suspect(self.max_attempts);
        let Some(held) = entry.held.iter_mut().find(|h| h.attempt == attempt) else { return };
        let kind = &mut self.kinds[usize::from(entry.kind)];
        kind.single.remove(&(held.started, slot));
        held.hold = hold;
        if let Some(worker) = self.workers.get_mut(&held.worker) {
            worker.leases.remove(&slot);
            worker.is_occupied &= !held.alone;
        }
        let mut live = entry.held.iter().filter(|h| h.hold == Hold::Live);
        match (live.next(), live.next()) {
            (Some(only), None) if !suspect => {
                kind.single.insert((only.started, slot));
            }
            _ => {}
        }
    }

    pub fn grant(
        &mut self,
        now: Time,
        id: TaskId,
        attempt: Attempt,
        name: &WorkerName,
    ) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        if !entry.state.is_open() {
            return Err("the task has ended");
        }
        if entry.held.iter().any(|h| h.attempt == attempt) {
            return Err("the lease's number was used before");
        }
        let worker = self.see_worker(name, now);
        let copies = entry_live(self.entry(slot));
        let entry = self.entry_mut(slot).ok_or("no such task")?;
        if entry.held.iter().any(|h| h.worker == worker && h.hold == Hold::Live) {
            return Err("the worker holds the task already");
        }
        entry.next_attempt += 1;
        entry.note(attempt, worker, now, Hold::Over);
        self.enliven(now, slot, attempt);
        self.counters.leases += 1;
        self.counters.copies += u64::from(copies > 0);
        Ok(())
    }

    /// Makes a lease of another coordinator one of this board's, live if it has room. `false` if the number is another
    /// worker's by chance.
    pub fn adopt(&mut self, now: Time, id: TaskId, attempt: Attempt, worker: u32) -> bool {
        let Some(slot) = self.by_id.get(&id).copied() else { return false };
        let is_barred = self.is_barred(slot, worker);
        let Some(entry) = self.entry_mut(slot) else { return false };
        if is_barred || !entry.state.is_open() || entry.held.iter().any(|h| h.attempt == attempt) {
            return false;
        }
        let has_room =
            entry.live() < 2 && !entry.held.iter().any(|h| h.worker == worker && h.hold == Hold::Live);
        // Without room it is as if it had expired: its outcome counts all the same.
        entry.note(attempt, worker, now, Hold::Ended(Cause::Lost));
        if has_room {
            self.enliven(now, slot, attempt);
        }
        self.counters.adopted += 1;
        true
    }

    pub fn end(
        &mut self,
        now: Time,
        id: TaskId,
        attempt: Attempt,
        cause: Cause,
        message: &str,
    ) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        let held = entry.held.iter().find(|h| h.attempt == attempt).ok_or("no such lease")?;
        if held.hold != Hold::Live {
            return Err("the lease has ended already");
        }
        let alone = held.alone;
        let name = self.workers.get(&held.worker).map(|w| w.name.clone());
        self.still(slot, attempt, Hold::Ended(cause));
        if cause.counts() {
            let worker = name.ok_or("the lease's worker is unknown")?;
            let message = message.to_owned();
            self.note_failure(now, slot, alone, Failure { attempt, worker, cause, message });
        }
        if entry_live(self.entry(slot)) == 0 {
            if let Some(kind) = self.entry(slot).map(|e| usize::from(e.kind)) {
                self.kinds[kind].leased_count -= 1;
            }
            self.enqueue(slot, End::Front);
        }
        match cause {
            Cause::Died => self.counters.died += 1,
            Cause::Crashed => self.counters.crashed += 1,
            Cause::Failed => self.counters.failed += 1,
            Cause::Rejected => self.counters.rejected += 1,
            Cause::Lost => self.counters.lost += 1,
            Cause::Returned => self.counters.returned += 1,
        }
        Ok(())
    }

    /// `alone`: whether the worker held nothing but this suspect.
    fn note_failure(&mut self, now: Time, slot: u32, alone: bool, failure: Failure) {
        if let Some(w) = self.worker_id(&failure.worker).and_then(|id| self.workers.get_mut(&id)) {
            w.failed += 1;
            w.last_error = Some(failure.message.clone());
            if matches!(failure.cause, Cause::Failed | Cause::Rejected) {
                w.bench_if_due(now);
            }
        }
        let max_attempts = self.max_attempts;
        if let Some(entry) = self.entry_mut(slot) {
            match failure.cause {
                Cause::Died => {
                    entry.deaths += 1;
                    entry.deaths_alone += u32::from(alone);
                }
                // In company any of them may have done it: suspicion, but no more.
                Cause::Crashed if !alone => entry.faults = (entry.faults + 1).min(max_attempts - 1),
                _ => entry.faults += 1,
            }
            entry.failures.push(failure);
        }
    }

    pub fn revive(&mut self, now: Time, id: TaskId, attempt: Attempt) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        if !entry.state.is_open() {
            return Err("the task has ended");
        }
        let held = entry.held.iter().find(|h| h.attempt == attempt).ok_or("no such lease")?;
        let Hold::Ended(cause @ (Cause::Died | Cause::Lost)) = held.hold else {
            return Err("the lease did not expire");
        };
        let (worker, alone) = (held.worker, held.alone);
        if cause == Cause::Died {
            // It waits under its old numbers; leave that queue before they change.
            let waits = entry.live() == 0;
            if waits {
                self.dequeue(slot);
            }
            if let Some(entry) = self.entry_mut(slot) {
                entry.deaths -= 1;
                entry.deaths_alone -= u32::from(alone);
                entry.failures.retain(|f| f.attempt != attempt);
            }
            if waits {
                self.enqueue(slot, End::Front);
            }
            if let Some(w) = self.workers.get_mut(&worker) {
                w.failed = w.failed.saturating_sub(1);
            }
        }
        self.enliven(now, slot, attempt);
        self.counters.revived += 1;
        Ok(())
    }

    /// Ends every live lease and takes the task out of its queue, before the task itself ends.
    fn close(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot) else { return };
        let (state, kind) = (entry.state, usize::from(entry.kind));
        let live: Vec<Attempt> =
            entry.held.iter().filter(|h| h.hold == Hold::Live).map(|h| h.attempt).collect();
        for attempt in live {
            self.still(slot, attempt, Hold::Over);
        }
        match state {
            State::Pending => self.dequeue(slot),
            State::Leased => self.kinds[kind].leased_count -= 1,
            State::Done | State::Quarantined => {}
        }
    }

    /// Records a task's ending and queues it for the consumer.
    fn finish(&mut self, slot: u32, state: State, ending: Ending) {
        let ticket = self.ticket();
        let Some(entry) = self.entry_mut(slot) else { return };
        entry.state = state;
        entry.ticket = ticket;
        entry.ending = Some(Box::new(ending));
        let kind = usize::from(entry.kind);
        self.kinds[kind].finished.push_back((ticket, Place { slot, ticket }));
        self.kinds[kind].finished_count += 1;
    }

    pub fn done(&mut self, id: TaskId, attempt: Attempt, outcome: Payload) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        if !entry.state.is_open() {
            return Err("the task has ended");
        }
        let held = entry.held.iter().find(|h| h.attempt == attempt).ok_or("no such lease")?;
        let late = held.hold != Hold::Live;
        let holder = held.worker;
        let worker = self.workers.get_mut(&holder).ok_or("the lease's worker is unknown")?;
        worker.done += 1;
        let worker = worker.name.clone();
        self.close(slot);
        self.finish(slot, State::Done, Ending::Done { outcome, worker, attempt });
        self.counters.done += 1;
        self.counters.late += u64::from(late);
        Ok(())
    }

    pub fn quarantine(&mut self, id: TaskId) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        if entry.state != State::Pending {
            return Err("only a task that nobody holds is quarantined");
        }
        let failures = entry.failures.clone();
        self.close(slot);
        self.finish(slot, State::Quarantined, Ending::Quarantined { failures });
        self.counters.quarantined += 1;
        Ok(())
    }

    pub fn reopen(&mut self, now: Time, id: TaskId, message: &str) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        let Some(Ending::Done { attempt, worker, .. }) = entry.ending.as_deref() else {
            return Err("the task has no outcome");
        };
        let (attempt, worker) = (*attempt, worker.clone());
        self.undeliver(slot);
        if let Some(entry) = self.entry_mut(slot) {
            entry.ending = None;
            if let Some(held) = entry.held.iter_mut().find(|h| h.attempt == attempt) {
                held.hold = Hold::Ended(Cause::Rejected);
            }
        }
        if let Some(w) = self.worker_id(&worker).and_then(|id| self.workers.get_mut(&id)) {
            w.done = w.done.saturating_sub(1);
        }
        let failure = Failure { attempt, worker, cause: Cause::Rejected, message: message.to_owned() };
        self.note_failure(now, slot, true, failure);
        self.enqueue(slot, End::Front);
        self.counters.rejected += 1;
        self.counters.done = self.counters.done.saturating_sub(1);
        Ok(())
    }

    /// Takes an ended task from among the undelivered, if it is there.
    fn undeliver(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot) else { return };
        let (kind, ticket) = (usize::from(entry.kind), entry.ticket);
        if entry.ending.is_none() {
            return;
        }
        // Order of endings is order of tickets, so the place is found by bisection.
        if let Ok(at) = self.kinds[kind].finished.binary_search_by_key(&ticket, |(order, _)| *order)
            && self.kinds[kind].finished.get(at).is_some_and(|(_, place)| place.slot == slot)
        {
            self.kinds[kind].finished_count -= 1;
        }
        let ticket = self.ticket();
        if let Some(entry) = self.entry_mut(slot) {
            entry.ticket = ticket;
        }
        let slots = &self.slots;
        let kind = &mut self.kinds[kind];
        if kind.finished.len() > 2 * kind.finished_count + 1024 {
            kind.finished.retain(|(_, place)| Self::is_valid(slots, *place));
        }
    }

    pub fn remove(&mut self, id: TaskId) -> Result<(), &'static str> {
        let (slot, entry) = self.find(id).ok_or("no such task")?;
        let open = entry.state.is_open();
        // Only what its consumer has kept speaks for a worker: an outcome may still be rejected.
        if let Some(Ending::Done { worker, .. }) = entry.ending.as_deref() {
            let id = self.worker_id(worker);
            if let Some(worker) = id.and_then(|id| self.workers.get_mut(&id)) {
                worker.failed_in_a_row = 0;
                worker.benched = (Time::default(), Duration::ZERO);
            }
        }
        self.close(slot);
        self.undeliver(slot);
        self.by_id.remove(&id);
        self.slots[slot as usize] = None;
        self.free.push(slot);
        self.counters.cancelled += u64::from(open);
        Ok(())
    }
}

/// See [`Tables::may_have`].
fn may_have(
    workers: &FxHashMap<u32, Worker>,
    lease: Duration,
    now: Time,
    entry: &Entry,
    worker: u32,
) -> bool {
    let Some(w) = workers.get(&worker) else { return false };
    let could_try = |(id, other): (&u32, &Worker)| {
        *id != worker
            && other.asks_for == Some(usize::from(entry.kind))
            && !other.drain
            && other.benched.0 <= now
            && now.since(other.last_seen) < lease
            && !entry.was_failed_by(&other.name)
            && entry.barred.as_ref() != Some(&other.name)
    };
    entry.barred.as_ref() != Some(&w.name)
        && (!entry.was_failed_by(&w.name) || !workers.iter().any(could_try))
}

fn entry_live(entry: Option<&Entry>) -> usize {
    entry.map_or(0, Entry::live)
}
