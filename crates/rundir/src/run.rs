//! Creating a run and working on it.

use crate::checkpoints::{Checkpoint, KeepPolicy, PreparedCheckpoint};
use crate::directories::{CHECKSUMS, KnownSums, ROUNDS, StagedDirectory, remove_directory};
use crate::end::{EndReason, RunEnd};
use crate::error::{CallerError, Error, Result};
use crate::evaluations::{self, Evaluation};
use crate::files::{self, TEMPORARY_PREFIX, ensure_directory};
use crate::frozen::{self, FrozenConfig};
use crate::journal::{Journal, JournalStage, Marker, stage_of};
use crate::lock::RunLock;
use crate::metrics::{JsonLinesSink, LastRecorded, MetricSinks, MetricValues, TensorBoardSink, unix_time};
use crate::new_run::NewRun;
use crate::recovery;
use crate::resume::{self, NextStep, ResumePlan, checkpoint_in_use};
use crate::rounds::{self, PreparedRound, PublishedRound, RoundTables};
use crate::rows::EvaluationRow;
use crate::view::{CHECKPOINTS, CONFIG, ENDED, EVALUATIONS, FLEET, JOURNAL, METRICS, RunView};
use crate::write_point::reached;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
/// Directory of the weights that workers read before their checkpoint is complete.
const WEIGHTS: &str = "weights";

/// Names of the files and directories that an interrupted creation may have left behind.
const OWN_NAMES: [&str; 10] = [
    LOCK,
    FLEET,
    JOURNAL,
    "journal.sqlite-journal",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    ROUNDS,
    CHECKPOINTS,
    EVALUATIONS,
    CHECKSUMS,
];

/// Directories whose entries are published by renaming.
const PARTS: [&str; 3] = [ROUNDS, CHECKPOINTS, EVALUATIONS];

/// A run that this process works on. It holds the run's lock, so that no other process can work on the run.
///
/// The steps of a round are [`start_round`](Self::start_round), appending to the [`journal`](Self::journal),
/// [`finish_sampling`](Self::finish_sampling), [`publish_checkpoint`](Self::publish_checkpoint) or
/// [`skip_update`](Self::skip_update), and [`publish_round`](Self::publish_round). Repeating the step that a round has
/// already completed has no effect.
#[derive(Debug)]
pub struct RunDir {
    view: RunView,
    journal: Journal,
    removed: Vec<PathBuf>,
    // This field is dropped last, because another process may write once the lock is free.
    _lock: RunLock,
}

impl RunDir {
    /// Creates a run in `path`, which must not exist, be empty, or contain only the remains of an interrupted creation.
    /// `fleet` is the content of `fleet.toml`, or `None` if one process does all the work.
    ///
    /// # Errors
    /// Returns an error if the directory has other contents, another process works on it, the configuration is not valid
    /// TOML, or a file cannot be written.
    pub fn create(path: &Path, config: &FrozenConfig, fleet: Option<&str>) -> Result<Self> {
        let (run, mut folder) = Self::create_unbegun(path, config, fleet)?;
        folder.keep();
        Ok(run)
    }

    /// Creates a run as [`create`](Self::create) does. Its folder is removed if a signal ends the process, or the returned
    /// value is dropped, before [`NewRun::keep`] is called.
    ///
    /// # Errors
    /// See [`create`](Self::create). Nothing remains of a folder that this process made.
    pub fn create_unbegun(path: &Path, config: &FrozenConfig, fleet: Option<&str>) -> Result<(Self, NewRun)> {
        let config_path = path.join(CONFIG);
        config.render(&config_path)?;
        let claim = || {
            ensure_directory(path)?;
            refuse_taken(path)?;
            let lock = RunLock::take(&path.join(LOCK), path)?;
            refuse_taken(path)?;
            refuse_begun(path)?;
            Ok(lock)
        };
        let (folder, lock) = NewRun::create(path, claim)?;
        let mut removed = files::remove_unfinished(path)?;
        for part in PARTS {
            ensure_directory(&path.join(part))?;
            removed.extend(files::remove_unfinished(&path.join(part))?);
        }
        let journal = Journal::open(&path.join(JOURNAL))?;
        write_fleet(path, fleet)?;
        reached("run.config", path)?;
        // Write this file last, because a directory with it is a run.
        config.write(&config_path, fleet.is_some())?;
        Ok((Self { view: RunView::open(path)?, journal, removed, _lock: lock }, folder))
    }

