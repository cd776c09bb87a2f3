//! A run's directory.

use crate::checkpoints::{Checkpoint, Checkpoints, KeepPolicy, PreparedCheckpoint};
use crate::directories::{CHECKSUMS, Examined, KnownSums};
use crate::error::{CallerError, Error, Result};
use crate::evaluations::{self, Evaluation};
use crate::files::{self, TEMPORARY_PREFIX, ensure_directory};
use crate::frozen::{self, FrozenConfig};
use crate::journal::{Journal, JournalLimits, JournalReader, Marker, OnDurable, Stage};
use crate::lock::RunLock;
use crate::metrics::{JsonLinesSink, MetricSinks, MetricValues, TensorBoardSink, unix_time};
use crate::outcome::state_after;
use crate::resume::{self, NextStep, ResumePlan, checkpoint_in_use};
use crate::rounds::{self, PreparedRound, PublishedRound, RoundTables, directory_name};
use crate::rows::EvaluationRow;
use crate::write_point::reached;
use sgs_selfplay::RunState;
use std::fs;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.toml";
const LOCK: &str = "lock";
const JOURNAL: &str = "journal.sqlite";
const ROUNDS: &str = "rounds";
const CHECKPOINTS: &str = "checkpoints";
const EVALUATIONS: &str = "evaluations";
const METRICS: &str = "metrics.jsonl";
const TENSORBOARD: &str = "tensorboard";
const REPORT: &str = "report";

/// What an interrupted creation may have left.
const OWN_NAMES: [&str; 9] = [
    LOCK,
    JOURNAL,
    "journal.sqlite-journal",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    ROUNDS,
    CHECKPOINTS,
    EVALUATIONS,
    CHECKSUMS,
];

/// The directories whose entries appear whole.
const PARTS: [&str; 3] = [ROUNDS, CHECKPOINTS, EVALUATIONS];

/// A run for reading, whether or not a process is working on it.
#[derive(Clone, Debug)]
pub struct RunView {
    path: PathBuf,
}

impl RunView {
    /// Looks at the run in `path`.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> Result<Self> {
        let not_a_run = |what: &str| Error::NotARun { path: path.to_path_buf(), what: what.into() };
        if !path.is_dir() {
            return Err(not_a_run("there is no such directory"));
        }
        if !path.join(CONFIG).is_file() {
            return Err(not_a_run("it has no config.toml; give the directory that `sgs run` made"));
        }
        Ok(Self { path: path.to_path_buf() })
    }

    /// The run's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of `config.toml`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn config_text(&self) -> Result<String> {
        let path = self.path.join(CONFIG);
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    }

    /// The frozen configuration, with the table `frozen` (`version`, `data`) beside the caller's own keys.
    ///
    /// # Errors
    /// The file cannot be read or is not TOML.
    pub fn config(&self) -> Result<toml::Table> {
        frozen::read(&self.path.join(CONFIG))
    }

    /// The published rounds, ascending.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn rounds(&self) -> Result<Vec<PublishedRound>> {
        rounds::list(&self.path.join(ROUNDS))
    }

    /// What the algorithm remembers of the published rounds, which must have been written with
    /// [`write_outcome`](crate::outcome::write_outcome).
    ///
    /// # Errors
    /// A round or its `outcome.json` is missing or damaged.
    pub fn state(&self) -> Result<RunState> {
        state_after(&self.rounds()?)
    }

    /// A published round.
    ///
    /// # Errors
    /// It is not published.
    pub fn round(&self, round: u32) -> Result<PublishedRound> {
        PublishedRound::at(&self.round_directory(round))
    }

    /// Where a round's directory is, or will be.
    pub fn round_directory(&self, round: u32) -> PathBuf {
        self.path.join(ROUNDS).join(directory_name(round))
    }

    /// The run's checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.path.join(CHECKPOINTS))
    }

    /// The run's evaluations, ascending.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn evaluations(&self) -> Result<Vec<Evaluation>> {
        evaluations::list(&self.path.join(EVALUATIONS))
    }

    /// The journal, for reading.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub fn journal(&self) -> Result<JournalReader> {
        JournalReader::open(&self.path.join(JOURNAL), JournalLimits::default().deadline)
    }

    /// Where the run stands. While a process works on it, that is a moment's picture.
    ///
    /// # Errors
    /// The journal is missing or damaged, or the checkpoint to load is.
    pub fn plan(&self, first_round: u32) -> Result<ResumePlan> {
        resume::plan(&self.journal()?, &self.checkpoints(), self.rounds()?.len(), first_round)
    }

    /// Reads everything that the run has on the disk and that has a checksum: configuration, rounds, evaluations, checkpoints, journal.
    /// Takes about a second for each gigabyte. What a process at work removes meanwhile is passed over.
    ///
    /// # Errors
    /// A directory cannot be listed. What is damaged is no error but what was asked for.
    pub fn examine(&self) -> Result<Examined> {
        let mut examined = Examined::default();
        let (config, list) = (self.path.join(CONFIG), self.path.join(CHECKSUMS));
        if list.exists() {
            examined.file(&config, frozen::check(&config));
        } else {
            examined.notes.push(format!(
                "{} is missing, as it is in runs of older programs: whether {CONFIG} was edited is not known; the next \
                 `sgs resume` notes its checksum as it is then",
                list.display()
            ));
        }
        for round in self.rounds()? {
            examined.directory(round.directory());
        }
        for evaluation in self.evaluations()? {
            examined.directory(evaluation.directory());
        }
        for checkpoint in self.checkpoints().list()? {
            let mut found = Examined::default();
            found.directory(&checkpoint.directory);
            if found.damages.is_empty() || checkpoint.directory.is_dir() {
                examined.files += found.files;
                examined.bytes += found.bytes;
                examined.damages.extend(found.damages);
            }
        }
        let journal = self.path.join(JOURNAL);
        if journal.exists() {
            examined.file(&journal, self.read_journal());
        }
        Ok(examined)
    }

    fn read_journal(&self) -> Result<()> {
        Journal::refuse_empty(&self.path.join(JOURNAL))?;
        let journal = self.journal()?;
        journal.markers()?;
        for round in journal.rounds_with_records()? {
            journal.for_each_record(round, None, |_| Ok(()))?;
        }
        Ok(())
    }

    /// The directory of the report.
    pub fn report_directory(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// The directory of the TensorBoard event files.
    pub fn tensorboard_directory(&self) -> PathBuf {
        self.path.join(TENSORBOARD)
    }

    /// The file with all rounds' metrics.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join(METRICS)
    }
}

