//! The trait that a back end implements: a list of kernels over buffers whose contents only the device can access.
//!
//! A device chooses its element types. On the CPU every buffer is f32. A GPU computes in bf16 ([`Device::Buf`])
//! with f32 statistics ([`Device::Stat`]), and its optimizer state holds the difference between the parameters
//! and their f32 master weights. Kernels never allocate; the model plans all buffers in advance.

use std::ops::{Deref, DerefMut, Range};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::footprint::Footprint;
use crate::host_buffer::HostBuffer;
use crate::layout::{Layout, Span};
use crate::rope::RopeTables;
use crate::shard::{Piece, Shard};

/// A readable part of a buffer.
#[derive(Debug)]
pub struct BufferSlice<'a, B> {
    /// The buffer.
    pub buf: &'a B,
    /// The range, in elements.
    pub range: Range<usize>,
}

/// A writable part of a buffer.
#[derive(Debug)]
pub struct BufferSliceMut<'a, B> {
    /// The buffer.
    pub buf: &'a mut B,
    /// The range, in elements.
    pub range: Range<usize>,
}

impl<T, B: Deref<Target = [T]>> BufferSlice<'_, B> {
    /// Returns the elements, if the buffer is in host memory.
    pub fn slice(&self) -> &[T] {
        &self.buf[self.range.clone()]
    }
}

impl<T, B: DerefMut<Target = [T]>> BufferSliceMut<'_, B> {
    /// Returns the elements for writing, if the buffer is in host memory.
    pub fn slice(&mut self) -> &mut [T] {
        &mut self.buf[self.range.clone()]
    }
}

/// Returns the tensor of `span` in a flat buffer.
pub fn at<B>(buf: &B, span: Span) -> BufferSlice<'_, B> {
    BufferSlice { buf, range: span.range() }
}

/// Returns the first `len` elements of a buffer.
pub fn first<B>(buf: &B, len: usize) -> BufferSlice<'_, B> {
    BufferSlice { buf, range: 0..len }
}

/// Returns the first `len` elements of a buffer, for writing.
pub fn first_mut<B>(buf: &mut B, len: usize) -> BufferSliceMut<'_, B> {
    BufferSliceMut { buf, range: 0..len }
}

/// Returns the number of rows of packed sequences. `starts` holds the first row of each sequence and, last, this number.
///
/// # Panics
/// Panics if `starts` is empty.
#[allow(clippy::expect_used, reason = "a missing row count must stop the program")]
pub fn row_count(starts: &[usize]) -> usize {
    *starts.last().expect("invariant: the starts of sequences end with the number of rows")
}

/// Sizes of a linear layer over `rows` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Number of tokens.
    pub rows: usize,
    /// Width of the input.
    pub input: usize,
    /// Width of the output.
    pub output: usize,
}

/// Element type of a device's products. Their sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// bfloat16. A GPU also stores parameters and activations in it, with f32 master weights in the optimizer.
    Bf16,
    /// f32.
    F32,
}

/// How a product treats the old contents of its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Overwrites them.
    Set,
    /// Adds to them.
    Add,
}

/// Head counts and width. A row of the merged query, key and value matrix has `heads + 2 kv_heads` heads.
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
    /// Returns the heads of a model.
    pub fn of(config: &ModelConfig) -> Self {
        Self { heads: config.heads, kv_heads: config.kv_heads, head_dim: config.head_dim }
    }

    /// Returns the width of a row of the merged query, key and value matrix.
    pub fn qkv_dim(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// Defines the loss of a row as a function of its log-probability and its distribution; the same for all rows
/// of a call. [`crate::loss`] has the formulas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowLoss {
    /// Bounds of CISPO's importance ratio; `None` means a ratio of 1.
    pub ratio_bounds: Option<(f32, f32)>,
    /// Coefficient of the entropy bonus.
    pub entropy_bonus: f32,
    /// Coefficient of the KL penalty towards the reference log-probabilities.
    pub kl_penalty: f32,
    /// Whether to compute gradients; if not, the logits are unchanged.
    pub backward: bool,
}

