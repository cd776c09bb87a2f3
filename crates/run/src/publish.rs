//! Publication of a finished round, beside the sampling of the next one: checkpoint, tables, metrics.
//!
//! The journal takes the next round's results meanwhile. They were sampled with the weights that are being written here:
//! if this checkpoint is lost in a crash, opening the run drops them.
//!
//! Checkpoint and tables are brought to the disk side by side; then they get their names, in this order: a round's tables
//! say that its update is done. Old checkpoints are removed after that, when nobody waits any more.

use super::Kept;
use super::config::RunConfig;
use super::dispatcher::Completions;
use super::policies::{Snapshots, beside};
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use sgs_formal::FormalSystem;
use sgs_rundir::metrics::{MetricSinks, MetricValues};
use sgs_rundir::{KeepPolicy, OutcomeSources, PreparedCheckpoint, PreparedRound, RunDir, write_outcome};
use sgs_selfplay::{Problem, RoundOutcome};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// A finished round on its way to the disk.
pub struct Publication {
    /// The run.
    pub run: Arc<RunDir>,
    /// Its configuration.
    pub config: Arc<RunConfig>,
    /// The formal system, for the features of statements.
    pub system: Arc<dyn FormalSystem>,
    /// The round's result.
    pub outcome: RoundOutcome,
    /// Its completions.
    pub completions: Completions,
    /// What the checkpoint keeps of the update.
    pub kept: Kept,
    /// The weights after the update; `None` if nothing was trained.
    pub weights: Option<Snapshots>,
    /// Whether the update's marker is on the disk already: the run was resumed after it.
    pub updated: bool,
    /// Files copied into each policy's folder.
    pub companions: Vec<PathBuf>,
    /// The round's numbers.
    pub metrics: MetricValues,
}

/// Wall times of a publication, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PublishTimes {
    /// All of it.
    pub all: f64,
    /// Preparing the checkpoint, beside the next two.
    pub checkpoint: f64,
    /// Preparing the tables.
    pub tables: f64,
}

/// What `f` gives, and its seconds.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let value = f();
    (value, started.elapsed().as_secs_f64())
}

impl Publication {
    fn publish(&mut self) -> Result<PublishTimes> {
        let started = Instant::now();
        let this = &*self;
        let checkpoint = || timed(|| this.prepare_checkpoint());
        let tables = || timed(|| this.prepare_tables());
        let ((tables, tables_s), (checkpoint, checkpoint_s)) = beside(checkpoint, tables)?;
        let round = self.outcome.round;
        match checkpoint? {
            Some(prepared) => drop(self.run.publish_prepared_checkpoint(prepared)?),
            None if self.updated => {}
            None => self.run.skip_update(round, &serde_json::to_string(&self.kept)?)?,
        }
        self.run.publish_prepared_round(tables?)?;
        let all = started.elapsed().as_secs_f64();
        tracing::info!(
            "round {round} is published: {all:.3} s (checkpoint {checkpoint_s:.3}, tables {tables_s:.3})"
        );
        Ok(PublishTimes { all, checkpoint: checkpoint_s, tables: tables_s })
    }

    /// `None` if nothing was trained, or the checkpoint stands already.
    fn prepare_checkpoint(&self) -> Result<Option<PreparedCheckpoint>> {
        let Some(weights) = self.weights.as_ref().filter(|_| !self.updated) else { return Ok(None) };
        let detail = serde_json::to_string(&self.kept)?;
        let fill = |folder: &Path| Ok(weights.write(folder, &self.companions)?);
        Ok(Some(self.run.prepare_checkpoint(self.outcome.round, &detail, fill)?))
    }

