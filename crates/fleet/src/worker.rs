//! The worker's side of the protocol.
//!
//! A [`WorkerSession`] keeps leases alive, and sends outcomes in batches until they arrive. It suits workers with a custom
//! loop, such as a sampler with continuous batching. [`run_worker`] is a ready-made loop for work that takes one thread per
//! task.
//!
//! A worker may be killed at any time, because it holds no state that cannot be recreated.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sgs_base::stop::StopFlag;

use crate::coordinator::{CallError, Coordinator};
use crate::task::{Lease, LeaseId, LeaseOutcome, Payload, Receipt, Report, WorkKind, WorkerName};

/// Configuration of a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The worker's name, unique among the workers of the coordinator and new for every process.
    pub name: WorkerName,
    /// The kind of work to lease.
    pub kind: WorkKind,
    /// Maximum number of outcomes per report. Default 64.
    pub batch: usize,
    /// Maximum time that an outcome waits for others, to be reported together. Default 50 ms.
    pub linger: Duration,
    /// The worker gives up when the coordinator has been unreachable for this long. Default 15 minutes.
    pub patience: Duration,
    /// Time, after a drain begins, for running tasks to finish and for outcomes to reach the coordinator. Default 20 s,
    /// which fits into Slurm's default of 30 s between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Number of tasks that [`run_worker`] prefetches, so that a free slot need not wait for the coordinator. Useful for
    /// tasks that are shorter than a call. Default 0.
    pub ahead: usize,
    /// Maximum wait of a lease request of [`run_worker`]. A drain takes effect only after the request. Default 2 s.
    pub poll: Duration,
}

impl WorkerConfig {
    /// Returns the default configuration for this name and kind.
    pub fn new(name: WorkerName, kind: WorkKind) -> Self {
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

/// Why a worker gave up, for the user: the coordinator rejects it or was unreachable for too long, or a thread could not be
/// started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkerError(String);

impl WorkerError {
    fn unavailable(worker: &WorkerName, away: Duration, last: &CallError) -> Self {
        Self(format!("worker {worker} gives up after {} s without a reply: {last}", away.as_secs()))
    }
}

/// Counts of what a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSummary {
    /// Leases received.
    pub leased: u64,
    /// Outcomes that became a task's result.
    pub accepted: u64,
    /// Outcomes of tasks that had already ended.
    pub duplicates: u64,
    /// Reports that the coordinator did not recognise.
    pub refused: u64,
    /// Failures and returns reported.
    pub noted: u64,
    /// Leases abandoned at the coordinator's request.
    pub abandoned: u64,
    /// Outcomes that the consumer rejected.
    pub rejected: u64,
    /// Outcomes not known to be safe when the worker had to leave. Their tasks may be repeated.
    pub unsettled: u64,
}

/// Sets a flag on SIGTERM or SIGINT. A second signal ends the process at once.
pub fn stop_on_signals(flag: &StopFlag) -> std::io::Result<()> {
    // Use a separate flag, because the coordinator may ask for a drain before the first signal.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signalled))?;
        signal_hook::flag::register(signal, Arc::clone(&signalled))?;
        signal_hook::flag::register(signal, flag.flag())?;
    }
    Ok(())
}

#[derive(Debug)]
struct SessionState {
    held: BTreeMap<LeaseId, StopFlag>,
    outbox: VecDeque<(Instant, Report)>,
    /// Reports that are being sent. Still held, so heartbeats name them.
    sending: Vec<LeaseId>,
    abandoned: Vec<LeaseId>,
    lease_time: Duration,
    last_reply: Instant,
    /// When to log next that the coordinator is unreachable, and the interval after that.
    next_warning: Option<(Instant, Duration)>,
    /// Whether the next heartbeat must be sent soon, because the coordinator was unreachable or does not know yet which
    /// tasks are open.
    heartbeat_soon: bool,
    failed: Option<WorkerError>,
    /// When the drain was first noticed.
    drained: Option<Instant>,
    closing: Option<Instant>,
    summary: WorkerSummary,
}

