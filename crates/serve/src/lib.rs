//! A model behind HTTP, for clients of OpenAI's completions: `POST /v1/completions` with streaming, log-probs and token
//! ids, and the calls by which SGLang and vLLM are given new weights between two of them.
//!
//! One thread owns the model and samples ([`Engine`]); another speaks HTTP ([`Service`]). A completion is sampled with one
//! set of weights from its first token to its last.

#![forbid(unsafe_code)]

mod engine;
mod protocol;
mod service;
mod transcript;

pub use engine::{Engine, EngineError, Served};
pub use service::{Service, ServiceConfig, ServiceError};
pub use sgs_endpoint::Key;
