//! How much memory a run takes, known before it starts.

use std::fmt;

use crate::config::ModelConfig;
use crate::device::Device;
use crate::layout::Layout;

/// What a workspace is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forward passes only: two residual streams and one layer's activations.
    Infer,
    /// Forward and backward, every layer's activations kept.
    Train,
    /// Forward and backward, a layer's activations computed again when its turn comes in the backward
    /// pass: a third more work, memory of one layer.
    TrainRecompute,
}

impl Mode {
    /// Whether gradients are planned.
    pub fn trains(self) -> bool {
        self != Self::Infer
    }
}

/// Sizes of every buffer of a workspace, in elements, and of the model's state, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What the workspace is for.
    pub mode: Mode,
    /// Tokens of the largest micro-batch.
    pub tokens: usize,
    /// Loss rows whose logits exist at the same time.
    pub logit_rows: usize,
    /// Residual streams kept.
    pub streams: usize,
    /// Layers whose activations are kept.
    pub slots: usize,
    /// Bytes of the parameters.
    pub weight_bytes: usize,
    /// Bytes of the gradients.
    pub gradient_bytes: usize,
    /// Bytes of one policy's optimiser state.
    pub optimiser_bytes: usize,
    /// Bytes of activations and scratch.
    pub activation_bytes: usize,
    /// Bytes of the logits block and the rows behind it.
    pub logit_bytes: usize,
}

/// Rows below which products with the head lose speed.
const MIN_LOGIT_ROWS: usize = 128;
/// Rows behind one partial sum of weight gradients.
const PARTIAL_ROWS: usize = 64;

impl Plan {
    /// The plan for micro-batches of at most `tokens` tokens.
    pub fn new<D: Device>(device: &D, config: &ModelConfig, tokens: usize, mode: Mode) -> Self {
        let layout = Layout::new(config);
        let tokens = tokens.max(1);
        let logit_rows = (device.logits_at_once() / config.vocab_size).max(MIN_LOGIT_ROWS).min(tokens);
        let (streams, slots) = match mode {
            Mode::Infer => (2, 1),
            Mode::Train => (config.layers + 1, config.layers),
            Mode::TrainRecompute => (config.layers + 1, 1),
        };
        let (weight, gradient, optimiser) = device.bytes_per_parameter();
        let d = config.hidden_size;
        let slot = 3 * d + config.qkv_dim() + config.q_dim() + 2 * config.intermediate_size;
        let backward = if mode.trains() { 2 * d + config.qkv_dim() + config.q_dim() } else { 0 };
        let scratch = config.intermediate_size + d + backward;
        let per_token = streams * d + slots * slot + scratch;
        let stats = 8 + slots * (2 + config.heads);
        let partial = tokens.div_ceil(PARTIAL_ROWS) * d.max(config.qkv_dim());
        let head_rows = if mode.trains() { 4 * d } else { 2 * d };
        Self {
            mode,
            tokens,
            logit_rows,
            streams,
            slots,
            weight_bytes: layout.len * weight,
            gradient_bytes: if mode.trains() { layout.len * gradient } else { 0 },
            optimiser_bytes: if mode.trains() { layout.len * optimiser } else { 0 },
            activation_bytes: tokens * (per_token * weight + stats * 4) + partial * 4,
            logit_bytes: logit_rows * (config.vocab_size + head_rows) * weight,
        }
    }

    /// Everything together for `policies` models trained one after the other in one workspace.
    pub fn total_bytes(&self, policies: usize) -> usize {
        policies * (self.weight_bytes + self.optimiser_bytes)
            + self.gradient_bytes
            + self.activation_bytes
            + self.logit_bytes
    }

    /// Length of the scratch for partial sums.
    pub(crate) fn partial_len(&self, config: &ModelConfig) -> usize {
        self.tokens.div_ceil(PARTIAL_ROWS) * config.hidden_size.max(config.qkv_dim())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "memory plan for micro-batches of {} tokens", self.tokens)?;
        for (name, bytes) in [
            ("weights", self.weight_bytes),
            ("gradients", self.gradient_bytes),
            ("optimiser", self.optimiser_bytes),
            ("activations", self.activation_bytes),
            ("logits block", self.logit_bytes),
            ("one policy in all", self.total_bytes(1)),
        ] {
            writeln!(f, "  {name:<18} {:>10.1} MiB", mib(bytes))?;
        }
        Ok(())
    }
}
