//! A rank other than 0: executes the commands of rank 0, and samples tasks of its board between updates.
//!
//! The thread of the commands and that of the sampler share the policies. Three rules keep them apart:
//! - Only the thread of the commands takes part in collective operations, so all ranks make the same calls in the same
//!   order, however much each of them samples.
//! - It locks the policies from the first `Train` of an update to `Sample`. The sampler, which locks them for each step,
//!   stops there and never sees the weights between two passes.
//! - `Sample` increases the policy version before it unlocks them. If a completion was begun before the update, and
//!   another rank has finished its task in the meantime, the completion has the old version and is discarded.
//!
//! Rank 0 trains only after the last result of the round, so no rank waits for another one's samples in an update. The
//! sampler waits for rank 0 in HTTPS requests, never in the process group.

use crate::config::RunConfig;
use crate::config::device::{self, threads};
use crate::error::{Context, Result, RunError, bail, ensure};
use crate::train::launcher::{RankEnv, UNWIND, gpu_of};
use crate::train::policies::{self, PolicySet};
use crate::train::ranks::board_access::BoardAccess;
use crate::train::ranks::command::RankCommand;
use crate::train::ranks::distributed_trainer::{DistributedTrainer, trainer_of};
use crate::train::ranks::rank_group;
use crate::train::ranks::usage::BusyTime;
use crate::with_device;
use crate::workers::generate::{self, GenerateCounters, GenerateSettings, SamplerSlot};
use crate::workers::tasks::GENERATE;
use crate::{Code, Outcome, StopFlag};
use sgs_fleet::{WorkerConfig, WorkerName, WorkerSession};
use sgs_lm::Device;
use sgs_lm::ranks::{CommandChannel, Parallel, ProcessGroup};
use sgs_lm_sampler::Decode;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Joins the process group and executes commands until rank 0 leaves. Writes only into checkpoints of the run `folder`.
///
/// # Errors
/// Returns an error if a rank is lost, a command fails, or this rank's device fails. Rank 0 is informed.
pub fn run(env: &RankEnv, folder: &Path) -> Result<Outcome> {
    // Signals reach all ranks. Ignore the first one, because rank 0 decides; the second one ends the process.
    let asked = StopFlag::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, Code::Interrupted.into(), asked.flag())?;
        signal_hook::flag::register(signal, asked.flag())?;
    }
    let mut group = env.meet(&rank_group::job(), UNWIND)?;
    let job = match TrainingSetup::wait_for(&mut group) {
        Ok(Some(job)) => job,
        Ok(None) => {
            group.finish();
            return Ok(Outcome::Done);
        }
        Err(error) => return Err(report_failure(&group, error)),
    };
    let kind = device::kind(&job.config.model.device);
    match kind.and_then(|kind| Ok((kind, gpu_of(kind, Some(env))?))) {
        Ok((kind, gpu)) => {
            with_device!(kind, env.threads(threads()), gpu, device => job.follow(group, device, folder))
        }
        Err(error) => Err(report_failure(&group, error)),
    }
}

/// Reports this rank's failure to all ranks.
fn report_failure(group: &ProcessGroup, error: RunError) -> RunError {
    group.fail(&format!("{error:#}"));
    error
}

/// Checks that a folder that rank 0 names is a checkpoint of this rank's own run.
fn is_checkpoint_of(run: &Path, folder: &Path) -> Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).with_context(|| path.display().to_string());
    if real(folder)?.starts_with(real(&run.join("checkpoints"))?) {
        return Ok(());
    }
    let (folder, run) = (folder.display(), run.display());
    bail!(
        "rank 0 sent the folder {folder}, but this rank writes only into its run {run}: give all ranks the same --out"
    )
}

/// The model to train, and the weights to start from.
struct TrainingSetup {
    config: RunConfig,
    base: PathBuf,
    at: Option<PathBuf>,
    policy_version: u32,
    samples: bool,
}

