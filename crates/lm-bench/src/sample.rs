//! Benchmark of sampling: speed, and arithmetic throughput relative to the best matrix product.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use sgs_base::host::peak_memory;
use sgs_lm::config::ModelConfig;
use sgs_lm::error::LmError;
use sgs_lm::model::Model;
use sgs_lm_sampler::{
    Decode, Request, RequestId, Sampler, SamplerError, SamplerMemory, SamplerOptions, SamplingParams,
};

/// Options of the benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleBench {
    /// Configuration of the model; its weights are random.
    pub config: ModelConfig,
    /// Number of requests decoded at the same time.
    pub batch: usize,
    /// Number of different prompts, which are divided evenly among the requests.
    pub prompts: usize,
    /// Tokens per prompt.
    pub prompt_tokens: usize,
    /// New tokens per request.
    pub new_tokens: usize,
    /// Number of measured runs, after one for warm-up.
    pub runs: usize,
    /// Memory budget in bytes of the cache and the working buffers; at least 4 GiB.
    pub memory_budget_bytes: u64,
    /// Prompt tokens per step.
    pub prefill_tokens: usize,
}

/// Results of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleSpeed {
    /// New tokens per second of the fastest run, including the time for prompts.
    pub best_tokens_per_second: f64,
    /// New tokens per second of the median run.
    pub median_tokens_per_second: f64,
    /// Arithmetic throughput of the fastest run, in GFLOP/s.
    pub gflops: f64,
    /// The device's best matrix product, in GFLOP/s.
    pub gemm_peak_gflops: f64,
    /// The sampler's memory.
    pub memory: SamplerMemory,
    /// Peak memory of this process in bytes, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
}

impl fmt::Display for SampleSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "sample {:.0} tokens/s (median run {:.0}), {:.0} GFLOP/s, {:.0}% of the GEMM peak of {:.0} GFLOP/s",
            self.best_tokens_per_second,
            self.median_tokens_per_second,
            self.gflops,
            100.0 * self.gflops / self.gemm_peak_gflops,
            self.gemm_peak_gflops
        )?;
        write!(
            f,
            "buffers {:.0} MiB, cache {:.0} MiB",
            mib(self.memory.work_bytes),
            mib(self.memory.cache_bytes)
        )?;
        match self.peak_memory_bytes {
            Some(bytes) => write!(f, ", peak memory of the process {:.0} MiB", mib(bytes)),
            None => Ok(()),
        }
    }
}

/// Returns the number of operations for one token at a position: 2 per weight of a product (those of the head only if a
/// token is sampled), and attention over the previous positions.
pub fn sample_flops(config: &ModelConfig, position: usize, draws: bool) -> f64 {
    let (d, q) = (config.hidden_size, config.q_dim());
    let layer = config.qkv_dim() * d + q * d + 3 * config.intermediate_size * d;
    let head = if draws { config.vocab_size * d } else { 0 };
    2.0 * (config.layers * (layer + 2 * q * (position + 1)) + head) as f64
}

/// Samples at temperature 1 and measures every run; `peak` measures the device's best matrix product, in GFLOP/s.
pub fn sample<D: Decode>(
    model: &Model<D>,
    bench: &SampleBench,
    peak: impl FnOnce(&D) -> Result<f64, LmError>,
) -> Result<SampleSpeed, SamplerError> {
    let config = &bench.config;
    let options = SamplerOptions {
        memory_budget_bytes: bench.memory_budget_bytes.max(4 << 30),
        max_batch: bench.batch,
        prefill_tokens: Some(bench.prefill_tokens),
        ..SamplerOptions::default()
    };
    let mut sampler = Sampler::new(model, &options)?;
    let prompts: Vec<Arc<[u32]>> = (0..bench.prompts.max(1))
        .map(|p| (0..bench.prompt_tokens).map(|i| ((i * 31 + p * 17) % config.vocab_size) as u32).collect())
        .collect();
    let mut seconds = Vec::new();
    for run in 0..=bench.runs.max(1) {
        let requests = (0..bench.batch).map(|i| Request {
            id: RequestId(i as u64),
            prompt: Arc::clone(&prompts[i * prompts.len() / bench.batch.max(1)]),
            seed: (run * bench.batch + i) as u64,
            max_new_tokens: bench.new_tokens,
            params: SamplingParams::default(),
            stop: Arc::from([]),
        });
        let started = Instant::now();
        let mut refusal = None;
        sampler.run(model, requests, |_, done| {
            if done.tokens.len() < bench.new_tokens {
                refusal = Some(done.finish);
            }
        })?;
        if let Some(finish) = refusal {
            return Err(SamplerError::Options(format!("a request of the benchmark ended early: {finish:?}")));
        }
        seconds.push(started.elapsed().as_secs_f64());
    }
    let mut measured = seconds.split_off(1);
    measured.sort_by(f64::total_cmp);
    let prompt_flops: f64 =
        (0..bench.prompt_tokens.saturating_sub(1)).map(|t| sample_flops(config, t, false)).sum();
    let new_flops: f64 =
        (0..bench.new_tokens).map(|t| sample_flops(config, bench.prompt_tokens - 1 + t, true)).sum();
    let flops = prompts.len() as f64 * prompt_flops + bench.batch as f64 * new_flops;
    let tokens = (bench.batch * bench.new_tokens) as f64;
    Ok(SampleSpeed {
        best_tokens_per_second: tokens / measured[0],
        median_tokens_per_second: tokens / measured[measured.len() / 2],
        gflops: flops / measured[0] / 1e9,
        gemm_peak_gflops: peak(&model.device)?,
        memory: sampler.memory(),
        peak_memory_bytes: peak_memory(),
    })
}
