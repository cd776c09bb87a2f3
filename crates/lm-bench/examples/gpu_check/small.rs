//! Measures a model of 13 M parameters with the work of one round of Metamath: rollouts by batch size, and updates.
//! Most of its time is spent on starting kernels and waiting for them, so CPU time is reported next to wall-clock time.

use std::sync::Arc;
use std::time::Instant;

use super::requests::random_request;
use sgs_base::random::SeededRng;
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::{Device, LmError, ModelConfig, Result};
use sgs_lm_cuda::ProfileLine;
use sgs_lm_cuda::{Cuda, Precision};
use sgs_lm_sampler::{Request, RequestId, Sampler, SamplerError, SamplerOptions};

/// Returns the shape of Metamath's shipped model, made wider and deeper as in docs/performance.md.
fn shape() -> ModelConfig {
    ModelConfig {
        vocab_size: 9362,
        hidden_size: 320,
        intermediate_size: 896,
        layers: 8,
        heads: 10,
        kv_heads: 10,
        head_dim: 32,
        max_positions: 512,
        tied_head: true,
        ..small_shape()
    }
}

/// Returns the CPU time of this thread, in seconds.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.map_or(f64::NAN, |n| n / 1e9)
}

/// Creates `each` requests for each of `prompts` prompts of 30 to 90 tokens. The numbers of new tokens are log-normal
/// with this median, at most `most`.
fn requests(round: u64, prompts: usize, each: usize, median: f64, most: usize) -> Vec<Request> {
    let mut rng = SeededRng::stream(round, 0);
    let mut requests = Vec::new();
    for prompt in 0..prompts {
        let first = random_request(each * prompt, 30 + rng.index(61), most, shape().vocab_size, &mut rng);
        for i in 0..each {
            let new = median * f64::from(0.8 * rng.normal()).exp();
            let id = RequestId((each * prompt + i) as u64);
            requests.push(Request {
                id,
                seed: id.0 + (round << 32),
                max_new_tokens: (new.round() as usize).clamp(1, most),
                ..first.clone()
            });
        }
    }
    requests
}

/// How the samplers of a round run their steps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turns {
    /// One after the other.
    InTurn,
    /// Concurrently, as in the generation worker.
    SideBySide,
}

/// Measures everything that a round samples: 1,000 conjectures, 800 reviews and 14,000 rollouts; the rollouts in two
/// samplers if the device prefers that.
pub fn sampling() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let model = device.random_model(&shape(), 512)?;
    for (turns, batch) in
        [512, 1024, 2048, 4096].into_iter().flat_map(|b| [(Turns::InTurn, b), (Turns::SideBySide, b)])
    {
        let lanes = if turns == Turns::InTurn { 1 } else { device.footprint().samplers(&shape()) };
        let options = |share: usize| SamplerOptions {
            memory_budget_bytes: (4 << 30) / share as u64,
            max_batch: batch / share,
            ..SamplerOptions::default()
        };
        let shares = [1, 1].into_iter().chain(std::iter::repeat_n(lanes, lanes));
        let mut samplers = shares
            .map(|share| Sampler::new(&model, &options(share)))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(fail)?;
        for round in 0..4 {
            let rollouts = requests(round, 1750, 8, 8.0, 48);
            let half = rollouts.len() / lanes;
            let parts = [requests(round, 1000, 1, 16.0, 120), requests(round, 800, 1, 4.0, 6)];
            let parts = parts.iter().map(Vec::as_slice).chain(rollouts.chunks(half));
            for (sampler, part) in samplers.iter_mut().zip(parts) {
                part.iter().try_for_each(|request| sampler.submit(request.clone())).map_err(fail)?;
            }
            let (started, busy) = (Instant::now(), processor_seconds());
            drive(&mut samplers, &model, turns).map_err(fail)?;
            println!(
                "sampling of a round, {turns:?}, batch {batch}: {:.1} ms, on the processor {:.1} ms",
                1e3 * started.elapsed().as_secs_f64(),
                1e3 * (processor_seconds() - busy)
            );
        }
    }
    Ok(true)
}

/// Runs steps until every sampler is idle.
fn drive(
    samplers: &mut [Sampler<Cuda>],
    model: &Model<Cuda>,
    turns: Turns,
) -> std::result::Result<(), SamplerError> {
    let mut finished = Vec::new();
    while samplers.iter().any(|s| !s.is_idle()) {
        finished.clear();
        let mut took = false;
        for sampler in samplers.iter_mut().filter(|s| !s.is_idle()) {
            sampler.start(model)?;
            if turns == Turns::InTurn || sampler.is_ready()? {
                sampler.finish(&mut finished)?;
                took = true;
            }
        }
        if let (false, Some(sampler)) = (took, samplers.iter_mut().find(|s| !s.is_idle())) {
            sampler.finish(&mut finished)?;
        }
    }
    Ok(())
}

