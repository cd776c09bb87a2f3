//! The configuration keys of a run's formal system and problem set.

use crate::Usage;

/// Value of `database` for the slice of set.mm that ships with the program.
pub const SHIPPED: &str = "shipped";

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
            in "quick (100 theorems of set.mm), all (1,000), train and held-out (800 and 200 of them), deep and deep-held-out (composed); for Lean d3k (the paper's 3,323), core (needs no Mathlib); a file, which an external system requires",
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
