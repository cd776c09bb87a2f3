//! What is asked of the sampler and what it gives back.

use std::sync::Arc;

use crate::error::LmError;

/// The caller's name for a request; unique among those not yet finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How the next token is drawn from the model's distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Logits are divided by this before the draw; 0 takes the most probable token. At least 0.
    pub temperature: f32,
    /// Only the most probable tokens that together reach this mass are drawn; 1 keeps all. In (0, 1].
    pub top_p: f32,
    /// Only this many of the most probable tokens are drawn; 0 keeps all.
    pub top_k: u32,
}

impl Default for Choice {
    /// The model's own distribution.
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl Choice {
    /// Always the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether some tokens are excluded from the draw.
    pub fn truncates(&self) -> bool {
        self.temperature > 0.0 && (self.top_p < 1.0 || self.top_k > 0)
    }
}

/// One completion to be sampled. Requests with equal prompts share the prompt's computation and memory.
#[derive(Debug, Clone)]
pub struct Request {
    /// The caller's name for it.
    pub id: RequestId,
    /// Token ids, at least one.
    pub prompt: Arc<[u32]>,
    /// Fixes the draws: same weights, prompt and seed give the same completion, whatever runs beside it.
    pub seed: u64,
    /// Longest completion, in tokens, the stop token included; at least 1.
    pub max_new_tokens: usize,
    /// How tokens are drawn.
    pub choice: Choice,
    /// Tokens that end the completion.
    pub stop: Arc<[u32]>,
}

/// Why a completion ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Finish {
    /// A stop token was drawn; it is the last of the tokens.
    Stop,
    /// The completion reached its longest length.
    Length,
    /// The caller cancelled it; the tokens so far are given.
    Cancelled,
    /// It was never started.
    Refused(Refusal),
}

/// Why a request was not started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No token to start from.
    #[error("the prompt is empty; give at least one token (the model's beginning-of-sequence token)")]
    EmptyPrompt,
    /// Nothing to sample.
    #[error("max_new_tokens is 0")]
    NoNewTokens,
    /// A prompt token that the model does not have.
    #[error("prompt token {place} has id {token}, but the model's vocabulary has {vocabulary} tokens")]
    UnknownToken {
        /// Place in the prompt, from 0.
        place: usize,
        token: u32,
        /// Number of tokens in the vocabulary.
        vocabulary: usize,
    },
    /// Longer than the model's context.
    #[error("a prompt of {prompt} tokens and up to {max_new} new ones exceed the context of {limit} tokens")]
    ExceedsContext {
        /// Length of the prompt.
        prompt: usize,
        /// Longest completion asked for.
        max_new: usize,
        /// Longest sequence of the model.
        limit: usize,
    },
    /// Larger than the whole key/value cache.
    #[error(
        "a prompt of {prompt} tokens and up to {max_new} new ones exceed the {limit} tokens that the sampler's memory budget holds"
    )]
    ExceedsBudget {
        /// Length of the prompt.
        prompt: usize,
        /// Longest completion asked for.
        max_new: usize,
        /// Tokens that the cache holds in all.
        limit: usize,
    },
    /// A parameter of the draw that means nothing.
    #[error("{name} is {value}; expected {expected}")]
    Choice {
        name: &'static str,
        value: f32,
        /// What would be accepted.
        expected: &'static str,
    },
}

/// One finished request: the completion and what the model thought of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The request's id.
    pub id: RequestId,
    /// New tokens, the stop token included.
    pub tokens: Vec<u32>,
    /// Natural logarithm of each token's probability under the model itself (temperature 1, no
    /// truncation), given the prompt and the tokens before it.
    pub log_probs: Vec<f32>,
    /// Entropy in nats of the whole distribution (temperature 1) that each token was drawn from.
    pub entropies: Vec<f32>,
    pub finish: Finish,
}

/// What stops the sampler itself; a request that cannot be served is a [`Finish::Refused`] instead.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The options contradict each other or the model.
    #[error("sampler options: {0}")]
    Options(String),
    /// The budget does not even hold the working buffers and one page.
    #[error(
        "the sampler's memory budget of {budget} bytes is too small: its working buffers take {work} bytes and one cache page {page} bytes; \
         give at least {} bytes, or lower max_batch or prefill_tokens", work + page
    )]
    Budget {
        /// What the caller gave.
        budget: u64,
        /// Bytes of the working buffers.
        work: u64,
        /// Bytes of one page.
        page: u64,
    },
    /// The model passed to a step is not of the shape that the sampler was made for.
    #[error("the sampler was made for another model: {0}")]
    Model(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] LmError),
    /// A request with the same id is still unfinished.
    #[error("request {0} is already running or waiting; ids must be unique until they finish")]
    DuplicateId(RequestId),
    /// The model's output is not a number: the weights are broken.
    #[error(
        "the logits of request {id} at position {position} hold NaN or infinity: the weights are broken; \
         nothing of this step was kept"
    )]
    NotFinite {
        /// The first such request.
        id: RequestId,
        /// Position of the token whose successor was to be drawn.
        position: usize,
    },
}
