//! The language model: Llama-family decoder, sampler, losses, trainer.
//!
//! A fixed graph with a hand-written forward and backward pass over buffers planned ahead; no autograd and
//! no tensor library. [`config`] reads shapes, [`layout`] places every tensor in one flat buffer,
//! [`weights`] reads and writes Hugging Face folders. [`device`] is the seam to the machine, [`cpu`] and
//! `cuda` the kernels behind it. [`model`] runs forward and backward, [`trainer`] takes optimiser steps on
//! what [`loss`] defines (of bfloat16 weights with their [`master`]s), [`ranks`] lets several processes share them, [`checkpoint`] keeps the result, [`sampler`] writes
//! completions, [`check`] compares all of it with recorded numbers.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod bench;
pub mod chat;
pub mod check;
pub mod checkpoint;
pub mod config;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
pub mod error;
pub mod layout;
pub mod loss;
pub mod master;
pub mod model;
pub mod optim;
pub mod pack;
pub mod ranks;
pub mod rng;
pub mod rope;
pub mod sampler;
pub mod tokenizer;
pub mod trainer;
pub mod weights;

pub use config::ModelConfig;
pub use cpu::Cpu;
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, Precision};
pub use device::Device;
pub use error::{LmError, Result};
