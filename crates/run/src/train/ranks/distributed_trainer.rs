//! The trainer of a process together with its link to the other ranks.

use super::board_access::BoardAccess;
use super::command::RankCommand;
use super::usage::{BusyTime, RankUsage, UsageClock};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::train::pass::{self, TrainingPass};
use crate::train::policies::PolicySet;
use sgs_fleet::{Fleet, Service, WorkKind};
use sgs_lm::loss::TrainExample;
use sgs_lm::ranks::{Collective, CommandChannel};
use sgs_lm::trainer::{Policy, TrainReport, Trainer};
use sgs_lm::{Device, ModelConfig};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Creates the trainer of a rank. It holds no buffers for passes if the run trains nothing.
pub fn trainer_of<D: Device>(
    config: &RunConfig,
    device: Arc<D>,
    model: &ModelConfig,
    peers: Option<Box<dyn Collective<D>>>,
) -> Result<Trainer<D>> {
    let tokens = config.training_tokens(model);
    let mut trainer = Trainer::with_peers(device, model, tokens, config.training.mode(), peers)?;
    if !config.algorithm.trains() {
        trainer.release_buffers();
    }
    Ok(trainer)
}

/// The trainer of a process, with the channel to the ranks that it commands, if any.
pub struct DistributedTrainer<D: Device> {
    trainer: Trainer<D>,
    commands: Option<CommandChannel>,
    usage: UsageClock,
    /// Frees the memory of this process's samplers, if they and the trainer use the device's memory in turns.
    release_samplers: Option<Box<dyn Fn() + Send>>,
    /// Serves the board to the other ranks. It is dropped after the trainer. Dropping the trainer makes this rank leave
    /// the group, so the others stop sampling before the board is gone.
    board: Option<Service>,
}

impl<D: Device> DistributedTrainer<D> {
    /// Creates a trainer whose other ranks need no commands.
    pub fn new(trainer: Trainer<D>) -> Self {
        Self { trainer, commands: None, usage: UsageClock::new(None), release_samplers: None, board: None }
    }

    /// Creates the trainer of rank 0, or of the only process.
    pub fn lead(mut trainer: Trainer<D>) -> Self {
        let commands = trainer.group().map(|group| group.command_channel());
        Self { commands, ..Self::new(trainer) }
    }

    pub fn trainer(&mut self) -> &mut Trainer<D> {
        &mut self.trainer
    }

    /// Lets this process's samplers and the trainer use the device's memory in turns from now on. `release_samplers`
    /// frees the memory of the samplers.
    pub fn take_turns(&mut self, release_samplers: Box<dyn Fn() + Send>) {
        self.trainer.release_buffers();
        self.release_samplers = Some(release_samplers);
    }

    /// Frees the memory of the samplers for the passes that follow, if both take turns. The policies are locked for
    /// writing until [`DistributedTrainer::end_passes`], so that no sampler is created in the meantime.
    pub fn begin_passes(&mut self, _locked: &mut PolicySet<D>) {
        if let Some(release) = &self.release_samplers {
            release();
        }
    }

    /// Frees the memory of the passes for the samplers, if both take turns.
    pub fn end_passes(&mut self, _locked: &mut PolicySet<D>) {
        if self.release_samplers.is_some() {
            self.trainer.release_buffers();
        }
    }

    pub fn commands(&self) -> Option<&CommandChannel> {
        self.commands.as_ref()
    }

    /// Measures the use of this rank's device from now on, by the trainer and this sampler.
    pub fn watch(&mut self, sampler: BusyTime) {
        self.usage = UsageClock::new(Some(sampler));
    }

    /// Lets the other ranks, if any, execute the board's tasks of a kind. Rank 0 accepts results with `mark`.
    pub fn share_board(&mut self, fleet: &Fleet, kind: WorkKind, mark: &str, stop: &[u32]) -> Result<()> {
        let (Some(commands), Some(group)) = (&self.commands, self.trainer.group()) else { return Ok(()) };
        let (service, access) =
            BoardAccess::open(fleet, group.listening_ip()?, kind, mark.to_owned(), stop.to_vec())?;
        commands.send(&RankCommand::Work(access).encode()?)?;
        self.board = Some(service);
        Ok(())
    }

    /// Notifies the other ranks that an update is complete, so that they sample with its weights. Must be called after
    /// the last command of the update and before the next command that is acknowledged, because a command in between
    /// would discard the answers to this one. Returns the usage of all ranks.
    pub fn end_update(&mut self, policy_version: u32) -> Result<Vec<RankUsage>> {
        if let Some(commands) = &self.commands {
            commands.send(&RankCommand::Sample { policy_version }.encode()?)?;
        }
        self.exchange_usage()
    }

    /// Returns the usage of all ranks, which call this together at the end of an update.
    pub fn exchange_usage(&mut self) -> Result<Vec<RankUsage>> {
        let sent = self.trainer.group().map(|group| group.sent_bytes());
        let own = self.usage.take(self.trainer.device().peak_bytes(), sent);
        let Some(group) = self.trainer.group() else { return Ok(vec![own]) };
        let rows = group.exchange(&own.map(|value| value.unwrap_or(f64::NAN)))?;
        let usage =
            |row: Vec<f64>| std::array::from_fn(|i| row.get(i).copied().filter(|value| !value.is_nan()));
        Ok(rows.into_iter().map(usage).collect())
    }

    /// Trains a policy on examples once, on all ranks.
    pub fn train_once(
        &mut self,
        config: &RunConfig,
        pass: TrainingPass,
        policy: &mut Policy<D>,
        examples: &[TrainExample],
    ) -> Result<TrainReport> {
        if let Some(commands) = &self.commands {
            let command = RankCommand::Train { pass, examples: Cow::Borrowed(examples) };
            commands.send(&command.encode()?)?;
        }
        let Self { trainer, usage, .. } = self;
        usage.train(|| pass::train_once(config, pass, policy, examples, trainer))
    }

    /// Reports the end of this rank's work to the others and returns the result of the work. If a rank was lost,
    /// returns that error instead of those that the loss has caused.
    ///
    /// # Errors
    /// Returns the error of the work, or an error if a rank was lost.
    pub fn end<T, E: fmt::Display + From<RunError>>(&mut self, done: Result<T, E>) -> Result<T, E> {
        let Some(group) = self.trainer.group() else { return done };
        match (done, group.command_channel().check()) {
            (Ok(done), Ok(())) => {
                group.finish();
                Ok(done)
            }
            (Err(error), Ok(())) => {
                group.fail(&format!("{error:#}"));
                Err(error)
            }
            (Ok(_), Err(lost)) => Err(RunError::from(lost).into()),
            (Err(consequence), Err(lost)) => {
                tracing::debug!("an error after the loss of a rank: {consequence:#}");
                Err(RunError::from(lost).into())
            }
        }
    }
}
