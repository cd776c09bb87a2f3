//! `sgs worker`: a process that samples or checks for a run elsewhere. It keeps nothing that matters.

use crate::args::{ConnectArgs, WorkerCommand, WorkerGenerateArgs, WorkerVerifyArgs};
use crate::exit::{Code, Outcome, Usage};
use crate::lean;
use anyhow::{Context, Result};
use sgs_fleet::{Client, Coordinator, Drain, Session, Summary, TaskKind, Token, WorkerConfig, WorkerName};
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm::sampler::{Decode, SamplerOptions};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::generate::{self, GenerateCounters, GenerateSettings};
use sgs_run::tasks::{GENERATE, VERIFY};
use sgs_run::verify;
use sgs_run::workers::follow::{Followed, Source};
use sgs_run::workers::outside::{nonce, token_of_environment};
use sgs_run::workers::sheet::Sheet;
use sgs_run::{authority, device, with_device};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How often a worker looks whether the process that started it is still there.
const PARENT_POLL: Duration = Duration::from_millis(500);

/// Proofs in hand beyond those being checked, where a check takes microseconds.
const QUICK_AHEAD: usize = 256;

/// Works until it is sent home.
pub fn run(command: &WorkerCommand) -> Result<Outcome> {
    match command {
        WorkerCommand::Generate(args) => generate(args),
        WorkerCommand::Verify(args) => verify(args),
    }
}

/// A worker's way to the coordinator.
struct Post {
    source: Source,
    config: WorkerConfig,
    drain: Drain,
}

impl Post {
    fn take_up(kind: TaskKind, args: &ConnectArgs) -> Result<Self> {
        let drain = Drain::default();
        drain.begin_on_signals().context("signals cannot be handled")?;
        if let Some(parent) = args.parent {
            end_with(parent)?;
        }
        let token = match &args.token_file {
            Some(path) => Some(Token::read(path)?),
            None => token_of_environment()?,
        };
        let trusted =
            args.authority.as_deref().map(|path| authority::certificates(path, "--authority")).transpose()?;
        let client = Client::new(&args.connect, token, trusted.as_deref())?;
        let own = || format!("{}-{}-{}", sgs_run::machine::host_name(), std::process::id(), nonce());
        let name = args.name.clone().unwrap_or_else(own);
        // By its name the coordinator tells what a worker does.
        let name = if name.starts_with(kind.as_str()) { name } else { format!("{kind}-{name}") };
        let name = WorkerName::new(&name).map_err(|e| Usage(format!("--name: {e}")))?;
        let patience = Duration::from_secs(args.patience);
        leave_in_time(drain.clone(), Duration::from_secs(args.grace))?;
        let mut config = WorkerConfig::new(name, kind);
        (config.patience, config.grace) = (patience, Duration::from_secs(args.grace));
        let source = Source { client: Arc::new(client), patience, drain: drain.clone() };
        Ok(Self { source, config, drain })
    }

    fn sheet(&self) -> Result<Sheet> {
        let sheet = self.source.sheet(0)?;
        eprintln!("{}: at work for a run at policy {}", self.config.name, sheet.policy.policy_version);
        Ok(sheet)
    }

    fn coordinator(&self) -> Arc<dyn Coordinator> {
        self.source.client.clone()
    }
}

fn farewell(name: &WorkerName, summary: Summary) -> Outcome {
    eprintln!(
        "{name}: sent home after {} leases: {} done, {} came second, {} given back or failed",
        summary.leased, summary.accepted, summary.duplicates, summary.noted
    );
    Outcome::Done
}

