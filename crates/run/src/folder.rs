//! A run's folder: begun with its configuration, and opened again with the same.

use crate::Usage;
use crate::base_model;
use crate::config::{self, RunConfig, SystemName};
use crate::recipe::{self, Recipe};
use crate::record;
use crate::system;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sgs_keys::Table as _;
use sgs_rundir::directories::{CHECKSUMS, Examined};
use sgs_rundir::metrics::names;
use sgs_rundir::{Error, FrozenConfig, RunDir, RunOptions, RunView};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use toml::{Table, Value};

/// Begins a run in a folder that must not exist or be empty: its configuration, with what the run depends on besides, is
/// frozen there.
///
/// # Errors
/// The place is taken, the model or a file of problems cannot be read, or the file system refuses.
pub fn begin(config: &RunConfig, folder: &Path) -> Result<RunDir> {
    Ok(RunDir::create(folder, &frozen(config, None)?, RunOptions::default())?)
}

/// Opens a run to go on with it, and gives the configuration that it was begun with.
///
/// # Errors
/// There is no run, another process works on it, something in it is damaged, or the program or the data are others than
/// those that it was begun with.
pub fn reopen(folder: &Path) -> Result<(RunDir, RunConfig)> {
    let run = RunDir::open(folder, RunOptions::default())?;
    let config = config_of(run.view())?;
    // The configuration is the run's own: what may differ is the program and the data. A key that came into being since
    // has its default, and is no difference.
    let mut here = frozen(&config, Some(&folder.join("base")))?;
    here.text = own_text(run.view())?;
    // An older program did not record it.
    let recorded = run.view().config()?;
    if config::value_of(&recorded, "frozen.data").is_none_or(|data| data.get(GUIDE).is_none()) {
        here.data.remove(GUIDE);
    }
    run.check_config(&here)?;
    Ok((run, config))
}

/// Gives a run that was opened more rounds, other minutes, or other values of [`config::OF_SERVERS`] (`set`); what was
/// changed is recorded in its configuration. Rounds without minutes have no limit of time.
///
/// # Errors
/// It has so many rounds already, a value is not allowed, or the file system refuses.
pub fn change(run: &RunDir, rounds: Option<u32>, minutes: Option<f64>, set: &[String]) -> Result<RunConfig> {
    let before = config_of(run.view())?;
    let published = run.view().rounds()?.len();
    if let Some(rounds) = rounds.filter(|rounds| (*rounds as usize) < published) {
        return Err(Usage(format!("--rounds {rounds}: the run has {published} rounds already")).into());
    }
    let wanted = RunConfig {
        rounds: rounds.unwrap_or(before.rounds),
        // Whoever asks for so many rounds wants them.
        minutes: minutes.unwrap_or(if rounds.is_some() { 0.0 } else { before.minutes }),
        ..config::with_servers(&before, set)?
    };
    wanted.check("").map_err(|e| Usage(e.to_string()))?;
    let [from, to] = [&before, &wanted].map(Table::try_from);
    let (from, to) = (from?, to?);
    let servers = config::OF_SERVERS.map(|name| format!("sampling.endpoint.{name}"));
    let changes: Vec<(&str, Value)> = ["rounds", "minutes"]
        .into_iter()
        .chain(servers.iter().map(String::as_str))
        .filter(|key| config::value_of(&from, key) != config::value_of(&to, key))
        .filter_map(|key| Some((key, config::value_of(&to, key)?.clone())))
        .collect();
    if changes.iter().any(|(key, _)| ["rounds", "minutes"].contains(key)) {
        forget_end(run.view().path())?;
    }
    if !changes.is_empty() {
        run.change_config(&changes)?;
    }
    Ok(wanted)
}

/// Seconds that a run has worked: its rounds and its evaluations. What a round had taken when it was cut short is in no
/// table, and is not counted.
///
/// # Errors
/// A table cannot be read.
pub fn seconds_worked(run: &RunView) -> Result<f64> {
    let mut seconds = 0.0;
    for round in run.rounds()? {
        seconds += round.metrics()?.scalars.get(names::TIME_ROUND).copied().unwrap_or_default();
    }
    for evaluation in run.evaluations()? {
        let metrics = evaluation.metrics()?.scalars;
        let of = |group: &&str| metrics.get(&format!("{group}seconds")).copied();
        seconds += names::EVALUATION_GROUPS.iter().filter_map(of).sum::<f64>();
    }
    Ok(seconds)
}

/// Why no round of a run is begun any more, for people; `None` if one is.
///
/// # Errors
/// A table cannot be read.
pub fn what_is_over(run: &RunView, config: &RunConfig) -> Result<Option<String>> {
    let rounds = run.rounds()?.len();
    if rounds >= config.rounds as usize {
        return Ok(Some(format!("all {} rounds are done", config.rounds)));
    }
    let is_late = config.minutes > 0.0 && seconds_worked(run)? > 60.0 * config.minutes;
    Ok(is_late.then(|| {
        format!("its {} minutes are over, with {rounds} of {} rounds done", config.minutes, config.rounds)
    }))
}