/// How a run is opened for work.
#[derive(Default)]
pub struct RunOptions {
    /// Bounds of the journal.
    pub journal: JournalLimits,
    /// Called by the journal's writer after each commit.
    pub on_durable: Option<OnDurable>,
}

/// A run that this process works on; no other process can at the same time.
///
/// A round goes through [`start_round`](Self::start_round), appends to the [`journal`](Self::journal),
/// [`finish_sampling`](Self::finish_sampling), [`publish_checkpoint`](Self::publish_checkpoint) or
/// [`skip_update`](Self::skip_update), and [`publish_round`](Self::publish_round). Each of these may be called again for
/// the stage that the round is in already: what stands is not done twice.
#[derive(Debug)]
pub struct RunDir {
    view: RunView,
    journal: Journal,
    removed: Vec<PathBuf>,
    // Dropped last: nothing is written any more once another process can take the run.
    _lock: RunLock,
}

impl RunDir {
    /// Begins a run in `path`, which must not exist, be empty, or hold nothing but an interrupted beginning.
    ///
    /// # Errors
    /// The place is taken, another process is working on it, the configuration is not TOML, or the file system refuses.
    pub fn create(path: &Path, config: &FrozenConfig, options: RunOptions) -> Result<Self> {
        let config_path = path.join(CONFIG);
        config.render(&config_path)?;
        if path.exists() && !path.is_dir() {
            return Err(Error::Taken { path: path.to_path_buf(), what: "a file".into() });
        }
        ensure_directory(path)?;
        refuse_taken(path)?;
        let lock = RunLock::take(&path.join(LOCK), path)?;
        refuse_taken(path)?;
        let mut removed = files::remove_unfinished(path)?;
        for part in PARTS {
            ensure_directory(&path.join(part))?;
            removed.extend(files::remove_unfinished(&path.join(part))?);
        }
        refuse_begun(path)?;
        let journal = Journal::open(&path.join(JOURNAL), options.journal, options.on_durable)?;
        reached("run.config", path)?;
        // Last, because this file makes the directory a run.
        config.write(&config_path)?;
        Ok(Self { view: RunView::open(path)?, journal, removed, _lock: lock })
    }

