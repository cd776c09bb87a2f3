//! The file of a sweep, and the runs that it describes.

use crate::args::MAX_JOBS;
use crate::exit::Usage;
use anyhow::{Context, Result};
use serde::Deserialize;
use sgs_data::base::recipe;
use sgs_keys::{Allowed, FileError, KeyFile, KeySpec, KeyTable as _, did_you_mean, unknown_key};
use sgs_run::config::folder;
use sgs_run::config::{self, Layers, RunConfig};
use sgs_rundir::RunView;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml::Value;

const MAX_RUNS: usize = 10_000;

/// The contents of a sweep's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPlan {
    /// Methods, or TOML files as for `sgs run`, relative to the folder of the sweep's file.
    #[serde(default = "sgs")]
    methods: Vec<String>,
    /// Seeds of each method.
    #[serde(default = "one")]
    seeds: Vec<u64>,
    /// The size of all runs.
    size: Option<String>,
    pub jobs: Option<usize>,
    #[serde(default)]
    set: toml::Table,
    /// Keys with their values: every combination is a run.
    #[serde(default)]
    vary: BTreeMap<String, Vec<Value>>,
}

fn sgs() -> Vec<String> {
    vec!["sgs".to_owned()]
}

fn one() -> Vec<u64> {
    vec![1]
}

pub struct SweepRun {
    /// Position in the order of the file.
    pub number: usize,
    /// Name of its folder.
    pub name: String,
    pub folder: PathBuf,
    pub config: RunConfig,
    pub layers: Layers,
}

impl SweepPlan {
    pub fn read(file: &Path) -> Result<Self> {
        let (path, folder) = (file.display(), file.parent().unwrap_or(Path::new("")));
        let file = KeyFile::read(file)?;
        let own = ["methods", "seeds", "size", "jobs", "set", "vary"];
        let is_of_run = |key: &&String| {
            let is_in = |known: &KeySpec| known.key.split('.').next() == Some(key.as_str());
            !own.contains(&key.as_str()) && RunConfig::keys("").iter().any(is_in)
        };
        if let Some(key) = file.table.keys().find(is_of_run) {
            let told = match key.as_str() {
                "method" => "there is no key `method`; did you mean `methods`?".to_owned(),
                _ => format!("`{key}` is a key of a run (`sgs run {path}`); in a sweep, put it into [set]"),
            };
            return Err(file.error(key, told).into());
        }
        if let Some(key) = file.table.keys().find(|key| !own.contains(&key.as_str())) {
            return Err(file.error(key, format!("there is no key `{key}`{}", did_you_mean(key, own))).into());
        }
        check_types(&file)?;
        if file.table.is_empty() {
            return Err(file
                .error("", "it has no keys: give at least `methods` or `seeds`".to_owned())
                .into());
        }
        let mut plan: Self = file.deserialize()?;
        for method in plan.methods.iter_mut().filter(|method| method.ends_with(".toml")) {
            *method = folder.join(&*method).display().to_string();
        }
        if let Some(error) = plan.methods.iter().find_map(|method| config::check_method(method).err()) {
            return Err(file.error("methods", error).into());
        }
        let sizes = config::SIZES.map(|(name, _)| name);
        if let Some(size) = plan.size.as_deref().filter(|size| !sizes.contains(size)) {
            let told = format!("there is no size `{size}`{}", did_you_mean(size, sizes));
            return Err(file.error("size", told).into());
        }
        let mut known = BTreeSet::new();
        if let Some(seed) = plan.seeds.iter().find(|seed| !known.insert(**seed)) {
            return Err(file.error("seeds", format!("seed {seed} occurs twice")).into());
        }
        let lists = [("methods", plan.methods.is_empty()), ("seeds", plan.seeds.is_empty())];
        let lists = lists.into_iter().map(|(key, is_empty)| (key.to_owned(), is_empty));
        let varied = plan.vary.iter().map(|(key, values)| (format!("vary.{key}"), values.is_empty()));
        if let Some((key, _)) = lists.chain(varied).find(|(_, is_empty)| *is_empty) {
            return Err(file.error(&key, format!("{key} is empty, so there is nothing to run")).into());
        }
        for (label, own) in [("method", "methods"), ("size", "size"), ("seed", "seeds")] {
            let is_varied = plan.vary.contains_key(label);
            if is_varied || plan.set.contains_key(label) {
                let place = format!("{}.{label}", if is_varied { "vary" } else { "set" });
                let what = format!("`{label}` is set by `{own}` at the top of the file");
                return Err(file.error(&place, what).into());
            }
        }
        let (keys, list) = (RunConfig::keys(""), "sgs run --explain");
        file.check_section("set", &keys, list)?;
        for (key, values) in &plan.vary {
            let place = format!("vary.{key}");
            let unknown = || file.error(&place, unknown_key(key, &keys, list));
            let declared = keys.iter().find(|declared| declared.key == *key).ok_or_else(unknown)?;
            for value in values {
                declared.fit(value.clone()).map_err(|error| file.error(&place, error))?;
            }
        }
        Ok(plan)
    }

    fn count(&self) -> usize {
        let varied = self.vary.values().map(Vec::len);
        [self.methods.len(), self.seeds.len()].into_iter().chain(varied).fold(1, usize::saturating_mul)
    }

