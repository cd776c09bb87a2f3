//! The seam to the machine that computes: a short list of kernels over buffers that only the device can
//! look into.
//!
//! A device chooses the element types: on the CPU every buffer is f32; a GPU computes in bf16
//! ([`Device::Buf`]) with f32 statistics ([`Device::Stat`]) and keeps in its Adam state what the parameters
//! lack of their f32 masters. Kernels never allocate; the model plans every buffer ahead.

use std::ops::Range;

use crate::config::ModelConfig;
use crate::cpu::Floats;
use crate::error::Result;
use crate::layout::{Layout, Span};
use crate::ranks::{Piece, Shard};
use crate::rope::RopeTables;

/// A readable piece of a buffer.
#[derive(Debug)]
pub struct Part<'a, B> {
    pub buf: &'a B,
    pub range: Range<usize>,
}

/// A writable piece of a buffer.
#[derive(Debug)]
pub struct PartMut<'a, B> {
    pub buf: &'a mut B,
    pub range: Range<usize>,
}

/// The tensor of `span` in a flat buffer.
pub fn at<B>(buf: &B, span: Span) -> Part<'_, B> {
    Part { buf, range: span.range() }
}

/// The first `len` elements of a buffer.
pub fn first<B>(buf: &B, len: usize) -> Part<'_, B> {
    Part { buf, range: 0..len }
}

/// The first `len` elements of a buffer, to be written.
pub fn first_mut<B>(buf: &mut B, len: usize) -> PartMut<'_, B> {
    PartMut { buf, range: 0..len }
}

/// Sizes of a linear layer over `rows` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    pub rows: usize,
    /// Width of the input.
    pub input: usize,
    /// Width of the output.
    pub output: usize,
}

/// What a product does with the old contents of its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Forgets them.
    Set,
    /// Adds to them.
    Add,
}

/// Sizes of attention; the merged matrix has `heads + 2 kv_heads` heads per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Heads {
    /// The heads of a model.
    pub fn of(config: &ModelConfig) -> Self {
        Self { heads: config.heads, kv_heads: config.kv_heads, head_dim: config.head_dim }
    }

    /// Width of a row of the merged query, key and value matrix.
    pub fn qkv_dim(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// What the loss of one row is, as a function of its log-prob and the distribution it came from; the same
/// for all rows of a call. See [`crate::loss`] for the formulas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowLoss {
    /// Bounds of the importance ratio of CISPO; without them the ratio is 1.
    pub ratio_bounds: Option<(f32, f32)>,
    /// Coefficient of the entropy bonus.
    pub entropy_bonus: f32,
    /// Coefficient of the KL penalty towards the reference log-probs.
    pub kl_penalty: f32,
    /// Whether gradients are wanted; if not, the logits are left as they are.
    pub backward: bool,
}

/// Inputs and outputs of the loss for the rows of one block, each `[rows]`.
#[derive(Debug)]
pub struct LossRows<'a, D: Device> {
    /// The token that followed.
    pub targets: Part<'a, D::Ints>,
    /// Weight of the row's log-prob in the loss, the normaliser included; of either sign.
    pub weight: Part<'a, D::Stat>,
    /// The normaliser alone, for entropy bonus and KL penalty.
    pub norm: Part<'a, D::Stat>,
    /// Log-prob of the target when it was sampled.
    pub old: Part<'a, D::Stat>,
    /// Log-prob of the target under the reference model.
    pub reference: Part<'a, D::Stat>,
    /// Out: log-prob of the target now.
    pub log_prob: PartMut<'a, D::Stat>,
    /// Out: entropy of the distribution, in nats.
    pub entropy: PartMut<'a, D::Stat>,
}

/// What tells the kernels of one training pass from those of another, but for what lies in the buffers.
#[derive(Debug)]
pub struct Pass<'a, D: Device> {
    pub params: &'a D::Buf,
    pub rope: &'a D::Rope,
    /// First rows of the sequences and, last, the number of rows.
    pub starts: &'a [usize],
    pub loss_rows: usize,
    pub heads: Heads,
    pub loss: RowLoss,
    /// What products do with the gradients that are there.
    pub write: Write,
}

