//! Compares the board with a naive model of it, over random sequences of operations.
//!
//! The model keeps flat lists and scans them. Where the board has a free choice (which of several equally good tasks
//! it leases), the model checks that the choice is legal and follows it. Everything else must agree exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sgs_fleet::{
    AttemptId, Backpressure, Board, BoardConfig, Cause, Epoch, FinishedTask, Lease, LeaseId, LeaseOutcome,
    Payload, Receipt, Report, Speculation, Task, TaskId, TaskResult, Time, WorkKind, WorkerExit, WorkerName,
};

const GENERATE: WorkKind = WorkKind::of("generate");
const VERIFY: WorkKind = WorkKind::of("verify");

const LEASE_MS: u64 = 1000;
const MIN_AGE_MS: u64 = 300;
const MAX_ATTEMPTS: u32 = 3;
const MAX_LEASES: u32 = 12;
const HOLD_AT: usize = 4;
const CAPACITY: usize = 6;

fn config() -> BoardConfig {
    BoardConfig {
        lease: Duration::from_millis(LEASE_MS),
        max_attempts: MAX_ATTEMPTS,
        max_leases: MAX_LEASES,
        speculation: Some(Speculation { min_age: Duration::from_millis(MIN_AGE_MS), max_per_request: 3 }),
        backpressure: Some(Backpressure { hold: GENERATE, while_open: VERIFY, limit: HOLD_AT }),
        max_leases_per_worker: CAPACITY,
        max_tasks: 1000,
        ..BoardConfig::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hold {
    Live,
    Ended(Cause),
    Over,
}

#[derive(Clone, Debug)]
struct MHeld {
    attempt: u32,
    worker: usize,
    started: u64,
    deadline: u64,
    hold: Hold,
    /// Whether the board granted the lease, rather than reclaimed it.
    granted: bool,
    alone: bool,
}

#[derive(Clone, Debug)]
struct MTask {
    id: u64,
    kind: WorkKind,
    priority: i32,
    /// The worker that never gets the task.
    excluded: Option<usize>,
    requeued: bool,
    next_attempt: u32,
    faults: u32,
    deaths: u32,
    deaths_alone: u32,
    /// Attempt, worker and cause of each failure.
    failures: Vec<(u32, usize, Cause)>,
    held: Vec<MHeld>,
    done_by: Option<u32>,
    quarantined: bool,
}

impl MTask {
    fn open(&self) -> bool {
        self.done_by.is_none() && !self.quarantined
    }
    fn live(&self) -> usize {
        self.held.iter().filter(|h| h.hold == Hold::Live).count()
    }
    fn pending(&self) -> bool {
        self.open() && self.live() == 0
    }
    fn suspect(&self) -> bool {
        (!self.failures.is_empty() && self.faults + 1 >= MAX_ATTEMPTS) || self.deaths >= 4
    }
    fn failed_by(&self, worker: usize) -> bool {
        self.failures.iter().any(|(_, w, cause)| *w == worker && *cause != Cause::Died)
    }
    fn has_room(&self, worker: usize) -> bool {
        self.open()
            && self.live() < 2
            && !self.held.iter().any(|h| h.worker == worker && h.hold == Hold::Live)
    }
    /// Adds a lease. The board remembers sixteen leases of a task.
    fn hold(&mut self, held: MHeld) {
        if self.held.len() >= 16
            && let Some(oldest) = self.held.iter().position(|h| h.hold != Hold::Live)
        {
            self.held.remove(oldest);
        }
        self.held.push(held);
    }
    /// Takes over a lease of an earlier coordinator for a worker with `live` leases. Returns false if the board must refuse it.
    fn reclaim(&mut self, worker: usize, live: usize, attempt: u32, now: u64) -> bool {
        let is_refused = self.excluded == Some(worker) || self.failed_by(worker);
        if is_refused || !self.open() || self.held.iter().any(|h| h.attempt == attempt) {
            return false;
        }
        let has_room = self.has_room(worker) && live < CAPACITY;
        let hold = if has_room { Hold::Live } else { Hold::Ended(Cause::Lost) };
        let alone = has_room && live == 0 && self.suspect();
        let deadline = if has_room { now + LEASE_MS } else { now };
        self.hold(MHeld { attempt, worker, started: now, deadline, hold, granted: false, alone });
        true
    }
}

/// State of a worker, except its leases.
#[derive(Clone, Default)]
struct MWorker {
    asks_for: Option<WorkKind>,
    consecutive_failures: u32,
    backoff_until: u64,
    pause: u64,
}

#[derive(Default)]
struct Model {
    workers: BTreeMap<usize, MWorker>,
    /// Kinds that have had a task.
    kinds: Vec<WorkKind>,
    /// The tasks in order of submission.
    tasks: Vec<MTask>,
    /// Time of the last contact, by worker number. Absent if the board does not know the worker.
    seen: BTreeMap<usize, u64>,
    /// Tasks whose results are undelivered, with the number of the operation that ended them, because the board chooses
    /// the order within an operation.
    undelivered: Vec<(u64, u64)>,
    calls: u64,
    accepted: BTreeMap<u64, u32>,
    rejected: BTreeMap<u64, u32>,
    drain: bool,
}

impl Model {
    fn task(&mut self, id: u64) -> Option<&mut MTask> {
        self.tasks.iter_mut().find(|t| t.id == id)
    }

    fn live_of(&self, worker: usize) -> impl Iterator<Item = &MHeld> {
        let of_worker = move |h: &&MHeld| h.worker == worker && h.hold == Hold::Live;
        self.tasks.iter().flat_map(|t| &t.held).filter(of_worker)
    }

    fn idle(&self, worker: usize) -> bool {
        self.live_of(worker).next().is_none()
    }

    fn end(&mut self, now: u64, id: u64, attempt: u32, cause: Cause) {
        let task = self.task(id).expect("the model has the task");
        let held = task.held.iter_mut().find(|h| h.attempt == attempt).expect("the model has the lease");
        held.hold = Hold::Ended(cause);
        let (worker, alone) = (held.worker, held.alone);
        task.requeued = true;
        if cause.counts() {
            self.note_failure(now, id, attempt, worker, cause, alone);
        }
        self.quarantine_if_due(id);
    }

    fn note_failure(&mut self, now: u64, id: u64, attempt: u32, worker: usize, cause: Cause, alone: bool) {
        if matches!(cause, Cause::Failed | Cause::Rejected) && self.seen.contains_key(&worker) {
            let w = self.workers.entry(worker).or_default();
            w.consecutive_failures += 1;
            if w.consecutive_failures >= 5 && w.backoff_until <= now {
                w.pause = (2 * w.pause).clamp(1000, 300_000);
                w.backoff_until = now + w.pause;
            }
        }
        let task = self.task(id).expect("the model has the task");
        let granted = task.held.iter().any(|h| h.attempt == attempt && h.granted);
        match cause {
            Cause::Died if !granted => return,
            _ if !granted => {}
            Cause::Died => {
                task.deaths += 1;
                task.deaths_alone += u32::from(alone);
            }
            Cause::Crashed if !alone => task.faults = (task.faults + 1).min(MAX_ATTEMPTS - 1),
            _ => task.faults += 1,
        }
        // The board remembers sixteen failures of a task.
        if task.failures.len() >= 16 {
            task.failures.remove(0);
        }
        task.failures.push((attempt, worker, cause));
    }

    fn quarantine_if_due(&mut self, id: u64) {
        let calls = self.calls;
        let task = self.task(id).expect("the model has the task");
        let broken = task.faults >= MAX_ATTEMPTS || task.deaths_alone >= MAX_ATTEMPTS;
        if task.pending() && (broken || task.next_attempt > MAX_LEASES) {
            task.quarantined = true;
            self.undelivered.push((calls, id));
        }
    }

    /// Returns true if this worker may have the task: it is not excluded, and has not failed the task unless no other worker
    /// can take it.
    fn fits(&self, now: u64, task: &MTask, worker: usize) -> bool {
        let could_try = |(other, seen): (&usize, &u64)| {
            let w = self.workers.get(other).cloned().unwrap_or_default();
            *other != worker
                && w.asks_for.as_ref() == Some(&task.kind)
                && w.backoff_until <= now
                && now - seen < LEASE_MS
                && !task.failed_by(*other)
                && task.excluded != Some(*other)
        };
        task.excluded != Some(worker) && (!task.failed_by(worker) || !self.seen.iter().any(could_try))
    }

    /// Returns the pending tasks that the worker may have now.
    fn pool(&self, now: u64, worker: usize, kind: &WorkKind) -> Vec<&MTask> {
        if self.live_of(worker).any(|h| h.alone) {
            return Vec::new();
        }
        let pending = self.tasks.iter().filter(|t| t.kind == *kind && t.pending());
        let (suspects, fresh): (Vec<_>, Vec<_>) =
            pending.filter(|t| self.fits(now, t, worker)).partition(|t| t.suspect());
        if self.idle(worker) && !suspects.is_empty() { suspects } else { fresh }
    }

    fn expire(&mut self, now: u64) {
        let mut overdue = Vec::new();
        for task in &self.tasks {
            for held in task.held.iter().filter(|h| h.hold == Hold::Live && h.deadline <= now) {
                let silent = now - self.seen.get(&held.worker).copied().unwrap_or(0);
                overdue.push((
                    task.id,
                    held.attempt,
                    if silent >= LEASE_MS { Cause::Died } else { Cause::Lost },
                ));
            }
        }
        for (id, attempt, cause) in overdue {
            self.end(now, id, attempt, cause);
        }
    }

    fn held_back(&self, kind: &WorkKind) -> bool {
        let open = self.tasks.iter().filter(|t| t.kind == VERIFY && t.open()).count();
        *kind == GENERATE && open >= HOLD_AT
    }

    /// Checks a lease that the board granted, and applies it to the model.
    fn follow(&mut self, now: u64, epoch: Epoch, worker: usize, kind: &WorkKind, lease: &Lease) {
        let pool = self.pool(now, worker, kind);
        let chosen =
            self.tasks.iter().find(|t| t.id == lease.task.0).expect("the board leases tasks that exist");
        assert_eq!(chosen.kind, *kind);
        assert_eq!(epoch.attempt(chosen.next_attempt), lease.attempt, "attempts are numbered in order");
        assert!(chosen.open(), "an ended task was leased");
        if let Some(highest) = pool.iter().map(|t| t.priority).max() {
            assert!(chosen.pending(), "a copy while tasks are pending");
            assert!(
                pool.iter().any(|t| t.id == chosen.id),
                "a suspect in company, or a task for who failed it"
            );
            assert_eq!(chosen.priority, highest, "a lower priority went first");
            let equals: Vec<_> = pool.iter().filter(|t| t.priority == highest).collect();
            if equals.iter().any(|t| t.requeued) {
                assert!(chosen.requeued, "a new task preceded a requeued one");
            } else {
                assert_eq!(equals[0].id, chosen.id, "tasks of one priority go in order of submission");
            }
        } else {
            let pending = self.tasks.iter().filter(|t| t.kind == *kind && t.pending());
            assert_eq!(pending.count(), 0, "a copy while tasks are pending");
            let copyable = self.copyable(now, worker, kind);
            let (started, _) =
                copyable.iter().find(|(_, id)| *id == chosen.id).expect("a copy of what must not be copied");
            assert_eq!(*started, copyable[0].0, "the longest-running is copied first");
        }
        let idle = self.idle(worker);
        let task = self.task(lease.task.0).expect("checked");
        assert!(
            !task.held.iter().any(|h| h.worker == worker && h.hold == Hold::Live),
            "a copy for its own holder"
        );
        task.next_attempt += 1;
        let alone = idle && task.suspect();
        let (attempt, deadline) = (lease.attempt.0, now + LEASE_MS);
        task.hold(MHeld { attempt, worker, started: now, deadline, hold: Hold::Live, granted: true, alone });
        assert!(task.live() <= 2, "more than one extra copy");
    }

    /// Returns (start time, id) of the running tasks that may be copied to the worker, longest-running first.
    fn copyable(&self, now: u64, worker: usize, kind: &WorkKind) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for task in self.tasks.iter().filter(|t| t.kind == *kind && t.open() && t.live() == 1) {
            let held = task.held.iter().find(|h| h.hold == Hold::Live).expect("one is live");
            let may = held.worker != worker && !task.suspect() && self.fits(now, task, worker);
            if may && now - held.started >= MIN_AGE_MS {
                found.push((held.started, task.id));
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the number of leases that the board must grant.
    fn due(&self, now: u64, worker: usize, kind: &WorkKind, capacity: usize) -> usize {
        let backing_off = self.workers.get(&worker).is_some_and(|w| w.backoff_until > now);
        let occupied = self.live_of(worker).any(|h| h.alone);
        if self.drain || self.held_back(kind) || backing_off || occupied {
            return 0;
        }
        let room = capacity.min(CAPACITY.saturating_sub(self.live_of(worker).count()));
        let pool = self.pool(now, worker, kind);
        if pool.first().is_some_and(|t| t.suspect()) {
            return room.min(1);
        }
        let from_pending = room.min(pool.len());
        if self.tasks.iter().filter(|t| t.kind == *kind && t.pending()).count() > from_pending {
            return from_pending;
        }
        // Copies are granted after the pending tasks, which are then too young to be copied.
        from_pending + (room - from_pending).min(3).min(self.copyable(now, worker, kind).len())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit { kind: u8, priority: i32, excluded: Option<usize> },
    Resubmit(usize),
    Lease { worker: usize, kind: u8, capacity: usize },
    Heartbeat { worker: usize, mask: u64 },
    Report { lease: usize, how: u8 },
    Forge { worker: usize, task: u64, attempt: u32 },
    Die { worker: usize, how: u8 },
    Advance(u64),
    Cancel(usize),
    Reject(usize),
    Deliver,
    Remove(usize),
    Drain(bool),
    Restart { worker: usize, mask: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2u8, 0..2i32, proptest::option::weighted(0.3, 0..4usize))
            .prop_map(|(kind, priority, excluded)| Op::Submit { kind, priority, excluded }),
        1 => any::<usize>().prop_map(Op::Resubmit),
        8 => (0..4usize, 0..2u8, 0..4usize).prop_map(|(worker, kind, capacity)| Op::Lease { worker, kind, capacity }),
        5 => (0..4usize, any::<u64>()).prop_map(|(worker, mask)| Op::Heartbeat { worker, mask }),
        9 => (any::<usize>(), 0..8u8).prop_map(|(lease, how)| Op::Report { lease, how }),
        1 => (0..5usize, 0..30u64, 0..5u32).prop_map(|(worker, task, attempt)| Op::Forge { worker, task, attempt }),
        2 => (0..4usize, 0..3u8).prop_map(|(worker, how)| Op::Die { worker, how }),
        6 => (1..700u64).prop_map(Op::Advance),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Reject),
        3 => Just(Op::Deliver),
        2 => any::<usize>().prop_map(Op::Remove),
        1 => proptest::bool::weighted(0.3).prop_map(Op::Drain),
        1 => (0..4usize, any::<u64>()).prop_map(|(worker, mask)| Op::Restart { worker, mask }),
    ]
}

fn kind(number: u8) -> WorkKind {
    if number == 0 { GENERATE } else { VERIFY }
}

fn name(worker: usize) -> WorkerName {
    WorkerName::new(&format!("w{worker}")).expect("a good name")
}

fn payload(id: u64) -> Payload {
    format!("work {id}").into()
}

fn outcome(lease: &Lease) -> Payload {
    format!("result of {} under {}", lease.task, lease.attempt.0).into()
}

struct Game {
    board: Board,
    model: Model,
    epoch: Epoch,
    epochs: u32,
    now: u64,
    next_id: u64,
    /// Every lease ever granted, with its worker.
    granted: Vec<(usize, Lease)>,
}

impl Game {
    fn new() -> Self {
        let (board, model) = (Board::new(config()), Model::default());
        let epoch = Epoch::default();
        Self { board, model, epoch, epochs: 0, now: 0, next_id: 0, granted: Vec::new() }
    }

    fn time(&self) -> Time {
        Time(self.now)
    }

    fn pick(&self, number: usize) -> Option<u64> {
        let tasks = &self.model.tasks;
        (!tasks.is_empty()).then(|| tasks[number % tasks.len()].id)
    }

    fn play(&mut self, op: &Op) {
        self.model.calls += 1;
        match *op {
            Op::Submit { kind: k, priority, excluded } => self.submit(kind(k), priority, excluded),
            Op::Resubmit(number) => self.resubmit(number),
            Op::Lease { worker, kind: k, capacity } => self.lease(worker, &kind(k), capacity),
            Op::Heartbeat { worker, mask } => self.heartbeat(worker, mask),
            Op::Report { lease, how } => self.report(lease, how),
            Op::Forge { worker, task, attempt } => self.forge(worker, task, attempt),
            Op::Die { worker, how } => self.die(worker, how),
            Op::Advance(ms) => {
                self.now += ms;
                self.board.expire(self.time());
                self.model.expire(self.now);
            }
            Op::Cancel(number) => self.cancel(number),
            Op::Reject(number) => self.reject(number),
            Op::Deliver => self.deliver(),
            Op::Remove(number) => self.remove(number),
            Op::Drain(drain) => {
                self.model.drain = drain;
                self.board.set_drain(drain);
            }
            Op::Restart { worker, mask } => self.restart(worker, mask),
        }
        self.compare();
    }

    fn submit(&mut self, kind: WorkKind, priority: i32, excluded: Option<usize>) {
        let id = self.next_id;
        self.next_id += 1;
        let task = Task { id: TaskId(id), kind: kind.clone(), priority, payload: payload(id) };
        assert_eq!(self.board.submit_excluding(self.time(), task, excluded.map(name)), Ok(true));
        self.model.kinds.push(kind.clone());
        self.model.tasks.push(MTask {
            id,
            kind,
            priority,
            excluded,
            requeued: false,
            next_attempt: 1,
            faults: 0,
            deaths: 0,
            deaths_alone: 0,
            failures: Vec::new(),
            held: Vec::new(),
            done_by: None,
            quarantined: false,
        });
    }

    fn resubmit(&mut self, number: usize) {
        let Some(id) = self.pick(number) else { return };
        let task = self.model.task(id).expect("picked").clone();
        let same = Task { id: TaskId(id), kind: task.kind, priority: 0, payload: payload(id) };
        assert_eq!(self.board.submit(self.time(), same.clone()), Ok(false));
        let other = Task { payload: "other work".into(), ..same };
        assert!(self.board.submit(self.time(), other).is_err());
    }

    fn lease(&mut self, worker: usize, kind: &WorkKind, capacity: usize) {
        let leases = self.board.lease(self.time(), &name(worker), kind, capacity);
        self.model.expire(self.now);
        self.model.seen.insert(worker, self.now);
        if self.model.kinds.contains(kind) {
            self.model.workers.entry(worker).or_default().asks_for = Some(kind.clone());
        }
        let due = self.model.due(self.now, worker, kind, capacity);
        assert_eq!(leases.len(), due, "leases for w{worker}: {leases:?}");
        for lease in leases {
            assert_eq!(lease.payload, payload(lease.task.0));
            self.model.follow(self.now, self.epoch, worker, kind, &lease);
            self.granted.push((worker, lease));
        }
    }

    fn heartbeat(&mut self, worker: usize, mask: u64) {
        let mine = self.granted.iter().filter(|(w, _)| *w == worker).map(|(_, lease)| lease.id());
        let held: Vec<LeaseId> =
            mine.enumerate().filter(|(i, _)| mask >> (i % 64) & 1 == 1).map(|(_, id)| id).collect();
        self.model.seen.insert(worker, self.now);
        let mut abandon = Vec::new();
        for id in &held {
            let (now, epoch, live) = (self.now, self.epoch, self.model.live_of(worker).count());
            let task = self.model.task(id.task.0);
            if !task.is_some_and(|task| revive(task, epoch, worker, live, id.attempt, now)) {
                abandon.push(*id);
            }
        }
        let ack = self.board.heartbeat(self.time(), &name(worker), &held);
        self.model.expire(self.now);
        assert_eq!(ack.abandon, abandon);
        assert_eq!(ack.drain, self.model.drain);
    }

    fn report(&mut self, number: usize, how: u8) {
        if self.granted.is_empty() {
            return;
        }
        let (worker, lease) = self.granted[number % self.granted.len()].clone();
        let outcome = match how {
            0 => LeaseOutcome::Failed("broken".into()),
            1 => LeaseOutcome::Returned,
            _ => LeaseOutcome::Done(outcome(&lease)),
        };
        let expected = self.expect_receipt(worker, &lease, &outcome);
        let report = Report { task: lease.task, attempt: lease.attempt, outcome };
        assert_eq!(self.board.report(self.time(), &name(worker), report.clone()), expected);
        assert_eq!(
            self.board.report(self.time(), &name(worker), report),
            if expected == Receipt::Refused { Receipt::Refused } else { Receipt::Duplicate },
            "a report sent again changes nothing"
        );
    }

    fn expect_receipt(&mut self, worker: usize, lease: &Lease, outcome: &LeaseOutcome) -> Receipt {
        let now = self.now;
        let id = lease.task.0;
        if !self.model.tasks.iter().any(|t| t.id == id) {
            return Receipt::Duplicate;
        }
        let foreign = lease.attempt.epoch() != self.epoch;
        let live = self.model.live_of(worker).count();
        let task = self.model.task(id).expect("checked");
        let open = task.open();
        if foreign && open {
            task.reclaim(worker, live, lease.attempt.0, now);
            self.model.seen.insert(worker, now);
        }
        let known = self.model.seen.contains_key(&worker);
        let task = self.model.task(id).expect("checked");
        let held = task.held.iter().find(|h| h.attempt == lease.attempt.0 && h.worker == worker && known);
        let Some(held) = held else {
            return if foreign && !open { Receipt::Duplicate } else { Receipt::Refused };
        };
        let hold = held.hold;
        let counts = matches!(hold, Hold::Live | Hold::Ended(Cause::Died | Cause::Lost));
        self.model.seen.insert(worker, now);
        match outcome {
            LeaseOutcome::Done(_) if open && counts => {
                let task = self.model.task(id).expect("checked");
                task.done_by = Some(lease.attempt.0);
                for held in task.held.iter_mut().filter(|h| h.hold == Hold::Live) {
                    held.hold = Hold::Over;
                }
                let call = self.model.calls;
                self.model.undelivered.push((call, id));
                *self.model.accepted.entry(id).or_default() += 1;
                Receipt::Accepted
            }
            LeaseOutcome::Failed(_) if hold == Hold::Live => {
                self.model.end(now, id, lease.attempt.0, Cause::Failed);
                Receipt::Noted
            }
            LeaseOutcome::Returned if hold == Hold::Live => {
                self.model.end(now, id, lease.attempt.0, Cause::Returned);
                Receipt::Noted
            }
            _ => Receipt::Duplicate,
        }
    }

    /// Reports a lease that this worker never had.
    fn forge(&mut self, worker: usize, task: u64, attempt: u32) {
        let attempt = self.epoch.attempt(attempt);
        let had =
            |(w, lease): &(usize, Lease)| *w == worker && lease.task.0 == task && lease.attempt == attempt;
        if self.granted.iter().any(had) {
            return;
        }
        let report = Report { task: TaskId(task), attempt, outcome: LeaseOutcome::Done("forged".into()) };
        let receipt = self.board.report(self.time(), &name(worker), report);
        let known = self.model.tasks.iter().any(|t| t.id == task);
        assert_eq!(receipt, if known { Receipt::Refused } else { Receipt::Duplicate });
    }

    fn die(&mut self, worker: usize, how: u8) {
        let (end, cause) = match how {
            0 => (WorkerExit::Well, Cause::Lost),
            1 => (WorkerExit::Crashed, Cause::Crashed),
            _ => (WorkerExit::Gone, Cause::Died),
        };
        self.board.worker_ended(self.time(), &name(worker), end, "ended");
        let mut held = Vec::new();
        for task in &self.model.tasks {
            for h in task.held.iter().filter(|h| h.worker == worker && h.hold == Hold::Live) {
                held.push((task.id, h.attempt));
            }
        }
        for (id, attempt) in held {
            self.model.end(self.now, id, attempt, cause);
        }
    }

    fn cancel(&mut self, number: usize) {
        let Some(id) = self.pick(number) else { return };
        let open = self.model.task(id).expect("picked").open();
        assert_eq!(self.board.cancel(TaskId(id)), open);
        if open {
            self.model.tasks.retain(|t| t.id != id);
        }
    }

    fn reject(&mut self, number: usize) {
        let Some(id) = self.pick(number) else { return };
        let task = self.model.task(id).expect("picked");
        let done = task.done_by.take();
        assert_eq!(self.board.reject(self.time(), TaskId(id), "unreadable"), done.is_some());
        if let Some(attempt) = done {
            let task = self.model.task(id).expect("picked");
            let held = task.held.iter_mut().find(|h| h.attempt == attempt).expect("the winner's lease");
            held.hold = Hold::Ended(Cause::Rejected);
            let worker = held.worker;
            task.requeued = true;
            self.model.note_failure(self.now, id, attempt, worker, Cause::Rejected, true);
            self.model.undelivered.retain(|(_, e)| *e != id);
            *self.model.rejected.entry(id).or_default() += 1;
            self.model.quarantine_if_due(id);
        }
    }

    fn deliver(&mut self) {
        let finished = self.board.next_finished();
        let undelivered = &self.model.undelivered;
        let first = undelivered.first().map(|(call, _)| *call);
        let chosen = finished.as_ref().map(|f| f.task.0);
        let at = undelivered.iter().position(|(call, id)| Some(*call) == first && Some(*id) == chosen);
        assert_eq!(
            (at.is_some(), first.is_some()),
            (first.is_some(), chosen.is_some()),
            "endings come in order"
        );
        if let Some(at) = at {
            self.model.undelivered.remove(at);
        }
        if let Some(finished) = finished {
            self.check_ending(&finished);
        }
    }

    fn check_ending(&mut self, finished: &FinishedTask) {
        let task = self.model.task(finished.task.0).expect("the model has the task");
        match &finished.result {
            TaskResult::Done { outcome, attempt, worker } => {
                assert_eq!(task.done_by, Some(attempt.0), "the first valid outcome wins");
                let text = format!("result of {} under {}", finished.task, attempt.0);
                assert_eq!(outcome.as_bytes(), text.as_bytes());
                let held = task.held.iter().find(|h| h.attempt == attempt.0).expect("the winner's lease");
                assert_eq!(*worker, name(held.worker));
            }
            TaskResult::Quarantined { failures } => {
                assert!(task.quarantined);
                assert_eq!(failures.len(), task.failures.len());
            }
        }
    }

    fn remove(&mut self, number: usize) {
        let Some(id) = self.pick(number) else { return };
        let open = self.model.task(id).expect("picked").open();
        assert_eq!(self.board.remove(TaskId(id)), !open);
        if !open {
            // Only an outcome that the consumer keeps ends a back-off.
            let task = self.model.task(id).expect("picked");
            let done = task.held.iter().find(|h| Some(h.attempt) == task.done_by).map(|h| h.worker);
            if let Some(w) = done.and_then(|worker| self.model.workers.get_mut(&worker)) {
                (w.consecutive_failures, w.backoff_until, w.pause) = (0, 0, 0);
            }
            self.model.tasks.retain(|t| t.id != id);
            self.model.undelivered.retain(|(_, e)| *e != id);
        }
    }

    /// Restarts the coordinator. The new one knows the tasks that the consumer has not removed. One worker names its leases
    /// before the consumer has submitted the open tasks.
    fn restart(&mut self, worker: usize, mask: u64) {
        self.epochs += 1;
        self.epoch = Epoch::new(self.epochs);
        self.board = Board::recovering(config(), self.epoch);
        self.board.set_drain(self.model.drain);
        self.model.undelivered.clear();
        self.model.seen.clear();
        self.model.workers.clear();
        self.model.kinds.clear();
        for task in &mut self.model.tasks {
            if task.done_by.take().is_some() {
                // The worker still has the outcome, and may report it again.
                *self.model.rejected.entry(task.id).or_default() += 1;
            }
            (task.quarantined, task.next_attempt, task.requeued) = (false, 1, false);
            (task.faults, task.deaths, task.deaths_alone) = (0, 0, 0);
            task.failures.clear();
            task.held.clear();
        }
        let mine = self.granted.iter().filter(|(w, _)| *w == worker).map(|(_, lease)| lease.id());
        let named: Vec<LeaseId> =
            mine.enumerate().filter(|(i, _)| mask >> (i % 64) & 1 == 1).map(|(_, id)| id).collect();
        let ack = self.board.heartbeat(self.time(), &name(worker), &named);
        assert_eq!(ack.abandon, [], "no lease is abandoned during the recovery");
        for lease in &named {
            let outcome = LeaseOutcome::Done("early".into());
            let report = Report { task: lease.task, attempt: lease.attempt, outcome };
            assert_eq!(self.board.report(self.time(), &name(worker), report), Receipt::Waiting);
        }
        self.model.seen.insert(worker, self.now);
        let (now, mut live) = (self.now, 0);
        for task in &mut self.model.tasks {
            let (id, kind, priority) = (TaskId(task.id), task.kind.clone(), task.priority);
            let again = Task { id, kind, priority, payload: payload(task.id) };
            assert_eq!(self.board.submit_excluding(Time(now), again, task.excluded.map(name)), Ok(true));
            self.model.kinds.push(task.kind.clone());
            if let Some(lease) = named.iter().rfind(|lease| lease.task.0 == task.id) {
                let reclaimed = task.reclaim(worker, live, lease.attempt.0, now);
                live += task.live();
                assert_eq!(reclaimed, task.excluded != Some(worker), "nothing is a suspect yet");
            }
        }
        self.board.finish_recovery();
    }

    fn compare(&self) {
        let tasks = &self.model.tasks;
        let status = self.board.status(self.time());
        assert_eq!(status.tasks, tasks.len());
        for k in &status.kinds {
            let of_kind: Vec<_> = tasks.iter().filter(|t| t.kind == k.kind).collect();
            assert_eq!(k.pending, of_kind.iter().filter(|t| t.pending()).count(), "pending {}", k.kind);
            assert_eq!(
                k.leased,
                of_kind.iter().filter(|t| t.open() && t.live() > 0).count(),
                "leased {}",
                k.kind
            );
            assert_eq!(k.held_back, self.model.held_back(&k.kind));
            let undelivered =
                self.model.undelivered.iter().filter(|(_, id)| of_kind.iter().any(|t| t.id == *id));
            assert_eq!(k.undelivered, undelivered.count(), "undelivered {}", k.kind);
        }
        for w in &status.workers {
            let number: usize = w.worker.as_str().trim_start_matches('w').parse().expect("a number");
            let live =
                tasks.iter().flat_map(|t| &t.held).filter(|h| h.worker == number && h.hold == Hold::Live);
            assert_eq!(w.leases, live.count(), "leases of {}", w.worker);
        }
        for (id, times) in &self.model.accepted {
            let rejected = self.model.rejected.get(id).copied().unwrap_or(0);
            assert!(*times <= 1 + rejected, "task {id} was done twice");
        }
    }

    /// Checks that every open task ends if one good worker continues.
    fn finish(&mut self) {
        self.model.drain = false;
        self.board.set_drain(false);
        for _ in 0..10_000 {
            if self.model.tasks.iter().all(|t| !t.open()) {
                break;
            }
            self.play(&Op::Advance(LEASE_MS / 2));
            for k in 0..2 {
                let before = self.granted.len();
                self.play(&Op::Lease { worker: 9, kind: k, capacity: 6 });
                for number in before..self.granted.len() {
                    self.play(&Op::Report { lease: number, how: 7 });
                }
            }
        }
        assert!(self.model.tasks.iter().all(|t| !t.open()), "a task was lost");
        while !self.model.undelivered.is_empty() {
            self.play(&Op::Deliver);
        }
        assert_eq!(self.board.next_finished(), None);
    }
}

/// Applies a heartbeat to a lease of the model. Returns true if the lease stays live.
fn revive(task: &mut MTask, epoch: Epoch, worker: usize, live: usize, attempt: AttemptId, now: u64) -> bool {
    let has_room = task.has_room(worker) && live < CAPACITY;
    let Some(at) = task.held.iter().position(|h| h.attempt == attempt.0 && h.worker == worker) else {
        return has_room && attempt.epoch() != epoch && task.reclaim(worker, live, attempt.0, now);
    };
    match task.held[at].hold {
        Hold::Live => {
            task.held[at].deadline = now + LEASE_MS;
            true
        }
        Hold::Ended(cause @ (Cause::Died | Cause::Lost)) if has_room => {
            if cause == Cause::Died && task.held[at].granted {
                task.deaths -= 1;
                task.deaths_alone -= u32::from(task.held[at].alone);
                task.failures.retain(|(of, _, _)| *of != attempt.0);
            }
            let alone = live == 0 && task.suspect();
            let held = &mut task.held[at];
            (held.hold, held.deadline, held.alone) = (Hold::Live, now + LEASE_MS, alone);
            true
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_board_agrees_with_the_model(ops in proptest::collection::vec(op(), 1..160)) {
        let mut game = Game::new();
        for op in &ops {
            game.play(op);
        }
        game.finish();
    }
}

/// A worker finds its tasks behind many tasks that it may not have.
#[test]
fn tasks_withheld_from_a_worker_do_not_hide_others() {
    let (mut board, kind) = (Board::new(BoardConfig { max_leases_per_worker: 500, ..config() }), GENERATE);
    let (own, other) = (name(0), name(1));
    let task = |id, priority| Task { id: TaskId(id), kind: GENERATE, priority, payload: payload(id) };
    for id in 0..300 {
        let excluded = if id < 200 { Some(own.clone()) } else { None };
        board.submit_excluding(Time(0), task(id, 1), excluded).expect("room");
    }
    // It fails a hundred tasks while another worker is present. Some of its outcomes are kept.
    board.lease(Time(0), &other, &kind, 0);
    for failed in 0..100 {
        board.submit(Time(0), task(1000 + failed, 2)).expect("room");
        for (id, outcome) in [
            (1000 + failed, LeaseOutcome::Done("x".into())),
            (200 + failed, LeaseOutcome::Failed("x".into())),
        ] {
            let [lease] = &board.lease(Time(0), &own, &kind, 1)[..] else { panic!("nothing for {id}") };
            assert_eq!(lease.task, TaskId(id), "in order");
            let report = Report { task: lease.task, attempt: lease.attempt, outcome };
            board.report(Time(0), &own, report);
        }
        assert!(board.remove(TaskId(1000 + failed)));
    }
    board.submit(Time(0), task(5000, 0)).expect("room");
    let leased = |board: &mut Board, worker, capacity| -> Vec<u64> {
        board.lease(Time(0), worker, &kind, capacity).iter().map(|lease| lease.task.0).collect()
    };
    assert_eq!(leased(&mut board, &own, 2), [5000]);
    // The other worker gets all tasks in order, the failed ones first.
    let rest = leased(&mut board, &other, 500);
    assert_eq!(rest, (200..300).rev().chain(0..200).collect::<Vec<u64>>());
}
