//! The start of a run, and its loop over the rounds.
//!
//! Each round passes through the stages of `stages.rs`. Its publication runs in the background while the next round
//! samples, so at most two rounds are in progress at any time.

use super::evaluation::EvalPoint;
use super::event::{EventStream, Listener};
use super::rounds::RoundLoop;
use super::runner::Runner;
use super::stages::Sampling;
use crate::Outcome;
use crate::config::folder;
use crate::error::{Result, RunError};
use crate::train::policies::PolicySet;
use crate::train::ranks::command::RankCommand;
use crate::train::ranks::distributed_trainer::{DistributedTrainer, trainer_of};
use crate::workers::tasks::own_mark;
use sgs_endpoint::EndpointError;
use sgs_lm::ranks::Parallel;
use sgs_lm_sampler::Decode;
use sgs_rundir::{EndReason, NextStep, ResumePlan};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<D: Parallel + Decode + 'static> Runner<D>
where
    PolicySet<D>: Send + Sync,
{
    /// Runs rounds until the configured end, the time limit or an interrupt, starting where the run stopped.
    ///
    /// # Errors
    /// Returns an error if any part of the run fails. Finished work is on disk, and the run can be resumed.
    pub fn work<'a>(mut self, listener: &'a mut Listener<'a>) -> Result<Outcome> {
        let mut events = EventStream::new(&self.targets, listener);
        // Before anything is sampled, so that a run never mixes the verdicts of two checkers.
        folder::same_checker(self.run.view().path(), &self.system.identity())?;
        let plan = self.run.plan(0)?;
        let (policies, mut trainer) = self.load(&plan)?;
        let done =
            RoundLoop::open(&self, &plan, policies, &mut trainer, &mut events).and_then(RoundLoop::run);
        trainer.end(match done {
            // The user interrupted the wait for a server.
            Err(RunError::Endpoint(EndpointError::Cancelled)) => Ok(Outcome::Interrupted),
            done => done,
        })
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
        let samples = self.samples();
        if let Some(group) = &group {
            let stop = self.interrupt.flag();
            group.on_loss(move || stop.store(true, Ordering::Release));
            let mut config = (*self.config).clone();
            if config.model.guide != "base" {
                config.model.guide = std::path::absolute(&config.model.guide)?.display().to_string();
            }
            let (config, base) = (toml::to_string(&config)?, std::path::absolute(&self.base)?);
            let at = at.as_ref().map(std::path::absolute).transpose()?;
            let load = RankCommand::Load { config, base, at, policy_version, samples };
            group.command_channel().send(&load.encode()?)?;
        }
        let (config, device) = (&self.config, &self.device);
        let loaded =
            PolicySet::load(config, device, &self.base, at.as_deref(), policy_version, place, samples);
        if let (Err(error), Some(group)) = (&loaded, &group) {
            group.fail(&format!("{error:#}"));
        }
        let mut policies = loaded?;
        policies.mark = own_mark().to_owned();
        let peers = group.map(|group| D::connect(&self.device, group)).transpose()?;
        let trainer = trainer_of(&self.config, Arc::clone(&self.device), policies.config(), peers)?;
        Ok((policies, DistributedTrainer::lead(trainer)))
    }
}

impl<'r, D: Parallel + Decode> RoundLoop<'r, '_, D> {
    /// Runs rounds until the run reaches one of its limits or the user interrupts it.
    fn run(mut self) -> Result<Outcome> {
        let ended_by = loop {
            if self.state.next_round >= self.runner.config.rounds {
                break EndReason::Rounds;
            }
            // A resumed run can have two rounds in progress: one to publish, and the next one partly sampled.
            let next = self.runner.run.next_step(self.state.next_round)?;
            // Finish a round that has begun, regardless of the limits, because its samples already exist.
            if next == NextStep::Start && self.is_out_of_time() {
                break EndReason::Minutes;
            }
            if next == NextStep::Start && self.runner.config.has_spent(self.state.generations) {
                break EndReason::Generations;
            }
            // A further round follows, for example because a limit was raised, so the run has not ended.
            self.runner.run.forget_end()?;
            if self.runner.interrupt.is_set() {
                self.finish_publication()?;
                // If a worker thread fails, it also sets the interrupt flag. `watch` then returns its error.
                return self.workers.watch(|| Ok(Outcome::Interrupted));
            }
            let Some(sampling) = Sampling::begin(&mut self, next)? else { return self.interrupted() };
            let Some(updating) = sampling.finish(&mut self)? else { return self.interrupted() };
            // From here on, the round is published in the background, and the next one begins.
            updating.finish(&mut self)?;
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

    /// Ends the run after its last round.
    fn end(mut self, by: EndReason) -> Result<Outcome> {
        // The last evaluation reads the checkpoint that is being published.
        self.finish_publication()?;
        let after = self.state.next_round;
        if self.schedule().is_due(after, EvalPoint::AfterLastRound, self.runner.run.view())? {
            self.hand_out_weights(after, None)?;
            if !self.evaluate(after, EvalPoint::AfterLastRound)? {
                return Ok(Outcome::Interrupted);
            }
        }
        self.workers.stop()?;
        // Remove the weights after the workers, which read them, have stopped, and before the run is marked as ended,
        // so that a run that is killed in between is ended again.
        self.runner.run.remove_weights()?;
        // Mark the end last, because a run that is marked as ended is complete and has no workers.
        self.runner.run.mark_ended(by, after)?;
        Ok(Outcome::Done)
    }
}