type Shared<D> = RwLock<PolicySet<D>>;

impl TrainingSetup {
    /// Waits for the first command; `None` if rank 0 leaves without one.
    fn wait_for(group: &mut ProcessGroup) -> Result<Option<Self>> {
        let Some(command) = group.next_command()? else { return Ok(None) };
        let RankCommand::Load { config, base, at, policy_version, samples } = RankCommand::decode(&command)?
        else {
            bail!("rank 0 sent a command before the command `Load`")
        };
        let config = toml::from_str(&config).context("the configuration that rank 0 sent")?;
        Ok(Some(Self { config, base, at, policy_version, samples }))
    }

    fn follow<D: Parallel + Decode + 'static>(
        &self,
        group: ProcessGroup,
        device: Arc<D>,
        folder: &Path,
    ) -> Result<Outcome>
    where
        PolicySet<D>: Send + Sync,
    {
        let Self { config, base, at, policy_version, samples } = self;
        let place = (group.rank(), group.ranks());
        let loaded = PolicySet::load(config, &device, base, at.as_deref(), *policy_version, place, *samples);
        let set = loaded.map_err(|error| report_failure(&group, error))?;
        let peers = D::connect(&device, group)?;
        let mut trainer = DistributedTrainer::new(trainer_of(config, device, set.config(), Some(peers))?);
        let policies = Arc::new(RwLock::new(set));
        let mut sampler = RankSampler { drain: StopFlag::default(), thread: None };
        let done = self.run_commands(&policies, &mut trainer, &mut sampler, folder);
        // Stop it before the group ends, so that rank 0 is notified of a failure of the sampler.
        let done = done.and(sampler.stop());
        trainer.end(done).map(|()| Outcome::Done)
    }

    /// Executes commands until rank 0 leaves.
    fn run_commands<D: Parallel + Decode + 'static>(
        &self,
        policies: &Arc<Shared<D>>,
        trainer: &mut DistributedTrainer<D>,
        sampler: &mut RankSampler,
        own: &Path,
    ) -> Result<()>
    where
        PolicySet<D>: Send + Sync,
    {
        let mut update: Option<RwLockWriteGuard<'_, PolicySet<D>>> = None;
        loop {
            let Some(command) = group_of(trainer)?.next_command()? else { return Ok(()) };
            match RankCommand::decode(&command)? {
                RankCommand::Load { .. } => bail!("rank 0 sent the command `Load` twice"),
                RankCommand::Work(access) => {
                    policies::write(policies).mark.clone_from(&access.mark);
                    let slot = SamplerSlot::of_rank(&self.config, policies, trainer)?;
                    let group = group_of(trainer)?;
                    let busy = sampler.start(&self.config, &access, Arc::clone(policies), slot, group)?;
                    trainer.watch(busy);
                }
                RankCommand::Train { pass, examples } => {
                    let set = update.get_or_insert_with(|| policies::write(policies));
                    trainer.begin_passes(set);
                    let role = pass.role;
                    let policy = set.trained.policy(role);
                    let policy = policy.with_context(|| format!("the {} is not trained", role.as_str()))?;
                    trainer.train_once(&self.config, pass, policy, &examples)?;
                    tracing::info!("{}: {} examples, pass {}", role.as_str(), examples.len(), pass.number);
                }
                RankCommand::Sample { policy_version } => {
                    let mut policies = update.take().unwrap_or_else(|| policies::write(policies));
                    trainer.end_passes(&mut policies);
                    policies.policy_version = policy_version;
                    drop(policies);
                    tracing::info!("sampling with policy {policy_version}");
                    trainer.exchange_usage()?;
                }
                RankCommand::Save { folder } => {
                    ensure!(update.is_none(), "rank 0 sent the command `Save` during an update");
                    // Rank 0 reports the failure and ends the run. Meanwhile, the sampler may still read the weights.
                    let policies = policies::read(policies);
                    let trained = &policies.trained;
                    let saved = is_checkpoint_of(own, &folder).and_then(|()| trained.save_part(&folder));
                    let failure = saved.err().map(|error| format!("{error:#}"));
                    group_of(trainer)?.acknowledge(failure.as_deref().map_or(Ok(()), Err))?;
                }
            }
        }
    }
}

