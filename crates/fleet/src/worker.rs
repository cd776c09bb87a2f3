//! The worker's side: leases kept alive, outcomes sent in batches and sent again until they arrive, leases handed back.
//!
//! A [`Session`] is the worker's end of the protocol, for a worker that runs its own loop (as a sampler with
//! continuous batching does). [`serve`] is such a loop for work that takes one thread per task.
//!
//! A worker may be killed at any moment: nothing that matters lives here.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::coordinator::{CallError, Coordinator};
use crate::task::{Lease, LeaseId, Outcome, Payload, Receipt, Report, TaskKind, WorkerName};

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Its name, unique among the workers of the coordinator and new for every process.
    pub name: WorkerName,
    /// What it works on.
    pub kind: TaskKind,
    /// Most outcomes in one message. Default 64.
    pub batch: usize,
    /// An outcome waits at most this long for company. Default 50 ms.
    pub linger: Duration,
    /// If the coordinator cannot be reached for this long, the worker gives up. Default 15 minutes.
    pub patience: Duration,
    /// After a drain begins, running tasks have this long before they are given back, and outcomes to reach the
    /// coordinator. Default 20 s, which fits in Slurm's default of 30 s between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Leases in hand beyond those at work, for [`serve`]: with them a slot need not wait for the coordinator when it
    /// comes free. For tasks that take far less time than a call. Default 0.
    pub ahead: usize,
    /// How long [`serve`] lets the coordinator wait for work to give; a drain that begins meanwhile has to wait for that
    /// answer. Default 2 s.
    pub poll: Duration,
}

impl WorkerConfig {
    /// The defaults for a worker of that name and kind.
    #[must_use]
    pub fn new(name: WorkerName, kind: TaskKind) -> Self {
        Self {
            name,
            kind,
            batch: 64,
            linger: Duration::from_millis(50),
            patience: Duration::from_secs(15 * 60),
            grace: Duration::from_secs(20),
            ahead: 0,
            poll: Duration::from_secs(2),
        }
    }
}

/// Why a worker gave up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The coordinator was away for too long.
    #[error("worker {worker} gives up: for {away_s} s {last}")]
    Away {
        worker: WorkerName,
        /// Seconds without an answer.
        away_s: u64,
        last: CallError,
    },
    /// The coordinator does not want this worker.
    #[error("worker {worker}: {error}")]
    Refused { worker: WorkerName, error: CallError },
    /// No thread could be started.
    #[error("worker {worker} cannot start a thread: {error}")]
    Thread { worker: WorkerName, error: String },
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Leases that it got.
    pub leased: u64,
    /// Outcomes of it that became the task's.
    pub accepted: u64,
    /// Outcomes that came after another's.
    pub duplicates: u64,
    /// Reports that the coordinator did not recognise.
    pub refused: u64,
    /// Failures and returns that it reported.
    pub noted: u64,
    /// Leases dropped because the coordinator said so.
    pub abandoned: u64,
    /// Outcomes of it that the consumer could not use.
    pub rejected: u64,
    /// Outcomes that were not known to be safe when the worker had to leave: their tasks may be done again.
    pub unsettled: u64,
}

/// Asks for a drain from anywhere, as from a signal handler. Clones ask for the same one.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// Asks for it.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it has been asked for.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag itself, for libraries that set one when a signal comes.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Begins a drain when SIGTERM or SIGINT comes; the second of them ends the process at once.
    ///
    /// # Errors
    /// If the system does not let us handle signals.
    pub fn begin_on_signals(&self) -> std::io::Result<()> {
        // Not the drain itself: the coordinator may have asked for one before the first signal comes.
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signalled))?;
            signal_hook::flag::register(signal, Arc::clone(&signalled))?;
            signal_hook::flag::register(signal, self.flag())?;
        }
        Ok(())
    }
}

/// Tells a running task that nobody needs its outcome any more.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Whether to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct Hand {
    held: BTreeMap<LeaseId, Cancel>,
    outbox: VecDeque<(Instant, Report)>,
    /// Being sent now: still ours, so heartbeats name them.
    sending: Vec<LeaseId>,
    abandoned: Vec<LeaseId>,
    lease_time: Duration,
    last_answer: Instant,
    /// When the coordinator's absence is mentioned next, and how long after that again.
    next_warning: Option<(Instant, Duration)>,
    /// The coordinator was away or does not know what is open: it shall hear soon of all that is in hand.
    beats_soon: bool,
    failed: Option<WorkerError>,
    /// When the drain was first seen.
    drained: Option<Instant>,
    closing: Option<Instant>,
    summary: Summary,
}

