//! Reads data sets in any format, which is detected from a file's name and its first bytes. Writes data sets in our own
//! format.

use super::stream::{Records, Take, stream, stream_file};
use super::target::{DataSetError, Import, MAX_HELD_BYTES, SkippedRecord, Target};
use sgs_selfplay::Verdict;
use std::path::Path;

/// Reads a complete file of any format except Parquet. `.zst` is decompressed. [`stream_file`] reads one record at a time.
///
/// `header` is the context of problems without their own.
pub fn read_file(path: &Path, header: &str) -> Result<Import, DataSetError> {
    collect(|take| stream_file(path, header, take))
}

/// Reads the text of a file of any format except Parquet. `name` is the file's name.
pub fn read_text(name: &str, text: &str, header: &str) -> Result<Import, DataSetError> {
    collect(|take| stream(name, text.as_bytes(), Records::new(header, take)))
}

/// Collects all records that `read` passes on.
///
/// # Errors
/// Returns an error of `read`, or if the records take too much memory.
pub fn collect<E: From<DataSetError>>(
    read: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
) -> Result<Import, E> {
    let (mut targets, mut skipped) = (Vec::new(), Vec::new());
    let mut held = 0usize;
    read(&mut |line, target| {
        match target {
            Ok(target) => {
                let proof = target.proof.as_deref().unwrap_or_default();
                held += target.problem.statement.len() + target.problem.context.len() + proof.len();
                targets.push(target);
            }
            Err(error) => {
                held += error.id.len() + error.reason.len();
                skipped.push(SkippedRecord { line, id: error.id, reason: error.reason });
            }
        }
        if held > MAX_HELD_BYTES { Err(DataSetError::TooMuch) } else { Ok(()) }
    })?;
    Ok(Import { targets, skipped })
}

/// Returns a target as a line of JSON in our own format, which [`read_text`] reads back unchanged.
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
