//! Publication of a finished round, beside the sampling of the next one: checkpoint, tables, metrics.
//!
//! No result of a round reaches the journal before the round before it is published whole, so that on the disk rounds
//! stand strictly one after the other. What the next round samples meanwhile, and what depends on it, is in memory.

use super::Kept;
use super::config::RunConfig;
use super::policies::Snapshots;
use super::sampling::Completions;
use anyhow::{Result, anyhow};
use sgs_formal::FormalSystem;
use sgs_rundir::metrics::{MetricSinks, MetricValues};
use sgs_rundir::{KeepPolicy, OutcomeSources, RunDir, write_outcome};
use sgs_selfplay::{Problem, RoundOutcome};
use std::path::PathBuf;
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

impl Publication {
    fn publish(self) -> Result<MetricValues> {
        let Self { run, config, outcome, completions, metrics, .. } = &self;
        if !self.updated {
            let detail = serde_json::to_string(&self.kept)?;
            match &self.weights {
                Some(weights) => {
                    run.publish_checkpoint(outcome.round, &detail, |folder| {
                        Ok(weights.save(folder, &self.companions)?)
                    })?;
                }
                None => run.skip_update(outcome.round, &detail)?,
            }
        }
        let features = |p: &Problem| self.system.features(&p.statement);
        run.publish_round(metrics, |tables| {
            let mut completion = |key: &sgs_selfplay::TaskKey| Ok(completions.get(key).cloned());
            let sources =
                OutcomeSources { run_seed: config.seed, features: &features, completion: &mut completion };
            Ok(write_outcome(tables, outcome, sources)?)
        })?;
        let keep = &config.checkpoints;
        run.prune_checkpoints(KeepPolicy { last: keep.last, every: keep.every })?;
        Ok(self.metrics)
    }
}

/// The thread that publishes, one round at a time.
pub struct Publisher {
    thread: Option<JoinHandle<Result<(MetricValues, f64)>>>,
    sinks: MetricSinks,
}

impl Publisher {
    /// Nothing to publish yet.
    pub fn new(sinks: MetricSinks) -> Self {
        Self { thread: None, sinks }
    }

    /// Whether a round is on its way.
    pub fn is_busy(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether no round is on its way any more, though its end may not have been waited for.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Starts a publication. The one before it has been waited for.
    ///
    /// # Errors
    /// The one before failed, or no thread can be started.
    pub fn start(&mut self, publication: Publication) -> Result<()> {
        self.wait()?;
        let publish = move || {
            let started = Instant::now();
            Ok((publication.publish()?, started.elapsed().as_secs_f64()))
        };
        self.thread = Some(std::thread::Builder::new().name("publish".into()).spawn(publish)?);
        Ok(())
    }

    /// Waits until the round is published; returns the seconds that its publication took, 0 if there was none.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn wait(&mut self) -> Result<f64> {
        let Some(thread) = self.thread.take() else { return Ok(0.0) };
        let (metrics, seconds) = thread.join().map_err(|_| anyhow!("the publishing thread panicked"))??;
        self.sinks.record(&metrics);
        Ok(seconds)
    }
}

impl Drop for Publisher {
    /// A round that is being published becomes whole even if the run ends with an error meanwhile.
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::error!("the last round could not be published: {error:#}");
        }
    }
}
