//! Finds requirements of a run that this machine lacks.

use super::doctor;
use sgs_keys::did_you_mean_path;
use sgs_lean::Backing;
use sgs_lean::setup::{LeanPaths, Readiness, examine};
use sgs_run::config::base_model::is_model;
use sgs_run::config::system::check_set;
use sgs_run::config::{BaseSource, MADE, RunConfig, SHIPPED, SystemName};
use sgs_run::workers::config::{By, FleetConfig};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MissingRequirement {
    /// Its kind: `GPU`, `Lean`, `model`, `Guide`, `problems`, `held-out`, `program` or `Slurm`.
    pub what: &'static str,
    /// Where it was expected, and what was found there.
    pub found: String,
    /// The command that installs it, if there is one.
    pub remedy: Option<String>,
}

/// Returns the missing requirements of a configuration, in the order in which to install them.
pub fn lacks(config: &RunConfig) -> Vec<MissingRequirement> {
    let mut lacks: Vec<MissingRequirement> =
        lean_lack(config).into_iter().chain(model_lack(config)).collect();
    lacks.extend(guide_lack(config));
    lacks.extend(set_lacks(config));
    if config.model.device == "cuda" {
        let gpu = doctor::missing_gpu_requirements();
        // Report a missing device before missing libraries.
        let found = gpu.iter().find(|(name, _)| name == "devices").or(gpu.first());
        if let Some((_, found)) = found {
            lacks.push(MissingRequirement { what: "GPU", found: found.clone(), remedy: None });
        }
    }
    lacks
}

/// The model of `made:deep`, as a clone of the repository contains it.
const MODEL_IN_CLONE: &str = "data/metamath/deep";

/// Describes how a new run can do without a GPU; `None` if its size needs several.
pub fn without_gpu(config: &RunConfig) -> Option<String> {
    let base = config.model.base.as_str();
    let has_model = base == "made:deep" && is_model(Path::new(MODEL_IN_CLONE));
    let more = match has_model {
        true => format!(" --set model.base={MODEL_IN_CLONE}`"),
        false if base.starts_with("made:") => "` (making the base model takes hours)".to_owned(),
        false => "`".to_owned(),
    };
    (config.training.ranks == 1).then(|| format!("To run on the CPU: `--device cpu{more}"))
}

/// Returns the missing requirement of workers that Slurm starts.
pub fn slurm_lack(workers: &FleetConfig) -> Option<MissingRequirement> {
    let by_slurm = || [&workers.generate, &workers.verify].into_iter().filter(|kind| kind.by == By::Slurm);
    let missing = by_slurm().find_map(|kind| match &kind.bin {
        Some(folder) => Some(folder.join("sbatch")).filter(|sbatch| !sbatch.is_file()),
        None => doctor::lacks_program("sbatch").then(|| PathBuf::from("sbatch on the PATH")),
    });
    let found = match missing {
        Some(sbatch) => format!("{} not found", sbatch.display()),
        // A cluster's own folder of commands may need settings of its job scripts.
        None if by_slurm().all(|kind| kind.bin.is_some()) => return None,
        None => doctor::slurm_controller()?.err()?,
    };
    Some(MissingRequirement { what: "Slurm", found, remedy: None })
}

fn lean_lack(config: &RunConfig) -> Option<MissingRequirement> {
    if config.problems.system != SystemName::Lean {
        return None;
    }
    let settings = config.lean.clone().unwrap_or_default();
    let is_wasm = settings.backing == Backing::Wasm;
    let paths = LeanPaths {
        root: settings.root(),
        version: settings.version().to_owned(),
        wasm: settings.root(),
        launcher: sgs_run::config::lean::launcher().unwrap_or_default(),
    };
    // The first finding is the native Lean, the second the WebAssembly build.
    let finding = examine(&paths).into_iter().nth(usize::from(is_wasm))?;
    (finding.state != Readiness::Ready).then(|| MissingRequirement {
        what: "Lean",
        found: format!(
            "{}, {}",
            finding.what.trim_start_matches("Lean "),
            finding.detail.split("; first").next().unwrap_or_default()
        ),
        remedy: finding.remedy,
    })
}

fn model_lack(config: &RunConfig) -> Option<MissingRequirement> {
    // A run has, or makes, every other model when it begins.
    let BaseSource::Folder(folder) = config.model.base_source() else { return None };
    if is_model(folder) {
        return (!folder.join("tokenizer.json").is_file()).then(|| MissingRequirement {
            what: "model",
            found: format!("{} is not a model folder: tokenizer.json not found", config.model.base),
            remedy: None,
        });
    }
    Some(no_model("model", &config.model.base))
}

/// Returns the Guide's own model if it is missing. `sgs sft` makes it; a run never does.
fn guide_lack(config: &RunConfig) -> Option<MissingRequirement> {
    let name = config.model.guide.as_str();
    let is_missing = !Path::new(name).join("config.json").is_file();
    (config.has_own_guide() && is_missing).then(|| no_model("Guide", name))
}

fn no_model(what: &'static str, name: &str) -> MissingRequirement {
    // A name on the hub is `owner/name`. `sgs sft` writes folders called `model`.
    let from_hub = name.split('/').count() == 2
        && !name.starts_with(['.', '/', '~'])
        && !name.ends_with("/model")
        && !Path::new(name).exists();
    MissingRequirement {
        what,
        found: match Path::new(name).join("config.toml").is_file() {
            true => format!("{name} is a run: choose one of its models, such as {name}/base"),
            false if !Path::new(name).exists() => {
                let near = did_you_mean_path(Path::new(name), is_model);
                let known = match what {
                    "model" if !from_hub => format!("; expected shipped, {} or a folder", MADE.join(", ")),
                    _ => String::new(),
                };
                format!(
                    "{name} is neither a model nor a folder{}",
                    if near.is_empty() { &known } else { &near }
                )
            }
            false => format!("{name} is not a model folder: config.json not found"),
        },
        remedy: from_hub.then(|| format!("hf download {name} --local-dir {name}")),
    }
}

/// Returns the files with problems and the database, if they are missing.
fn set_lacks(config: &RunConfig) -> Vec<MissingRequirement> {
    let sets = [
        ("problems", "problems.set", Some(config.problems.set.as_str())),
        ("held-out", "evaluation.held_out", config.evaluation.source()),
    ];
    let lack = |(what, key, set): (_, &str, Option<&str>)| {
        let wrong = check_set(config.problems.system, set?).err()?;
        let further = if what == "held-out" { "; other values: none, split" } else { "" };
        Some(MissingRequirement { what, found: format!("{key}: {wrong}{further}"), remedy: None })
    };
    let database = config.problems.database.as_str();
    let no_file = (database != SHIPPED && !Path::new(database).is_file()).then(|| MissingRequirement {
        what: "problems",
        found: format!("problems.database: {database} is not a file"),
        remedy: None,
    });
    no_file.into_iter().chain(sets.into_iter().filter_map(lack)).collect()
}