    /// Opens a run to go on with it: removes what was left unfinished and brings the journal up to what is published.
    ///
    /// # Errors
    /// There is no run, another process works on it, or something in it is damaged.
    pub fn open(path: &Path, options: RunOptions) -> Result<Self> {
        let view = RunView::open(path)?;
        let lock = RunLock::take(&path.join(LOCK), path)?;
        view.config()?;
        frozen::note_sum(&path.join(CONFIG))?;
        frozen::check(&path.join(CONFIG))?;
        view.rounds()?.iter().try_for_each(PublishedRound::check_small)?;
        // Under the lock: what another process has not finished is not left over.
        let mut removed = files::remove_unfinished(path)?;
        for part in PARTS {
            ensure_directory(&path.join(part))?;
            removed.extend(files::remove_unfinished(&path.join(part))?);
        }
        if view.report_directory().is_dir() {
            removed.extend(files::remove_unfinished(&view.report_directory())?);
        }
        let journal_path = path.join(JOURNAL);
        if !journal_path.exists() {
            tracing::warn!(
                "{} is missing: the run goes on after its last published round",
                journal_path.display()
            );
        }
        let journal = Journal::open(&journal_path, options.journal, options.on_durable)?;
        resume::recover(&view, &journal)?;
        // After it: an update may have its marker only now, and with it the evaluation of its weights counts.
        let markers = journal.reader().markers()?;
        evaluations::drop_orphans(&path.join(EVALUATIONS), |round| {
            markers.iter().any(|m| m.round == round && m.stage >= Stage::Updated)
        })?;
        Ok(Self { view, journal, removed, _lock: lock })
    }

    /// Refuses a configuration that differs from the frozen one.
    ///
    /// # Errors
    /// [`Error::ConfigDiffers`] names the keys.
    pub fn check_config(&self, config: &FrozenConfig) -> Result<()> {
        config.check(&self.view.path.join(CONFIG))
    }

    /// Gives keys of the configuration (`a.b`: `b` of the table `a`) other values, and records that beside them.
    ///
    /// # Errors
    /// There is no such key, or the file system refuses; then nothing is changed.
    pub fn change_config(&self, changes: &[(&str, toml::Value)]) -> Result<()> {
        let rounds = u32::try_from(self.view.rounds()?.len()).unwrap_or(u32::MAX);
        frozen::change(&self.view.path.join(CONFIG), changes, rounds, unix_time())
    }

    /// The run for reading.
    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Unfinished files and directories that were removed on opening.
    pub fn removed(&self) -> &[PathBuf] {
        &self.removed
    }

    /// Where the run stands.
    ///
    /// # Errors
    /// The checkpoint to load is damaged or missing, or the journal is damaged.
    pub fn plan(&self, first_round: u32) -> Result<ResumePlan> {
        let published = self.view.rounds()?.len();
        resume::plan(self.journal.reader(), &self.view.checkpoints(), published, first_round)
    }

