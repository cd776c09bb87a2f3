//! The configuration keys of a run's formal system and problem set.

use crate::Usage;
use crate::config::system::{LEAN, METAMATH, listed};
use std::sync::LazyLock;

/// Value of `database` for the slice of set.mm that ships with the program.
pub const SHIPPED: &str = "shipped";

/// The allowed values of `set`.
static SETS: LazyLock<String> = LazyLock::new(|| {
    let (metamath, lean) = (listed(&METAMATH), listed(&LEAN));
    format!("{metamath}; for Lean {lean}; a file, which an external system requires")
});

sgs_keys::table! {
    /// The formal system and its problems.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ProblemsConfig {
        /// The formal system.
        pub system: SystemName = SystemName::Metamath,
        /// The Metamath database.
        pub database: String = SHIPPED.to_owned(),
            in "shipped (9,000 axioms and theorems of set.mm), or a .mm file, of which at most every ninth theorem is a target",
        /// The problem set.
        pub set: String = "quick".to_owned(),
            in SETS.as_str(),
    }
}

sgs_keys::choice! {
    /// A formal system.
    pub enum SystemName {
        /// The embedded Metamath checker.
        Metamath = "metamath",
        /// Lean 4.
        Lean = "lean",
        /// A process that speaks JSON lines.
        External = "external",
    }
}

impl std::str::FromStr for SystemName {
    type Err = Usage;

    fn from_str(name: &str) -> Result<Self, Usage> {
        match name {
            "metamath" => Ok(Self::Metamath),
            "lean" => Ok(Self::Lean),
            other => Err(Usage(format!("there is no formal system `{other}`; there are metamath, lean"))),
        }
    }
}

/// Returns whether a problem set is drawn from the theorems of the database.
pub(crate) fn is_drawn(set: &str) -> bool {
    ["quick", "all", "train", "held-out"].contains(&set)
}

/// Checks that a problem set exists for a database.
///
/// # Errors
/// Returns an error if the set was composed from the shipped database, and this is another one.
pub(crate) fn check_database(database: &str, set: &str) -> Result<(), Usage> {
    match set {
        "deep" | "deep-held-out" if database != SHIPPED => Err(Usage(format!(
            "the set `{set}` was composed from the shipped database; for {database} use all, train, held-out or a file"
        ))),
        _ => Ok(()),
    }
}
