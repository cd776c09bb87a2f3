//! The coordinator's side of a run with workers in other processes: the board behind HTTP, the weights laid out, workers
//! started and kept alive.

use super::super::tasks::{GENERATE, VERIFY};
use super::config::{self, By, CrewConfig, FleetConfig};
use super::sheet::{self, ModelSheet, PolicySheet, Sheet};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use sgs_fleet::{
    Backpressure, BoardConfig, BoardStatus, CrashRules, Fleet, Job, JobId, LocalLauncher, Service,
    ServiceConfig, Shelf, SlurmConfig, SlurmLauncher, Supervisor, SupervisorStatus, TaskKind, TlsFiles,
    Token, WorkerName,
};
use sgs_rundir::files::write_file;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The workers' token in a run's folder.
const TOKEN: &str = "fleet.token";
/// Folder of the workers' logs, batch scripts and job lists in a run's folder.
const WORKERS: &str = "workers";
/// Environment variable with the token.
pub const TOKEN_VARIABLE: &str = "SGS_TOKEN";
/// Environment variable with the name of a token file.
pub const TOKEN_FILE_VARIABLE: &str = "SGS_TOKEN_FILE";

/// So many open verifications hold generation back.
const MOST_OPEN_VERIFICATIONS: usize = 200_000;
/// Workers have so long to leave when the run is over.
const GRACE: Duration = Duration::from_secs(30);
/// How long the service goes on after the end, so that everybody who asks for work hears of it.
const FAREWELL: Duration = Duration::from_secs(1);
/// A worker that was silent for longer is not counted as there.
const HEARD: f64 = 60.0;
/// How often the user is told that there are no workers.
const REMINDER: Duration = Duration::from_secs(60);
/// Longest time in which workers hold tasks and no result comes in.
const SILENCE: Duration = Duration::from_secs(600);

/// What a run's folder says of its fleet: for `sgs resume` and `sgs status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Remembered {
    /// Where the coordinator listens, for workers.
    pub url: String,
    /// What it was given, with the address that it got.
    pub fleet: FleetConfig,
}

impl Remembered {
    /// What a run was last given; `None` if its work was all done in its own process.
    ///
    /// # Errors
    /// The file is broken.
    pub fn read(run: &Path) -> Result<Option<Self>> {
        let path = run.join(config::FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(toml::from_str(&text).with_context(|| path.display().to_string())?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The token that workers of the run show.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn token(&self, run: &Path) -> Result<Token> {
        match token_of_environment()? {
            Some(token) => Ok(token),
            None => Ok(Token::read(&self.fleet.token_file.clone().unwrap_or_else(|| run.join(TOKEN)))?),
        }
    }
}

/// The token of the environment: itself, or the name of its file.
///
/// # Errors
/// It is unfit, or the file cannot be read.
pub fn token_of_environment() -> Result<Option<Token>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(text) = set(TOKEN_VARIABLE) {
        return Ok(Some(Token::new(&text, TOKEN_VARIABLE)?));
    }
    Ok(set(TOKEN_FILE_VARIABLE).map(|path| Token::read(Path::new(&path))).transpose()?)
}

/// Workers of one kind under care.
struct Crew {
    kind: TaskKind,
    supervisor: Supervisor,
}

/// A coordinator that others connect to. Dropping it ends the workers that it has started.
pub struct Outside {
    fleet: Fleet,
    config: FleetConfig,
    run: PathBuf,
    url: String,
    token_file: Option<PathBuf>,
    shelf: Shelf,
    crews: Vec<Crew>,
    models: Mutex<HashMap<PathBuf, ModelSheet>>,
    gpus: Vec<String>,
    reminded: Mutex<Instant>,
    // Dropped after the crews: their workers say goodbye to it.
    service: Service,
}

impl Outside {
    /// Opens a board and listens. Workers that a coordinator before this one has left go on with what they hold.
    ///
    /// # Errors
    /// The address is taken, or there is no token to be had.
    pub fn open(config: &FleetConfig, run: &Path) -> Result<Self> {
        let mut config = config.clone();
        let run = std::fs::canonicalize(run).with_context(|| run.display().to_string())?;
        let (token, token_file) = token(&config, &run)?;
        let fleet = Fleet::journalled(BoardConfig {
            backpressure: Some(Backpressure {
                hold: GENERATE,
                while_open: VERIFY,
                limit: MOST_OPEN_VERIFICATIONS,
            }),
            ..BoardConfig::default()
        });
        let shelf = Shelf::default();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let crews = [&config.generate, &config.verify];
        let is_cluster = crews.iter().any(|crew| crew.by == By::Slurm);
        let open = if is_cluster { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { loopback };
        let listen = config.listen.unwrap_or_else(|| SocketAddr::new(open, 0));
        let tls = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        };
        let asked = ServiceConfig {
            listen,
            token: Some(token),
            tls,
            shelf: shelf.clone(),
            ..ServiceConfig::default()
        };
        let service = Service::start(fleet.clone(), asked).map_err(|error| {
            anyhow!(error).context("the coordinator cannot listen (another address: --listen ADDRESS:PORT)")
        })?;
        let address = service.address();
        // Whoever was given the address will look for the coordinator there again; local workers are started anew.
        let is_looked_for =
            config.listen.is_some() || crews.iter().any(|c| matches!(c.by, By::None | By::Slurm));
        let host = match &config.host {
            Some(host) => host.clone(),
            None if address.ip().is_unspecified() => crate::machine::host_name(),
            None => address.ip().to_string(),
        };
        let url = service.url(&host);
        if is_looked_for {
            config.listen = Some(address);
        }
        // Names that hold from any folder.
        if config.token_file.is_some() {
            config.token_file.clone_from(&token_file);
        }
        if let Some(authority) = &config.authority {
            let path = std::fs::canonicalize(authority);
            config.authority = Some(path.with_context(|| format!("authority {}", authority.display()))?);
        }
        let remembered = Remembered { url: url.clone(), fleet: config.clone() };
        write_file(&run.join(config::FILE), toml::to_string_pretty(&remembered)?.as_bytes())?;
        Ok(Self {
            fleet,
            config,
            run,
            url,
            token_file,
            shelf,
            crews: Vec::new(),
            models: Mutex::default(),
            gpus: Vec::new(),
            reminded: Mutex::new(Instant::now()),
            service,
        })
    }

    /// Removes what a run that had workers outside has left, for one that goes on without.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn forget(run: &Path) -> Result<()> {
        match std::fs::remove_file(run.join(config::FILE)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", config::FILE))
            }
            _ => Ok(()),
        }
    }

