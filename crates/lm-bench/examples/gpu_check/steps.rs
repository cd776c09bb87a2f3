//! Speed of whole optimizer steps, and their time by kernel.

use std::sync::Arc;

use sgs_base::random::SeededRng;
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::Mode;
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::{ModelConfig, Result};
use sgs_lm_bench::{TrainBench, train};
use sgs_lm_cuda::{Cuda, Precision, ProfileLine};

use super::{PEAK, shape_7b, verdict};

/// Measures optimizer steps: 16 layers of width 2,048, 8 sequences of 1,024 tokens.
pub fn step() -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = ModelConfig {
        vocab_size: 32_000,
        hidden_size: 2048,
        intermediate_size: 5504,
        layers: 16,
        heads: 16,
        kv_heads: 16,
        head_dim: 128,
        ..small_shape()
    };
    let bench = TrainBench { config, sequences: 8, length: 1024, micro_batch: 8192, steps: 8 };
    let model = device.random_model(&bench.config, 2048)?;
    let speed = train(model, &bench, |_| Ok(790_000.0))?;
    println!("{speed}");
    let falls = speed.last_loss < speed.first_loss;
    Ok(verdict("tokens/s short of 88,000", (88_000.0 - speed.median_tokens_per_second).max(0.0), 0.0)
        && falls)
}

/// Profiles one step of the 7B shape with this number of layers and 4 micro-batches of 4 x 2,048 tokens: GPU
/// time by kernel and product.
pub fn profile(layers: usize) -> Result<bool> {
    let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
    let config = shape_7b(layers, 102_400);
    let tokens = 4 * 2048;
    let model = device.random_model(&config, 2048)?;
    let mut policy = Policy::new(model)?;
    let mode = Mode::recompute_as_needed(&*device, &config, tokens, (0, 1));
    let mut trainer = Trainer::new(Arc::clone(&device), &config, tokens, mode)?;
    let mut rng = SeededRng::stream(1, 0);
    let examples: Vec<TrainExample> = (0..16)
        .map(|_| TrainExample::plain((0..=2048).map(|_| rng.index(config.vocab_size) as u32).collect()))
        .collect();
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 1e-5, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: batch.len(),
        shuffle_seed: None,
    };
    for _ in 0..2 {
        println!("a step: {:.1} ms", 1e3 * trainer.step(&mut policy, &batch, &options)?.seconds);
    }
    let mut whole = 0.0;
    let lines = device.gpu().profile(|| {
        whole = trainer.step(&mut policy, &batch, &options)?.seconds;
        Ok(())
    })?;
    println!(
        "profiled: {:.1} ms, {mode:?}, peak {:.1} GiB",
        1e3 * whole,
        device.gpu().peak_bytes() as f64 / 2f64.powi(30)
    );
    print_profile(&lines, whole);
    let seen = lines.iter().map(|line| line.seconds).sum::<f64>();
    Ok(verdict("share of the step that no line holds", (1.0 - seen / whole).abs(), 0.05))
}

/// Prints each line of a profile with its share of `whole` seconds.
pub fn print_profile(lines: &[ProfileLine], whole: f64) {
    for line in lines {
        print!(
            "{:<36} {:>6} {:>9.2} ms {:>6.2}%",
            line.name,
            line.count,
            1e3 * line.seconds,
            100.0 * line.seconds / whole
        );
        match line.flops {
            0.0 => println!(),
            flops => {
                println!(" {:>6.0} TFLOP/s {:.3}", flops / line.seconds / 1e12, flops / line.seconds / PEAK)
            }
        }
    }
}
