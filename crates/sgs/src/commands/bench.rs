//! `sgs bench`: benchmarks.

use super::bench_verify::{self, VerifyBench};
use super::verify::theory;
use crate::args::{BenchCommand, BenchSampleArgs, BenchTrainArgs, BenchVerifyArgs};
use crate::exit::{Outcome, Usage, usage};
use crate::output::{self, counted};
use anyhow::Result;
use sgs_lm::testing::{random_model, small_shape};
use sgs_lm::{Device, ModelConfig};
use sgs_lm_bench::{SampleBench, TrainBench, gemm_peak, sample, train};
use sgs_lm_cpu::Cpu;
use sgs_lm_cuda::Cuda;
use sgs_run::config::machine;
use std::path::Path;
use std::sync::Arc;

pub fn run(command: &BenchCommand) -> Result<Outcome> {
    match command {
        BenchCommand::Verify(args) => checking(args)?,
        BenchCommand::Sample(args) => sampling(args)?,
        BenchCommand::Train(args) => training(args)?,
    }
    Ok(Outcome::Done)
}

fn checking(args: &BenchVerifyArgs) -> Result<()> {
    let theory = theory(args.database.as_deref())?;
    let threads = if args.threads == 0 { machine::processor().threads } else { args.threads };
    let report =
        bench_verify::bench(&theory, &VerifyBench { steps: args.steps, repeats: args.repeats, threads })?;
    if args.json { output::json(&report) } else { output::prose(report) }
}

fn sampling(args: &BenchSampleArgs) -> Result<()> {
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
        kind if kind.is_cpu() => {
            let device = Arc::new(Cpu::with_precision(args.threads, kind.precision())?);
            let head = head(&args.shape, &bench.config, &device.name());
            (head, sample(&random_model(device, &bench.config)?, &bench, |cpu| Ok(gemm_peak(cpu)))?)
        }
        kind => {
            let device = Arc::new(Cuda::new(0, kind.precision()).map_err(usage)?);
            let head = head(&args.shape, &bench.config, &device.name());
            let model = device.random_model(&bench.config, bench.config.max_positions)?;
            let (free, _) = device.gpu().free_memory()?;
            // Leave the rest for the driver and cuBLAS.
            bench.memory_budget_bytes = free as u64 / 10 * 9;
            bench.prefill_tokens = 8192;
            (head, sample(&model, &bench, Cuda::gemm_peak)?)
        }
    };
    output::prose(format!(
        "{head}\n{} for {} of {}, {} each\n{speed}",
        counted(bench.batch, "request"),
        counted(bench.prompts, "prompt"),
        counted(bench.prompt_tokens, "token"),
        counted(bench.new_tokens, "new token")
    ))
}

fn training(args: &BenchTrainArgs) -> Result<()> {
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
        kind if kind.is_cpu() => {
            let device = Arc::new(Cpu::with_precision(args.threads, kind.precision())?);
            let head = head(&args.shape, &bench.config, &device.name());
            (head, train(random_model(device, &bench.config)?, &bench, |cpu| Ok(gemm_peak(cpu)))?)
        }
        kind => {
            let device = Arc::new(Cuda::new(0, kind.precision()).map_err(usage)?);
            let head = head(&args.shape, &bench.config, &device.name());
            let model = device.random_model(&bench.config, bench.length)?;
            (head, train(model, &bench, Cuda::gemm_peak)?)
        }
    };
    output::prose(format!("{head}\n{} sequences of {} tokens a step\n{speed}", bench.sequences, bench.length))
}

/// Returns the shape of a name or a model folder.
fn shape(name: &str) -> Result<ModelConfig> {
    match name {
        "small" => Ok(small_shape()),
        _ if Path::new(name).join("config.json").is_file() => Ok(ModelConfig::load(Path::new(name))?),
        _ => {
            Err(Usage(format!("--model is `{name}`: expected `small` or a folder with a config.json")).into())
        }
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

fn fits(config: &ModelConfig, tokens: usize, what: &str) -> Result<()> {
    if tokens > config.max_positions {
        let limit = config.max_positions;
        return Err(
            Usage(format!("{what}: {tokens} tokens do not fit into the context window of {limit}")).into()
        );
    }
    Ok(())
}
