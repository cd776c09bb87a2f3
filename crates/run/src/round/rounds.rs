//! The data that the rounds of a run share.

use super::dispatcher::{Dispatcher, Work as _};
use super::evaluation::{EvalPoint, EvalSchedule};
use super::event::{EventStream, RoundStage, RunEvent};
use super::guide_check::GuideCheck;
use super::publication::Publisher;
use super::recheck::RecheckPolicy;
use super::run_workers::RunWorkers;
use super::runner::Runner;
use super::sampling_context::SamplingContext;
use super::update_record::UpdateRecord;
use crate::config::folder;
use crate::error::{Context, Result};
use crate::train::policies::{self, PolicySet};
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use sgs_lm::ranks::Parallel;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::Decode;
use sgs_rundir::{JournalStage, ResumePlan};
use sgs_selfplay::RunState;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// The data that the rounds of a run share: workers, weights, and the state after the finished rounds.
pub(super) struct RoundLoop<'r, 'l, D: Parallel + Decode> {
    // Fields are dropped in this order. A publication in progress must finish before its workers and weights are
    // dropped.
    pub(super) publisher: Publisher,
    pub(super) workers: RunWorkers,
    pub(super) policies: Arc<RwLock<PolicySet<D>>>,
    pub(super) runner: &'r Runner<D>,
    pub(super) trainer: &'r mut DistributedTrainer<D>,
    pub(super) events: &'r mut EventStream<'l>,
    pub(super) tokenizer: Tokenizer,
    /// Context window of the model, tokens.
    pub(super) window: u32,
    /// State accumulated over the finished rounds.
    pub(super) state: RunState,
    /// The stored record of a round that an earlier process has updated, until that round uses it.
    pub(super) resumed: Option<UpdateRecord>,
    /// Time at which this process began to work on the run.
    pub(super) opened: Instant,
    /// Time for which earlier processes have worked on the run, in seconds.
    pub(super) seconds_before: f64,
}

impl<'r, 'l, D: Parallel + Decode + 'static> RoundLoop<'r, 'l, D>
where
    PolicySet<D>: Send + Sync,
{
    /// Starts the workers and reads the state that earlier processes have stored.
    pub(super) fn open(
        runner: &'r Runner<D>,
        plan: &ResumePlan,
        policies: PolicySet<D>,
        trainer: &'r mut DistributedTrainer<D>,
        events: &'r mut EventStream<'l>,
    ) -> Result<Self> {
        let (opened, seconds_before) = (Instant::now(), folder::seconds_worked(runner.run.view())?);
        let state = runner.run.view().state()?;
        let tokenizer = policies::tokenizer(&runner.base, policies.config())?;
        let window = runner.config.window(policies.config()) as u32;
        let policies = Arc::new(RwLock::new(policies));
        let workers = RunWorkers::start(runner, &tokenizer, &policies, trainer)?;
        events.emit(RunEvent::Board(workers.fleet()));
        let publisher = Publisher::new(runner.run.sinks()?);
        // Markers of early versions have no record.
        let marker = plan.markers.get(&JournalStage::Updated).filter(|marker| !marker.detail.is_empty());
        let resumed = marker.map(|marker| serde_json::from_str(&marker.detail)).transpose();
        let resumed = resumed.with_context(|| {
            format!("the journal's record of the update of round {} is damaged", plan.round)
        })?;
        Ok(Self {
            publisher,
            workers,
            policies,
            runner,
            trainer,
            events,
            tokenizer,
            window,
            state,
            resumed,
            opened,
            seconds_before,
        })
    }
}

