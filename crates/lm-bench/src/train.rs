//! Benchmark of training: speed, and arithmetic throughput relative to the best matrix product.

use std::fmt;
use std::sync::Arc;

use sgs_base::host::peak_memory;
use sgs_base::random::SeededRng;
use sgs_lm::config::ModelConfig;
use sgs_lm::device::Device;
use sgs_lm::error::Result;
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};

/// Options of the benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainBench {
    /// Configuration of the model; its weights are random.
    pub config: ModelConfig,
    /// Sequences per optimizer step.
    pub sequences: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Tokens per micro-batch.
    pub micro_batch: usize,
    /// Number of measured steps, after two for warm-up.
    pub steps: usize,
}

/// Results of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainSpeed {
    /// Tokens per second of the fastest step, including Adam.
    pub best_tokens_per_second: f64,
    /// Tokens per second of the median step.
    pub median_tokens_per_second: f64,
    /// Arithmetic throughput of the median step, in GFLOP/s.
    pub gflops: f64,
    /// The device's best matrix product, in GFLOP/s.
    pub gemm_peak_gflops: f64,
    /// Peak memory of this process in bytes, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// Loss of the first step.
    pub first_loss: f64,
    /// Loss of the last step.
    pub last_loss: f64,
}

impl fmt::Display for TrainSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "train {:.0} tokens/s (best step {:.0}), {:.0} GFLOP/s, {:.0}% of the GEMM peak of {:.0} GFLOP/s",
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

/// Returns the number of operations per token of the forward and backward pass: 6 per weight of a product, and
/// attention over half of the context on average.
pub fn train_flops_per_token(config: &ModelConfig, length: usize) -> f64 {
    let table = config.vocab_size * config.hidden_size;
    let tables = if config.tied_head { 1 } else { 2 };
    let products = config.parameters() - tables * table + table;
    let attention = config.layers * config.q_dim() * length;
    6.0 * (products + attention) as f64
}

/// Trains on random tokens and measures every step; `peak` measures the device's best matrix product, in GFLOP/s.
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
    let mut rng = SeededRng::stream(1, 0);
    let examples: Vec<TrainExample> = (0..bench.sequences)
        .map(|_| {
            TrainExample::plain((0..=bench.length).map(|_| rng.index(config.vocab_size) as u32).collect())
        })
        .collect();
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 1e-3, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
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