fn fail(error: SamplerError) -> LmError {
    LmError::Input(error.to_string())
}

/// Measures the rollouts of a round at several batch sizes, and the time of a step by kernel.
pub fn rollouts() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let model = device.random_model(&shape(), 512)?;
    for (batch, prefill_tokens) in
        [(256, 512), (512, 512), (1024, 512), (1024, 4096), (2048, 4096), (2048, 8192), (4096, 8192)]
    {
        let options = SamplerOptions {
            memory_budget_bytes: 8 << 30,
            max_batch: batch,
            prefill_tokens: Some(prefill_tokens),
            ..SamplerOptions::default()
        };
        let mut sampler = Sampler::new(&model, &options).map_err(fail)?;
        for round in 0..4 {
            let requests = requests(round, 1000, 8, 10.0, 48);
            let (before, started, busy) = (*sampler.counters(), Instant::now(), processor_seconds());
            sampler.run(&model, requests, |_, _| ()).map_err(fail)?;
            let (seconds, busy) = (started.elapsed().as_secs_f64(), processor_seconds() - busy);
            let after = *sampler.counters();
            let steps = after.steps - before.steps;
            println!(
                "rollouts, batch {batch}, prompts {prefill_tokens}: {:.1} ms, on the processor {:.1} ms, {steps} steps of \
                 {:.3} ms, {} new tokens and {} of prompts",
                1e3 * seconds,
                1e3 * busy,
                1e3 * seconds / steps as f64,
                after.decoded_tokens - before.decoded_tokens,
                after.prefilled_tokens - before.prefilled_tokens
            );
        }
        let (before, requests) = (sampler.counters().steps, requests(9, 1000, 8, 10.0, 48));
        let run = || sampler.run(&model, requests, |_, _| ()).map_err(fail).map(drop);
        let lines = device.gpu().profile(run)?;
        by_work(&lines, sampler.counters().steps - before);
    }
    Ok(true)
}

/// Creates sequences as in an update: prompts of 30 to 90 tokens, completions of 4 to 48; one in `sparse` has a
/// non-zero weight.
fn examples(count: usize, sparse: usize) -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(3, 0);
    (0..count)
        .map(|i| {
            let (prompt_len, completion) = (30 + rng.index(61), 4 + rng.index(45));
            TrainExample {
                tokens: (0..prompt_len + completion).map(|_| rng.index(shape().vocab_size) as u32).collect(),
                prompt_len,
                weight: match i {
                    _ if i % sparse > 0 => 0.0,
                    _ if i % 2 == 0 => 1.0,
                    _ => -0.5,
                },
                sampled_log_probs: vec![-9.0; completion],
                ..TrainExample::default()
            }
        })
        .collect()
}

/// Measures updates of 40 steps with 32 sequences, and the time by kernel of a step whose sequences all have a
/// weight.
pub fn updates() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = shape();
    let mut policy = Policy::new(device.random_model(&config, 512)?)?;
    let mut trainer = Trainer::new(Arc::clone(&device), &config, 4096, Mode::Train)?;
    let options = TrainOptions {
        loss: LossConfig::new(Objective::Reinforce, Normaliser::Sequence),
        adam: AdamConfig { learning_rate: 1e-5, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: 32,
        shuffle_seed: None,
    };
    for (sparse, pass) in [1, 9].into_iter().flat_map(|sparse| (0..4).map(move |pass| (sparse, pass))) {
        let examples = examples(40 * 32, sparse);
        let busy = processor_seconds();
        let report = trainer.train(&mut policy, &examples, &options, |_| ())?;
        let steps = report.steps as f64;
        println!(
            "update, one of {sparse} with a weight, pass {pass}: {} steps of {:.3} ms, on the processor {:.3} ms, {} tokens, loss {:.6}, gradient {:.6}",
            report.steps,
            1e3 * report.seconds / steps,
            1e3 * (processor_seconds() - busy) / steps,
            report.tokens,
            report.stats.loss,
            report.mean_gradient_norm
        );
    }
    let examples = examples(256, 1);
    let lines = device.gpu().profile(|| trainer.train(&mut policy, &examples, &options, |_| ()).map(drop))?;
    by_work(&lines, 8);
    Ok(true)
}

/// Prints the time per step of each kind of work, measured over `steps` steps.
fn by_work(lines: &[ProfileLine], steps: u64) {
    for line in lines {
        println!(
            "{:<36} {:>6.1} a step {:>9.4} ms a step",
            line.name,
            line.count as f64 / steps as f64,
            1e3 * line.seconds / steps as f64
        );
    }
}
