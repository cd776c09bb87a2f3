//! Publishes a finished round while the next one samples: checkpoint, tables and metrics.
//!
//! Meanwhile the journal takes results of the next round, sampled with the weights that are being written here. If a
//! crash loses this checkpoint, opening the run drops those results.
//!
//! The checkpoint and the tables are written in parallel under temporary names. They are then renamed in this order:
//! checkpoint first, tables second, because the presence of a round's tables marks its update as complete. Old
//! checkpoints are deleted afterwards, in the background.
//!
//! If remote workers or servers need the weights, those are published before everything else, so that the next round
//! begins while the optimizer's state is being written.

use super::update_record::PublishTimes;
use crate::config::RunConfig;
use crate::error::{Context, Result, RunError};
use crate::round::task_builder::MIN_ITEMS_PER_THREAD;
use crate::round::update_record::UpdateRecord;
use crate::train::policies::{HandedWeights, HostSnapshots, beside};
use crate::train::update::Completions;
use rayon::prelude::*;
use sgs_formal::FormalSystem;
use sgs_rundir::metrics::{MetricSinks, MetricValues};
use sgs_rundir::{KeepPolicy, OutcomeSources, PreparedCheckpoint, PreparedRound, RunDir, write_outcome};
use sgs_selfplay::outcome::ProblemOutcome;
use sgs_selfplay::{Features, Problem, ProblemId, RoundOutcome};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Features of a round's statements, computed once for both the metrics and the tables.
pub(crate) struct StatementFeatures(HashMap<ProblemId, Features>);

impl StatementFeatures {
    /// Computes the features of all problems of a round, in parallel because the round's metrics wait for them.
    pub(crate) fn find(system: &dyn FormalSystem, outcome: &RoundOutcome) -> Self {
        let of = |found: &ProblemOutcome| {
            let problem = &found.problem;
            (problem.id.clone(), system.features(&problem.statement))
        };
        Self(outcome.problems.par_iter().with_min_len(MIN_ITEMS_PER_THREAD).map(of).collect())
    }

    #[allow(clippy::expect_used, reason = "it has the features of every problem of the round")]
    pub(crate) fn of(&self, problem: &Problem) -> Features {
        *self.0.get(&problem.id).expect("invariant: the problem is one of the round")
    }
}

/// A finished round to be written to disk.
pub(crate) struct Publication {
    pub run: Arc<RunDir>,
    pub config: Arc<RunConfig>,
    pub features: StatementFeatures,
    pub outcome: RoundOutcome,
    pub completions: Completions,
    /// Text that the checkpoint stores about the update.
    pub record: UpdateRecord,
    /// The weights after the update; `None` if nothing was trained.
    pub weights: Option<HostSnapshots>,
    /// Whether workers wait for the weights. If so, the weights are published before the checkpoint.
    pub hands_out: bool,
    /// Whether an earlier process has already stored the update.
    pub updated: bool,
    /// Files copied into each policy's folder.
    pub companions: Vec<PathBuf>,
    pub metrics: MetricValues,
}

/// Returns the result of `f` and its duration in seconds.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let value = f();
    (value, started.elapsed().as_secs_f64())
}

impl Publication {
    /// Publishes the round. Sends the folder of the weights as soon as workers may read them.
    fn publish(&mut self, ready: &Sender<PathBuf>) -> Result<PublishTimes> {
        let started = Instant::now();
        let this = &*self;
        let checkpoint = || timed(|| this.prepare_checkpoint(ready));
        let tables = || timed(|| this.prepare_tables());
        let ((tables, tables_s), (checkpoint, checkpoint_s)) = beside(checkpoint, tables)?;
        let round = self.outcome.round;
        // Publish the checkpoint first. A published round is never repeated, so if its update were missing, the run
        // would continue from older weights. In this order, a crash loses only the tables, which can be rebuilt from
        // the journal.
        match checkpoint? {
            Some(prepared) => drop(self.run.publish_prepared_checkpoint(prepared)?),
            None if self.updated => {}
            None => self.run.skip_update(round, &serde_json::to_string(&self.record)?)?,
        }
        self.run.publish_prepared_round(tables?)?;
        let all = started.elapsed().as_secs_f64();
        tracing::info!(
            "round {round} is published: {all:.3} s (checkpoint {checkpoint_s:.3}, tables {tables_s:.3})"
        );
        Ok(PublishTimes { all, checkpoint: checkpoint_s, tables: tables_s })
    }

