//! Implements [`Device`] for the GPU: checks the ranges of buffers and starts kernels on their addresses.

use super::attention::AttentionBackward;
use super::gpu::{Arg, Array, Element, LossArg, Pinned, int};
use super::work::LinearProduct;
use super::{Cuda, Passes, Precision, SQUARES};
use sgs_lm::config::ModelConfig;
use sgs_lm::device::{
    AdamHost, AdamPart, AdamUpdate, BufferSlice, BufferSliceMut, Device, Heads, Linear, LossRows, Pass,
    RowLoss, Write, row_count,
};
use sgs_lm::error::{LmError, Result};
use sgs_lm::footprint::Footprint;
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::layout::Layout;
use sgs_lm::model::Model;
use sgs_lm::model::plan::PARTIAL_ROWS;
use sgs_lm::rope::RopeTables;
use sgs_lm::shard::{Piece, Shard};

use std::sync::{Arc, PoisonError};

use rayon::prelude::*;

/// Number of elements that a copy between host and device converts at a time.
pub(super) const PIECE: usize = 1 << 24;

/// Rotary tables on the GPU.
#[derive(Debug)]
pub struct CudaRope {
    pub(super) cos: Array<f32>,
    pub(super) sin: Array<f32>,
    pub(super) half: usize,
}

/// Adam's moments and, if parameters are bfloat16, the remainders of their f32 master weights
/// ([`sgs_lm::master_weights`]).
#[derive(Debug)]
pub struct CudaAdam {
    m: Array<f32>,
    v: Array<f32>,
    remainder: Option<Array<u16>>,
    /// Maps elements of the state to parameters.
    shard: Shard,
}

fn ptr<E>(part: &BufferSlice<'_, Array<E>>) -> Result<Arg> {
    Ok(Arg::Ptr(part.buf.at(&part.range)?))
}

fn ptr_mut<E>(part: &BufferSliceMut<'_, Array<E>>) -> Result<Arg> {
    Ok(Arg::Ptr(part.buf.at(&part.range)?))
}

fn address(argument: Arg) -> u64 {
    match argument {
        Arg::Ptr(address) => address,
        _ => 0,
    }
}

/// Returns the number of threads per block, if each thread processes eight columns.
fn threads(width: usize, most: usize) -> usize {
    width.div_ceil(8).next_multiple_of(32).clamp(32, most)
}

/// Returns the number of partial rows of weight gradients (at most `room`), and the number of the `rows` that are
/// summed into each. There is one block per partial row, which processes its rows one after the other.
fn partial_rows(rows: usize, room: usize) -> (usize, usize) {
    let each = rows.div_ceil(room.clamp(1, PARTIAL_ROWS)).max(1);
    (rows.div_ceil(each), each)
}

impl Cuda {
    /// Creates an error about the arguments of a call.
    fn wrong(what: String) -> LmError {
        LmError::Input(what)
    }

    /// Starts a kernel that processes whole rows.
    fn rows(&self, kernel: super::CudaKernel, rows: usize, block: usize, arguments: &[Arg]) -> Result<()> {
        self.gpu.launch(kernel, (rows, 1), block, 0, arguments)
    }

    pub(super) fn floats(&self, len: usize) -> Result<Array<f32>> {
        Array::zeros(&self.gpu, len, 4)
    }

    fn product(&self, product: LinearProduct, size: Linear, a: Arg, b: Arg, c: Arg) -> Result<()> {
        self.blas.run(product, size, address(a), address(b), address(c))
    }

    /// Copies master weights to the host, starting at element `from` of the packed shard.
    fn read_masters(
        &self,
        params: &Array<Element>,
        adam: &CudaAdam,
        remainder: &Array<u16>,
        from: usize,
        to: &mut [f32],
    ) -> Result<()> {
        remainder.at(&(from..from + to.len()))?;
        let staging = self.floats(PIECE.min(to.len()))?;
        for (i, to) in to.chunks_mut(PIECE).enumerate() {
            let start = from + i * PIECE;
            for piece in adam.shard.packed(start..start + to.len()) {
                let staged = piece.at - start..piece.at - start + piece.len;
                let arguments = [
                    Arg::Ptr(params.at(&piece.flat())?),
                    Arg::Ptr(remainder.at(&piece.packed())?),
                    Arg::Ptr(staging.at(&staged)?),
                    Arg::Long(piece.len as u64),
                ];
                self.rows(self.kernels.join_masters, piece.len.div_ceil(256), 256, &arguments)?;
            }
            staging.read(0, to)?;
        }
        Ok(())
    }