/// One Adam update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamUpdate {
    /// Number of this update, counted from 1 (for the bias correction).
    pub t: u64,
    /// Learning rate of this update.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices (norms and biases are never decayed).
    pub weight_decay: f64,
    /// Factor on every gradient: the clip of the global norm.
    pub gradient_scale: f64,
    /// Whether gradients are zeroed; otherwise they are left as they are.
    pub zero_gradient: bool,
}

/// The optimiser's state as plain numbers, for checkpoints.
#[derive(Debug, Clone)]
pub struct AdamHost {
    /// First moments of a shard, packed; of the whole model in the parameters' layout.
    pub m: Floats,
    /// Second moments, likewise.
    pub v: Floats,
    /// f32 master weights where the device's own parameters are coarser.
    pub master: Option<Floats>,
}

/// What the optimiser's state consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdamPart {
    /// First moments.
    First,
    /// Second moments.
    Second,
    /// f32 masters of coarser parameters.
    Master,
}

/// A machine that runs the kernels. Sizes are in elements; all matrices are dense and row-major.
pub trait Device: Send + Sync + Sized + 'static {
    /// Parameters and activations.
    type Buf: Send + Sync;
    /// Gradients of parameters.
    type Grad: Send + Sync;
    /// f32 per-row numbers.
    type Stat: Send + Sync;
    /// Token ids, row numbers, positions.
    type Ints: Send + Sync;
    /// Rotary tables.
    type Rope: Send + Sync;
    /// Adam's moments and, where parameters are coarser than f32, what they lack of their f32 masters: parameters and
    /// state together are the masters, so who writes parameters otherwise than by an update makes the state anew.
    type Adam: Send + Sync;
    /// Passes over some buffers that are started again as a whole; they go when the buffers go.
    type Passes: Default + Send + Sync;

    /// What to call it in errors and reports.
    fn name(&self) -> String;
    /// Bytes of one parameter, one gradient and one parameter's optimiser state.
    fn bytes_per_parameter(&self) -> (usize, usize, usize);
    /// Bytes that can still be allocated, where the device has memory of its own and tells.
    fn free_bytes(&self) -> Option<usize> {
        None
    }
    /// Most bytes of buffers at once so far, where the device has memory of its own.
    fn peak_bytes(&self) -> Option<usize> {
        None
    }
    /// Logits that should exist at the same time: few on a CPU, whose caches they should not leave, many on a
    /// GPU, whose products want many rows.
    fn logits_at_once(&self) -> usize {
        1 << 20
    }
    /// The next number of rows that the device likes: one for which products are planned and passes recorded anew costs
    /// more than some surplus rows. Not below `rows`, and the same for it.
    fn rounded(&self, rows: usize) -> usize {
        rows
    }
    /// Runs a training pass, which starts kernels and does nothing else; where one with the same description has run
    /// before, the device may start those kernels again without calling `run`.
    ///
    /// # Errors
    /// The device fails.
    fn pass(
        &self,
        _passes: &mut Self::Passes,
        _pass: Pass<'_, Self>,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        run()
    }
    /// Runs `f` where kernels should be started from (the CPU's thread pool).
    fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R;

    /// A zeroed buffer.
    fn buf(&self, len: usize) -> Result<Self::Buf>;
    /// Zeroed gradients.
    fn grad(&self, len: usize) -> Result<Self::Grad>;
    /// Zeroed statistics.
    fn stat(&self, len: usize) -> Result<Self::Stat>;
    /// Zeroed integers.
    fn ints(&self, len: usize) -> Result<Self::Ints>;
    /// The rotary tables on the device.
    fn rope_tables(&self, tables: RopeTables) -> Result<Self::Rope>;
    /// Host numbers as a buffer; on the CPU they are moved, not copied.
    fn adopt(&self, values: Floats) -> Result<Self::Buf>;
    /// Fresh optimiser state for a shard of the parameters, whatever they are: the masters are equal to them.
    fn adam(&self, shard: &Shard) -> Result<Self::Adam>;
    /// Zeroes the moments; masters stay.
    fn forget_moments(&self, adam: &mut Self::Adam) -> Result<()>;
    /// Zeros on the host, where copies from the device go fastest; they are not to be copied back to it.
    fn host(&self, len: usize) -> Floats {
        Floats::zeros(len)
    }
    /// A copy of the optimiser's state on the host.
    fn adam_to_host(&self, params: &Self::Buf, adam: &Self::Adam) -> Result<AdamHost>;
    /// Whether the optimiser's state holds f32 masters.
    fn has_masters(&self, adam: &Self::Adam) -> bool;
    /// Copies a part of the optimiser's state to the host, from element `from` of the packed shard.
    fn read_adam(
        &self,
        params: &Self::Buf,
        adam: &Self::Adam,
        part: AdamPart,
        from: usize,
        to: &mut [f32],
    ) -> Result<()>;
    /// Copies a part of the optimiser's state from the host, to element `to` of the packed shard. Masters also become
    /// the parameters, rounded; they go nowhere on a device that has none.
    fn write_adam(
        &self,
        from: &[f32],
        params: &mut Self::Buf,
        adam: &mut Self::Adam,
        part: AdamPart,
        to: usize,
    ) -> Result<()>;

    /// Copies numbers from the host into a buffer.
    fn write_buf(&self, from: &[f32], to: PartMut<'_, Self::Buf>) -> Result<()>;
    /// Copies little-endian bfloat16 as it is; `false` if buffers hold something else, and nothing was done.
    fn write_bf16(&self, _from: &[u8], _to: PartMut<'_, Self::Buf>) -> Result<bool> {
        Ok(false)
    }
    /// Copies a buffer to the host.
    fn read_buf(&self, from: Part<'_, Self::Buf>, to: &mut [f32]) -> Result<()>;
    /// Copies gradients to the host.
    fn read_grad(&self, from: Part<'_, Self::Grad>, to: &mut [f32]) -> Result<()>;
    /// Copies statistics to the host.
    fn read_stat(&self, from: Part<'_, Self::Stat>, to: &mut [f32]) -> Result<()>;
    /// Copies statistics from the host.
    fn write_stat(&self, from: &[f32], to: PartMut<'_, Self::Stat>) -> Result<()>;
    /// Copies integers from the host.
    fn write_ints(&self, from: &[u32], to: PartMut<'_, Self::Ints>) -> Result<()>;
    /// Zeroes a buffer.
    fn zero(&self, buf: PartMut<'_, Self::Buf>) -> Result<()>;
    /// Zeroes gradients.
    fn zero_grad(&self, grad: PartMut<'_, Self::Grad>) -> Result<()>;

    /// `out[i] = table[ids[i]]`, rows of `width`: the embedding, and the gathering of loss rows.
    fn gather(
        &self,
        table: Part<'_, Self::Buf>,
        ids: Part<'_, Self::Ints>,
        width: usize,
        out: PartMut<'_, Self::Buf>,
    ) -> Result<()>;
    /// `out[ids[i]] = rows[i]`; no id occurs twice.
    fn scatter(
        &self,
        rows: Part<'_, Self::Buf>,
        ids: Part<'_, Self::Ints>,
        width: usize,
        out: PartMut<'_, Self::Buf>,
    ) -> Result<()>;
    /// `table_grad[ids[i]] += dout[i]`; ids may repeat, the order of the sums is fixed.
    fn embed_backward(
        &self,
        dout: Part<'_, Self::Buf>,
        ids: Part<'_, Self::Ints>,
        width: usize,
        table_grad: PartMut<'_, Self::Grad>,
    ) -> Result<()>;

    /// `y = x wᵀ`; `x` is `[rows, input]`, `w` is `[output, input]`.
    fn linear(
        &self,
        size: Linear,
        x: Part<'_, Self::Buf>,
        w: Part<'_, Self::Buf>,
        y: PartMut<'_, Self::Buf>,
    ) -> Result<()>;
    /// `dx = dy w`.
    fn linear_dx(
        &self,
        size: Linear,
        dy: Part<'_, Self::Buf>,
        w: Part<'_, Self::Buf>,
        dx: PartMut<'_, Self::Buf>,
    ) -> Result<()>;
    /// `dw = dyᵀ x` or `dw += dyᵀ x`.
    fn linear_dw(
        &self,
        size: Linear,
        write: Write,
        dy: Part<'_, Self::Buf>,
        x: Part<'_, Self::Buf>,
        dw: PartMut<'_, Self::Grad>,
    ) -> Result<()>;
    /// `y[row] += bias`.
    fn add_bias(&self, y: PartMut<'_, Self::Buf>, bias: Part<'_, Self::Buf>) -> Result<()>;
    /// `db += Σ_rows dy`; `partial` is scratch of `rows.div_ceil(64) · width`.
    fn bias_backward(
        &self,
        dy: Part<'_, Self::Buf>,
        db: PartMut<'_, Self::Grad>,
        partial: &mut Self::Stat,
    ) -> Result<()>;
    /// `sum = a + b`.
    fn add(&self, a: Part<'_, Self::Buf>, b: Part<'_, Self::Buf>, sum: PartMut<'_, Self::Buf>) -> Result<()>;

    /// RMSNorm of every row, keeping `1 / rms`.
    fn rmsnorm(
        &self,
        x: Part<'_, Self::Buf>,
        w: Part<'_, Self::Buf>,
        eps: f32,
        y: PartMut<'_, Self::Buf>,
        rstd: &mut Self::Stat,
    ) -> Result<()>;
    /// `sum = x + r`, then RMSNorm of `sum`.
    #[allow(clippy::too_many_arguments)]
    fn add_rmsnorm(
        &self,
        x: Part<'_, Self::Buf>,
        r: Part<'_, Self::Buf>,
        w: Part<'_, Self::Buf>,
        eps: f32,
        sum: PartMut<'_, Self::Buf>,
        y: PartMut<'_, Self::Buf>,
        rstd: &mut Self::Stat,
    ) -> Result<()>;
    /// `dx += ∂L/∂x`, `dw += ∂L/∂w`; `partial` is scratch of `rows.div_ceil(64) · width`.
    #[allow(clippy::too_many_arguments)]
    fn rmsnorm_backward(
        &self,
        dy: Part<'_, Self::Buf>,
        x: Part<'_, Self::Buf>,
        rstd: &Self::Stat,
        w: Part<'_, Self::Buf>,
        dx: PartMut<'_, Self::Buf>,
        dw: PartMut<'_, Self::Grad>,
        partial: &mut Self::Stat,
    ) -> Result<()>;
    /// Rotates query and key heads of the merged matrix, forwards or (for gradients) backwards.
    fn rope(
        &self,
        qkv: PartMut<'_, Self::Buf>,
        heads: Heads,
        positions: Part<'_, Self::Ints>,
        tables: &Self::Rope,
        backward: bool,
    ) -> Result<()>;
    /// Causal attention within each sequence; `starts` are the first rows of the sequences and, last, the
    /// number of rows. `lse` is `[rows, heads]`: log-sum-exp of the scores.
    fn attention(
        &self,
        qkv: Part<'_, Self::Buf>,
        starts: &[usize],
        heads: Heads,
        out: PartMut<'_, Self::Buf>,
        lse: &mut Self::Stat,
    ) -> Result<()>;
    /// Gradient of the merged matrix from that of the output.
    #[allow(clippy::too_many_arguments)]
    fn attention_backward(
        &self,
        qkv: Part<'_, Self::Buf>,
        starts: &[usize],
        heads: Heads,
        out: Part<'_, Self::Buf>,
        lse: &Self::Stat,
        dout: Part<'_, Self::Buf>,
        dqkv: PartMut<'_, Self::Buf>,
    ) -> Result<()>;
    /// `act = silu(gate) up`; `gate_up` is `[rows, 2 width]`.
    fn swiglu(&self, gate_up: Part<'_, Self::Buf>, width: usize, act: PartMut<'_, Self::Buf>) -> Result<()>;
    /// In place: `gate_up` becomes its gradient, `act` goes from `∂L/∂act` to the activation.
    fn swiglu_backward(
        &self,
        gate_up: PartMut<'_, Self::Buf>,
        width: usize,
        act: PartMut<'_, Self::Buf>,
    ) -> Result<()>;

    /// Log-probs and entropies from logits `[rows, vocabulary]`; with [`RowLoss::backward`] the logits
    /// become the gradient of the loss.
    fn loss_rows(
        &self,
        loss: RowLoss,
        vocabulary: usize,
        logits: PartMut<'_, Self::Buf>,
        rows: LossRows<'_, Self>,
    ) -> Result<()>;

    /// `Σ g²` over all gradients, in a fixed order.
    fn sum_of_squares(&self, grad: &Self::Grad) -> Result<f64>;
    /// Updates one piece of parameters and moments; gradients and moments are packed as the piece says.
    fn adam_step(
        &self,
        update: AdamUpdate,
        layout: &Layout,
        piece: Piece,
        params: &mut Self::Buf,
        grad: &mut Self::Grad,
        adam: &mut Self::Adam,
    ) -> Result<()>;
}
