//! Trains the comparison shape on random tokens: `train_bench [MICRO_BATCH_TOKENS] [STEPS] [THREADS]`.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use sgs_lm::bench::{TrainBench, gemm_peak, random_model, small_shape, train};
use sgs_lm::{Cpu, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).map(|a| a.parse().unwrap_or(0));
    let micro_batch = args.next().filter(|n| *n > 0).unwrap_or(4096);
    let steps = args.next().filter(|n| *n > 0).unwrap_or(10);
    let device = Arc::new(Cpu::new(args.next().unwrap_or(0))?);
    let bench = TrainBench { config: small_shape(), sequences: 32, length: 128, micro_batch, steps };
    println!("{}", train(random_model(device, &bench.config)?, &bench, |cpu| Ok(gemm_peak(cpu)))?);
    Ok(())
}
