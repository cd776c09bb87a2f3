//! The coordinator of a run with remote workers: the board behind HTTP, the published weights, and the supervised
//! workers.

use super::config::{By, FleetConfig, WorkerPoolConfig};
use super::manifest::{self, ModelManifest, PolicyManifest, RunManifest};
use crate::error::{Context, Result, RunError, bail};
use crate::workers::tasks::{GENERATE, VERIFY};
use serde::{Deserialize, Serialize};
use sgs_fleet::{
    ArtifactStore, AuthToken, Backpressure, BoardConfig, BoardStatus, Fleet, JobId, LocalLauncher,
    RestartPolicy, Service, ServiceConfig, SlurmConfig, SlurmLauncher, Supervisor, SupervisorStatus,
    WorkKind, WorkerJob, WorkerName,
};
use sgs_rundir::files::write_file;
use sgs_rundir::view::FLEET;
use sgs_selfplay::Role;
use sgs_tls::{Identity, ServerConfig, TlsFiles};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// File with the workers' token, and the fingerprint of the coordinator's key, in a run's folder.
const TOKEN: &str = "fleet.token";
/// File with the secret that the coordinator's key is derived from, in a run's folder.
const KEY: &str = "fleet.key";
/// Folder with logs, batch scripts and job lists of workers in a run's folder.
const WORKERS: &str = "workers";

/// Maximum number of open verifications before generation is held back.
const MAX_OPEN_VERIFICATIONS: usize = 200_000;
/// Time that workers have to exit at the end of the run.
const GRACE: Duration = Duration::from_secs(30);
/// Time that the service keeps answering after the end, so that all workers learn about it.
const FAREWELL: Duration = Duration::from_secs(1);
/// A worker counts as active if its last contact was within this many seconds.
const ACTIVE_WITHIN_S: f64 = 60.0;
/// Interval between warnings that there are no workers.
const REMINDER: Duration = Duration::from_secs(60);
/// Longest time in which workers hold tasks without any result.
const SILENCE: Duration = Duration::from_secs(600);

/// The coordinator's address as stored in a run's folder, for `sgs resume` and `sgs status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoordinatorAddress {
    /// The address for workers; `None` until the coordinator listens.
    pub url: Option<String>,
    /// The configuration, with the actual address.
    pub fleet: FleetConfig,
}

impl CoordinatorAddress {
    /// Returns the text of `fleet.toml` before the coordinator listens; `None` if one process does all the work.
    pub fn decision(fleet: Option<&FleetConfig>) -> Result<Option<String>> {
        let text = |fleet: &FleetConfig| -> Result<String> {
            Ok(toml::to_string_pretty(&Self { url: None, fleet: fleet.clone().absolute()? })?)
        };
        fleet.map(text).transpose()
    }

