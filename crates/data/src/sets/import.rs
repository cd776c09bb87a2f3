//! Reading of data sets of Lean problems, record by record, and their conversion to JSON Lines.

use sgs_lean::data::{DataSetError, DataSetFormat, SkippedRecord, Target, write_line};
use sgs_run::config::lean_set;
use sgs_run::error::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Most skipped records that [`ImportSummary::skipped`] lists.
const LISTED: usize = 1000;

/// The result of reading a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSummary {
    /// The layout of the file.
    pub format: DataSetFormat,
    /// Records that are problems.
    pub taken: usize,
    /// The first records that are not.
    pub skipped: Vec<SkippedRecord>,
    /// The number of all records that are not problems.
    pub skipped_total: usize,
}

/// Reads a data set of any known layout and calls `take` for each problem. `header` is a file with the context of
/// problems that have none.
///
/// # Errors
/// Returns an error if a file cannot be read or holds no record, or the error of `take`.
pub fn each_target(
    file: &Path,
    header: Option<&Path>,
    mut take: impl FnMut(Target) -> Result<(), DataSetError>,
) -> Result<ImportSummary> {
    let header = match header {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("cannot read the header {}", path.display()))?
        }
        None => String::new(),
    };
    let (mut taken, mut skipped, mut skipped_total) = (0, Vec::new(), 0);
    let format = lean_set::each(file, &header, &mut |line, target| match target {
        Ok(target) => {
            taken += 1;
            take(target)
        }
        Err(error) => {
            skipped_total += 1;
            if skipped.len() < LISTED {
                skipped.push(SkippedRecord { line, id: error.id, reason: error.reason });
            }
            Ok(())
        }
    })?;
    if taken + skipped_total == 0 {
        bail!("{} holds no problem", file.display());
    }
    Ok(ImportSummary { format, taken, skipped, skipped_total })
}

/// Reads a data set and writes each problem as a line of JSON. Problems that name no toolchain get `toolchain`.
/// `out_name` names `out` in errors.
///
/// # Errors
/// Returns an error if the data set cannot be read or the problems cannot be written.
pub fn import(
    file: &Path,
    header: Option<&Path>,
    toolchain: Option<&str>,
    out: &mut impl Write,
    out_name: &Path,
) -> Result<ImportSummary> {
    let mut failed = None;
    let found = each_target(file, header, |mut target| {
        target.toolchain = target.toolchain.take().or_else(|| toolchain.map(str::to_owned));
        out.write_all(write_line(&target).as_bytes()).map_err(|error| {
            let kind = error.kind();
            failed = Some(error);
            DataSetError::Io { path: out_name.to_owned(), error: kind.into() }
        })
    });
    match failed {
        // The original error, so that the caller recognises a broken pipe.
        Some(error) => Err(error).with_context(|| format!("cannot write {}", out_name.display())),
        None => found,
    }
}
