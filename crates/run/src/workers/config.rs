//! Configuration of a run's workers: threads of the coordinator, local processes, Slurm jobs, or workers that are
//! started elsewhere.
//!
//! The configuration is given as `--workers SPEC` or as a TOML file. It does not affect the results of a run, so it is
//! not frozen, and a run may be resumed with other workers. The last one is stored in `fleet.toml` in the run's folder.

use crate::Usage;
use crate::config::device::most_processes;
use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The coordinator's address and its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FleetConfig {
    /// Address to listen on. Default: loopback, or all addresses if workers are Slurm jobs. Port 0 selects a free
    /// port.
    pub listen: Option<SocketAddr>,
    /// Host name or address that workers connect to. Default: the host's name, or the loopback address.
    pub host: Option<String>,
    /// File with the workers' token. Default: `fleet.token` in the run's folder, created if missing. Workers get the
    /// token from there in any case, with the fingerprint of the coordinator's key.
    pub token_file: Option<PathBuf>,
    /// The operator's certificate chain for TLS, PEM. Default: the coordinator makes its own.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// CA certificates for workers, PEM, if the coordinator's certificate is not publicly signed.
    pub authority: Option<PathBuf>,
    /// Fraction of the proofs to recheck on another worker, in addition to all proofs of unsolved targets, if
    /// verification takes seconds. Default: no rechecks.
    pub recheck: Option<f64>,
    pub generate: WorkerPoolConfig,
    pub verify: WorkerPoolConfig,
}

/// Where workers of one kind come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Threads of the coordinator.
    #[default]
    Embedded,
    /// Workers that are started elsewhere and connect to the coordinator.
    None,
    /// Local processes.
    Local,
    /// Slurm jobs.
    Slurm,
}

/// The workers of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkerPoolConfig {
    /// `embedded`, `none`, `local` or `slurm`.
    pub by: By,
    pub count: usize,
    /// Proofs that one verification worker checks at once. Default: its cores.
    pub slots: Option<usize>,
    /// Threads of one generation worker. Default: its cores; local workers share them.
    pub threads: Option<usize>,
    /// Path of `sgs` for workers. Default: this program.
    pub program: Option<PathBuf>,
    /// Slurm: shell lines to run before the worker starts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub setup: String,
    /// Slurm: the container command, such as ["apptainer", "exec", "--nv", "image.sif"].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container: Vec<String>,
    /// Slurm: a custom batch script.
    pub template: Option<PathBuf>,
    /// Slurm: seconds between SIGTERM and the job's time limit [default: 90].
    pub grace_s: Option<u32>,
    /// Slurm: interval between queries of the queue in seconds. Default: 10.
    pub poll_s: Option<f64>,
    /// Slurm: folder of the Slurm commands, if it is not in PATH.
    pub bin: Option<PathBuf>,
    /// Slurm: options of `sbatch` by long name without dashes; an empty value means an option without a value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

impl Default for WorkerPoolConfig {
    fn default() -> Self {
        Self {
            by: By::Embedded,
            count: 1,
            slots: None,
            threads: None,
            program: None,
            setup: String::new(),
            container: Vec::new(),
            template: None,
            grace_s: None,
            poll_s: None,
            bin: None,
            options: BTreeMap::new(),
        }
    }
}

impl WorkerPoolConfig {
    fn by(by: By) -> Self {
        Self { by, ..Self::default() }
    }

    /// Returns true if the coordinator starts processes for it.
    pub fn is_launched(&self) -> bool {
        matches!(self.by, By::Local | By::Slurm)
    }
}

impl FleetConfig {
    /// Returns a fleet whose workers are all started elsewhere.
    pub fn by_hand() -> Self {
        Self {
            generate: WorkerPoolConfig::by(By::None),
            verify: WorkerPoolConfig::by(By::None),
            ..Self::default()
        }
    }

    /// Returns true if all work is done in the coordinator's process.
    pub fn is_embedded(&self) -> bool {
        self.listen.is_none() && [&self.generate, &self.verify].iter().all(|pool| pool.by == By::Embedded)
    }

