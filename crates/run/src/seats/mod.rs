//! Training commands as several ranks: started here, by Slurm, or by hand on any machines.

pub mod launch;
mod slurm;

use crate::machine;
use crate::{Code, Outcome, Usage};
use anyhow::{Context, Result};
use sgs_lm::ranks::{Meeting, Place, Rendezvous};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time in which a rank that lost another must have ended.
pub const UNWIND: Duration = Duration::from_secs(15);

/// What the launcher tells its ranks, as environment.
mod variable {
    pub const RANK: &str = "SGS_RANK";
    pub const RANKS: &str = "SGS_RANKS";
    pub const FOLDER: &str = "SGS_RANK_FOLDER";
    pub const TOKEN: &str = "SGS_RANK_TOKEN";
}

/// How this process trains.
pub enum Role {
    /// As one process.
    Alone,
    /// As one of several ranks.
    Member(Seat),
    /// Not itself: it started the ranks, and this is how they ended.
    Launched(Outcome),
}

/// This process's place among ranks, before they meet.
#[derive(Clone)]
pub struct Seat {
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// Its number among those of its machine: which GPU it takes.
    pub local: usize,
    /// How many share this machine's processors.
    pub local_ranks: usize,
    rendezvous: Rendezvous,
    token: String,
    log: Option<PathBuf>,
    patience: Duration,
}

/// Whether this process is one of several ranks that a launcher started.
pub fn is_launched() -> bool {
    std::env::var_os(variable::RANK).is_some()
}

/// Where this process stands among ranks, before any is started.
pub enum Standing {
    /// There are no others.
    Alone,
    /// It is to start so many ranks.
    Launch(usize),
    /// It is one of several.
    Seated(Seat),
}

impl Standing {
    /// How many ranks there are to be.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Launch(ranks) => *ranks,
            Self::Seated(seat) => seat.ranks,
        }
    }
}

/// What a command was told of its ranks.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How many train together; where nobody says which one this is, all are started here.
    pub ranks: Option<usize>,
    /// Which of them this process is, counted from 0.
    pub rank: Option<usize>,
    /// Where rank 0 listens, `HOST:PORT`.
    pub rendezvous: Option<String>,
    /// Longest wait for another rank.
    pub patience: Duration,
}

/// Decides what this process is; starts ranks and waits for them where it is asked to. Logs go into a folder `ranks`
/// in `folder`.
pub fn role(asked: &Asked, token_file: Option<&Path>, folder: &Path) -> Result<Role> {
    match standing(asked, token_file)? {
        Standing::Alone => Ok(Role::Alone),
        Standing::Seated(seat) => Ok(Role::Member(seat)),
        Standing::Launch(ranks) => Ok(Role::Launched(launch::launch(ranks, &folder.join("ranks"))?)),
    }
}

/// What the launcher, the arguments and Slurm say of this process; the token is in a file, or in the environment.
pub fn standing(asked: &Asked, token_file: Option<&Path>) -> Result<Standing> {
    if is_launched() {
        return Ok(Standing::Seated(launched_seat(asked)?));
    }
    let step = slurm::step(|name| std::env::var(name).ok());
    if asked.rank.is_none() && step.is_none() {
        return match asked.ranks {
            None | Some(1) => Ok(Standing::Alone),
            Some(0) => Err(Usage("--ranks is 0: give at least 1".into()).into()),
            Some(ranks) if asked.rendezvous.is_some() => {
                Err(Usage(format!("--rendezvous without --rank: which of the {ranks} ranks is this?")).into())
            }
            Some(ranks) => Ok(Standing::Launch(ranks)),
        };
    }
    let (Some(rank), Some(ranks)) =
        (asked.rank.or(step.as_ref().map(|s| s.rank)), asked.ranks.or(step.as_ref().map(|s| s.ranks)))
    else {
        return Err(Usage("--rank needs --ranks: of how many?".into()).into());
    };
    if ranks < 2 {
        return Ok(Standing::Alone);
    }
    if rank >= ranks {
        return Err(Usage(format!("--rank {rank} of --ranks {ranks}: ranks count from 0")).into());
    }
    let rendezvous = asked.rendezvous.clone().or(step.as_ref().and_then(|s| s.rendezvous.clone()));
    let Some(rendezvous) = rendezvous else {
        return Err(Usage("--rank needs --rendezvous HOST:PORT, where rank 0 listens".into()).into());
    };
    Ok(Standing::Seated(Seat {
        rank,
        ranks,
        local: step.as_ref().map_or(0, |s| s.local),
        local_ranks: step.as_ref().map_or(1, |s| s.local_ranks),
        rendezvous: Rendezvous::Address(rendezvous),
        token: token(token_file)?,
        log: None,
        patience: asked.patience,
    }))
}

/// The seat that the launcher gave; the process ends with its launcher.
fn launched_seat(asked: &Asked) -> Result<Seat> {
    let get = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set by the launcher"));
    let number = |name: &str| -> Result<usize> { get(name)?.parse().with_context(|| format!("in {name}")) };
    let (rank, ranks) = (number(variable::RANK)?, number(variable::RANKS)?);
    let folder = PathBuf::from(get(variable::FOLDER)?);
    // A launched rank's standard error is its log; one that nobody reads any more is no reason to stop.
    let say = |text: &str| drop(writeln!(std::io::stderr(), "{text}"));
    say(&format!("rank {rank} of {ranks}, process {}", std::process::id()));
    std::thread::Builder::new()
        .name("launcher".into())
        .spawn(move || {
            // Standard input ends when the launcher does.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            say("error: the process that started this rank is gone");
            std::process::exit(Code::Failed.into());
        })
        .context("cannot start a thread")?;
    Ok(Seat {
        rank,
        ranks,
        local: rank,
        local_ranks: ranks,
        rendezvous: Rendezvous::File(launch::meeting_file(&folder)),
        token: get(variable::TOKEN)?,
        log: Some(launch::log_file(&folder, rank)),
        patience: asked.patience,
    })
}

/// The token that ranks of several machines show: of a file, or of the environment; empty if there is none.
fn token(file: Option<&Path>) -> Result<String> {
    let from_file = std::env::var_os("SGS_TOKEN_FILE").map(PathBuf::from);
    let file = match (file, std::env::var("SGS_TOKEN")) {
        (None, Ok(token)) => return Ok(token),
        (file, _) => file.map(Path::to_owned).or(from_file),
    };
    match file {
        None => Ok(String::new()),
        Some(path) => Ok(std::fs::read_to_string(&path)
            .with_context(|| format!("token file {}", path.display()))?
            .trim()
            .to_owned()),
    }
}

impl Seat {
    /// Meets the other ranks; `job` is what is trained and how, which must be the same for all. Once a rank is lost this
    /// process ends after `unwind`, if it has not by itself.
    pub fn meet(&self, job: &str, unwind: Duration) -> Result<Meeting> {
        let digest = Sha256::digest(job.as_bytes());
        Ok(Meeting::join(Place {
            rank: self.rank,
            ranks: self.ranks,
            rendezvous: self.rendezvous.clone(),
            token: self.token.clone(),
            job: digest.iter().map(|b| format!("{b:02x}")).collect(),
            host: machine::host_name(),
            log: self.log.clone(),
            patience: self.patience,
            exit_after_loss: Some(unwind),
        })?)
    }

    /// Threads of the processor for this rank.
    pub fn threads(&self, all: usize) -> usize {
        (all / self.local_ranks.max(1)).max(1)
    }
}