/// What stands in `ended.json` once the run has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// What ended it.
    pub by: EndedBy,
    /// Its rounds.
    pub rounds: u32,
    /// When, seconds since 1970.
    pub unix_time: f64,
}

/// What ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// All rounds are done.
    Rounds,
    /// No round is begun after so many minutes of work.
    Minutes,
}

const ENDED: &str = "ended.json";
/// Under this name the Guide's own model is recorded.
const GUIDE: &str = "guide-model";

/// Notes that a run has come to its end.
///
/// # Errors
/// The file system refuses.
pub fn mark_ended(run: &Path, by: EndedBy, rounds: u32) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ended = Ended { by, rounds, unix_time: now.as_secs_f64() };
    Ok(sgs_rundir::files::write_file(&run.join(ENDED), serde_json::to_string(&ended)?.as_bytes())?)
}

/// A run that had ended goes on.
///
/// # Errors
/// The file system refuses.
pub fn forget_end(run: &Path) -> Result<()> {
    match std::fs::remove_file(run.join(ENDED)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", run.join(ENDED).display()))
        }
        _ => Ok(()),
    }
}

/// How a run came to its end, if it did.
pub fn ended(run: &Path) -> Option<Ended> {
    serde_json::from_slice(&std::fs::read(run.join(ENDED)).ok()?).ok()
}

/// Whether a run has nothing left to do: all its rounds, or its minutes, are over.
///
/// # Errors
/// Its configuration or its rounds cannot be read.
pub fn is_finished(run: &RunView) -> Result<bool> {
    if ended(run.path()).is_some() {
        return Ok(true);
    }
    // The last evaluation comes after the last round, and the end is noted after it. A run of an older program notes none.
    let is_older = run.evaluations()?.is_empty();
    Ok(is_older && run.rounds()?.len() >= config_of(run)?.rounds as usize)
}

/// Keys of a run's configuration that are others than in `config`, with both values. How long it is to go on is none:
/// that changes nothing of what it does until then.
///
/// # Errors
/// The run's configuration cannot be read.
pub fn differences(run: &RunView, config: &RunConfig) -> Result<Vec<String>> {
    let own = config_of(run)?;
    let mut wanted = RunConfig { rounds: own.rounds, minutes: own.minutes, ..config.clone() };
    wanted.training.ranks = own.training.ranks;
    let flat = |config: &RunConfig| -> Result<BTreeMap<String, String>> {
        let mut keys = BTreeMap::new();
        flatten("", &Table::try_from(config)?, &mut keys);
        Ok(keys)
    };
    let (own, wanted) = (flat(&own)?, flat(&wanted)?);
    let keys: BTreeSet<&String> = own.keys().chain(wanted.keys()).collect();
    let show = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), String::clone);
    let differs = |key: &&String| own.get(*key) != wanted.get(*key);
    let told = |key: &String| format!("{key} is {} there, not {}", show(own.get(key)), show(wanted.get(key)));
    Ok(keys.into_iter().filter(differs).map(told).collect())
}

/// The values of a table by key, dots between the names of tables.
pub fn flatten(prefix: &str, table: &Table, out: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = sgs_keys::dotted(prefix, name);
        match value {
            Value::Table(inner) => flatten(&key, inner, out),
            value => drop(out.insert(key, value.to_string())),
        }
    }
}

/// Reads everything of a run that can be checked, to its end: what [`RunView::examine`] reads, the base model, and what
/// the journal's records say.
///
/// # Errors
/// A directory cannot be listed. What is damaged is no error but what was asked for.
pub fn examine(run: &RunView) -> Result<Examined> {
    let mut examined = run.examine()?;
    if let Ok(config) = config_of(run) {
        examine_base(run, &config, &mut examined)?;
    }
    // What cannot be read at all is noted already.
    let Ok(journal) = run.journal() else { return Ok(examined) };
    for round in journal.rounds_with_records().unwrap_or_default() {
        let read = journal.for_each_record(round, None, |record| match record::entries(&record.payload) {
            Ok(_) => Ok(()),
            Err(error) => {
                let what = format!("the record {:?} cannot be read: {error:#}", record.key);
                let advice = "move the journal away: the run goes on after its last published round";
                Err(damaged(&run.path().join("journal.sqlite"), &what, advice))
            }
        });
        examined.damages.extend(read.err());
    }
    Ok(examined)
}

/// Reads the run's own copy of its base model, if it has one: against what was frozen when the run began.
fn examine_base(run: &RunView, config: &RunConfig, examined: &mut Examined) -> Result<()> {
    let base = run.path().join("base");
    if config.model.base == "shipped" {
        return examine_shipped(run, config.problems.system, &base, examined);
    }
    if Recipe::of(&config.model.base).is_some() && recipe::is_model(&base) {
        match base.join(CHECKSUMS).exists() {
            true => examined.directory(&base),
            false => examined.notes.push(format!(
                "{} is a copy by an older program, without a list: `sgs resume` checks its weights, nothing tells of \
                 the other files",
                base.display()
            )),
        }
    }
    Ok(())
}

