//! The configuration keys of a run's formal system and problem set.

use crate::Usage;
use sgs_metamath::composed_sets::ComposedSet;
use std::sync::LazyLock;

/// Value of `database` for the slice of set.mm that ships with the program.
pub const SHIPPED: &str = "shipped";

/// Metamath sets shipped with the program, each with its contents.
const METAMATH: [(&str, &str); 8] = [
    ("quick", "100 theorems of set.mm"),
    ("all", "1,000"),
    ("train", "800 of them"),
    ("held-out", "the other 200"),
    ("deep", "composed"),
    ("deep-held-out", "composed"),
    ("congruence", "composed"),
    ("congruence-held-out", "composed"),
];

/// Lean sets shipped with the program, each with its contents.
const LEAN: [(&str, &str); 4] = [
    ("d3k", "the paper's 3,323"),
    ("core", "needs no Mathlib"),
    ("composed", "needs no Mathlib"),
    ("composed-held-out", "needs no Mathlib"),
];

/// The names of the Metamath sets.
pub const METAMATH_SETS: [&str; 8] = names(&METAMATH);

/// The names of the Lean sets.
pub const LEAN_SETS: [&str; 4] = names(&LEAN);

const fn names<const N: usize>(sets: &[(&'static str, &'static str); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = sets[i].0;
        i += 1;
    }
    names
}

/// Lists sets with their contents.
fn listed(sets: &[(&str, &str)]) -> String {
    sets.iter().map(|(name, contents)| format!("{name} ({contents})")).collect::<Vec<_>>().join(", ")
}

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
            "external" => Err(Usage(
                "the system `external` needs the program of a configuration: use --run RUN or --run FILE.toml".into(),
            )),
            other => Err(Usage(format!("unknown formal system `{other}`; expected metamath or lean"))),
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
    if database == SHIPPED || ComposedSet::of_set(set).is_none() {
        return Ok(());
    }
    Err(Usage(format!(
        "the set `{set}` was composed from the shipped database; for {database} use all, train, held-out or a file"
    )))
}
