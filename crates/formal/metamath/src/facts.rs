//! Whether a database's own theorems are facts: a theorem with `?` for a proof, or a wrong one, can be cited like any other.

use crate::database::{Database, StatementId};
use crate::kernel::{Kernel, verify_theorem};
use rayon::prelude::*;
use std::fmt;

/// A theorem that does not hold as it stands in its database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproved {
    pub label: String,
    /// What is wrong with its proof.
    pub reason: String,
}

/// What the kernel says of all theorems of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How many there are.
    pub theorems: usize,
    /// Those that do not hold, in the database's order.
    pub unproved: Vec<Unproved>,
}

impl Facts {
    /// Checks every proof of a database; on all cores, a second for `set.mm`.
    pub fn of(database: &Database) -> Self {
        let theorems: Vec<StatementId> =
            database.assertions().filter(|(_, _, a)| a.is_theorem()).map(|(id, _, _)| id).collect();
        let check = |kernel: &mut Kernel, id: &StatementId| {
            let reason = verify_theorem(kernel, database, *id).err()?;
            Some(Unproved { label: database.statement(*id).label.to_string(), reason })
        };
        let unproved = theorems.par_iter().map_init(Kernel::new, check).flatten().collect();
        Self { theorems: theorems.len(), unproved }
    }
}

/// Theorems that a message names.
const NAMED: usize = 5;

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} theorems do not hold as they stand", self.unproved.len(), self.theorems)?;
        for (i, Unproved { label, reason }) in self.unproved.iter().take(NAMED).enumerate() {
            write!(f, "{} `{label}` ({reason})", if i == 0 { ":" } else { "," })?;
        }
        match self.unproved.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
