//! The loop over the rounds of a run.
//!
//! Each round passes through three states: [`Sampling`], [`Updating`] and [`Publishing`]. A state owns the data of the
//! round in progress; [`RoundLoop`] owns what all rounds share. Publication runs in the background while the next round
//! samples, so at most two rounds are in progress at any time.

use super::dispatcher::{Dispatcher, SamplingEnd};
use super::evaluation::{EvalPoint, EvalSchedule};
use super::event::{EventStream, Listener, RoundStage, RunEvent};
use super::guide_check::GuideCheck;
use super::infra;
use super::publication::{Publication, Publisher, StatementFeatures};
use super::recheck::RecheckPolicy;
use super::round_metrics::round_metrics;
use super::run_workers::RunWorkers;
use super::runner::Runner;
use super::sampled_round::SampledRound;
use super::sampling_context::SamplingContext;
use super::unsampled;
use super::update_record::UpdateRecord;
use crate::Outcome;
use crate::config::folder::{self, EndReason};
use crate::config::guide_format;
use crate::error::{Context, Result};
use crate::train::matching::Embedder;
use crate::train::policies::{self, HostSnapshots, PolicySet};
use crate::train::ranks::command::RankCommand;
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use crate::train::update::{self, Completions};
use sgs_lm::ranks::{CommandChannel, Parallel};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_lm_sampler::Decode;
use sgs_rundir::{JournalStage, NextStep, ResumePlan};
use sgs_selfplay::{Role, Round, RoundOutcome, RunState};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

impl<D: Parallel + Decode + 'static> Runner<D>
where
    PolicySet<D>: Send + Sync,
{
    /// Runs rounds until the configured end, the time limit or an interrupt, starting where the run stopped.
    ///
    /// # Errors
    /// Returns an error if any part of the run fails. What was finished is on disk, and the run can be resumed.
    pub fn work<'a>(mut self, listener: &'a mut Listener<'a>) -> Result<Outcome> {
        let mut events = EventStream::new(&self.targets, listener);
        let plan = self.run.plan(0)?;
        let (policies, mut trainer) = self.load(&plan)?;
        let done =
            RoundLoop::open(&self, &plan, policies, &mut trainer, &mut events).and_then(RoundLoop::run);
        trainer.end(done)
    }

    /// Loads the weights and creates the trainer. If there are several ranks, all of them load at the same time.
    fn load(&mut self, plan: &ResumePlan) -> Result<(PolicySet<D>, DistributedTrainer<D>)> {
        let at = plan.checkpoint.as_ref().map(|c| c.directory.clone());
        let policy_version = match plan.next {
            NextStep::Publish => plan.round + 1,
            _ => plan.round,
        };
        let group = self.process_group.take();
        let place = group.as_ref().map_or((0, 1), |m| (m.rank(), m.ranks()));
        if let Some(group) = &group {
            let stop = self.interrupt.flag();
            group.on_loss(move || stop.store(true, Ordering::Release));
            let mut config = (*self.config).clone();
            if config.model.guide != "base" {
                config.model.guide = std::path::absolute(&config.model.guide)?.display().to_string();
            }
            let (config, base) = (toml::to_string(&config)?, std::path::absolute(&self.base)?);
            let at = at.as_ref().map(std::path::absolute).transpose()?;
            let load = RankCommand::Load { config, base, at, policy_version, samples: self.samples() };
            group.command_channel().send(&load.encode()?)?;
        }
        let loaded =
            PolicySet::load(&self.config, &self.device, &self.base, at.as_deref(), policy_version, place);
        if let (Err(error), Some(group)) = (&loaded, &group) {
            group.fail(&format!("{error:#}"));
        }
        let policies = loaded?;
        let peers = group.map(|group| D::connect(&self.device, group)).transpose()?;
        let (mode, tokens) = (self.config.training.mode(), self.config.training_tokens(policies.config()));
        let device = Arc::clone(&self.device);
        let trainer = Trainer::with_peers(device, policies.config(), tokens, mode, peers)?;
        Ok((policies, DistributedTrainer::lead(trainer)))
    }
}