    /// Makes its paths valid in any working directory.
    pub fn absolute(mut self) -> Result<Self> {
        let paths = [&mut self.token_file, &mut self.certificate, &mut self.key, &mut self.authority];
        for path in paths.into_iter().flatten() {
            *path = std::path::absolute(&*path).with_context(|| path.display().to_string())?;
        }
        for pool in [&mut self.generate, &mut self.verify] {
            // A name without a folder is looked up on the PATH.
            let program = pool.program.as_mut().filter(|program| program.components().count() > 1);
            for path in program.into_iter().chain(&mut pool.template).chain(&mut pool.bin) {
                *path = std::path::absolute(&*path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(self)
    }

    /// Parses `--workers SPEC`: `embedded`, `none`, `local:…`, `slurm:…` or a TOML file.
    pub fn parse(spec: &str) -> Result<Self> {
        let config = match spec.split_once(':') {
            None if spec == "embedded" => Self::default(),
            None if spec == "none" => Self::by_hand(),
            None if spec.ends_with(".toml") => Self::read(Path::new(spec))?,
            Some(("local", rest)) => pools(By::Local, rest, spec)?,
            Some(("slurm", rest)) => pools(By::Slurm, rest, spec)?,
            _ => {
                return Err(Usage(format!(
                    "--workers {spec}: expected embedded, none, local:N, local:generate=G,verify=V, \
                     slurm:generate=G,verify=V,partition=NAME or a file that ends in .toml"
                ))
                .into());
            }
        };
        config.check(&format!("--workers {spec}"))?;
        Ok(config)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has unknown keys or invalid values.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Usage(format!("--workers {}: there is no such file or folder", path.display()))
            }
            _ => Usage(format!("--workers {}: cannot read it: {error}", path.display())),
        })?;
        toml::from_str(&text).map_err(|e| Usage(format!("{}: {e}", path.display())).into())
    }

    /// Checks that this machine has room for the workers that the run starts on it.
    ///
    /// # Errors
    /// Returns [`Usage`] with the largest number.
    pub fn check_room(&self) -> Result<(), Usage> {
        let most = most_processes();
        for (name, pool) in [("generate", &self.generate), ("verify", &self.verify)] {
            if pool.by == By::Local && pool.count > most {
                let count = pool.count;
                return Err(Usage(format!(
                    "{name}.count is {count}, but this machine has processors for {most} local workers: lower it, or \
                     start workers on several machines (docs/cluster.md)"
                )));
            }
        }
        Ok(())
    }

    fn check(&self, origin: &str) -> Result<()> {
        self.problem().map_or(Ok(()), |problem| Err(Usage(format!("{origin}: {problem}")).into()))
    }

    /// Returns what makes no sense, if anything.
    fn problem(&self) -> Option<String> {
        for (name, pool) in [("generate", &self.generate), ("verify", &self.verify)] {
            let zero = [("count", Some(pool.count)), ("slots", pool.slots), ("threads", pool.threads)];
            if let Some((key, _)) = zero.iter().find(|(_, n)| *n == Some(0)) {
                return Some(format!("{name}.{key} is 0: give at least 1"));
            }
            if let Some((key, Some(n))) = zero.iter().find(|(_, n)| n.is_some_and(|n| n > MOST)) {
                return Some(format!("{name}.{key} is {n}: give at most {MOST}"));
            }
            if pool.poll_s.is_some_and(|s| !(s > 0.0 && s <= A_DAY)) {
                return Some(format!("{name}.poll-s: give a number of seconds above 0, at most {A_DAY}"));
            }
        }
        let has_second =
            self.verify.by != By::Embedded && !(self.verify.is_launched() && self.verify.count < 2);
        let problem = match self.recheck {
            Some(share) if !(0.0..=1.0).contains(&share) => {
                return Some(format!("recheck is {share}: give a share from 0 to 1"));
            }
            Some(_) if !has_second => "recheck needs a second worker: give at least verify=2",
            _ if self.certificate.is_some() != self.key.is_some() => {
                "give both certificate and key, or neither"
            }
            _ if self.authority.is_some() && self.certificate.is_none() => {
                "authority is for workers that check the operator's certificate: give certificate and key"
            }
            _ => return None,
        };
        Some(problem.to_owned())
    }
}