    /// Returns `None` if nothing was trained or the checkpoint already exists.
    fn prepare_checkpoint(&self, ready: &Sender<PathBuf>) -> Result<Option<PreparedCheckpoint>> {
        let Some(weights) = self.weights.as_ref().filter(|_| !self.updated) else { return Ok(None) };
        let handed = self.hands_out.then(|| self.hand_out(weights)).transpose()?;
        if let Some(handed) = &handed {
            // At the end of a run, no round waits for the weights.
            let _ = ready.send(handed.folder.clone());
        }
        let detail = serde_json::to_string(&self.record)?;
        // `prepare_checkpoint` takes an untyped error. Keep ours: a lost rank must stay recognisable.
        let mut failure = None;
        let fill = |folder: &Path| {
            weights.write(folder, &self.companions, handed.as_ref()).map_err(|error| {
                let message = error.to_string();
                failure = Some(error);
                message.into()
            })
        };
        match (self.run.prepare_checkpoint(self.outcome.round, &detail, fill), failure) {
            (Ok(prepared), _) => Ok(Some(prepared)),
            (Err(error), Some(failure)) => Err(failure.context(error)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Publishes the weights without the optimizer's state. If a crash loses their checkpoint, recovery drops the samples
    /// of the round that uses them.
    fn hand_out(&self, weights: &HostSnapshots) -> Result<HandedWeights> {
        let mut written = None;
        let fill = |staged: &Path| {
            let sums = weights.write_weights(staged)?;
            written = Some((staged.to_owned(), sums.clone()));
            Ok(sums)
        };
        let folder = self.run.publish_weights(self.outcome.round, fill)?;
        let (staged, sums) = written.unwrap_or_default();
        Ok(HandedWeights::new(folder, &staged, sums))
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

    /// Deletes old checkpoints after the previous deletion, `before`, has finished.
    fn prune(self, before: Option<Pruning>) -> Result<()> {
        let (run, config) = (Arc::clone(&self.run), Arc::clone(&self.config));
        // Free the round's completions here, in the background, because that takes time.
        drop(self);
        // Wait, because two concurrent deletions would choose the same checkpoints.
        before.map_or(Ok(()), pruned)?;
        let keep = &config.checkpoints;
        run.prune_checkpoints(KeepPolicy { last: keep.last, every: keep.every })?;
        Ok(())
    }
}

/// The thread that deletes old checkpoints.
type Pruning = JoinHandle<Result<()>>;

fn pruned(thread: Pruning) -> Result<()> {
    thread.join().map_err(|_| RunError::Failed("the thread that removes old checkpoints panicked".into()))?
}

struct Published {
    metrics: MetricValues,
    times: PublishTimes,
    /// The copy of the weights, whose memory the next publication reuses.
    weights: Option<HostSnapshots>,
    pruning: Pruning,
}

/// Publishes rounds in a background thread, one at a time.
pub(crate) struct Publisher {
    /// Receives the folder of the weights that are being published.
    ready: Option<Receiver<PathBuf>>,
    thread: Option<JoinHandle<Result<Published>>>,
    pruning: Option<Pruning>,
    spare: Option<HostSnapshots>,
    sinks: MetricSinks,
    /// Metrics of an evaluation whose weights are not on disk yet.
    evaluated: Option<MetricValues>,
}

impl Publisher {
    /// Creates a publisher without work.
    pub(crate) fn new(sinks: MetricSinks) -> Self {
        Self { ready: None, thread: None, pruning: None, spare: None, sinks, evaluated: None }
    }

    /// Returns the memory of a copy of the weights that has been written, for reuse.
    pub(crate) fn take_spare(&mut self) -> Option<HostSnapshots> {
        self.spare.take()
    }

    /// Records the metrics of an evaluation once its weights are on disk. If a crash loses the weights, the evaluation
    /// is lost too.
    pub(crate) fn evaluated(&mut self, metrics: MetricValues) {
        match self.thread {
            Some(_) => self.evaluated = Some(metrics),
            None => self.sinks.record(&metrics),
        }
    }

    /// Starts a publication. The caller has waited for the previous one.
    pub(crate) fn start(&mut self, mut publication: Publication) -> Result<()> {
        self.wait()?;
        // A failed deletion ends the run, but this round is published first. Do not wait for a deletion in progress,
        // because it may have started just now.
        let done = self.pruning.take_if(|thread| thread.is_finished()).map_or(Ok(()), pruned);
        let before = self.pruning.take();
        let (sender, receiver) = channel();
        self.ready = Some(receiver).filter(|_| publication.hands_out && publication.weights.is_some());
        let publish = move || {
            let times = match publication.publish(&sender) {
                Ok(times) => times,
                Err(error) => {
                    // When the caller sees the error, no thread must be writing into the run's folder.
                    before.map_or(Ok(()), pruned).context(format!("{error:#}"))?;
                    return Err(error);
                }
            };
            let (metrics, weights) = (publication.metrics.clone(), publication.weights.take());
            // Delete only after publication, because until then a crash resumes from the previous checkpoint.
            let prune = move || publication.prune(before);
            let pruning = std::thread::Builder::new().name("prune".into()).spawn(prune)?;
            Ok(Published { metrics, times, weights, pruning })
        };
        self.thread = Some(std::thread::Builder::new().name("publish".into()).spawn(publish)?);
        done
    }

    /// Waits until workers may read the weights that are being published, and returns their folder. Returns `None` if
    /// there are no new weights, or if their publication failed, which [`Self::wait`] reports.
    pub(crate) fn await_weights(&mut self) -> Option<PathBuf> {
        self.ready.take()?.recv().ok()
    }

    /// Waits for the publication in progress and returns its round and durations, or `None` if there is none.
    pub(crate) fn wait(&mut self) -> Result<Option<(u32, PublishTimes)>> {
        let Some(thread) = self.thread.take() else { return Ok(None) };
        let published =
            thread.join().map_err(|_| RunError::Failed("the publishing thread panicked".into()))??;
        self.pruning = Some(published.pruning);
        self.spare = published.weights;
        self.sinks.record(&published.metrics);
        // Record it after the round's own metrics, because it evaluates the weights of that round.
        if let Some(metrics) = self.evaluated.take() {
            self.sinks.record(&metrics);
        }
        Ok(Some((published.metrics.round, published.times)))
    }

    /// Waits for the publication and the deletion of old checkpoints. Returns the same as [`Self::wait`].
    pub(crate) fn finish(&mut self) -> Result<Option<(u32, PublishTimes)>> {
        let published = self.wait()?;
        self.pruning.take().map_or(Ok(()), pruned)?;
        Ok(published)
    }
}

impl Drop for Publisher {
    /// Finishes the publication in progress even if the run ends with an error.
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("the last round could not be published: {error:#}");
        }
    }
}
