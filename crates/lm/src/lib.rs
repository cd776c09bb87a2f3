//! The language model: Llama-family decoder, tokenizer, losses, trainer, checkpoints.
//!
//! The computation is a fixed graph with a hand-written forward and backward pass, over buffers that are planned before
//! the run. Gradients are written by hand, without autograd or a tensor library.
//!
//! - [`config`], [`layout`] and [`weights`]: shapes, the flat buffer of parameters, Hugging Face model folders.
//! - [`tokenizer`] and [`chat`]: text to token ids, and chat templates.
//! - [`model`], [`loss`], [`optim`] and [`trainer`]: forward and backward passes, objectives, optimizer steps.
//! - [`checkpoint`] and [`master_weights`]: the files of a training run, and f32 master weights for bfloat16 parameters.
//! - [`ranks`] and [`shard`]: training by several processes.
//! - [`device`], [`decode`] and [`ranks::Collective`]: the traits that a back end implements. The back ends are the crates
//!   `sgs-lm-cpu` and `sgs-lm-cuda`; this crate depends on neither.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod chat;
pub mod checkpoint;
pub mod config;
pub mod decode;
pub mod device;
pub mod error;
pub mod footprint;
pub mod host_buffer;
mod json;
pub mod layout;
pub mod loss;
pub mod master_weights;
pub mod model;
pub mod optim;
pub mod pack;
pub mod ranks;
pub mod rope;
pub mod shard;
pub mod testing;
pub mod tokenizer;
mod tokenizer_json;
pub mod trainer;
pub mod weights;

pub use config::ModelConfig;
pub use device::Device;
pub use error::{LmError, Result};
