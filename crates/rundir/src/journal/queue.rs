//! The bounded queue between callers and the writer thread.

use super::{Marker, Record, RecordKey};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An operation for the writer thread.
pub(super) enum JournalWrite {
    Records(Vec<Record>),
    Marker(Marker),
    Retire(u32),
    Forget(u32),
    Remove(Vec<RecordKey>),
}

/// The next task of the writer thread.
pub(super) enum WriterTask {
    /// A batch of operations and the number of its last one.
    Batch(Vec<JournalWrite>, u64),
    /// The queue is empty: remove some records of the rounds up to this one.
    Retire(u32),
}

/// Why a wait ended without success.
pub(super) enum WaitError {
    Failed(Arc<str>),
    Deadline,
}

pub(super) struct WriteQueue {
    state: Mutex<WriteQueueState>,
    /// Signals that an operation was queued or the queue was closed.
    filled: Condvar,
    /// Signals that operations were taken or completed, or that the writer failed.
    progressed: Condvar,
    limit_bytes: usize,
}

#[derive(Default)]
struct WriteQueueState {
    waiting: VecDeque<(JournalWrite, usize)>,
    bytes: usize,
    submitted: u64,
    done: u64,
    /// The records of rounds up to this one are removed when the queue is empty.
    retire: Option<u32>,
    failure: Option<Arc<str>>,
    closed: bool,
}

impl WriteQueue {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), progressed: Condvar::new(), limit_bytes }
    }

    /// Locks the state. Poisoning is ignored, because no code panics while it modifies the state.
    fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an operation and returns its number, counted from 1. An empty queue accepts an operation of any size.
    pub(super) fn submit(
        &self,
        work: JournalWrite,
        bytes: usize,
        deadline: Duration,
    ) -> Result<u64, WaitError> {
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

    /// Waits until the operation with this number and all earlier ones are done.
    pub(super) fn wait_until_done(&self, number: u64, deadline: Duration) -> Result<(), WaitError> {
        self.wait(deadline, |s| s.done >= number).map(drop)
    }

    fn wait(
        &self,
        deadline: Duration,
        ready: impl Fn(&WriteQueueState) -> bool,
    ) -> Result<MutexGuard<'_, WriteQueueState>, WaitError> {
        let until = Instant::now() + deadline;
        let mut state = self.lock();
        loop {
            if let Some(cause) = &state.failure {
                return Err(WaitError::Failed(Arc::clone(cause)));
            }
            if ready(&state) {
                return Ok(state);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WaitError::Deadline);
            }
            state = self.progressed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Requests the removal of records of the rounds up to `round` when the queue is empty.
    pub(super) fn retire_later(&self, round: u32) {
        let mut state = self.lock();
        state.retire = state.retire.max(Some(round));
        drop(state);
        self.filled.notify_one();
    }

    /// Marks the records of the rounds up to `round` as removed.
    pub(super) fn retired(&self, round: u32) {
        let mut state = self.lock();
        state.retire = state.retire.filter(|&wanted| wanted > round);
    }

    /// Waits for operations and takes up to about `limit_bytes` of them, but at least one. Returns `None` once the queue is
    /// closed and empty.
    pub(super) fn take(&self, limit_bytes: usize) -> Option<WriterTask> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if let Some(round) = state.retire {
                return Some(WriterTask::Retire(round));
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
        Some(WriterTask::Batch(batch, last))
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
