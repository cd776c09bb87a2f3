//! Computes the memory needs of a run before it starts.

use crate::config::ModelConfig;
use crate::device::Device;
use crate::error::{LmError, Result, bytes};
use crate::footprint::Footprint;
use crate::layout::Layout;
use crate::shard::Shard;

use super::gradients::gradient_len;

/// Purpose of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forward passes only: two residual streams and one layer's activations.
    Infer,
    /// Forward and backward passes; the activations of every layer are kept.
    Train,
    /// Forward and backward passes; the activations of the last `kept` layers are kept, and those of the others are
    /// recomputed in the backward pass. With `kept: 0`, a step needs a quarter more time and the memory of one layer.
    TrainRecompute {
        /// Number of layers whose activations are kept.
        kept: usize,
    },
}

impl Mode {
    /// Returns whether there are gradients.
    pub fn trains(self) -> bool {
        self != Self::Infer
    }

    /// Recomputes as few layers as the device's free memory permits (with a reserve), or all layers if the
    /// device does not report its free memory. `place` is `(rank, ranks)`.
    pub fn recompute_as_needed<D: Device>(
        device: &D,
        config: &ModelConfig,
        tokens: usize,
        place: (usize, usize),
    ) -> Self {
        let free = device.free_bytes().unwrap_or(0).saturating_sub(SPARED);
        Self::recompute_within(free, device.footprint(), config, tokens, place)
    }

    /// Recomputes as few layers as `free` bytes permit.
    pub fn recompute_within(
        free: usize,
        footprint: &dyn Footprint,
        config: &ModelConfig,
        tokens: usize,
        place: (usize, usize),
    ) -> Self {
        let needed = |kept: usize| {
            MemoryPlan::for_rank(footprint, config, tokens, Self::TrainRecompute { kept }, place)
                .workspace_bytes()
        };
        let kept = (1..config.layers).rev().find(|kept| needed(*kept) <= free).unwrap_or(0);
        Self::TrainRecompute { kept }
    }

    /// Returns the number of layers, counted from the first, that share one slot for activations and are recomputed.
    pub(crate) fn recomputed(self, layers: usize) -> usize {
        match self {
            Self::Infer | Self::Train => 0,
            Self::TrainRecompute { kept } => layers.saturating_sub(kept),
        }
    }
}

/// Sizes of the buffers of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Purpose of the workspace.
    pub mode: Mode,
    /// Maximum number of tokens of a micro-batch.
    pub tokens: usize,
    /// Number of loss rows whose logits exist at the same time.
    pub logit_rows: usize,
    /// Number of residual streams that are kept.
    pub streams: usize,
    /// Number of layers whose activations are kept.
    pub slots: usize,
    /// Bytes of one policy's gradients.
    pub gradient_bytes: usize,
    /// Bytes of activations and scratch memory.
    pub activation_bytes: usize,
    /// Bytes of a block of logits and its rows.
    pub logit_bytes: usize,
}

/// Device memory that recomputation leaves free, because libraries allocate some when they are first used.
const SPARED: usize = 3 << 30;
/// With fewer rows, products with the head are slower.
const MIN_LOGIT_ROWS: usize = 128;
/// Maximum number of rows per partial sum of weight gradients.
const ROWS_OF_PARTIAL: usize = 64;
/// Minimum number of partial sums that the buffer must hold, even if each then covers fewer rows: a GPU computes this
/// many concurrently.
pub const PARTIAL_ROWS: usize = 256;

/// Returns the number of partial sums of weight gradients for a number of tokens.
fn partials(tokens: usize) -> usize {
    tokens.div_ceil(ROWS_OF_PARTIAL).max(tokens.min(PARTIAL_ROWS))
}

/// Returns the size in bytes of a model on a device: its parameters and its rotary tables for `positions` positions.
pub fn model_bytes(footprint: &dyn Footprint, config: &ModelConfig, positions: usize) -> usize {
    // Cosines and sines, f32.
    let rope = 2 * positions * (config.head_dim / 2) * 4;
    Layout::new(config).len * footprint.bytes_per_parameter().0 + rope
}

