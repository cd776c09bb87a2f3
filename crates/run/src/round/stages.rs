//! The stages of a round: [`Sampling`] and [`Updating`], which ends with the start of the round's publication.
//!
//! A stage owns the data of the round in progress. [`RoundLoop`] holds the data that all rounds share.

use super::dispatcher::{Dispatcher, Work as _};
use super::evaluation::EvalPoint;
use super::event::{EventStream, RoundStage, RunEvent};
use super::infra;
use super::publication::{Publication, StatementFeatures};
use super::round_metrics::round_metrics;
use super::rounds::{RoundLoop, context};
use super::run_workers::RunWorkers;
use super::sampled_round::SampledRound;
use super::unsampled;
use super::update_record::UpdateRecord;
use crate::config::guide_format;
use crate::error::Result;
use crate::train::matching::Embedder;
use crate::train::policies::{self, HostSnapshots};
use crate::train::update::{self, Completions};
use sgs_lm::ranks::Parallel;
use sgs_lm_sampler::Decode;
use sgs_rundir::NextStep;
use sgs_selfplay::{Role, Round, RoundOutcome};
use std::sync::Arc;
use std::time::Instant;

/// A round whose tasks are being executed.
pub(super) struct Sampling {
    sampled: SampledRound,
    /// The step that an earlier process had reached in the round.
    next: NextStep,
    record: UpdateRecord,
    started: Instant,
}

impl Sampling {
    /// Begins or resumes a round. Returns `None` if the user interrupts the evaluation or check before it.
    pub(super) fn begin<D: Parallel + Decode>(
        rounds: &mut RoundLoop<'_, '_, D>,
        next: NextStep,
    ) -> Result<Option<Self>> {
        let mut started = Instant::now();
        let RoundLoop { runner, window, state, .. } = &*rounds;
        let algorithm = Arc::new(runner.config.algorithm.clone());
        let mut round = Round::new(algorithm, runner.config.seed, *window, &runner.targets, state)?;
        let conjecturer = &runner.config.algorithm.conjecturer;
        unsampled::add_conjectures(&mut round, conjecturer, &*runner.system, &runner.held_out)?;
        let number = round.number();
        let mut record = rounds.resumed.take().unwrap_or_default();
        // Make the weights available before the evaluation and the check of the Guide, because their tasks also need
        // them.
        if next.is_sampling() {
            let from_disk = rounds.workers.read_weights_from_disk();
            let folder = if from_disk { rounds.await_weights(&mut record)? } else { None };
            rounds.hand_out_weights(number, folder)?;
        }
        // Do this only before the first task of a round, because a resumed round has already done both.
        if next == NextStep::Start {
            let began = Instant::now();
            if number == 0 && !rounds.check_guide()? {
                return Ok(None);
            }
            if !rounds.evaluate(number, EvalPoint::BeforeRound)? {
                return Ok(None);
            }
            // The metrics record the time of the evaluation separately. The check of the Guide is not part of the
            // round.
            started += began.elapsed();
        }
        let sampled = SampledRound { round, completions: Completions::new() };
        Ok(Some(Self { sampled, next, record, started }))
    }

    /// Samples and verifies everything that the round does not have yet. Returns `None` if the user interrupts it.
    pub(super) fn finish<D: Parallel + Decode>(
        mut self,
        rounds: &mut RoundLoop<'_, '_, D>,
    ) -> Result<Option<Updating>> {
        let number = self.sampled.round.number();
        let RoundLoop { runner, tokenizer, window, workers, events, state, .. } = rounds;
        // Write the marker before the round's first record, so that recovery knows which round a record belongs to.
        runner.run.start_round(number)?;
        let journal = runner.run.journal();
        let context = context(runner, tokenizer, *window, workers, number);
        let recheck = workers.recheck_policy(&*runner.system, &runner.targets, state);
        let mut dispatcher = Dispatcher::new(context, workers, Some(journal), recheck);
        // Replay the journal before submitting tasks, so that results in it are not requested again.
        let replayed = self.sampled.replay(journal, self.next.is_sampling(), &mut dispatcher.faults)?;
        if replayed > 0 {
            tracing::info!("round {number}: {replayed} results were in the journal");
        }
        events.emit(RunEvent::Stage {
            round: number,
            rounds: runner.config.rounds,
            stage: RoundStage::Sampling,
        });
        if self.next.is_sampling() && !self.execute(&mut dispatcher, workers, events)? {
            return Ok(None);
        }
        let Self { sampled: SampledRound { round, completions }, next, record, started } = self;
        let outcome = round.finish(state)?;
        // Check this before anything is trained, because infrastructure faults must not count as failed proofs.
        infra::refuse_broken_round(&outcome)?;
        Ok(Some(Updating { outcome, completions, is_updated: next == NextStep::Publish, record, started }))
    }