/// Maximum number of workers of a kind, and of slots and threads of a worker.
const MOST: usize = 100_000;

/// Longest interval between queries of the queue, in seconds.
const A_DAY: f64 = 86_400.0;

/// Keys of the short form, in addition to `generate` and `verify`.
const KEYS: [&str; 6] = ["slots", "threads", "program", "bin", "poll-s", "recheck"];

/// Parses `N` or `KEY=VALUE,…`. `generate` and `verify` are numbers of workers. Other keys apply to both kinds, or to
/// one as `generate.KEY`; unknown keys are options of `sbatch`.
fn pools(by: By, text: &str, spec: &str) -> Result<FleetConfig> {
    let wrong = |problem: String| Usage(format!("--workers {spec}: {problem}"));
    let count = |key: &str, value: &str| number(key, value).map_err(wrong);
    let mut config = FleetConfig::default();
    if !text.contains('=') {
        let count = count("the number of workers", text)?;
        config.generate = WorkerPoolConfig { count, ..WorkerPoolConfig::by(by) };
        config.verify = WorkerPoolConfig::by(by);
        return Ok(config);
    }
    let pairs: Vec<(&str, &str)> = text
        .split(',')
        .map(|pair| {
            let pair = pair.trim();
            // An option of sbatch without a value.
            pair.split_once('=').unwrap_or((pair, ""))
        })
        .collect();
    for (key, value) in &pairs {
        let pool = match *key {
            "generate" => &mut config.generate,
            "verify" => &mut config.verify,
            _ => continue,
        };
        *pool = WorkerPoolConfig { count: count(key, value)?, ..WorkerPoolConfig::by(by) };
    }
    if config.is_embedded() {
        return Err(wrong("it starts no workers: give generate=N, verify=N or both".into()).into());
    }
    for (key, value) in pairs {
        let (pools, key) = match key.split_once('.') {
            Some(("generate", key)) => (vec![&mut config.generate], key),
            Some(("verify", key)) => (vec![&mut config.verify], key),
            None if key == "recheck" => {
                let share = value.parse().map_err(|_| wrong(format!("recheck is {value:?}")))?;
                config.recheck = Some(share);
                continue;
            }
            Some((kind, _)) => {
                return Err(wrong(format!("there is no kind {kind:?}; expected generate or verify")).into());
            }
            None if key == "generate" || key == "verify" => continue,
            None => (vec![&mut config.generate, &mut config.verify], key),
        };
        for pool in pools {
            set(pool, by, key, value).map_err(wrong)?;
        }
    }
    Ok(config)
}

/// Sets a key of a pool. The error says what is wrong.
fn set(pool: &mut WorkerPoolConfig, by: By, key: &str, value: &str) -> std::result::Result<(), String> {
    match key {
        "slots" => pool.slots = Some(number(key, value)?),
        "threads" => pool.threads = Some(number(key, value)?),
        "program" => pool.program = Some(value.into()),
        "bin" => pool.bin = Some(value.into()),
        "poll-s" => pool.poll_s = Some(value.parse().map_err(|_| format!("poll-s is {value:?}"))?),
        _ => {
            let mut own = KEYS.iter().chain(["generate", "verify"].iter());
            if let Some(near) = own.find(|known| strsim::jaro_winkler(known, key) > 0.85) {
                return Err(format!("there is no key {key:?}; did you mean {near:?}?"));
            }
            if by != By::Slurm {
                let keys = KEYS.join(", ");
                return Err(format!("there is no key {key:?}; expected one of generate, verify, {keys}"));
            }
            pool.options.insert(key.to_owned(), value.to_owned());
        }
    }
    Ok(())
}

