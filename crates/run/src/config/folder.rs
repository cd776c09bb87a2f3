//! Creates and reopens run folders. The configuration of a run is frozen when its folder is created.

use crate::Usage;
use crate::config::base_model::{self, is_model};
use crate::config::system;
use crate::config::{self, BaseSource, RunConfig, SystemName};
use crate::error::{Context, Result, bail};
use sgs_base::digest::checksum_of;
use sgs_base::files::read_to_string;
use sgs_keys::KeyTable as _;
use sgs_lean::LeanSettings;
use sgs_rundir::directories::checksum;
use sgs_rundir::metrics::names;
use sgs_rundir::{FrozenConfig, NewRun, RunDir, RunView};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::{Table, Value};

/// Creates a run in a folder that is empty or does not exist, and freezes its configuration and the hashes of its input
/// data there. The recorded paths are absolute.
///
/// # Errors
/// Returns an error if the folder is not empty, if the model or a problem file cannot be read, or if writing fails.
pub fn begin(config: &RunConfig, folder: &Path) -> Result<RunDir> {
    let (run, mut new, _) = begin_from(config, None, folder, None)?;
    new.keep();
    Ok(run)
}

/// Creates a run as [`begin`] does, and returns its folder and the recorded configuration. The folder is removed if its
/// value is dropped before [`NewRun::keep`] is called. `made` is the folder of the base model if it was made for the run
/// (`model.base=made:NAME`). `fleet` is the content of `fleet.toml`, if the run has remote workers.
pub fn begin_from(
    config: &RunConfig,
    made: Option<&Path>,
    folder: &Path,
    fleet: Option<&str>,
) -> Result<(RunDir, NewRun, RunConfig)> {
    let config = config.clone().absolute();
    let (run, new) = RunDir::create_unbegun(folder, &frozen(&config, made)?, fleet)?;
    Ok((run, new, config))
}

/// Opens a run in order to resume it, and returns its configuration.
///
/// # Errors
/// Returns an error if the folder does not contain a run, if another process is working on it, if a file in it is
/// damaged, or if the program or the input data differ from those that the run was created with.
pub fn reopen(folder: &Path) -> Result<(RunDir, RunConfig)> {
    reopen_from(folder, None)
}

/// Reopens a run as [`reopen`] does. `made` is the folder of the base model if it was made for the run and the run has
/// no copy of it.
pub fn reopen_from(folder: &Path, made: Option<&Path>) -> Result<(RunDir, RunConfig)> {
    let run = RunDir::open(folder)?;
    let config = config_of(run.view())?;
    // Compare only the program and the data, because the configuration was read from the run itself. Use the run's own
    // text, so that keys that were added to the program later do not count as differences.
    let own = folder.join("base");
    let mut here = frozen(&config, Some(own.as_path()).filter(|own| is_model(own)).or(made))?;
    here.text = own_text(run.view())?;
    // Older versions of the program did not record this hash, or recorded it for a Guide that the run does not use.
    let recorded = run.view().config()?;
    let guide = config::value_of(&recorded, "frozen.data").and_then(|data| data.get(GUIDE)?.as_str());
    match guide {
        None => _ = here.data.remove(GUIDE),
        Some(hash) if !config.has_own_guide() => _ = here.data.insert(GUIDE.to_owned(), hash.to_owned()),
        Some(_) => {}
    }
    run.check_config(&here)?;
    Ok((run, config))
}

/// The keys that limit the length of a run. They do not affect the results of its rounds.
const BUDGET: [&str; 3] = ["rounds", "minutes", "generations"];

/// New limits for an existing run; `None` keeps the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Number of rounds. Alone, it removes the other limits.
    pub rounds: Option<u32>,
    /// Time limit, in minutes.
    pub minutes: Option<f64>,
    /// Limit on the Solver's generations.
    pub generations: Option<u64>,
}

