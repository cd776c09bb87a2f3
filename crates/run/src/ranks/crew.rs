//! How the ranks that train for a run come together.

use crate::Usage;
use crate::config::RunConfig;
use crate::device;
use crate::device::DeviceKind;
use crate::seats::launch::Others;
use crate::seats::{Seat, Standing};
use anyhow::{Context, Result, anyhow};
use sgs_lm::LmError;
use sgs_lm::ranks::Meeting;
use std::path::Path;
use std::time::Duration;

/// Folder of their logs in a run's folder.
const FOLDER: &str = "ranks";
/// Time in which the loop must have stopped once a rank is lost: a checkpoint that is being written may become whole.
const UNWIND: Duration = Duration::from_secs(120);

/// What a rank of a run must have in common with rank 0.
pub fn job() -> String {
    format!("sgs run {}", env!("CARGO_PKG_VERSION"))
}

/// The ranks of a run as its loop, which is rank 0, sees them.
pub struct Crew {
    ranks: usize,
    patience: Duration,
    seat: Option<Seat>,
    meeting: Option<Meeting>,
    others: Option<Others>,
}

impl Crew {
    /// As this process stands. Ranks that others start are met here, before anything is begun, so that they hear of
    /// whatever stops this one; those that this process starts come with [`Crew::start`].
    ///
    /// # Errors
    /// The others do not come.
    pub fn new(standing: Standing, patience: Duration) -> Result<Self> {
        let mut crew = Self { ranks: standing.ranks(), patience, seat: None, meeting: None, others: None };
        if let Standing::Seated(seat) = standing {
            crew.meeting = Some(seat.meet(&job(), UNWIND)?);
            crew.seat = Some(seat);
        }
        Ok(crew)
    }

    /// How many ranks train; the configuration says it unless `asked`, which the arguments were.
    ///
    /// # Errors
    /// There cannot be so many.
    pub fn settle(&mut self, config: &RunConfig, asked: bool) -> Result<usize> {
        if self.ranks == 1 && !asked {
            self.ranks = config.training.ranks;
        }
        if self.ranks > 1 && !config.algorithm.trains() {
            let (ranks, method) = (self.ranks, &config.method);
            let message = format!("training.ranks is {ranks}, but {method} trains nothing: leave it at 1");
            return Err(Usage(message).into());
        }
        if self.ranks > 1 && self.meeting.is_none() {
            enough_room(config, self.ranks)?;
        }
        Ok(self.ranks)
    }

    /// Starts the ranks that this process is to start, and meets them; their logs go into the run's folder.
    ///
    /// # Errors
    /// A process cannot be started, or ends at once.
    pub fn start(&mut self, run: &Path) -> Result<()> {
        if self.ranks == 1 || self.meeting.is_some() {
            return Ok(());
        }
        let folder = std::path::absolute(run.join(FOLDER)).context("the folder of the ranks")?;
        let (mut others, seat) = Others::start(self.ranks, &folder, self.patience)?;
        let own = seat.clone();
        self.meeting = Some(others.while_they_come(move || own.meet(&job(), UNWIND))?);
        self.others = Some(others);
        self.seat = Some(seat);
        Ok(())
    }

    /// Threads of the processor for this rank.
    pub fn threads(&self) -> usize {
        let all = device::threads();
        self.seat.as_ref().map_or(all, |seat| seat.threads(all))
    }

    /// The GPU of this rank.
    ///
    /// # Errors
    /// There are not so many.
    pub fn gpu(&self, kind: DeviceKind) -> Result<usize> {
        device::gpu_of(kind, self.seat.as_ref())
    }

    /// The ranks, for whoever trains; they are given away once.
    pub fn meeting(&mut self) -> Option<Meeting> {
        self.meeting.take()
    }

    /// The end of the loop; if it came because a rank was lost, how to go on, and of a rank that this process has started
    /// its last words.
    ///
    /// # Errors
    /// Those of `done`.
    pub fn end<T>(self, done: Result<T>, run: &Path) -> Result<T> {
        // Whoever has not been given away is told now that nothing more comes.
        drop(self.meeting);
        let reason = self.others.and_then(Others::reason);
        let error = match done {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !error.chain().any(|c| matches!(c.downcast_ref(), Some(LmError::Rank { .. }))) {
            return Err(error);
        }
        let reason = reason.unwrap_or_else(|| format!("{error:#}"));
        Err(anyhow!(
            "{reason}\nThe run has stopped; `sgs resume {}` goes on from the last published round.",
            run.display()
        ))
    }
}

/// Processes that a thread of the processor may be shared by.
const MOST_A_THREAD: usize = 16;

/// Refuses to start more ranks here than there is room for.
fn enough_room(config: &RunConfig, ranks: usize) -> Result<()> {
    let (most, of) = match device::kind(&config.model.device)? {
        DeviceKind::Cpu => (MOST_A_THREAD * device::threads(), "has processors for"),
        _ => (sgs_lm::cuda::gpu_count()?, "shows GPUs for"),
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