    /// Reads the stored address; `None` if the run had no remote workers.
    pub fn read(run: &Path) -> Result<Option<Self>> {
        let path = run.join(FLEET);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(toml::from_str(&text).with_context(|| path.display().to_string())?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Reads the token of the run's workers.
    pub fn token(run: &Path) -> Result<AuthToken> {
        Ok(AuthToken::read(&run.join(TOKEN))?)
    }
}

struct WorkerPool {
    kind: WorkKind,
    supervisor: Supervisor,
}

/// Remote workers of a run and the coordinator that they connect to. Dropping it ends the workers that it has started.
pub struct RemoteWorkers {
    fleet: Fleet,
    config: FleetConfig,
    run: PathBuf,
    url: String,
    artifacts: ArtifactStore,
    pools: Vec<WorkerPool>,
    models: Mutex<HashMap<PathBuf, ModelManifest>>,
    gpus: Vec<String>,
    reminded: Mutex<Instant>,
    // Dropped after the pools, whose workers sign off here.
    _service: Service,
}

impl RemoteWorkers {
    /// Opens a board and listens. Workers of an earlier coordinator keep their leases.
    ///
    /// # Errors
    /// Returns an error if the address is in use or there is no token.
    pub fn open(config: &FleetConfig, run: &Path) -> Result<Self> {
        let mut config = config.clone();
        let run = std::fs::canonicalize(run).with_context(|| run.display().to_string())?;
        let (token, tls) = credentials(&config, &run)?;
        let fleet = Fleet::journalled(BoardConfig {
            backpressure: Some(Backpressure {
                hold: GENERATE,
                while_open: VERIFY,
                limit: MAX_OPEN_VERIFICATIONS,
            }),
            ..BoardConfig::default()
        });
        let artifacts = ArtifactStore::default();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let pools = [&config.generate, &config.verify];
        let is_cluster = pools.iter().any(|pool| pool.by == By::Slurm);
        let open = if is_cluster { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { loopback };
        let listen = config.listen.unwrap_or_else(|| SocketAddr::new(open, 0));
        let asked = ServiceConfig {
            listen,
            token: Some(token),
            tls: Some(tls),
            artifacts: artifacts.clone(),
            ..ServiceConfig::default()
        };
        let service = Service::start(fleet.clone(), asked).map_err(|error| {
            RunError::from(error)
                .context("the coordinator cannot listen (another address: --listen ADDRESS:PORT)")
        })?;
        let address = service.address();
        // Keep the previous port for workers that were given this address; local workers are restarted anyway.
        let keeps_port =
            config.listen.is_some() || pools.iter().any(|c| matches!(c.by, By::None | By::Slurm));
        let host = match &config.host {
            Some(host) => host.clone(),
            None if address.ip().is_unspecified() => sgs_base::host::host_name(),
            None => address.ip().to_string(),
        };
        let url = service.url(&host);
        if keeps_port {
            config.listen = Some(address);
        }
        let config = config.absolute()?;
        let remembered = CoordinatorAddress { url: Some(url.clone()), fleet: config.clone() };
        write_file(&run.join(FLEET), toml::to_string_pretty(&remembered)?.as_bytes())?;
        Ok(Self {
            fleet,
            config,
            run,
            url,
            artifacts,
            pools: Vec::new(),
            models: Mutex::default(),
            gpus: Vec::new(),
            reminded: Mutex::new(Instant::now()),
            _service: service,
        })
    }

    /// Distributes the generation workers of this machine over these GPUs. Workers share GPUs if there are more of
    /// them.
    pub fn assign_gpus(&mut self, gpus: Vec<String>) {
        self.gpus = gpus;
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns where workers of a kind come from.
    pub fn by(&self, kind: &WorkKind) -> By {
        if *kind == GENERATE {
            self.config.generate.by
        } else if *kind == VERIFY {
            self.config.verify.by
        } else {
            // The endpoints are called by a thread of the coordinator.
            By::Embedded
        }
    }

    /// Returns the fraction of proofs that another worker rechecks, if any.
    pub fn recheck(&self) -> Option<f64> {
        self.config.recheck
    }

    /// Publishes the models of a policy version: the folders of the roles that workers sample. Returns the version's id.
    pub fn publish_policy(
        &self,
        policy_version: u32,
        folders: &BTreeMap<Role, PathBuf>,
        manifest: impl FnOnce(PolicyManifest) -> RunManifest,
    ) -> Result<String> {
        let model = |(role, folder): (&Role, &PathBuf)| Ok((*role, self.model(folder)?));
        let models = folders.iter().map(model).collect::<Result<_>>()?;
        let policy = PolicyManifest { policy_version, models };
        let policy_id = policy.policy_id();
        let names: Vec<String> = policy
            .distinct()
            .values()
            .flat_map(|model| {
                model.files.iter().map(|file| {
                    let name = model.artifact_name(file);
                    self.artifacts.put_file(&name, &model.folder.join(file.name.as_str()));
                    name
                })
            })
            .collect();
        let manifest = serde_json::to_vec(&manifest(policy)).context("the run's manifest")?;
        self.artifacts.put(manifest::NAME, manifest);
        self.artifacts.retain(|name| name == manifest::NAME || names.iter().any(|n| n == name));
        Ok(policy_id)
    }

    /// Describes a model folder. Its content does not change while a run works, so the result is cached.
    fn model(&self, folder: &Path) -> Result<ModelManifest> {
        // Entries are only inserted as a whole, so a poisoned lock is safe to use.
        let mut known = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(manifest) = known.get(folder) {
            return Ok(manifest.clone());
        }
        let manifest = ModelManifest::of(folder)?;
        // Checkpoints of earlier rounds are not needed again.
        known.retain(|path, _| path.is_dir());
        known.insert(folder.to_owned(), manifest.clone());
        Ok(manifest)
    }

    /// Starts the configured workers, or takes over those of a previous coordinator.
    ///
    /// # Errors
    /// Returns an error if a launcher rejects its configuration.
    pub fn start_workers(&mut self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (kind, pool) in [(GENERATE, self.config.generate.clone()), (VERIFY, self.config.verify.clone())] {
            if pool.is_launched() {
                let supervisor = self.start_pool(&kind, &pool)?;
                self.pools.push(WorkerPool { kind, supervisor });
            }
        }
        if self.pools.is_empty() {
            let token = self.run.join(TOKEN);
            for (kind, pool) in [("generate", &self.config.generate), ("verify", &self.config.verify)] {
                let others = if pool.by == By::Embedded { "more " } else { "" };
                notes.push(format!(
                    "{others}workers: sgs worker {kind} --connect {} --token-file {}",
                    self.url,
                    token.display()
                ));
            }
        }
        Ok(notes)
    }

    fn start_pool(&self, kind: &WorkKind, pool: &WorkerPoolConfig) -> Result<Supervisor> {
        let folder = self.run.join(WORKERS);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let command = self.command(kind, pool)?;
        // The prefix differs between coordinators, so that worker names are unique.
        let prefix = format!("{kind}-{}", nonce());
        let launcher: Box<dyn sgs_fleet::Launcher> = match pool.by {
            By::Slurm => Box::new(SlurmLauncher::new(slurm(pool, command, &prefix, &folder)?)?),
            _ => {
                let launcher = LocalLauncher::new(command, &prefix, &folder)?;
                // Verification workers need no GPU.
                let gpus = if *kind == GENERATE { self.gpus.clone() } else { Vec::new() };
                Box::new(launcher.with_devices(gpus))
            }
        };
        let list =
            folder.join(format!("{kind}-{}.json", if pool.by == By::Slurm { "slurm" } else { "local" }));
        let inherited = read_jobs(&list);
        let changed = move |jobs: &[WorkerJob]| {
            let pairs: Vec<(&str, &str)> =
                jobs.iter().map(|j| (j.id.0.as_str(), j.worker.as_str())).collect();
            let text = serde_json::to_vec(&pairs).unwrap_or_default();
            if let Err(error) = write_file(&list, &text) {
                tracing::warn!("the list of workers cannot be written: {error}");
            }
        };
        let fleet = Some(self.fleet.clone());
        Ok(Supervisor::start(
            launcher,
            pool.count,
            RestartPolicy::default(),
            fleet,
            inherited,
            Box::new(changed),
        )?)
    }

    fn command(&self, kind: &WorkKind, pool: &WorkerPoolConfig) -> Result<Vec<String>> {
        let program = match &pool.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("this program's own path")?,
        };
        let mut command = vec![program.display().to_string(), "worker".into(), kind.to_string()];
        command.extend(["--connect".into(), self.url.clone(), "--name".into(), "{worker}".into()]);
        // Pass the file instead of the token, because other users can read command lines.
        command.extend(["--token-file".into(), self.run.join(TOKEN).display().to_string()]);
        if let Some(authority) = &self.config.authority {
            command.extend(["--authority".into(), authority.display().to_string()]);
        }
        if pool.by == By::Local {
            command.extend(["--parent".into(), std::process::id().to_string()]);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if *kind == GENERATE {
            let shared = (pool.by == By::Local).then(|| (cores / pool.count).max(1));
            if let Some(threads) = pool.threads.or(shared) {
                command.extend(["--threads".into(), threads.to_string()]);
            }
        } else if let Some(slots) = pool.slots {
            command.extend(["--slots".into(), slots.to_string()]);
        }
        Ok(command)
    }

    /// Called while the run waits for results; `silent` is the idle time, `open` describes the pending work.
    ///
    /// # Errors
    /// Returns an error if workers keep crashing, or no result arrives although there are workers.
    pub fn check(&self, silent: Duration, open: &dyn Fn() -> String) -> Result<()> {
        for pool in &self.pools {
            pool.supervisor.check().with_context(|| format!("no {} workers", pool.kind))?;
        }
        if silent < Duration::from_secs(5) {
            return Ok(());
        }
        let status = self.fleet.status();
        let missing = self.missing(&status);
        if missing.is_empty() {
            // Do not use `silent` here, because the workers may have just started after hours in a queue.
            if status.stalled_s > SILENCE.as_secs_f64() {
                bail!(
                    "no result for {:.0} s although workers hold tasks; {}. Look at `sgs status RUN`, then resume",
                    status.stalled_s,
                    open()
                );
            }
            return Ok(());
        }
        // A poisoned lock is safe to use, because a time is always valid.
        let mut reminded = self.reminded.lock().unwrap_or_else(PoisonError::into_inner);
        if reminded.elapsed() >= REMINDER {
            *reminded = Instant::now();
            tracing::warn!("waiting for workers: {}", missing.join("; "));
        }
        Ok(())
    }

    /// Describes the kinds of tasks that are pending without a recently active worker.
    fn missing(&self, status: &BoardStatus) -> Vec<String> {
        let waits =
            status.kinds.iter().filter(|k| k.pending + k.leased > 0 && self.by(&k.kind) != By::Embedded);
        let alone = self.config.recheck.is_some()
            && status.kinds.iter().any(|k| {
                k.kind == VERIFY
                    && k.pending > 0
                    && k.leased == 0
                    && self.active_workers(status, &VERIFY) == 1
            });
        let second =
            alone.then(|| "proofs wait for a second worker to check them again (`recheck`)".to_owned());
        let unattended = waits.filter(|k| self.active_workers(status, &k.kind) == 0);
        let unattended = unattended.map(|k| {
            let pool = self.pools.iter().find(|pool| pool.kind == k.kind).map(|c| c.supervisor.status());
            let jobs = pool.map_or_else(|| format!("none has connected to {}", self.url), |s| describe(&s));
            format!("{} {} tasks wait, {jobs}", k.pending + k.leased, k.kind)
        });
        unattended.chain(second).collect()
    }

    fn active_workers(&self, status: &BoardStatus, kind: &WorkKind) -> usize {
        let workers = status.workers.iter().filter(|w| w.silent_s < ACTIVE_WITHIN_S);
        workers.filter(|w| w.worker.as_str().starts_with(kind.as_str())).count()
    }

    /// Ends all workers at the end of the run.
    pub fn finish(mut self) -> Result<()> {
        self.fleet.set_drain(true);
        let stopping: Vec<_> = self
            .pools
            .drain(..)
            .map(|pool| std::thread::spawn(move || pool.supervisor.stop(GRACE)))
            .collect();
        for thread in stopping {
            thread.join().map_err(|_| RunError::Failed("a supervisor's thread panicked".into()))?;
        }
        if self.fleet.status().workers.iter().any(|w| w.silent_s < ACTIVE_WITHIN_S) {
            std::thread::sleep(FAREWELL);
        }
        Ok(())
    }
}

fn describe(s: &SupervisorStatus) -> String {
    let trouble = s.trouble.as_ref().map(|t| format!("; the last trouble: {t}")).unwrap_or_default();
    format!("{} of {} workers run, {} are in the queue{trouble}", s.running, s.wanted, s.waiting)
}

/// Returns the workers' token and the certificate of the coordinator, and writes the file with which workers connect. The
/// key is generated at the first start and kept, so that workers recognise a resumed coordinator.
fn credentials(config: &FleetConfig, run: &Path) -> Result<(AuthToken, Arc<ServerConfig>)> {
    let path = run.join(TOKEN);
    let token = match AuthToken::from_file_or_environment(config.token_file.as_deref())? {
        Some(token) => token,
        None => AuthToken::read_or_generate(&path)?,
    };
    let (tls, fingerprint) = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => {
            (TlsFiles { certificate: certificate.clone(), key: key.clone() }.server()?, None)
        }
        _ => {
            let identity = Identity::from_secret(AuthToken::read_or_generate(&run.join(KEY))?.secret());
            (identity.server(), Some(identity.fingerprint()))
        }
    };
    let token = token.with_fingerprint(fingerprint);
    token.write(&path)?;
    Ok((token, tls))
}

fn slurm(pool: &WorkerPoolConfig, command: Vec<String>, prefix: &str, logs: &Path) -> Result<SlurmConfig> {
    let mut config = SlurmConfig::new(command, prefix, logs);
    if let Some(path) = &pool.template {
        config.template = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the template {}", path.display()))?;
    }
    config.options = pool.options.clone();
    config.setup = pool.setup.clone();
    config.container = pool.container.clone();
    config.bin = pool.bin.clone();
    if let Some(grace) = pool.grace_s {
        config.grace_s = grace;
    }
    if let Some(seconds) = pool.poll_s {
        config.interval = Duration::from_secs_f64(seconds);
    }
    Ok(config)
}

/// Reads the jobs of a previous coordinator. If the list cannot be read, new workers are started, and the old ones
/// continue until they end.
fn read_jobs(list: &Path) -> Vec<WorkerJob> {
    let pairs: Vec<(String, String)> =
        std::fs::read(list).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let job = |(id, worker): (String, String)| {
        Some(WorkerJob { id: JobId(id), worker: WorkerName::new(&worker).ok()? })
    };
    pairs.into_iter().filter_map(job).collect()
}

/// Returns a few characters that differ between processes.
pub fn nonce() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mixed = (now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    format!("{:08x}", (mixed >> 20) as u32)
}
