//! A rank of a run that does what rank 0 says, until that leaves.

use super::{Order, Team, crew};
use crate::config::RunConfig;
use crate::device::{gpu_of, threads};
use crate::policies::Trained;
use crate::seats::{Seat, UNWIND};
use crate::update;
use crate::{Code, Interrupt, Outcome};
use crate::{device, with_device};
use anyhow::{Context, Result, anyhow, bail};
use sgs_lm::ModelConfig;
use sgs_lm::ranks::{Meeting, Parallel};
use sgs_lm::trainer::Trainer;
use std::path::PathBuf;
use std::sync::Arc;

/// Meets rank 0 and follows its orders.
///
/// # Errors
/// A rank is lost, an order cannot be done, or this rank's device fails: rank 0 is told.
pub fn run(seat: &Seat) -> Result<Outcome> {
    // Ctrl-C and the end of a job reach all ranks: rank 0 decides, the others hear from it. The second signal counts.
    let asked = Interrupt::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, Code::Interrupted.into(), asked.flag())?;
        signal_hook::flag::register(signal, asked.flag())?;
    }
    let mut meeting = seat.meet(&crew::job(), UNWIND)?;
    let job = match Job::wait_for(&mut meeting) {
        Ok(Some(job)) => job,
        Ok(None) => {
            meeting.finish();
            return Ok(Outcome::Done);
        }
        Err(error) => return Err(tell(&meeting, error)),
    };
    match prepare(&job.config, seat) {
        Ok((kind, gpu)) => {
            with_device!(kind, seat.threads(threads()), gpu, device => job.follow(meeting, device))
        }
        Err(error) => Err(tell(&meeting, error)),
    }
}

/// Tells all ranks that this one fails.
fn tell(meeting: &Meeting, error: anyhow::Error) -> anyhow::Error {
    meeting.fail(&format!("{error:#}"));
    error
}

fn prepare(config: &RunConfig, seat: &Seat) -> Result<(crate::device::DeviceKind, usize)> {
    let kind = device::kind(&config.model.device)?;
    Ok((kind, gpu_of(kind, Some(seat))?))
}

/// What is trained.
struct Job {
    config: RunConfig,
    base: PathBuf,
    at: Option<PathBuf>,
}

impl Job {
    /// The first order; `None` if rank 0 leaves without one.
    fn wait_for(meeting: &mut Meeting) -> Result<Option<Self>> {
        let Some(order) = meeting.next_order()? else { return Ok(None) };
        let Order::Load { config, base, at } = Order::decode(&order)? else {
            bail!("rank 0 gave another order before it said what is trained")
        };
        let config = toml::from_str(&config).context("the configuration that rank 0 sent")?;
        Ok(Some(Self { config, base, at }))
    }

    fn follow<D: Parallel>(&self, meeting: Meeting, device: Arc<D>) -> Result<Outcome> {
        let place = (meeting.rank(), meeting.ranks());
        let loaded = Trained::load(&self.config, &device, &self.base, self.at.as_deref(), place);
        let mut trained = loaded.map_err(|error| tell(&meeting, error))?;
        let peers = D::connect(&device, meeting)?;
        let shape = &ModelConfig::load(&self.base)?;
        let (mode, tokens) = (self.config.training.mode(), self.config.training_tokens(shape));
        let mut team = Team::new(Trainer::with_peers(device, shape, tokens, mode, Some(peers))?);
        let done = self.obey(&mut trained, team.trainer());
        team.end(done).map(|()| Outcome::Done)
    }

    /// Does what rank 0 says until it leaves.
    fn obey<D: Parallel>(&self, trained: &mut Trained<D>, trainer: &mut Trainer<D>) -> Result<()> {
        loop {
            let meeting = trainer.meeting().ok_or_else(|| anyhow!("this rank is alone"))?;
            let Some(order) = meeting.next_order()? else { return Ok(()) };
            match Order::decode(&order)? {
                Order::Load { .. } => bail!("rank 0 gave the first order again"),
                Order::Train { role, pass, examples } => {
                    let policy = trained.policy(role);
                    let policy = policy.with_context(|| format!("the {} is not trained", role.as_str()))?;
                    update::train_once(&self.config, role, pass, policy, &examples, trainer)?;
                    tracing::info!("{}: {} examples, pass {pass}", role.as_str(), examples.len());
                }
                Order::Save { folder } => {
                    // A failure is for rank 0 to tell: it ends the run.
                    let failure = trained.save_part(&folder).err().map(|error| format!("{error:#}"));
                    meeting.answer(failure.as_deref().map_or(Ok(()), Err))?;
                }
            }
        }
    }
}
