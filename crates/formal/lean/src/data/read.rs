//! One entry for every format: what a file holds is told by its name and its first bytes.

use super::stream::{Records, Take, stream, stream_file};
use crate::text::Repair;
use serde::{Deserialize, Serialize};
use sgs_selfplay::{Problem, Verdict};
use std::path::{Path, PathBuf};

/// Most text of problems that is held in memory at a time, in bytes: a set that a run is made of has no reason to be larger.
const MOST_HELD: usize = 1 << 30;

/// A problem of a data set with what else is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Identity, statement in canonical text, header.
    pub problem: Problem,
    /// What had to be done to the statement's text, if anything.
    pub repair: Option<Repair>,
    /// A proof that came along, in canonical text: what stands after `:= by`, with helper theorems before it if
    /// there are any ([`crate::read::Proof::to_text`]).
    pub proof: Option<String>,
    /// The problem in words.
    pub informal: Option<String>,
    /// The data set's own split or tag.
    pub split: Option<String>,
    /// Where the data set says it is from.
    pub source: Option<String>,
    /// The toolchain that the data set is pinned to, as `v4.15.0` or `leanprover/lean4:v4.15.0`; `None` for any.
    pub toolchain: Option<String>,
    /// What the proof that came along is expected to get from the checker (our own small set only).
    pub expect: Option<Verdict>,
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// One JSON object with `target_statements`: the paper's D_3k.
    D3k,
    /// One JSON object a line: Goedel-Pset, NuminaMath-LEAN, miniF2F, our own.
    JsonLines,
    /// A JSON array of such objects.
    JsonArray,
    /// Lean source in which `sorry` stands where a proof is wanted.
    LeanSource,
    /// A table with one record a row; read by whoever has a reader for it, see [`Records`].
    Parquet,
}

/// A record that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Line of the file, counted from 1; 0 where records have no line.
    pub line: usize,
    /// The record's name, where it has one.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What a file gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The format that was found.
    pub format: Format,
    /// The problems, in the file's order.
    pub targets: Vec<Target>,
    /// What was not taken.
    pub skipped: Vec<Skipped>,
}

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file, or a record of it, is larger than what is read.
    #[error("{path}: larger than {most} bytes when decompressed; split it")]
    TooLarge {
        /// The file, or its line.
        path: PathBuf,
        most: u64,
    },
    /// A file has more records than are read.
    #[error("more than {most} records; split the file")]
    TooMany {
        /// So many are read.
        most: usize,
    },
    /// All that was read does not fit into what is held at a time.
    #[error("the problems of the set are more than {MOST_HELD} bytes of text; split it")]
    TooMuch,
    /// The text is no JSON.
    #[error("{name}: not the JSON that its first bytes announce: {error}")]
    Json {
        name: String,
        /// What the parser said, with line and column.
        error: serde_json::Error,
    },
}

/// Reads a file of any format but Parquet whole; `.zst` is decompressed on the way. Where one record after the other will
/// do, there is [`stream_file`].
///
/// `header` is the context of problems that bring none of their own.
///
/// # Errors
/// The file cannot be read, is too large or is not what its first bytes announce.
pub fn read_file(path: &Path, header: &str) -> Result<Import, ReadError> {
    collect(|take| stream_file(path, header, take))
}

/// Reads the text of a file of any format but Parquet; `name` is the file's name.
///
/// # Errors
/// As [`read_file`].
pub fn read_text(name: &str, text: &str, header: &str) -> Result<Import, ReadError> {
    collect(|take| stream(name, text.as_bytes(), Records::new(header, take)))
}

/// All records that `read` hands over.
///
/// # Errors
/// Those of `read`, or they are more than is held.
pub fn collect<E: From<ReadError>>(
    read: impl FnOnce(&mut Take<'_>) -> Result<Format, E>,
) -> Result<Import, E> {
    let (mut targets, mut skipped) = (Vec::new(), Vec::new());
    let mut held = 0usize;
    let format = read(&mut |line, target| {
        match target {
            Ok(target) => {
                let proof = target.proof.as_deref().unwrap_or_default();
                held += target.problem.statement.len() + target.problem.context.len() + proof.len();
                targets.push(target);
            }
            Err(error) => {
                held += error.id.len() + error.reason.len();
                skipped.push(Skipped { line, id: error.id, reason: error.reason });
            }
        }
        if held > MOST_HELD { Err(ReadError::TooMuch) } else { Ok(()) }
    })?;
    Ok(Import { format, targets, skipped })
}

/// A target as a line of JSON in our own form, which [`read_text`] reads back unchanged.
pub fn write_line(target: &Target) -> String {
    let mut record = serde_json::Map::new();
    let mut put = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            record.insert(key.to_owned(), value.into());
        }
    };
    put("id", Some(target.problem.id.as_str()));
    put("header", Some(&target.problem.context));
    put("statement", Some(&target.problem.statement));
    put("proof", target.proof.as_deref());
    put("expect", target.expect.map(Verdict::as_str));
    put("informal", target.informal.as_deref());
    put("split", target.split.as_deref());
    put("source", target.source.as_deref());
    put("toolchain", target.toolchain.as_deref());
    let mut line = serde_json::Value::Object(record).to_string();
    line.push('\n');
    line
}

/// Writes targets as JSON Lines.
pub fn write_jsonl(targets: &[Target]) -> String {
    targets.iter().map(write_line).collect()
}