    /// Returns all runs, in folders below `out`. Every configuration is resolved before the first run starts.
    pub fn members(&self, out: &Path) -> Result<Vec<SweepRun>> {
        let count = self.count();
        if count > MAX_RUNS {
            let told = format!("the sweep has {count} runs, more than the maximum of {MAX_RUNS}: split it");
            return Err(Usage(told).into());
        }
        let mut common = Vec::new();
        settings("", &self.set, &mut common);
        let mut members: Vec<SweepRun> = Vec::new();
        let mut names = BTreeSet::new();
        for method in &self.methods {
            for varied in self.combinations() {
                for seed in &self.seeds {
                    let name = name_of(method, &varied, *seed);
                    if !names.insert(name.clone()) {
                        let told = "a seed or a value occurs twice";
                        return Err(Usage(format!(
                            "two runs of the sweep have the same name, {name}: {told}"
                        ))
                        .into());
                    }
                    let mut set = common.clone();
                    set.extend(varied.iter().map(|(key, value)| format!("{key}={value}")));
                    set.push(format!("seed={seed}"));
                    let (method, size) = (Some(method.clone()), self.size.clone());
                    let layers = Layers { method, size, set, ..Layers::default() };
                    let config = config::resolve(&layers, std::env::vars())?.config;
                    recipe::check(&config.model.base)?;
                    let (number, folder) = (members.len(), out.join(&name));
                    members.push(SweepRun { number, name, folder, config, layers });
                }
            }
        }
        Ok(members)
    }

    /// Returns every combination of the varied keys.
    fn combinations(&self) -> Vec<Vec<(&str, &Value)>> {
        let mut all = vec![Vec::new()];
        for (key, values) in &self.vary {
            let with = |before: &Vec<(_, _)>, value| [&before[..], &[(key.as_str(), value)]].concat();
            all = all.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
        }
        all
    }
}

/// Checks the types of the sweep's own keys.
fn check_types(file: &KeyFile) -> Result<(), FileError> {
    let is_count = |value: &Value| value.as_integer().is_some_and(|number| number >= 0);
    let is_list_of = |value: &Value, fits: &dyn Fn(&Value) -> bool| {
        value.as_array().is_some_and(|list| list.iter().all(fits))
    };
    let jobs = Allowed::from(1..=MAX_JOBS);
    let is_jobs = |value: &Value| {
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        number.is_some_and(|number| jobs.admits_whole(number))
    };
    let jobs_expected = jobs.to_string();
    let wrong = |key: &str, value: &Value| match key {
        "methods" if !is_list_of(value, &Value::is_str) => Some("a list of names such as [\"sgs\"]"),
        "seeds" if !is_list_of(value, &is_count) => Some("a list of integers such as [1, 2]"),
        "size" if !value.is_str() => Some("a name in quotes"),
        "jobs" if !is_jobs(value) => Some(jobs_expected.as_str()),
        "set" | "vary" if !value.is_table() => Some("a table"),
        key if key.starts_with("vary.") && !value.is_array() => Some("a list such as [1e-5]"),
        _ => None,
    };
    let varied = file.table.get("vary").and_then(Value::as_table).into_iter().flatten();
    let varied = varied.map(|(key, value)| (format!("vary.{key}"), value));
    for (key, value) in file.table.iter().map(|(key, value)| (key.clone(), value)).chain(varied) {
        if let Some(expected) = wrong(&key, value) {
            return Err(file.error(&key, format!("`{key}` is {value}; expected {expected}")));
        }
    }
    Ok(())
}

/// Collects `KEY=VALUE` for every key of a table, with dotted keys.
fn settings(prefix: &str, table: &toml::Table, out: &mut Vec<String>) {
    for (name, value) in table {
        let key = sgs_keys::dotted(prefix, name);
        match value {
            Value::Table(inner) => settings(&key, inner, out),
            value => out.push(format!("{key}={value}")),
        }
    }
}

/// Returns `METHOD-KEY=VALUE-seedN`, with `_` for characters that are unsuitable in folder names.
fn name_of(method: &str, varied: &[(&str, &Value)], seed: u64) -> String {
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

impl SweepRun {
    /// Returns whether the run is finished.
    /// Returns an error if the folder contains a run with another configuration or cannot be read.
    pub fn is_finished(&self) -> Result<bool> {
        if !self.folder.join("config.toml").is_file() {
            return Ok(false);
        }
        let view = RunView::open(&self.folder)?;
        let differences = folder::differences(&view, &self.config)?;
        if let Some(first) = differences.first() {
            let told = format!(
                "contains a run with another configuration ({first}): choose another --out for the sweep"
            );
            return Err(Usage(format!("{} {told}", self.folder.display())).into());
        }
        Ok(folder::is_finished(&view)? && !self.is_longer()?)
    }

    /// Returns whether the file has higher limits than the existing run was configured with.
    fn is_longer(&self) -> Result<bool> {
        let before = folder::config_of(&RunView::open(&self.folder)?)?;
        let is_higher = |now: f64, limit: f64| limit > 0.0 && (now == 0.0 || now > limit);
        Ok(self.config.rounds > before.rounds
            || is_higher(self.config.minutes, before.minutes)
            || is_higher(self.config.generations as f64, before.generations as f64))
    }

    /// Returns the path of the run's log file.
    pub fn log(&self) -> PathBuf {
        self.folder.with_file_name(format!("{}.log", self.name))
    }

    /// Returns the arguments that start the run, or resume it if it exists.
    pub fn command(&self) -> Vec<String> {
        let folder = self.folder.display().to_string();
        if self.folder.join("config.toml").is_file() {
            let mut arguments = vec!["resume".to_owned(), folder];
            if self.is_longer().unwrap_or(false) {
                let RunConfig { rounds, minutes, generations, .. } = &self.config;
                arguments.extend([format!("--rounds={rounds}"), format!("--minutes={minutes}")]);
                arguments.push(format!("--generations={generations}"));
            }
            return arguments;
        }
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(self.layers.method.clone());
        arguments.extend(self.layers.size.iter().flat_map(|size| ["--size".to_owned(), size.clone()]));
        arguments.extend(["--out".to_owned(), folder]);
        arguments.extend(self.layers.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        arguments
    }

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
