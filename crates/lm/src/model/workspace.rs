//! All buffers that a pass writes, allocated once.

use crate::config::ModelConfig;
use crate::device::{Device, first, first_mut};
use crate::error::{LmError, Result};
use crate::layout::Layout;
use crate::pack::Packed;

use super::gradients::Gradients;
use super::plan::{MemoryPlan, Mode};

/// Activations that a layer's backward pass needs. `T` is the number of tokens, `d` the width of the residual stream.
pub(super) struct LayerActs<D: Device> {
    /// Normalised input of attention, `[T, d]`.
    pub(super) h1: D::Buf,
    /// `1 / rms` of the layer's input, `[T]`.
    pub(super) rstd1: D::Stat,
    /// Queries, keys and values, `[T, qkv]`: rotated, unless the model normalises heads.
    pub(super) qkv: D::Buf,
    /// Output of the heads, `[T, heads head_dim]`.
    pub(super) attn: D::Buf,
    /// Log-sum-exp of the scores, `[T, heads]`.
    pub(super) lse: D::Stat,
    /// Residual stream between attention and feed-forward, `[T, d]`.
    pub(super) x_mid: D::Buf,
    /// Normalised input of the feed-forward layer, `[T, d]`.
    pub(super) h2: D::Buf,
    /// `1 / rms` of `x_mid`, `[T]`.
    pub(super) rstd2: D::Stat,
    /// Gate and up, `[T, 2 intermediate]`; the backward pass turns it into its gradient.
    pub(super) gate_up: D::Buf,
}

/// Buffers that only the backward pass uses.
pub(super) struct BackwardActs<D: Device> {
    /// Gradient of the residual stream, `[T, d]`.
    pub(super) dx: D::Buf,
    /// Gradient of a normalised input, `[T, d]`.
    pub(super) dh: D::Buf,
    /// Gradient of the heads' output, `[T, heads head_dim]`.
    pub(super) dattn: D::Buf,
    /// Gradient of queries, keys and values, `[T, qkv]`.
    pub(super) dqkv: D::Buf,
    /// Gradient of the head's rows, normalised and not, `[R, d]`.
    pub(super) dhead: D::Buf,
    pub(super) dgathered: D::Buf,
    /// Partial sums of weight gradients of norms and biases.
    pub(super) partial: D::Stat,
}

/// Loss rows on the device, each `[T]`.
pub(super) struct LossRowBuffers<D: Device> {
    pub(super) ids: D::Ints,
    pub(super) targets: D::Ints,
    pub(super) weight: D::Stat,
    pub(super) norm: D::Stat,
    pub(super) old: D::Stat,
    pub(super) reference: D::Stat,
    pub(super) log_prob: D::Stat,
    pub(super) entropy: D::Stat,
}

/// All buffers of forward and backward passes for one shape; models of this shape share them.
pub struct Workspace<D: Device> {
    /// Sizes of the buffers.
    pub plan: MemoryPlan,
    pub(super) config: ModelConfig,
    pub(super) tokens: D::Ints,
    pub(super) positions: D::Ints,
    /// Inputs of the layers (and the output of the last), `[T, d]` each.
    pub(super) x: Vec<D::Buf>,
    pub(super) slots: Vec<LayerActs<D>>,
    /// Activation of the feed-forward layer, `[T, intermediate]`.
    pub(super) act: D::Buf,
    /// Normalised and rotated queries and keys, and values, `[T, qkv]`, if the model normalises heads.
    pub(super) rotated: Option<D::Buf>,
    /// Output of attention or feed-forward before it is added to the residual stream, `[T, d]`.
    pub(super) branch: D::Buf,
    pub(super) rows: LossRowBuffers<D>,
    /// Rows of the residual stream that have a loss, `[R, d]`.
    pub(super) gathered: D::Buf,
    /// These rows after the final norm.
    pub(super) head_in: D::Buf,
    pub(super) head_rstd: D::Stat,
    /// Logits of a block of rows, `[R, vocabulary]`.
    pub(super) logits: D::Buf,
    pub(super) back: Option<BackwardActs<D>>,
    /// Gradients, summed over the micro-batches of a step.
    pub(super) grads: Option<Gradients<D>>,
    /// Recorded passes over these buffers.
    pub(super) passes: D::Passes,
}