    /// Splits master weights from the host into parameters and remainders, starting at element `to` of the
    /// packed shard.
    fn write_masters(
        &self,
        from: &[f32],
        params: &Array<Element>,
        shard: &Shard,
        remainder: &Array<u16>,
        to: usize,
    ) -> Result<()> {
        remainder.at(&(to..to + from.len()))?;
        let mut staging = self.floats(PIECE.min(from.len()))?;
        for (i, from) in from.chunks(PIECE).enumerate() {
            staging.write(from, 0)?;
            let start = to + i * PIECE;
            for piece in shard.packed(start..start + from.len()) {
                let staged = piece.at - start..piece.at - start + piece.len;
                let arguments = [
                    Arg::Ptr(staging.at(&staged)?),
                    Arg::Ptr(params.at(&piece.flat())?),
                    Arg::Ptr(remainder.at(&piece.packed())?),
                    Arg::Long(piece.len as u64),
                ];
                self.rows(self.kernels.split_masters, piece.len.div_ceil(256), 256, &arguments)?;
            }
        }
        // The staging buffer is freed after this wait.
        self.gpu.wait()
    }

    /// Creates a model with random weights directly on the GPU, for benchmarks: standard deviation 0.02, norms
    /// 1, biases 0.
    ///
    /// # Errors
    /// Returns an error if the GPU runs out of memory.
    pub fn random_model(self: &Arc<Self>, config: &ModelConfig, max_positions: usize) -> Result<Model<Self>> {
        let layout = Layout::new(config);
        let max_positions = max_positions.min(config.max_positions);
        let rope = self.rope_tables(RopeTables::new(config, max_positions))?;
        let mut params = self.noise(layout.len, 0)?;
        for tensor in layout.tensors.iter().filter(|t| t.shape.len() == 1) {
            let value = if tensor.name.ends_with("norm.weight") { 1.0f32 } else { 0.0 };
            let (start, len) = (tensor.span.offset, tensor.span.len);
            match self.footprint.precision {
                Precision::F32 => params.write(&vec![value; len], start)?,
                Precision::Bf16 => params.write(&vec![half::bf16::from_f32(value); len], start)?,
            }
        }
        let config = config.clone();
        Ok(Model { device: Arc::clone(self), config, layout, params, rope, max_positions })
    }

    /// Creates uniform noise of standard deviation 0.02 on the GPU.
    ///
    /// # Errors
    /// Returns an error if the GPU runs out of memory.
    pub fn noise(&self, n: usize, seed: u64) -> Result<Array<Element>> {
        let buf = self.buf(n)?;
        let at = Arg::Ptr(buf.front(n)?);
        // The streams of different seeds do not overlap.
        let arguments = [at, Arg::Long(n as u64), Arg::Long(seed << 40), Arg::Float(0.02)];
        self.rows(self.kernels.noise, n.div_ceil(256), 256, &arguments)?;
        Ok(buf)
    }

    fn upload(&self, values: &[f32]) -> Result<Array<f32>> {
        let mut array = self.floats(values.len())?;
        array.write(values, 0)?;
        Ok(array)
    }

    fn download(&self, from: &Array<f32>) -> Result<HostBuffer> {
        let mut host = HostBuffer::zeros(from.len);
        from.read(0, &mut host)?;
        Ok(host)
    }

    /// Adds partial rows to a gradient.
    fn add_partials(&self, partial: Arg, parts: usize, width: usize, out: Arg) -> Result<()> {
        let arguments = [partial, int(parts), int(width), out];
        self.rows(self.kernels.sum_partials, width.div_ceil(32), 256, &arguments)
    }