    /// Spreads generation workers of this machine over these GPUs, one each; more workers than GPUs share them.
    pub fn spread_over(&mut self, gpus: Vec<String>) {
        self.gpus = gpus;
    }

    /// The board.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Who does the work of a kind.
    pub fn by(&self, kind: &TaskKind) -> By {
        if *kind == GENERATE {
            self.config.generate.by
        } else if *kind == VERIFY {
            self.config.verify.by
        } else {
            // Roles that another server plays are asked for by a thread of the coordinator.
            By::Embedded
        }
    }

    /// The share of proofs that another worker checks again, if that is wanted.
    pub fn recheck(&self) -> Option<f64> {
        self.config.recheck
    }

    /// Lays out a policy version: models by role, Solver, Conjecturer, Guide. Gives its id.
    ///
    /// # Errors
    /// A model folder cannot be read.
    pub fn lay_out(
        &self,
        policy_version: u32,
        folders: &[PathBuf; 3],
        sheet: impl FnOnce(PolicySheet) -> Sheet,
    ) -> Result<String> {
        let [solver, conjecturer, guide] = folders;
        let policy = PolicySheet {
            policy_version,
            solver: self.model(solver)?,
            conjecturer: self.model(conjecturer)?,
            guide: self.model(guide)?,
        };
        let policy_id = policy.policy_id();
        let names: Vec<String> = policy
            .models()
            .values()
            .flat_map(|model| {
                model.files.iter().map(|file| {
                    let name = model.shelf_name(file);
                    self.shelf.put_file(&name, &model.folder.join(file.name.as_str()));
                    name
                })
            })
            .collect();
        let sheet = serde_json::to_vec(&sheet(policy)).context("the run's sheet")?;
        self.shelf.put(sheet::NAME, sheet);
        self.shelf.retain(|name| name == sheet::NAME || names.iter().any(|n| n == name));
        Ok(policy_id)
    }

