//! `sgs bench`: what this machine does in a second.

use super::bench_dispatch;
use super::verify::theory;
use crate::args::{BenchCommand, BenchSampleArgs, BenchSystem, BenchTrainArgs, BenchVerifyArgs};
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::Result;
use sgs_lm::bench::{self, TrainBench, gemm_peak, random_model, small_shape};
use sgs_lm::sampler::bench::{SampleBench, sample};
use sgs_lm::{Cpu, Cuda, Device, ModelConfig, Precision};
use sgs_metamath::bench::{BenchOptions, bench as bench_checker};
use sgs_metamath::unify::RuleBook;
use sgs_run::device::DeviceKind;
use sgs_run::machine;
use std::path::Path;
use std::sync::Arc;

/// Runs a benchmark and prints what it measured.
pub fn run(command: &BenchCommand) -> Result<Outcome> {
    match command {
        BenchCommand::Verify(args) => checking(args)?,
        BenchCommand::Sample(args) => sampling(args)?,
        BenchCommand::Train(args) => training(args)?,
        BenchCommand::Dispatch(args) => bench_dispatch::run(args)?,
    }
    Ok(Outcome::Done)
}

fn checking(args: &BenchVerifyArgs) -> Result<()> {
    positive(&[("--steps", args.steps), ("--repeats", args.repeats)])?;
    let BenchSystem::Metamath = args.system;
    let theory = theory(args.database.as_deref())?;
    let book = RuleBook::new(&theory);
    let threads = if args.threads == 0 { machine::processor().threads } else { args.threads };
    let options = BenchOptions { steps: args.steps, repeats: args.repeats, threads };
    let report = bench_checker(&theory, &book, options)?;
    if args.json { output::json(&report) } else { output::line(report) }
}

fn sampling(args: &BenchSampleArgs) -> Result<()> {
    positive(&[
        ("--batch", args.batch),
        ("--prompts", args.prompts),
        ("--prompt-tokens", args.prompt_tokens),
        ("--new-tokens", args.new_tokens),
        ("--runs", args.runs),
    ])?;
    let config = shape(&args.shape)?;
    fits(&config, args.prompt_tokens + args.new_tokens, "--prompt-tokens and --new-tokens together")?;
    let mut bench = SampleBench {
        config,
        batch: args.batch,
        prompts: args.prompts.min(args.batch),
        prompt_tokens: args.prompt_tokens,
        new_tokens: args.new_tokens,
        runs: args.runs,
        memory_budget_bytes: 4 << 30,
        prefill_tokens: 512,
    };
    let (head, speed) = match args.device {
        DeviceKind::Cpu => {
            let device = Arc::new(Cpu::new(args.threads)?);
            let head = head(&args.shape, &bench.config, &device.name());
            (head, sample(&random_model(device, &bench.config)?, &bench, |cpu| Ok(gemm_peak(cpu)))?)
        }
        gpu => {
            let device = Arc::new(Cuda::new(0, precision(gpu))?);
            let head = head(&args.shape, &bench.config, &device.name());
            let model = device.random_model(&bench.config, bench.config.max_positions)?;
            let (free, _) = device.gpu().free_memory()?;
            // The rest is for what the driver and cuBLAS take.
            bench.memory_budget_bytes = free as u64 / 10 * 9;
            bench.prefill_tokens = 8192;
            (head, sample(&model, &bench, Cuda::gemm_peak)?)
        }
    };
    output::line(format!(
        "{head}\n{} requests of {} prompts with {} tokens, {} new tokens each\n{speed}",
        bench.batch, bench.prompts, bench.prompt_tokens, bench.new_tokens
    ))
}

fn training(args: &BenchTrainArgs) -> Result<()> {
    positive(&[
        ("--sequences", args.sequences),
        ("--length", args.length),
        ("--micro-batch-tokens", args.micro_batch_tokens),
        ("--steps", args.steps),
    ])?;
    let config = shape(&args.shape)?;
    fits(&config, args.length, "--length")?;
    let bench = TrainBench {
        config,
        sequences: args.sequences,
        length: args.length,
        micro_batch: args.micro_batch_tokens,
        steps: args.steps,
    };
    let (head, speed) = match args.device {
        DeviceKind::Cpu => {
            let device = Arc::new(Cpu::new(args.threads)?);
            let head = head(&args.shape, &bench.config, &device.name());
            (head, bench::train(random_model(device, &bench.config)?, &bench, |cpu| Ok(gemm_peak(cpu)))?)
        }
        gpu => {
            let device = Arc::new(Cuda::new(0, precision(gpu))?);
            let head = head(&args.shape, &bench.config, &device.name());
            let model = device.random_model(&bench.config, bench.length)?;
            (head, bench::train(model, &bench, Cuda::gemm_peak)?)
        }
    };
    output::line(format!("{head}\n{} sequences of {} tokens a step\n{speed}", bench.sequences, bench.length))
}

/// Element type of a GPU device.
fn precision(kind: DeviceKind) -> Precision {
    if kind == DeviceKind::CudaF32 { Precision::F32 } else { Precision::Bf16 }
}

/// The shape that a name or a model folder stands for.
fn shape(name: &str) -> Result<ModelConfig> {
    match name {
        "small" => Ok(small_shape()),
        _ if Path::new(name).join("config.json").is_file() => Ok(ModelConfig::load(Path::new(name))?),
        _ => Err(Usage(format!("--model is `{name}`: give `small`, or a folder with a config.json")).into()),
    }
}

fn head(name: &str, config: &ModelConfig, device: &str) -> String {
    format!(
        "shape {name}: {} layers, width {}, {} heads, vocabulary {}, {:.1} M parameters; {device}",
        config.layers,
        config.hidden_size,
        config.heads,
        config.vocab_size,
        config.parameters() as f64 / 1e6
    )
}

fn positive(options: &[(&str, usize)]) -> Result<()> {
    match options.iter().find(|(_, n)| *n == 0) {
        Some((name, _)) => Err(Usage(format!("{name} is 0: give at least 1")).into()),
        None => Ok(()),
    }
}

fn fits(config: &ModelConfig, tokens: usize, what: &str) -> Result<()> {
    if tokens > config.max_positions {
        let limit = config.max_positions;
        return Err(
            Usage(format!("{what} take {tokens} tokens, and the shape's context holds {limit}")).into()
        );
    }
    Ok(())
}
