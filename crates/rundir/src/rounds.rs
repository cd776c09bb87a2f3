//! Published rounds: their tables and metrics.

use crate::directories::{
    CHECKSUMS, StagedDirectory, check_directory, check_file, listed_checksums, read_listed,
};
use crate::error::{CallerError, Error, Result};
use crate::files;
use crate::metrics::MetricValues;
use crate::rows::{ConjectureRow, ExampleRow, ProblemRow, ReviewRow, RolloutRow};
use crate::table::{RowReader, RowWriter, TableRow};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};

const PROBLEMS: &str = "problems.parquet";
const CONJECTURES: &str = "conjectures.parquet";
const ROLLOUTS: &str = "rollouts.parquet";
const REVIEWS: &str = "reviews.parquet";
const EXAMPLES: &str = "examples.parquet";
const METRICS: &str = "metrics.json";

/// The tables of a round while they are being written.
pub struct RoundTables {
    directory: PathBuf,
    /// Sampled targets and accepted conjectures.
    pub problems: RowWriter<ProblemRow>,
    /// Requested conjectures.
    pub conjectures: RowWriter<ConjectureRow>,
    /// Solver completions.
    pub rollouts: RowWriter<RolloutRow>,
    /// Guide completions.
    pub reviews: RowWriter<ReviewRow>,
    /// Training examples of the updates.
    pub examples: RowWriter<ExampleRow>,
}

impl RoundTables {
    fn create(directory: &Path) -> Result<Self> {
        Ok(Self {
            directory: directory.to_path_buf(),
            problems: RowWriter::create(&directory.join(PROBLEMS))?,
            conjectures: RowWriter::create(&directory.join(CONJECTURES))?,
            rollouts: RowWriter::create(&directory.join(ROLLOUTS))?,
            reviews: RowWriter::create(&directory.join(REVIEWS))?,
            examples: RowWriter::create(&directory.join(EXAMPLES))?,
        })
    }

    /// Adds a JSON file to the round's directory.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        write_json(&self.directory.join(name), value)
    }

    fn finish(self) -> Result<()> {
        self.problems.finish()?;
        self.conjectures.finish()?;
        self.rollouts.finish()?;
        self.reviews.finish()?;
        self.examples.finish()?;
        Ok(())
    }
}

/// A round's directory that is complete and durable, but not published. Dropping it removes the directory.
#[derive(Debug)]
pub struct PreparedRound {
    pub(crate) round: u32,
    pub(crate) staged: StagedDirectory,
}

/// Writes a round's directory without publishing it: the tables, which `fill` writes, and the metrics.
pub(crate) fn prepare(
    directory: &Path,
    metrics: &MetricValues,
    fill: impl FnOnce(&mut RoundTables) -> Result<(), CallerError>,
) -> Result<PreparedRound> {
    let staged = StagedDirectory::prepare(directory, |staging| {
        let mut tables = RoundTables::create(staging)?;
        fill(&mut tables)?;
        tables.finish()?;
        write_json(&staging.join(METRICS), metrics)?;
        Ok(())
    })?;
    Ok(PreparedRound { round: metrics.round, staged })
}

/// A published round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedRound {
    round: u32,
    directory: PathBuf,
}

impl PublishedRound {
    /// Opens the directory of a published round.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist or is not named like a round.
    pub fn at(directory: &Path) -> Result<Self> {
        match numbered(directory) {
            Some(round) if directory.is_dir() => Ok(Self { round, directory: directory.to_path_buf() }),
            Some(_) => Err(Error::damaged(
                directory,
                "this round is not published",
                "wait until it is, or restore it",
            )),
            None => {
                let what = "it is not a round's folder, such as RUN/rounds/0007";
                Err(Error::damaged(directory, what, "restore it from a copy"))
            }
        }
    }

    /// Returns the round's number.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the round's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks every file against its checksum, and that they are those of this round.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] with the first file that does not match.
    pub fn check(&self) -> Result<()> {
        check_directory(&self.directory)?;
        self.metrics().map(drop)
    }