    /// Opens a run to continue it. Removes unfinished files and repairs the journal (see `recovery.rs`).
    ///
    /// # Errors
    /// Returns an error if the folder does not hold a run, another process works on it, or part of it is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let view = RunView::open(path)?;
        // These files are written in place. A run may come from an untrusted source, and a link in it could lead to any
        // file of this user.
        for file in [LOCK, JOURNAL, METRICS].map(|name| path.join(name)) {
            if fs::symlink_metadata(&file).is_ok_and(|found| !found.is_file()) {
                return Err(Error::damaged(&file, "it is not a regular file", "remove it"));
            }
        }
        let lock = RunLock::take(&path.join(LOCK), path)?;
        view.config()?;
        frozen::note_sum(&path.join(CONFIG))?;
        frozen::check(&path.join(CONFIG))?;
        view.rounds()?.iter().try_for_each(PublishedRound::check_small)?;
        // Do this only under the lock, because otherwise the unfinished files could belong to a process that is still
        // working.
        let mut removed = files::remove_unfinished(path)?;
        for part in PARTS {
            ensure_directory(&path.join(part))?;
            removed.extend(files::remove_unfinished(&path.join(part))?);
        }
        // All weights in this directory are also in a checkpoint, or were lost with the update that produced them.
        remove_weights(path)?;
        if view.report_directory().is_dir() {
            removed.extend(files::remove_unfinished(&view.report_directory())?);
        }
        let journal_path = path.join(JOURNAL);
        if !journal_path.exists() {
            tracing::warn!(
                "{} is missing: the run continues after its last published round",
                journal_path.display()
            );
        }
        let journal = Journal::open(&journal_path)?;
        recovery::recover(&view, &journal)?;
        // Do this after the recovery, which may have marked an update as complete, so that its evaluation is valid.
        let markers = journal.reader().markers()?;
        evaluations::drop_orphans(&path.join(EVALUATIONS), |round| {
            markers.iter().any(|m| m.round == round && m.stage >= JournalStage::Updated)
        })?;
        Ok(Self { view, journal, removed, _lock: lock })
    }

    /// Compares a configuration with the frozen one.
    ///
    /// # Errors
    /// Returns [`Error::ConfigDiffers`] with the keys that differ.
    pub fn check_config(&self, config: &FrozenConfig) -> Result<()> {
        config.check(&self.view.path().join(CONFIG))
    }

    /// Changes values of the configuration (`a.b` is the key `b` of the table `a`) and records the change.
    ///
    /// # Errors
    /// Returns an error if a key does not exist or the file cannot be written. The configuration is then unchanged.
    #[allow(clippy::expect_used, reason = "rounds are numbered with 32 bits")]
    pub fn change_config(&self, changes: &[(&str, toml::Value)]) -> Result<()> {
        let rounds = u32::try_from(self.view.rounds()?.len()).expect("invariant: at most 2^32 rounds");
        frozen::change(&self.view.path().join(CONFIG), changes, rounds, unix_time())
    }

    /// Replaces `fleet.toml`, or removes it if one process does all the work, and records in `config.toml` whether it
    /// exists. Call it before any other process can depend on the decision, so that a run that is killed continues with the
    /// same kind of workers.
    pub fn record_fleet(&self, text: Option<&str>) -> Result<()> {
        let config = self.view.path().join(CONFIG);
        // A file that is recorded exists, also after a crash between the two.
        match text {
            Some(_) => write_fleet(self.view.path(), text).and_then(|()| frozen::record_fleet(&config, true)),
            None => frozen::record_fleet(&config, false).and_then(|()| write_fleet(self.view.path(), None)),
        }
    }

    /// Returns read access to the run.
    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the unfinished files and directories that opening the run removed.
    pub fn removed(&self) -> &[PathBuf] {
        &self.removed
    }

    /// Determines the next step of the run.
    pub fn plan(&self, first_round: u32) -> Result<ResumePlan> {
        let published = self.view.rounds()?.len();
        resume::plan(self.journal.reader(), &self.view.checkpoints(), published, first_round)
    }

    /// Determines the next step of a round. The round may have started while the previous one was being published.
    pub fn next_step(&self, round: u32) -> Result<NextStep> {
        Ok(resume::next_step(stage_of(&self.journal.reader().markers()?, round)))
    }

    /// Records that the run has ended.
    #[allow(clippy::expect_used, reason = "the record has no maps and no fallible fields")]
    pub fn mark_ended(&self, by: EndReason, rounds: u32) -> Result<()> {
        let ended = RunEnd { by, rounds, unix_time: unix_time() };
        let text = serde_json::to_vec(&ended).expect("invariant: a record is valid JSON");
        files::write_file(&self.view.path().join(ENDED), &text)
    }

    /// Removes the record of the run's end, so that the run can continue.
    pub fn forget_end(&self) -> Result<()> {
        files::remove_file(&self.view.path().join(ENDED))
    }

    /// Marks a round as started.
    ///
    /// # Errors
    /// Returns an error if an earlier round is not sampled yet or the journal fails.
    pub fn start_round(&self, round: u32) -> Result<()> {
        self.advance(round, JournalStage::Started, None, "")
    }

    /// Marks a round as sampled and judged, and waits until all its records are durable.
    ///
    /// # Errors
    /// Returns an error if the round has not started or the journal fails.
    pub fn finish_sampling(&self, round: u32) -> Result<()> {
        self.advance(round, JournalStage::Sampled, None, "")
    }

    /// Removes a round and all later ones from the journal, because their samples cannot be used. The round then starts
    /// again.
    pub fn forget_round(&self, round: u32) -> Result<()> {
        self.journal.forget(round)
    }

    /// Publishes the weights after the round's update. `fill` writes `solver/` and `conjecturer/`.
    ///
    /// # Errors
    /// Returns an error if sampling is not finished, `fill` fails, or a file cannot be written. No part of the checkpoint
    /// remains in that case.
    pub fn publish_checkpoint(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<(), CallerError>,
    ) -> Result<Checkpoint> {
        let checkpoints = self.view.checkpoints();
        if self.check_turn(round, JournalStage::Updated)? {
            let standing = checkpoints.get(round);
            return standing.ok_or_else(|| Error::OutOfTurn {
                round,
                what: "publish a checkpoint: its update was skipped".into(),
            });
        }
        self.publish_prepared_checkpoint(checkpoints.prepare(round, detail, fill)?)
    }

    /// Writes a checkpoint without publishing it, which takes most of the time of
    /// [`publish_checkpoint`](Self::publish_checkpoint). It may be called at any time before the update is published. `fill`
    /// may return checksums that it computed while writing.
    ///
    /// # Errors
    /// Returns an error if the round has a checkpoint, `fill` fails, or a file cannot be written. No part of the checkpoint
    /// remains in that case.
    pub fn prepare_checkpoint<S: Into<KnownSums>>(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<PreparedCheckpoint> {
        self.view.checkpoints().prepare(round, detail, fill)
    }

    /// Publishes the weights of a round's update for workers, before its checkpoint is complete, and removes those of
    /// earlier rounds. They are a second copy, which is removed when the run is opened. Returns their directory.
    pub fn publish_weights<S: Into<KnownSums>>(
        &self,
        round: u32,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<PathBuf> {
        let all = self.view.path().join(WEIGHTS);
        ensure_directory(&all)?;
        for (_, older) in rounds::numbered_directories(&all)? {
            remove_directory(&older)?;
        }
        let directory = all.join(rounds::directory_name(round));
        StagedDirectory::prepare(&directory, fill)?.publish()?;
        Ok(directory)
    }

    /// Removes the weights that [`publish_weights`](Self::publish_weights) has published. Call it when no worker reads them.
    pub fn remove_weights(&self) -> Result<()> {
        remove_weights(self.view.path())
    }

    /// Publishes a prepared checkpoint.
    ///
    /// # Errors
    /// Returns an error if sampling is not finished or a file cannot be written. No part of the checkpoint remains in that
    /// case.
    pub fn publish_prepared_checkpoint(&self, prepared: PreparedCheckpoint) -> Result<Checkpoint> {
        let (round, detail) = (prepared.round(), prepared.detail().to_owned());
        self.check_turn(round, JournalStage::Updated)?;
        // The directory comes before its marker, because recovery accepts a directory without a marker, but a marker
        // without its directory is damage.
        let checkpoint = prepared.publish()?;
        self.mark(round, JournalStage::Updated, Some(round), &detail)?;
        Ok(checkpoint)
    }

    /// Marks the round as updated without an update: the weights remain those of the last checkpoint. `detail` is stored for
    /// the caller, who gets it back on resume.
    ///
    /// # Errors
    /// Returns an error if sampling is not finished or the journal fails.
    pub fn skip_update(&self, round: u32, detail: &str) -> Result<()> {
        let standing = checkpoint_in_use(&self.journal.reader().markers()?);
        self.advance(round, JournalStage::Updated, standing, detail)
    }

    /// Publishes the round's tables and metrics, marks the round as published, and removes its records from the journal.
    ///
    /// # Errors
    /// Returns an error if the update is not done, `fill` fails, or a file cannot be written. No part of the round's directory
    /// remains in that case.
    pub fn publish_round(
        &self,
        metrics: &MetricValues,
        fill: impl FnOnce(&mut RoundTables) -> Result<(), CallerError>,
    ) -> Result<PublishedRound> {
        let round = metrics.round;
        if !self.check_turn(round, JournalStage::Published)? {
            self.publish_prepared_round(self.prepare_round(metrics, fill)?)?;
            self.journal.retire(round)?;
        }
        self.view.round(round)
    }

    /// Writes a round's directory without publishing it, which takes most of the time of
    /// [`publish_round`](Self::publish_round). It may be called at any time before the round is published.
    ///
    /// # Errors
    /// Returns an error if the round is already published, `fill` fails, or a file cannot be written. No part of the directory
    /// remains in that case.
    pub fn prepare_round(
        &self,
        metrics: &MetricValues,
        fill: impl FnOnce(&mut RoundTables) -> Result<(), CallerError>,
    ) -> Result<PreparedRound> {
        rounds::prepare(&self.view.round_directory(metrics.round), metrics, fill)
    }

    /// Publishes a prepared round. The journal removes the round's records in the background, when it is idle.
    ///
    /// # Errors
    /// Returns an error if the update is not done or a file cannot be written. No part of the round's directory remains in
    /// that case.
    pub fn publish_prepared_round(&self, prepared: PreparedRound) -> Result<PublishedRound> {
        let round = prepared.round;
        self.check_turn(round, JournalStage::Published)?;
        // The directory comes before its marker, as with a checkpoint. The records are removed last, because until the
        // round is marked, they are needed to write its directory again.
        prepared.staged.publish()?;
        let checkpoint = checkpoint_in_use(&self.journal.reader().markers()?);
        self.mark(round, JournalStage::Published, checkpoint, "")?;
        self.journal.retire_later(round);
        self.view.round(round)
    }

    /// Returns the checkpoint of the current weights, or `None` for the base model.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let round = checkpoint_in_use(&self.journal.reader().markers()?);
        round.map(|round| resume::existing(&self.view.checkpoints(), round)).transpose()
    }

    /// Removes the checkpoints that the policy does not keep, except the one in use. Returns their rounds.
    pub fn prune_checkpoints(&self, policy: KeepPolicy) -> Result<Vec<u32>> {
        let in_use = checkpoint_in_use(&self.journal.reader().markers()?);
        self.view.checkpoints().prune(policy, in_use.as_slice())
    }

    /// Publishes an evaluation of the weights after `metrics.round` rounds. If a crash loses the last update of these weights,
    /// opening the run removes the evaluation.
    ///
    /// # Errors
    /// Returns an error if there is one already or a file cannot be written. No part of it remains in that case.
    pub fn publish_evaluation(&self, metrics: &MetricValues, rows: Vec<EvaluationRow>) -> Result<Evaluation> {
        evaluations::publish(&self.view.path().join(EVALUATIONS), metrics, rows)
    }

    /// Opens the metric sinks, `metrics.jsonl` and TensorBoard, and records the published rounds and evaluations that they
    /// lack.
    ///
    /// # Errors
    /// Returns an error if the metrics of a published round cannot be read. A sink that fails is not an error: see
    /// [`MetricSinks`].
    pub fn sinks(&self) -> Result<MetricSinks> {
        let path = self.view.metrics_file();
        let lines = self.view.check_metrics().and_then(|()| JsonLinesSink::open(&path));
        let recorded = match &lines {
            Ok(lines) => lines.recorded(),
            // The last round is unknown. Recording all rounds again would duplicate them in TensorBoard.
            Err(_) => LastRecorded { round: Some(u32::MAX), evaluation: Some(u32::MAX) },
        };
        let tensorboard = TensorBoardSink::open(&self.view.tensorboard_directory(), recorded);
        let mut sinks = MetricSinks::new(tensorboard, lines);
        let behind = sinks.behind();
        for round in self.view.rounds()?.iter().filter(|r| behind.is_none_or(|last| r.round() > last)) {
            sinks.record(&round.metrics()?);
        }
        for evaluation in self.view.evaluations()? {
            sinks.record(&evaluation.metrics()?);
        }
        Ok(sinks)
    }

    fn advance(&self, round: u32, stage: JournalStage, checkpoint: Option<u32>, detail: &str) -> Result<()> {
        if self.check_turn(round, stage)? { Ok(()) } else { self.mark(round, stage, checkpoint, detail) }
    }

    fn mark(&self, round: u32, stage: JournalStage, checkpoint: Option<u32>, detail: &str) -> Result<()> {
        self.journal.mark(Marker::now(round, stage, checkpoint, detail))
    }

    /// Returns whether the round has already reached the stage.
    ///
    /// A round may start once the previous one is sampled. If the weights that it samples with are lost in a crash,
    /// opening the run removes its samples. Its update may only be published after the previous round is.
    ///
    /// # Errors
    /// Returns [`Error::OutOfTurn`] if the round cannot enter the stage yet.
    fn check_turn(&self, round: u32, stage: JournalStage) -> Result<bool> {
        let markers = self.journal.reader().markers()?;
        let reached = |round| stage_of(&markers, round);
        let own = reached(round);
        if own.is_some_and(|own| own >= stage) {
            return Ok(true);
        }
        let last = markers.last().map(|m| (m.round, m.stage));
        let before = round.checked_sub(1).and_then(reached);
        let in_turn = match stage {
            JournalStage::Started => {
                // At most two rounds are in progress: one that is being published, and the next one.
                let before_last = last.and_then(|(last, _)| last.checked_sub(1)).and_then(reached);
                last.is_none_or(|(last, reached)| round == last + 1 && reached >= JournalStage::Sampled)
                    && before_last.is_none_or(|reached| reached == JournalStage::Published)
            }
            JournalStage::Sampled => own == Some(JournalStage::Started),
            JournalStage::Updated => {
                own == Some(JournalStage::Sampled)
                    && before.is_none_or(|before| before == JournalStage::Published)
            }
            JournalStage::Published => own == Some(JournalStage::Updated),
        };
        if in_turn {
            return Ok(false);
        }
        let standing =
            last.map_or("no round has begun".into(), |(r, s)| format!("round {r} is {}", s.as_str()));
        Err(Error::OutOfTurn { round, what: format!("be {} now: {standing}", stage.as_str()) })
    }
}