impl<D: Device> std::fmt::Debug for Workspace<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<D: Device> Workspace<D> {
    /// Allocates the buffers of a plan for one of several ranks, given as `(rank, ranks)`.
    pub fn for_rank(
        device: &D,
        config: &ModelConfig,
        tokens: usize,
        mode: Mode,
        (rank, ranks): (usize, usize),
    ) -> Result<Self> {
        let plan = MemoryPlan::for_rank(device.footprint(), config, tokens, mode, (rank, ranks));
        plan.fits(device)?;
        let (t, d, r) = (plan.tokens, config.hidden_size, plan.logit_rows);
        let x = (0..plan.streams).map(|_| device.buf(t * d)).collect::<Result<_>>()?;
        let slots = (0..plan.slots)
            .map(|_| {
                Ok(LayerActs {
                    h1: device.buf(t * d)?,
                    rstd1: device.stat(t)?,
                    qkv: device.buf(t * config.qkv_dim())?,
                    attn: device.buf(t * config.q_dim())?,
                    lse: device.stat(t * config.heads)?,
                    x_mid: device.buf(t * d)?,
                    h2: device.buf(t * d)?,
                    rstd2: device.stat(t)?,
                    gate_up: device.buf(t * 2 * config.intermediate_size)?,
                })
            })
            .collect::<Result<_>>()?;
        let rows = LossRowBuffers {
            ids: device.ints(t)?,
            targets: device.ints(t)?,
            weight: device.stat(t)?,
            norm: device.stat(t)?,
            old: device.stat(t)?,
            reference: device.stat(t)?,
            log_prob: device.stat(t)?,
            entropy: device.stat(t)?,
        };
        let back = if mode.trains() {
            Some(BackwardActs {
                dx: device.buf(t * d)?,
                dh: device.buf(t * d)?,
                dattn: device.buf(t * config.q_dim())?,
                dqkv: device.buf(t * config.qkv_dim())?,
                dhead: device.buf(r * d)?,
                dgathered: device.buf(r * d)?,
                partial: device.stat(plan.partial_len(config))?,
            })
        } else {
            None
        };
        let grads = if mode.trains() {
            Some(Gradients::new(device, &Layout::new(config), rank, ranks)?)
        } else {
            None
        };
        Ok(Self {
            tokens: device.ints(t)?,
            positions: device.ints(t)?,
            x,
            slots,
            act: device.buf(t * config.intermediate_size)?,
            rotated: config.qk_norm.then(|| device.buf(t * config.qkv_dim())).transpose()?,
            branch: device.buf(t * d)?,
            rows,
            gathered: device.buf(r * d)?,
            head_in: device.buf(r * d)?,
            head_rstd: device.stat(r)?,
            logits: device.buf(r * config.vocab_size)?,
            back,
            grads,
            passes: D::Passes::default(),
            plan,
            config: config.clone(),
        })
    }

    /// Returns the gradients, if this workspace is for training.
    ///
    /// # Errors
    /// Returns an error if the workspace was planned for inference.
    pub fn gradients(&mut self) -> Result<&mut Gradients<D>> {
        self.grads.as_mut().ok_or_else(planned_for_inference)
    }

    /// Copies the log-probabilities and entropies of the last pass's loss rows to the host.
    pub fn read_rows(&self, device: &D, log_prob: &mut [f32], entropy: &mut [f32]) -> Result<()> {
        let n = log_prob.len();
        device.read_stat(first(&self.rows.log_prob, n), log_prob)?;
        device.read_stat(first(&self.rows.entropy, n), entropy)
    }

    /// Checks that a batch fits, and copies it to the device.
    pub(super) fn load(&mut self, device: &D, batch: &Packed) -> Result<()> {
        let (tokens, rows) = (batch.tokens.len(), batch.rows.len());
        if tokens > self.plan.tokens {
            return Err(LmError::Input(format!(
                "a micro-batch of {tokens} tokens exceeds the {} tokens that were planned",
                self.plan.tokens
            )));
        }
        device.write_ints(&batch.tokens, first_mut(&mut self.tokens, tokens))?;
        device.write_ints(&batch.positions, first_mut(&mut self.positions, tokens))?;
        device.write_ints(&batch.rows, first_mut(&mut self.rows.ids, rows))?;
        device.write_ints(&batch.targets, first_mut(&mut self.rows.targets, rows))?;
        device.write_stat(&batch.weight, first_mut(&mut self.rows.weight, rows))?;
        device.write_stat(&batch.norm, first_mut(&mut self.rows.norm, rows))?;
        device.write_stat(&batch.old, first_mut(&mut self.rows.old, rows))?;
        device.write_stat(&batch.reference, first_mut(&mut self.rows.reference, rows))
    }
}

pub(super) fn planned_for_inference() -> LmError {
    LmError::Input("this workspace was planned for inference and does not have gradients".to_owned())
}
