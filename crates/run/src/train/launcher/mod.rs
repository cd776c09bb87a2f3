//! Training commands with several ranks, started here, by Slurm, or manually on any machines.

pub mod launch;
mod slurm;

use crate::config::device::DeviceKind;
use crate::error::{Context, Result, bail};
use crate::{Code, Usage};
use sgs_base::digest::checksum_of;
use sgs_fleet::AuthToken;
use sgs_lm::ranks::{ProcessGroup, RankConfig, Rendezvous};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time in which a rank must exit after another rank is lost.
pub const UNWIND: Duration = Duration::from_secs(15);

/// Environment variables that the launcher sets for its ranks.
mod env_name {
    pub(crate) const RANK: &str = "SGS_RANK";
    pub(crate) const RANKS: &str = "SGS_RANKS";
    pub(crate) const FOLDER: &str = "SGS_RANK_FOLDER";
    pub(crate) const TOKEN: &str = "SGS_RANK_TOKEN";
}

/// The rank, local rank and world size of this process, and how it finds the others.
#[derive(Clone)]
pub struct RankEnv {
    pub rank: usize,
    /// The world size.
    pub ranks: usize,
    /// Index among the ranks of this machine, which selects the GPU.
    pub local_rank: usize,
    /// Number of ranks on this machine, which share its processors.
    pub local_ranks: usize,
    rendezvous: Rendezvous,
    token: String,
    /// Folder and log of a rank that a launcher has started.
    folder: Option<PathBuf>,
    log: Option<PathBuf>,
    patience: Duration,
}

/// Returns true if a launcher started this process as one of several ranks.
pub fn is_launched() -> bool {
    std::env::var_os(env_name::RANK).is_some()
}

/// The decision on how this process takes part in training, before any rank is started.
pub enum RankPlan {
    Single,
    /// Launch this many ranks.
    Launch(usize),
    Rank(RankEnv),
}

impl RankPlan {
    /// Returns the world size.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Single => 1,
            Self::Launch(ranks) => *ranks,
            Self::Rank(env) => env.ranks,
        }
    }
}

#[derive(Clone, Debug)]
pub struct RankOptions {
    /// World size. Without `rank`, all ranks are started here.
    pub ranks: Option<usize>,
    /// The rank of this process, from 0.
    pub rank: Option<usize>,
    /// The address of rank 0, `HOST:PORT`.
    pub rendezvous: Option<String>,
    /// Maximum time to wait for another rank.
    pub patience: Duration,
}

/// Decides from the launcher's environment, the options and Slurm. The token is in a file or in the environment.
pub fn plan(options: &RankOptions, token_file: Option<&Path>) -> Result<RankPlan> {
    if is_launched() {
        return Ok(RankPlan::Rank(launched_rank(options)?));
    }
    let step = slurm::step(|name| std::env::var(name).ok())?;
    if options.rank.is_none() && step.is_none() {
        return match options.ranks {
            None | Some(1) => Ok(RankPlan::Single),
            Some(0) => Err(Usage("--ranks is 0: give at least 1".into()).into()),
            Some(ranks) if options.rendezvous.is_some() => {
                Err(Usage(format!("--rendezvous without --rank: which of the {ranks} ranks is this?")).into())
            }
            Some(ranks) => Ok(RankPlan::Launch(ranks)),
        };
    }
    let (Some(rank), Some(ranks)) =
        (options.rank.or(step.as_ref().map(|s| s.rank)), options.ranks.or(step.as_ref().map(|s| s.ranks)))
    else {
        return Err(Usage("--rank without --ranks: give the number of ranks, too".into()).into());
    };
    if ranks < 2 {
        return Ok(RankPlan::Single);
    }
    if rank >= ranks {
        return Err(Usage(format!("--rank {rank} of --ranks {ranks}: ranks count from 0")).into());
    }
    let rendezvous = options.rendezvous.clone().or(step.as_ref().and_then(|s| s.rendezvous.clone()));
    let Some(rendezvous) = rendezvous else {
        return Err(Usage("--rank needs --rendezvous HOST:PORT, where rank 0 listens".into()).into());
    };
    Ok(RankPlan::Rank(RankEnv {
        rank,
        ranks,
        local_rank: step.as_ref().map_or(0, |s| s.local_rank),
        local_ranks: step.as_ref().map_or(1, |s| s.local_ranks),
        rendezvous: Rendezvous::Address(rendezvous),
        // If the token is missing, joining reports it.
        token: AuthToken::from_file_or_environment(token_file)?
            .map_or_else(String::new, |token| token.secret().to_owned()),
        folder: None,
        log: None,
        patience: options.patience,
    }))
}

