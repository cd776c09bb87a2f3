//! Decoding speed of the 7B shape: a batch of equal lengths compared with the memory bandwidth, and prompts of
//! mixed lengths with continuous and static batching.

use std::sync::Arc;
use std::time::Instant;

use super::requests::{mixed_requests, random_request};
use sgs_base::random::SeededRng;
use sgs_lm::{LmError, ModelConfig, Result};
use sgs_lm_cuda::{Cuda, Precision};
use sgs_lm_sampler::{Request, SampledCompletion, Sampler, SamplerError, SamplerOptions};

use super::{shape_7b, steps, verdict};

const VOCABULARY: usize = 102_400;
/// Measured bandwidth of a large copy on an H200, in bytes per second.
const BANDWIDTH: f64 = 4.3e12;

fn fail(error: SamplerError) -> LmError {
    LmError::Input(error.to_string())
}

/// Returns the milliseconds of a step that reads the weights and a cache of this number of positions once.
fn floor(config: &ModelConfig, positions: usize) -> f64 {
    let weights = (config.parameters() - VOCABULARY * config.hidden_size) as f64;
    let cache = (2 * config.layers * config.kv_dim() * 2 * positions) as f64;
    1e3 * (2.0 * weights + cache) / BANDWIDTH
}

/// Decodes 128 new tokens for each of many different prompts, and profiles a few steps. `sizes` is
/// `BATCH[,LONG[,LAYERS]]`: `LONG` of the `BATCH` prompts have 8,000 tokens, the others 256.
pub fn decode(sizes: &str) -> Result<bool> {
    let numbers: std::result::Result<Vec<usize>, _> = sizes.split(',').map(str::parse).collect();
    let numbers = numbers.map_err(|_| LmError::Input(format!("{sizes:?} is not BATCH[,LONG[,LAYERS]]")))?;
    let number = |place: usize, default| numbers.get(place).copied().unwrap_or(default);
    let (batch, long, layers) = (number(0, 64), number(1, 0), number(2, 30));
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = shape_7b(layers, VOCABULARY);
    let model = device.random_model(&config, 8192)?;
    let options = SamplerOptions {
        memory_budget_bytes: 50 << 30,
        max_batch: batch,
        page_len: 16,
        prefill_tokens: Some(16_384),
    };
    let mut sampler = Sampler::new(&model, &options).map_err(fail)?;
    let mut good = true;
    for round in 0..2u64 {
        let mut rng = SeededRng::stream(round, 0);
        for id in 0..batch {
            let length = if id < long { 8000 } else { 256 };
            sampler.submit(random_request(id, length, 128, VOCABULARY, &mut rng)).map_err(fail)?;
        }
        let (mut finished, mut steps, mut prompts) = (Vec::new(), Vec::new(), 0.0);
        let started = Instant::now();
        while !sampler.is_idle() {
            let before = (Instant::now(), sampler.counters().prefilled_tokens);
            sampler.step(&model, &mut finished).map_err(fail)?;
            let seconds = before.0.elapsed().as_secs_f64();
            if sampler.counters().prefilled_tokens == before.1 {
                steps.push(seconds);
            } else {
                prompts += seconds;
            }
        }
        let whole = started.elapsed().as_secs_f64();
        steps.sort_by(f64::total_cmp);
        let positions = batch * (256 + 64) + long * (8000 - 256);
        let (median, floor) = (1e3 * steps[steps.len() / 2], floor(&config, positions));
        println!(
            "decode, batch {batch}, {long} of them long: {:.0} tokens/s in all, prompts {prompts:.2} s, {median:.2} ms a step over {} \
             steps, floor {floor:.2} ms, share {:.3}",
            (batch * 128) as f64 / whole,
            steps.len(),
            floor / median
        );
        good &= finished.len() == batch && finished.iter().all(|c| c.tokens.len() == 128);
    }
    let mut rng = SeededRng::stream(2, 0);
    for id in 0..batch {
        let length = if id < long { 8000 } else { 256 };
        sampler.submit(random_request(id, length, 128, VOCABULARY, &mut rng)).map_err(fail)?;
    }
    let mut run = |count| {
        let started = Instant::now();
        (0..count).try_for_each(|_| sampler.step(&model, &mut Vec::new()).map_err(fail))?;
        Ok(started.elapsed().as_secs_f64())
    };
    run(32)?;
    let mut whole = 0.0;
    let lines = device.gpu().profile(|| run(16).map(|seconds| whole = seconds))?;
    println!("16 steps, profiled: {:.2} ms each", 1e3 * whole / 16.0);
    steps::print_profile(&lines, whole);
    Ok(good)
}

/// Compares continuous and static batching with the same engine and 256 sequences at a time. Static batching
/// admits 256 requests in order, and the next ones only after all of them have ended; ended requests cost
/// nothing.
pub fn mixed() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = shape_7b(30, VOCABULARY);
    let model = device.random_model(&config, 8192)?;
    let batch = 256;
    let options = SamplerOptions {
        memory_budget_bytes: 80 << 30,
        max_batch: batch,
        page_len: 16,
        prefill_tokens: Some(2048),
    };
    let mut sampler = Sampler::new(&model, &options).map_err(fail)?;
    let warm: Vec<Request> = mixed_requests(2000, VOCABULARY).into_iter().take(batch).collect();
    sampler
        .run(&model, warm.into_iter().map(|r| Request { max_new_tokens: 4, ..r }), |_, _| ())
        .map_err(fail)?;
    let mut speeds = Vec::new();
    for (name, at_once) in [("continuous", 2000), ("static", batch)] {
        let before = *sampler.counters();
        let started = Instant::now();
        let mut tokens = 0;
        for group in mixed_requests(2000, VOCABULARY).chunks(at_once) {
            let count = |_: &mut Sampler<Cuda>, c: SampledCompletion| tokens += c.tokens.len();
            sampler.run(&model, group.iter().cloned(), count).map_err(fail)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        let after = *sampler.counters();
        let steps = after.steps - before.steps;
        println!(
            "mixed, {name}: {:.0} tokens/s, {tokens} new tokens and {} of prompts in {seconds:.1} s, {steps} steps, mean \
             batch {:.0}",
            tokens as f64 / seconds,
            after.prefilled_tokens - before.prefilled_tokens,
            (after.decoded_tokens - before.decoded_tokens) as f64 / steps as f64
        );
        speeds.push(tokens as f64 / seconds);
    }
    let ratio = speeds[0] / speeds[1];
    println!("mixed: continuous over static {ratio:.2}");
    Ok(verdict("continuous over static short of 1.5", (1.5 - ratio).max(0.0), 0.0))
}