impl SessionState {
    /// Records a reply of the coordinator.
    fn note_reply(&mut self, worker: &WorkerName) {
        if self.next_warning.take().is_some() {
            let away_s = self.last_reply.elapsed().as_secs();
            tracing::warn!(%worker, away_s, "the coordinator is reachable again");
        }
        self.last_reply = Instant::now();
    }

    /// Puts unsent reports back at the front of the outbox.
    fn put_back(&mut self, reports: impl DoubleEndedIterator<Item = Report>) {
        let now = Instant::now();
        reports.rev().for_each(|report| self.outbox.push_front((now, report)));
        self.sending.clear();
    }
}

struct SessionShared {
    coordinator: Arc<dyn Coordinator>,
    config: WorkerConfig,
    state: Mutex<SessionState>,
    changed: Condvar,
    drain: StopFlag,
}

/// The worker's end of the protocol. Two threads keep leases alive and send outcomes. If it is dropped without
/// [`WorkerSession::close`], its leases expire.
pub struct WorkerSession {
    shared: Arc<SessionShared>,
    threads: Vec<JoinHandle<()>>,
}

/// Shortest and longest delay before a failed call is retried.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// First and longest interval between two warnings that the coordinator is unreachable.
const WARNING_INTERVAL: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Delay before an outcome that is not safe yet is sent again. The coordinator has already delayed its reply.
const RESEND_DELAY: Duration = Duration::from_millis(500);
/// Longest delay between two retries of a leaving worker.
const CLOSING_DELAY: Duration = Duration::from_millis(500);
/// How long a leaving worker tries to deliver its outcomes and waits for them to become safe.
const MIN_CLOSING: Duration = Duration::from_secs(2);
/// Shortest and longest interval between two heartbeats.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Interval between heartbeats after a failed call. A restarted coordinator leases tasks to other workers unless a
/// heartbeat names them in time.
const SOON_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Assumed lifetime of a lease before the first reply.
const ASSUMED_LEASE_TIME: Duration = Duration::from_secs(20);