    fn prepare_tables(&self) -> Result<PreparedRound> {
        let Self { run, config, outcome, completions, metrics, .. } = self;
        let features = |p: &Problem| self.system.features(&p.statement);
        Ok(run.prepare_round(metrics, |tables| {
            let mut completion = |key: &sgs_selfplay::TaskKey| Ok(completions.get(key).cloned());
            let sources =
                OutcomeSources { run_seed: config.seed, features: &features, completion: &mut completion };
            Ok(write_outcome(tables, outcome, sources)?)
        })?)
    }

    fn prune(&self) -> Result<()> {
        let keep = &self.config.checkpoints;
        self.run.prune_checkpoints(KeepPolicy { last: keep.last, every: keep.every })?;
        Ok(())
    }
}

/// What a publication leaves.
struct Published {
    metrics: MetricValues,
    times: PublishTimes,
    /// Its copy of the weights, for the next one.
    weights: Option<Snapshots>,
    /// Removes what is not kept any more.
    pruning: JoinHandle<Result<()>>,
}

/// The thread that publishes, one round at a time.
pub struct Publisher {
    thread: Option<JoinHandle<Result<Published>>>,
    pruning: Option<JoinHandle<Result<()>>>,
    spare: Option<Snapshots>,
    sinks: MetricSinks,
    /// Numbers of an evaluation of weights that are not on the disk yet.
    evaluated: Option<MetricValues>,
}

impl Publisher {
    /// Nothing to publish yet.
    pub fn new(sinks: MetricSinks) -> Self {
        Self { thread: None, pruning: None, spare: None, sinks, evaluated: None }
    }

    /// Memory of a copy of the weights that is on the disk, to be used again.
    pub fn take_spare(&mut self) -> Option<Snapshots> {
        self.spare.take()
    }

    /// Hands the numbers of an evaluation to the sinks, once the weights that it is of are on the disk: if they are lost
    /// in a crash, so is the evaluation.
    pub fn evaluated(&mut self, metrics: MetricValues) {
        match self.thread {
            Some(_) => self.evaluated = Some(metrics),
            None => self.sinks.record(&metrics),
        }
    }

    /// Starts a publication. The one before it has been waited for.
    ///
    /// # Errors
    /// The one before failed, or no thread can be started.
    pub fn start(&mut self, mut publication: Publication) -> Result<()> {
        self.wait()?;
        // An old checkpoint that cannot be removed ends the run, but this round is published before.
        let pruned = self.pruned();
        let publish = move || {
            let times = publication.publish()?;
            let (metrics, weights) = (publication.metrics.clone(), publication.weights.take());
            // Freeing a round's completions takes its time too.
            let pruning =
                std::thread::Builder::new().name("prune".into()).spawn(move || publication.prune())?;
            Ok(Published { metrics, times, weights, pruning })
        };
        self.thread = Some(std::thread::Builder::new().name("publish".into()).spawn(publish)?);
        pruned
    }

    /// Waits until the round is published; gives the round and what that took, `None` if there was none.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn wait(&mut self) -> Result<Option<(u32, PublishTimes)>> {
        let Some(thread) = self.thread.take() else { return Ok(None) };
        let published = thread.join().map_err(|_| anyhow!("the publishing thread panicked"))??;
        self.pruning = Some(published.pruning);
        self.spare = published.weights;
        self.sinks.record(&published.metrics);
        if let Some(metrics) = self.evaluated.take() {
            self.sinks.record(&metrics);
        }
        Ok(Some((published.metrics.round, published.times)))
    }

    /// Waits until the round is published and old checkpoints are removed; gives what [`Self::wait`] does.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn finish(&mut self) -> Result<Option<(u32, PublishTimes)>> {
        let published = self.wait()?;
        self.pruned()?;
        Ok(published)
    }

    /// Waits until old checkpoints are removed.
    fn pruned(&mut self) -> Result<()> {
        let Some(thread) = self.pruning.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("the thread that removes old checkpoints panicked"))?
    }
}

impl Drop for Publisher {
    /// A round that is being published becomes whole even if the run ends with an error meanwhile.
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("the last round could not be published: {error:#}");
        }
    }
}
