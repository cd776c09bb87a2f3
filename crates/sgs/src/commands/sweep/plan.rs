//! The file of a sweep, and the runs that it stands for.

use crate::exit::Usage;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sgs_run::config::{self, Layers, RunConfig};
use sgs_run::folder;
use sgs_rundir::RunView;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest file of a sweep, bytes.
const LONGEST: u64 = 1 << 20;

/// Most runs of a sweep.
const MOST_RUNS: usize = 10_000;

/// A sweep as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Methods, or TOML files as `sgs run` takes them.
    #[serde(default = "sgs")]
    methods: Vec<String>,
    /// Seeds of each method.
    #[serde(default = "one")]
    seeds: Vec<u64>,
    /// The size of all.
    size: Option<String>,
    pub jobs: Option<usize>,
    /// Keys that all runs have.
    #[serde(default)]
    set: toml::Table,
    /// Keys, each with its values: every combination is a run.
    #[serde(default)]
    vary: BTreeMap<String, Vec<toml::Value>>,
}

fn sgs() -> Vec<String> {
    vec!["sgs".to_owned()]
}

fn one() -> Vec<u64> {
    vec![1]
}

/// One run of a sweep.
pub struct Member {
    /// Its place in the order of the file.
    pub number: usize,
    /// Its folder's name.
    pub name: String,
    pub folder: PathBuf,
    pub config: RunConfig,
    layers: Layers,
}

impl Plan {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, is not TOML, or has a key that means nothing.
    pub fn read(file: &Path) -> Result<Self> {
        let text = text_of(file).with_context(|| format!("cannot read the sweep {}", file.display()))?;
        let plan: Self = toml::from_str(&text).map_err(|e| Usage(format!("{}: {e}", file.display())))?;
        for (what, is_empty) in [
            ("methods", plan.methods.is_empty()),
            ("seeds", plan.seeds.is_empty()),
            ("a key of [vary]", plan.vary.values().any(Vec::is_empty)),
        ] {
            if is_empty {
                return Err(
                    Usage(format!("{}: {what} is empty: there is nothing to run", file.display())).into()
                );
            }
        }
        Ok(plan)
    }

    /// How many runs it stands for.
    fn count(&self) -> usize {
        let varied = self.vary.values().map(Vec::len);
        [self.methods.len(), self.seeds.len()].into_iter().chain(varied).fold(1, usize::saturating_mul)
    }

    /// All runs, in folders below `out`: each is resolved before any begins.
    ///
    /// # Errors
    /// A method, size, key or value that a run would refuse; or two runs of one name.
    pub fn members(&self, out: &Path) -> Result<Vec<Member>> {
        let count = self.count();
        if count > MOST_RUNS {
            let told = format!("the sweep stands for {count} runs, and {MOST_RUNS} are the most: split it");
            return Err(Usage(told).into());
        }
        let mut common = Vec::new();
        settings("", &self.set, &mut common);
        let mut members: Vec<Member> = Vec::new();
        let mut names = BTreeSet::new();
        for method in &self.methods {
            for varied in self.combinations() {
                for seed in &self.seeds {
                    let name = name_of(method, &varied, *seed);
                    ensure!(names.insert(name.clone()), "two runs of the sweep would be called {name}");
                    let mut set = common.clone();
                    set.extend(varied.iter().map(|(key, value)| format!("{key}={value}")));
                    set.push(format!("seed={seed}"));
                    let (method, size) = (Some(method.clone()), self.size.clone());
                    let layers = Layers { method, size, set, ..Layers::default() };
                    let config = config::resolve(&layers, std::env::vars())?.config;
                    let (number, folder) = (members.len(), out.join(&name));
                    members.push(Member { number, name, folder, config, layers });
                }
            }
        }
        Ok(members)
    }

