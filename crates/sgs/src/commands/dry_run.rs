//! `sgs run --dry-run`: prints the configuration and its requirements.

use super::explain;
use super::missing::{MissingRequirement, lacks, without_gpu};
use crate::exit::{Outcome, RunError, Usage};
use crate::output;
use crate::wrap::wrapped;
use anyhow::Result;
use serde_json::json;
use sgs_data::base::made::shape as shape_of;
use sgs_data::base::recipe::Recipe;
use sgs_fleet::launch::quote;
use sgs_lm::ModelConfig;
use sgs_lm::footprint::Footprint;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_bench::gemm_peak;
use sgs_lm_cpu::{Cpu, CpuFootprint};
use sgs_lm_cuda::{CudaFootprint, Gpu, Precision, gpu_count};
use sgs_run::config::base_model::is_model;
use sgs_run::config::device;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::guide_format;
use sgs_run::config::machine::{self, Memory};
use sgs_run::config::system;
use sgs_run::config::{BaseSource, Resolved, RunConfig, SystemName};
use sgs_run::workers::config::{By, FleetConfig};
use sgs_run::workers::forecast::{Assumptions, Forecast, Hardware, RoundWork, Speed, forecast};
use sgs_run::workers::memory::{MemoryInputs, Phase, ProcessMemory, sum};
use sgs_run::workers::prompts;
use sgs_selfplay::Problem;
use std::path::{Path, PathBuf};

/// Starts the program of an external system, and returns why a run could not use it.
fn external_lack(config: &RunConfig) -> Option<MissingRequirement> {
    let is_external = config.problems.system == SystemName::External;
    let error = is_external.then(|| system::external(config)).and_then(Result::err)?;
    Some(MissingRequirement { what: "program", found: format!("{error:#}"), remedy: None })
}

struct Planned {
    model: ModelConfig,
    /// Whether the model's shape is known.
    known: bool,
    work: RoundWork,
    hardware: Hardware,
    assumed: Assumptions,
    forecast: Forecast,
    /// A note about the held-out problems.
    held_out: Option<String>,
    /// A warning about prompts that do not fit into the context window.
    unfit: Option<String>,
}

/// Prints the configuration, its requirements and a forecast of its time and memory.
/// `replaced` are assumptions as NAME=NUMBER.
pub fn run(
    resolved: &Resolved,
    fleet: Option<&FleetConfig>,
    replaced: &[String],
    as_json: bool,
) -> Result<Outcome> {
    let config = &resolved.config;
    let mut assumed = Assumptions::of(config);
    for assumption in replaced {
        assumed.replace(assumption)?;
    }
    let kind = device::kind(&config.model.device)?;
    let mut lacks = lacks(config);
    lacks.extend(external_lack(config));
    // A small run on the CPU is not forecast for another machine.
    let is_possible = !kind.is_cpu() || !lacks.iter().any(|l| matches!(l.what, "model" | "problems"));
    if is_possible {
        check_memory(config, fleet)?;
    }
    let planned = if is_possible { Some(plan(config, kind, fleet, assumed)?) } else { None };
    if as_json {
        let part = |value: fn(&Planned) -> serde_json::Value| planned.as_ref().map(value);
        output::json(&json!({
            "config": config, "layers": explain::layers(resolved), "lacks": lacks,
            "forecast": part(|p| json!(p.forecast)), "hardware": part(|p| json!(p.hardware)),
            "assumed": part(|p| json!(p.assumed)), "guide": guide_format::forecast(config),
            "base_to_make": base_to_make(config)?.map(|(_, folder)| folder),
        }))?;
        return Ok(Outcome::Done);
    }
    let is_large = !kind.is_cpu() && config.problems.system != SystemName::Metamath;
    match planned {
        Some(planned) if is_large => output::line(screen(config, &planned, &lacks)?)?,
        planned => on_this_machine(resolved, planned, &lacks)?,
    }
    Ok(Outcome::Done)
}

