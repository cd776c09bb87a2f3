//! The shipped sets of composed theorems: `deep`, `congruence`, and their held-out problems.
//!
//! The example `composed_sets` of `sgs-data` made the shipped files.

use serde::{Deserialize, Serialize};
use std::io::Read;
use std::ops::RangeInclusive;

/// Targets of each number of inferences.
pub const TARGETS_EACH: usize = 100;
/// Held-out problems of each number of inferences.
pub const HELD_OUT_EACH: usize = 25;

/// A kind of composed theorems, with one set of targets and one of held-out problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComposedSet {
    /// Theorems of random rules.
    Deep,
    /// Nested congruences: if two parts are equal or equivalent, so are two expressions that contain them.
    Congruence,
}

impl ComposedSet {
    /// All sets.
    pub const ALL: [Self; 2] = [Self::Deep, Self::Congruence];

    /// Returns the name of the set of targets.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deep => "deep",
            Self::Congruence => "congruence",
        }
    }

    /// Returns the kind of a set of problems and whether the set is held out. Returns `None` for other sets.
    pub fn of_set(set: &str) -> Option<(Self, bool)> {
        let (name, held_out) = match set.strip_suffix("-held-out") {
            Some(name) => (name, true),
            None => (set, false),
        };
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some((kind, held_out))
    }

    /// Returns the numbers of inferences of the proofs that the problems were composed with.
    pub fn inferences(self) -> RangeInclusive<usize> {
        match self {
            Self::Deep => 5..=12,
            Self::Congruence => 3..=10,
        }
    }

    /// Returns the targets and the held-out problems.
    ///
    /// # Panics
    /// Panics if the file in the program is damaged.
    #[allow(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
    pub fn problems(self) -> Vec<ComposedProblem> {
        let file: &[u8] = match self {
            Self::Deep => include_bytes!("../data/deep.jsonl.zst"),
            Self::Congruence => include_bytes!("../data/congruence.jsonl.zst"),
        };
        let mut text = String::new();
        let decoder = zstd::Decoder::new(file);
        let read = decoder.and_then(|mut decoder| decoder.read_to_string(&mut text));
        read.expect("invariant: the shipped problems are compressed text");
        let line = |line| {
            serde_json::from_str(line).expect("invariant: a line of the shipped problems is a problem")
        };
        text.lines().map(line).collect()
    }
}

/// A problem of a composed set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposedProblem {
    /// Its id.
    pub id: String,
    /// The statement in normal form.
    pub statement: String,
    /// Label of the theorem that the problem precedes.
    pub context: String,
    /// Number of inferences of the proof that it was composed with.
    pub steps: usize,
    /// Whether it is a held-out problem; the others are targets.
    pub held_out: bool,
}
