//! Client for OpenAI-compatible servers, such as vLLM, SGLang and llama.cpp's server.
//!
//! - [`Endpoint::connect`] checks once that the server offers the model, that its context is long enough, and whether it
//!   accepts and returns token ids and log-probs. [`Endpoint::sample`] then requests one completion; any number of threads
//!   may call it at the same time.
//! - If the model is being trained, [`Endpoint::refresh`] makes the server load new weights after each update, and
//!   [`Endpoint::score`] returns the log-probs of given tokens.
//! - A [`ChatClient`] sends messages instead of tokens.
//!
//! Invariants: every wait has a deadline; an API key is never printed; replies are untrusted input.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sgs_endpoint::{CompletionRequest, Endpoint, EndpointSettings, PromptMode, ServerKind};
//!
//! # fn main() -> Result<(), sgs_endpoint::EndpointError> {
//! let settings = EndpointSettings {
//!     url: "http://127.0.0.1:8000".into(),
//!     server: ServerKind::Any,
//!     model: None,
//!     key: None,
//!     trusted: None,
//!     prompt: PromptMode::Auto,
//!     tries: 8,
//!     timeout: Duration::from_secs(600),
//!     patience: Duration::from_secs(1800),
//!     connections: 64,
//! };
//! let request = CompletionRequest {
//!     tokens: vec![1, 2, 3],
//!     text: "abc".into(),
//!     seed: 0,
//!     max_tokens: 16,
//!     temperature: 1.0,
//!     stop_tokens: Vec::new(),
//!     stop_texts: Vec::new(),
//! };
//! let (endpoint, _first) = Endpoint::connect(settings, &request, 4096, 32_000)?;
//! let completion = endpoint.sample(&CompletionRequest { seed: 1, ..request }, || false)?;
//! println!("{}", completion.text);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backoff;
mod chat;
mod client;
mod error;
mod key;
mod refresh;
mod wire;

pub use chat::{ChatClient, ChatReply, ChatRequest};
pub use client::{Capabilities, Endpoint, EndpointSettings, PromptEncoding, PromptMode, ServerKind, base_of};
pub use error::EndpointError;
pub use key::ApiKey;
pub use wire::{CompletionRequest, RemoteCompletion, StopReason};