impl WorkerSession {
    /// Starts the session's threads. Sends nothing before the first lease request.
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        config: WorkerConfig,
        drain: StopFlag,
    ) -> Result<Self, WorkerError> {
        let state = SessionState {
            held: BTreeMap::new(),
            outbox: VecDeque::new(),
            sending: Vec::new(),
            abandoned: Vec::new(),
            lease_time: ASSUMED_LEASE_TIME,
            last_reply: Instant::now(),
            next_warning: None,
            heartbeat_soon: false,
            failed: None,
            drained: None,
            closing: None,
            summary: WorkerSummary::default(),
        };
        let shared = Arc::new(SessionShared {
            coordinator,
            config,
            state: Mutex::new(state),
            changed: Condvar::new(),
            drain,
        });
        let mut session = Self { shared, threads: Vec::new() };
        session.spawn("heartbeat", SessionShared::send_heartbeats)?;
        session.spawn("report", SessionShared::send_outcomes)?;
        Ok(session)
    }

    fn spawn(&mut self, what: &str, body: fn(&SessionShared)) -> Result<(), WorkerError> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(format!("fleet-{what}")).spawn(move || body(&shared));
        let worker = self.shared.config.name.clone();
        let refused = |e| WorkerError(format!("worker {worker} cannot start a thread: {e}"));
        self.threads.push(thread.map_err(refused)?);
        Ok(())
    }

    /// Leases up to `capacity` tasks. Waits up to `wait` for the first, and retries failed calls. Each lease has a flag
    /// that is set when the task should stop.
    pub fn lease(&self, capacity: usize, wait: Duration) -> Result<Vec<(Lease, StopFlag)>, WorkerError> {
        let deadline = Instant::now() + wait;
        let mut delays = RetryDelays::new();
        loop {
            self.check()?;
            if self.shared.is_draining() || capacity == 0 {
                return Ok(Vec::new());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let config = &self.shared.config;
            match self.shared.coordinator.lease(&config.name, &config.kind, capacity, left) {
                Ok(grant) => return Ok(self.shared.accept_grant(grant)),
                Err(error) => self.shared.note_failure(error),
            }
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            self.shared.delay(delays.next().min(left));
        }
    }

    /// Ends a lease. Its report is sent until it arrives. Does nothing if the lease was abandoned or has ended.
    pub fn finish(&self, lease: LeaseId, outcome: LeaseOutcome) {
        let mut state = self.shared.lock();
        if state.held.remove(&lease).is_some() {
            let report = Report { task: lease.task, attempt: lease.attempt, outcome };
            state.outbox.push_back((Instant::now(), report));
            self.shared.changed.notify_all();
        }
    }

    /// Returns the leases that were abandoned at the coordinator's request since the last call.
    #[must_use]
    pub fn take_abandoned(&self) -> Vec<LeaseId> {
        std::mem::take(&mut self.shared.lock().abandoned)
    }

    /// Returns true if the coordinator or the drain flag asks the worker to leave.
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Returns what the worker has done so far.
    pub fn summary(&self) -> WorkerSummary {
        self.shared.lock().summary
    }

    /// Cancels and returns every lease held.
    fn return_all(&self) {
        let held: Vec<(LeaseId, StopFlag)> =
            self.shared.lock().held.iter().map(|(l, c)| (*l, c.clone())).collect();
        for (lease, cancel) in held {
            cancel.set();
            self.finish(lease, LeaseOutcome::Returned);
        }
    }

    fn check(&self) -> Result<(), WorkerError> {
        self.shared.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Returns all leases, sends all reports, and ends the session. Takes at most [`WorkerConfig::grace`] from the start
    /// of the drain, but at least two seconds.
    ///
    /// # Errors
    /// Returns an error if the worker gave up. Unsent outcomes are then lost, and their tasks go to other workers.
    pub fn close(mut self) -> Result<WorkerSummary, WorkerError> {
        self.return_all();
        let deadline = self.shared.begin_closing();
        for thread in std::mem::take(&mut self.threads) {
            // If a thread still waits for a reply, it ends with the process.
            while !thread.is_finished() && Instant::now() < deadline + CLOSING_DELAY {
                thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                // The threads hold no lock while they call the coordinator, so no state is inconsistent after a panic
                // there.
                let _ = thread.join();
            }
        }
        self.check()?;
        self.shared.finish_closing()
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        self.shared.begin_closing();
    }
}

impl SessionShared {
    fn lock(&self) -> MutexGuard<'_, SessionState> {
        // The state is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_draining(&self) -> bool {
        let begun = self.drain.is_set();
        if begun {
            self.lock().drained.get_or_insert_with(Instant::now);
        }
        begun
    }

    /// Lets the threads only deliver what is left. Returns the deadline for that.
    fn begin_closing(&self) -> Instant {
        self.is_draining();
        let mut state = self.lock();
        state.closing.get_or_insert_with(Instant::now);
        self.changed.notify_all();
        self.closing_deadline(&state)
    }

    /// Returns when a closing worker gives up. The grace of a drain covers both the tasks and their outcomes.
    fn closing_deadline(&self, state: &SessionState) -> Instant {
        let closing = state.closing.unwrap_or_else(Instant::now);
        (state.drained.unwrap_or(closing) + self.config.grace).max(closing + MIN_CLOSING)
    }

    /// Returns the summary after the threads have ended or their time is up.
    fn finish_closing(&self) -> Result<WorkerSummary, WorkerError> {
        let mut state = self.lock();
        let left = (state.outbox.len() + state.sending.len()) as u64;
        state.summary.unsettled += left;
        match &state.next_warning {
            Some(_) if left > 0 => {
                let last = CallError::Unavailable(format!("{left} reports could not be sent"));
                Err(WorkerError::unavailable(&self.config.name, state.last_reply.elapsed(), &last))
            }
            _ => Ok(state.summary),
        }
    }

    fn accept_grant(&self, grant: crate::coordinator::Grant) -> Vec<(Lease, StopFlag)> {
        let mut state = self.lock();
        state.note_reply(&self.config.name);
        if state.lease_time != grant.lease_time {
            state.lease_time = grant.lease_time;
            self.changed.notify_all();
        }
        state.summary.leased += grant.leases.len() as u64;
        if grant.drain {
            self.drain.set();
        }
        let leases = grant.leases.into_iter().map(|lease| {
            let cancel = StopFlag::default();
            state.held.insert(lease.id(), cancel.clone());
            (lease, cancel)
        });
        leases.collect()
    }

    /// Records a failed call. Gives up if the call was rejected or the coordinator has been unreachable for too long.
    fn note_failure(&self, error: CallError) {
        let mut state = self.lock();
        let worker = &self.config.name;
        let away = state.last_reply.elapsed();
        state.heartbeat_soon = true;
        let now = Instant::now();
        let (due, pause) = state.next_warning.unwrap_or((now, WARNING_INTERVAL.0));
        if now >= due {
            state.next_warning = Some((now + pause, (2 * pause).min(WARNING_INTERVAL.1)));
            tracing::warn!(%worker, away_s = away.as_secs(), "{error}; retrying");
        }
        let gave_up = match error {
            CallError::Refused(_) => Some(WorkerError(format!("worker {worker}: {error}"))),
            CallError::Unavailable(_) if away >= self.config.patience => {
                Some(WorkerError::unavailable(worker, away, &error))
            }
            CallError::Unavailable(_) => None,
        };
        if gave_up.is_some() && state.failed.is_none() {
            state.failed = gave_up;
            state.held.values().for_each(StopFlag::set);
            self.changed.notify_all();
        }
    }

    /// Sleeps, unless the session ends first.
    fn delay(&self, span: Duration) {
        let state = self.lock();
        let goes_on = |state: &mut SessionState| state.closing.is_none() && state.failed.is_none();
        // The guard is not needed, whether poisoned or not.
        drop(self.changed.wait_timeout_while(state, span, goes_on));
    }

    /// Runs the heartbeat thread, which sends four heartbeats per lease lifetime while leases are held.
    fn send_heartbeats(&self) {
        let mut last = Instant::now();
        while let Some(held) = self.wait_for_heartbeat(last) {
            last = Instant::now();
            if held.is_empty() {
                continue;
            }
            match self.coordinator.heartbeat(&self.config.name, &held) {
                Ok(beat) => self.apply_heartbeat(&beat),
                Err(error) => self.note_failure(error),
            }
        }
    }

    /// Waits until the next heartbeat is due. Returns all unsettled leases, or `None` at the end of the session.
    fn wait_for_heartbeat(&self, last: Instant) -> Option<Vec<LeaseId>> {
        let mut state = self.lock();
        loop {
            let nothing_unsent = state.outbox.is_empty() && state.sending.is_empty();
            let is_over = state.closing.is_some()
                && (nothing_unsent || Instant::now() >= self.closing_deadline(&state));
            if state.failed.is_some() || is_over {
                return None;
            }
            let longest = if state.heartbeat_soon { SOON_HEARTBEAT_INTERVAL } else { MAX_HEARTBEAT_INTERVAL };
            let pause = (state.lease_time / 4).clamp(MIN_HEARTBEAT_INTERVAL, longest);
            let left = pause.saturating_sub(last.elapsed());
            if left.is_zero() {
                break;
            }
            // Wake up every second, because a drain does not notify the condition variable.
            state = wait_timeout(&self.changed, state, left.min(Duration::from_secs(1)));
        }
        let unsent = state.outbox.iter().map(|(_, r)| LeaseId { task: r.task, attempt: r.attempt });
        Some(state.held.keys().copied().chain(unsent).chain(state.sending.iter().copied()).collect())
    }

    fn apply_heartbeat(&self, beat: &crate::coordinator::HeartbeatAck) {
        let mut state = self.lock();
        state.note_reply(&self.config.name);
        state.heartbeat_soon = false;
        state.lease_time = beat.lease_time;
        if beat.drain {
            self.drain.set();
        }
        for lease in &beat.abandon {
            if let Some(cancel) = state.held.remove(lease) {
                cancel.set();
                state.abandoned.push(*lease);
                state.summary.abandoned += 1;
            }
        }
        self.changed.notify_all();
    }

    /// Runs the report thread.
    fn send_outcomes(&self) {
        let mut delays = RetryDelays::new();
        while let Some(batch) = self.next_batch() {
            let pause = match self.coordinator.report(&self.config.name, batch.clone()) {
                Ok(receipts) => {
                    delays = RetryDelays::new();
                    let is_settled = self.settle(batch, &receipts);
                    if is_settled { Duration::ZERO } else { RESEND_DELAY }
                }
                Err(error) => {
                    self.note_failure(error);
                    self.lock().put_back(batch.into_iter());
                    delays.next()
                }
            };
            self.wait_before_next_report(pause);
        }
    }

    /// Sleeps between two reports; for less if the worker is leaving.
    fn wait_before_next_report(&self, span: Duration) {
        let begun = Instant::now();
        while let Some(left) = span.checked_sub(begun.elapsed()) {
            let state = self.lock();
            let is_leaving = state.closing.is_some() || state.drained.is_some();
            drop(state);
            if is_leaving && begun.elapsed() >= CLOSING_DELAY {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Waits until a batch is full or the linger time has passed. Returns the batch, or `None` at the end of the
    /// session.
    fn next_batch(&self) -> Option<Vec<Report>> {
        let mut state = self.lock();
        loop {
            let is_closing = state.closing.is_some();
            if state.failed.is_some() || (is_closing && Instant::now() >= self.closing_deadline(&state)) {
                return None;
            }
            let due = match state.outbox.front() {
                None if is_closing => return None,
                None => Duration::from_secs(1),
                Some(_) if is_closing || state.outbox.len() >= self.config.batch => Duration::ZERO,
                Some((since, _)) => self.config.linger.saturating_sub(since.elapsed()),
            };
            if due.is_zero() {
                let number = state.outbox.len().min(self.config.batch.max(1));
                let batch: Vec<Report> = state.outbox.drain(..number).map(|(_, report)| report).collect();
                state.sending = batch.iter().map(|r| LeaseId { task: r.task, attempt: r.attempt }).collect();
                return Some(batch);
            }
            state = wait_timeout(&self.changed, state, due);
        }
    }

    /// Counts the receipts of a batch and keeps the reports that are not safe yet. Returns true if all are settled.
    fn settle(&self, batch: Vec<Report>, receipts: &[Receipt]) -> bool {
        let mut state = self.lock();
        state.note_reply(&self.config.name);
        for receipt in receipts {
            match receipt {
                Receipt::Accepted => state.summary.accepted += 1,
                Receipt::Duplicate => state.summary.duplicates += 1,
                Receipt::Refused => state.summary.refused += 1,
                Receipt::Noted => state.summary.noted += 1,
                Receipt::Rejected => state.summary.rejected += 1,
                Receipt::Waiting => {}
            }
        }
        let waits = |at: usize| receipts.get(at) == Some(&Receipt::Waiting);
        let waiting: Vec<Report> =
            batch.into_iter().enumerate().filter(|(at, _)| waits(*at)).map(|(_, report)| report).collect();
        let is_settled = waiting.is_empty();
        state.heartbeat_soon |= !is_settled;
        // The coordinator has these outcomes. They are lost only if it dies, and then their tasks are repeated.
        if state.closing.is_some_and(|begun| begun.elapsed() >= MIN_CLOSING) {
            state.summary.unsettled += waiting.len() as u64;
            state.sending.clear();
        } else {
            // Put them behind the unsent reports, because the consumer may need those before it can store these.
            let now = Instant::now();
            state.outbox.extend(waiting.into_iter().map(|report| (now, report)));
            state.sending.clear();
        }
        self.changed.notify_all();
        is_settled
    }
}

/// Growing delays with jitter, which keeps many workers from retrying at the same time.
struct RetryDelays {
    next: Duration,
}

impl RetryDelays {
    fn new() -> Self {
        Self { next: RETRY_DELAY.0 }
    }

    /// Returns between half of the current delay and all of it, and doubles the delay.
    fn next(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(RETRY_DELAY.1);
        pause
    }
}

/// Waits for a notification, at most for this time. The state is consistent after every statement.
fn wait_timeout<'a, T>(changed: &Condvar, state: MutexGuard<'a, T>, span: Duration) -> MutexGuard<'a, T> {
    changed.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0
}

/// A worker with one thread for each slot.
struct SlotWorker {
    session: WorkerSession,
    slots: usize,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<(Lease, StopFlag)>,
    busy: usize,
    over: bool,
}

/// Works on `slots` tasks at a time, one thread each, until the worker drains; then returns the tasks it still holds.
///
/// The handler returns the result of a lease, or the reason why this worker (not the problem) failed. It should check its
/// [`StopFlag`] from time to time. If it panics, the task has failed and the worker continues.
pub fn run_worker(
    coordinator: Arc<dyn Coordinator>,
    config: WorkerConfig,
    drain: StopFlag,
    slots: usize,
    handler: impl Fn(&Lease, &StopFlag) -> Result<Payload, String> + Sync,
) -> Result<WorkerSummary, WorkerError> {
    let session = WorkerSession::start(coordinator, config, drain)?;
    let (state, changed) = (Mutex::default(), Condvar::new());
    let worker = SlotWorker { session, slots: slots.max(1), state, changed };
    let result = thread::scope(|scope| {
        for _ in 0..worker.slots {
            scope.spawn(|| worker.run_slot(&handler));
        }
        let result = worker.fetch_tasks();
        worker.shut_down();
        result
    });
    let closed = worker.session.close();
    result.and(closed)
}

impl SlotWorker {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Handlers run outside this lock, and the code under it cannot panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases tasks for free slots, and up to [`WorkerConfig::ahead`] more, until the worker drains.
    fn fetch_tasks(&self) -> Result<(), WorkerError> {
        let WorkerConfig { ahead, poll, .. } = self.session.shared.config;
        while !self.session.is_draining() {
            self.session.check()?;
            for lease in self.session.take_abandoned() {
                self.lock().waiting.retain(|(waiting, _)| waiting.id() != lease);
            }
            let free = {
                let at = self.lock();
                let free = (self.slots + ahead).saturating_sub(at.busy + at.waiting.len());
                // Refill when half of the prefetched tasks are left, to save calls.
                let enough = ahead > 0 && at.waiting.len() > ahead / 2;
                if free == 0 || enough {
                    drop(self.changed.wait_timeout(at, Duration::from_millis(200)));
                    continue;
                }
                free
            };
            let leases = self.session.lease(free, poll)?;
            // If the drain began during the call, the new leases are returned without being started.
            if self.session.is_draining() {
                break;
            }
            if !leases.is_empty() {
                self.lock().waiting.extend(leases);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    fn run_slot(&self, handler: &(impl Fn(&Lease, &StopFlag) -> Result<Payload, String> + Sync)) {
        while let Some((lease, cancel)) = self.next_task() {
            if !cancel.is_set() {
                let outcome = match catch_unwind(AssertUnwindSafe(|| handler(&lease, &cancel))) {
                    Ok(Ok(payload)) => LeaseOutcome::Done(payload),
                    // A handler that was told to stop has not failed.
                    Ok(Err(_)) if cancel.is_set() => LeaseOutcome::Returned,
                    Ok(Err(reason)) => LeaseOutcome::Failed(reason),
                    Err(panic) => {
                        LeaseOutcome::Failed(format!("the handler panicked: {}", panic_text(&*panic)))
                    }
                };
                self.session.finish(lease.id(), outcome);
            }
            self.lock().busy -= 1;
            self.changed.notify_all();
        }
    }

    /// Waits for a task for a slot. Returns `None` when the worker leaves.
    fn next_task(&self) -> Option<(Lease, StopFlag)> {
        let mut at = self.lock();
        while !at.over {
            if let Some(next) = at.waiting.pop_front() {
                at.busy += 1;
                return Some(next);
            }
            at = wait_timeout(&self.changed, at, Duration::from_secs(1));
        }
        None
    }

    /// Waits up to [`WorkerConfig::grace`] for running tasks to finish, then cancels them.
    fn shut_down(&self) {
        let deadline = Instant::now() + self.session.shared.config.grace;
        let mut at = self.lock();
        at.waiting.clear();
        at.over = true;
        self.changed.notify_all();
        while at.busy > 0 && self.session.check().is_ok() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            at = wait_timeout(&self.changed, at, left.min(Duration::from_millis(200)));
        }
        drop(at);
        // A handler that ignores its flag must not keep its task from other workers.
        self.session.return_all();
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