fn group_of<D: Device>(trainer: &mut DistributedTrainer<D>) -> Result<&mut ProcessGroup> {
    trainer.trainer().group().ok_or_else(|| RunError::Failed("this rank is alone".into()))
}

struct RankSampler {
    drain: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl RankSampler {
    /// Starts sampling tasks of rank 0's board and returns the sampler's busy time. If sampling fails, rank 0 is
    /// notified.
    fn start<D: Parallel + Decode + 'static>(
        &mut self,
        config: &RunConfig,
        access: &BoardAccess,
        policies: Arc<Shared<D>>,
        slot: Arc<SamplerSlot<D>>,
        group: &ProcessGroup,
    ) -> Result<BusyTime>
    where
        PolicySet<D>: Send + Sync,
    {
        let rank_0 = group.members()[0].address.ip();
        let (rank, host, process) = (group.rank(), sgs_base::host::host_name(), std::process::id());
        let name = WorkerName::new(&format!("{GENERATE}-rank-{rank}-{host}-{process}"))?;
        let client = Arc::new(access.client(rank_0)?);
        let session = WorkerSession::start(client, WorkerConfig::new(name, GENERATE), self.drain.clone())?;
        let settings = GenerateSettings::of_run(config, &access.stop, false);
        let (drain, channel) = (self.drain.clone(), group.command_channel());
        let counters = Arc::new(Mutex::new(GenerateCounters::default()));
        let own = Arc::clone(&counters);
        let body = move || sample(&session, &policies, &slot, &settings, &drain, &channel, &own);
        let thread = std::thread::Builder::new().name(GENERATE.to_string()).stack_size(16 << 20);
        self.thread = Some(thread.spawn(body).context("cannot start the sampler's thread")?);
        Ok(Box::new(move || GenerateCounters::of(&counters).busy))
    }

    fn stop(self) -> Result<()> {
        self.drain.set();
        let ended = self.thread.map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| RunError::Failed("the sampler's thread panicked".into()))
    }
}

/// Samples until the drain begins.
fn sample<D: Parallel + Decode>(
    session: &WorkerSession,
    policies: &Shared<D>,
    slot: &SamplerSlot<D>,
    settings: &GenerateSettings,
    drain: &StopFlag,
    channel: &CommandChannel,
    counters: &Mutex<GenerateCounters>,
) {
    // Rank 0 may submit tasks for new weights before this rank has received the command that ends the update.
    let follow = |policy_version| {
        let version = || policies::read(policies).policy_version;
        while version() < policy_version && !drain.is_set() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let done = generate::work(session, policies, slot, follow, settings, drain, counters);
    tracing::info!("{} tasks were sampled for rank 0", session.summary().accepted);
    if let Err(error) = done {
        channel.fail(&format!("{error:#}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_writes_only_into_checkpoints_of_its_own_run() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        for folder in ["own/checkpoints/new", "own/tables", "other/checkpoints/new", "own-too/checkpoints"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("other"), own.join("checkpoints/link")).unwrap();
        is_checkpoint_of(&own, &own.join("checkpoints/new")).unwrap();
        for folder in [
            "own/tables",
            "own/checkpoints/new/../../tables",
            "own/checkpoints/link/checkpoints/new",
            "other/checkpoints/new",
            "own-too/checkpoints",
            "own/checkpoints/missing",
        ] {
            let error = is_checkpoint_of(&own, &dir.path().join(folder)).unwrap_err();
            assert!(error.to_string().contains("own"), "{folder}: {error}");
        }
    }
}
