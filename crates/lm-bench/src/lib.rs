//! Measures the speed of training and sampling.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod gemm;
mod sample;
mod train;

pub use gemm::gemm_peak;
pub use sample::{SampleBench, SampleSpeed, sample};
pub use train::{TrainBench, TrainSpeed, train, train_flops_per_token};