impl Hand {
    /// The coordinator has answered.
    fn note_answer(&mut self, worker: &WorkerName) {
        if self.next_warning.take().is_some() {
            let away_s = self.last_answer.elapsed().as_secs();
            tracing::warn!(%worker, away_s, "the coordinator answers again");
        }
        self.last_answer = Instant::now();
    }

    /// Puts reports that have not arrived back where they were.
    fn take_back(&mut self, reports: impl DoubleEndedIterator<Item = Report>) {
        let now = Instant::now();
        reports.rev().for_each(|report| self.outbox.push_front((now, report)));
        self.sending.clear();
    }
}

struct Desk {
    coordinator: Arc<dyn Coordinator>,
    config: WorkerConfig,
    hand: Mutex<Hand>,
    changed: Condvar,
    drain: Drain,
}

/// The worker's end of the protocol: two threads that keep leases alive and send outcomes. Dropping it without
/// [`Session::close`] leaves the leases to expire.
pub struct Session {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

/// Shortest and longest pause before a failed call is made again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How soon, and how seldom at last, a worker says again that the coordinator does not answer.
const WARNINGS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// How soon an outcome that is not safe yet is sent again. The coordinator has made it wait already.
const AGAIN: Duration = Duration::from_millis(500);
/// Longest pause between two tries once the worker is to leave.
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// How long a leaving worker waits for an outcome to become safe, or tries at least to get rid of it.
const FAREWELL: Duration = Duration::from_secs(2);
/// Shortest and longest time between two heartbeats.
const SHORTEST_BEAT: Duration = Duration::from_millis(20);
const LONGEST_BEAT: Duration = Duration::from_secs(30);
/// After a call that failed the next heartbeat comes so soon: a coordinator that is back gives to others what nobody
/// names.
const BEAT_AGAIN: Duration = Duration::from_secs(1);
/// What the worker assumes about leases before the first answer.
const FIRST_LEASE_TIME: Duration = Duration::from_secs(20);

impl Session {
    /// Begins; nothing is sent before the first lease.
    ///
    /// # Errors
    /// [`WorkerError::Thread`] if the system gives no threads.
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        config: WorkerConfig,
        drain: Drain,
    ) -> Result<Self, WorkerError> {
        let hand = Hand {
            held: BTreeMap::new(),
            outbox: VecDeque::new(),
            sending: Vec::new(),
            abandoned: Vec::new(),
            lease_time: FIRST_LEASE_TIME,
            last_answer: Instant::now(),
            next_warning: None,
            beats_soon: false,
            failed: None,
            drained: None,
            closing: None,
            summary: Summary::default(),
        };
        let desk =
            Arc::new(Desk { coordinator, config, hand: Mutex::new(hand), changed: Condvar::new(), drain });
        let mut session = Self { desk, threads: Vec::new() };
        session.spawn("heartbeat", Desk::keep_alive)?;
        session.spawn("report", Desk::send_outcomes)?;
        Ok(session)
    }

    fn spawn(&mut self, what: &str, body: fn(&Desk)) -> Result<(), WorkerError> {
        let desk = Arc::clone(&self.desk);
        let thread = thread::Builder::new().name(format!("fleet-{what}")).spawn(move || body(&desk));
        let worker = self.desk.config.name.clone();
        self.threads.push(thread.map_err(|e| WorkerError::Thread { worker, error: e.to_string() })?);
        Ok(())
    }

