//! `sgs run --dry-run`: the configuration and what it would take.

use super::explain;
use crate::exit::Outcome;
use crate::output;
use crate::requirements::{Lack, lacks};
use anyhow::Result;
use serde_json::json;
use sgs_fleet::launch::quote;
use sgs_lm::ModelConfig;
use sgs_lm::model::Plan;
use sgs_run::config::{Resolved, RunConfig, SystemName, model_folder};
use sgs_run::device::DeviceKind;
use sgs_run::forecast::{ASSUMED, EIGHT_H200, Forecast, Work, forecast};
use sgs_run::machine;
use sgs_run::recipe::Recipe;
use sgs_run::system::lean_targets;
use sgs_run::{device, guide, with_device};
use std::path::Path;

/// Says what the run would be and take, and does nothing.
///
/// # Errors
/// The model or the data set of the configuration is broken.
pub fn run(resolved: &Resolved, as_json: bool) -> Result<Outcome> {
    let config = &resolved.config;
    let kind = device::kind(&config.model.device)?;
    let lacks = lacks(config);
    if kind == DeviceKind::Cpu || config.problems.system == SystemName::Metamath {
        return on_this_machine(resolved, kind, &lacks, as_json);
    }
    let (model, known) = shape(config)?;
    let work = work(config)?;
    let forecast = forecast(config, &model, work, EIGHT_H200, ASSUMED);
    if as_json {
        output::json(&json!({
            "config": config, "layers": explain::layers(resolved), "lacks": lacks, "forecast": forecast,
            "hardware": EIGHT_H200, "assumed": ASSUMED, "guide": guide::forecast(config),
        }))?;
    } else {
        output::line(screen(config, &model, known, work, &lacks, &forecast))?;
    }
    Ok(Outcome::Done)
}

/// The configuration, what lacks, and the memory that training takes.
fn on_this_machine(resolved: &Resolved, kind: DeviceKind, lacks: &[Lack], as_json: bool) -> Result<Outcome> {
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
    if let Some(told) = guide::forecast(config) {
        output::line(format!("# {}", told.replace('\n', "\n#")))?;
    }
    for lack in lacks {
        output::line(format!("# this machine lacks {} ({})", lack.what, lack.found))?;
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

/// The memory that training takes on the configuration's device.
fn memory_plan(config: &RunConfig, kind: DeviceKind) -> Result<Plan> {
    let (model, _) = shape(config)?;
    let tokens = config.training_tokens(&model);
    let (mode, ranks) = (config.training.mode(), config.training.ranks);
    // The last rank keeps what does not divide.
    let place = (ranks - 1, ranks);
    with_device!(kind, device::threads(), device => {
        Ok(Plan::for_rank(&*device, &model, tokens, mode, place))
    })
}

/// The shape of the model, and whether it is that of this very model: a folder's, or one that is known by name. One
/// that is neither is taken to be of the paper's shape.
fn shape(config: &RunConfig) -> Result<(ModelConfig, bool)> {
    let name = config.model.base.as_str();
    let folder = match model_folder(name) {
        Some(folder) => folder,
        None => sgs_run::base_model::folder_for(config.problems.system, None)?,
    };
    if folder.join("config.json").is_file() {
        return Ok((ModelConfig::load(&folder)?, true));
    }
    if let Some(recipe) = Recipe::of(name) {
        return Ok((super::made::shape(recipe)?, true));
    }
    // DeepSeek-Prover-V2-7B: 30 layers of 4,096 with 32 heads.
    let paper = json!({
        "model_type": "llama", "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 11_008,
        "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    });
    Ok((ModelConfig::from_json(paper, name)?, name == "deepseek-ai/DeepSeek-Prover-V2-7B"))
}

fn work(config: &RunConfig) -> Result<Work> {
    let set = &config.problems.set;
    let sizes: Vec<usize> = match config.problems.system {
        SystemName::Lean => lean_targets(set)?.iter().map(|t| size(&t.problem)).collect(),
        SystemName::Metamath => sgs_run::system::metamath(set)?.targets.iter().map(size).collect(),
    };
    let all: usize = sizes.iter().sum();
    Ok(Work { targets: sizes.len(), characters: all as f64 / sizes.len().max(1) as f64 })
}

fn size(problem: &sgs_selfplay::Problem) -> usize {
    problem.statement.chars().count() + problem.context.chars().count()
}

/// Everything on one screen.
fn screen(
    config: &RunConfig,
    model: &ModelConfig,
    known: bool,
    work: Work,
    lacks: &[Lack],
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
            if known { "" } else { ": not here, taken to be of the paper's shape" }
        ),
        String::new(),
    ];
    lines.extend(lacking(lacks, forecast));
    lines.push(String::new());
    lines.push(forecast.describe(config, work, EIGHT_H200, ASSUMED));
    lines.push("  Arithmetic on the figures named here, not a measurement.".to_owned());
    lines.extend(guide::forecast(config).map(|told| format!("  guide     {told}")));
    lines.push(String::new());
    lines.extend(next(lacks));
    lines.push(format!("Every key of the configuration: sgs run --size {} --dry-run --json", config.size));
    lines.join("\n")
}

/// What is not there, and what there is too little of.
fn lacking(lacks: &[Lack], forecast: &Forecast) -> Vec<String> {
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
    let head = if lines.is_empty() { "This machine lacks nothing of it." } else { "This machine lacks" };
    lines.insert(0, head.to_owned());
    lines
}

/// This command, as it begins the run: all of its arguments are kept.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.filter(|word| word != "--dry-run").map(|word| quote(&word));
    std::iter::once("sgs".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The next command, and those after it.
fn next(lacks: &[Lack]) -> Vec<String> {
    let run = command();
    let mut commands: Vec<String> = lacks.iter().filter_map(|l| l.remedy.clone()).collect();
    let lacks_gpu = lacks.iter().any(|l| l.what == "GPU");
    commands.push(if lacks_gpu { format!("{run}   (on a machine with the GPUs)") } else { run });
    let mut lines = vec![format!("Run next: {}", commands.remove(0))];
    lines.extend(commands.into_iter().map(|c| format!("    then: {c}")));
    if !lacks.is_empty() {
        lines.push(
            "Without all that: sgs run (Metamath, some minutes), sgs lean setup --wasm (core Lean)"
                .to_owned(),
        );
    }
    lines
}