/// Reads the environment set by the launcher. The process exits when its launcher does.
fn launched_rank(options: &RankOptions) -> Result<RankEnv> {
    let get = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set by the launcher"));
    let number = |name: &str| -> Result<usize> { get(name)?.parse().with_context(|| format!("in {name}")) };
    let (rank, ranks) = (number(env_name::RANK)?, number(env_name::RANKS)?);
    let folder = PathBuf::from(get(env_name::FOLDER)?);
    // A launched rank logs to standard error. Ignore errors, because the rank should continue when the log is closed.
    let say = |text: &str| drop(writeln!(std::io::stderr(), "{text}"));
    say(&format!("rank {rank} of {ranks}, process {}", std::process::id()));
    std::thread::Builder::new()
        .name("launcher".into())
        .spawn(move || {
            // Standard input closes when the launcher exits.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            say("error: the process that started this rank is gone");
            std::process::exit(Code::Failed.into());
        })
        .context("cannot start a thread")?;
    let env = RankEnv::on_one_machine(rank, ranks, &folder, get(env_name::TOKEN)?, options.patience);
    Ok(RankEnv { log: Some(launch::log_file(&folder, rank)), folder: Some(folder), ..env })
}

/// Returns the GPU of a rank: the one with its local rank, or the only one that is visible.
pub fn gpu_of(device: DeviceKind, env: Option<&RankEnv>) -> Result<usize> {
    let Some(env) = env.filter(|_| !device.is_cpu()) else { return Ok(0) };
    match sgs_lm_cuda::gpu_count()? {
        1 => Ok(0),
        gpus if env.local_rank < gpus => Ok(env.local_rank),
        gpus => {
            bail!("rank {} is number {} of its machine, which shows {gpus} GPUs", env.rank, env.local_rank)
        }
    }
}

impl RankEnv {
    /// Returns the environment of a rank whose ranks are all on this machine and meet in `folder`.
    fn on_one_machine(rank: usize, ranks: usize, folder: &Path, token: String, patience: Duration) -> Self {
        let rendezvous = Rendezvous::File(launch::rendezvous_file(folder));
        let (local_rank, local_ranks) = (rank, ranks);
        Self { rank, ranks, local_rank, local_ranks, rendezvous, token, folder: None, log: None, patience }
    }

    /// Returns the folder in which the launcher of this rank keeps the logs of all ranks, if there is a launcher.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Joins the process group. `job` describes the training and must be the same on all ranks. If a rank is lost,
    /// this process exits after `unwind` unless it has ended before.
    pub fn meet(&self, job: &str, unwind: Duration) -> Result<ProcessGroup> {
        Ok(ProcessGroup::join(RankConfig {
            rank: self.rank,
            ranks: self.ranks,
            rendezvous: self.rendezvous.clone(),
            token: self.token.clone(),
            job: checksum_of(job.as_bytes()),
            host: sgs_base::host::host_name(),
            log: self.log.clone(),
            patience: self.patience,
            exit_after_loss: Some(unwind),
        })?)
    }

    /// Returns the number of threads for this rank.
    pub fn threads(&self, all: usize) -> usize {
        (all / self.local_ranks.max(1)).max(1)
    }
}
