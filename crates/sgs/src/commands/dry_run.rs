//! `sgs run --dry-run`: prints the configuration and its requirements.

use super::explain;
use super::missing::{MissingRequirement, lacks};
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use serde_json::json;
use sgs_data::base::made::shape as shape_of;
use sgs_data::base::recipe::Recipe;
use sgs_fleet::launch::quote;
use sgs_lm::ModelConfig;
use sgs_lm::model::MemoryPlan;
use sgs_run::config::base_model::is_model;
use sgs_run::config::device;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::forecast::{ASSUMED, EIGHT_H200, Forecast, RoundWork, forecast};
use sgs_run::config::guide_format;
use sgs_run::config::machine;
use sgs_run::config::system::{external_targets, lean_targets, metamath};
use sgs_run::config::{BaseSource, Resolved, RunConfig, SystemName};
use sgs_run::with_device;
use std::path::{Path, PathBuf};

/// Prints the configuration, its requirements and its memory plan.
///
/// # Errors
/// Returns an error if the configuration's model or data set is damaged.
pub fn run(resolved: &Resolved, as_json: bool) -> Result<Outcome> {
    let config = &resolved.config;
    let kind = device::kind(&config.model.device)?;
    let lacks = lacks(config);
    if kind == DeviceKind::Cpu || config.problems.system == SystemName::Metamath {
        return on_this_machine(resolved, kind, &lacks, as_json);
    }
    let (model, known) = shape(config)?;
    let work = round_work(config)?;
    let forecast = forecast(config, &model, work, EIGHT_H200, ASSUMED);
    if as_json {
        output::json(&json!({
            "config": config, "layers": explain::layers(resolved), "lacks": lacks, "forecast": forecast,
            "hardware": EIGHT_H200, "assumed": ASSUMED, "guide": guide_format::forecast(config),
        }))?;
    } else {
        output::line(screen(config, &model, known, work, &lacks, &forecast))?;
    }
    Ok(Outcome::Done)
}

/// Prints the configuration, missing requirements, and the memory that training needs.
fn on_this_machine(
    resolved: &Resolved,
    kind: DeviceKind,
    lacks: &[MissingRequirement],
    as_json: bool,
) -> Result<Outcome> {
    let config = &resolved.config;
    let possible = !lacks.iter().any(|l| l.what == "model" || l.what == "GPU");
    let plan = if possible { Some(memory_plan(config, kind)?) } else { None };
    if as_json {
        let memory = plan.map(|p| {
            json!({
                "tokens": p.tokens, "weights": p.weight_bytes, "gradients": p.gradient_bytes,
                "optimiser": p.optimiser_bytes, "activations": p.activation_bytes, "logits": p.logit_bytes,
            })
        });
        let layers = explain::layers(resolved);
        output::json(&json!({ "config": config, "layers": layers, "lacks": lacks, "memory": memory }))?;
        return Ok(Outcome::Done);
    }
    output::line(explain::annotated(resolved)?)?;
    if let Some(told) = guide_format::forecast(config) {
        output::line(format!("# {}", told.replace('\n', "\n#")))?;
    }
    for lack in lacks {
        output::line(format!("# missing: {} ({})", lack.what, lack.found))?;
    }
    if !lacks.is_empty() {
        let lines = next(lacks).into_iter().map(|l| format!("# {l}"));
        output::line(lines.collect::<Vec<_>>().join("\n"))?;
    }
    if let Some(plan) = plan {
        let of = match config.training.ranks {
            1 => String::new(),
            ranks => format!(" of each of {ranks} ranks"),
        };
        output::line(format!("# memory plan{of}\n{plan}"))?;
    }
    Ok(Outcome::Done)
}

/// Plans the memory of training on the configuration's device.
fn memory_plan(config: &RunConfig, kind: DeviceKind) -> Result<MemoryPlan> {
    let (model, _) = shape(config)?;
    let tokens = config.training_tokens(&model);
    let (mode, ranks) = (config.training.mode(), config.training.ranks);
    // The last rank stores the remainder.
    let place = (ranks - 1, ranks);
    with_device!(kind, device::threads(), device => {
        Ok(MemoryPlan::for_rank(&*device, &model, tokens, mode, place))
    })
}