    /// Checks the list of checksums and the JSON files, which are small and needed by later rounds.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] with the first file that is missing or altered.
    pub fn check_small(&self) -> Result<()> {
        let listed = listed_checksums(&self.directory)?;
        let is_listed = |name: &&str| listed.iter().any(|(listed, _)| listed == name);
        if let Some(lost) =
            [PROBLEMS, CONJECTURES, ROLLOUTS, REVIEWS, EXAMPLES, METRICS].iter().find(|n| !is_listed(n))
        {
            let what = format!("{CHECKSUMS} does not name {lost}: the list has lost a line");
            return Err(Error::damaged(&self.directory, what, "restore the list from a copy"));
        }
        let mut json = listed.iter().filter(|(name, _)| name.ends_with(".json"));
        json.try_for_each(|(name, _)| read_listed(&self.directory, name).map(drop))?;
        self.metrics().map(drop)
    }

    /// Returns the metrics of the round.
    ///
    /// # Errors
    /// Returns an error if the file is missing, altered or that of another round.
    pub fn metrics(&self) -> Result<MetricValues> {
        let metrics: MetricValues = self.read_json(METRICS)?;
        check_number(&self.directory, self.round, metrics.round)?;
        Ok(metrics)
    }

    /// Reads a JSON file of the round's directory after checking its checksum.
    ///
    /// # Errors
    /// Returns an error if the file is missing, altered or of another type.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        parse_json(&self.directory.join(name), &read_listed(&self.directory, name)?)
    }

    /// Reads the sampled targets and accepted conjectures.
    pub fn problems(&self) -> Result<RowReader<ProblemRow>> {
        self.table(PROBLEMS)
    }

    /// Reads the requested conjectures.
    pub fn conjectures(&self) -> Result<RowReader<ConjectureRow>> {
        self.table(CONJECTURES)
    }

    /// Reads the Solver's completions.
    pub fn rollouts(&self) -> Result<RowReader<RolloutRow>> {
        self.table(ROLLOUTS)
    }

    /// Reads the Guide's completions.
    pub fn reviews(&self) -> Result<RowReader<ReviewRow>> {
        self.table(REVIEWS)
    }

    /// Reads the training examples of the updates.
    pub fn examples(&self) -> Result<RowReader<ExampleRow>> {
        self.table(EXAMPLES)
    }

    fn table<R: TableRow>(&self, name: &str) -> Result<RowReader<R>> {
        check_file(&self.directory, name)?;
        RowReader::open(&self.directory.join(name))
    }
}

/// Lists the rounds in a directory, in ascending order.
pub(crate) fn list(rounds: &Path) -> Result<Vec<PublishedRound>> {
    Ok(numbered_directories(rounds)?
        .into_iter()
        .map(|(round, directory)| PublishedRound { round, directory })
        .collect())
}

/// Returns the directory name of a round, checkpoint or evaluation.
pub fn directory_name(round: u32) -> String {
    format!("{round:04}")
}

fn numbered(directory: &Path) -> Option<u32> {
    let name = directory.file_name()?.to_str()?;
    let round = name.parse().ok()?;
    (directory_name(round) == name).then_some(round)
}

/// Lists the directories in `parent` that are named like rounds, in ascending order. Returns none if `parent` does not exist.
pub(crate) fn numbered_directories(parent: &Path) -> Result<Vec<(u32, PathBuf)>> {
    if !parent.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let path = entry.map_err(Error::io("list", parent))?.path();
        if let Some(round) = numbered(&path).filter(|_| path.is_dir()) {
            found.push((round, path));
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| Error::Table {
        path: path.to_path_buf(),
        row: None,
        what: error.to_string(),
    })?;
    text.push(b'\n');
    files::write_file(path, &text)
}

/// Returns an error if the content of a directory says that it belongs to another round than its name, because intact
/// directories may have been exchanged.
pub(crate) fn check_number(directory: &Path, name: u32, content: u32) -> Result<()> {
    if name == content {
        return Ok(());
    }
    let what = format!("its files are those of round {content}");
    Err(Error::damaged(directory, what, "rename it, or restore it from a copy"))
}

pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::damaged(path, error.to_string(), "restore it from a copy"))
}
