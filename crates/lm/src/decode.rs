//! The trait that a back end implements to run the sampler's steps, and the plain data of a step.

use crate::config::ModelConfig;
use crate::device::Device;
use crate::error::Result;
use crate::model::Model;

pub use crate::footprint::{DecoderSizes, PAGE_BLOCK, PANEL};

/// Identifies a request; unique among the unfinished requests of a sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How the next token is sampled from the model's distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// Divisor of the logits before sampling; at least 0. With 0 the most probable token is taken.
    pub temperature: f32,
    /// Nucleus sampling: only the most probable tokens that together reach this probability are kept. In (0,
    /// 1]; 1 keeps all.
    pub top_p: f32,
    /// Maximum number of most probable tokens that are kept; 0 keeps all.
    pub top_k: u32,
}

impl Default for SamplingParams {
    /// Returns the parameters of the model's own distribution: temperature 1, no truncation.
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl SamplingParams {
    /// Returns parameters that always select the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Returns the same parameters with a temperature that devices can divide by. Below the smallest normal number, the
    /// reciprocal may be infinite, and devices may round the temperature to 0, which has the same meaning.
    #[must_use]
    pub fn canonical(self) -> Self {
        let is_tiny = self.temperature < f32::MIN_POSITIVE;
        Self { temperature: if is_tiny { 0.0 } else { self.temperature }, ..self }
    }

    /// Returns whether some tokens are excluded.
    pub fn truncates(&self) -> bool {
        self.temperature > 0.0 && (self.top_p < 1.0 || self.top_k > 0)
    }
}

/// Index of a page in the cache.
pub type PageId = u32;

/// Which token a step feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextToken {
    /// This token id; less than the vocabulary size.
    Known(u32),
    /// The token that the preceding step samples at this index of its [`StepPlan::samples`]. That step may be running.
    Sampled(u32),
}

/// One token that a step feeds to the model, at one position of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputToken {
    /// The token.
    pub token: NextToken,
    /// Position in its sequence, from 0; less than the context length.
    pub position: u32,
    /// The sequence's page table: first index and length in [`StepPlan::tables`]. Requests of one prompt are
    /// adjacent, and so are tokens of one prompt.
    pub table: (u32, u32),
}

/// How to sample the token that follows an [`InputToken`].
#[derive(Debug, Clone, Copy)]
pub struct SampleSpec {
    /// The request.
    pub id: RequestId,
    /// Seed of the request.
    pub seed: u64,
    /// Index of the new token in its completion, from 0.
    pub index: u32,
    /// Temperature and truncation.
    pub params: SamplingParams,
}

/// A sampled token.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SampledToken {
    /// Token id.
    pub token: u32,
    /// Natural logarithm of its probability at temperature 1.
    pub log_prob: f32,
    /// Entropy of the whole distribution at temperature 1, in nats.
    pub entropy: f32,
    /// Whether all logits were finite.
    pub finite: bool,
}

/// One step: which pages are copied, which tokens are fed, and which tokens are sampled. Reused from step to step.
#[derive(Debug, Default)]
pub struct StepPlan {
    /// Pages to copy before any token is fed: source and destination.
    pub copies: Vec<(PageId, PageId)>,
    /// The next token of each running request.
    pub decode: Vec<InputToken>,
    /// How to sample after each token of `decode`, in the same order.
    pub samples: Vec<SampleSpec>,
    /// Prompt tokens to feed without sampling.
    pub prefill: Vec<InputToken>,
    /// Ends of the panels in `prefill`. One step never spreads a prompt over two panels, because a token reads
    /// the keys of the tokens before it.
    pub prefill_ends: Vec<usize>,
    /// Page tables that the input tokens refer to.
    pub tables: Vec<PageId>,
}

impl StepPlan {
    /// Returns whether the step has no tokens to feed.
    pub fn is_empty(&self) -> bool {
        self.decode.is_empty() && self.prefill.is_empty()
    }

    /// Removes everything and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.copies.clear();
        self.decode.clear();
        self.samples.clear();
        self.prefill.clear();
        self.prefill_ends.clear();
        self.tables.clear();
    }
}

/// A device that runs the sampler's steps. A whole step is one call, so a device can fuse, batch or record its kernels.
/// The scheduler does not depend on the arithmetic, and the device does not depend on requests.
pub trait Decode: Device {
    /// The key/value cache and the buffers of a step.
    type Decoder: Send + Sync + std::fmt::Debug;

    /// Creates a decoder with an empty cache.
    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<Self::Decoder>;
    /// Returns the maximum number of tokens of a single prompt in a step that prefills `prefill_tokens`; divides that
    /// number.
    fn panel(&self, prefill_tokens: usize) -> usize {
        PANEL.min(prefill_tokens)
    }
    /// Returns the maximum number of steps that are started before the first of them is collected: 1, or 2 if the device
    /// works asynchronously. With 2, the device need not wait for the host between two steps.
    fn steps_in_flight(&self) -> usize {
        1
    }
    /// Copies pages, feeds all tokens, and samples one token for each of [`StepPlan::samples`]. A device that works
    /// asynchronously only starts the step here and returns its results in [`Decode::collect`], which ends every step.
    /// Steps run in the order of their starts.
    fn decode(
        &self,
        decoder: &mut Self::Decoder,
        model: &Model<Self>,
        plan: &StepPlan,
        sampled: &mut [SampledToken],
    ) -> Result<()>;
    /// Returns whether [`Decode::collect`] would return without waiting.
    fn is_done(&self, _decoder: &Self::Decoder) -> Result<bool> {
        Ok(true)
    }
    /// Waits for the step that was started first among those not yet collected, and stores its results in `sampled`,
    /// unless [`Decode::decode`] did so already.
    fn collect(&self, _decoder: &mut Self::Decoder, _sampled: &mut [SampledToken]) -> Result<()> {
        Ok(())
    }
}
