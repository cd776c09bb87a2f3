//! Implements [`Device`] for the CPU: buffers are f32 slices, and all kernels run in the device's own thread pool.

use std::sync::Arc;

use super::decode::available_precision;
use super::gemm::{Mat, MatMut, Threads, Write, matmul};
use super::{adam, attention, loss, norm, rope, rows, swiglu};
use sgs_lm::device::{
    AdamHost, AdamPart, AdamUpdate, BufferSliceMut, Device, Heads, Ids, In, Linear, LossRows, Out, Precision,
    RowLoss,
};
use sgs_lm::error::{LmError, Result};
use sgs_lm::footprint::Footprint;
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::layout::Layout;
use sgs_lm::ranks::{Collective, Parallel, ProcessGroup, Tcp};
use sgs_lm::rope::RopeTables;
use sgs_lm::shard::{Piece, Shard};

/// The CPU with a fixed number of threads.
#[derive(Debug)]
pub struct Cpu {
    pool: rayon::ThreadPool,
    footprint: CpuFootprint,
    /// Precision of the sampler's products. The trainer's are f32.
    precision: Precision,
}

/// Sizes of the CPU's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuFootprint {
    /// Number of threads of the device.
    pub threads: usize,
}

type CpuIn<'a> = In<'a, Cpu>;
type CpuOut<'a> = Out<'a, Cpu>;
type CpuIds<'a> = Ids<'a, Cpu>;

/// Adam's moments of a shard on the CPU.
#[derive(Debug, Clone)]
pub struct CpuAdam {
    m: HostBuffer,
    v: HostBuffer,
}

impl Cpu {
    /// Creates a CPU device that computes in f32, with `threads` threads, or with one per core if `threads` is 0.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot create the threads.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with_precision(threads, Precision::F32)
    }

    /// Creates a CPU device like [`Cpu::new`], of which the sampler's products have this precision. They are f32 if
    /// the processor cannot multiply bf16 (AVX512-BF16).
    ///
    /// # Errors
    /// Returns an error if the operating system cannot create the threads.
    pub fn with_precision(threads: usize, precision: Precision) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("lm-{i}"))
            .build()
            .map_err(|e| LmError::Device { device: "cpu".to_owned(), message: e.to_string() })?;
        let footprint = CpuFootprint { threads: pool.current_num_threads() };
        Ok(Self { pool, footprint, precision: available_precision(precision) })
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.footprint.threads
    }

    /// Returns the precision of the sampler's products.
    pub fn precision(&self) -> Precision {
        self.precision
    }
}

impl Parallel for Cpu {
    fn connect(_: &Arc<Self>, group: ProcessGroup) -> Result<Box<dyn Collective<Self>>> {
        Ok(Box::new(Tcp::connect(group)?))
    }
}

impl Device for Cpu {
    type Buf = HostBuffer;
    type Grad = HostBuffer;
    type Stat = HostBuffer;
    type Ints = Vec<u32>;
    type Rope = RopeTables;
    type Adam = CpuAdam;
    type Passes = ();

    fn name(&self) -> String {
        let bf16 = if self.precision == Precision::Bf16 { ", sampling in bf16" } else { "" };
        format!("cpu ({} threads{bf16})", self.threads())
    }

    fn footprint(&self) -> &dyn Footprint {
        &self.footprint
    }

    fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.pool.install(f)
    }

    fn buf(&self, len: usize) -> Result<HostBuffer> {
        HostBuffer::try_zeros(len)
    }

    fn grad(&self, len: usize) -> Result<HostBuffer> {
        HostBuffer::try_zeros(len)
    }

    fn stat(&self, len: usize) -> Result<HostBuffer> {
        HostBuffer::try_zeros(len)
    }

    fn ints(&self, len: usize) -> Result<Vec<u32>> {
        Ok(vec![0; len])
    }

    fn rope_tables(&self, tables: RopeTables) -> Result<RopeTables> {
        Ok(tables)
    }

    fn upload(&self, values: HostBuffer) -> Result<HostBuffer> {
        Ok(values)
    }

    fn adam(&self, shard: &Shard) -> Result<CpuAdam> {
        Ok(CpuAdam { m: HostBuffer::try_zeros(shard.len)?, v: HostBuffer::try_zeros(shard.len)? })
    }

    fn reset_moments(&self, adam: &mut CpuAdam) -> Result<()> {
        adam.m.fill(0.0);
        adam.v.fill(0.0);
        Ok(())
    }

    fn adam_to_host(&self, _: &HostBuffer, adam: &CpuAdam) -> Result<AdamHost> {
        Ok(AdamHost { m: adam.m.clone(), v: adam.v.clone(), master: None })
    }

    fn has_masters(&self, _: &CpuAdam) -> bool {
        false
    }

    fn read_adam(
        &self,
        _: &HostBuffer,
        adam: &CpuAdam,
        part: AdamPart,
        from: usize,
        to: &mut [f32],
    ) -> Result<()> {
        let state = match part {
            AdamPart::First => &adam.m,
            AdamPart::Second => &adam.v,
            AdamPart::Master => {
                return Err(LmError::Input("the CPU has no separate master weights".to_owned()));
            }
        };
        to.copy_from_slice(&state[from..from + to.len()]);
        Ok(())
    }

    fn write_adam(
        &self,
        from: &[f32],
        _: &mut HostBuffer,
        adam: &mut CpuAdam,
        part: AdamPart,
        to: usize,
    ) -> Result<()> {
        let state = match part {
            AdamPart::First => &mut adam.m,
            AdamPart::Second => &mut adam.v,
            AdamPart::Master => return Ok(()),
        };
        state[to..to + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn write_buf(&self, from: &[f32], mut to: CpuOut<'_>) -> Result<()> {
        to.slice().copy_from_slice(from);
        Ok(())
    }

    fn read_buf(&self, from: CpuIn<'_>, to: &mut [f32]) -> Result<()> {
        to.copy_from_slice(from.slice());
        Ok(())
    }

    fn read_grad(&self, from: CpuIn<'_>, to: &mut [f32]) -> Result<()> {
        self.read_buf(from, to)
    }

    fn read_stat(&self, from: CpuIn<'_>, to: &mut [f32]) -> Result<()> {
        self.read_buf(from, to)
    }

    fn write_stat(&self, from: &[f32], mut to: CpuOut<'_>) -> Result<()> {
        to.slice().copy_from_slice(from);
        Ok(())
    }

    fn write_ints(&self, from: &[u32], to: BufferSliceMut<'_, Vec<u32>>) -> Result<()> {
        to.buf[to.range].copy_from_slice(from);
        Ok(())
    }

    fn zero(&self, mut buf: CpuOut<'_>) -> Result<()> {
        buf.slice().fill(0.0);
        Ok(())
    }

    fn zero_grad(&self, mut grad: CpuOut<'_>) -> Result<()> {
        grad.slice().fill(0.0);
        Ok(())
    }

    fn gather(&self, table: CpuIn<'_>, ids: CpuIds<'_>, width: usize, mut out: CpuOut<'_>) -> Result<()> {
        rows::gather(table.slice(), ids.slice(), width, out.slice());
        Ok(())
    }

    fn scatter(&self, from: CpuIn<'_>, ids: CpuIds<'_>, width: usize, mut out: CpuOut<'_>) -> Result<()> {
        rows::scatter(from.slice(), ids.slice(), width, out.slice());
        Ok(())
    }

    fn embed_backward(
        &self,
        dout: CpuIn<'_>,
        ids: CpuIds<'_>,
        width: usize,
        mut table_grad: CpuOut<'_>,
    ) -> Result<()> {
        rows::embed_backward(dout.slice(), ids.slice(), width, table_grad.slice());
        Ok(())
    }

    fn linear(&self, size: Linear, x: CpuIn<'_>, w: CpuIn<'_>, mut y: CpuOut<'_>) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (x, w) = (Mat::new(x.slice(), rows, input), Mat::new(w.slice(), output, input));
        matmul(MatMut::new(y.slice(), rows, output), Write::Set, 1.0, x, w.t(), Threads::All);
        Ok(())
    }

    fn linear_dx(&self, size: Linear, dy: CpuIn<'_>, w: CpuIn<'_>, mut dx: CpuOut<'_>) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (dy, w) = (Mat::new(dy.slice(), rows, output), Mat::new(w.slice(), output, input));
        matmul(MatMut::new(dx.slice(), rows, input), Write::Set, 1.0, dy, w, Threads::All);
        Ok(())
    }

    fn linear_dw(
        &self,
        size: Linear,
        write: Write,
        dy: CpuIn<'_>,
        x: CpuIn<'_>,
        mut dw: CpuOut<'_>,
    ) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (dy, x) = (Mat::new(dy.slice(), rows, output), Mat::new(x.slice(), rows, input));
        matmul(MatMut::new(dw.slice(), output, input), write, 1.0, dy.t(), x, Threads::All);
        Ok(())
    }

    fn add_bias(&self, mut y: CpuOut<'_>, bias: CpuIn<'_>) -> Result<()> {
        rows::add_bias(y.slice(), bias.slice());
        Ok(())
    }

    fn bias_backward(&self, dy: CpuIn<'_>, mut db: CpuOut<'_>, partial: &mut HostBuffer) -> Result<()> {
        rows::bias_backward(dy.slice(), db.slice(), partial);
        Ok(())
    }

    fn add(&self, a: CpuIn<'_>, b: CpuIn<'_>, mut sum: CpuOut<'_>) -> Result<()> {
        rows::add(a.slice(), b.slice(), sum.slice());
        Ok(())
    }

    fn rmsnorm(
        &self,
        x: CpuIn<'_>,
        w: CpuIn<'_>,
        eps: f32,
        mut y: CpuOut<'_>,
        rstd: &mut HostBuffer,
    ) -> Result<()> {
        norm::rmsnorm(x.slice(), w.slice(), eps, y.slice(), rstd);
        Ok(())
    }

    fn add_rmsnorm(
        &self,
        x: CpuIn<'_>,
        r: CpuIn<'_>,
        w: CpuIn<'_>,
        eps: f32,
        mut sum: CpuOut<'_>,
        mut y: CpuOut<'_>,
        rstd: &mut HostBuffer,
    ) -> Result<()> {
        norm::add_rmsnorm(x.slice(), r.slice(), w.slice(), eps, sum.slice(), y.slice(), rstd);
        Ok(())
    }

    fn rmsnorm_backward(
        &self,
        dy: CpuIn<'_>,
        x: CpuIn<'_>,
        rstd: &HostBuffer,
        w: CpuIn<'_>,
        mut dx: CpuOut<'_>,
        mut dw: CpuOut<'_>,
        partial: &mut HostBuffer,
    ) -> Result<()> {
        let rows = x.range.len() / w.range.len();
        let rstd = &rstd[..rows];
        norm::rmsnorm_backward(dy.slice(), x.slice(), rstd, w.slice(), dx.slice(), dw.slice(), partial);
        Ok(())
    }

    fn head_norm(
        &self,
        qkv: CpuIn<'_>,
        heads: Heads,
        w: CpuIn<'_>,
        eps: f32,
        mut out: CpuOut<'_>,
    ) -> Result<()> {
        norm::head_norm(qkv.slice(), heads, w.slice(), eps, out.slice());
        Ok(())
    }

    fn head_norm_backward(
        &self,
        qkv: CpuIn<'_>,
        heads: Heads,
        w: CpuIn<'_>,
        eps: f32,
        mut dqkv: CpuOut<'_>,
        mut dw: CpuOut<'_>,
        partial: &mut HostBuffer,
    ) -> Result<()> {
        norm::head_norm_backward(qkv.slice(), heads, w.slice(), eps, dqkv.slice(), dw.slice(), partial);
        Ok(())
    }

    fn rope(
        &self,
        mut qkv: CpuOut<'_>,
        heads: Heads,
        positions: CpuIds<'_>,
        tables: &RopeTables,
        backward: bool,
    ) -> Result<()> {
        let turn = if backward { rope::Turn::Backward } else { rope::Turn::Forward };
        let rotated = heads.heads + heads.kv_heads;
        rope::rope(qkv.slice(), heads.qkv_dim(), rotated, positions.slice(), tables, turn);
        Ok(())
    }

    fn attention(
        &self,
        qkv: CpuIn<'_>,
        starts: &[usize],
        heads: Heads,
        mut out: CpuOut<'_>,
        lse: &mut HostBuffer,
    ) -> Result<()> {
        attention::attention(qkv.slice(), starts, heads, out.slice(), lse);
        Ok(())
    }

    fn attention_backward(
        &self,
        qkv: CpuIn<'_>,
        starts: &[usize],
        heads: Heads,
        out: CpuIn<'_>,
        lse: &HostBuffer,
        dout: CpuIn<'_>,
        mut dqkv: CpuOut<'_>,
    ) -> Result<()> {
        attention::attention_backward(
            qkv.slice(),
            starts,
            heads,
            out.slice(),
            lse,
            dout.slice(),
            dqkv.slice(),
        );
        Ok(())
    }

    fn swiglu(&self, gate_up: CpuIn<'_>, width: usize, mut act: CpuOut<'_>) -> Result<()> {
        swiglu::swiglu(gate_up.slice(), act.slice(), width);
        Ok(())
    }

    fn swiglu_backward(&self, mut gate_up: CpuOut<'_>, width: usize, mut act: CpuOut<'_>) -> Result<()> {
        swiglu::swiglu_backward(gate_up.slice(), act.slice(), width);
        Ok(())
    }

    fn loss_rows(
        &self,
        row_loss: RowLoss,
        vocabulary: usize,
        mut logits: CpuOut<'_>,
        mut rows: LossRows<'_, Self>,
    ) -> Result<()> {
        let (targets, weight, norm) = (rows.targets.slice(), rows.weight.slice(), rows.norm.slice());
        let (old, reference) = (rows.old.slice(), rows.reference.slice());
        let row = |i: usize| loss::LossRowInput {
            target: targets[i],
            weight: weight[i],
            norm: norm[i],
            old: old[i],
            reference: reference[i],
        };
        let (log_prob, entropy) = (rows.log_prob.slice(), rows.entropy.slice());
        loss::loss_rows(row_loss, vocabulary, logits.slice(), row, log_prob, entropy);
        Ok(())
    }

    fn sum_of_squares(&self, grad: &HostBuffer) -> Result<f64> {
        Ok(adam::sum_of_squares(grad))
    }

    fn adam_step(
        &self,
        update: AdamUpdate,
        layout: &Layout,
        piece: Piece,
        params: &mut HostBuffer,
        grad: &mut HostBuffer,
        state: &mut CpuAdam,
    ) -> Result<()> {
        let mut step = |update: AdamUpdate, piece: Piece| {
            let range = piece.packed();
            adam::adam_step(
                update,
                &mut params[piece.flat()],
                &mut grad[range.clone()],
                &mut state.m[range.clone()],
                &mut state.v[range],
            );
        };
        if update.weight_decay == 0.0 {
            step(update, piece);
        } else {
            for run in piece.runs(layout) {
                let weight_decay = if run.matrix { update.weight_decay } else { 0.0 };
                step(AdamUpdate { weight_decay, ..update }, run.piece);
            }
        }
        Ok(())
    }
}