/// Ends this process as soon as `parent` is not its parent any more: whoever started it will not miss it.
fn end_with(parent: u32) -> Result<()> {
    let is_there = move || {
        let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        now.and_then(|pid| u32::try_from(pid).ok()) == Some(parent)
    };
    std::thread::Builder::new()
        .name("parent".into())
        .spawn(move || {
            while is_there() {
                std::thread::sleep(PARENT_POLL);
            }
            eprintln!("process {parent}, which started this worker, is gone");
            std::process::exit(Code::Failed.into());
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// How long after its grace a worker that was asked to leave may still be there.
const LAST_SECONDS: Duration = Duration::from_secs(2);

/// Ends this process when it was asked to leave and its grace is over, whatever it waits for: a coordinator that takes a
/// connection and never answers must not keep it.
fn leave_in_time(drain: Drain, grace: Duration) -> Result<()> {
    let leave = move || {
        while !drain.has_begun() {
            std::thread::sleep(PARENT_POLL);
        }
        std::thread::sleep(grace + LAST_SECONDS);
        eprintln!("asked to leave {} s ago, and something still waits: ending", grace.as_secs());
        std::process::exit(Code::Failed.into());
    };
    std::thread::Builder::new().name("leave".into()).spawn(leave).context("cannot start a thread")?;
    Ok(())
}

fn generate(args: &WorkerGenerateArgs) -> Result<Outcome> {
    if args.batch == Some(0) {
        return Err(Usage("--batch is 0: give at least 1".into()).into());
    }
    let post = Post::take_up(GENERATE, &args.connect)?;
    let sheet = post.sheet()?;
    let threads = if args.threads == 0 { device::threads() } else { args.threads };
    let kind = match args.device {
        Some(kind) => kind,
        None => device::kind(&sheet.device)?,
    };
    with_device!(kind, threads, device => sample_on(args, &post, &sheet, device))
}

fn sample_on<D: Device + Decode>(
    args: &WorkerGenerateArgs,
    post: &Post,
    sheet: &Sheet,
    device: Arc<D>,
) -> Result<Outcome> {
    eprintln!("{}: samples on {}", post.config.name, device.name());
    let scratch: PathBuf = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = scratch.join(format!("sgs-{}", post.config.name));
    let weights = RwLock::new(Followed::load(post.source.clone(), device, scratch, sheet)?);
    let options = SamplerOptions {
        max_batch: args.batch.unwrap_or(sheet.batch),
        memory_budget_bytes: args.memory_mib.unwrap_or(sheet.memory_mib).saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let settings = GenerateSettings {
        stop: sheet.stop.as_slice().into(),
        // A little more than is sampled at once, and no more: what one has in hand, another has not.
        in_hand: options.max_batch + options.max_batch.div_ceil(8),
        sampler: options,
        grace: post.config.grace,
    };
    let session = Session::start(post.coordinator(), post.config.clone(), post.drain.clone())?;
    let counters = Mutex::new(GenerateCounters::default());
    let follow = |version| weights.write().unwrap_or_else(PoisonError::into_inner).follow(version);
    let worked = generate::work(&session, &weights, follow, &settings, &post.drain, &counters);
    let closed = session.close();
    worked?;
    Ok(farewell(&post.config.name, closed?))
}

fn verify(args: &WorkerVerifyArgs) -> Result<Outcome> {
    let mut post = Post::take_up(VERIFY, &args.connect)?;
    let sheet = post.sheet()?;
    let system: Arc<dyn FormalSystem> = match sheet.system {
        SystemName::Metamath => {
            post.config.ahead = QUICK_AHEAD;
            Arc::new(Metamath::shipped()?)
        }
        SystemName::Lean => {
            let mut settings = lean::settings_over(sheet.lean.clone().unwrap_or_default(), &args.lean)?;
            if args.slots > 0 {
                settings.slots = args.slots;
            }
            let system = lean::start(&settings)?;
            if !args.lean.skip_canaries {
                let refused = || format!("{} cannot check proofs of this run", post.config.name);
                system.canaries(&sheet.header).with_context(refused)?;
            }
            Arc::new(system)
        }
    };
    let slots = match (sheet.system, args.slots) {
        (SystemName::Lean, _) => system.parallel_verifications(),
        (SystemName::Metamath, 0) => device::threads(),
        (SystemName::Metamath, n) => n,
    };
    let check = |lease: &sgs_fleet::Lease, _: &sgs_fleet::Cancel| verify::verify(&*system, lease);
    let summary =
        sgs_fleet::serve(post.coordinator(), post.config.clone(), post.drain.clone(), slots, check)?;
    Ok(farewell(&post.config.name, summary))
}