    /// Returns the width of heads, if the kernels can normalise it.
    fn normed_width(heads: Heads) -> Result<usize> {
        match heads.head_dim {
            width @ ..=256 => Ok(width),
            width => Err(Self::wrong(format!("heads have width {width}; the GPU normalises up to 256"))),
        }
    }

    /// Normalises query and key heads; the two buffers, source and destination, may be the same.
    pub(super) fn normalise_heads(
        &self,
        [from, to]: [Arg; 2],
        rows: usize,
        heads: Heads,
        w: &BufferSlice<'_, Array<Element>>,
        eps: f32,
    ) -> Result<()> {
        let normed = heads.heads + heads.kv_heads;
        let arguments = [
            from,
            int(heads.qkv_dim()),
            int(heads.heads),
            int(normed),
            int(Self::normed_width(heads)?),
            ptr(w)?,
            Arg::Float(eps),
            to,
        ];
        self.rows(self.kernels.head_norm, rows, (32 * normed).min(256), &arguments)
    }

    #[allow(clippy::too_many_arguments)]
    fn normalise(
        &self,
        x: BufferSlice<'_, Array<Element>>,
        residual: Arg,
        w: BufferSlice<'_, Array<Element>>,
        eps: f32,
        sum: Arg,
        y: BufferSliceMut<'_, Array<Element>>,
        rstd: &mut Array<f32>,
    ) -> Result<()> {
        let width = w.range.len();
        let rows = x.range.len() / width.max(1);
        let arguments = [
            ptr(&x)?,
            residual,
            ptr(&w)?,
            Arg::Float(eps),
            int(width),
            sum,
            ptr_mut(&y)?,
            Arg::Ptr(rstd.front(rows)?),
        ];
        self.rows(self.kernels.rmsnorm, rows, threads(width, 512), &arguments)
    }
}

impl Device for Cuda {
    type Buf = Array<Element>;
    type Grad = Array<f32>;
    type Stat = Array<f32>;
    type Ints = Array<u32>;
    type Rope = CudaRope;
    type Adam = CudaAdam;
    type Passes = Passes;

    fn name(&self) -> String {
        let kind = match self.footprint.precision {
            Precision::Bf16 => "bf16",
            Precision::F32 => "f32",
        };
        format!("{}, {kind}", self.gpu.label())
    }

    fn footprint(&self) -> &dyn Footprint {
        &self.footprint
    }

    fn free_bytes(&self) -> Option<usize> {
        self.gpu.free_memory().ok().map(|(free, _)| free)
    }

    fn peak_bytes(&self) -> Option<usize> {
        Some(self.gpu.peak_bytes())
    }

    fn round_up_rows(&self, rows: usize) -> usize {
        let step = match rows {
            0..=512 => 64,
            513..=2048 => 128,
            _ => 256,
        };
        rows.next_multiple_of(step)
    }

    fn pass(&self, passes: &mut Passes, pass: Pass<'_, Self>, run: impl FnMut() -> Result<()>) -> Result<()> {
        passes.run(self, &pass, run)
    }

    fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        f()
    }

    fn buf(&self, len: usize) -> Result<Array<Element>> {
        Array::zeros(&self.gpu, len, self.width())
    }

    fn grad(&self, len: usize) -> Result<Array<f32>> {
        self.floats(len)
    }

    fn stat(&self, len: usize) -> Result<Array<f32>> {
        self.floats(len)
    }

    fn ints(&self, len: usize) -> Result<Array<u32>> {
        Array::zeros(&self.gpu, len, 4)
    }

    fn rope_tables(&self, tables: RopeTables) -> Result<CudaRope> {
        let (cos, sin) = (self.upload(&tables.cos)?, self.upload(&tables.sin)?);
        Ok(CudaRope { cos, sin, half: tables.half })
    }

    fn upload(&self, values: HostBuffer) -> Result<Array<Element>> {
        let mut buf = self.buf(values.len())?;
        if self.footprint.precision == Precision::F32 {
            buf.write(&values[..], 0)?;
            return Ok(buf);
        }
        let mut piece = self.floats(PIECE.min(values.len()))?;
        for (i, values) in values.chunks(PIECE).enumerate() {
            piece.write(values, 0)?;
            let range = i * PIECE..i * PIECE + values.len();
            let n = values.len();
            let arguments = [Arg::Ptr(piece.front(n)?), Arg::Ptr(buf.at(&range)?), Arg::Long(n as u64)];
            self.rows(self.kernels.narrow, n.div_ceil(256), 256, &arguments)?;
        }
        // `piece` is freed after this wait; the numbers of the host are already staged.
        self.gpu.wait()?;
        Ok(buf)
    }

    fn adam(&self, shard: &Shard) -> Result<CudaAdam> {
        let (m, v) = (self.floats(shard.len)?, self.floats(shard.len)?);
        let remainder = match self.footprint.precision {
            Precision::Bf16 => Some(Array::zeros(&self.gpu, shard.len, 2)?),
            Precision::F32 => None,
        };
        Ok(CudaAdam { m, v, remainder, shard: shard.clone() })
    }

    fn reset_moments(&self, adam: &mut CudaAdam) -> Result<()> {
        let all = 0..adam.shard.len;
        adam.m.zero(&all)?;
        adam.v.zero(&all)
    }

    fn host(&self, len: usize) -> HostBuffer {
        match Pinned::filled(&self.gpu, len, 0.0f32) {
            Ok(pages) if len > 0 => HostBuffer::lent(Box::new(pages)),
            _ => HostBuffer::zeros(len),
        }
    }

    fn adam_to_host(&self, params: &Array<Element>, adam: &CudaAdam) -> Result<AdamHost> {
        let master = match &adam.remainder {
            Some(remainder) => {
                let mut host = HostBuffer::zeros(adam.shard.len);
                self.read_masters(params, adam, remainder, 0, &mut host)?;
                Some(host)
            }
            None => None,
        };
        Ok(AdamHost { m: self.download(&adam.m)?, v: self.download(&adam.v)?, master })
    }

    fn has_masters(&self, adam: &CudaAdam) -> bool {
        adam.remainder.is_some()
    }

    fn read_adam(
        &self,
        params: &Array<Element>,
        adam: &CudaAdam,
        part: AdamPart,
        from: usize,
        to: &mut [f32],
    ) -> Result<()> {
        match part {
            AdamPart::First => adam.m.read(from, to),
            AdamPart::Second => adam.v.read(from, to),
            AdamPart::Master => match &adam.remainder {
                Some(remainder) => self.read_masters(params, adam, remainder, from, to),
                None => {
                    Err(Self::wrong("with f32 parameters there are no separate master weights".to_owned()))
                }
            },
        }
    }

    fn write_adam(
        &self,
        from: &[f32],
        params: &mut Array<Element>,
        adam: &mut CudaAdam,
        part: AdamPart,
        to: usize,
    ) -> Result<()> {
        match (part, &adam.remainder) {
            (AdamPart::First, _) => adam.m.write(from, to),
            (AdamPart::Second, _) => adam.v.write(from, to),
            (AdamPart::Master, Some(remainder)) => {
                self.write_masters(from, params, &adam.shard, remainder, to)
            }
            (AdamPart::Master, None) => Ok(()),
        }
    }

    fn write_buf(&self, from: &[f32], to: BufferSliceMut<'_, Array<Element>>) -> Result<()> {
        if self.footprint.precision == Precision::F32 {
            return to.buf.write(from, to.range.start);
        }
        let narrow: Vec<half::bf16> = from.par_iter().map(|x| half::bf16::from_f32(*x)).collect();
        to.buf.write(&narrow, to.range.start)
    }

    fn write_bf16(&self, from: &[u8], to: BufferSliceMut<'_, Array<Element>>) -> Result<bool> {
        if self.footprint.precision == Precision::F32 {
            return Ok(false);
        }
        let (pairs, _) = from.as_chunks::<2>();
        to.buf.write(pairs, to.range.start)?;
        Ok(true)
    }

    fn read_buf(&self, from: BufferSlice<'_, Array<Element>>, to: &mut [f32]) -> Result<()> {
        if self.footprint.precision == Precision::F32 {
            return from.buf.read(from.range.start, to);
        }
        let piece = self.floats(PIECE.min(to.len()))?;
        for (i, to) in to.chunks_mut(PIECE).enumerate() {
            let start = from.range.start + i * PIECE;
            let arguments = [
                Arg::Ptr(from.buf.at(&(start..start + to.len()))?),
                Arg::Ptr(piece.front(to.len())?),
                Arg::Long(to.len() as u64),
            ];
            self.rows(self.kernels.widen, to.len().div_ceil(256), 256, &arguments)?;
            piece.read(0, to)?;
        }
        Ok(())
    }

    fn read_grad(&self, from: BufferSlice<'_, Array<f32>>, to: &mut [f32]) -> Result<()> {
        from.buf.read(from.range.start, to)
    }

    fn read_stat(&self, from: BufferSlice<'_, Array<f32>>, to: &mut [f32]) -> Result<()> {
        from.buf.read(from.range.start, to)
    }

    fn write_stat(&self, from: &[f32], to: BufferSliceMut<'_, Array<f32>>) -> Result<()> {
        to.buf.write(from, to.range.start)
    }

    fn write_ints(&self, from: &[u32], to: BufferSliceMut<'_, Array<u32>>) -> Result<()> {
        to.buf.write(from, to.range.start)
    }

    fn zero(&self, buf: BufferSliceMut<'_, Array<Element>>) -> Result<()> {
        buf.buf.zero(&buf.range)
    }

    fn zero_grad(&self, grad: BufferSliceMut<'_, Array<f32>>) -> Result<()> {
        grad.buf.zero(&grad.range)
    }

    fn gather(
        &self,
        table: BufferSlice<'_, Array<Element>>,
        ids: BufferSlice<'_, Array<u32>>,
        width: usize,
        out: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let arguments = [ptr(&table)?, ptr(&ids)?, int(width), ptr_mut(&out)?];
        self.rows(self.kernels.gather, ids.range.len(), threads(width, 256), &arguments)
    }

    fn scatter(
        &self,
        rows: BufferSlice<'_, Array<Element>>,
        ids: BufferSlice<'_, Array<u32>>,
        width: usize,
        out: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let arguments = [ptr(&rows)?, ptr(&ids)?, int(width), ptr_mut(&out)?];
        self.rows(self.kernels.scatter, ids.range.len(), threads(width, 256), &arguments)
    }

    fn embed_backward(
        &self,
        dout: BufferSlice<'_, Array<Element>>,
        ids: BufferSlice<'_, Array<u32>>,
        width: usize,
        table_grad: BufferSliceMut<'_, Array<f32>>,
    ) -> Result<()> {
        let n = ids.range.len();
        let arguments = [ptr(&dout)?, ptr(&ids)?, int(n), int(width), ptr_mut(&table_grad)?];
        self.gpu.launch(self.kernels.embed_backward, (n, width.div_ceil(256 * 8)), 256, 0, &arguments)
    }

    fn linear(
        &self,
        size: Linear,
        x: BufferSlice<'_, Array<Element>>,
        w: BufferSlice<'_, Array<Element>>,
        y: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        self.product(LinearProduct::Forward, size, ptr(&x)?, ptr(&w)?, ptr_mut(&y)?)
    }

    fn linear_dx(
        &self,
        size: Linear,
        dy: BufferSlice<'_, Array<Element>>,
        w: BufferSlice<'_, Array<Element>>,
        dx: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        self.product(LinearProduct::Input, size, ptr(&dy)?, ptr(&w)?, ptr_mut(&dx)?)
    }

    fn linear_dw(
        &self,
        size: Linear,
        write: Write,
        dy: BufferSlice<'_, Array<Element>>,
        x: BufferSlice<'_, Array<Element>>,
        dw: BufferSliceMut<'_, Array<f32>>,
    ) -> Result<()> {
        self.product(LinearProduct::Weight(write), size, ptr(&dy)?, ptr(&x)?, ptr_mut(&dw)?)
    }

    fn add_bias(
        &self,
        y: BufferSliceMut<'_, Array<Element>>,
        bias: BufferSlice<'_, Array<Element>>,
    ) -> Result<()> {
        let width = bias.range.len();
        let arguments = [ptr_mut(&y)?, ptr(&bias)?, int(width)];
        self.rows(self.kernels.add_bias, y.range.len() / width.max(1), 256, &arguments)
    }

    fn bias_backward(
        &self,
        dy: BufferSlice<'_, Array<Element>>,
        db: BufferSliceMut<'_, Array<f32>>,
        partial: &mut Array<f32>,
    ) -> Result<()> {
        let width = db.range.len();
        let rows = dy.range.len() / width.max(1);
        let (parts, rows_each) = partial_rows(rows, partial.len / width.max(1));
        let scratch = Arg::Ptr(partial.front(parts * width)?);
        let arguments = [ptr(&dy)?, int(rows), int(rows_each), int(width), scratch];
        self.gpu.launch(self.kernels.bias_partial, (parts, width.div_ceil(256)), 256, 0, &arguments)?;
        self.add_partials(scratch, parts, width, ptr_mut(&db)?)
    }

    fn add(
        &self,
        a: BufferSlice<'_, Array<Element>>,
        b: BufferSlice<'_, Array<Element>>,
        sum: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let n = sum.range.len();
        let arguments = [ptr(&a)?, ptr(&b)?, ptr_mut(&sum)?, Arg::Long(n as u64)];
        self.rows(self.kernels.add, n.div_ceil(8 * 256), 256, &arguments)
    }

    fn rmsnorm(
        &self,
        x: BufferSlice<'_, Array<Element>>,
        w: BufferSlice<'_, Array<Element>>,
        eps: f32,
        y: BufferSliceMut<'_, Array<Element>>,
        rstd: &mut Array<f32>,
    ) -> Result<()> {
        self.normalise(x, Arg::Ptr(0), w, eps, Arg::Ptr(0), y, rstd)
    }

    fn add_rmsnorm(
        &self,
        x: BufferSlice<'_, Array<Element>>,
        r: BufferSlice<'_, Array<Element>>,
        w: BufferSlice<'_, Array<Element>>,
        eps: f32,
        sum: BufferSliceMut<'_, Array<Element>>,
        y: BufferSliceMut<'_, Array<Element>>,
        rstd: &mut Array<f32>,
    ) -> Result<()> {
        self.normalise(x, ptr(&r)?, w, eps, ptr_mut(&sum)?, y, rstd)
    }

    fn rmsnorm_backward(
        &self,
        dy: BufferSlice<'_, Array<Element>>,
        x: BufferSlice<'_, Array<Element>>,
        rstd: &Array<f32>,
        w: BufferSlice<'_, Array<Element>>,
        dx: BufferSliceMut<'_, Array<Element>>,
        dw: BufferSliceMut<'_, Array<f32>>,
        partial: &mut Array<f32>,
    ) -> Result<()> {
        let width = w.range.len();
        let rows = x.range.len() / width.max(1);
        let (parts, rows_each) = partial_rows(rows, partial.len / width.max(1));
        let scratch = Arg::Ptr(partial.front(parts * width)?);
        let block = threads(width, 512);
        let kernel = match width.div_ceil(8 * block) {
            1 => self.kernels.rmsnorm_backward,
            2 => self.kernels.rmsnorm_backward_wide,
            3 | 4 => self.kernels.rmsnorm_backward_widest,
            _ => return Err(Self::wrong(format!("the width is {width}; the GPU trains up to 16384"))),
        };
        let arguments = [
            ptr(&dy)?,
            ptr(&x)?,
            Arg::Ptr(rstd.front(rows)?),
            ptr(&w)?,
            int(rows),
            int(rows_each),
            int(width),
            ptr_mut(&dx)?,
            scratch,
        ];
        self.rows(kernel, parts, block, &arguments)?;
        self.add_partials(scratch, parts, width, ptr_mut(&dw)?)
    }

    fn head_norm(
        &self,
        qkv: BufferSlice<'_, Array<Element>>,
        heads: Heads,
        w: BufferSlice<'_, Array<Element>>,
        eps: f32,
        out: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let rows = out.range.len() / heads.qkv_dim().max(1);
        self.normalise_heads([ptr(&qkv)?, ptr_mut(&out)?], rows, heads, &w, eps)
    }

    fn head_norm_backward(
        &self,
        qkv: BufferSlice<'_, Array<Element>>,
        heads: Heads,
        w: BufferSlice<'_, Array<Element>>,
        eps: f32,
        dqkv: BufferSliceMut<'_, Array<Element>>,
        dw: BufferSliceMut<'_, Array<f32>>,
        partial: &mut Array<f32>,
    ) -> Result<()> {
        let width = dw.range.len();
        let rows = dqkv.range.len() / heads.qkv_dim().max(1);
        let (parts, rows_each) = partial_rows(rows, partial.len / width.max(1));
        let scratch = Arg::Ptr(partial.front(parts * width)?);
        let arguments = [
            ptr(&qkv)?,
            int(rows),
            int(rows_each),
            int(heads.qkv_dim()),
            int(heads.heads),
            int(heads.heads + heads.kv_heads),
            int(Self::normed_width(heads)?),
            ptr(&w)?,
            Arg::Float(eps),
            ptr_mut(&dqkv)?,
            scratch,
        ];
        self.rows(self.kernels.head_norm_backward, parts, 256, &arguments)?;
        self.add_partials(scratch, parts, width, ptr_mut(&dw)?)
    }

    fn rope(
        &self,
        qkv: BufferSliceMut<'_, Array<Element>>,
        heads: Heads,
        positions: BufferSlice<'_, Array<u32>>,
        tables: &CudaRope,
        backward: bool,
    ) -> Result<()> {
        let rotated = heads.heads + heads.kv_heads;
        let arguments = [
            ptr_mut(&qkv)?,
            int(heads.qkv_dim()),
            int(rotated),
            int(tables.half),
            ptr(&positions)?,
            Arg::Ptr(tables.cos.front(0)?),
            Arg::Ptr(tables.sin.front(0)?),
            Arg::Float(if backward { -1.0 } else { 1.0 }),
        ];
        let block = (rotated * tables.half.div_ceil(8)).next_multiple_of(32).clamp(32, 256);
        self.rows(self.kernels.rope, positions.range.len(), block, &arguments)
    }

    fn attention(
        &self,
        qkv: BufferSlice<'_, Array<Element>>,
        starts: &[usize],
        heads: Heads,
        out: BufferSliceMut<'_, Array<Element>>,
        lse: &mut Array<f32>,
    ) -> Result<()> {
        let rows = row_count(starts);
        let lse = lse.front(rows * heads.heads)?;
        self.run_attention(starts, heads, address(ptr(&qkv)?), address(ptr_mut(&out)?), lse)
    }

    fn attention_backward(
        &self,
        qkv: BufferSlice<'_, Array<Element>>,
        starts: &[usize],
        heads: Heads,
        out: BufferSlice<'_, Array<Element>>,
        lse: &Array<f32>,
        dout: BufferSlice<'_, Array<Element>>,
        dqkv: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let rows = row_count(starts);
        let at = AttentionBackward {
            qkv: address(ptr(&qkv)?),
            out: address(ptr(&out)?),
            lse: lse.front(rows * heads.heads)?,
            dout: address(ptr(&dout)?),
            dqkv: address(ptr_mut(&dqkv)?),
        };
        self.run_attention_backward(starts, heads, &at)
    }

    fn swiglu(
        &self,
        gate_up: BufferSlice<'_, Array<Element>>,
        width: usize,
        act: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let (rows, block) = (act.range.len() / width.max(1), threads(width, 256));
        let arguments = [ptr(&gate_up)?, int(width), ptr_mut(&act)?];
        self.gpu.launch(self.kernels.swiglu, (rows, width.div_ceil(8 * block)), block, 0, &arguments)
    }

    fn swiglu_backward(
        &self,
        gate_up: BufferSliceMut<'_, Array<Element>>,
        width: usize,
        act: BufferSliceMut<'_, Array<Element>>,
    ) -> Result<()> {
        let (rows, block) = (act.range.len() / width.max(1), threads(width, 256));
        let arguments = [ptr_mut(&gate_up)?, int(width), ptr_mut(&act)?];
        self.gpu.launch(self.kernels.swiglu_backward, (rows, width.div_ceil(8 * block)), block, 0, &arguments)
    }

    fn loss_rows(
        &self,
        loss: RowLoss,
        vocabulary: usize,
        logits: BufferSliceMut<'_, Array<Element>>,
        rows: LossRows<'_, Self>,
    ) -> Result<()> {
        let (low, high) = loss.ratio_bounds.unwrap_or((1.0, 1.0));
        let argument = LossArg {
            ratio: [low, high],
            coefficients: [loss.entropy_bonus, loss.kl_penalty],
            has_ratio: i32::from(loss.ratio_bounds.is_some()),
            backward: i32::from(loss.backward),
        };
        let arguments = [
            ptr_mut(&logits)?,
            int(vocabulary),
            Arg::Loss(argument),
            ptr(&rows.targets)?,
            ptr(&rows.weight)?,
            ptr(&rows.norm)?,
            ptr(&rows.old)?,
            ptr(&rows.reference)?,
            ptr_mut(&rows.log_prob)?,
            ptr_mut(&rows.entropy)?,
        ];
        let block = threads(vocabulary, 512);
        self.rows(self.kernels.loss_rows, logits.range.len() / vocabulary.max(1), block, &arguments)
    }

    fn sum_of_squares(&self, grad: &Array<f32>) -> Result<f64> {
        let squares = self.squares.lock().unwrap_or_else(PoisonError::into_inner);
        let n = grad.len;
        let arguments = [Arg::Ptr(grad.front(n)?), Arg::Long(n as u64), Arg::Ptr(squares.front(SQUARES)?)];
        self.rows(self.kernels.sum_of_squares, SQUARES, 256, &arguments)?;
        let mut host = [0.0f64; SQUARES];
        squares.read(0, &mut host)?;
        Ok(host.iter().sum())
    }

    fn adam_step(
        &self,
        update: AdamUpdate,
        layout: &Layout,
        piece: Piece,
        params: &mut Array<Element>,
        grad: &mut Array<f32>,
        adam: &mut CudaAdam,
    ) -> Result<()> {
        let step = |update: AdamUpdate, piece: Piece| {
            let range = piece.packed();
            let remainder = adam.remainder.as_ref().map_or(Ok(0), |remainder| remainder.at(&range))?;
            let arguments = [
                adam_argument(update),
                Arg::Ptr(params.at(&piece.flat())?),
                Arg::Ptr(remainder),
                Arg::Ptr(grad.at(&range)?),
                Arg::Ptr(adam.m.at(&range)?),
                Arg::Ptr(adam.v.at(&range)?),
                Arg::Long(range.len() as u64),
                Arg::Int(i32::from(update.zero_gradient)),
            ];
            let aligned = [piece.from, piece.at, piece.len].iter().all(|n| n.is_multiple_of(4));
            let kernel = if aligned { self.kernels.adam_wide } else { self.kernels.adam };
            self.rows(kernel, range.len().div_ceil(4 * 256), 256, &arguments)
        };
        if update.weight_decay == 0.0 {
            return step(update, piece);
        }
        for run in piece.runs(layout) {
            let weight_decay = if run.matrix { update.weight_decay } else { 0.0 };
            step(AdamUpdate { weight_decay, ..update }, run.piece)?;
        }
        Ok(())
    }
}

/// Returns the struct `Adam` of training.cu, with the same rounding as on the CPU.
fn adam_argument(update: AdamUpdate) -> Arg {
    let correction1 = 1.0 - update.beta1.powf(update.t as f64);
    let correction2 = 1.0 - update.beta2.powf(update.t as f64);
    Arg::Adam(
        [
            update.learning_rate / correction1,
            1.0 / correction2.sqrt(),
            1.0 - update.learning_rate * update.weight_decay,
            update.beta1,
            update.beta2,
            1.0 - update.beta1,
            1.0 - update.beta2,
            update.eps,
            update.gradient_scale,
        ]
        .map(|x| x as f32),
    )
}