/// Inputs and outputs of the loss for the rows of one block, each `[rows]`.
#[derive(Debug)]
pub struct LossRows<'a, D: Device> {
    /// The token that follows each row.
    pub targets: BufferSlice<'a, D::Ints>,
    /// Weight of the row's log-probability in the loss, including the normaliser; positive or negative.
    pub weight: BufferSlice<'a, D::Stat>,
    /// The normaliser alone, for the entropy bonus and the KL penalty.
    pub norm: BufferSlice<'a, D::Stat>,
    /// Log-probability of the target when it was sampled.
    pub old: BufferSlice<'a, D::Stat>,
    /// Log-probability of the target under the reference model.
    pub reference: BufferSlice<'a, D::Stat>,
    /// Output: the current log-probability of the target.
    pub log_prob: BufferSliceMut<'a, D::Stat>,
    /// Output: entropy of the distribution, in nats.
    pub entropy: BufferSliceMut<'a, D::Stat>,
}

/// Describes a training pass. Two passes with equal descriptions start the same kernels; only the contents of
/// their buffers differ.
#[derive(Debug)]
pub struct Pass<'a, D: Device> {
    /// The model's parameters.
    pub params: &'a D::Buf,
    /// Tables of the rotary position embedding.
    pub rope: &'a D::Rope,
    /// First row of each sequence and, last, the number of rows.
    pub starts: &'a [usize],
    /// Number of rows with a loss.
    pub loss_rows: usize,
    /// Head counts and width.
    pub heads: Heads,
    /// The loss of a row.
    pub loss: RowLoss,
    /// How products treat existing gradients.
    pub write: Write,
}

/// One Adam update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamUpdate {
    /// Number of this update, from 1 (for the bias correction).
    pub t: u64,
    /// Learning rate of this update.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices; norms and biases are never decayed.
    pub weight_decay: f64,
    /// Factor for every gradient, which clips the global norm.
    pub gradient_scale: f64,
    /// Whether to zero the gradients after the update.
    pub zero_gradient: bool,
}

/// The optimizer's state in host memory, for checkpoints.
#[derive(Debug, Clone)]
pub struct AdamHost {
    /// First moments: packed for a shard, or in the layout of the parameters for the whole model.
    pub m: HostBuffer,
    /// Second moments, in the same order.
    pub v: HostBuffer,
    /// f32 master weights, if the device's parameters have a lower precision.
    pub master: Option<HostBuffer>,
}

/// A component of the optimizer's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdamPart {
    /// First moments.
    First,
    /// Second moments.
    Second,
    /// f32 master weights of parameters with a lower precision.
    Master,
}

/// A part of a buffer that a kernel reads.
pub type In<'a, D> = BufferSlice<'a, <D as Device>::Buf>;
/// A part of a buffer that a kernel writes.
pub type Out<'a, D> = BufferSliceMut<'a, <D as Device>::Buf>;
/// Token ids, row indices or positions that a kernel reads.
pub type Ids<'a, D> = BufferSlice<'a, <D as Device>::Ints>;
/// Gradients that a kernel writes.
pub type GradOut<'a, D> = BufferSliceMut<'a, <D as Device>::Grad>;

