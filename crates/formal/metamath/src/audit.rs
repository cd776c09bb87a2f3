//! Verifies the proofs of a database's own theorems. Without this check, a theorem with an incomplete or invalid proof could
//! be cited like any other.

use crate::database::{Database, StatementId};
use crate::kernel::{Kernel, verify_theorem};
use rayon::prelude::*;
use std::fmt;

/// The result of checking all theorems of a database with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseAudit {
    /// Number of theorems.
    pub theorems: usize,
    /// Labels of the theorems without a valid proof, in database order, with the errors in their proofs.
    pub unproved: Vec<(String, String)>,
}

impl DatabaseAudit {
    /// Checks every proof of a database on all cores. This takes about a second for `set.mm`.
    pub fn of(database: &Database) -> Self {
        let theorems: Vec<StatementId> =
            database.assertions().filter(|(_, _, a)| a.is_theorem()).map(|(id, _, _)| id).collect();
        let check = |kernel: &mut Kernel, id: &StatementId| {
            let reason = verify_theorem(kernel, database, *id).err()?;
            Some((database.statement(*id).label.to_string(), reason))
        };
        let unproved = theorems.par_iter().map_init(Kernel::new, check).flatten().collect();
        Self { theorems: theorems.len(), unproved }
    }
}

/// Maximum number of theorems named in a message.
const NAMED: usize = 5;

impl fmt::Display for DatabaseAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} theorems have no valid proof", self.unproved.len(), self.theorems)?;
        for (i, (label, reason)) in self.unproved.iter().take(NAMED).enumerate() {
            write!(f, "{} `{label}` ({reason})", if i == 0 { ":" } else { "," })?;
        }
        match self.unproved.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
