//! The inputs of a run, and its start.

use super::event::{EventStream, Listener};
use super::rounds::RoundLoop;
use crate::config::RunConfig;
use crate::error::Result;
use crate::train::policies::PolicySet;
use crate::train::ranks::command::RankCommand;
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use crate::workers::config::{By, FleetConfig};
use crate::{Outcome, StopFlag};
use sgs_formal::FormalSystem;
use sgs_lm::ranks::{Parallel, ProcessGroup};
use sgs_lm::trainer::Trainer;
use sgs_lm_sampler::Decode;
use sgs_rundir::{NextStep, ResumePlan, RunDir};
use sgs_selfplay::Problem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Everything that a run works with. [`Runner::work`] runs it.
pub struct Runner<D: Decode> {
    /// The effective configuration.
    pub config: Arc<RunConfig>,
    /// The formal system.
    pub system: Arc<dyn FormalSystem>,
    /// The targets, in order.
    pub targets: Vec<Arc<Problem>>,
    /// Problems that the run is evaluated on and never trained on. Can be empty.
    pub held_out: Vec<Arc<Problem>>,
    /// The run's folder.
    pub run: Arc<RunDir>,
    /// The device that the model computes on.
    pub device: Arc<D>,
    /// Folder of the base model.
    pub base: PathBuf,
    /// Set it to interrupt the run.
    pub interrupt: StopFlag,
    /// How workers outside of this process are started and reached; `None` if there are none.
    pub fleet: Option<FleetConfig>,
    /// The process group of the training ranks; `None` if this process trains alone.
    pub process_group: Option<ProcessGroup>,
}

impl<D: Decode> Runner<D> {
    /// Returns true if this process samples, and so the other ranks do.
    pub(crate) fn samples(&self) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.generate.by == By::Embedded)
    }
}

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