/// A device that runs kernels. Sizes are in elements; all matrices are dense and row-major.
pub trait Device: Send + Sync + Sized + 'static {
    /// Parameters and activations.
    type Buf: Send + Sync;
    /// Gradients of parameters.
    type Grad: Send + Sync;
    /// f32 statistics per row.
    type Stat: Send + Sync;
    /// Token ids, row indices, positions.
    type Ints: Send + Sync;
    /// Rotary tables.
    type Rope: Send + Sync;
    /// Adam's moments and, if the precision of parameters is lower than f32, the difference from their f32 master
    /// weights. Parameters and state together determine the master weights, so code that changes parameters other than
    /// by an update must create the state again.
    type Adam: Send + Sync;
    /// Recorded passes over certain buffers; dropped together with these buffers.
    type Passes: Default + Send + Sync;

    /// Returns the device's name for errors and reports.
    fn name(&self) -> String;
    /// Returns the sizes of the buffers that this device allocates.
    fn footprint(&self) -> &dyn Footprint;
    /// Returns the free memory in bytes, if the device has separate memory and reports it.
    fn free_bytes(&self) -> Option<usize> {
        None
    }
    /// Returns the peak memory of all buffers in bytes, if the device has separate memory.
    fn peak_bytes(&self) -> Option<usize> {
        None
    }
    /// Rounds a number of rows up to one that the device prefers, if planning products and recording passes for
    /// a new number costs more than some surplus rows. Idempotent, and never less than `rows`.
    fn round_up_rows(&self, rows: usize) -> usize {
        rows
    }
    /// Runs a training pass, which must only start kernels. If a pass with the same description has run before,
    /// the device may start its kernels again without calling `run`.
    fn pass(
        &self,
        _passes: &mut Self::Passes,
        _pass: Pass<'_, Self>,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        run()
    }
    /// Runs `f` in the context from which kernels must be started (the CPU's thread pool).
    fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R;

    /// Allocates a zeroed buffer.
    fn buf(&self, len: usize) -> Result<Self::Buf>;
    /// Allocates zeroed gradients.
    fn grad(&self, len: usize) -> Result<Self::Grad>;
    /// Allocates zeroed statistics.
    fn stat(&self, len: usize) -> Result<Self::Stat>;
    /// Allocates zeroed integers.
    fn ints(&self, len: usize) -> Result<Self::Ints>;
    /// Copies rotary tables to the device.
    fn rope_tables(&self, tables: RopeTables) -> Result<Self::Rope>;
    /// Moves host numbers into a buffer; the CPU does not copy them.
    fn upload(&self, values: HostBuffer) -> Result<Self::Buf>;
    /// Creates optimizer state for a shard of the parameters. The master weights are equal to the parameters,
    /// whatever their values.
    fn adam(&self, shard: &Shard) -> Result<Self::Adam>;
    /// Zeroes the moments; master weights are unchanged.
    fn reset_moments(&self, adam: &mut Self::Adam) -> Result<()>;
    /// Allocates zeros in host memory to which copies from the device are fastest. They must not be copied back
    /// to the device.
    fn host(&self, len: usize) -> HostBuffer {
        HostBuffer::zeros(len)
    }
    /// Copies the optimizer's state to the host.
    fn adam_to_host(&self, params: &Self::Buf, adam: &Self::Adam) -> Result<AdamHost>;
    /// Returns whether the optimizer's state includes f32 master weights.
    fn has_masters(&self, adam: &Self::Adam) -> bool;
    /// Copies a component of the optimizer's state to the host, starting at element `from` of the packed shard.
    fn read_adam(
        &self,
        params: &Self::Buf,
        adam: &Self::Adam,
        part: AdamPart,
        from: usize,
        to: &mut [f32],
    ) -> Result<()>;
    /// Copies a component of the optimizer's state from the host to element `to` of the packed shard. Master
    /// weights, rounded, also become the parameters; a device without master weights ignores them.
    fn write_adam(
        &self,
        from: &[f32],
        params: &mut Self::Buf,
        adam: &mut Self::Adam,
        part: AdamPart,
        to: usize,
    ) -> Result<()>;

    /// Copies numbers from the host into a buffer.
    fn write_buf(&self, from: &[f32], to: Out<'_, Self>) -> Result<()>;
    /// Copies little-endian bfloat16 without conversion. Returns `false`, without effect, if the buffer's
    /// element type is different.
    fn write_bf16(&self, _from: &[u8], _to: Out<'_, Self>) -> Result<bool> {
        Ok(false)
    }
    /// Copies a buffer to the host.
    fn read_buf(&self, from: In<'_, Self>, to: &mut [f32]) -> Result<()>;
    /// Copies gradients to the host.
    fn read_grad(&self, from: BufferSlice<'_, Self::Grad>, to: &mut [f32]) -> Result<()>;
    /// Copies statistics to the host.
    fn read_stat(&self, from: BufferSlice<'_, Self::Stat>, to: &mut [f32]) -> Result<()>;
    /// Copies statistics from the host.
    fn write_stat(&self, from: &[f32], to: BufferSliceMut<'_, Self::Stat>) -> Result<()>;
    /// Copies integers from the host.
    fn write_ints(&self, from: &[u32], to: BufferSliceMut<'_, Self::Ints>) -> Result<()>;
    /// Zeroes a buffer.
    fn zero(&self, buf: Out<'_, Self>) -> Result<()>;
    /// Zeroes gradients.
    fn zero_grad(&self, grad: GradOut<'_, Self>) -> Result<()>;

    /// Computes `out[i] = table[ids[i]]` for rows of `width` elements: the embedding, and the selection of loss rows.
    fn gather(&self, table: In<'_, Self>, ids: Ids<'_, Self>, width: usize, out: Out<'_, Self>)
    -> Result<()>;
    /// Computes `out[ids[i]] = rows[i]`; the ids are distinct.
    fn scatter(&self, rows: In<'_, Self>, ids: Ids<'_, Self>, width: usize, out: Out<'_, Self>)
    -> Result<()>;
    /// Computes `table_grad[ids[i]] += dout[i]`; ids may repeat, and the order of summation is fixed.
    fn embed_backward(
        &self,
        dout: In<'_, Self>,
        ids: Ids<'_, Self>,
        width: usize,
        table_grad: GradOut<'_, Self>,
    ) -> Result<()>;

    /// Computes `y = x wᵀ`; `x` is `[rows, input]`, `w` is `[output, input]`.
    fn linear(&self, size: Linear, x: In<'_, Self>, w: In<'_, Self>, y: Out<'_, Self>) -> Result<()>;
    /// Computes `dx = dy w`.
    fn linear_dx(&self, size: Linear, dy: In<'_, Self>, w: In<'_, Self>, dx: Out<'_, Self>) -> Result<()>;
    /// Computes `dw = dyᵀ x` or `dw += dyᵀ x`.
    fn linear_dw(
        &self,
        size: Linear,
        write: Write,
        dy: In<'_, Self>,
        x: In<'_, Self>,
        dw: GradOut<'_, Self>,
    ) -> Result<()>;
    /// Computes `y[row] += bias`.
    fn add_bias(&self, y: Out<'_, Self>, bias: In<'_, Self>) -> Result<()>;
    /// Computes `db += Σ_rows dy`; `partial` is scratch of `rows.div_ceil(64) · width`.
    fn bias_backward(&self, dy: In<'_, Self>, db: GradOut<'_, Self>, partial: &mut Self::Stat) -> Result<()>;
    /// Computes `sum = a + b`.
    fn add(&self, a: In<'_, Self>, b: In<'_, Self>, sum: Out<'_, Self>) -> Result<()>;

    /// Applies RMSNorm to every row; stores `1 / rms`.
    fn rmsnorm(
        &self,
        x: In<'_, Self>,
        w: In<'_, Self>,
        eps: f32,
        y: Out<'_, Self>,
        rstd: &mut Self::Stat,
    ) -> Result<()>;
    /// Computes `sum = x + r`, then applies RMSNorm to `sum`.
    #[allow(clippy::too_many_arguments)]
    fn add_rmsnorm(
        &self,
        x: In<'_, Self>,
        r: In<'_, Self>,
        w: In<'_, Self>,
        eps: f32,
        sum: Out<'_, Self>,
        y: Out<'_, Self>,
        rstd: &mut Self::Stat,
    ) -> Result<()>;
    /// Computes `dx += ∂L/∂x` and `dw += ∂L/∂w`; `partial` is scratch of `rows.div_ceil(64) · width`.
    #[allow(clippy::too_many_arguments)]
    fn rmsnorm_backward(
        &self,
        dy: In<'_, Self>,
        x: In<'_, Self>,
        rstd: &Self::Stat,
        w: In<'_, Self>,
        dx: Out<'_, Self>,
        dw: GradOut<'_, Self>,
        partial: &mut Self::Stat,
    ) -> Result<()>;
    /// Applies RMSNorm to every query and key head: `out` is the merged matrix with normalised queries and keys. `w` is
    /// `[2, head_dim]`, the weights for query heads and for key heads.
    fn head_norm(
        &self,
        qkv: In<'_, Self>,
        heads: Heads,
        w: In<'_, Self>,
        eps: f32,
        out: Out<'_, Self>,
    ) -> Result<()>;
    /// Replaces `dqkv`, the gradient of `head_norm`'s output, by that of its input `qkv`, in place; `dw += ∂L/∂w`.
    /// `partial` is scratch of `rows.div_ceil(64) · 2 head_dim`.
    #[allow(clippy::too_many_arguments)]
    fn head_norm_backward(
        &self,
        qkv: In<'_, Self>,
        heads: Heads,
        w: In<'_, Self>,
        eps: f32,
        dqkv: Out<'_, Self>,
        dw: GradOut<'_, Self>,
        partial: &mut Self::Stat,
    ) -> Result<()>;
    /// Rotates the query and key heads of the merged matrix, forwards or (for gradients) backwards.
    fn rope(
        &self,
        qkv: Out<'_, Self>,
        heads: Heads,
        positions: Ids<'_, Self>,
        tables: &Self::Rope,
        backward: bool,
    ) -> Result<()>;
    /// Computes causal attention within each sequence. `starts` holds the first row of each sequence and, last, the
    /// number of rows. `lse` is `[rows, heads]`: log-sum-exp of the scores.
    fn attention(
        &self,
        qkv: In<'_, Self>,
        starts: &[usize],
        heads: Heads,
        out: Out<'_, Self>,
        lse: &mut Self::Stat,
    ) -> Result<()>;
    /// Computes the gradient of the merged matrix from the gradient of the output.
    #[allow(clippy::too_many_arguments)]
    fn attention_backward(
        &self,
        qkv: In<'_, Self>,
        starts: &[usize],
        heads: Heads,
        out: In<'_, Self>,
        lse: &Self::Stat,
        dout: In<'_, Self>,
        dqkv: Out<'_, Self>,
    ) -> Result<()>;
    /// Computes `act = silu(gate) up`; `gate_up` is `[rows, 2 width]`.
    fn swiglu(&self, gate_up: In<'_, Self>, width: usize, act: Out<'_, Self>) -> Result<()>;
    /// Replaces `gate_up` by its gradient, and `act`, which holds `∂L/∂act`, by the activation, both in place.
    fn swiglu_backward(&self, gate_up: Out<'_, Self>, width: usize, act: Out<'_, Self>) -> Result<()>;

    /// Computes log-probabilities and entropies from logits `[rows, vocabulary]`; with [`RowLoss::backward`]
    /// the logits are replaced by the gradient of the loss.
    fn loss_rows(
        &self,
        loss: RowLoss,
        vocabulary: usize,
        logits: Out<'_, Self>,
        rows: LossRows<'_, Self>,
    ) -> Result<()>;

    /// Returns `Σ g²` over all gradients, summed in a fixed order.
    fn sum_of_squares(&self, grad: &Self::Grad) -> Result<f64>;
    /// Updates one piece of parameters and moments; gradients and moments are packed in the order of the shard.
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
