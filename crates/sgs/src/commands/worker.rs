//! `sgs worker`: a process that samples or verifies for a remote run. It keeps no state.

use crate::args::{ConnectArgs, WorkerCommand, WorkerGenerateArgs, WorkerVerifyArgs};
use crate::exit::{Code, Outcome, Usage, usage};
use crate::lean;
use anyhow::{Context, Result, bail};
use sgs_base::temporary;
use sgs_fleet::{
    AuthToken, CallError, Client, Coordinator, StopFlag, WorkKind, WorkerConfig, WorkerName, WorkerSession,
    WorkerSummary,
};
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm_sampler::{Decode, SamplerOptions};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::config::device;
use sgs_run::served::ca_certs;
use sgs_run::train::policies;
use sgs_run::with_device;
use sgs_run::workers::coordinator::nonce;
use sgs_run::workers::generate::{self, GenerateCounters, GenerateSettings, SamplerSlot};
use sgs_run::workers::manifest::RunManifest;
use sgs_run::workers::tasks::{GENERATE, VERIFY};
use sgs_run::workers::verify;
use sgs_run::workers::weight_sync::{SyncedWeights, WeightSource};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Interval between checks of the process that started the worker.
const PARENT_POLL: Duration = Duration::from_millis(500);

/// Number of proofs to lease in advance if a verification takes microseconds.
const FAST_LEASES_AHEAD: usize = 256;

/// Runs until the coordinator or a signal ends the worker.
pub fn run(command: &WorkerCommand) -> Result<Outcome> {
    match command {
        WorkerCommand::Generate(args) => generate(args),
        WorkerCommand::Verify(args) => verify(args),
    }
}

/// A worker's connection to the coordinator.
struct Connection {
    source: WeightSource,
    config: WorkerConfig,
    drain: StopFlag,
}

impl Connection {
    fn open(kind: WorkKind, args: &ConnectArgs) -> Result<Self> {
        let drain = StopFlag::default();
        sgs_fleet::stop_on_signals(&drain).context("cannot register signal handlers")?;
        if let Some(parent) = args.parent {
            exit_with_parent(parent)?;
        }
        let token = AuthToken::from_file_or_environment(args.token_file.as_deref()).map_err(usage)?;
        let trusted = args
            .authority
            .as_deref()
            .map(|path| ca_certs::certificates(path, "--authority"))
            .transpose()
            .map_err(usage)?;
        let client = Client::new(&args.connect, token, trusted.as_deref()).map_err(|error| match error {
            CallError::Refused(reason) => Usage(format!("--connect {reason}")).into(),
            error => anyhow::Error::from(error),
        })?;
        let own = || format!("{}-{}-{}", sgs_base::host::host_name(), std::process::id(), nonce());
        let name = args.name.clone().unwrap_or_else(own);
        // The coordinator derives the worker's kind from its name.
        let name = if name.starts_with(kind.as_str()) { name } else { format!("{kind}-{name}") };
        let name = WorkerName::new(&name).map_err(|e| Usage(format!("--name: {e}")))?;
        let patience = Duration::from_secs(args.patience);
        enforce_grace_period(drain.clone(), Duration::from_secs(args.grace))?;
        let mut config = WorkerConfig::new(name, kind);
        (config.patience, config.grace) = (patience, Duration::from_secs(args.grace));
        let source = WeightSource { client: Arc::new(client), patience, drain: drain.clone() };
        Ok(Self { source, config, drain })
    }

    fn manifest(&self) -> Result<RunManifest> {
        let manifest = self.source.manifest(0)?;
        eprintln!(
            "{}: connected to the run; policy version {}",
            self.config.name, manifest.policy.policy_version
        );
        Ok(manifest)
    }

    fn coordinator(&self) -> Arc<dyn Coordinator> {
        self.source.client.clone()
    }
}

fn print_summary(name: &WorkerName, summary: WorkerSummary) -> Outcome {
    eprintln!(
        "{name}: finished after {} leases: {} done, {} duplicates, {} returned or failed",
        summary.leased, summary.accepted, summary.duplicates, summary.noted
    );
    Outcome::Done
}

