//! How much memory a run takes, known before it starts.

use std::fmt;

use crate::config::ModelConfig;
use crate::device::Device;
use crate::error::{LmError, Result, bytes};
use crate::layout::Layout;
use crate::ranks::Shard;

use super::gradients::gradient_len;

/// What a workspace is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forward passes only: two residual streams and one layer's activations.
    Infer,
    /// Forward and backward, every layer's activations kept.
    Train,
    /// Forward and backward; the activations of the last `kept` layers are kept, those of the others computed again
    /// when their turn comes in the backward pass. With none kept a quarter more work, and memory of one layer.
    TrainRecompute {
        /// Layers whose activations are kept.
        kept: usize,
    },
}

impl Mode {
    /// Whether gradients are planned.
    pub fn trains(self) -> bool {
        self != Self::Infer
    }

    /// Recomputation of as few layers as the device's free memory asks for, some of it spared; of all layers where the
    /// device does not tell. `place` is `(rank, ranks)`.
    pub fn recompute_as_needed<D: Device>(
        device: &D,
        config: &ModelConfig,
        tokens: usize,
        place: (usize, usize),
    ) -> Self {
        let free = device.free_bytes().unwrap_or(0).saturating_sub(SPARED);
        Self::recompute_within(free, device, config, tokens, place)
    }

    /// Recomputation of as few layers as so many bytes ask for.
    fn recompute_within<D: Device>(
        free: usize,
        device: &D,
        config: &ModelConfig,
        tokens: usize,
        place: (usize, usize),
    ) -> Self {
        let needed = |kept: usize| {
            Plan::for_rank(device, config, tokens, Self::TrainRecompute { kept }, place).workspace_bytes()
        };
        let kept = (1..config.layers).rev().find(|kept| needed(*kept) <= free).unwrap_or(0);
        Self::TrainRecompute { kept }
    }

    /// Layers, counted from the first, whose activations share a place and are computed again.
    pub(crate) fn recomputed(self, layers: usize) -> usize {
        match self {
            Self::Infer | Self::Train => 0,
            Self::TrainRecompute { kept } => layers.saturating_sub(kept),
        }
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
    pub streams: usize,
    /// Layers whose activations are kept.
    pub slots: usize,
    /// Bytes of the parameters.
    pub weight_bytes: usize,
    pub gradient_bytes: usize,
    /// Bytes of one policy's optimiser state.
    pub optimiser_bytes: usize,
    /// Bytes of activations and scratch.
    pub activation_bytes: usize,
    /// Bytes of the logits block and the rows behind it.
    pub logit_bytes: usize,
}

/// Device memory that recomputation leaves free: libraries take some when they are first used.
const SPARED: usize = 3 << 30;
/// Rows below which products with the head lose speed.
const MIN_LOGIT_ROWS: usize = 128;
/// Rows behind one partial sum of weight gradients at most.
const ROWS_OF_PARTIAL: usize = 64;
/// Partial sums for which there is room even if that leaves them fewer rows: a GPU makes as many at once.
pub(crate) const PARTIAL_ROWS: usize = 256;

/// Partial sums of weight gradients of so many tokens.
fn partials(tokens: usize) -> usize {
    tokens.div_ceil(ROWS_OF_PARTIAL).max(tokens.min(PARTIAL_ROWS))
}

impl Plan {
    /// The plan for micro-batches of at most `tokens` tokens.
    pub fn new<D: Device>(device: &D, config: &ModelConfig, tokens: usize, mode: Mode) -> Self {
        Self::for_rank(device, config, tokens, mode, (0, 1))
    }