/// Changes the limits or `config::changeable` keys (`set`) of an open run, and records the changes in its
/// configuration.
///
/// # Errors
/// Returns an error if the run has already passed a limit, if a value is not allowed, or if writing fails.
pub fn change(run: &RunDir, budget: Budget, set: &[String]) -> Result<RunConfig> {
    let Budget { rounds, minutes, generations } = budget;
    let before = config_of(run.view())?;
    let published = run.view().rounds()?.len();
    if let Some(rounds) = rounds.filter(|rounds| (*rounds as usize) < published) {
        return Err(Usage(format!(
            "--rounds {rounds} is the total, and the run already has {published}: give a larger number"
        ))
        .into());
    }
    let worked = seconds_worked(run.view())? / 60.0;
    if let Some(minutes) = minutes.filter(|minutes| *minutes > 0.0 && *minutes <= worked) {
        return Err(Usage(format!(
            "--minutes {minutes} is the total, and the run has already worked for {worked:.2}: give a larger number"
        ))
        .into());
    }
    let sampled = sampled_generations(run.view())?;
    if let Some(generations) = generations.filter(|limit| *limit > 0 && *limit as f64 <= sampled) {
        return Err(Usage(format!("--generations {generations} is the total, and the run already has {sampled}: give a larger number")).into());
    }
    let wanted = RunConfig {
        rounds: rounds.unwrap_or(before.rounds),
        // An explicit number of rounds overrides earlier limits.
        minutes: minutes.unwrap_or(if rounds.is_some() { 0.0 } else { before.minutes }),
        generations: generations.unwrap_or(if rounds.is_some() { 0 } else { before.generations }),
        ..config::with_changes(&before, set)?
    };
    wanted.check("").map_err(Usage::of)?;
    let [from, to] = [&before, &wanted].map(Table::try_from);
    let (from, to) = (from?, to?);
    let changeable = config::changeable();
    let changes: Vec<(&str, Value)> = BUDGET
        .into_iter()
        .chain(changeable.iter().map(String::as_str))
        .filter(|key| config::value_of(&from, key) != config::value_of(&to, key))
        .filter_map(|key| Some((key, config::value_of(&to, key)?.clone())))
        .collect();
    if changes.iter().any(|(key, _)| BUDGET.contains(key)) {
        run.forget_end()?;
    }
    if !changes.is_empty() {
        run.change_config(&changes)?;
    }
    Ok(wanted)
}

/// Returns the Solver's generations in a run's rounds.
pub fn sampled_generations(run: &RunView) -> Result<f64> {
    let Some(last) = run.rounds()?.pop() else { return Ok(0.0) };
    Ok(last.metrics()?.scalars.get("generations").copied().unwrap_or_default())
}

/// Returns the working time of a run's rounds and evaluations, in seconds. Interrupted rounds are not counted, because
/// no table records their time.
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

/// Name under which the hash of the Guide's own model is recorded.
const GUIDE: &str = "guide-model";

/// Returns whether a run is complete: it has reached one of its limits.
pub fn is_finished(run: &RunView) -> Result<bool> {
    if run.ended().is_some() {
        return Ok(true);
    }
    // The end is recorded after the last evaluation, which follows the last round. Runs of older versions of the
    // program have no such record and no evaluations.
    let is_older = run.evaluations()?.is_empty();
    Ok(is_older && run.rounds()?.len() >= config_of(run)?.rounds as usize)
}

/// Describes the keys whose values differ between a run's configuration and `config`. Limits and `training.ranks` are
/// ignored, because they do not affect the results of the rounds. Relative paths begin at the working directory.
pub fn differences(run: &RunView, config: &RunConfig) -> Result<Vec<String>> {
    // Runs of older versions of the program have relative paths.
    let own = config_of(run)?.absolute();
    let (rounds, minutes, generations) = (own.rounds, own.minutes, own.generations);
    let mut wanted = RunConfig { rounds, minutes, generations, ..config.clone().absolute() };
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
    let describe =
        |key: &String| format!("{key} is {} there, not {}", show(own.get(key)), show(wanted.get(key)));
    Ok(keys.into_iter().filter(differs).map(describe).collect())
}

/// The key of Lean's prompts. Its value is a table in a configuration with texts of a user's.
const PROMPTS: &str = "lean.prompts";

/// Collects the values of a table and of its inner tables by dotted key. Long texts are shortened to a checksum.
pub fn flatten(prefix: &str, table: &Table, out: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = sgs_keys::dotted(prefix, name);
        match value {
            Value::Table(texts) if key == PROMPTS => {
                let names = texts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let sum = checksum_of(value.to_string().as_bytes());
                out.insert(key, format!("{names} (SHA-256 {sum:.12})"));
            }
            Value::Table(inner) => flatten(&key, inner, out),
            value => drop(out.insert(key, value.to_string())),
        }
    }
}

