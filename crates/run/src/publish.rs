//! Publication of a finished round, beside the sampling of the next one: checkpoint, tables, metrics.
//!
//! The journal takes the next round's results meanwhile. They were sampled with the weights that are being written here:
//! if this checkpoint is lost in a crash, opening the run drops them.
//!
//! Checkpoint and tables are brought to the disk side by side; then they get their names, in this order: a round's tables
//! say that its update is done. Old checkpoints are removed after that, when nobody waits any more: the next round's
//! publication begins although they are still going.

use super::Kept;
use super::asking::READ_BY_ONE;
use super::config::RunConfig;
use super::dispatcher::Completions;
use super::policies::{Snapshots, beside};
use anyhow::{Context, Result, anyhow};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sgs_formal::FormalSystem;
use sgs_rundir::metrics::{MetricSinks, MetricValues};
use sgs_rundir::{KeepPolicy, OutcomeSources, PreparedCheckpoint, PreparedRound, RunDir, write_outcome};
use sgs_selfplay::outcome::ProblemOutcome;
use sgs_selfplay::{Features, Problem, ProblemId, RoundOutcome};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// The features of a round's statements: each is parsed once, for the metrics and for the tables.
pub struct StatementFeatures(HashMap<ProblemId, Features>);

impl StatementFeatures {
    /// Those of all problems of a round. Its metrics wait for them: all processors parse.
    pub fn find(system: &dyn FormalSystem, outcome: &RoundOutcome) -> Self {
        let of = |found: &ProblemOutcome| {
            let problem = &found.problem;
            (problem.id.clone(), system.features(&problem.statement))
        };
        Self(outcome.problems.par_iter().with_min_len(READ_BY_ONE).map(of).collect())
    }

    /// Those of one of them.
    pub fn of(&self, problem: &Problem) -> Features {
        self.0.get(&problem.id).copied().unwrap_or_default()
    }
}

/// A finished round on its way to the disk.
pub struct Publication {
    /// The run.
    pub run: Arc<RunDir>,
    /// Its configuration.
    pub config: Arc<RunConfig>,
    /// What is known of the statements of its problems.
    pub features: StatementFeatures,
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
        // The checkpoint before the tables: a published round is never made again, and without its update the run would go
        // on from older weights. This way a crash loses tables alone, and they follow from the journal.
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
        let Self { run, config, features, outcome, completions, metrics, .. } = self;
        let features = |p: &Problem| features.of(p);
        Ok(run.prepare_round(metrics, |tables| {
            let mut completion = |key: &sgs_selfplay::TaskKey| Ok(completions.get(key).cloned());
            let sources =
                OutcomeSources { run_seed: config.seed, features: &features, completion: &mut completion };
            Ok(write_outcome(tables, outcome, sources)?)
        })?)
    }

    /// Removes old checkpoints, once those that `before` removes are gone.
    fn prune(self, before: Option<Pruning>) -> Result<()> {
        let (run, config) = (Arc::clone(&self.run), Arc::clone(&self.config));
        // Freeing a round's completions takes its time too, and nobody needs them while this one waits.
        drop(self);
        // Two at once would remove the same ones.
        before.map_or(Ok(()), pruned)?;
        let keep = &config.checkpoints;
        run.prune_checkpoints(KeepPolicy { last: keep.last, every: keep.every })?;
        Ok(())
    }
}

/// The thread that removes what is not kept any more.
type Pruning = JoinHandle<Result<()>>;

fn pruned(thread: Pruning) -> Result<()> {
    thread.join().map_err(|_| anyhow!("the thread that removes old checkpoints panicked"))?
}

/// What a publication leaves.
struct Published {
    metrics: MetricValues,
    times: PublishTimes,
    /// Its copy of the weights, for the next one.
    weights: Option<Snapshots>,
    pruning: Pruning,
}

/// The thread that publishes, one round at a time.
pub struct Publisher {
    thread: Option<JoinHandle<Result<Published>>>,
    pruning: Option<Pruning>,
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
        // An old checkpoint that cannot be removed ends the run, but this round is published before. One that is still
        // being removed is not waited for here: that began when the round before was published, maybe just now.
        let done = self.pruning.take_if(|thread| thread.is_finished()).map_or(Ok(()), pruned);
        let before = self.pruning.take();
        let publish = move || {
            let times = match publication.publish() {
                Ok(times) => times,
                Err(error) => {
                    // Whoever hears of it finds nobody at work in the run's folder any more.
                    before.map_or(Ok(()), pruned).context(format!("{error:#}"))?;
                    return Err(error);
                }
            };
            let (metrics, weights) = (publication.metrics.clone(), publication.weights.take());
            // After publication: until then a crash goes on from the checkpoint before, which may be one to remove.
            let prune = move || publication.prune(before);
            let pruning = std::thread::Builder::new().name("prune".into()).spawn(prune)?;
            Ok(Published { metrics, times, weights, pruning })
        };
        self.thread = Some(std::thread::Builder::new().name("publish".into()).spawn(publish)?);
        done
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
        // After the round's own numbers: it was made of the weights that the round came to.
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
        self.pruning.take().map_or(Ok(()), pruned)?;
        Ok(published)
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