    /// Up to `capacity` leases; waits up to `wait` for the first, over failed calls too. Each comes with the sign by
    /// which it is told to stop.
    ///
    /// # Errors
    /// [`WorkerError`] if this worker has to give up.
    pub fn lease(&self, capacity: usize, wait: Duration) -> Result<Vec<(Lease, Cancel)>, WorkerError> {
        let deadline = Instant::now() + wait;
        let mut pauses = Pauses::new(&self.desk.config.name);
        loop {
            self.check()?;
            if self.desk.has_drain_begun() || capacity == 0 {
                return Ok(Vec::new());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let config = &self.desk.config;
            match self.desk.coordinator.lease(&config.name, &config.kind, capacity, left) {
                Ok(grant) => return Ok(self.desk.take_in(grant)),
                Err(error) => self.desk.note_failure(error),
            }
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            self.desk.pause(pauses.next().min(left));
        }
    }

    /// Ends a lease. Its report is sent soon, again and again until it arrives. A lease that was abandoned or ended
    /// before is ignored.
    pub fn finish(&self, lease: LeaseId, outcome: Outcome) {
        let mut hand = self.desk.lock();
        if hand.held.remove(&lease).is_some() {
            let report = Report { task: lease.task, attempt: lease.attempt, outcome };
            hand.outbox.push_back((Instant::now(), report));
            self.desk.changed.notify_all();
        }
    }

    /// Leases that the coordinator said to drop since the last call. They are out of hand already.
    #[must_use]
    pub fn take_abandoned(&self) -> Vec<LeaseId> {
        std::mem::take(&mut self.desk.lock().abandoned)
    }

    /// Number of leases in hand.
    #[must_use]
    pub fn held(&self) -> usize {
        self.desk.lock().held.len()
    }

    /// Whether to finish and leave: asked for by the coordinator or through [`Drain`].
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.desk.has_drain_begun()
    }

