//! Converts data sets of Lean problems to JSON Lines, record by record.

use sgs_lean::data::{DataSetError, SkippedRecord, write_line};
use sgs_lean::text::{assumptions, is_admitted};
use sgs_run::Usage;
use sgs_run::config::lean_set;
use sgs_run::error::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Maximum number of skipped records that [`ImportSummary::skipped`] lists.
const LISTED: usize = 20;

/// Maximum number of problems that [`ImportSummary::assuming`] lists.
const ASSUMING_LISTED: usize = 3;

/// The result of an import.
pub struct ImportSummary {
    /// Number of records that are problems.
    pub taken: usize,
    /// The first records that are not problems.
    pub skipped: Vec<SkippedRecord>,
    /// Number of all records that are not problems.
    pub skipped_total: usize,
    /// The first problems whose headers add hypotheses, instances or notations ([`assumptions`]): the id of each, and what
    /// its header adds first.
    pub assuming: Vec<(String, String)>,
    /// Number of all problems whose headers add hypotheses, instances or notations.
    pub assuming_total: usize,
}

/// Reads a data set of any known layout and writes each problem as a line of JSON. `header` is a file with the context of
/// problems that have none. Problems that name no toolchain get `toolchain`. `out_name` names `out` in errors.
pub fn import(
    file: &Path,
    header: Option<&Path>,
    toolchain: Option<&str>,
    out: &mut impl Write,
    out_name: &Path,
) -> Result<ImportSummary> {
    let header = match header {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("cannot read the header {}", path.display()))?
        }
        None => String::new(),
    };
    let mut found = ImportSummary {
        taken: 0,
        skipped: Vec::new(),
        skipped_total: 0,
        assuming: Vec::new(),
        assuming_total: 0,
    };
    let mut failed = None;
    let read = lean_set::each(file, &header, &mut |line, target| match target {
        Ok(mut target) => {
            found.taken += 1;
            if let Some(first) = assumptions(&target.problem.context).into_iter().next() {
                found.assuming_total += 1;
                if found.assuming.len() < ASSUMING_LISTED {
                    found.assuming.push((target.problem.id.as_str().to_owned(), first));
                }
            }
            // A proof with `sorry` is kept only as an example of what a checker must refuse.
            if target.expect.is_none() {
                target.proof = target.proof.take().filter(|proof| !is_admitted(proof));
            }
            target.toolchain = target.toolchain.take().or_else(|| toolchain.map(str::to_owned));
            out.write_all(write_line(&target).as_bytes()).map_err(|error| {
                let kind = error.kind();
                failed = Some(error);
                DataSetError::Io { path: out_name.to_owned(), error: kind.into() }
            })
        }
        Err(error) => {
            found.skipped_total += 1;
            if found.skipped.len() < LISTED {
                found.skipped.push(SkippedRecord { line, id: error.id, reason: error.reason });
            }
            Ok(())
        }
    });
    if let Some(error) = failed {
        // Return the original error, so that the caller recognises a broken pipe.
        return Err(error).with_context(|| format!("cannot write {}", out_name.display()));
    }
    read.map_err(Usage::of)?;
    if found.taken + found.skipped_total == 0 {
        let described = "`sgs data import --help` describes the files that can be read";
        return Err(Usage(format!("{} holds no problem; {described}", file.display())).into());
    }
    Ok(found)
}
