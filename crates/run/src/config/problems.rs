//! The configuration keys of a run's formal system and problem set.

use crate::Usage;

sgs_keys::table! {
    /// The formal system and its problems.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ProblemsConfig {
        /// The formal system.
        pub system: SystemName = SystemName::Metamath,
        /// The problem set.
        pub set: String = "quick".to_owned(),
            in "quick (100 theorems of set.mm), all (1,000), train and held-out (800 and 200 of them); for Lean d3k (the paper's 3,323), core (needs no Mathlib); a file, which an external system requires",
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
