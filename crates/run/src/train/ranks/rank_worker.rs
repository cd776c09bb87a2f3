//! A rank other than 0: executes the commands of rank 0.

use super::command::RankCommand;
use super::distributed_trainer::DistributedTrainer;
use super::rank_group;
use crate::config::RunConfig;
use crate::config::device;
use crate::config::device::threads;
use crate::error::{Context, Result, RunError, bail};
use crate::train::launcher::{RankEnv, UNWIND, gpu_of};
use crate::train::pass;
use crate::train::policies::TrainablePolicies;
use crate::with_device;
use crate::{Code, Outcome, StopFlag};
use sgs_lm::ModelConfig;
use sgs_lm::ranks::{Parallel, ProcessGroup};
use sgs_lm::trainer::Trainer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    match prepare(&job.config, env) {
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

fn prepare(config: &RunConfig, env: &RankEnv) -> Result<(crate::config::device::DeviceKind, usize)> {
    let kind = device::kind(&config.model.device)?;
    Ok((kind, gpu_of(kind, Some(env))?))
}

/// Checks that a folder that rank 0 names is a checkpoint of this rank's own run.
fn is_checkpoint_of(run: &Path, folder: &Path) -> Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).with_context(|| path.display().to_string());
    if real(folder)?.starts_with(real(&run.join("checkpoints"))?) {
        return Ok(());
    }
    let (folder, run) = (folder.display(), run.display());
    bail!(
        "rank 0 wants {folder} written, but this rank writes only in its own run {run}: give all ranks the same --out"
    )
}

/// What to train, and from where.
struct TrainingSetup {
    config: RunConfig,
    base: PathBuf,
    at: Option<PathBuf>,
}

impl TrainingSetup {
    /// Waits for the first command; `None` if rank 0 leaves without one.
    fn wait_for(group: &mut ProcessGroup) -> Result<Option<Self>> {
        let Some(command) = group.next_command()? else { return Ok(None) };
        let RankCommand::Load { config, base, at } = RankCommand::decode(&command)? else {
            bail!("rank 0 gave another order before it said what is trained")
        };
        let config = toml::from_str(&config).context("the configuration that rank 0 sent")?;
        Ok(Some(Self { config, base, at }))
    }

    fn follow<D: Parallel>(&self, group: ProcessGroup, device: Arc<D>, folder: &Path) -> Result<Outcome> {
        let place = (group.rank(), group.ranks());
        let loaded = TrainablePolicies::load(&self.config, &device, &self.base, self.at.as_deref(), place);
        let mut trained = loaded.map_err(|error| report_failure(&group, error))?;
        let peers = D::connect(&device, group)?;
        let shape = &ModelConfig::load(&self.base)?;
        let (mode, tokens) = (self.config.training.mode(), self.config.training_tokens(shape));
        let mut team =
            DistributedTrainer::new(Trainer::with_peers(device, shape, tokens, mode, Some(peers))?);
        let done = self.run_commands(&mut trained, team.trainer(), folder);
        team.end(done).map(|()| Outcome::Done)
    }

    /// Executes commands until rank 0 leaves.
    fn run_commands<D: Parallel>(
        &self,
        trained: &mut TrainablePolicies<D>,
        trainer: &mut Trainer<D>,
        own: &Path,
    ) -> Result<()> {
        loop {
            let group = trainer.group().ok_or_else(|| RunError::Failed("this rank is alone".into()))?;
            let Some(command) = group.next_command()? else { return Ok(()) };
            match RankCommand::decode(&command)? {
                RankCommand::Load { .. } => bail!("rank 0 gave the first order again"),
                RankCommand::Train { role, pass, examples } => {
                    let policy = trained.policy(role);
                    let policy = policy.with_context(|| format!("the {} is not trained", role.as_str()))?;
                    pass::train_once(&self.config, role, pass, policy, &examples, trainer)?;
                    tracing::info!("{}: {} examples, pass {pass}", role.as_str(), examples.len());
                }
                RankCommand::Save { folder } => {
                    // Rank 0 reports the failure and ends the run.
                    let saved = is_checkpoint_of(own, &folder).and_then(|()| trained.save_part(&folder));
                    let failure = saved.err().map(|error| format!("{error:#}"));
                    group.acknowledge(failure.as_deref().map_or(Ok(()), Err))?;
                }
            }
        }
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
