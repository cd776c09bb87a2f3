//! A run's folder: begun with its configuration, and opened again with the same.

use crate::base_model;
use crate::config::{self, RunConfig, SystemName};
use crate::system;
use anyhow::{Context, Result, bail};
use sgs_rundir::{FrozenConfig, RunDir, RunOptions, RunView};
use std::collections::BTreeMap;
use std::path::Path;

/// Begins a run in a folder that must not exist or be empty: its configuration, with what the run depends on besides, is
/// frozen there.
///
/// # Errors
/// The place is taken, the model or a file of problems cannot be read, or the file system refuses.
pub fn begin(config: &RunConfig, folder: &Path) -> Result<RunDir> {
    Ok(RunDir::create(folder, &frozen(config)?, RunOptions::default())?)
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
    run.check_config(&FrozenConfig { text: own_text(run.view())?, ..frozen(&config)? })?;
    Ok((run, config))
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

fn frozen(config: &RunConfig) -> Result<FrozenConfig> {
    let mut data = BTreeMap::new();
    if config.problems.system == SystemName::Metamath {
        data.insert("slice".to_owned(), sgs_metamath::slice::SLICE_SHA256.to_owned());
    }
    data.insert(
        "base-model".to_owned(),
        match config::model_folder(&config.model.base) {
            None => base_model::hash(),
            // A model in several files is known by their index.
            Some(folder) => ["model.safetensors", "model.safetensors.index.json"]
                .iter()
                .map(|name| folder.join(name))
                .find(|path| path.exists())
                .map_or_else(
                    || bail!("{} holds no model.safetensors", folder.display()),
                    |path| file_hash(&path),
                )?,
        },
    );
    if !system::is_shipped_set(&config.problems.set) {
        data.insert("problems".to_owned(), file_hash(Path::new(&config.problems.set))?);
    }
    Ok(FrozenConfig {
        text: toml::to_string_pretty(config)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data,
    })
}

fn file_hash(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(sgs_metamath::slice::sha256(&bytes))
}