fn remove_weights(run: &Path) -> Result<()> {
    let weights = run.join(WEIGHTS);
    match fs::remove_dir_all(&weights) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &weights)(error)),
        _ => Ok(()),
    }
}

fn write_fleet(run: &Path, text: Option<&str>) -> Result<()> {
    let path = run.join(FLEET);
    match text {
        Some(text) => files::write_file(&path, text.as_bytes()),
        None => files::remove_file(&path),
    }
}

/// Returns an error if a directory contains a run, or anything that an interrupted creation does not leave behind.
fn refuse_taken(path: &Path) -> Result<()> {
    let taken = |what: String| Error::Taken { path: path.to_path_buf(), what };
    if path.join(CONFIG).exists() {
        return Err(taken(format!("a run; to continue it: `sgs resume {}`; for a new run", path.display())));
    }
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let name = entry.map_err(Error::io("list", path))?.file_name();
        let name = name.to_string_lossy();
        // Without a lock, no interrupted creation wrote `fleet.toml`, so it belongs to the user.
        let is_own = OWN_NAMES.contains(&&*name) && (name != FLEET || path.join(LOCK).exists());
        if !is_own && !name.starts_with(TEMPORARY_PREFIX) {
            return Err(taken(format!("other files, such as `{name}`")));
        }
    }
    Ok(())
}

/// Returns an error if a directory contains the remains of a run whose `config.toml` is missing, because a new run
/// would adopt its rounds. Removes a journal without markers.
fn refuse_begun(path: &Path) -> Result<()> {
    let what = |of: &str| Error::Taken {
        path: path.to_path_buf(),
        what: format!(
            "{of} of a run whose {CONFIG} is missing; to continue that run, restore the file from a copy"
        ),
    };
    for part in PARTS {
        let directory = path.join(part);
        let mut entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.map_err(Error::io("list", &directory))?,
        };
        let is_unfinished =
            |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX);
        if entries.any(|entry| !entry.is_ok_and(is_unfinished)) {
            return Err(what(part));
        }
    }
    if Journal::remove_unused(&path.join(JOURNAL))? { Ok(()) } else { Err(what("the journal")) }
}
