//! The seam between the sampler and the machine that computes its steps.

use super::schedule::{Drawn, Plan};
use crate::config::ModelConfig;
use crate::device::Device;
use crate::error::Result;
use crate::model::Model;

/// What a device's decoder is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderSizes {
    /// Requests decoded at once.
    pub max_batch: usize,
    /// Prompt tokens fed in one step; a multiple of [`PANEL`].
    pub prefill_tokens: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Positions in a page of the cache; a multiple of 16.
    pub page_len: usize,
    /// Pages in the cache.
    pub pages: usize,
}

/// Columns of a panel of the CPU; prompt tokens are fed in multiples of it.
pub const PANEL: usize = 64;

/// A device that runs the sampler's steps. The whole step is one call, so that a device may fuse, batch or
/// record it as it likes; the scheduler knows nothing of the arithmetic, the device nothing of requests.
pub trait Decode: Device {
    /// The key/value cache and the buffers of a step.
    type Decoder: Send + Sync + std::fmt::Debug;

    /// How many samplers should share one role's requests: with two, the processor plans the one's next step while the
    /// device runs the other's. One where a step costs mostly the reading of the weights.
    fn samplers(&self, _config: &ModelConfig) -> usize {
        1
    }
    /// Bytes of the buffers of a step (the cache not counted).
    fn decoder_work_bytes(&self, config: &ModelConfig, sizes: &DecoderSizes) -> u64;
    /// Bytes of one page of the cache.
    fn decoder_page_bytes(&self, config: &ModelConfig, page_len: usize) -> u64;
    /// A decoder with an empty cache.
    ///
    /// # Errors
    /// The device has no room.
    fn decoder(&self, config: &ModelConfig, sizes: &DecoderSizes) -> Result<Self::Decoder>;
    /// Prompt tokens that suit a step, if there is memory for them.
    fn prefill_tokens(&self) -> usize {
        512
    }
    /// Most tokens of one prompt in a step that feeds `prefill_tokens` prompt tokens: a divisor of them.
    fn panel(&self, prefill_tokens: usize) -> usize {
        PANEL.min(prefill_tokens)
    }
    /// Copies pages, feeds all columns, and draws: one result for each of [`Plan::draws`]. A device that works beside
    /// the processor starts all this and gives the results in [`Decode::collect`], which ends every step.
    ///
    /// # Errors
    /// The device fails.
    fn decode(
        &self,
        decoder: &mut Self::Decoder,
        model: &Model<Self>,
        plan: &Plan,
        drawn: &mut [Drawn],
    ) -> Result<()>;
    /// Whether [`Decode::collect`] need not wait.
    ///
    /// # Errors
    /// The device fails.
    fn is_done(&self, _decoder: &Self::Decoder) -> Result<bool> {
        Ok(true)
    }
    /// Waits for the step that was started last and takes its results, unless `drawn` holds them already.
    ///
    /// # Errors
    /// The device fails.
    fn collect(&self, _decoder: &mut Self::Decoder, _drawn: &mut [Drawn]) -> Result<()> {
        Ok(())
    }
}