    /// The plan of one of several ranks: `(rank, ranks)`.
    pub fn for_rank<D: Device>(
        device: &D,
        config: &ModelConfig,
        tokens: usize,
        mode: Mode,
        (rank, ranks): (usize, usize),
    ) -> Self {
        let layout = Layout::new(config);
        let tokens = tokens.max(1);
        let logit_rows = (device.logits_at_once() / config.vocab_size).max(MIN_LOGIT_ROWS).min(tokens);
        let (streams, slots) = match mode {
            Mode::Infer => (2, 1),
            Mode::Train => (config.layers + 1, config.layers),
            Mode::TrainRecompute { kept } => (config.layers + 1, (kept + 1).min(config.layers)),
        };
        let (weight, gradient, optimiser) = device.bytes_per_parameter();
        let d = config.hidden_size;
        let slot = 3 * d + config.qkv_dim() + config.q_dim() + 2 * config.intermediate_size;
        let backward = if mode.trains() { 2 * d + config.qkv_dim() + config.q_dim() } else { 0 };
        let scratch = config.intermediate_size + d + backward;
        let per_token = streams * d + slots * slot + scratch;
        let stats = 8 + slots * (2 + config.heads);
        let partial = partials(tokens) * d.max(config.qkv_dim());
        let head_rows = if mode.trains() { 4 * d } else { 2 * d };
        Self {
            mode,
            tokens,
            logit_rows,
            streams,
            slots,
            weight_bytes: layout.len * weight,
            gradient_bytes: if mode.trains() { gradient_len(&layout, rank, ranks) * gradient } else { 0 },
            optimiser_bytes: if mode.trains() { Shard::of(&layout, rank, ranks).len * optimiser } else { 0 },
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

    /// Checks that a workspace fits beside what is on the device already.
    ///
    /// # Errors
    /// It does not: the error says what is needed, what is free and what to make smaller.
    pub fn fits<D: Device>(&self, device: &D) -> Result<()> {
        match device.free_bytes() {
            Some(free) => self.fits_into(&device.name(), free),
            None => Ok(()),
        }
    }

    /// The same for a device of that name with so many bytes free.
    fn fits_into(&self, device: &str, free: usize) -> Result<()> {
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
            hint: format!("run fewer tokens at once (micro_batch_tokens){recompute}{ranks}"),
        })
    }

    /// Bytes of gradients, activations and logits.
    pub fn workspace_bytes(&self) -> usize {
        self.gradient_bytes + self.activation_bytes + self.logit_bytes
    }

    /// Length of the scratch for partial sums.
    pub(crate) fn partial_len(&self, config: &ModelConfig) -> usize {
        partials(self.tokens) * config.hidden_size.max(config.qkv_dim())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;
    use crate::bench::small_shape;

    #[test]
    fn what_does_not_fit_says_how_much_and_what_to_do() {
        let device = Cpu::new(1).unwrap();
        let plan = Plan::new(&device, &small_shape(), 4096, Mode::Train);
        let needed = plan.workspace_bytes();
        assert!(plan.fits_into("cuda:0", needed).is_ok());
        let error = plan.fits_into("cuda:0", needed - 1).unwrap_err().to_string();
        for part in
            ["cuda:0", &format!("({needed} bytes)"), &format!("({} bytes)", needed - 1), "4096 tokens"]
        {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(error.contains("micro_batch_tokens") && error.contains("recompute = true"), "{error}");
        let recomputed = Plan::new(&device, &small_shape(), 4096, Mode::TrainRecompute { kept: 0 });
        assert!(recomputed.activation_bytes < plan.activation_bytes);
        let error = recomputed.fits_into("cuda:0", 0).unwrap_err().to_string();
        assert!(!error.contains("recompute = true") && error.contains("0 bytes is free"), "{error}");
    }

    #[test]
    fn as_many_layers_are_kept_as_fit() {
        let device = Cpu::new(1).unwrap();
        let config = ModelConfig { layers: 6, ..small_shape() };
        let bytes = |mode| Plan::new(&device, &config, 512, mode).workspace_bytes();
        let within = |free| Mode::recompute_within(free, &device, &config, 512, (0, 1));
        assert_eq!(within(0), Mode::TrainRecompute { kept: 0 });
        assert_eq!(within(usize::MAX), Mode::TrainRecompute { kept: 5 });
        for kept in 1..6 {
            let mode = Mode::TrainRecompute { kept };
            assert_eq!(within(bytes(mode)), mode);
            assert_eq!(within(bytes(mode) - 1), Mode::TrainRecompute { kept: kept - 1 });
        }
        // Kept to the last but one, nothing is computed twice: the buffers are those of plain training.
        assert_eq!(bytes(Mode::TrainRecompute { kept: 5 }), bytes(Mode::Train));
    }

    #[test]
    fn ranks_share_gradients_and_optimiser_state() {
        let device = Cpu::new(1).unwrap();
        let config = ModelConfig { layers: 16, ..small_shape() };
        let one = Plan::new(&device, &config, 64, Mode::Train);
        let four = Plan::for_rank(&device, &config, 64, Mode::Train, (1, 4));
        assert_eq!((one.weight_bytes, one.activation_bytes), (four.weight_bytes, four.activation_bytes));
        assert!(four.optimiser_bytes <= one.optimiser_bytes / 4);
        assert!(four.gradient_bytes < one.gradient_bytes / 2);
    }
}
