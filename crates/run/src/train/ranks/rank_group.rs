//! The process group of a run, as rank 0 sees it, or of a training.

use crate::Usage;
use crate::config::RunConfig;
use crate::config::device::{self, DeviceKind};
use crate::error::{Context, Result, RunError};
use crate::train::launcher::launch::RankProcesses;
use crate::train::launcher::{RankEnv, RankPlan, gpu_of, is_launched};
use sgs_lm::ranks::ProcessGroup;
use std::path::Path;
use std::time::Duration;

/// Folder of the ranks' logs in a run's folder.
const FOLDER: &str = "ranks";
/// Time in which the run must stop after a rank is lost, long enough to finish a checkpoint.
const UNWIND: Duration = Duration::from_secs(120);

/// Returns the description that all ranks of a run must agree on.
pub fn job() -> String {
    format!("sgs run {}", env!("CARGO_PKG_VERSION"))
}

pub struct RankGroup {
    /// What all ranks must agree on.
    job: String,
    /// Time in which this process must stop after a rank is lost.
    unwind: Duration,
    ranks: usize,
    join_timeout: Duration,
    env: Option<RankEnv>,
    group: Option<ProcessGroup>,
    processes: Option<RankProcesses>,
}

impl RankGroup {
    /// Joins the ranks of a run as [`RankGroup::of_job`] does.
    pub fn new(plan: RankPlan, join_timeout: Duration) -> Result<Self> {
        Self::of_job(plan, join_timeout, job(), UNWIND)
    }

    /// Joins ranks that were started elsewhere. This comes first, so that the ranks are notified if this process fails.
    /// Ranks that this process launches join in [`RankGroup::start`].
    pub fn of_job(plan: RankPlan, join_timeout: Duration, job: String, unwind: Duration) -> Result<Self> {
        let ranks = plan.ranks();
        let (env, group) = match plan {
            RankPlan::Rank(env) => {
                let group = env.meet(&job, unwind)?;
                (Some(env), Some(group))
            }
            RankPlan::Single | RankPlan::Launch(_) => (None, None),
        };
        Ok(Self { job, unwind, ranks, join_timeout, env, group, processes: None })
    }

    /// Determines the number of ranks: the one in the configuration, unless the arguments `asked` for another.
    ///
    /// # Errors
    /// Returns an error if the machine has too few GPUs or processors for the ranks.
    pub fn settle(&mut self, config: &RunConfig, asked: bool) -> Result<usize> {
        if self.ranks == 1 && !asked {
            self.ranks = config.training.ranks;
        }
        if self.ranks > 1 && self.group.is_none() {
            enough_room(config, self.ranks)?;
        }
        Ok(self.ranks)
    }

    /// Launches the other ranks, if this process must do so, and joins them. Their logs are written to
    /// the folder of the run or training.
    pub fn start(&mut self, own: &Path) -> Result<()> {
        if self.ranks == 1 || self.group.is_some() {
            return Ok(());
        }
        let folder = std::path::absolute(own.join(FOLDER)).context("the folder of the ranks")?;
        let (mut processes, env) = RankProcesses::start(self.ranks, &folder, self.join_timeout)?;
        let (own, job, unwind) = (env.clone(), self.job.clone(), self.unwind);
        self.group = Some(processes.while_joining(move || own.meet(&job, unwind))?);
        self.processes = Some(processes);
        self.env = Some(env);
        Ok(())
    }

    /// Returns the number of ranks on this machine. Ranks that were started manually count only themselves.
    pub fn local_ranks(&self) -> usize {
        self.env.as_ref().map_or(self.ranks, |env| env.local_ranks)
    }

    /// Returns the number of threads for this rank.
    pub fn threads(&self) -> usize {
        let all = device::threads();
        self.env.as_ref().map_or(all, |env| env.threads(all))
    }

    pub fn gpu(&self, kind: DeviceKind) -> Result<usize> {
        gpu_of(kind, self.env.as_ref())
    }

    /// Takes the process group, to train with it.
    pub fn group(&mut self) -> Option<ProcessGroup> {
        self.group.take()
    }

    /// Ends the group and returns the result of the run or training. If a rank was lost, the error contains the last lines
    /// of its log and `advice`, which explains how to continue.
    pub fn end<T>(self, done: Result<T>, advice: &str) -> Result<T> {
        // If the group was never taken, it ends here, which tells the other ranks to exit.
        drop(self.group);
        let reason = self.processes.and_then(RankProcesses::reason);
        let error = match done {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // The launcher of a rank looks at the code of its error.
        if is_launched() || !matches!(error.root(), RunError::RankLost(_)) {
            return Err(error);
        }
        let reason = reason.unwrap_or_else(|| format!("{error:#}"));
        Err(RunError::Failed(format!("{reason}\n{advice}")))
    }
}

/// Checks that this machine has room for the ranks.
fn enough_room(config: &RunConfig, ranks: usize) -> Result<()> {
    let (most, of) = if device::kind(&config.model.device)?.is_cpu() {
        (device::most_processes(), "has processors for")
    } else {
        (sgs_lm_cuda::gpu_count()?, "shows GPUs for")
    };
    if ranks <= most {
        return Ok(());
    }
    Err(Usage(format!(
        "training.ranks is {ranks}, but this machine {of} {most}: lower it (--ranks {}), or start ranks on several \
         machines (docs/cluster.md)",
        most.max(1)
    ))
    .into())
}
