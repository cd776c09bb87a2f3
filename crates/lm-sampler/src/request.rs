//! Requests, completions and errors of the sampler.

use std::sync::Arc;

use sgs_lm::decode::{RequestId, SamplingParams};
use sgs_lm::error::LmError;

/// A completion to be sampled. Requests with equal prompts share the computation and memory of the prompt.
#[derive(Debug, Clone)]
pub struct Request {
    /// Identifies the request in its completion.
    pub id: RequestId,
    /// Token ids, at least one.
    pub prompt: Arc<[u32]>,
    /// Seed of the samples. The same weights, prompt and seed give the same completion on one machine,
    /// independent of other requests.
    pub seed: u64,
    /// Maximum length of the completion in tokens, including the stop token; at least 1.
    pub max_new_tokens: usize,
    /// How each token is sampled.
    pub params: SamplingParams,
    /// Tokens that end the completion.
    pub stop: Arc<[u32]>,
}

/// Why a completion ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Finish {
    /// A stop token was sampled; it is the last of the tokens.
    Stop,
    /// The completion reached its maximum length.
    Length,
    /// The caller cancelled the request; the completion has the tokens sampled so far.
    Cancelled,
    /// The request was never started.
    Refused(RequestRefusal),
}

/// Why a request was not started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum RequestRefusal {
    #[error("the prompt is empty; give at least one token (the model's beginning-of-sequence token)")]
    EmptyPrompt,
    #[error("max_new_tokens is 0")]
    NoNewTokens,
    #[error("prompt token {position} has id {token}, but the model's vocabulary has {vocabulary} tokens")]
    UnknownToken { position: usize, token: u32, vocabulary: usize },
    #[error("a prompt of {prompt} tokens and up to {max_new} new ones exceed the context of {limit} tokens")]
    ExceedsContext { prompt: usize, max_new: usize, limit: usize },
    #[error(
        "a prompt of {prompt} tokens and up to {max_new} new ones exceed the {limit} tokens that the sampler's memory budget holds"
    )]
    ExceedsBudget { prompt: usize, max_new: usize, limit: usize },
    /// A sampling parameter is out of range.
    #[error("{name} is {value}; expected {expected}")]
    Parameter { name: &'static str, value: f32, expected: &'static str },
}

/// The result of a request: the sampled tokens and their statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledCompletion {
    /// The request's id.
    pub id: RequestId,
    /// New tokens, including the stop token.
    pub tokens: Vec<u32>,
    /// Natural logarithm of each token's probability under the model (temperature 1, no truncation), given the
    /// prompt and the previous tokens.
    pub log_probs: Vec<f32>,
    /// Entropy, in nats, of the distribution (temperature 1, no truncation) that each token was sampled from.
    pub entropies: Vec<f32>,
    /// Why the completion ended.
    pub finish: Finish,
}

/// An error of the sampler itself. A single request that cannot run ends with [`Finish::Refused`] instead.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum SamplerError {
    /// The options are out of range.
    #[error("sampler options: {0}")]
    Options(String),
    #[error(
        "the sampler's memory of {budget} bytes is too small: its working buffers take {work} bytes and one cache page {page} bytes; \
         raise it to {} MiB, or sample fewer sequences at once", (work + page).div_ceil(1 << 20)
    )]
    Budget { budget: u64, work: u64, page: u64 },
    #[error("the sampler was created for another model: {0}")]
    Model(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] LmError),
    #[error("request {0} is already running or waiting; ids must be unique until they finish")]
    DuplicateId(RequestId),
    #[error(
        "the logits of request {id} at position {position} hold NaN or infinity: the weights are broken; \
         nothing of this step was kept"
    )]
    NotFinite { id: RequestId, position: usize },
}