/// Returns the text of a run's configuration without the `frozen` table.
fn own_text(run: &RunView) -> Result<String> {
    let mut table = run.config()?;
    table.remove("frozen");
    Ok(toml::to_string(&table)?)
}

/// Returns the configuration of a run.
pub fn config_of(run: &RunView) -> Result<RunConfig> {
    let mut table = run.config()?;
    table.remove("frozen");
    remove_old_keys(&mut table)?;
    let mut config: RunConfig = table.try_into().context("config.toml of the run")?;
    // The run records absolute paths, and may have been moved.
    config.lean = config.lean.map(LeanSettings::on_this_machine);
    Ok(config)
}

/// Removes the keys that earlier versions of the program wrote.
///
/// # Errors
/// Returns [`Usage`] if the run has the learned Guide of those versions.
fn remove_old_keys(table: &mut Table) -> Result<()> {
    let Some(algorithm) = table.get_mut("algorithm").and_then(Value::as_table_mut) else { return Ok(()) };
    if let Some(solver) = algorithm.get_mut("solver").and_then(Value::as_table_mut) {
        solver.remove("lemma_rounds");
        let cited = solver.remove("lemma_rollouts").and_then(|value| value.as_integer());
        if cited.is_some_and(|rollouts| rollouts > 0) {
            tracing::warn!(
                "algorithm.solver.lemma_rollouts is ignored: this version of the program cites no conjectures"
            );
        }
    }
    if let Some(guide) = algorithm.get_mut("guide").and_then(Value::as_table_mut) {
        guide.remove("learned_rounds");
        guide.remove("learned_neighbours");
        if guide.get("kind").and_then(Value::as_str) == Some("learned") {
            let advice =
                "this version of the program has no learned Guide: use the version that began the run";
            return Err(Usage(format!("algorithm.guide.kind is \"learned\": {advice}")).into());
        }
    }
    Ok(())
}