    /// What is to be done next in a round, which may have begun while the one before it was being published.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn next_step(&self, round: u32) -> Result<NextStep> {
        let markers = self.journal.reader().markers()?;
        Ok(resume::next_step(markers.iter().filter(|m| m.round == round).map(|m| m.stage).max()))
    }

    /// Marks the beginning of a round; `detail` is the caller's, for its own resume.
    ///
    /// # Errors
    /// An earlier round is not sampled yet, or the journal fails.
    pub fn start_round(&self, round: u32, detail: &str) -> Result<()> {
        self.advance(round, Stage::Started, None, detail)
    }

    /// Marks that everything of the round is sampled and judged, and waits until all records are on the disk.
    ///
    /// # Errors
    /// The round has not started or the journal fails.
    pub fn finish_sampling(&self, round: u32, detail: &str) -> Result<()> {
        self.advance(round, Stage::Sampled, None, detail)
    }

    /// Drops everything that the journal holds of a round, and of those after it: what was sampled cannot be used. The
    /// round then begins anew.
    ///
    /// # Errors
    /// The journal fails.
    pub fn forget_round(&self, round: u32) -> Result<()> {
        self.journal.forget(round)
    }

    /// Publishes the weights after the round's update: `fill` writes `solver/` and `conjecturer/`.
    ///
    /// # Errors
    /// Sampling is not finished, `fill` failed, or the file system refuses; no part of the checkpoint remains then.
    pub fn publish_checkpoint(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<(), CallerError>,
    ) -> Result<Checkpoint> {
        let checkpoints = self.view.checkpoints();
        if self.check_turn(round, Stage::Updated)? {
            let standing = checkpoints.get(round);
            return standing.ok_or_else(|| Error::OutOfTurn {
                round,
                what: "publish a checkpoint: its update was skipped".into(),
            });
        }
        self.publish_prepared_checkpoint(checkpoints.prepare(round, detail, fill)?)
    }

    /// Everything of [`publish_checkpoint`](Self::publish_checkpoint) that takes long, at any time before it: `fill`
    /// writes a checkpoint that does not show yet, and may give sums of its files that it knows.
    ///
    /// # Errors
    /// There is one already, `fill` failed, or the file system refused; nothing remains then.
    pub fn prepare_checkpoint<S: Into<KnownSums>>(
        &self,
        round: u32,
        detail: &str,
        fill: impl FnOnce(&Path) -> Result<S, CallerError>,
    ) -> Result<PreparedCheckpoint> {
        self.view.checkpoints().prepare(round, detail, fill)
    }

    /// Publishes a prepared checkpoint.
    ///
    /// # Errors
    /// Sampling is not finished, or the file system refused; no part of the checkpoint remains then.
    pub fn publish_prepared_checkpoint(&self, prepared: PreparedCheckpoint) -> Result<Checkpoint> {
        let (round, detail) = (prepared.round(), prepared.detail().to_owned());
        self.check_turn(round, Stage::Updated)?;
        // The folder before its marker: one without marker counts when the run is opened, a marker without folder is damage.
        let checkpoint = prepared.publish()?;
        self.mark(round, Stage::Updated, Some(round), &detail)?;
        Ok(checkpoint)
    }

    /// Marks that the round has no update: the weights stay those of the last checkpoint.
    ///
    /// # Errors
    /// Sampling is not finished, or the journal fails.
    pub fn skip_update(&self, round: u32, detail: &str) -> Result<()> {
        let standing = checkpoint_in_use(&self.journal.reader().markers()?);
        self.advance(round, Stage::Updated, standing, detail)
    }

    /// Publishes the round's tables and metrics, marks the round as over, and removes its records from the journal.
    ///
    /// # Errors
    /// The update is not done, `fill` failed, or the file system refuses; no part of the round's directory remains then.
    pub fn publish_round(
        &self,
        metrics: &MetricValues,
        fill: impl FnOnce(&mut RoundTables) -> Result<(), CallerError>,
    ) -> Result<PublishedRound> {
        let round = metrics.round;
        if !self.check_turn(round, Stage::Published)? {
            self.publish_prepared_round(self.prepare_round(metrics, fill)?)?;
            self.journal.retire(round)?;
        }
        self.view.round(round)
    }

    /// Everything of [`publish_round`](Self::publish_round) that takes long, at any time before it: the directory does
    /// not show yet.
    ///
    /// # Errors
    /// There is one already, `fill` failed, or the file system refused; nothing remains then.
    pub fn prepare_round(
        &self,
        metrics: &MetricValues,
        fill: impl FnOnce(&mut RoundTables) -> Result<(), CallerError>,
    ) -> Result<PreparedRound> {
        rounds::prepare(&self.view.round_directory(metrics.round), metrics, fill)
    }

    /// Publishes a prepared round. Its records leave the journal while nothing else is written there.
    ///
    /// # Errors
    /// The update is not done, or the file system refused; no part of the round's directory remains then.
    pub fn publish_prepared_round(&self, prepared: PreparedRound) -> Result<PublishedRound> {
        let round = prepared.round;
        self.check_turn(round, Stage::Published)?;
        // The folder before its marker, as with a checkpoint; the records last: until the round is marked they are what it
        // would be made of again.
        prepared.staged.publish()?;
        let checkpoint = checkpoint_in_use(&self.journal.reader().markers()?);
        self.mark(round, Stage::Published, checkpoint, "")?;
        self.journal.retire_later(round);
        self.view.round(round)
    }

    /// The checkpoint whose weights the run has now; `None` is the base model.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let round = checkpoint_in_use(&self.journal.reader().markers()?);
        Ok(round.and_then(|round| self.view.checkpoints().get(round)))
    }

    /// Removes checkpoints that the policy does not keep, never the one in use; returns their rounds.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn prune_checkpoints(&self, policy: KeepPolicy) -> Result<Vec<u32>> {
        let in_use = checkpoint_in_use(&self.journal.reader().markers()?);
        self.view.checkpoints().prune(policy, in_use.as_slice())
    }

    /// Publishes an evaluation of the weights that were trained in `metrics.round` rounds. If their update is lost in a
    /// crash, opening the run drops it.
    ///
    /// # Errors
    /// There is one already, or the file system refuses; no part of it remains then.
    pub fn publish_evaluation(&self, metrics: &MetricValues, rows: Vec<EvaluationRow>) -> Result<Evaluation> {
        evaluations::publish(&self.view.path.join(EVALUATIONS), metrics, rows)
    }

    /// The sinks of the run, `metrics.jsonl` and TensorBoard, brought up to the last published round and evaluation.
    ///
    /// # Errors
    /// The metrics of a published round cannot be read. A failing sink is no error: see [`MetricSinks`].
    pub fn sinks(&self) -> Result<MetricSinks> {
        let mut sinks = MetricSinks::new();
        sinks.add(METRICS, JsonLinesSink::open(&self.view.metrics_file()));
        sinks.add("TensorBoard", TensorBoardSink::open(&self.view.tensorboard_directory()));
        let behind = sinks.behind();
        for round in self.view.rounds()?.iter().filter(|r| behind.is_none_or(|last| r.round() > last)) {
            sinks.record(&round.metrics()?);
        }
        for evaluation in self.view.evaluations()? {
            sinks.record(&evaluation.metrics()?);
        }
        Ok(sinks)
    }

    fn advance(&self, round: u32, stage: Stage, checkpoint: Option<u32>, detail: &str) -> Result<()> {
        if self.check_turn(round, stage)? { Ok(()) } else { self.mark(round, stage, checkpoint, detail) }
    }

    fn mark(&self, round: u32, stage: Stage, checkpoint: Option<u32>, detail: &str) -> Result<()> {
        self.journal.mark(marker(round, stage, checkpoint, detail))
    }

    /// Whether the round has reached the stage already.
    ///
    /// A round may begin once the one before it is sampled: the journal tells rounds apart, and opening a run drops what
    /// was sampled with weights that were lost. Its update is published only after the round before it.
    ///
    /// # Errors
    /// It is not the stage's turn.
    fn check_turn(&self, round: u32, stage: Stage) -> Result<bool> {
        let markers = self.journal.reader().markers()?;
        let reached = |round| markers.iter().filter(|m| m.round == round).map(|m| m.stage).max();
        let own = reached(round);
        if own.is_some_and(|own| own >= stage) {
            return Ok(true);
        }
        let last = markers.last().map(|m| (m.round, m.stage));
        let before = round.checked_sub(1).and_then(reached);
        let in_turn = match stage {
            Stage::Started => {
                // At most two are under way: one that is being published, and the next.
                let before_last = last.and_then(|(last, _)| last.checked_sub(1)).and_then(reached);
                last.is_none_or(|(last, reached)| round == last + 1 && reached >= Stage::Sampled)
                    && before_last.is_none_or(|reached| reached == Stage::Published)
            }
            Stage::Sampled => own == Some(Stage::Started),
            Stage::Updated => {
                own == Some(Stage::Sampled) && before.is_none_or(|before| before == Stage::Published)
            }
            Stage::Published => own == Some(Stage::Updated),
        };
        if in_turn {
            return Ok(false);
        }
        let standing =
            last.map_or("no round has begun".into(), |(r, s)| format!("round {r} is {}", s.as_str()));
        Err(Error::OutOfTurn { round, what: format!("be {} now: {standing}", stage.as_str()) })
    }
}