/// Prints every key, missing requirements and the forecast.
fn on_this_machine(
    resolved: &Resolved,
    planned: Option<Planned>,
    lacks: &[MissingRequirement],
) -> Result<()> {
    let config = &resolved.config;
    let mut lines = Vec::new();
    lines.extend(guide_format::forecast(config));
    lines.extend(lacks.iter().map(|lack| format!("missing: {} ({})", lack.what, lack.found)));
    if !lacks.is_empty() {
        lines.extend(next(config, lacks, true));
    }
    if lacks.iter().any(|lack| lack.what == "GPU") {
        lines.extend(without_gpu(config));
    }
    lines.extend(making(config)?);
    lines.extend(planned.iter().flat_map(|planned| planned.lines(config)));
    let lines: Vec<String> = lines.into_iter().map(|line| format!("# {line}")).collect();
    output::line(explain::annotated(resolved)?)?;
    output::line(lines.join("\n"))?;
    Ok(())
}

impl Planned {
    fn lines(&self, config: &RunConfig) -> Vec<String> {
        let Self { work, hardware, assumed, forecast, held_out, unfit, .. } = self;
        let mut lines: Vec<String> = held_out.iter().cloned().collect();
        lines.extend(unfit.iter().map(|text| format!("warning: {text}")));
        lines.extend(forecast.describe_times(config, *work, hardware, assumed));
        lines.extend(forecast.describe_memory(hardware));
        lines.push(
            "Memory follows from the sizes of buffers, times from measured speeds (docs/performance.md)."
                .to_owned(),
        );
        lines
    }
}

/// Checks that the memory of each role's samplers holds their longest completion, before anything is written.
/// Returns an error that names the keys to change.
pub fn check_memory(config: &RunConfig, fleet: Option<&FleetConfig>) -> Result<()> {
    let sampling = |inputs: MemoryInputs<'_>| match inputs.ranks_sample() {
        true => inputs.rank(0),
        false => inputs.worker(),
    };
    let planned = with_inputs(config, fleet, sampling)?;
    match planned {
        Some(Err(RunError::CannotBegin(problem))) => Err(Usage(problem).into()),
        _ => Ok(()),
    }
}

/// Checks that the processes of a run on the CPU fit into this machine's memory. `ranks` of the run's ranks are on this
/// machine. Returns a warning if the processes may need more memory than is available now.
///
/// # Errors
/// Returns an error that names the key to change if they may need more than twice the memory of the machine.
pub fn check_machine(
    config: &RunConfig,
    fleet: Option<&FleetConfig>,
    ranks: usize,
) -> Result<Option<String>> {
    if !device::kind(&config.model.device)?.is_cpu() {
        return Ok(None);
    }
    let planned = with_inputs(config, fleet, |inputs| inputs.machine(1))?;
    let (Some(Ok(planned)), Some(memory)) = (planned, machine::memory()) else { return Ok(None) };
    let all = planned.into_iter().flatten().collect();
    Ok(check_processes(&local_processes(all, ranks, config.training.ranks), memory)?)
}

/// Returns the processes of this machine: the first `ranks` of the run's `all_ranks` ranks, and the workers, which come after
/// all ranks.
fn local_processes<T>(processes: Vec<T>, ranks: usize, all_ranks: usize) -> Vec<T> {
    let is_here = |i: &usize| *i < ranks || *i >= all_ranks;
    processes.into_iter().enumerate().filter(|(i, _)| is_here(i)).map(|(_, process)| process).collect()
}

