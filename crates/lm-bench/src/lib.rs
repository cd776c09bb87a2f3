//! Measures and checks the language-model engine: speed of training and sampling, and agreement with recorded numbers.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod check;
mod gemm;
mod sample;
mod train;

pub use gemm::gemm_peak;
pub use sample::{SampleBench, SampleSpeed, sample};
pub use train::{TrainBench, TrainSpeed, train, train_flops_per_token};
