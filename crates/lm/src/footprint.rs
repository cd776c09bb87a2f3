//! Sizes of a back end's buffers as pure functions, so that memory is planned in the same way with and without the
//! device.

use crate::config::ModelConfig;

/// Sizes that a decoder is created for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderSizes {
    /// Maximum number of requests decoded at the same time.
    pub max_batch: usize,
    /// Maximum number of prompt tokens per step; a multiple of [`PANEL`].
    pub prefill_tokens: usize,
    /// Maximum length of a sequence, in tokens.
    pub context: usize,
    /// Positions per page of the cache; a multiple of [`PAGE_BLOCK`].
    pub page_len: usize,
    /// Pages in the cache.
    pub pages: usize,
}

/// Tokens per panel on the CPU. The number of prompt tokens per step is a multiple of it.
pub const PANEL: usize = 64;

/// The length of a page is a multiple of this number of positions.
pub const PAGE_BLOCK: usize = 16;

/// Sizes of the buffers that a back end allocates. The back end itself allocates buffers of these sizes.
pub trait Footprint: Send + Sync {
    /// Returns the number of bytes of one parameter, of one gradient and of one parameter's optimizer state.
    fn bytes_per_parameter(&self) -> (usize, usize, usize);
    /// Returns the number of logits that should exist at the same time: few on a CPU, so that they stay in its caches;
    /// many on a GPU, whose matrix products need many rows.
    fn logits_at_once(&self) -> usize;
    /// Returns the number of bytes of the buffers that the device allocates when it is opened or first copies weights.
    fn device_bytes(&self) -> usize;
    /// Returns the number of prompt tokens per step that suits the device, if there is enough memory.
    fn prefill_tokens(&self) -> usize;
    /// Returns the number of samplers that should share the requests of one role. Steps of two samplers at the same time
    /// fill a GPU better if each is small. One is best if reading the weights dominates the time of a step.
    fn samplers(&self, config: &ModelConfig) -> usize;
    /// Returns the number of bytes of the buffers of a sampler's step, without the cache.
    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64;
    /// Returns the number of bytes of one page of the cache.
    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64;
}