/// Ends this process as soon as `parent` is no longer its parent, because then its launcher is gone.
fn exit_with_parent(parent: u32) -> Result<()> {
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
            eprintln!("the process {parent} that started this worker has exited");
            let _removed = temporary::remove_all();
            std::process::exit(Code::Failed.into());
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Time after the grace period before a draining worker is ended.
const EXIT_MARGIN: Duration = Duration::from_secs(2);

/// Ends this process after its grace period, even if it is waiting, because a coordinator that accepts a connection and
/// never answers must not keep it alive.
fn enforce_grace_period(drain: StopFlag, grace: Duration) -> Result<()> {
    let exit_late = move || {
        while !drain.is_set() {
            std::thread::sleep(PARENT_POLL);
        }
        std::thread::sleep(grace + EXIT_MARGIN);
        eprintln!("still waiting {} s after the request to stop: exiting", grace.as_secs());
        let _removed = temporary::remove_all();
        std::process::exit(Code::Failed.into());
    };
    std::thread::Builder::new().name("leave".into()).spawn(exit_late).context("cannot start a thread")?;
    Ok(())
}

fn generate(args: &WorkerGenerateArgs) -> Result<Outcome> {
    let connection = Connection::open(GENERATE, &args.connect)?;
    let manifest = connection.manifest()?;
    let threads = if args.threads == 0 { device::threads() } else { args.threads };
    let kind = match args.device {
        Some(kind) => kind,
        None => device::kind(&manifest.device)?,
    };
    with_device!(kind, threads, device => sample_on(args, &connection, &manifest, device))
}

fn sample_on<D: Device + Decode>(
    args: &WorkerGenerateArgs,
    connection: &Connection,
    manifest: &RunManifest,
    device: Arc<D>,
) -> Result<Outcome> {
    eprintln!("{}: sampling on {}", connection.config.name, device.name());
    let weights =
        RwLock::new(SyncedWeights::load(connection.source.clone(), device, args.scratch.clone(), manifest)?);
    let options = SamplerOptions {
        max_batch: args.batch.unwrap_or(manifest.batch),
        memory_budget_bytes: args.memory_mib.unwrap_or(manifest.memory_mib).saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let settings = GenerateSettings {
        stop: manifest.stop.as_slice().into(),
        // Lease slightly more than one batch. Other workers cannot take tasks that this one holds.
        in_hand: options.max_batch + options.max_batch.div_ceil(8),
        sampler: options,
        grace: connection.config.grace,
    };
    let session =
        WorkerSession::start(connection.coordinator(), connection.config.clone(), connection.drain.clone())?;
    let counters = Mutex::new(GenerateCounters::default());
    let follow = |version| policies::write(&weights).follow(version);
    let worked = generate::work(
        &session,
        &weights,
        &SamplerSlot::default(),
        follow,
        &settings,
        &connection.drain,
        &counters,
    );
    let closed = session.close();
    worked?;
    Ok(print_summary(&connection.config.name, closed?))
}

fn verify(args: &WorkerVerifyArgs) -> Result<Outcome> {
    let mut connection = Connection::open(VERIFY, &args.connect)?;
    let manifest = connection.manifest()?;
    let system: Arc<dyn FormalSystem> = match manifest.system {
        SystemName::Metamath if manifest.slice.is_empty() => {
            bail!("the run has its own database (problems.database): it verifies its proofs itself")
        }
        SystemName::Metamath => {
            connection.config.ahead = FAST_LEASES_AHEAD;
            Arc::new(Metamath::shipped()?)
        }
        SystemName::Lean => {
            let base = manifest.lean.clone().unwrap_or_default().on_this_machine();
            let mut settings = lean::settings_over(base, &args.lean)?;
            if args.slots > 0 {
                settings.slots = args.slots;
            }
            let system = lean::start(&settings)?;
            if !args.lean.skip_canaries {
                let refused = || format!("{} cannot check proofs of this run", connection.config.name);
                system.canaries(&manifest.header).with_context(refused)?;
            }
            Arc::new(system)
        }
        // The command of the system would come from the network.
        SystemName::External => bail!("the proofs of an external system are verified by the run itself"),
    };
    let slots = match (manifest.system, args.slots) {
        (SystemName::Metamath, 0) => device::threads(),
        (SystemName::Metamath, n) => n,
        (SystemName::Lean | SystemName::External, _) => system.parallel_verifications(),
    };
    let check = |lease: &sgs_fleet::Lease, _: &sgs_fleet::StopFlag| verify::verify(&*system, lease);
    let summary = sgs_fleet::run_worker(
        connection.coordinator(),
        connection.config.clone(),
        connection.drain.clone(),
        slots,
        check,
    )?;
    Ok(print_summary(&connection.config.name, summary))
}
