//! Samples from the comparison shape: `sample_bench [BATCH] [PROMPTS] [PROMPT_TOKENS] [NEW_TOKENS]
//! [VOCABULARY] [RUNS] [THREADS]`.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use sgs_lm::Cpu;
use sgs_lm::bench::{gemm_peak, random_model, small_shape};
use sgs_lm::sampler::SamplerError;
use sgs_lm::sampler::bench::{SampleBench, sample};

fn main() -> Result<(), SamplerError> {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap_or(0)).collect();
    let arg = |i: usize, default: usize| args.get(i).copied().filter(|n| *n > 0).unwrap_or(default);
    let mut config = small_shape();
    config.vocab_size = arg(4, config.vocab_size);
    let bench = SampleBench {
        config,
        batch: arg(0, 64),
        prompts: arg(1, 1),
        prompt_tokens: arg(2, 1),
        new_tokens: arg(3, 96),
        runs: arg(5, 5),
        memory_budget_bytes: 4 << 30,
        prefill_tokens: 512,
    };
    let model = random_model(Arc::new(Cpu::new(arg(6, 0))?), &bench.config)?;
    println!("{}", sample(&model, &bench, |cpu| Ok(gemm_peak(cpu)))?);
    Ok(())
}
