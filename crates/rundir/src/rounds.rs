//! The published rounds of a run.

use crate::directories::{CHECKSUMS, StagedDirectory, check_directory, listed_checksums, read_listed};
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
    /// Targets that were sampled and conjectures that were accepted.
    pub problems: RowWriter<ProblemRow>,
    /// Conjectures that were asked for.
    pub conjectures: RowWriter<ConjectureRow>,
    /// Completions of the Solver.
    pub rollouts: RowWriter<RolloutRow>,
    /// Completions of the Guide.
    pub reviews: RowWriter<ReviewRow>,
    /// What the updates were made on.
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

    /// Adds a JSON file to the round's directory, such as what the round adds to the run's state.
    ///
    /// # Errors
    /// The value cannot be JSON, or the file system refuses.
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

/// A round's directory that is whole on the disk and lacks nothing but its name. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct PreparedRound {
    pub(crate) round: u32,
    pub(crate) staged: StagedDirectory,
}

/// Prepares a round's directory: its tables as `fill` writes them, and its metrics.
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
    /// Opens the directory of a published round, wherever it lies.
    ///
    /// # Errors
    /// The directory is not named like a round or does not exist.
    pub fn at(directory: &Path) -> Result<Self> {
        match numbered(directory) {
            Some(round) if directory.is_dir() => Ok(Self { round, directory: directory.to_path_buf() }),
            _ => {
                let what = "it is no directory of a round, such as RUN/rounds/0007".into();
                Err(Error::NotARun { path: directory.to_path_buf(), what })
            }
        }
    }

    /// Its number.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks every file against its checksum.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the first file that does not fit.
    pub fn check(&self) -> Result<()> {
        check_directory(&self.directory)
    }

    /// Checks what later rounds build on and what is small: the list of checksums, and the JSON files against it.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the first that is missing or altered.
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
        json.try_for_each(|(name, _)| read_listed(&self.directory, name).map(drop))
    }

    /// The metrics of the round.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub fn metrics(&self) -> Result<MetricValues> {
        self.read_json(METRICS)
    }

    /// A JSON file of the round's directory, as it was published.
    ///
    /// # Errors
    /// The file is missing, altered or does not hold the type.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        parse_json(&self.directory.join(name), &read_listed(&self.directory, name)?)
    }

    /// Targets that were sampled and conjectures that were accepted.
    ///
    /// # Errors
    /// The table is missing or damaged; so for the other tables.
    pub fn problems(&self) -> Result<RowReader<ProblemRow>> {
        self.table(PROBLEMS)
    }

    /// Conjectures that were asked for.
    ///
    /// # Errors
    /// The table is missing or damaged.
    pub fn conjectures(&self) -> Result<RowReader<ConjectureRow>> {
        self.table(CONJECTURES)
    }

    /// Completions of the Solver.
    ///
    /// # Errors
    /// The table is missing or damaged.
    pub fn rollouts(&self) -> Result<RowReader<RolloutRow>> {
        self.table(ROLLOUTS)
    }

    /// Completions of the Guide.
    ///
    /// # Errors
    /// The table is missing or damaged.
    pub fn reviews(&self) -> Result<RowReader<ReviewRow>> {
        self.table(REVIEWS)
    }

    /// What the updates were made on.
    ///
    /// # Errors
    /// The table is missing or damaged.
    pub fn examples(&self) -> Result<RowReader<ExampleRow>> {
        self.table(EXAMPLES)
    }

    fn table<R: TableRow>(&self, name: &str) -> Result<RowReader<R>> {
        RowReader::open(&self.directory.join(name))
    }
}

/// The rounds that a directory holds, ascending.
pub(crate) fn list(rounds: &Path) -> Result<Vec<PublishedRound>> {
    Ok(numbered_directories(rounds)?
        .into_iter()
        .map(|(round, directory)| PublishedRound { round, directory })
        .collect())
}

/// The name of the directory of a round or checkpoint.
pub fn directory_name(round: u32) -> String {
    format!("{round:04}")
}

fn numbered(directory: &Path) -> Option<u32> {
    let name = directory.file_name()?.to_str()?;
    let round = name.parse().ok()?;
    (directory_name(round) == name).then_some(round)
}

/// The directories in `parent` that are named like rounds, ascending; none if `parent` does not exist.
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

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    parse_json(path, &fs::read(path).map_err(Error::io("read", path))?)
}

pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::damaged(path, error.to_string(), "restore it from a copy"))
}