/// Checks that processes fit into `memory`, as [`check_machine`] does.
fn check_processes(processes: &[ProcessMemory], memory: Memory) -> Result<Option<String>, Usage> {
    let needed: u64 = processes.iter().map(|process| process.device_bytes + sum(&process.host)).sum();
    let printed = machine::bytes(needed);
    // The plan is an upper bound: the default run uses 0.4 of it.
    if needed / 2 <= memory.total {
        let available = machine::bytes(memory.available);
        return Ok((needed > memory.available).then(|| {
            format!(
                "this run may need {printed} of memory, and {available} is available now; `--dry-run` lists the parts"
            )
        }));
    }
    let parts = || processes.iter().flat_map(|process| process.device.iter().chain(&process.host));
    let bytes = |phase| parts().filter(|part| part.phase == phase).map(|part| part.bytes).sum::<u64>();
    let largest = [
        (bytes(Phase::Sampling), "lower sampling.memory_mib"),
        (bytes(Phase::Training), "lower training.micro_batch_tokens"),
        (bytes(Phase::Always), "choose a smaller model (model.base)"),
    ];
    let (bytes, remedy) = largest.into_iter().max_by_key(|(bytes, _)| *bytes).unwrap_or_default();
    let fewer = match processes.len() {
        1 => String::new(),
        many => format!(", or start fewer than {many} processes (--ranks, --workers)"),
    };
    Err(Usage(format!(
        "this run may need {printed} of memory, and this machine or its control group has {}: {remedy}, for which {} is \
         planned{fewer}; `--dry-run` lists the parts",
        machine::bytes(memory.total),
        machine::bytes(bytes)
    )))
}

