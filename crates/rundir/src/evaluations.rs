//! The evaluations of a run: what the Solver could prove, after so many rounds, of problems that it is not trained on.

use crate::directories::{publish_directory, read_listed, remove_directory};
use crate::error::Result;
use crate::metrics::MetricValues;
use crate::rounds::{directory_name, numbered_directories, parse_json, write_json};
use crate::rows::EvaluationRow;
use crate::table::{RowReader, RowWriter};
use std::path::{Path, PathBuf};

const PROBLEMS: &str = "problems.parquet";
const METRICS: &str = "metrics.json";

/// A published evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// How many rounds the weights had been trained in: 0 is the base model.
    pub after: u32,
    directory: PathBuf,
}

impl Evaluation {
    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its numbers; their `round` is the number of rounds before it.
    ///
    /// # Errors
    /// The file is missing, altered or damaged.
    pub fn metrics(&self) -> Result<MetricValues> {
        parse_json(&self.directory.join(METRICS), &read_listed(&self.directory, METRICS)?)
    }

    /// The problems with what was proved of them.
    ///
    /// # Errors
    /// The table is missing or damaged.
    pub fn problems(&self) -> Result<RowReader<EvaluationRow>> {
        RowReader::open(&self.directory.join(PROBLEMS))
    }
}

/// The evaluations that a directory holds, ascending; none if it does not exist.
pub(crate) fn list(evaluations: &Path) -> Result<Vec<Evaluation>> {
    let found = numbered_directories(evaluations)?;
    Ok(found.into_iter().map(|(after, directory)| Evaluation { after, directory }).collect())
}

/// Publishes an evaluation.
pub(crate) fn publish(
    evaluations: &Path,
    metrics: &MetricValues,
    rows: Vec<EvaluationRow>,
) -> Result<Evaluation> {
    let (after, directory) = (metrics.round, evaluations.join(directory_name(metrics.round)));
    publish_directory(&directory, |staging| {
        let mut table = RowWriter::create(&staging.join(PROBLEMS))?;
        rows.into_iter().try_for_each(|row| table.push(row))?;
        table.finish()?;
        write_json(&staging.join(METRICS), metrics)?;
        Ok(())
    })?;
    Ok(Evaluation { after, directory })
}

/// Removes evaluations of weights that were lost; `updated` says whether a round's update is done.
pub(crate) fn drop_orphans(evaluations: &Path, updated: impl Fn(u32) -> bool) -> Result<()> {
    for evaluation in list(evaluations)? {
        if evaluation.after.checked_sub(1).is_some_and(|round| !updated(round)) {
            tracing::info!(
                after = evaluation.after,
                "an evaluation is dropped: the update before it is lost"
            );
            remove_directory(&evaluation.directory)?;
        }
    }
    Ok(())
}
