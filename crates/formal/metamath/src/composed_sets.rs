//! The sets `deep` and `deep-held-out`: composed theorems with proofs of 5 to 12 inferences.
//!
//! `cargo run --release -p sgs-data --example deep_sets` made the shipped file.

use serde::{Deserialize, Serialize};
use std::io::Read;

/// Numbers of inferences of the proofs that the problems were composed with.
pub const INFERENCES: std::ops::RangeInclusive<usize> = 5..=12;
/// Targets of each number of inferences.
pub const TARGETS_EACH: usize = 100;
/// Held-out problems of each number of inferences.
pub const HELD_OUT_EACH: usize = 25;

/// A problem of the sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeepProblem {
    /// Its id.
    pub id: String,
    /// The statement in normal form.
    pub statement: String,
    /// Label of the theorem that the problem precedes.
    pub context: String,
    /// Number of inferences of the proof that it was composed with.
    pub steps: usize,
    /// Whether it is in `deep-held-out`; the others are in `deep`.
    pub held_out: bool,
}

static PROBLEMS: &[u8] = include_bytes!("../data/deep.jsonl.zst");

/// Returns the problems of both sets.
///
/// # Panics
/// Panics if the file in the program is damaged.
#[allow(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
pub fn problems() -> Vec<DeepProblem> {
    let mut text = String::new();
    let decoder = zstd::Decoder::new(PROBLEMS);
    let read = decoder.and_then(|mut decoder| decoder.read_to_string(&mut text));
    read.expect("invariant: the shipped problems are compressed text");
    let line =
        |line| serde_json::from_str(line).expect("invariant: a line of the shipped problems is a problem");
    text.lines().map(line).collect()
}
