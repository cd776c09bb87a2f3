//! A pool of slots, each with a checker of either kind. Calls block until the outcome is known, for a bounded time.

use super::assemble::Candidate;
use super::backend::Backend;
use super::evidence::CheckOutcome;
use super::file::FileChecker;
use super::repl::ReplChecker;
use sgs_selfplay::Verdict;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The checker that a pool runs.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckerConfig {
    /// The community REPL.
    Repl(ReplChecker),
    /// Judge processes, each with a file of theorems.
    File(FileChecker),
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Number of slots.
    pub slots: usize,
    /// Candidates in the queue.
    pub waiting: usize,
    /// Candidates that are being judged.
    pub running: usize,
    /// Candidates judged since the start.
    pub judged: u64,
}

struct CheckJob {
    candidate: Arc<Candidate>,
    reply: SyncSender<(CheckOutcome, Duration)>,
}

#[derive(Default)]
struct CheckQueue {
    jobs: VecDeque<CheckJob>,
    running: usize,
    closed: bool,
}

#[derive(Default)]
struct PoolState {
    queue: Mutex<CheckQueue>,
    arrived: Condvar,
    judged: AtomicU64,
}

/// A fixed number of slots, each with its own process. Dropping the pool ends every process.
pub struct Pool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
    patience: Duration,
}

/// Number of queued candidates that a slot searches for one with its current header.
const LOOK_AHEAD: usize = 64;

impl Pool {
    /// Starts a pool of `slots` slots.
    pub fn new(checker: &CheckerConfig, slots: usize) -> std::io::Result<Self> {
        let backend = |slot| -> std::io::Result<Box<dyn Backend>> {
            Ok(match checker {
                CheckerConfig::Repl(repl) => Box::new(repl.worker()),
                CheckerConfig::File(file) => Box::new(file.worker(slot)?),
            })
        };
        Self::over((0..slots.max(1)).map(backend).collect::<std::io::Result<_>>()?)
    }

    /// Starts a pool with one slot per backend.
    pub fn over(backends: Vec<Box<dyn Backend>>) -> std::io::Result<Self> {
        let deadline = backends.iter().map(|b| b.deadline(b.batch())).max().unwrap_or_default();
        let mut pool = Self { shared: Arc::default(), threads: Vec::new(), patience: deadline };
        for (slot, backend) in backends.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("lean-{slot}"))
                .stack_size(512 * 1024)
                .spawn(move || serve(&shared, backend))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Judges a candidate. Blocks until the outcome is known; the deadlines of the backends limit that time.
    pub fn check(&self, candidate: Arc<Candidate>) -> CheckOutcome {
        self.check_timed(candidate).0
    }

    /// Judges a candidate, as [`Pool::check`] does, and also returns the time that it took a slot: its share of the time
    /// of its batch, without the time in the queue.
    pub fn check_timed(&self, candidate: Arc<Candidate>) -> (CheckOutcome, Duration) {
        let infra = |reason: String| (CheckOutcome::new(Verdict::Infra, reason), Duration::ZERO);
        let (reply, outcome) = sync_channel(1);
        {
            let mut queue = lock(&self.shared.queue);
            if queue.closed {
                return infra("the pool is closed".to_owned());
            }
            queue.jobs.push_back(CheckJob { candidate, reply });
        }
        self.shared.arrived.notify_one();
        let mut idle_since = Instant::now();
        let mut judged = self.shared.judged.load(Ordering::Relaxed);
        loop {
            match outcome.recv_timeout(Duration::from_secs(5).min(self.patience)) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => {
                    return infra("the slot that judged this candidate ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {
                    // As long as the pool judges anything, the queue advances. If the pool finishes nothing for longer
                    // than the longest permitted call, it is broken.
                    let now = self.shared.judged.load(Ordering::Relaxed);
                    if now != judged {
                        (judged, idle_since) = (now, Instant::now());
                    } else if idle_since.elapsed() > self.patience {
                        let status = self.status();
                        return infra(format!(
                            "no slot finished a candidate for {:?}: {status:?}",
                            self.patience
                        ));
                    }
                }
            }
        }
    }

    /// Returns the current counters.
    pub fn status(&self) -> PoolStatus {
        let queue = lock(&self.shared.queue);
        PoolStatus {
            slots: self.threads.len(),
            waiting: queue.jobs.len(),
            running: queue.running,
            judged: self.shared.judged.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.closed = true;
            // Dropping a job's sender unblocks its caller.
            queue.jobs.clear();
        }
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // The caller of a slot that panicked was unblocked when the sender was dropped.
            let _ = thread.join();
        }
    }
}

/// Locks the queue. A poisoned lock is ignored, because no code under the lock leaves the queue inconsistent.
fn lock(queue: &Mutex<CheckQueue>) -> MutexGuard<'_, CheckQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &PoolState, mut backend: Box<dyn Backend>) {
    while let Some(jobs) = next(shared, backend.as_ref()) {
        let candidates: Vec<&Candidate> = jobs.iter().map(|job| &*job.candidate).collect();
        let begun = Instant::now();
        let mut outcomes = backend.check(&candidates);
        let each = begun.elapsed() / u32::try_from(jobs.len()).unwrap_or(u32::MAX).max(1);
        outcomes.resize_with(jobs.len(), || {
            CheckOutcome::new(Verdict::Infra, "the checker returned too few outcomes")
        });
        shared.judged.fetch_add(outcomes.len() as u64, Ordering::Relaxed);
        lock(&shared.queue).running -= jobs.len();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            // The caller may have given up.
            let _ = job.reply.send((outcome, each));
        }
    }
}

/// Waits for candidates. Returns as many with one header as the backend takes, or `None` when the pool closes.
fn next(shared: &PoolState, backend: &dyn Backend) -> Option<Vec<CheckJob>> {
    let mut queue = lock(&shared.queue);
    loop {
        if queue.closed {
            return None;
        }
        if !queue.jobs.is_empty() {
            break;
        }
        queue = shared.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    let linger = backend.linger();
    if backend.batch() > 1 && queue.jobs.len() < backend.batch() && !linger.is_zero() {
        let wait = |queue| {
            shared.arrived.wait_timeout_while(queue, linger, |q: &mut CheckQueue| {
                !q.closed && q.jobs.len() < backend.batch()
            })
        };
        (queue, _) = wait(queue).unwrap_or_else(PoisonError::into_inner);
        if queue.closed || queue.jobs.is_empty() {
            drop(queue);
            return next(shared, backend);
        }
    }
    let preferred = queue.jobs.iter().take(LOOK_AHEAD).position(|job| backend.prefers(&job.candidate.header));
    let first = queue.jobs.remove(preferred.unwrap_or(0))?;
    let header = Arc::clone(&first.candidate.header);
    let mut jobs = vec![first];
    let mut at = 0;
    while jobs.len() < backend.batch() && at < queue.jobs.len().min(LOOK_AHEAD * 4) {
        if queue.jobs.get(at).is_some_and(|job| job.candidate.header == header) {
            jobs.extend(queue.jobs.remove(at));
        } else {
            at += 1;
        }
    }
    queue.running += jobs.len();
    Some(jobs)
}