/// Returns the size in bytes of the optimizer state of a shard.
pub fn adam_bytes(footprint: &dyn Footprint, shard: &Shard) -> usize {
    shard.len * footprint.bytes_per_parameter().2
}

impl MemoryPlan {
    /// Plans for micro-batches of at most `tokens` tokens.
    pub fn new(footprint: &dyn Footprint, config: &ModelConfig, tokens: usize, mode: Mode) -> Self {
        Self::for_rank(footprint, config, tokens, mode, (0, 1))
    }

    /// Plans for one of several ranks, given as `(rank, ranks)`.
    pub fn for_rank(
        footprint: &dyn Footprint,
        config: &ModelConfig,
        tokens: usize,
        mode: Mode,
        (rank, ranks): (usize, usize),
    ) -> Self {
        let layout = Layout::new(config);
        let tokens = tokens.max(1);
        let logit_rows = (footprint.logits_at_once() / config.vocab_size).max(MIN_LOGIT_ROWS).min(tokens);
        let (streams, slots) = match mode {
            Mode::Infer => (2, 1),
            Mode::Train => (config.layers + 1, config.layers),
            Mode::TrainRecompute { kept } => (config.layers + 1, (kept + 1).min(config.layers)),
        };
        let (weight, gradient, _) = footprint.bytes_per_parameter();
        let d = config.hidden_size;
        let slot = 3 * d + config.qkv_dim() + config.q_dim() + 2 * config.intermediate_size;
        let backward = if mode.trains() { 2 * d + config.qkv_dim() + config.q_dim() } else { 0 };
        let rotated = if config.qk_norm { config.qkv_dim() } else { 0 };
        let scratch = config.intermediate_size + d + rotated + backward;
        let per_token = streams * d + slots * slot + scratch;
        // Tokens, positions and the eight buffers of loss rows.
        let stats = 10 + slots * (2 + config.heads);
        let partial = if mode.trains() { partials(tokens) * d.max(config.qkv_dim()) } else { 0 };
        let head_rows = if mode.trains() { 4 * d } else { 2 * d };
        Self {
            mode,
            tokens,
            logit_rows,
            streams,
            slots,
            gradient_bytes: if mode.trains() { gradient_len(&layout, rank, ranks) * gradient } else { 0 },
            activation_bytes: tokens * (per_token * weight + stats * 4) + partial * 4,
            logit_bytes: logit_rows * ((config.vocab_size + head_rows) * weight + 4),
        }
    }

    /// Checks that a workspace fits into the device's free memory.
    ///
    /// # Errors
    /// Returns an error that says how much memory is needed and free, and what to reduce.
    pub fn fits<D: Device>(&self, device: &D) -> Result<()> {
        match device.free_bytes() {
            Some(free) => self.fits_into(&device.name(), free),
            None => Ok(()),
        }
    }

    /// Checks the same as [`MemoryPlan::fits`], for a device of this name with `free` bytes.
    pub fn fits_into(&self, device: &str, free: usize) -> Result<()> {
        let needed = self.workspace_bytes();
        if needed <= free {
            return Ok(());
        }
        let recompute = if self.mode == Mode::Train { ", recompute layers (recompute = true)" } else { "" };
        let ranks = if self.mode.trains() { ", train on more ranks" } else { "" };
        Err(LmError::Memory {
            device: device.to_owned(),
            what: format!(
                "a pass over {} tokens (gradients {}, activations {}, logits {})",
                self.tokens,
                bytes(self.gradient_bytes),
                bytes(self.activation_bytes),
                bytes(self.logit_bytes)
            ),
            needed,
            free,
            hint: format!("reduce micro_batch_tokens{recompute}{ranks}"),
        })
    }

    /// Returns the size in bytes of gradients, activations and logits.
    pub fn workspace_bytes(&self) -> usize {
        self.gradient_bytes + self.activation_bytes + self.logit_bytes
    }

    /// Returns the length of the scratch memory for partial sums.
    pub(crate) fn partial_len(&self, config: &ModelConfig) -> usize {
        partials(self.tokens) * config.hidden_size.max(config.qkv_dim())
    }
}
