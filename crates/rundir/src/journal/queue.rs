//! The bounded queue between the callers and the writer thread.

use super::{Marker, Record, RecordKey};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Something for the writer thread to do.
pub(super) enum Work {
    Records(Vec<Record>),
    Marker(Marker),
    Retire(u32),
    Forget(u32),
    Remove(Vec<RecordKey>),
}

/// What the writer thread does next.
pub(super) enum Next {
    /// A batch, with the number of its last piece.
    Batch(Vec<Work>, u64),
    /// Nothing waits: a part of the retirement of rounds up to this one.
    Retire(u32),
}

/// Why a caller waits no longer.
pub(super) enum Stopped {
    Failed(Arc<str>),
    Deadline,
}

pub(super) struct Queue {
    state: Mutex<State>,
    /// Work has come, or the queue has closed.
    filled: Condvar,
    /// Work was taken or done, or the writer has failed.
    progressed: Condvar,
    limit_bytes: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Work, usize)>,
    bytes: usize,
    submitted: u64,
    done: u64,
    /// Rounds up to this one retire when nothing else is to be done.
    retire: Option<u32>,
    failure: Option<Arc<str>>,
    closed: bool,
}

impl Queue {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), progressed: Condvar::new(), limit_bytes }
    }

    /// No code panics while it holds the lock, so that a poisoned one still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work and returns its number, from 1. One piece of work always has room in an empty queue.
    pub(super) fn submit(&self, work: Work, bytes: usize, deadline: Duration) -> Result<u64, Stopped> {
        let mut state = self
            .wait(deadline, |s| s.waiting.is_empty() || s.bytes.saturating_add(bytes) <= self.limit_bytes)?;
        state.waiting.push_back((work, bytes));
        state.bytes += bytes;
        state.submitted += 1;
        let number = state.submitted;
        drop(state);
        self.filled.notify_one();
        Ok(number)
    }

    /// Waits until the work with this number, and all before it, is done.
    pub(super) fn wait_until_done(&self, number: u64, deadline: Duration) -> Result<(), Stopped> {
        self.wait(deadline, |s| s.done >= number).map(drop)
    }

    fn wait(
        &self,
        deadline: Duration,
        ready: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Stopped> {
        let until = Instant::now() + deadline;
        let mut state = self.lock();
        loop {
            if let Some(cause) = &state.failure {
                return Err(Stopped::Failed(Arc::clone(cause)));
            }
            if ready(&state) {
                return Ok(state);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Stopped::Deadline);
            }
            state = self.progressed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Leaves the retirement of rounds up to `round` for when nothing else is to be done.
    pub(super) fn retire_later(&self, round: u32) {
        let mut state = self.lock();
        state.retire = state.retire.max(Some(round));
        drop(state);
        self.filled.notify_one();
    }

    /// The rounds up to `round` have retired.
    pub(super) fn retired(&self, round: u32) {
        let mut state = self.lock();
        state.retire = state.retire.filter(|&wanted| wanted > round);
    }

    /// Waits for work and takes as much of it as fits `limit_bytes`, at least one piece. `None` once the queue is
    /// closed and empty.
    pub(super) fn take(&self, limit_bytes: usize) -> Option<Next> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if let Some(round) = state.retire {
                return Some(Next::Retire(round));
            }
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut batch, mut taken) = (Vec::new(), 0);
        while let Some((work, bytes)) = state.waiting.pop_front() {
            batch.push(work);
            taken += bytes;
            if taken >= limit_bytes {
                break;
            }
        }
        state.bytes -= taken;
        let last = state.submitted - state.waiting.len() as u64;
        drop(state);
        self.progressed.notify_all();
        Some(Next::Batch(batch, last))
    }

    pub(super) fn done(&self, last: u64) {
        self.lock().done = last;
        self.progressed.notify_all();
    }

    pub(super) fn fail(&self, cause: Arc<str>) {
        let mut state = self.lock();
        state.failure.get_or_insert(cause);
        state.waiting.clear();
        state.bytes = 0;
        drop(state);
        self.progressed.notify_all();
    }

    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.lock().failure.clone()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }
}
