//! How fast this machine trains a model of a given shape, how much of its arithmetic that uses, and random work to
//! measure samplers by.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::config::{Family, ModelConfig, RopeScaling};
use crate::cpu::Cpu;
use crate::cpu::gemm::{Mat, MatMut, Threads, Write, matmul};
use crate::device::Device;
use crate::error::Result;
use crate::loss::{Example, LossConfig};
use crate::model::{Mode, Model};
use crate::optim::{AdamConfig, Schedule};
use crate::rng::Rng;
use crate::sampler::{Choice, Request, RequestId};
use crate::trainer::{Policy, TrainOptions, Trainer};
use crate::weights::HostWeights;

/// What is trained, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainBench {
    /// Shape of the model; weights are random.
    pub config: ModelConfig,
    /// Sequences per optimiser step.
    pub sequences: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Tokens per micro-batch.
    pub micro_batch: usize,
    /// Steps measured, after two that are not.
    pub steps: usize,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainSpeed {
    /// Tokens per second of the fastest step, Adam included.
    pub best_tokens_per_second: f64,
    /// Tokens per second of the median step.
    pub median_tokens_per_second: f64,
    /// Arithmetic of the median step, in 10^9 operations per second.
    pub gflops: f64,
    /// The machine's best matrix product, in 10^9 operations per second.
    pub gemm_peak_gflops: f64,
    /// Largest memory of this process so far, in bytes, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Loss of the first and of the last step.
    pub first_loss: f64,
    /// See `first_loss`.
    pub last_loss: f64,
}

impl fmt::Display for TrainSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "train {:.0} tokens/s (best step {:.0}), {:.0} GFLOP/s, {:.0} % of the GEMM peak of {:.0} GFLOP/s",
            self.median_tokens_per_second,
            self.best_tokens_per_second,
            self.gflops,
            100.0 * self.gflops / self.gemm_peak_gflops,
            self.gemm_peak_gflops
        )?;
        if let Some(bytes) = self.peak_memory_bytes {
            writeln!(f, "peak memory {:.0} MiB", bytes as f64 / f64::from(1 << 20))?;
        }
        write!(f, "loss {:.4} -> {:.4}", self.first_loss, self.last_loss)
    }
}

/// The shape that this engine is compared with others in: 4 layers, width 256, 4 heads, feed-forward 1,024,
/// vocabulary 1,024, untied.
pub fn small_shape() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 1024,
        hidden_size: 256,
        intermediate_size: 1024,
        layers: 4,
        heads: 4,
        kv_heads: 4,
        head_dim: 64,
        max_positions: 2048,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        tied_head: false,
        qkv_bias: false,
        bos_token: None,
        eos_tokens: Vec::new(),
        pad_token: None,
    }
}

/// Operations per token of forward and backward: 6 per weight of a product, and attention over half of the
/// context on average.
pub fn train_flops_per_token(config: &ModelConfig, length: usize) -> f64 {
    let table = config.vocab_size * config.hidden_size;
    let tables = if config.tied_head { 1 } else { 2 };
    let products = config.parameters() - tables * table + table;
    let attention = config.layers * config.q_dim() * length;
    6.0 * (products + attention) as f64
}

/// A model of a shape with random weights made on the host.
///
/// # Errors
/// The device has no room.
pub fn random_model<D: Device>(device: Arc<D>, config: &ModelConfig) -> Result<Model<D>> {
    Model::new(device, HostWeights::random(config, 0), config.max_positions)
}

/// Trains a model of the bench's shape on random tokens and measures every step; `peak` gives the device's
/// best matrix product, in 10^9 operations per second.
///
/// # Errors
/// The shape does not fit the device, or training fails.
pub fn train<D: Device>(
    model: Model<D>,
    bench: &TrainBench,
    peak: impl FnOnce(&D) -> Result<f64>,
) -> Result<TrainSpeed> {
    let config = &bench.config;
    let device = Arc::clone(&model.device);
    let mut policy = Policy::new(model)?;
    let tokens = bench.micro_batch.max(bench.length);
    let mut trainer = Trainer::new(Arc::clone(&device), config, tokens, Mode::Train)?;
    let mut rng = Rng::new(1, 0);
    let examples: Vec<Example> = (0..bench.sequences)
        .map(|_| Example::plain((0..=bench.length).map(|_| rng.below(config.vocab_size) as u32).collect()))
        .collect();
    let batch: Vec<&Example> = examples.iter().collect();
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 1e-3, ..AdamConfig::default() },
        schedule: Schedule::Constant,
        batch_size: bench.sequences,
        shuffle_seed: None,
    };
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..bench.steps.max(1) + 2 {
        let step = trainer.step(&mut policy, &batch, &options)?;
        seconds.push(step.seconds);
        losses.push(step.stats.loss);
    }
    let mut measured = seconds.split_off(2);
    measured.sort_by(f64::total_cmp);
    let tokens = (bench.sequences * bench.length) as f64;
    let median = measured[measured.len() / 2];
    Ok(TrainSpeed {
        best_tokens_per_second: tokens / measured[0],
        median_tokens_per_second: tokens / median,
        gflops: tokens * train_flops_per_token(config, bench.length) / median / 1e9,
        gemm_peak_gflops: peak(&device)?,
        peak_memory_bytes: peak_memory(),
        first_loss: losses.first().copied().unwrap_or(f64::NAN),
        last_loss: losses.last().copied().unwrap_or(f64::NAN),
    })
}

/// A request with a prompt of random tokens.
pub fn random_request(
    id: usize,
    prompt: usize,
    max_new_tokens: usize,
    vocabulary: usize,
    rng: &mut Rng,
) -> Request {
    Request {
        id: RequestId(id as u64),
        prompt: (0..prompt).map(|_| rng.below(vocabulary) as u32).collect(),
        seed: id as u64,
        max_new_tokens,
        choice: Choice::default(),
        stop: Arc::from([]),
    }
}

/// Requests as the roles make them: prompts of 16 to 256 tokens, equally probable; new tokens log-normal with median
/// 64 and deviation 1.1, cut at 768.
pub fn mixed_requests(count: usize, vocabulary: usize) -> Vec<Request> {
    let mut rng = Rng::new(7, 0);
    (0..count)
        .map(|id| {
            let prompt = 16 + rng.below(241);
            let new = 64.0 * f64::from(1.1 * rng.normal()).exp();
            random_request(id, prompt, (new.round() as usize).clamp(1, 768), vocabulary, &mut rng)
        })
        .collect()
}

/// The best of 16 products of 1,024 x 1,024 matrices, in 10^9 operations per second.
pub fn gemm_peak(device: &Cpu) -> f64 {
    const N: usize = 1024;
    let a: Vec<f32> = (0..N * N).map(|i| (i % 17) as f32 * 0.1).collect();
    let b: Vec<f32> = (0..N * N).map(|i| (i % 13) as f32 * 0.1).collect();
    let mut c = vec![0.0f32; N * N];
    let best = (0..16)
        .map(|_| {
            let started = Instant::now();
            device.run(|| {
                let (lhs, rhs) = (Mat::new(&a, N, N), Mat::new(&b, N, N));
                matmul(MatMut::new(&mut c, N, N), Write::Set, 1.0, lhs, rhs, Threads::All);
            });
            started.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    2.0 * (N as f64).powi(3) / best / 1e9
}

/// Largest resident memory of this process so far, where `/proc` tells.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
