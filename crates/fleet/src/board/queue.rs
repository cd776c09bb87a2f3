//! Pending tasks of one kind in the order in which they are leased.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::task::WorkerName;

/// A place in the queue. It is void once the task's own ticket has another number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Index of the task.
    pub slot: u32,
    /// The task's ticket when it was queued.
    pub ticket: u64,
}

/// Which end of its priority a task joins.
#[derive(Clone, Copy)]
pub(super) enum End {
    Back,
    Front,
}

/// Whom a task is kept from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeptFrom {
    /// Nobody.
    Nobody,
    /// This worker never gets it.
    Barred(WorkerName),
    /// This worker has failed it, and gets it only if nobody else is there.
    Failed(WorkerName),
}

/// Pending tasks of one kind. What is kept from a worker stands in a queue of its own, so that much of it does not hide
/// from that worker what else there is.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// None of them is empty.
    queues: BTreeMap<KeptFrom, Queue>,
}

impl Pending {
    pub fn push(&mut self, from: KeptFrom, priority: i32, place: Place, end: End) {
        self.queues.entry(from).or_default().push(priority, place, end);
    }

    /// The first place for this worker that is not void and that `fits`; of each queue only after at most `most` that do
    /// not. It stays.
    pub fn first(
        &mut self,
        worker: &WorkerName,
        valid: impl Fn(Place) -> bool,
        fits: impl Fn(Place) -> bool,
        most: usize,
    ) -> Option<Place> {
        let is_for = |from: &KeptFrom| !matches!(from, KeptFrom::Barred(barred) if barred == worker);
        let queues = self.queues.iter_mut().filter(|(from, _)| is_for(from));
        let firsts = queues.filter_map(|(_, queue)| queue.first(&valid, &fits, most));
        let best = firsts.min_by_key(|(priority, order, _)| (*priority, *order)).map(|(_, _, place)| place);
        self.queues.retain(|_, queue| queue.places > 0);
        best
    }

    /// Drops the void places if they outnumber the `live` ones, so that memory follows the tasks that exist.
    pub fn tidy(&mut self, live: usize, valid: impl Fn(Place) -> bool) {
        let places: usize = self.queues.values().map(|queue| queue.places).sum();
        if places > 2 * live + 1024 {
            self.queues.values_mut().for_each(|queue| queue.tidy(&valid));
            self.queues.retain(|_, queue| queue.places > 0);
        }
    }
}

/// First in, first out within a priority; higher priorities first. Leaving from the middle is free:
/// the task changes its ticket and its place is skipped later.
#[derive(Debug, Default)]
struct Queue {
    /// Each place behind its order, ascending: the ticket at the back, less than all before at the front.
    by_priority: BTreeMap<Reverse<i32>, VecDeque<(i64, Place)>>,
    places: usize,
}

impl Queue {
    fn push(&mut self, priority: i32, place: Place, end: End) {
        let places = self.by_priority.entry(Reverse(priority)).or_default();
        // Tickets are numbered from 1 and never run out.
        let order = i64::try_from(place.ticket).unwrap_or(i64::MAX);
        match end {
            End::Back => places.push_back((order, place)),
            End::Front => places.push_front((-order, place)),
        }
        self.places += 1;
    }

    /// The first place that is not void and that `fits`, after at most `most` that do not, with its priority and order.
    /// It stays; the void ones in front go.
    fn first(
        &mut self,
        valid: impl Fn(Place) -> bool,
        fits: impl Fn(Place) -> bool,
        most: usize,
    ) -> Option<(Reverse<i32>, i64, Place)> {
        let mut passed = 0;
        let mut empty = Vec::new();
        let mut found = None;
        'all: for (priority, places) in &mut self.by_priority {
            while places.front().is_some_and(|(_, place)| !valid(*place)) {
                places.pop_front();
                self.places -= 1;
            }
            if places.is_empty() {
                empty.push(*priority);
            }
            for (order, place) in places.iter().copied().filter(|(_, place)| valid(*place)) {
                if fits(place) {
                    found = Some((*priority, order, place));
                    break 'all;
                }
                passed += 1;
                if passed > most {
                    break 'all;
                }
            }
        }
        for priority in empty {
            self.by_priority.remove(&priority);
        }
        found
    }

    fn tidy(&mut self, valid: impl Fn(Place) -> bool) {
        for places in self.by_priority.values_mut() {
            places.retain(|(_, place)| valid(*place));
            places.shrink_to_fit();
        }
        self.by_priority.retain(|_, places| !places.is_empty());
        self.places = self.by_priority.values().map(VecDeque::len).sum();
    }
}
