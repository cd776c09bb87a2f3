//! What rank 0 asks of the others: orders of any size, at any time, to be done in the order in which they are given.
//!
//! The others wait for orders as long as rank 0 lives. Rank 0 may give them from any thread while its trainer has
//! nothing under way, as when a checkpoint is written beside the sampling.

use std::sync::Arc;
use std::time::Duration;

use super::meeting::{Meeting, Shared, kind, rank_error};
use crate::error::Result;

/// Bytes of an order that are sent at a time: beats pass between them.
const PART: usize = 1 << 26;

/// Rank 0's voice.
#[derive(Clone)]
pub struct Orders {
    shared: Arc<Shared>,
    patience: Duration,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orders").field("members", &self.shared.members).finish_non_exhaustive()
    }
}

impl Orders {
    /// Tells all other ranks what to do.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn give(&self, order: &[u8]) -> Result<()> {
        self.check()?;
        self.shared.state().answers.clear();
        let others = 1..self.shared.members.len();
        let length = (order.len() as u64).to_le_bytes();
        for part in std::iter::once(&length[..]).chain(order.chunks(PART)) {
            others.clone().try_for_each(|rank| self.shared.post(rank, kind::ORDER, part))?;
        }
        Ok(())
    }

    /// Waits until every other rank has answered that the last order is done.
    ///
    /// # Errors
    /// A rank could not do it, is gone, or has not answered within the patience: it is named.
    pub fn answers(&self) -> Result<()> {
        let members = &self.shared.members;
        let state = self.shared.wait_unless_lost(self.patience, |s| s.answers.len() + 1 >= members.len());
        let failed = state.answers.iter().find(|(_, why)| !why.is_empty());
        let failed = failed.map(|(rank, why)| (*rank, String::from_utf8_lossy(why).into_owned()));
        let silent = (1..members.len()).find(|rank| !state.answers.contains_key(rank));
        drop(state);
        if let Some((rank, why)) = failed {
            return Err(rank_error(format!("{} failed: {why}", members[rank])));
        }
        self.check()?;
        match silent {
            None => Ok(()),
            Some(rank) => {
                let waited = self.patience.as_secs();
                Err(self.shared.lost(format!("waited {waited} s for an answer of {}", members[rank])))
            }
        }
    }

    /// Whether all ranks are still there.
    ///
    /// # Errors
    /// One is lost; the error names it.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }
}

impl Meeting {
    /// What rank 0 gives orders with.
    pub fn orders(&self) -> Orders {
        Orders { shared: Arc::clone(self.shared()), patience: self.place().patience }
    }

    /// Rank 0's next order, however long that takes; `None` if it has left in order.
    ///
    /// # Errors
    /// A rank is gone or out of step.
    pub fn next_order(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(first) = self.letter_within(kind::ORDER, Duration::MAX)? else { return Ok(None) };
        let garbled = |_| self.lost("rank 0 gave an order without a length".to_owned());
        let length = u64::from_le_bytes(first.payload.try_into().map_err(garbled)?);
        let mut order = Vec::new();
        while (order.len() as u64) < length {
            order.extend(self.letter(kind::ORDER, 0)?.payload);
        }
        Ok(Some(order))
    }

    /// Tells rank 0 that its last order is done, or why it is not.
    ///
    /// # Errors
    /// Rank 0 is gone.
    pub fn answer(&mut self, done: std::result::Result<(), &str>) -> Result<()> {
        let why = done.err().map_or("", |why| if why.is_empty() { "for no known reason" } else { why });
        self.shared().post(0, kind::ANSWER, why.as_bytes())
    }
}