/// Returns the shape of the model and whether it is known: from its folder or by name. An unknown model is assumed to have
/// the paper's shape.
fn shape(config: &RunConfig) -> Result<(ModelConfig, bool)> {
    let name = config.model.base.as_str();
    let recipe = Recipe::of(name);
    let folder = match (config.model.base_source(), recipe) {
        (BaseSource::Shipped, _) => sgs_run::config::base_model::folder_for(config.problems.system, None)?,
        (_, Some(recipe)) => recipe.model()?,
        (BaseSource::Folder(folder), None) => folder.to_owned(),
        (BaseSource::Made(_), None) => PathBuf::from(name),
    };
    if is_model(&folder) {
        return Ok((ModelConfig::load(&folder)?, true));
    }
    if let Some(recipe) = recipe {
        return Ok((shape_of(recipe)?, true));
    }
    // DeepSeek-Prover-V2-7B: 30 layers of 4,096 with 32 heads.
    let paper = json!({
        "model_type": "llama", "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 11_008,
        "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    });
    Ok((ModelConfig::from_json(paper, name)?, name == "deepseek-ai/DeepSeek-Prover-V2-7B"))
}

fn round_work(config: &RunConfig) -> Result<RoundWork> {
    let set = &config.problems.set;
    let sizes: Vec<usize> = match config.problems.system {
        SystemName::Lean => lean_targets(set)?.iter().map(|t| size(&t.problem)).collect(),
        SystemName::Metamath => metamath(&config.problems.database, set)?.targets.iter().map(size).collect(),
        SystemName::External => external_targets(set)?.iter().map(size).collect(),
    };
    let all: usize = sizes.iter().sum();
    Ok(RoundWork { targets: sizes.len(), characters: all as f64 / sizes.len().max(1) as f64 })
}

fn size(problem: &sgs_selfplay::Problem) -> usize {
    problem.statement.chars().count() + problem.context.chars().count()
}

/// Formats the forecast of a Lean run.
fn screen(
    config: &RunConfig,
    model: &ModelConfig,
    known: bool,
    work: RoundWork,
    lacks: &[MissingRequirement],
    forecast: &Forecast,
) -> String {
    let mut lines = vec![
        format!(
            "{} at {}: {} targets of {}, model {} ({:.2} B parameters{})",
            config.method,
            config.size,
            work.targets,
            config.problems.set,
            config.model.base,
            model.parameters() as f64 / 1e9,
            if known { "" } else { ": not found, assumed to have the paper's shape" }
        ),
        String::new(),
    ];
    lines.extend(lacking(lacks, forecast));
    lines.push(String::new());
    lines.push(forecast.describe(config, work, EIGHT_H200, ASSUMED));
    lines.push("  Computed from the figures listed here, not measured.".to_owned());
    lines.extend(guide_format::forecast(config).map(|told| format!("  guide     {told}")));
    lines.push(String::new());
    lines.extend(next(lacks));
    lines.push(format!("Every key of the configuration: sgs run --size {} --dry-run --json", config.size));
    lines.join("\n")
}

/// Lists missing requirements and insufficient resources.
fn lacking(lacks: &[MissingRequirement], forecast: &Forecast) -> Vec<String> {
    let mut lines = Vec::new();
    for lack in lacks {
        lines.push(format!("  {:<9} {}", lack.what, lack.found));
    }
    let gb = |n: u64| n as f64 / 1e9;
    if let Some(memory) = machine::memory().filter(|m| (m.total as f64) < forecast.host_bytes) {
        lines.push(format!("  memory    {:.0} GB of {:.0} GB", gb(memory.total), forecast.host_bytes / 1e9));
    }
    if let Some(free) = machine::free_disk(Path::new(".")).filter(|n| (*n as f64) < forecast.disk.total()) {
        lines.push(format!("  disk      {:.0} GB free of {:.0} GB", gb(free), forecast.disk.total() / 1e9));
    }
    let threads = machine::processor().threads;
    if threads < EIGHT_H200.cores as usize {
        lines.push(format!("  cores     {threads} of {}", EIGHT_H200.cores));
    }
    let head =
        if lines.is_empty() { "This machine meets all requirements." } else { "Missing on this machine:" };
    lines.insert(0, head.to_owned());
    lines
}

/// Returns this command without `--dry-run`, with all its other arguments.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.filter(|word| word != "--dry-run").map(|word| quote(&word));
    std::iter::once("sgs".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Lists the next commands.
fn next(lacks: &[MissingRequirement]) -> Vec<String> {
    let run = command();
    let mut commands: Vec<String> = lacks.iter().filter_map(|l| l.remedy.clone()).collect();
    let lacks_gpu = lacks.iter().any(|l| l.what == "GPU");
    commands.push(if lacks_gpu { format!("{run}   (on a machine with the GPUs)") } else { run });
    let mut lines = vec![format!("Run next: {}", commands.remove(0))];
    lines.extend(commands.into_iter().map(|c| format!("    then: {c}")));
    if !lacks.is_empty() {
        lines.push(
            "Without these requirements: sgs run (Metamath, a few minutes), or sgs lean setup --wasm (core Lean)"
                .to_owned(),
        );
    }
    lines
}