/// Calls `f` with the inputs of a memory plan. Returns `None` if the model's shape is not known.
fn with_inputs<T>(
    config: &RunConfig,
    fleet: Option<&FleetConfig>,
    f: impl FnOnce(MemoryInputs<'_>) -> T,
) -> Result<Option<T>> {
    // The start of the run reports other errors.
    let Ok((model, true)) = shape(config) else { return Ok(None) };
    let footprint: Box<dyn Footprint> = match device::kind(&config.model.device)?.is_cpu() {
        true => Box::new(CpuFootprint { threads: (device::threads() / config.training.ranks.max(1)).max(1) }),
        false => Box::new(CudaFootprint { precision: Precision::Bf16, processors: PROCESSORS }),
    };
    let inputs =
        MemoryInputs { config, model: &model, guide: &model, fleet, footprint: &*footprint, gpu_bytes: None };
    Ok(Some(f(inputs)))
}

fn plan(
    config: &RunConfig,
    kind: DeviceKind,
    fleet: Option<&FleetConfig>,
    assumed: Assumptions,
) -> Result<Planned> {
    let (model, known) = shape(config)?;
    let own_guide =
        Some(Path::new(&config.model.guide)).filter(|guide| config.has_own_guide() && is_model(guide));
    let guide = own_guide.map_or_else(|| Ok(model.clone()), ModelConfig::load)?;
    let (hardware, footprint) = hardware(config, kind, fleet)?;
    let problems = system::problems(config)?;
    let has_sets = !lacks(config).iter().any(|lack| matches!(lack.what, "problems" | "held-out"));
    let unfit = unfit_prompts(config, &model, &problems)?;
    let characters = characters(&problems);
    let targets = system::target_count(config)?;
    let (held_out, note) = match has_sets {
        true => {
            let held_out = system::held_out(config, problems)?;
            (held_out.problems.len(), held_out.note)
        }
        false => (0, None),
    };
    let work = RoundWork { targets, held_out, characters };
    let gpu_bytes = (!kind.is_cpu()).then(|| hardware.device_bytes.saturating_sub(hardware.reserved_bytes));
    let inputs =
        MemoryInputs { config, model: &model, guide: &guide, fleet, footprint: &*footprint, gpu_bytes };
    let forecast = forecast(inputs, work, &hardware, &assumed)?;
    Ok(Planned { known, work, hardware, assumed, forecast, held_out: note, unfit, model })
}

/// Returns a warning about prompts that do not fit into the context window. Only Metamath prompts are checked: those of
/// other systems need their checker.
fn unfit_prompts(config: &RunConfig, model: &ModelConfig, problems: &[Problem]) -> Result<Option<String>> {
    let base = base_of(config)?;
    if config.problems.system != SystemName::Metamath || !is_model(&base) {
        return Ok(None);
    }
    let system = system::metamath_database(&config.problems.database)?;
    Ok(prompts::check(config, model, &Tokenizer::load(&base)?, &*system, problems)?)
}

/// Multiprocessors of an H100 or H200.
const PROCESSORS: usize = 132;
const H200_BYTES: u64 = 139 << 30;
/// Assumed memory of a process's context and libraries on a GPU, in bytes.
const CONTEXT_BYTES: u64 = 1 << 30;
/// Cores of an assumed coordinator's machine. Other machines of the ranks check proofs only as verification workers.
const NODE_CORES: usize = 128;

/// Returns the hardware that a run would use, and the sizes of its buffers. GPUs that this machine lacks are assumed.
fn hardware(
    config: &RunConfig,
    kind: DeviceKind,
    fleet: Option<&FleetConfig>,
) -> Result<(Hardware, Box<dyn Footprint>)> {
    let threads = device::threads();
    if kind.is_cpu() {
        let cpu = Cpu::with_precision(threads, kind.precision())?;
        let peak = gemm_peak(&cpu) * 1e9;
        let hardware = Hardware {
            device: format!("CPU with {threads} threads ({:.0} GFLOP/s)", peak / 1e9),
            found: true,
            is_host: true,
            devices: 1,
            device_bytes: machine::memory().map_or(u64::MAX, |memory| memory.total),
            reserved_bytes: 0,
            speed: Speed::of_cpu(peak, cpu.precision()),
            cores: threads,
        };
        // Ranks and local workers share the threads.
        let local = fleet.filter(|f| f.generate.by == By::Local).map_or(1, |f| f.generate.count);
        let threads = (threads / config.training.ranks.max(local)).max(1);
        return Ok((hardware, Box::new(CpuFootprint { threads })));
    }
    let found = match gpu_count().unwrap_or(0) {
        0 => None,
        _ => Some(Gpu::open(0)?),
    };
    let wanted = fleet.filter(|f| f.generate.by == By::Local).map_or(0, |f| f.generate.count);
    let device = found.as_ref().map_or_else(|| "H200".to_owned(), |gpu| gpu.name.clone());
    let devices = match &found {
        Some(_) => gpu_count()?,
        // Ranks and workers of one node of eight GPUs share them if there are more.
        None => (config.training.ranks + wanted).min(config.training.ranks.max(wanted).max(8)),
    };
    let hardware = Hardware {
        speed: Speed::of_gpu(&device),
        device,
        found: found.is_some(),
        is_host: false,
        devices,
        device_bytes: found.as_ref().map_or(H200_BYTES, |gpu| gpu.memory as u64),
        reserved_bytes: CONTEXT_BYTES,
        cores: if found.is_some() { threads } else { NODE_CORES },
    };
    let processors = found.map_or(PROCESSORS, |gpu| gpu.processors);
    Ok((hardware, Box::new(CudaFootprint { precision: Precision::Bf16, processors })))
}

/// Returns the folder of the base model, which may not exist yet.
fn base_of(config: &RunConfig) -> Result<PathBuf> {
    let name = config.model.base.as_str();
    Ok(match (config.model.base_source(), Recipe::of(name)) {
        (BaseSource::Shipped, _) => sgs_run::config::base_model::folder_for(config.problems.system, None)?,
        (_, Some(recipe)) => recipe.model()?,
        (BaseSource::Folder(folder), None) => folder.to_owned(),
        (BaseSource::Made(_), None) => PathBuf::from(name),
    })
}

/// Returns the recipe of the base model that the run would make, and the folder that will contain the model. Returns `None`
/// if the run makes no model, or if the cache contains it.
fn base_to_make(config: &RunConfig) -> Result<Option<(&'static Recipe, PathBuf)>> {
    let Some(recipe) = Recipe::of(&config.model.base) else { return Ok(None) };
    let folder = recipe.model()?;
    Ok((!folder.exists()).then_some((recipe, folder)))
}

/// Says that the run makes its base model first, and how long that took where it was measured.
fn making(config: &RunConfig) -> Result<Option<String>> {
    let Some((recipe, folder)) = base_to_make(config)? else { return Ok(None) };
    let measured = recipe.h200_s.map(|seconds| format!(" (on one H200: {seconds} s of training)"));
    Ok(Some(format!(
        "The base model {} is missing: the run first makes it, in {}. The times below do not include that{}.",
        config.model.base,
        folder.display(),
        measured.unwrap_or_default()
    )))
}

/// Returns the shape of the model and whether it is known: from its folder or by name. An unknown model is assumed to have
/// the paper's shape.
pub fn shape(config: &RunConfig) -> Result<(ModelConfig, bool)> {
    let name = config.model.base.as_str();
    let (recipe, folder) = (Recipe::of(name), base_of(config)?);
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

/// Returns the mean length of a problem with its header, in characters.
fn characters(problems: &[Problem]) -> f64 {
    let size = |problem: &Problem| problem.statement.chars().count() + problem.context.chars().count();
    let all: usize = problems.iter().map(size).sum();
    all as f64 / problems.len().max(1) as f64
}

/// Formats the forecast of a large run, without its keys.
fn screen(config: &RunConfig, planned: &Planned, lacks: &[MissingRequirement]) -> Result<String> {
    let Planned { model, known, work, .. } = planned;
    let mut lines = vec![
        format!(
            "{} at {}: {} targets of {}, model {} ({:.2} B parameters{})",
            config.method,
            config.size,
            work.targets,
            config.problems.set,
            config.model.base,
            model.parameters() as f64 / 1e9,
            if *known { "" } else { ": not found, assumed to have the paper's shape" }
        ),
        String::new(),
    ];
    let fits = planned.forecast.fits(&planned.hardware);
    lines.extend(lacking(config, lacks, planned));
    lines.push(String::new());
    lines.extend(making(config)?);
    lines.extend(planned.lines(config));
    lines.extend(guide_format::forecast(config).map(|told| wrapped(&format!("  guide     {told}"), 100, 12)));
    lines.push(String::new());
    lines.extend(next(config, lacks, fits));
    lines.push(format!("Every key of the configuration: sgs run --size {} --dry-run --json", config.size));
    Ok(lines.join("\n"))
}

/// Lists missing requirements and insufficient resources.
fn lacking(config: &RunConfig, lacks: &[MissingRequirement], planned: &Planned) -> Vec<String> {
    let mut lines = Vec::new();
    for lack in lacks {
        lines.push(format!("  {:<9} {}", lack.what, lack.found));
    }
    let gb = |n: u64| n as f64 / 1e9;
    let Planned { forecast, hardware, .. } = planned;
    let (host, disk) = (sum(&forecast.host), forecast.disk.total());
    if let Some(memory) = machine::memory().filter(|m| m.total < host) {
        lines.push(format!("  memory    {:.0} GB; {:.0} GB needed", gb(memory.total), gb(host)));
    }
    if let Some(free) = machine::free_disk(Path::new(".")).filter(|n| (*n as f64) < disk) {
        lines.push(format!("  disk      {:.0} GB free; {:.0} GB needed", gb(free), disk / 1e9));
    }
    let threads = machine::processor().threads;
    let cores = hardware.cores.min(forecast.checkers);
    if forecast.checks_here && threads < cores {
        lines.push(format!("  cores     {threads}; {cores} needed"));
    }
    let ranks = config.training.ranks;
    if hardware.found && !hardware.is_host && ranks > hardware.devices {
        lines.push(format!(
            "  GPUs      {}; training.ranks is {ranks}, so the run needs more of them, or further machines (docs/cluster.md)",
            hardware.devices
        ));
    }
    if !forecast.fits(hardware) {
        lines.push(format!(
            "  GPU       needs more memory than {:.0} GB: see below",
            gb(hardware.device_bytes)
        ));
    }
    let head =
        if lines.is_empty() { "This machine meets all requirements." } else { "Missing on this machine:" };
    lines.insert(0, head.to_owned());
    lines
}

/// Returns this command as one that starts the run, with all its other arguments.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = without_dry_run(words).map(|word| quote(&word));
    std::iter::once("sgs".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Leaves out `--dry-run`, and `--assume` with its values.
fn without_dry_run(words: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut is_value = false;
    words.filter(move |word| {
        let is_left_out = std::mem::replace(&mut is_value, word == "--assume");
        !is_left_out && !is_value && word != "--dry-run" && !word.starts_with("--assume=")
    })
}

/// Lists the next commands. `fits` says whether the run fits into the memory of its devices.
fn next(config: &RunConfig, lacks: &[MissingRequirement], fits: bool) -> Vec<String> {
    let mut run = command();
    let mut commands: Vec<String> = lacks.iter().filter_map(|l| l.remedy.clone()).collect();
    if guide_format::is_untrained(config) {
        let guide = guide_format::AUTHORS_GUIDE;
        if !is_model(Path::new(guide)) {
            commands.push(format!("hf download {guide} --local-dir {guide}"));
        }
        run = format!("{run} --set model.guide={guide}");
    }
    let lacks_gpu = lacks.iter().any(|l| l.what == "GPU");
    let is_wrong = !fits || lacks.iter().any(|l| l.what != "GPU" && l.remedy.is_none());
    commands.push(match (is_wrong, lacks_gpu) {
        (true, _) => format!("{run}   (after correcting the settings above)"),
        (false, true) => format!("{run}   (where the GPUs are)"),
        (false, false) => run,
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_run::workers::memory::MemoryPart;

    #[test]
    fn ranks_of_other_machines_do_not_count() {
        assert_eq!(local_processes((0..5).collect(), 2, 4), [0, 1, 4]);
        assert_eq!(local_processes((0..3).collect(), 2, 2), [0, 1, 2]);
    }

    #[test]
    fn the_next_command_starts_the_run() {
        let given = "run --assume check_s=1 --size lean-d3k --dry-run --assume=accepted=1 --seed 2";
        let left = without_dry_run(given.split(' ').map(str::to_owned)).collect::<Vec<_>>();
        assert_eq!(left.join(" "), "run --size lean-d3k --seed 2");
    }

    #[test]
    fn twice_the_machines_memory_is_an_error_and_more_than_is_available_a_warning() {
        let process = |sampling: u64, training: u64| {
            let part = |bytes, phase| MemoryPart { what: String::new(), bytes, phase };
            let device = [(64, Phase::Always), (sampling, Phase::Sampling), (training, Phase::Training)];
            ProcessMemory {
                process: "rank 0".to_owned(),
                device: device.map(|(mib, phase)| part(mib << 20, phase)).into(),
                in_turns: false,
                device_bytes: (64 + sampling + training) << 20,
                host: vec![part(16 << 20, Phase::Always)],
            }
        };
        let check = |processes: &[ProcessMemory], total: u64, available: u64| {
            check_processes(processes, Memory { total: total << 20, available: available << 20 })
                .map_err(|error| error.to_string())
        };
        let one = [process(100, 200)];
        assert_eq!(check(&one, 380, 380), Ok(None));
        let warning = check(&one, 380, 379).ok().flatten().unwrap_or_default();
        assert!(warning.contains("380.0 MiB of memory, and 379.0 MiB is available now"), "{warning}");
        let refused = |processes: &[ProcessMemory], total| check(processes, total, total).unwrap_err();
        let text = refused(&one, 189);
        for part in
            ["380.0 MiB of memory", "has 189.0 MiB", "lower training.micro_batch_tokens, for which 200.0 MiB"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("--workers"), "{text}");
        assert!(
            refused(&[process(300, 200)], 100).contains("lower sampling.memory_mib, for which 300.0 MiB")
        );
        assert!(refused(&[process(9, 9)], 9).contains("(model.base), for which 80.0 MiB"));
        let two = refused(&[process(1, 300), process(200, 0)], 330);
        assert!(two.contains("661.0 MiB") && two.contains("start fewer than 2 processes"), "{two}");
    }
}