/// What the rounds of a run share: its workers, its weights, and what earlier rounds have left.
struct RoundLoop<'r, 'l, D: Parallel + Decode> {
    // Dropped in this order. A publication in progress must finish before its workers and weights go.
    publisher: Publisher,
    workers: RunWorkers,
    policies: Arc<RwLock<PolicySet<D>>>,
    runner: &'r Runner<D>,
    trainer: &'r mut DistributedTrainer<D>,
    events: &'r mut EventStream<'l>,
    tokenizer: Tokenizer,
    /// Context window of the model, tokens.
    window: u32,
    /// What the finished rounds add up to.
    state: RunState,
    /// The stored record of a round whose update was done before this process started.
    resumed: Option<UpdateRecord>,
    opened: Instant,
    /// Seconds that earlier processes have worked on the run.
    seconds_before: f64,
}

impl<'r, 'l, D: Parallel + Decode + 'static> RoundLoop<'r, 'l, D>
where
    PolicySet<D>: Send + Sync,
{
    fn open(
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

    fn run(mut self) -> Result<Outcome> {
        let ended_by = loop {
            if self.state.next_round >= self.runner.config.rounds {
                break EndReason::Rounds;
            }
            // A resumed run can have two rounds in progress: one to publish, and the next one partly sampled.
            let next = self.runner.run.next_step(self.state.next_round)?;
            if next == NextStep::Start && self.is_out_of_time() {
                break EndReason::Minutes;
            }
            if next == NextStep::Start && self.runner.config.has_spent(self.state.generations) {
                break EndReason::Generations;
            }
            folder::forget_end(self.runner.run.view().path())?;
            if self.runner.interrupt.is_set() {
                self.finish_publication()?;
                // A worker thread that fails sets the interrupt, too; then `watch` returns its error.
                return self.workers.watch(|| Ok(Outcome::Interrupted));
            }
            let Some(sampling) = Sampling::begin(&mut self, next)? else { return self.interrupted() };
            let Some(updating) = sampling.finish(&mut self)? else { return self.interrupted() };
            updating.finish(&mut self)?.start(&mut self)?;
        };
        self.end(ended_by)
    }

    fn is_out_of_time(&self) -> bool {
        let limit = self.runner.config.minutes * 60.0;
        limit > 0.0 && self.seconds_before + self.opened.elapsed().as_secs_f64() > limit
    }

    fn interrupted(mut self) -> Result<Outcome> {
        self.finish_publication()?;
        Ok(Outcome::Interrupted)
    }

    /// Ends the run after its last round: the last evaluation, then the workers, then the mark.
    fn end(mut self, by: EndReason) -> Result<Outcome> {
        self.finish_publication()?;
        let after = self.state.next_round;
        if self.schedule().is_due(after, EvalPoint::AfterLastRound, self.runner.run.view())? {
            self.hand_out_weights(after, None)?;
            if !self.evaluate(after, EvalPoint::AfterLastRound)? {
                return Ok(Outcome::Interrupted);
            }
        }
        self.workers.stop()?;
        // Last, because a run that is marked as ended is complete and has no workers.
        folder::mark_ended(self.runner.run.view().path(), by, after)?;
        Ok(Outcome::Done)
    }

    /// Waits until the previous round is published, and records how long that took.
    fn await_publication(&mut self, record: &mut UpdateRecord) -> Result<()> {
        let started = Instant::now();
        if let Some((round, times)) = self.publisher.wait()? {
            self.events.emit(RunEvent::RoundPublished { round, seconds: times.all });
            record.times.publishing = times;
        }
        record.times.publish_wait += started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Waits until workers may read the weights of the previous round, which is longer if it trained nothing. Returns their
    /// folder, unless it is a checkpoint.
    fn await_weights(&mut self, record: &mut UpdateRecord) -> Result<Option<PathBuf>> {
        let started = Instant::now();
        let folder = self.publisher.await_weights();
        record.times.publish_wait += started.elapsed().as_secs_f64();
        if folder.is_none() {
            self.await_publication(record)?;
        }
        Ok(folder)
    }

    /// Waits until the last round is published and old checkpoints are deleted.
    fn finish_publication(&mut self) -> Result<()> {
        if let Some((round, times)) = self.publisher.finish()? {
            self.events.emit(RunEvent::RoundPublished { round, seconds: times.all });
        }
        Ok(())
    }

    /// Makes the weights of a round available to servers and remote workers: those in `folder`, or those of the last
    /// checkpoint.
    fn hand_out_weights(&mut self, policy_version: u32, folder: Option<PathBuf>) -> Result<()> {
        let Self { runner, workers, tokenizer, policies, trainer, events, .. } = self;
        let folder = match folder {
            Some(folder) => Some(folder),
            None => runner.run.checkpoint()?.map(|checkpoint| checkpoint.directory),
        };
        let notes = workers.begin_round(
            runner,
            policy_version,
            folder.as_deref(),
            tokenizer,
            policies,
            trainer.trainer(),
        )?;
        notes.iter().for_each(|note| events.emit(RunEvent::Note(note)));
        Ok(())
    }

    fn schedule(&self) -> EvalSchedule<'r> {
        let Runner { config, held_out, targets, .. } = self.runner;
        EvalSchedule { config, held_out, targets }
    }

    /// Evaluates the weights after `after` rounds, if that is due. Returns false if the user interrupted it.
    fn evaluate(&mut self, after: u32, point: EvalPoint) -> Result<bool> {
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
    fn check_guide(&mut self) -> Result<bool> {
        let (runner, workers) = (self.runner, &self.workers);
        let Some(mut check) = GuideCheck::new(&runner.config, &runner.targets) else { return Ok(true) };
        let (round, rounds) = (0, runner.config.rounds);
        self.events.emit(RunEvent::Stage { round, rounds, stage: RoundStage::Evaluating });
        let context = context(runner, &self.tokenizer, self.window, workers, 0);
        let mut dispatcher = Dispatcher::new(context, workers, None, RecheckPolicy::Off);
        let (end, _) = workers.watch(|| dispatcher.run(&mut check, self.events))?;
        let is_complete = end == SamplingEnd::Complete;
        if is_complete {
            check.outcome()?;
        }
        Ok(is_complete)
    }

    fn enter(&mut self, round: u32, stage: RoundStage) {
        self.events.emit(RunEvent::Stage { round, rounds: self.runner.config.rounds, stage });
    }
}

/// Returns what the tasks for the weights of `policy_version` depend on.
fn context<'a, D: Decode>(
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

/// A round whose tasks are being answered.
struct Sampling {
    round: Round,
    /// How far an earlier process has brought the round.
    next: NextStep,
    record: UpdateRecord,
    started: Instant,
}

impl Sampling {
    /// Begins or resumes a round. Returns `None` if the user interrupts the evaluation or check before it.
    fn begin<D: Parallel + Decode + 'static>(
        rounds: &mut RoundLoop<'_, '_, D>,
        next: NextStep,
    ) -> Result<Option<Self>>
    where
        PolicySet<D>: Send + Sync,
    {
        let mut started = Instant::now();
        let RoundLoop { runner, window, state, .. } = &*rounds;
        let algorithm = Arc::new(runner.config.algorithm.clone());
        let mut round = Round::new(algorithm, runner.config.seed, *window, &runner.targets, state)?;
        let conjecturer = &runner.config.algorithm.conjecturer;
        unsampled::add_conjectures(&mut round, conjecturer, &*runner.system, &runner.held_out)?;
        let mut record = rounds.resumed.take().unwrap_or_default();
        if next.is_sampling() {
            let reads = rounds.workers.read_weights_from_disk();
            let folder = if reads { rounds.await_weights(&mut record)? } else { None };
            rounds.hand_out_weights(round.number(), folder)?;
        }
        if next == NextStep::Start {
            let began = Instant::now();
            if round.number() == 0 && !rounds.check_guide()? {
                return Ok(None);
            }
            if !rounds.evaluate(round.number(), EvalPoint::BeforeRound)? {
                return Ok(None);
            }
            // The evaluation has its own time in the metrics; the check of the Guide is not part of the round.
            started += began.elapsed();
        }
        Ok(Some(Self { round, next, record, started }))
    }

    /// Samples what the round still lacks. Returns `None` if the user interrupts it.
    fn finish<D: Parallel + Decode + 'static>(
        self,
        rounds: &mut RoundLoop<'_, '_, D>,
    ) -> Result<Option<Updating>>
    where
        PolicySet<D>: Send + Sync,
    {
        let Self { round, next, mut record, started } = self;
        let (number, runner) = (round.number(), rounds.runner);
        runner.run.start_round(number)?;
        let (workers, journal) = (&rounds.workers, runner.run.journal());
        let context = context(runner, &rounds.tokenizer, rounds.window, workers, number);
        let recheck = workers.recheck_policy(&*runner.system, &runner.targets, &rounds.state);
        let mut dispatcher = Dispatcher::new(context, workers, Some(journal), recheck);
        let mut sampled = SampledRound { round, completions: Completions::new() };
        // Replay the journal before submitting anything: results that it holds are not requested again.
        let replayed = sampled.replay(journal, next.is_sampling(), &mut dispatcher.faults)?;
        if replayed > 0 {
            tracing::info!("round {number}: {replayed} results were in the journal");
        }
        rounds.events.emit(RunEvent::Stage {
            round: number,
            rounds: runner.config.rounds,
            stage: RoundStage::Sampling,
        });
        if next.is_sampling() {
            let (tokens, seconds) = (sampled.sampled_tokens(), workers.counters().seconds);
            let (end, times) = workers.watch(|| dispatcher.run(&mut sampled, rounds.events))?;
            if end == SamplingEnd::Interrupted {
                return Ok(None);
            }
            record.times.sampling = times.all;
            record.times.dispatcher = times.dispatcher;
            let after = workers.counters().seconds;
            record.times.sampler = std::array::from_fn(|i| after[i] - seconds[i]);
            record.times.sampled_tokens = sampled.sampled_tokens() - tokens;
        }
        let SampledRound { round, completions } = sampled;
        let outcome = round.finish(&rounds.state)?;
        infra::refuse_broken_round(&outcome)?;
        Ok(Some(Updating { outcome, completions, is_updated: next == NextStep::Publish, record, started }))
    }
}