/// Checks that a run's configuration is the one that it began with, and names the formal system that verified its proofs.
/// A program that uses this crate can run a custom formal system, although the configuration names another one.
///
/// # Errors
/// Returns [`Usage`] if another formal system verified the run's proofs, or an error if the configuration was changed or
/// a file cannot be read.
pub fn check_system(run: &Path, config: &RunConfig) -> Result<()> {
    RunView::open(run)?.check_config()?;
    let path = run.join(CHECKER);
    let recorded = match read_to_string(&path, MOST_CHECKER_BYTES) {
        Ok(recorded) => recorded,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    let recorded = recorded.trim();
    let is_own = match config.problems.system {
        SystemName::Metamath => recorded == sgs_metamath::system::IDENTITY,
        SystemName::Lean => recorded.starts_with("Lean"),
        SystemName::External => recorded.starts_with(sgs_external::IDENTITY),
    };
    if !is_own {
        return Err(Usage(format!(
            "{} belongs to a program with the custom formal system `{recorded}` ({CHECKER}): use that program",
            run.display()
        ))
        .into());
    }
    Ok(())
}

/// File with the identity of the checker that verifies a run's proofs.
pub(crate) const CHECKER: &str = "checker.txt";

/// Maximum size of this file in bytes.
const MOST_CHECKER_BYTES: u64 = 1 << 20;

/// Records the identity of the checker that verifies this run's proofs, or compares it with the recorded one. A run
/// must not mix the verdicts of different checkers.
///
/// # Errors
/// Returns an error if another checker is recorded, or if the file cannot be read or written.
pub(crate) fn same_checker(run: &Path, identity: &str) -> Result<()> {
    let path = run.join(CHECKER);
    match read_to_string(&path, MOST_CHECKER_BYTES) {
        Ok(recorded) if recorded.trim() == identity => Ok(()),
        // A run of an early version. Its bounds are those of its frozen configuration.
        Ok(recorded) if identity.split(sgs_lean::BOUNDS).next() == Some(recorded.trim()) => Ok(()),
        Ok(recorded) => bail!(
            "the run's verdicts so far come from another checker ({CHECKER}): `{}`; this machine has `{identity}`",
            recorded.trim()
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok(sgs_rundir::files::write_file(&path, format!("{identity}\n").as_bytes())?)
        }
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns the configuration and the data hashes to freeze. `made` is the folder of the base model if it was made for
/// the run.
fn frozen(config: &RunConfig, made: Option<&Path>) -> Result<FrozenConfig> {
    let mut data = BTreeMap::new();
    if config.problems.system == SystemName::Metamath {
        data.insert("slice".to_owned(), system::database_hash(&config.problems.database)?);
    }
    data.insert(
        "base-model".to_owned(),
        match config.model.base_source() {
            BaseSource::Shipped => base_model::hash(config.problems.system)?,
            BaseSource::Folder(folder) => weights_hash(folder)?,
            BaseSource::Made(_) => {
                let made =
                    made.with_context(|| format!("the base model {} is not made yet", config.model.base))?;
                weights_hash(made)?
            }
        },
    );
    if config.has_own_guide() {
        data.insert(GUIDE.to_owned(), weights_hash(Path::new(&config.model.guide))?);
    }
    if !system::is_shipped_set(&config.problems.set) {
        data.insert("problems".to_owned(), checksum(Path::new(&config.problems.set))?);
    }
    if let Some(source) = config.evaluation.source().filter(|source| !system::is_shipped_set(source)) {
        data.insert("held-out".to_owned(), checksum(Path::new(source))?);
    }
    Ok(FrozenConfig {
        text: toml::to_string_pretty(config)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data,
    })
}

/// Returns the hash that identifies a model: of its weights, or of the index if they are split into several files.
fn weights_hash(folder: &Path) -> Result<String> {
    let names = ["model.safetensors", "model.safetensors.index.json"];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    Ok(checksum(&found.with_context(|| format!("{} has no model.safetensors", folder.display()))?)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{check_system, same_checker};
    use crate::config::{RunConfig, SystemName};
    use crate::error::RunError;

    #[test]
    fn fifos_are_refused() {
        let run = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            let made = std::process::Command::new("mkfifo").arg(run.path().join(name)).status();
            assert!(made.unwrap().success());
        };
        fifo("checker.txt");
        fifo("config.json");
        fifo("tokenizer.json");
        for error in [
            same_checker(run.path(), "some checker").unwrap_err(),
            super::base_model::hash_in(run.path()).unwrap_err(),
            super::base_model::unpack(SystemName::Metamath, run.path()).unwrap_err(),
        ] {
            let error = format!("{error:#}");
            assert!(error.contains(&run.path().display().to_string()), "{error}");
            assert!(error.contains("regular file"), "{error}");
        }
    }

    #[test]
    fn a_run_of_another_program_is_refused() {
        let run = tempfile::tempdir().unwrap();
        let sum = sgs_base::digest::checksum_of(b"");
        std::fs::write(run.path().join("config.toml"), "").unwrap();
        std::fs::write(run.path().join("SHA256SUMS"), format!("{sum}  config.toml\n")).unwrap();
        let mut config = RunConfig::default();
        check_system(run.path(), &config).expect("a run that has not begun");
        let identities = [
            (SystemName::Metamath, sgs_metamath::system::IDENTITY),
            (SystemName::Lean, "Lean (version 4.28.0), file"),
            (SystemName::External, "external: sequences 1"),
        ];
        for (system, identity) in identities {
            config.problems.system = system;
            for (other, recorded) in identities.into_iter().chain([(SystemName::Metamath, "echo")]) {
                std::fs::write(run.path().join("checker.txt"), format!("{recorded}\n")).unwrap();
                let checked = check_system(run.path(), &config);
                match other == system && recorded == identity {
                    true => checked.unwrap(),
                    false => {
                        let error = checked.unwrap_err();
                        assert!(matches!(error, RunError::Usage(_)), "{error}");
                        assert!(error.to_string().contains(recorded), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_run_keeps_its_checker() {
        let run = tempfile::tempdir().unwrap();
        let of = |identity| same_checker(run.path(), identity);
        of("Lean, repl").unwrap();
        of("Lean, repl").unwrap();
        of("Lean, repl; bounds: 5 bytes").expect("early versions do not record the bounds");
        assert!(of("Lean, file").unwrap_err().to_string().contains("`Lean, repl`"));
        std::fs::write(run.path().join("checker.txt"), "Lean, repl; bounds: 5 bytes\n").unwrap();
        of("Lean, repl; bounds: 5 bytes").unwrap();
        for other in ["Lean, repl", "Lean, repl; bounds: 6 bytes"] {
            assert!(of(other).is_err(), "{other}");
        }
    }
}
