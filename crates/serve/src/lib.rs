//! Serves a model over HTTP, for clients of OpenAI-compatible completions.
//!
//! Supports `POST /v1/completions` with streaming, log-probs and token ids, and the calls by which SGLang and vLLM load new
//! weights. One thread owns the model and samples ([`ModelEngine`]); another serves HTTP ([`ModelServer`]). Each completion
//! is sampled with one set of weights.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use sgs_lm::Device;
//! use sgs_lm::model::Model;
//! use sgs_lm::tokenizer::Tokenizer;
//! use sgs_lm::weights::HostWeights;
//! use sgs_lm_sampler::{Decode, Sampler, SamplerOptions};
//! use sgs_serve::{ModelEngine, ModelServer, ModelServerConfig};
//!
//! fn serve<D>(device: Arc<D>, folder: &Path) -> Result<ModelServer, Box<dyn std::error::Error>>
//! where
//!     D: Device + Decode + Send + Sync + 'static,
//!     Sampler<D>: Send,
//!     Model<D>: Send,
//! {
//!     let weights = HostWeights::load(folder)?;
//!     let (engine, _thread) =
//!         ModelEngine::start(device, weights, 4096, &SamplerOptions::default(), "model", "initial")?;
//!     let config = ModelServerConfig {
//!         listen: "127.0.0.1:8000".parse()?,
//!         key: None,
//!         name: "my-model".into(),
//!         updates: None,
//!     };
//!     Ok(ModelServer::start(engine, Tokenizer::load(folder)?, config)?)
//! }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod completions;
mod engine;
mod protocol;
mod queue;
mod service;
mod transcript;

pub use engine::{EngineError, ModelEngine, ServedWeights};
pub use service::{ModelServer, ModelServerConfig, ModelServerError};
pub use sgs_endpoint::ApiKey;