impl<'r, D: Parallel + Decode> RoundLoop<'r, '_, D> {
    /// Waits until the previous round is published, and records how long that took.
    pub(super) fn await_publication(&mut self, record: &mut UpdateRecord) -> Result<()> {
        let started = Instant::now();
        if let Some((round, times)) = self.publisher.wait()? {
            self.events.emit(RunEvent::RoundPublished { round, seconds: times.all });
            record.times.publishing = times;
        }
        record.times.publish_wait += started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Waits until workers may read the weights of the previous round. If that round trained nothing, this waits until
    /// it is published. Returns the folder of the weights, unless it is a checkpoint.
    pub(super) fn await_weights(&mut self, record: &mut UpdateRecord) -> Result<Option<PathBuf>> {
        let started = Instant::now();
        let folder = self.publisher.await_weights();
        record.times.publish_wait += started.elapsed().as_secs_f64();
        if folder.is_none() {
            self.await_publication(record)?;
        }
        Ok(folder)
    }

    /// Waits until the last round is published and old checkpoints are deleted.
    pub(super) fn finish_publication(&mut self) -> Result<()> {
        if let Some((round, times)) = self.publisher.finish()? {
            self.events.emit(RunEvent::RoundPublished { round, seconds: times.all });
        }
        Ok(())
    }

    /// Makes the weights of a round available to servers and remote workers: those in `folder`, or those of the last
    /// checkpoint.
    pub(super) fn hand_out_weights(&mut self, policy_version: u32, folder: Option<PathBuf>) -> Result<()> {
        let Self { runner, workers, tokenizer, policies, trainer, events, .. } = self;
        let folder = match folder {
            Some(folder) => Some(folder),
            None => runner.run.checkpoint()?.map(|checkpoint| checkpoint.directory),
        };
        let notes =
            workers.begin_round(runner, policy_version, folder.as_deref(), tokenizer, policies, trainer)?;
        notes.iter().for_each(|note| events.emit(RunEvent::Note(note)));
        Ok(())
    }

    pub(super) fn schedule(&self) -> EvalSchedule<'r> {
        let Runner { config, held_out, targets, .. } = self.runner;
        EvalSchedule { config, held_out, targets }
    }

    /// Evaluates the weights after `after` rounds, if that is due. Returns false if the user interrupted it.
    pub(super) fn evaluate(&mut self, after: u32, point: EvalPoint) -> Result<bool> {
        let (schedule, runner) = (self.schedule(), self.runner);
        if !schedule.is_due(after, point, runner.run.view())? {
            return Ok(true);
        }
        let workers = &self.workers;
        let context = context(runner, &self.tokenizer, self.window, workers, after);
        let dispatcher = || Dispatcher::new(context, workers, None, workers.local_recheck(&*runner.system));
        let metrics = workers.watch(|| schedule.evaluate(after, dispatcher, &runner.run, self.events))?;
        Ok(metrics.map(|metrics| self.publisher.evaluated(metrics)).is_some())
    }

    /// Checks that the Guide's reviews can be read. Returns false if the user interrupted it.
    pub(super) fn check_guide(&mut self) -> Result<bool> {
        let (runner, workers) = (self.runner, &self.workers);
        let Some(mut check) = GuideCheck::new(&runner.config, &runner.targets) else { return Ok(true) };
        let (round, rounds) = (0, runner.config.rounds);
        self.events.emit(RunEvent::Stage { round, rounds, stage: RoundStage::Evaluating });
        let context = context(runner, &self.tokenizer, self.window, workers, 0);
        let mut dispatcher = Dispatcher::new(context, workers, None, RecheckPolicy::Off);
        workers.watch(|| dispatcher.run(&mut check, self.events))?;
        if check.is_complete() {
            check.outcome()?;
        }
        Ok(check.is_complete())
    }

    pub(super) fn enter(&mut self, round: u32, stage: RoundStage) {
        self.events.emit(RunEvent::Stage { round, rounds: self.runner.config.rounds, stage });
    }
}

/// Returns the inputs that the tasks for the weights of `policy_version` depend on. This is not a method, because its
/// callers borrow other fields of the loop mutably.
pub(super) fn context<'a, D: Decode>(
    runner: &'a Runner<D>,
    tokenizer: &'a Tokenizer,
    window: u32,
    workers: &'a RunWorkers,
    policy_version: u32,
) -> SamplingContext<'a> {
    SamplingContext {
        config: &runner.config,
        system: &*runner.system,
        tokenizer,
        policy_version,
        window: window as usize,
        policy_id: workers.policy_id(),
    }
}
