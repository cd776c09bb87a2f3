//! Completions sampled by another server: anything that speaks the OpenAI completions protocol over HTTP, as vLLM,
//! SGLang and llama.cpp's server do.
//!
//! An [`Endpoint`] is found out about once ([`Endpoint::connect`]): does it serve the model, is its context long
//! enough, does it take token ids, does it tell token ids and log-probs. Then [`Endpoint::sample`] asks for one
//! completion; any number of threads may ask at once. A server that samples for a model that is trained is given its
//! weights after each update ([`Endpoint::refresh`]), and asked for log-probs of known tokens ([`Endpoint::score`]). A
//! [`Chat`] answers messages instead of going on with tokens.
//!
//! Invariants: every wait has a bound; a key is never printed; what the server says is untrusted input.
#![forbid(unsafe_code)]

mod chat;
mod client;
mod error;
mod key;
mod patience;
mod refresh;
mod wire;

pub use chat::{Chat, Question, Reply};
pub use client::{Abilities, Endpoint, Engine, Prompt, PromptForm, Settings};
pub use error::EndpointError;
pub use key::Key;
pub use wire::{Ask, End, Sample};
