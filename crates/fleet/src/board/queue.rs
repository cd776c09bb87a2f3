//! Pending tasks of one kind in the order in which they are leased.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// A place in the queue. It is void once the task's own ticket has another number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Index of the task.
    pub slot: u32,
    /// The task's ticket when it was queued.
    pub ticket: u64,
}

/// First in, first out within a priority; higher priorities first. Leaving from the middle is free:
/// the task changes its ticket and its place is skipped later.
#[derive(Debug, Default)]
pub(super) struct Queue {
    by_priority: BTreeMap<Reverse<i32>, VecDeque<Place>>,
    places: usize,
}

impl Queue {
    pub fn push_back(&mut self, priority: i32, place: Place) {
        self.by_priority.entry(Reverse(priority)).or_default().push_back(place);
        self.places += 1;
    }

    pub fn push_front(&mut self, priority: i32, place: Place) {
        self.by_priority.entry(Reverse(priority)).or_default().push_front(place);
        self.places += 1;
    }

    /// The first place that is not void; it stays, the void ones before it go.
    pub fn first(&mut self, valid: impl Fn(Place) -> bool) -> Option<Place> {
        loop {
            let mut entry = self.by_priority.first_entry()?;
            match entry.get().front() {
                Some(&place) if valid(place) => return Some(place),
                Some(_) => {
                    entry.get_mut().pop_front();
                    self.places -= 1;
                }
                None => {
                    entry.remove();
                }
            }
        }
    }

    /// Drops the void places if they outnumber the `live` ones, so that memory follows the tasks that exist.
    pub fn tidy(&mut self, live: usize, valid: impl Fn(Place) -> bool) {
        if self.places > 2 * live + 1024 {
            for places in self.by_priority.values_mut() {
                places.retain(|place| valid(*place));
                places.shrink_to_fit();
            }
            self.by_priority.retain(|_, places| !places.is_empty());
            self.places = self.by_priority.values().map(VecDeque::len).sum();
        }
    }
}