fn marker(round: u32, stage: Stage, checkpoint: Option<u32>, detail: &str) -> Marker {
    Marker { round, stage, checkpoint, detail: detail.to_owned(), unix_time: unix_time() }
}

/// Refuses a directory that holds a run, or anything that an interrupted beginning does not leave.
fn refuse_taken(path: &Path) -> Result<()> {
    let taken = |what: String| Error::Taken { path: path.to_path_buf(), what };
    if path.join(CONFIG).exists() {
        return Err(taken("a run".into()));
    }
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let name = entry.map_err(Error::io("list", path))?.file_name();
        let name = name.to_string_lossy();
        if !OWN_NAMES.contains(&&*name) && !name.starts_with(TEMPORARY_PREFIX) {
            return Err(taken(format!("other files, such as '{name}'")));
        }
    }
    Ok(())
}

/// Refuses the remains of a run whose `config.toml` is gone: another run would take its rounds for its own. A journal that
/// nothing was written into goes.
fn refuse_begun(path: &Path) -> Result<()> {
    let what = |of: &str| Error::Taken {
        path: path.to_path_buf(),
        what: format!(
            "{of} of a run whose {CONFIG} is gone; to go on with it, restore that file from a copy"
        ),
    };
    for part in PARTS {
        let directory = path.join(part);
        let mut entries = fs::read_dir(&directory).map_err(Error::io("list", &directory))?;
        if entries.next().is_some() {
            return Err(what(part));
        }
    }
    if Journal::remove_unused(&path.join(JOURNAL))? { Ok(()) } else { Err(what("the journal")) }
}