    /// What has been done so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.desk.lock().summary
    }

    /// Returns every lease in hand and tells whoever works on it to stop.
    fn give_back(&self) {
        let held: Vec<(LeaseId, Cancel)> =
            self.desk.lock().held.iter().map(|(l, c)| (*l, c.clone())).collect();
        for (lease, cancel) in held {
            cancel.cancel();
            self.finish(lease, Outcome::Returned);
        }
    }

    fn check(&self) -> Result<(), WorkerError> {
        self.desk.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Gives back what is in hand, sends what is unsent, and ends; within [`WorkerConfig::grace`] of the drain, or
    /// two seconds if those are over.
    ///
    /// # Errors
    /// [`WorkerError`] if the worker had to give up; then the unsent outcomes are lost and their tasks go to others.
    pub fn close(mut self) -> Result<Summary, WorkerError> {
        self.give_back();
        let deadline = self.desk.begin_closing();
        for thread in std::mem::take(&mut self.threads) {
            // One that is still in a call then, to a coordinator that hangs, ends with the process.
            while !thread.is_finished() && Instant::now() < deadline + LAST_PAUSE {
                thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                // The threads hold no lock while they call the coordinator; one that panicked there has nothing to add.
                let _ = thread.join();
            }
        }
        self.check()?;
        self.desk.leave()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.desk.begin_closing();
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Hand> {
        // The hand is consistent after every statement, so a panic elsewhere does not spoil it.
        self.hand.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn has_drain_begun(&self) -> bool {
        let begun = self.drain.has_begun();
        if begun {
            self.lock().drained.get_or_insert_with(Instant::now);
        }
        begun
    }

    /// From now on the threads only get rid of what there is. Gives when they shall have ended.
    fn begin_closing(&self) -> Instant {
        self.has_drain_begun();
        let mut hand = self.lock();
        hand.closing.get_or_insert_with(Instant::now);
        self.changed.notify_all();
        self.end_of(&hand)
    }

    /// When a closing worker gives up. A drain's grace is for the tasks and for their outcomes together.
    fn end_of(&self, hand: &Hand) -> Instant {
        let closing = hand.closing.unwrap_or_else(Instant::now);
        (hand.drained.unwrap_or(closing) + self.config.grace).max(closing + FAREWELL)
    }

    /// What is left when the threads have ended, or have had their time.
    fn leave(&self) -> Result<Summary, WorkerError> {
        let mut hand = self.lock();
        let left = (hand.outbox.len() + hand.sending.len()) as u64;
        hand.summary.unsettled += left;
        match &hand.next_warning {
            Some(_) if left > 0 => Err(WorkerError::Away {
                worker: self.config.name.clone(),
                away_s: hand.last_answer.elapsed().as_secs(),
                last: CallError::Away(format!("{left} reports could not be sent")),
            }),
            _ => Ok(hand.summary),
        }
    }

    fn take_in(&self, grant: crate::coordinator::Grant) -> Vec<(Lease, Cancel)> {
        let mut hand = self.lock();
        hand.note_answer(&self.config.name);
        if hand.lease_time != grant.lease_time {
            hand.lease_time = grant.lease_time;
            self.changed.notify_all();
        }
        hand.summary.leased += grant.leases.len() as u64;
        if grant.drain {
            self.drain.begin();
        }
        let leases = grant.leases.into_iter().map(|lease| {
            let cancel = Cancel::default();
            hand.held.insert(lease.id(), cancel.clone());
            (lease, cancel)
        });
        leases.collect()
    }

    /// Notes a call that failed; gives up if it was refused or the coordinator has been away for too long.
    fn note_failure(&self, error: CallError) {
        let mut hand = self.lock();
        let worker = self.config.name.clone();
        let away = hand.last_answer.elapsed();
        hand.beats_soon = true;
        let now = Instant::now();
        let (due, pause) = hand.next_warning.unwrap_or((now, WARNINGS.0));
        if now >= due {
            hand.next_warning = Some((now + pause, (2 * pause).min(WARNINGS.1)));
            tracing::warn!(%worker, away_s = away.as_secs(), "{error}; the worker goes on trying");
        }
        let gives_up = match error {
            CallError::Refused(_) => Some(WorkerError::Refused { worker, error }),
            CallError::Away(_) if away >= self.config.patience => {
                Some(WorkerError::Away { worker, away_s: away.as_secs(), last: error })
            }
            CallError::Away(_) => None,
        };
        if gives_up.is_some() && hand.failed.is_none() {
            hand.failed = gives_up;
            hand.held.values().for_each(Cancel::cancel);
            self.changed.notify_all();
        }
    }

    /// Waits, but no longer than the worker lives.
    fn pause(&self, span: Duration) {
        let hand = self.lock();
        let goes_on = |hand: &mut Hand| hand.closing.is_none() && hand.failed.is_none();
        // A poisoned lock is taken as it is, as in `lock`.
        drop(self.changed.wait_timeout_while(hand, span, goes_on));
    }

    /// The heartbeat thread: four beats per lease time while there is anything in hand.
    fn keep_alive(&self) {
        let mut last = Instant::now();
        while let Some(held) = self.due_for_a_beat(last) {
            last = Instant::now();
            if held.is_empty() {
                continue;
            }
            match self.coordinator.heartbeat(&self.config.name, &held) {
                Ok(beat) => self.obey(&beat),
                Err(error) => self.note_failure(error),
            }
        }
    }

    /// Waits until the next beat is due; gives all leases that are not done with, or `None` at the end.
    fn due_for_a_beat(&self, last: Instant) -> Option<Vec<LeaseId>> {
        let mut hand = self.lock();
        loop {
            let nothing_unsent = hand.outbox.is_empty() && hand.sending.is_empty();
            let is_over = hand.closing.is_some() && (nothing_unsent || Instant::now() >= self.end_of(&hand));
            if hand.failed.is_some() || is_over {
                return None;
            }
            let longest = if hand.beats_soon { BEAT_AGAIN } else { LONGEST_BEAT };
            let pause = (hand.lease_time / 4).clamp(SHORTEST_BEAT, longest);
            let left = pause.saturating_sub(last.elapsed());
            if left.is_zero() {
                break;
            }
            // Not for all of it: a drain does not ring the bell.
            hand = match self.changed.wait_timeout(hand, left.min(Duration::from_secs(1))) {
                Ok((hand, _)) => hand,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let unsent = hand.outbox.iter().map(|(_, r)| LeaseId { task: r.task, attempt: r.attempt });
        Some(hand.held.keys().copied().chain(unsent).chain(hand.sending.iter().copied()).collect())
    }

    fn obey(&self, beat: &crate::coordinator::Beat) {
        let mut hand = self.lock();
        hand.note_answer(&self.config.name);
        hand.beats_soon = false;
        hand.lease_time = beat.lease_time;
        if beat.drain {
            self.drain.begin();
        }
        for lease in &beat.abandon {
            if let Some(cancel) = hand.held.remove(lease) {
                cancel.cancel();
                hand.abandoned.push(*lease);
                hand.summary.abandoned += 1;
            }
        }
        self.changed.notify_all();
    }

    /// The reporter thread.
    fn send_outcomes(&self) {
        let mut pauses = Pauses::new(&self.config.name);
        while let Some(batch) = self.next_batch() {
            let pause = match self.coordinator.report(&self.config.name, batch.clone()) {
                Ok(receipts) => {
                    pauses.reset();
                    let is_settled = self.sort(batch, &receipts);
                    if is_settled { Duration::ZERO } else { AGAIN }
                }
                Err(error) => {
                    self.note_failure(error);
                    self.lock().take_back(batch.into_iter());
                    pauses.next()
                }
            };
            self.rest(pause);
        }
    }

    /// A pause of the reporter; short if the worker is to leave, which goes on trying all the same.
    fn rest(&self, span: Duration) {
        let begun = Instant::now();
        while let Some(left) = span.checked_sub(begun.elapsed()) {
            let hand = self.lock();
            let is_leaving = hand.closing.is_some() || hand.drained.is_some();
            drop(hand);
            if is_leaving && begun.elapsed() >= LAST_PAUSE {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// The next outcomes to send, once there are enough or the oldest has lingered; `None` at the end.
    fn next_batch(&self) -> Option<Vec<Report>> {
        let mut hand = self.lock();
        loop {
            let is_closing = hand.closing.is_some();
            if hand.failed.is_some() || (is_closing && Instant::now() >= self.end_of(&hand)) {
                return None;
            }
            let due = match hand.outbox.front() {
                None if is_closing => return None,
                None => Duration::from_secs(1),
                Some(_) if is_closing || hand.outbox.len() >= self.config.batch => Duration::ZERO,
                Some((since, _)) => self.config.linger.saturating_sub(since.elapsed()),
            };
            if due.is_zero() {
                let number = hand.outbox.len().min(self.config.batch.max(1));
                let batch: Vec<Report> = hand.outbox.drain(..number).map(|(_, report)| report).collect();
                hand.sending = batch.iter().map(|r| LeaseId { task: r.task, attempt: r.attempt }).collect();
                return Some(batch);
            }
            hand = match self.changed.wait_timeout(hand, due) {
                Ok((hand, _)) => hand,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Counts what has become of a batch and keeps what is not safe yet; whether all is settled.
    fn sort(&self, batch: Vec<Report>, receipts: &[Receipt]) -> bool {
        let mut hand = self.lock();
        hand.note_answer(&self.config.name);
        for receipt in receipts {
            match receipt {
                Receipt::Accepted => hand.summary.accepted += 1,
                Receipt::Duplicate => hand.summary.duplicates += 1,
                Receipt::Refused => hand.summary.refused += 1,
                Receipt::Noted => hand.summary.noted += 1,
                Receipt::Rejected => hand.summary.rejected += 1,
                Receipt::Waiting => {}
            }
        }
        let waits = |at: usize| receipts.get(at) == Some(&Receipt::Waiting);
        let waiting: Vec<Report> =
            batch.into_iter().enumerate().filter(|(at, _)| waits(*at)).map(|(_, report)| report).collect();
        let is_settled = waiting.is_empty();
        hand.beats_soon |= !is_settled;
        // The coordinator has these. Only if it dies too are they lost, and then their tasks are done again.
        if hand.closing.is_some_and(|begun| begun.elapsed() >= FAREWELL) {
            hand.summary.unsettled += waiting.len() as u64;
            hand.sending.clear();
        } else {
            // Behind what the coordinator has not heard of: what makes these safe may be among it.
            let now = Instant::now();
            hand.outbox.extend(waiting.into_iter().map(|report| (now, report)));
            hand.sending.clear();
        }
        self.changed.notify_all();
        is_settled
    }
}

/// Growing pauses with jitter, so that a thousand workers do not come back in the same instant.
struct Pauses {
    next: Duration,
    noise: u64,
}

impl Pauses {
    fn new(seed: &WorkerName) -> Self {
        let noise = seed
            .as_str()
            .bytes()
            .fold(0x9e37_79b9_7f4a_7c15, |n: u64, b| (n ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self { next: PAUSES.0, noise: noise | 1 }
    }

    fn reset(&mut self) {
        self.next = PAUSES.0;
    }

    /// Between half of the current pause and all of it; the pause doubles.
    fn next(&mut self) -> Duration {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let share = 0.5 + (self.noise >> 11) as f64 / (1u64 << 54) as f64;
        let pause = self.next.mul_f64(share);
        self.next = (self.next * 2).min(PAUSES.1);
        pause
    }
}

struct Bench {
    waiting: VecDeque<(Lease, Cancel)>,
    busy: usize,
    over: bool,
}

/// Works off tasks, one thread each, `slots` at a time, until the worker is drained; then gives back what it holds.
///
/// The handler turns a lease into an outcome, or into the reason why this worker (not the problem) failed. It should
/// look at its [`Cancel`] now and then. A handler that panics has failed; the worker goes on.
///
/// # Errors
/// [`WorkerError`] if the worker has to give up.
pub fn serve(
    coordinator: Arc<dyn Coordinator>,
    config: WorkerConfig,
    drain: Drain,
    slots: usize,
    handler: impl Fn(&Lease, &Cancel) -> Result<Payload, String> + Sync,
) -> Result<Summary, WorkerError> {
    let (grace, ahead, poll) = (config.grace, config.ahead, config.poll);
    let session = Session::start(coordinator, config, drain)?;
    let bench = Mutex::new(Bench { waiting: VecDeque::new(), busy: 0, over: false });
    let bell = Condvar::new();
    let result = thread::scope(|scope| {
        for _ in 0..slots.max(1) {
            scope.spawn(|| work_off(&session, &bench, &bell, &handler));
        }
        let result = fetch(&session, slots.max(1), ahead, poll, &bench, &bell);
        wind_up(&session, grace, &bench, &bell);
        result
    });
    let closed = session.close();
    result.and(closed)
}

fn sit<'a>(bench: &'a Mutex<Bench>) -> MutexGuard<'a, Bench> {
    // Handlers run outside of this lock; what is under it cannot panic halfway.
    bench.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keeps as many tasks in hand as there are slots, and up to `ahead` more, until the worker is drained.
fn fetch(
    session: &Session,
    slots: usize,
    ahead: usize,
    poll: Duration,
    bench: &Mutex<Bench>,
    bell: &Condvar,
) -> Result<(), WorkerError> {
    while !session.is_draining() {
        session.check()?;
        for lease in session.take_abandoned() {
            sit(bench).waiting.retain(|(waiting, _)| waiting.id() != lease);
        }
        let free = {
            let at = sit(bench);
            let free = (slots + ahead).saturating_sub(at.busy + at.waiting.len());
            // Of those ahead, half are fetched at once: not a call for each.
            let enough = ahead > 0 && at.waiting.len() > ahead / 2;
            if free == 0 || enough {
                drop(bell.wait_timeout(at, Duration::from_millis(200)));
                continue;
            }
            free
        };
        let leases = session.lease(free, poll)?;
        // The drain may have begun meanwhile: what was leased since is given back unbegun.
        if session.is_draining() {
            break;
        }
        if !leases.is_empty() {
            sit(bench).waiting.extend(leases);
            bell.notify_all();
        }
    }
    Ok(())
}

fn work_off(
    session: &Session,
    bench: &Mutex<Bench>,
    bell: &Condvar,
    handler: &(impl Fn(&Lease, &Cancel) -> Result<Payload, String> + Sync),
) {
    loop {
        let (lease, cancel) = {
            let mut at = sit(bench);
            loop {
                if at.over {
                    return;
                }
                if let Some(next) = at.waiting.pop_front() {
                    at.busy += 1;
                    break next;
                }
                at = match bell.wait_timeout(at, Duration::from_secs(1)) {
                    Ok((at, _)) => at,
                    Err(poisoned) => poisoned.into_inner().0,
                };
            }
        };
        if !cancel.is_cancelled() {
            let outcome = match catch_unwind(AssertUnwindSafe(|| handler(&lease, &cancel))) {
                Ok(Ok(payload)) => Outcome::Done(payload),
                // Whoever was told to stop has not failed.
                Ok(Err(_)) if cancel.is_cancelled() => Outcome::Returned,
                Ok(Err(reason)) => Outcome::Failed(reason),
                Err(panic) => Outcome::Failed(format!("the handler panicked: {}", panic_text(&*panic))),
            };
            session.finish(lease.id(), outcome);
        }
        sit(bench).busy -= 1;
        bell.notify_all();
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Lets running tasks end within the grace, then tells them to stop.
fn wind_up(session: &Session, grace: Duration, bench: &Mutex<Bench>, bell: &Condvar) {
    let deadline = Instant::now() + grace;
    let mut at = sit(bench);
    at.waiting.clear();
    at.over = true;
    bell.notify_all();
    while at.busy > 0 && session.check().is_ok() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        at = match bell.wait_timeout(at, left.min(Duration::from_millis(200))) {
            Ok((at, _)) => at,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    drop(at);
    // A handler that does not listen must not keep its task from others.
    session.give_back();
}