/// A sampled round whose policies are being trained.
struct Updating {
    outcome: RoundOutcome,
    completions: Completions,
    /// Whether an earlier process has done the update and stored its checkpoint.
    is_updated: bool,
    record: UpdateRecord,
    started: Instant,
}

impl Updating {
    /// Trains on the round, and copies the new weights for publication.
    fn finish<D: Parallel + Decode + 'static>(
        mut self,
        rounds: &mut RoundLoop<'_, '_, D>,
    ) -> Result<Publishing>
    where
        PolicySet<D>: Send + Sync,
    {
        let orders = rounds.trainer.orders().cloned();
        // Wait for the previous round if the update depends on its publication: other ranks write their part of the
        // checkpoint from the weights that are trained now, and expert iteration reads the tables of earlier rounds.
        if orders.is_some() || update::needs_earlier_rounds(&self.outcome) {
            rounds.await_publication(&mut self.record)?;
        }
        let is_trained = if self.is_updated {
            // The weights that the matching was computed with no longer exist: use the stored one.
            if let Some(matching) = self.record.matching.clone() {
                self.outcome.reweigh(matching);
            }
            false
        } else {
            // The update depends on every result: all of them must be durable first.
            rounds.runner.run.finish_sampling(self.outcome.round)?;
            self.match_conjectures(rounds)?;
            self.train(rounds)?
        };
        // One publication at a time, so that checkpoints and markers are stored in the order of the rounds.
        rounds.await_publication(&mut self.record)?;
        let copying = Instant::now();
        let weights = if is_trained { Some(self.copy_weights(rounds, orders)?) } else { None };
        self.record.times.snapshot = copying.elapsed().as_secs_f64();
        let Self { outcome, completions, is_updated, record, started } = self;
        Ok(Publishing { outcome, completions, is_updated, weights, record, started })
    }

    /// Re-weights the round's conjectures by their similarity to unsolved targets (STP).
    #[allow(clippy::expect_used, reason = "`uses_base` says which weights are loaded")]
    fn match_conjectures<D: Parallel + Decode>(&mut self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<()> {
        let (started, runner) = (Instant::now(), rounds.runner);
        if !runner.config.algorithm.conjecturer.is_reweighted() {
            return Ok(());
        }
        let policies = rounds.policies.read().unwrap_or_else(PoisonError::into_inner);
        let unsolved = rounds.state.unsolved_after(&self.outcome, &runner.targets, runner.config.seed);
        let model = policies.model(Role::Conjecturer);
        let model =
            model.expect("invariant: a run that re-weights has the Conjecturer's weights or the base model");
        let mut embedder =
            Embedder { model, tokenizer: &rounds.tokenizer, trainer: rounds.trainer.trainer() };
        self.record.matching = embedder.matching(&runner.config, &self.outcome, &unsolved)?;
        if let Some(matching) = &self.record.matching {
            self.outcome.reweigh(matching.clone());
            self.record.times.matching = started.elapsed().as_secs_f64();
        }
        Ok(())
    }

    /// Trains Solver and Conjecturer. Returns whether there are new weights.
    fn train<D: Parallel + Decode + 'static>(&mut self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<bool>
    where
        PolicySet<D>: Send + Sync,
    {
        let (round, runner) = (self.outcome.round, rounds.runner);
        rounds.enter(round, RoundStage::Updating);
        let mut policies = rounds.policies.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let report = update::update(
            &runner.config,
            runner.run.view(),
            &self.outcome,
            &self.completions,
            &mut policies,
            rounds.trainer,
        )?;
        self.record.times.update = started.elapsed().as_secs_f64();
        // Check before the new weights are stored anywhere. A run that stops here is resumed with the previous weights
        // and samples the round again.
        let warning = update::gap_warning(&runner.config, &report);
        if warning.is_err() {
            runner.run.forget_round(round)?;
        }
        if let Some(warning) = warning? {
            rounds.events.emit(RunEvent::Warning(&warning));
        }
        let is_trained = report.solver.is_some() || report.conjecturer.is_some();
        self.record.update = report;
        Ok(is_trained)
    }

    /// Copies the trained weights to the host, because the next update changes them while they are being written.
    fn copy_weights<D: Parallel + Decode>(
        &self,
        rounds: &mut RoundLoop<'_, '_, D>,
        orders: Option<CommandChannel>,
    ) -> Result<HostSnapshots> {
        let policies = rounds.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.trained.snapshot(orders, rounds.publisher.take_spare())
    }
}