    /// Lets the workers execute the open tasks, and records the time that this took. Returns false if the user
    /// interrupts it.
    fn execute(
        &mut self,
        dispatcher: &mut Dispatcher<'_>,
        workers: &RunWorkers,
        events: &mut EventStream<'_>,
    ) -> Result<bool> {
        // In a resumed round, exclude tokens of an earlier process, because their time was not measured here.
        let (tokens, seconds) = (self.sampled.sampled_tokens(), workers.counters().seconds);
        let times = workers.watch(|| dispatcher.run(&mut self.sampled, events))?;
        let after = workers.counters().seconds;
        self.record.times.sampling = times.all;
        self.record.times.dispatcher = times.dispatcher;
        self.record.times.sampler = std::array::from_fn(|i| after[i] - seconds[i]);
        self.record.times.sampled_tokens = self.sampled.sampled_tokens() - tokens;
        Ok(self.sampled.is_complete())
    }
}

/// A sampled round whose policies are being trained.
pub(super) struct Updating {
    outcome: RoundOutcome,
    completions: Completions,
    /// Whether an earlier process has done the update and stored its checkpoint.
    is_updated: bool,
    record: UpdateRecord,
    started: Instant,
}

impl Updating {
    /// Trains on the round, copies the new weights, and starts the publication of the round in the background.
    pub(super) fn finish<D: Parallel + Decode>(mut self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<()> {
        let commands = rounds.trainer.commands().cloned();
        // Wait for the previous round if the update depends on its publication, because other ranks write their part of
        // the checkpoint from the weights that are trained now, and expert iteration reads the tables of earlier
        // rounds.
        if commands.is_some() || update::needs_earlier_rounds(&self.outcome) {
            rounds.await_publication(&mut self.record)?;
        }
        let is_trained = if self.is_updated {
            // Restore the weights of the conjectures that the earlier process computed before its update. They cannot be
            // computed again, because the models that the matching used no longer exist.
            if let Some(matching) = self.record.matching.clone() {
                self.outcome.reweigh(matching);
            }
            false
        } else {
            // The update depends on every result, so all of them must be durable first.
            rounds.runner.run.finish_sampling(self.outcome.round)?;
            // The matching changes the weights of the examples. It must run before training, because it uses the models
            // that sampled the round.
            self.match_conjectures(rounds)?;
            self.train(rounds)?
        };
        // Publish one round at a time, so that checkpoints and markers are stored in the order of the rounds. Wait only
        // here, so that the update runs in parallel with the previous publication.
        rounds.await_publication(&mut self.record)?;
        // Copy the weights to the host, because the next update changes them while they are being written. Copy after that
        // wait, because the copy reuses the memory that the previous publication has released.
        let copying = Instant::now();
        let copy = || {
            let policies = policies::read(&rounds.policies);
            policies.trained.snapshot(commands, rounds.publisher.take_spare())
        };
        let weights = is_trained.then(copy).transpose()?;
        self.record.times.snapshot = copying.elapsed().as_secs_f64();
        self.publish(rounds, weights)
    }

    /// Reweights the round's conjectures by their similarity to unsolved targets (STP).
    #[allow(clippy::expect_used, reason = "`LoadedModels` says which weights are loaded")]
    fn match_conjectures<D: Parallel + Decode>(&mut self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<()> {
        let (started, runner) = (Instant::now(), rounds.runner);
        if !runner.config.algorithm.conjecturer.is_reweighted() {
            return Ok(());
        }
        let mut policies = policies::write(&rounds.policies);
        rounds.trainer.begin_passes(&mut policies);
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
        rounds.trainer.end_passes(&mut policies);
        Ok(())
    }

    /// Trains Solver and Conjecturer. Returns whether there are new weights.
    fn train<D: Parallel + Decode>(&mut self, rounds: &mut RoundLoop<'_, '_, D>) -> Result<bool> {
        let (round, runner) = (self.outcome.round, rounds.runner);
        rounds.enter(round, RoundStage::Updating);
        let mut policies = policies::write(&rounds.policies);
        let started = Instant::now();
        let report = update::update(
            &runner.config,
            runner.run.view(),
            &self.outcome,
            rounds.state.generations,
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

    /// Adds the round to the run's state, reports it, and starts its publication. `weights` are the new ones, if anything
    /// was trained.
    fn publish<D: Parallel + Decode>(
        self,
        rounds: &mut RoundLoop<'_, '_, D>,
        weights: Option<HostSnapshots>,
    ) -> Result<()> {
        let Self { outcome, completions, is_updated, record, started } = self;
        let runner = rounds.runner;
        // Do this before computing the metrics, which include this round, and before the next round begins, which
        // depends on the state.
        rounds.state.absorb(&outcome)?;
        let features = StatementFeatures::find(&*runner.system, &outcome);
        let repeated = runner.run.journal().duplicates();
        let metrics = round_metrics(&rounds.state, &outcome, &features, &record, repeated, started.elapsed());
        if let Some(warning) = guide_format::warning(runner.config.problems.system, outcome.round, &metrics) {
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
