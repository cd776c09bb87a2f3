//! What a run needs of the machine that is not there.

use crate::commands::doctor;
use sgs_lean::Backing;
use sgs_lean::setup::{LeanPaths, State, examine};
use sgs_run::config::{RunConfig, SystemName, model_folder};
use sgs_run::recipe::Recipe;
use sgs_run::system::is_shipped_set;
use sgs_run::workers::config::{By, FleetConfig};
use std::path::{Path, PathBuf};

/// One thing that lacks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Lack {
    /// What: `GPU`, `Lean`, `model`, `Guide`, `held-out`.
    pub what: &'static str,
    /// Where it was looked for and what was found.
    pub found: String,
    /// The command that gets it, where one does.
    pub remedy: Option<String>,
}

/// Everything that a run of this configuration cannot begin without, in the order in which one would get it.
pub fn lacks(config: &RunConfig) -> Vec<Lack> {
    let mut lacks: Vec<Lack> = lean_lack(config).into_iter().chain(model_lack(config)).collect();
    lacks.extend(guide_lack(config).into_iter().chain(held_out_lack(config)));
    if config.model.device == "cuda" {
        let gpu = doctor::gpu_lacks();
        // Without devices, the libraries do not matter.
        let found = gpu.iter().find(|(name, _)| name == "devices").or(gpu.first());
        if let Some((name, found)) = found {
            lacks.push(Lack { what: "GPU", found: format!("{name}: {found}"), remedy: None });
        }
    }
    lacks
}

/// What workers that Slurm starts cannot begin without.
pub fn slurm_lack(workers: &FleetConfig) -> Option<Lack> {
    let by_slurm = [&workers.generate, &workers.verify].into_iter().filter(|crew| crew.by == By::Slurm);
    let mut missing = by_slurm.filter_map(|crew| match &crew.bin {
        Some(folder) => Some(folder.join("sbatch")).filter(|sbatch| !sbatch.is_file()),
        None => doctor::lacks_program("sbatch").then(|| PathBuf::from("sbatch on the PATH")),
    });
    let found = format!("there is no {}", missing.next()?.display());
    Some(Lack { what: "Slurm", found, remedy: None })
}

fn lean_lack(config: &RunConfig) -> Option<Lack> {
    if config.problems.system != SystemName::Lean {
        return None;
    }
    let settings = config.lean.clone().unwrap_or_default();
    let is_wasm = settings.backing == Backing::Wasm;
    let paths = LeanPaths {
        root: settings.root(),
        version: settings.version().to_owned(),
        wasm: settings.root(),
        launcher: sgs_run::lean::launcher().unwrap_or_default(),
    };
    // The first finding is the native Lean, the second the WebAssembly build.
    let finding = examine(&paths).into_iter().nth(usize::from(is_wasm))?;
    (finding.state != State::Ready).then(|| Lack {
        what: "Lean",
        found: format!(
            "{}, {}",
            finding.what.trim_start_matches("Lean "),
            finding.detail.split("; first").next().unwrap_or_default()
        ),
        remedy: finding.remedy,
    })
}

fn model_lack(config: &RunConfig) -> Option<Lack> {
    let folder = model_folder(&config.model.base)?;
    // What a run can make, it makes.
    if folder.join("config.json").is_file() || Recipe::of(&config.model.base).is_some() {
        return None;
    }
    Some(no_model("model", &config.model.base))
}

/// The Guide's own model: made by `sgs sft`, never by a run.
fn guide_lack(config: &RunConfig) -> Option<Lack> {
    let name = config.model.guide.as_str();
    (name != "base" && !Path::new(name).join("config.json").is_file()).then(|| no_model("Guide", name))
}

fn no_model(what: &'static str, name: &str) -> Lack {
    // A name of the hub has an owner and a name, and no other parts. What `sgs sft` writes is called model.
    let from_hub =
        name.split('/').count() == 2 && !name.starts_with(['.', '/', '~']) && !name.ends_with("/model");
    Lack {
        what,
        found: format!("no config.json in the folder {name}"),
        remedy: from_hub.then(|| format!("hf download {name} --local-dir {name}")),
    }
}

/// The file of held-out problems.
fn held_out_lack(config: &RunConfig) -> Option<Lack> {
    let file = config.evaluation.source().filter(|source| !is_shipped_set(source))?;
    let found = format!("no file {file} (evaluation.held_out)");
    (!Path::new(file).is_file()).then_some(Lack { what: "held-out", found, remedy: None })
}