    /// A model folder's sheet; what a folder holds does not change while a run works.
    fn model(&self, folder: &Path) -> Result<ModelSheet> {
        let mut known = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sheet) = known.get(folder) {
            return Ok(sheet.clone());
        }
        let sheet = ModelSheet::of(folder)?;
        // The checkpoints of earlier rounds do not come back.
        known.retain(|path, _| path.is_dir());
        known.insert(folder.to_owned(), sheet.clone());
        Ok(sheet)
    }

    /// Starts the workers that the configuration asks for, or takes over those of a coordinator that has died.
    ///
    /// # Errors
    /// A launcher refuses its configuration.
    pub fn start_workers(&mut self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (kind, crew) in [(GENERATE, self.config.generate.clone()), (VERIFY, self.config.verify.clone())] {
            if crew.is_launched() {
                let supervisor = self.start_crew(&kind, &crew)?;
                self.crews.push(Crew { kind, supervisor });
            }
        }
        if self.crews.is_empty() {
            let options = self.token_option().join(" ");
            for (kind, crew) in [("generate", &self.config.generate), ("verify", &self.config.verify)] {
                let others = if crew.by == By::Embedded { "more " } else { "" };
                notes.push(format!("{others}workers: sgs worker {kind} --connect {} {options}", self.url));
            }
        }
        Ok(notes)
    }

    fn start_crew(&self, kind: &TaskKind, crew: &CrewConfig) -> Result<Supervisor> {
        let folder = self.run.join(WORKERS);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let command = self.command(kind, crew)?;
        // New for every coordinator, so that no two workers ever have one name.
        let prefix = format!("{kind}-{}", nonce());
        let launcher: Box<dyn sgs_fleet::Launcher> = match crew.by {
            By::Slurm => Box::new(SlurmLauncher::new(slurm(crew, command, &prefix, &folder)?)?),
            _ => {
                let launcher = LocalLauncher::new(command, &prefix, &folder)?;
                // Checkers compute on the processor.
                let gpus = if *kind == GENERATE { self.gpus.clone() } else { Vec::new() };
                Box::new(launcher.with_devices(gpus))
            }
        };
        let list =
            folder.join(format!("{kind}-{}.json", if crew.by == By::Slurm { "slurm" } else { "local" }));
        let inherited = read_jobs(&list);
        let changed = move |jobs: &[Job]| {
            let pairs: Vec<(&str, &str)> =
                jobs.iter().map(|j| (j.id.0.as_str(), j.worker.as_str())).collect();
            let text = serde_json::to_vec(&pairs).unwrap_or_default();
            if let Err(error) = write_file(&list, &text) {
                tracing::warn!("the list of workers is not written: {error}");
            }
        };
        let fleet = Some(self.fleet.clone());
        Ok(Supervisor::take_over(
            launcher,
            crew.count,
            CrashRules::default(),
            fleet,
            inherited,
            Box::new(changed),
        )?)
    }

    /// What a worker runs.
    fn command(&self, kind: &TaskKind, crew: &CrewConfig) -> Result<Vec<String>> {
        let program = match &crew.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("this program's own path")?,
        };
        let mut command = vec![program.display().to_string(), "worker".into(), kind.to_string()];
        command.extend(["--connect".into(), self.url.clone(), "--name".into(), "{worker}".into()]);
        command.extend(self.token_option());
        if let Some(authority) = &self.config.authority {
            command.extend(["--authority".into(), authority.display().to_string()]);
        }
        if crew.by == By::Local {
            command.extend(["--parent".into(), std::process::id().to_string()]);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if *kind == GENERATE {
            let shared = (crew.by == By::Local).then(|| (cores / crew.count).max(1));
            if let Some(threads) = crew.threads.or(shared) {
                command.extend(["--threads".into(), threads.to_string()]);
            }
        } else if let Some(slots) = crew.slots {
            command.extend(["--slots".into(), slots.to_string()]);
        }
        Ok(command)
    }

    /// How workers are told the token: never on the command line itself.
    fn token_option(&self) -> Vec<String> {
        match &self.token_file {
            Some(path) => vec!["--token-file".into(), path.display().to_string()],
            // In the environment, which local processes and Slurm jobs get from this one.
            None => Vec::new(),
        }
    }

    /// To be asked wherever the run waits for results: `silent` is how long none has come in, `open` describes what is
    /// waited for.
    ///
    /// # Errors
    /// Workers crash again and again, or nothing comes in although there are some.
    pub fn check(&self, silent: Duration, open: &dyn Fn() -> String) -> Result<()> {
        for crew in &self.crews {
            crew.supervisor.check().with_context(|| format!("no {} workers", crew.kind))?;
        }
        if silent < Duration::from_secs(5) {
            return Ok(());
        }
        let status = self.fleet.status()?;
        let missing = self.missing(&status);
        if missing.is_empty() {
            // Not `silent`: workers may have arrived only now, after hours in a queue.
            if status.stalled_s > SILENCE.as_secs_f64() {
                bail!(
                    "nothing has come in for {:.0} s although workers hold tasks; {}; board: {}",
                    status.stalled_s,
                    open(),
                    serde_json::to_string(&status).unwrap_or_default()
                );
            }
            return Ok(());
        }
        let mut reminded = self.reminded.lock().unwrap_or_else(PoisonError::into_inner);
        if reminded.elapsed() >= REMINDER {
            *reminded = Instant::now();
            tracing::warn!("waiting for workers: {}", missing.join("; "));
        }
        Ok(())
    }

    /// The kinds of task that wait while nobody who does them has been heard of lately, in words.
    fn missing(&self, status: &BoardStatus) -> Vec<String> {
        let waits =
            status.kinds.iter().filter(|k| k.pending + k.leased > 0 && self.by(&k.kind) != By::Embedded);
        let alone = self.config.recheck.is_some()
            && status.kinds.iter().any(|k| {
                k.kind == VERIFY && k.pending > 0 && k.leased == 0 && self.heard(status, &VERIFY) == 1
            });
        let second =
            alone.then(|| "proofs wait for a second worker to check them again (`recheck`)".to_owned());
        let nobody = waits.filter(|k| self.heard(status, &k.kind) == 0);
        let nobody = nobody.map(|k| {
            let crew = self.crews.iter().find(|crew| crew.kind == k.kind).map(|c| c.supervisor.status());
            let jobs = crew.map_or_else(|| format!("none has connected to {}", self.url), |s| in_words(&s));
            format!("{} {} tasks wait, {jobs}", k.pending + k.leased, k.kind)
        });
        nobody.chain(second).collect()
    }

    /// How many workers of a kind have been heard of lately.
    fn heard(&self, status: &BoardStatus, kind: &TaskKind) -> usize {
        let workers = status.workers.iter().filter(|w| w.silent_s < HEARD);
        workers.filter(|w| w.worker.as_str().starts_with(kind.as_str())).count()
    }

    /// The run is over: everybody is sent home.
    ///
    /// # Errors
    /// The board is broken.
    pub fn finish(mut self) -> Result<()> {
        self.fleet.set_drain(true)?;
        let stopping: Vec<_> = self
            .crews
            .drain(..)
            .map(|crew| std::thread::spawn(move || crew.supervisor.stop(GRACE)))
            .collect();
        for thread in stopping {
            thread.join().map_err(|_| anyhow!("a supervisor's thread panicked"))?;
        }
        if self.fleet.status()?.workers.iter().any(|w| w.silent_s < HEARD) {
            std::thread::sleep(FAREWELL);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("url", &self.url)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

fn in_words(s: &SupervisorStatus) -> String {
    let trouble = s.trouble.as_ref().map(|t| format!("; the last trouble: {t}")).unwrap_or_default();
    format!("{} of {} workers run, {} are in the queue{trouble}", s.running, s.wanted, s.waiting)
}

/// The token, and the file that it stands in: what the user gives, or one of the run's own.
fn token(config: &FleetConfig, run: &Path) -> Result<(Token, Option<PathBuf>)> {
    if let Some(path) = &config.token_file {
        let path = std::fs::canonicalize(path).with_context(|| format!("token file {}", path.display()))?;
        return Ok((Token::read(&path)?, Some(path)));
    }
    if let Some(token) = token_of_environment()? {
        return Ok((token, None));
    }
    let path = run.join(TOKEN);
    if !path.exists() {
        Token::generate()?.write(&path)?;
    }
    Ok((Token::read(&path)?, Some(path)))
}

fn slurm(crew: &CrewConfig, command: Vec<String>, prefix: &str, logs: &Path) -> Result<SlurmConfig> {
    let mut config = SlurmConfig::new(command, prefix, logs);
    if let Some(path) = &crew.template {
        config.template = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the template {}", path.display()))?;
    }
    config.options = crew.options.clone();
    config.setup = crew.setup.clone();
    config.container = crew.container.clone();
    config.bin = crew.bin.clone();
    if let Some(grace) = crew.grace_s {
        config.grace_s = grace;
    }
    if let Some(seconds) = crew.poll_s {
        config.interval = Duration::from_secs_f64(seconds);
    }
    Ok(config)
}

/// The jobs that a coordinator before this one had under care. A list that cannot be read is none: then new workers are
/// started, and the old ones help until they end.
fn read_jobs(list: &Path) -> Vec<Job> {
    let pairs: Vec<(String, String)> =
        std::fs::read(list).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let job =
        |(id, worker): (String, String)| Some(Job { id: JobId(id), worker: WorkerName::new(&worker).ok()? });
    pairs.into_iter().filter_map(job).collect()
}

/// A few characters that differ from process to process.
pub fn nonce() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mixed = (now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    format!("{:08x}", (mixed >> 20) as u32)
}