fn examine_shipped(run: &RunView, system: SystemName, base: &Path, examined: &mut Examined) -> Result<()> {
    let frozen =
        run.config()?.get("frozen").and_then(|frozen| frozen.get("data")?.get("base-model").cloned());
    let ships = base_model::hash(system);
    let other = frozen.as_ref().and_then(Value::as_str).filter(|frozen| **frozen != ships);
    if let Some(frozen) = other {
        let what = match base_model::hash_in(base)? {
            Some(found) if found == frozen => Ok(format!(
                "{} is as the run began with it; this program ships another base model, so that only the program that \
                 began the run can resume it",
                base.display()
            )),
            Some(_) => Err(damaged(
                base,
                "its files are not those that the run began with (frozen.data.base-model), nor those of this program",
                "restore them from a copy, or have the program that began the run write them anew",
            )),
            None => {
                Ok(format!("{} is not whole: the program that began the run writes the rest", base.display()))
            }
        };
        match what {
            Ok(note) => examined.notes.push(note),
            Err(error) => examined.damages.push(error),
        }
        return Ok(());
    }
    for (name, bytes) in base_model::files(system) {
        let path = base.join(name);
        match std::fs::read(&path) {
            Ok(found) if found == bytes => examined.file(&path, Ok(())),
            Err(error) if error.kind() == ErrorKind::NotFound => examined.notes.push(format!(
                "{} is not there: the run was ended while it was begun, or the file was removed; `sgs resume` writes it",
                path.display()
            )),
            _ => {
                let what = "it is not the file of the base model that ships";
                examined.file(&path, Err(damaged(&path, what, "remove it: `sgs resume` writes it anew")));
            }
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: &str, advice: &str) -> Error {
    Error::Damaged { path: path.to_owned(), what: what.to_owned(), advice: advice.to_owned() }
}

/// The configuration of a run as it stands in its file, without what the run records itself.
fn own_text(run: &RunView) -> Result<String> {
    let mut table = run.config()?;
    table.remove("frozen");
    Ok(toml::to_string(&table)?)
}

/// The configuration that a run was begun with.
///
/// # Errors
/// It cannot be read.
pub fn config_of(run: &RunView) -> Result<RunConfig> {
    let mut table = run.config()?;
    table.remove("frozen");
    table.try_into().context("config.toml of the run")
}

/// Records what judges this run's proofs; a run that goes on with another checker would mix their verdicts.
///
/// # Errors
/// Another checker is recorded, or the file cannot be read or written.
pub fn same_checker(run: &Path, identity: &str) -> Result<()> {
    let path = run.join("checker.txt");
    match std::fs::read_to_string(&path) {
        Ok(recorded) if recorded.trim() == identity => Ok(()),
        Ok(recorded) => bail!(
            "the run's verdicts so far come from another checker (checker.txt): `{}`; here is `{identity}`",
            recorded.trim()
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok(sgs_rundir::files::write_file(&path, format!("{identity}\n").as_bytes())?)
        }
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What a run is begun with; `own` is where it may have a copy of a base model that was made.
fn frozen(config: &RunConfig, own: Option<&Path>) -> Result<FrozenConfig> {
    let own = own.filter(|own| Recipe::of(&config.model.base).is_some() && recipe::is_model(own));
    let mut data = BTreeMap::new();
    if config.problems.system == SystemName::Metamath {
        data.insert("slice".to_owned(), sgs_metamath::slice::SLICE_SHA256.to_owned());
    }
    data.insert(
        "base-model".to_owned(),
        match own.map(Path::to_owned).or_else(|| config::model_folder(&config.model.base)) {
            None => base_model::hash(config.problems.system),
            Some(folder) => weights_hash(&folder)?,
        },
    );
    if config.model.guide != "base" {
        data.insert(GUIDE.to_owned(), weights_hash(Path::new(&config.model.guide))?);
    }
    if !system::is_shipped_set(&config.problems.set) {
        data.insert("problems".to_owned(), file_hash(Path::new(&config.problems.set))?);
    }
    if let Some(source) = config.evaluation.source().filter(|source| !system::is_shipped_set(source)) {
        data.insert("held-out".to_owned(), file_hash(Path::new(source))?);
    }
    Ok(FrozenConfig {
        text: toml::to_string_pretty(config)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data,
    })
}

/// What tells a model from all others. One in several files is known by their index.
fn weights_hash(folder: &Path) -> Result<String> {
    let names = ["model.safetensors", "model.safetensors.index.json"];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    file_hash(&found.with_context(|| format!("{} holds no model.safetensors", folder.display()))?)
}

fn file_hash(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(sgs_metamath::slice::sha256(&bytes))
}
