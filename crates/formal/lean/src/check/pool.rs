//! One pool of slots before both kinds of checkers: blocking calls in, verdicts out, no call without an end.

use super::assemble::Candidate;
use super::evidence::Outcome;
use super::file::FileChecker;
use super::repl::ReplChecker;
use sgs_selfplay::Verdict;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a slot runs: a REPL that stays, or a process a file.
pub trait Backend: Send {
    /// Candidates that one call may take.
    fn batch(&self) -> usize;
    /// Whether a candidate with this header costs no new start.
    fn prefers(&self, header: &str) -> bool;
    /// Judges candidates that share one header: one outcome each, in order.
    fn check(&mut self, candidates: &[&Candidate]) -> Vec<Outcome>;
    /// How long a slot waits for more candidates when it has some and could take more.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }
    /// Longest time that [`Backend::check`] may take, for the watchdog of the caller.
    fn deadline(&self, candidates: usize) -> Duration;
}

/// Which checker a pool runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Checker {
    /// The community REPL.
    Repl(ReplChecker),
    /// The judge's process, a file of theorems at a time.
    File(FileChecker),
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    pub slots: usize,
    /// Candidates that wait.
    pub waiting: usize,
    /// Candidates that are being judged.
    pub running: usize,
    /// Candidates judged since the start.
    pub judged: u64,
    /// Of these, `infra`.
    pub infra: u64,
    /// Of these, `resource`.
    pub resource: u64,
}

struct Job {
    candidate: Arc<Candidate>,
    reply: SyncSender<Outcome>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    judged: AtomicU64,
    infra: AtomicU64,
    resource: AtomicU64,
}

/// A fixed number of slots, each with its own process. Dropping the pool ends every process.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    patience: Duration,
}

/// How far ahead a slot looks for a candidate of its own header.
const LOOK_AHEAD: usize = 64;

impl Pool {
    /// Starts a pool of `slots` slots over a checker.
    pub fn new(checker: &Checker, slots: usize) -> std::io::Result<Self> {
        let backends: Vec<Box<dyn Backend>> = match checker {
            Checker::Repl(repl) => {
                (0..slots.max(1)).map(|_| Box::new(repl.worker()) as Box<dyn Backend>).collect()
            }
            Checker::File(file) => (0..slots.max(1))
                .map(|slot| file.worker(slot).map(|w| Box::new(w) as Box<dyn Backend>))
                .collect::<std::io::Result<_>>()?,
        };
        Self::over(backends)
    }

    /// Starts a pool over given backends, one slot each.
    pub fn over(backends: Vec<Box<dyn Backend>>) -> std::io::Result<Self> {
        let deadline = backends.iter().map(|b| b.deadline(b.batch())).max().unwrap_or_default();
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            judged: AtomicU64::new(0),
            infra: AtomicU64::new(0),
            resource: AtomicU64::new(0),
        });
        let mut pool = Self { shared: Arc::clone(&shared), threads: Vec::new(), patience: deadline };
        for (slot, backend) in backends.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("lean-{slot}"))
                .stack_size(512 * 1024)
                .spawn(move || serve(&shared, backend))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Judges a candidate. Blocks until the outcome is known, which the slots' own deadlines bound.
    pub fn check(&self, candidate: Arc<Candidate>) -> Outcome {
        let (reply, outcome) = sync_channel(1);
        {
            let mut queue = lock(&self.shared.queue);
            if queue.closed {
                return Outcome::new(Verdict::Infra, "the pool is closed");
            }
            queue.jobs.push_back(Job { candidate, reply });
        }
        self.shared.arrived.notify_one();
        let mut idle_since = Instant::now();
        let mut judged = self.shared.judged.load(Ordering::Relaxed);
        loop {
            match outcome.recv_timeout(Duration::from_secs(5).min(self.patience)) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => {
                    return Outcome::new(Verdict::Infra, "the slot that judged this candidate ended");
                }
                Err(RecvTimeoutError::Timeout) => {
                    // As long as the pool judges anything, the queue moves. A pool in which nothing ends for longer
                    // than any call may take is broken, and says so.
                    let now = self.shared.judged.load(Ordering::Relaxed);
                    if now != judged {
                        (judged, idle_since) = (now, Instant::now());
                    } else if idle_since.elapsed() > self.patience {
                        let status = self.status();
                        return Outcome::new(
                            Verdict::Infra,
                            format!("no slot ended anything for {:?}: {status:?}", self.patience),
                        );
                    }
                }
            }
        }
    }

    /// Counters.
    pub fn status(&self) -> PoolStatus {
        let queue = lock(&self.shared.queue);
        PoolStatus {
            slots: self.threads.len(),
            waiting: queue.jobs.len(),
            running: queue.running,
            judged: self.shared.judged.load(Ordering::Relaxed),
            infra: self.shared.infra.load(Ordering::Relaxed),
            resource: self.shared.resource.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.closed = true;
            // Dropping a job's sender tells its caller.
            queue.jobs.clear();
        }
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A slot that panicked has already told its caller by dropping the sender.
            let _ = thread.join();
        }
    }
}

/// A queue whose lock was poisoned is still a queue: no code under the lock leaves it half changed.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared, mut backend: Box<dyn Backend>) {
    while let Some(jobs) = next(shared, backend.as_ref()) {
        let candidates: Vec<&Candidate> = jobs.iter().map(|job| &*job.candidate).collect();
        let mut outcomes = backend.check(&candidates);
        outcomes.resize_with(jobs.len(), || Outcome::new(Verdict::Infra, "the checker gave too few answers"));
        for outcome in &outcomes {
            shared.judged.fetch_add(1, Ordering::Relaxed);
            match outcome.verdict {
                Verdict::Infra => shared.infra.fetch_add(1, Ordering::Relaxed),
                Verdict::Resource => shared.resource.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        }
        lock(&shared.queue).running -= jobs.len();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            // A caller that is gone needs no answer.
            let _ = job.reply.send(outcome);
        }
    }
}

/// Waits for work: as many candidates of one header as the backend takes; `None` when the pool closes.
fn next(shared: &Shared, backend: &dyn Backend) -> Option<Vec<Job>> {
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
            shared.arrived.wait_timeout_while(queue, linger, |q: &mut Queue| {
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

/// A name that nobody can guess and that does not repeat: 64 random bits.
pub(super) fn fresh_nonce() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNTER.fetch_add(1, Ordering::Relaxed));
    format!("{:016x}", hasher.finish())
}