fn number(key: &str, value: &str) -> std::result::Result<usize, String> {
    value.parse().map_err(|_| format!("{key} is {value:?}: expected a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RunError;

    fn parse(spec: &str) -> FleetConfig {
        FleetConfig::parse(spec).unwrap_or_else(|e| panic!("{spec}: {e:#}"))
    }

    fn refusal(spec: &str) -> String {
        let error = FleetConfig::parse(spec).expect_err("makes no sense");
        assert!(matches!(error, RunError::Usage(_)), "{error:#}");
        error.to_string()
    }

    #[test]
    fn the_short_forms_say_who_does_what() {
        assert!(parse("embedded").is_embedded());
        assert_eq!(parse("none").generate.by, By::None);
        let two = parse("local:2");
        assert_eq!((two.generate.by, two.generate.count, two.verify.count), (By::Local, 2, 1));
        let only = parse("local:generate=3,threads=2");
        assert_eq!((only.generate.count, only.generate.threads), (3, Some(2)));
        assert_eq!(only.verify.by, By::Embedded, "what is not named stays in the coordinator");
        assert_eq!(parse("local:verify=2,recheck=0.05").recheck, Some(0.05));
        let slurm =
            parse("slurm:generate=64,verify=128,slots=33,partition=main,generate.gres=gpu:1,exclusive");
        assert_eq!((slurm.generate.count, slurm.verify.count, slurm.verify.slots), (64, 128, Some(33)));
        assert_eq!(slurm.generate.options["gres"], "gpu:1");
        assert!(!slurm.verify.options.contains_key("gres"));
        assert_eq!((&*slurm.verify.options["partition"], &*slurm.verify.options["exclusive"]), ("main", ""));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (spec, words) in [
            ("slum:2", "expected embedded, none, local:N"),
            ("local:", "expected a whole number"),
            ("local:generate=many", "generate is \"many\""),
            ("local:generate=0", "generate.count is 0"),
            ("local:partition=x,generate=1", "no key \"partition\""),
            ("slurm:partition=main", "it starts no workers"),
            ("slurm:generat=2,verify=1", "did you mean \"generate\"?"),
            ("slurm:verify=1,slots=0", "slots is 0"),
            ("slurm:generate=1,guide.mem=1", "no kind \"guide\""),
            ("local:verify=1,recheck=0.1", "give at least verify=2"),
            ("local:generate=2,recheck=0", "give at least verify=2"),
            ("local:verify=2,recheck=2", "recheck is 2"),
            ("local:verify=2,recheck=all", "recheck is \"all\""),
        ] {
            let message = refusal(spec);
            assert!(message.contains(words), "{spec}: {message}");
        }
    }

    #[test]
    fn paths_become_absolute_except_names_of_programs() {
        let config = parse("local:verify=1,verify.program=tools/sgs,verify.bin=slurm");
        let mut config = FleetConfig { token_file: Some("token".into()), ..config };
        config.generate.program = Some("sgs".into());
        config.generate.template = Some("job.sh".into());
        let absolute = config.absolute().expect("a working directory");
        let at = |name: &str| Some(std::path::absolute(name).expect("a path"));
        assert_eq!((absolute.token_file, absolute.generate.template), (at("token"), at("job.sh")));
        assert_eq!((absolute.verify.program, absolute.verify.bin), (at("tools/sgs"), at("slurm")));
        assert_eq!(absolute.generate.program, Some("sgs".into()), "it is looked up on the PATH");
    }

    #[test]
    fn a_file_can_say_more_and_is_read_back_as_it_was_written() {
        let text = "listen = \"0.0.0.0:7717\"\nhost = \"login1\"\n\n[generate]\nby = \"slurm\"\ncount = 64\n\
                    setup = \"module load cuda\"\ncontainer = [\"apptainer\", \"exec\"]\n\n[generate.options]\n\
                    gres = \"gpu:1\"\n\n[verify]\nby = \"local\"\ncount = 2\nslots = 33\n";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cluster.toml");
        std::fs::write(&path, text).expect("writes");
        let config = parse(path.to_str().expect("text"));
        assert_eq!((config.generate.by, config.verify.by, config.generate.count), (By::Slurm, By::Local, 64));
        let again: FleetConfig = toml::from_str(&toml::to_string(&config).expect("TOML")).expect("reads");
        assert_eq!(again, config);
        std::fs::write(&path, "[generate]\nby = \"slurm\"\ncont = 3\n").expect("writes");
        assert!(refusal(path.to_str().expect("text")).contains("cont"), "unknown keys are errors");
    }
}
