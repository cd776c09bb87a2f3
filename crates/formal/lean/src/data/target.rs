//! The problems of a data set, and the result of reading a file of them.

use serde::{Deserialize, Serialize};
use sgs_selfplay::{Problem, Verdict};
use std::path::PathBuf;

/// Lean's version in the paper's runs over D_3k.
pub const D3K_TOOLCHAIN: &str = "v4.15.0";

/// Maximum size of the problems that are held in memory, in bytes. No set for a run is larger.
pub(super) const MAX_HELD_BYTES: usize = 1 << 30;

/// A problem of a data set, with the data that accompanies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Id, statement in canonical text, and header.
    pub problem: Problem,
    /// The proof in the data set, in canonical text: helper theorems, if any, and the text after `:= by`
    /// ([`crate::read::Proof::to_text`]).
    pub proof: Option<String>,
    /// The problem in natural language.
    pub informal: Option<String>,
    /// The split or tag in the data set.
    pub split: Option<String>,
    /// The source that the data set names.
    pub source: Option<String>,
    /// The version of Lean that the data set requires, such as `v4.15.0` or `leanprover/lean4:v4.15.0`; `None` for any.
    pub toolchain: Option<String>,
    /// The verdict that the proof should get from the checker (our small set only).
    pub expect: Option<Verdict>,
}

impl Target {
    /// Creates a target without further data.
    pub fn new(problem: Problem) -> Self {
        let [proof, informal, split, source, toolchain] = [const { None }; 5];
        Self { problem, proof, informal, split, source, toolchain, expect: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataSetFormat {
    /// A JSON object with the key `target_statements`: the paper's D_3k.
    D3k,
    /// JSON Lines: Goedel-Pset, NuminaMath-LEAN, miniF2F, our own.
    JsonLines,
    /// A JSON array of the same objects.
    JsonArray,
    /// Lean source in which `sorry` marks the theorems to prove.
    LeanSource,
}

/// A record that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedRecord {
    /// Line of the file, counted from 1; 0 if the format has no lines.
    pub line: usize,
    /// The record's id, empty if it has none.
    pub id: String,
    /// The reason why it was skipped.
    pub reason: String,
}

/// The contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The problems, in the file's order.
    pub targets: Vec<Target>,
    /// The records that were skipped.
    pub skipped: Vec<SkippedRecord>,
}

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum DataSetError {
    /// The operating system reported an error.
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{path}: larger than {most} bytes when decompressed; split it")]
    TooLarge { path: PathBuf, most: u64 },
    #[error("more than {most} records; split the file")]
    TooMany { most: usize },
    #[error("the problems of the set are more than {MAX_HELD_BYTES} bytes of text; split it")]
    TooMuch,
    #[error("{name}: not the JSON that its first bytes announce: {error}")]
    Json { name: String, error: serde_json::Error },
}