    /// Every combination of the keys that vary.
    fn combinations(&self) -> Vec<Vec<(&str, &toml::Value)>> {
        let mut all = vec![Vec::new()];
        for (key, values) in &self.vary {
            let with = |before: &Vec<(_, _)>, value| [&before[..], &[(key.as_str(), value)]].concat();
            all = all.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
        }
        all
    }
}

/// A file of a size that somebody may have written.
fn text_of(file: &Path) -> Result<String> {
    let mut text = String::new();
    let opened = File::open(file)?;
    opened.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(Usage(format!("it is longer than {} KiB, which no sweep is", LONGEST >> 10)).into());
    }
    Ok(text)
}

/// `KEY=VALUE` of every key of a table, dots between the names of tables.
fn settings(prefix: &str, table: &toml::Table, out: &mut Vec<String>) {
    for (name, value) in table {
        let key = sgs_keys::dotted(prefix, name);
        match value {
            toml::Value::Table(inner) => settings(&key, inner, out),
            value => out.push(format!("{key}={value}")),
        }
    }
}

/// `METHOD-KEY=VALUE-seedN`, with nothing in it that a folder's name cannot have.
fn name_of(method: &str, varied: &[(&str, &toml::Value)], seed: u64) -> String {
    let stem = Path::new(method).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut name = stem;
    for (key, value) in varied {
        let key = key.rsplit('.').next().unwrap_or(key);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        name.push_str(&format!("-{key}={value}"));
    }
    name.push_str(&format!("-seed{seed}"));
    let plain = |c: char| if c.is_alphanumeric() || "-_=.+".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

impl Member {
    /// Whether nothing is left to do.
    ///
    /// # Errors
    /// The folder holds a run of another configuration, or cannot be read.
    pub fn is_finished(&self) -> Result<bool> {
        if !self.folder.join("config.toml").is_file() {
            return Ok(false);
        }
        let view = RunView::open(&self.folder)?;
        let differences = folder::differences(&view, &self.config)?;
        if let Some(first) = differences.first() {
            bail!(
                "{} holds a run of another configuration ({first}): give the sweep another --out",
                self.folder.display()
            );
        }
        Ok(folder::is_finished(&view)? && !self.is_longer()?)
    }

    /// Whether the file wants more of a run than it was begun with: more rounds, or more minutes.
    fn is_longer(&self) -> Result<bool> {
        let before = folder::config_of(&RunView::open(&self.folder)?)?;
        let (minutes, limit) = (self.config.minutes, before.minutes);
        Ok(self.config.rounds > before.rounds || limit > 0.0 && (minutes == 0.0 || minutes > limit))
    }

    /// Where what it prints goes.
    pub fn log(&self) -> PathBuf {
        self.folder.with_file_name(format!("{}.log", self.name))
    }

    /// The arguments of the program: of a run that is there, to go on with it.
    pub fn command(&self) -> Vec<String> {
        let folder = self.folder.display().to_string();
        if self.folder.join("config.toml").is_file() {
            let mut words = vec!["resume".to_owned(), folder];
            if self.is_longer().unwrap_or(false) {
                let (rounds, minutes) = (self.config.rounds.to_string(), self.config.minutes.to_string());
                words.extend(["--rounds".to_owned(), rounds, "--minutes".to_owned(), minutes]);
            }
            return words;
        }
        let mut words = vec!["run".to_owned()];
        words.extend(self.layers.method.clone());
        words.extend(self.layers.size.iter().flat_map(|size| ["--size".to_owned(), size.clone()]));
        words.extend(["--out".to_owned(), folder]);
        words.extend(self.layers.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        words
    }

    /// The process that works on it.
    ///
    /// # Errors
    /// The system does not tell where this program is, or the log cannot be made.
    pub fn process(&self) -> Result<Command> {
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("cannot make {}", path.display()))?;
        let mut command = Command::new(std::env::current_exe().context("cannot tell where this program is")?);
        command.args(self.command()).stdin(Stdio::null());
        command.stdout(log.try_clone().context("cannot share the log")?).stderr(log);
        Ok(command)
    }
}