/// A trained round whose checkpoint and tables are about to be written.
struct Publishing {
    outcome: RoundOutcome,
    completions: Completions,
    is_updated: bool,
    /// The new weights; `None` if nothing was trained.
    weights: Option<HostSnapshots>,
    record: UpdateRecord,
    started: Instant,
}

impl Publishing {
    /// Adds the round to the run's state, reports it, and starts its publication in the background.
    fn start<D: Parallel + Decode>(self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<()> {
        let Self { outcome, completions, is_updated, weights, record, started } = self;
        let runner = rounds.runner;
        rounds.state.absorb(&outcome)?;
        let features = StatementFeatures::find(&*runner.system, &outcome);
        let repeated = runner.run.journal().duplicates();
        let metrics = round_metrics(&rounds.state, &outcome, &features, &record, repeated, started.elapsed());
        if let Some(warning) = guide_format::warning(outcome.round, &metrics) {
            rounds.events.emit(RunEvent::Warning(&warning));
        }
        rounds.events.emit(RunEvent::RoundFinished { outcome: &outcome, metrics: &metrics });
        rounds.publisher.start(Publication {
            run: Arc::clone(&runner.run),
            config: Arc::clone(&runner.config),
            features,
            outcome,
            completions,
            record,
            weights,
            hands_out: rounds.workers.read_weights_from_disk(),
            updated: is_updated,
            companions: ["tokenizer.json", "tokenizer_config.json"].map(|n| runner.base.join(n)).to_vec(),
            metrics,
        })
    }
}
