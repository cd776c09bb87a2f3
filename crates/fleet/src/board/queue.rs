//! Queue of the pending tasks of one kind.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::task::WorkerName;

/// An entry of a queue. It is stale if the task's own ticket differs.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedTask {
    /// Index of the task.
    pub slot: u32,
    /// The task's ticket when it was queued.
    pub ticket: u64,
}

/// Which end of its priority level a task joins.
#[derive(Clone, Copy)]
pub(super) enum QueueEnd {
    Back,
    Front,
}

/// Which worker a pending task is withheld from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Restriction {
    None,
    /// The submitter has excluded this worker.
    Excluded(WorkerName),
    /// This worker has failed the task. It gets the task again only if no other worker can take it.
    Failed(WorkerName),
}

/// Pending tasks of one kind. Tasks withheld from a worker have their own queue, so that the worker need not skip them
/// one by one to find a task that it may take.
#[derive(Debug, Default)]
pub(super) struct PendingQueues {
    /// None of them is empty.
    queues: BTreeMap<Restriction, PriorityQueue>,
}

impl PendingQueues {
    pub fn push(&mut self, restriction: Restriction, priority: i32, task: QueuedTask, end: QueueEnd) {
        self.queues.entry(restriction).or_default().push(priority, task, end);
    }

    /// Returns the first task for this worker that `is_current` and that `fits`, without removing it. Skips at most
    /// `max_skipped` tasks of each queue that do not fit.
    pub fn first(
        &mut self,
        worker: &WorkerName,
        is_current: impl Fn(QueuedTask) -> bool,
        fits: impl Fn(QueuedTask) -> bool,
        max_skipped: usize,
    ) -> Option<QueuedTask> {
        let is_for = |r: &Restriction| !matches!(r, Restriction::Excluded(excluded) if excluded == worker);
        let queues = self.queues.iter_mut().filter(|(restriction, _)| is_for(restriction));
        let firsts = queues.filter_map(|(_, queue)| queue.first(&is_current, &fits, max_skipped));
        let best = firsts.min_by_key(|(priority, order, _)| (*priority, *order)).map(|(_, _, task)| task);
        self.queues.retain(|_, queue| queue.len > 0);
        best
    }

    /// Drops stale entries if they outnumber the `live` ones, which keeps memory proportional to the number of tasks.
    pub fn compact(&mut self, live: usize, is_current: impl Fn(QueuedTask) -> bool) {
        let len: usize = self.queues.values().map(|queue| queue.len).sum();
        if len > 2 * live + 1024 {
            self.queues.values_mut().for_each(|queue| queue.compact(&is_current));
            self.queues.retain(|_, queue| queue.len > 0);
        }
    }
}

/// First in, first out within a priority; higher priorities first. A task leaves the middle in O(1): it changes its
/// ticket, and the stale entry is skipped later.
#[derive(Debug, Default)]
struct PriorityQueue {
    /// Entries with their order, ascending. The order is the ticket at the back, and the negated ticket at the front.
    by_priority: BTreeMap<Reverse<i32>, VecDeque<(i64, QueuedTask)>>,
    len: usize,
}

impl PriorityQueue {
    fn push(&mut self, priority: i32, task: QueuedTask, end: QueueEnd) {
        let level = self.by_priority.entry(Reverse(priority)).or_default();
        let order = task.ticket.cast_signed();
        match end {
            QueueEnd::Back => level.push_back((order, task)),
            QueueEnd::Front => level.push_front((-order, task)),
        }
        self.len += 1;
    }

    /// Returns the first task that `is_current` and that `fits`, with its priority and order, or `None` if more than
    /// `max_skipped` do not fit. Removes stale entries at the front.
    fn first(
        &mut self,
        is_current: impl Fn(QueuedTask) -> bool,
        fits: impl Fn(QueuedTask) -> bool,
        max_skipped: usize,
    ) -> Option<(Reverse<i32>, i64, QueuedTask)> {
        let mut skipped = 0;
        let mut empty = Vec::new();
        let mut found = None;
        'all: for (priority, level) in &mut self.by_priority {
            while level.front().is_some_and(|(_, task)| !is_current(*task)) {
                level.pop_front();
                self.len -= 1;
            }
            if level.is_empty() {
                empty.push(*priority);
            }
            for (order, task) in level.iter().copied().filter(|(_, task)| is_current(*task)) {
                if fits(task) {
                    found = Some((*priority, order, task));
                    break 'all;
                }
                skipped += 1;
                if skipped > max_skipped {
                    break 'all;
                }
            }
        }
        for priority in empty {
            self.by_priority.remove(&priority);
        }
        found
    }

    fn compact(&mut self, is_current: impl Fn(QueuedTask) -> bool) {
        for level in self.by_priority.values_mut() {
            level.retain(|(_, task)| is_current(*task));
            level.shrink_to_fit();
        }
        self.by_priority.retain(|_, level| !level.is_empty());
        self.len = self.by_priority.values().map(VecDeque::len).sum();
    }
}
