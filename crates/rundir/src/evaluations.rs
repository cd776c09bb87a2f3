//! The evaluations of a run: the Solver's results on held-out problems after a number of rounds.

use crate::directories::{check_file, publish_directory, read_listed, remove_directory};
use crate::error::Result;
use crate::metrics::MetricValues;
use crate::rounds::{check_number, directory_name, numbered_directories, parse_json, write_json};
use crate::rows::EvaluationRow;
use crate::table::{RowReader, RowWriter};
use std::path::{Path, PathBuf};

const PROBLEMS: &str = "problems.parquet";
const METRICS: &str = "metrics.json";

/// A published evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Number of rounds in which the weights were trained; 0 is the base model.
    pub after: u32,
    directory: PathBuf,
}

impl Evaluation {
    /// Returns the evaluation's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the metrics. Their `round` is the number of rounds before the evaluation.
    ///
    /// # Errors
    /// Returns an error if the file is missing, altered or that of another evaluation.
    pub fn metrics(&self) -> Result<MetricValues> {
        let metrics: MetricValues =
            parse_json(&self.directory.join(METRICS), &read_listed(&self.directory, METRICS)?)?;
        check_number(&self.directory, self.after, metrics.round)?;
        Ok(metrics)
    }

    /// Reads the problems and their results.
    pub fn problems(&self) -> Result<RowReader<EvaluationRow>> {
        check_file(&self.directory, PROBLEMS)?;
        RowReader::open(&self.directory.join(PROBLEMS))
    }
}

/// Lists the evaluations in a directory, in ascending order. Returns none if the directory does not exist.
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

/// Removes evaluations of lost weights. `updated` returns whether a round's update is complete.
pub(crate) fn drop_orphans(evaluations: &Path, updated: impl Fn(u32) -> bool) -> Result<()> {
    for evaluation in list(evaluations)? {
        if evaluation.after.checked_sub(1).is_some_and(|round| !updated(round)) {
            tracing::info!(after = evaluation.after, "removing an evaluation: the update before it is lost");
            remove_directory(&evaluation.directory)?;
        }
    }
    Ok(())
}
