//! Read access to a run's directory.

use crate::checkpoints::Checkpoints;
use crate::directories::{CHECKSUMS, IntegrityReport, ROUNDS};
use crate::end::RunEnd;
use crate::error::{Error, Result};
use crate::evaluations::{self, Evaluation};
use crate::frozen;
use crate::journal::{DEADLINE, JournalReader, JournalStage, Marker};
use crate::metrics::json_lines;
use crate::outcome::state_after;
use crate::resume::{self, ResumePlan};
use crate::rounds::{self, PublishedRound, directory_name};
use sgs_selfplay::RunState;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) const CONFIG: &str = "config.toml";
/// Name of the file that says where a run's workers come from. A run in one process has none.
pub const FLEET: &str = "fleet.toml";
pub(crate) const JOURNAL: &str = "journal.sqlite";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const EVALUATIONS: &str = "evaluations";
pub(crate) const METRICS: &str = "metrics.jsonl";
pub(crate) const TENSORBOARD: &str = "tensorboard";
pub(crate) const REPORT: &str = "report";
pub(crate) const ENDED: &str = "ended.json";

/// Read access to a run, whether or not a process is working on it.
#[derive(Clone, Debug)]
pub struct RunView {
    path: PathBuf,
}

impl RunView {
    /// Opens the run in the directory `path`.
    ///
    /// # Errors
    /// Returns an error if `path` is not a run's directory.
    pub fn open(path: &Path) -> Result<Self> {
        let config = path.join(CONFIG);
        match fs::metadata(&config) {
            Ok(metadata) if metadata.is_file() => Ok(Self { path: path.to_path_buf() }),
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(Error::io("read", &config)(e))
            }
            _ => Err(Error::NotARun { path: path.to_path_buf() }),
        }
    }

    /// Returns the run's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text of `config.toml`.
    pub fn config_text(&self) -> Result<String> {
        let path = self.path.join(CONFIG);
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    }

    /// Returns the frozen configuration: the caller's keys and the table `frozen` (`version`, `data`).
    pub fn config(&self) -> Result<toml::Table> {
        frozen::read(&self.path.join(CONFIG))
    }

    /// Compares `config.toml` with its checksum. Runs of older programs have none.
    ///
    /// # Errors
    /// Returns an error if they differ or cannot be read.
    pub fn check_config(&self) -> Result<()> {
        match self.path.join(CHECKSUMS).exists() {
            true => frozen::check(&self.path.join(CONFIG)),
            false => Ok(()),
        }
    }

    /// Checks that `fleet.toml` exists if the run has remote workers. Older programs did not record this.
    ///
    /// # Errors
    /// Returns an error that says what to do, or that `config.toml` cannot be read.
    pub fn check_fleet(&self) -> Result<()> {
        let path = self.path.join(FLEET);
        if path.exists() || !frozen::has_fleet(&self.path.join(CONFIG))? {
            return Ok(());
        }
        let advice = "restore it from a copy, or resume with `--workers SPEC` (`--workers embedded`: this process does all \
                      the work)";
        Err(Error::damaged(&path, "it is missing, although the run has other workers", advice))
    }

    /// Returns the record of the run's end, or `None` if the run has not ended.
    pub fn ended(&self) -> Option<RunEnd> {
        serde_json::from_slice(&fs::read(self.path.join(ENDED)).ok()?).ok()
    }

    /// Returns a clause that says why the run ended, or `None` if it has not ended.
    pub fn why_ended(&self) -> Option<String> {
        self.ended()?.describe(&self.config().ok()?)
    }

    /// Returns the published rounds in ascending order.
    pub fn rounds(&self) -> Result<Vec<PublishedRound>> {
        rounds::list(&self.path.join(ROUNDS))
    }

    /// Rebuilds the algorithm's state from the published rounds, which must have been written with
    /// [`write_outcome`](crate::outcome::write_outcome).
    pub fn state(&self) -> Result<RunState> {
        state_after(&self.rounds()?)
    }

    /// Returns a published round.
    ///
    /// # Errors
    /// Returns an error if the round is not published.
    pub fn round(&self, round: u32) -> Result<PublishedRound> {
        PublishedRound::at(&self.round_directory(round))
    }

    /// Returns the path of a round's directory, whether or not it exists.
    pub fn round_directory(&self, round: u32) -> PathBuf {
        self.path.join(ROUNDS).join(directory_name(round))
    }

    /// Returns the run's checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.path.join(CHECKPOINTS))
    }

    /// Returns the run's evaluations in ascending order.
    pub fn evaluations(&self) -> Result<Vec<Evaluation>> {
        evaluations::list(&self.path.join(EVALUATIONS))
    }

    /// Opens the journal for reading.
    pub fn journal(&self) -> Result<JournalReader> {
        JournalReader::open(&self.path.join(JOURNAL), DEADLINE)
    }

    /// Determines the next step of the run. While a process works on the run, the result is a snapshot.
    pub fn plan(&self, first_round: u32) -> Result<ResumePlan> {
        resume::plan(&self.journal()?, &self.checkpoints(), self.rounds()?.len(), first_round)
    }

    /// Checks every file of the run that has a checksum: configuration, rounds, evaluations, checkpoints and journal; and
    /// compares `metrics.jsonl` with them.
    ///
    /// Takes about one second per gigabyte. Checkpoints that another process removes in the meantime are ignored.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be listed. Damage is not an error but part of the report.
    pub fn examine(&self) -> Result<IntegrityReport> {
        let mut examined = IntegrityReport::default();
        let (config, list) = (self.path.join(CONFIG), self.path.join(CHECKSUMS));
        if list.exists() {
            examined.file(&config, self.check_config());
        } else {
            examined.notes.push(format!(
                "{} is missing, as in runs of older programs: edits of {CONFIG} cannot be detected; the next `sgs resume` \
                records its current checksum",
                list.display()
            ));
        }
        let mut add = |directory: &Path, check_number: &dyn Fn() -> Result<()>| {
            let mut found = IntegrityReport::default();
            found.directory(directory);
            if found.damages.is_empty() && found.notes.is_empty() {
                found.found(check_number());
            }
            // Another process may have removed it in the meantime.
            if found.damages.is_empty() || directory.is_dir() {
                examined.files += found.files;
                examined.bytes += found.bytes;
                examined.damages.extend(found.damages);
                examined.notes.extend(found.notes);
            }
        };
        for round in self.rounds()? {
            add(round.directory(), &|| round.metrics().map(drop));
        }
        for evaluation in self.evaluations()? {
            add(evaluation.directory(), &|| evaluation.metrics().map(drop));
        }
        for checkpoint in self.checkpoints().list()? {
            add(&checkpoint.directory, &|| checkpoint.about().map(drop));
        }
        let journal = self.path.join(JOURNAL);
        if journal.exists() {
            examined.file(&journal, self.read_journal());
        }
        // Without its rounds, which are reported above, the file cannot be checked.
        if examined.damages.is_empty() && self.metrics_file().exists() {
            examined.file(&self.metrics_file(), self.check_metrics());
        }
        Ok(examined)
    }

    /// Compares `metrics.jsonl` with the metrics of the rounds and evaluations.
    pub(crate) fn check_metrics(&self) -> Result<()> {
        json_lines::check(&self.metrics_file(), || {
            let (rounds, evaluations) = (self.rounds()?, self.evaluations()?);
            let evaluated = evaluations.iter().map(Evaluation::metrics);
            rounds.iter().map(PublishedRound::metrics).chain(evaluated).collect()
        })
    }

    fn read_journal(&self) -> Result<()> {
        JournalReader::refuse_empty(&self.path.join(JOURNAL), DEADLINE)?;
        let journal = self.journal()?;
        let markers = journal.markers()?;
        for round in journal.rounds_with_records()? {
            journal.for_each_record(round, None, |_| Ok(()))?;
        }
        resume::check_checkpoints(&markers, &self.checkpoints())?;
        self.check_published(&markers)
    }

    /// Returns an error about the first round that is missing although the journal marks it as published, or `None` if
    /// there is no such round or the journal cannot be read.
    pub fn missing_round(&self) -> Option<Error> {
        self.check_published(&self.journal().ok()?.markers().ok()?).err()
    }

    /// Returns whether the run has a published round, or a result in its journal.
    pub fn has_results(&self) -> Result<bool> {
        Ok(!self.rounds()?.is_empty() || !self.journal()?.rounds_with_records()?.is_empty())
    }

    /// Checks that every round that these markers of the journal mark as published has a directory. The markers must
    /// have been read before, because another process may publish a round in the meantime.
    pub(crate) fn check_published(&self, markers: &[Marker]) -> Result<()> {
        let rounds = self.rounds()?;
        let is_there = |number| rounds.iter().any(|round| round.round() == number);
        let mut published = markers.iter().filter(|marker| marker.stage == JournalStage::Published);
        published.find(|marker| !is_there(marker.round)).map_or(Ok(()), |marker| {
            let what = "it is missing, although the journal marks it as published";
            Err(Error::damaged(&self.round_directory(marker.round), what, "restore it from a copy"))
        })
    }

    /// Returns the directory of the report.
    pub fn report_directory(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Returns the directory of the TensorBoard event files.
    pub fn tensorboard_directory(&self) -> PathBuf {
        self.path.join(TENSORBOARD)
    }

    /// Returns the path of `metrics.jsonl`, which has the metrics of all rounds.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join(METRICS)
    }
}
