//! The CPU as a [`Device`]: buffers are f32 slices, kernels those of the sibling modules, all started in
//! the device's own thread pool.

use super::gemm::{Mat, MatMut, Threads, Write, matmul};
use super::{Floats, adam, attention, loss, norm, rope, rows, swiglu};
use crate::device::{
    AdamHost, AdamPart, AdamUpdate, Device, Heads, Linear, LossRows, Part, PartMut, RowLoss,
};
use crate::error::{LmError, Result};
use crate::layout::Layout;
use crate::ranks::{Piece, Shard};
use crate::rope::RopeTables;

/// The CPU with a fixed number of threads.
#[derive(Debug)]
pub struct Cpu {
    pool: rayon::ThreadPool,
}

/// Adam's moments on the CPU, of a shard.
#[derive(Debug, Clone)]
pub struct CpuAdam {
    m: Floats,
    v: Floats,
}

impl Cpu {
    /// A CPU device with `threads` threads, or one per core for 0.
    ///
    /// # Errors
    /// The operating system refuses the threads.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("lm-{i}"))
            .build()
            .map_err(|e| LmError::Device { device: "cpu".to_owned(), message: e.to_string() })?;
        Ok(Self { pool })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

impl Part<'_, Floats> {
    fn slice(&self) -> &[f32] {
        &self.buf[self.range.clone()]
    }
}

impl PartMut<'_, Floats> {
    fn slice(&mut self) -> &mut [f32] {
        &mut self.buf[self.range.clone()]
    }
}

impl Part<'_, Vec<u32>> {
    fn ids(&self) -> &[u32] {
        &self.buf[self.range.clone()]
    }
}

impl Device for Cpu {
    type Buf = Floats;
    type Grad = Floats;
    type Stat = Floats;
    type Ints = Vec<u32>;
    type Rope = RopeTables;
    type Adam = CpuAdam;
    type Passes = ();

    fn name(&self) -> String {
        format!("cpu ({} threads)", self.threads())
    }

    fn bytes_per_parameter(&self) -> (usize, usize, usize) {
        (4, 4, 8)
    }

    fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.pool.install(f)
    }

    fn buf(&self, len: usize) -> Result<Floats> {
        Floats::try_zeros(len)
    }

    fn grad(&self, len: usize) -> Result<Floats> {
        Floats::try_zeros(len)
    }

    fn stat(&self, len: usize) -> Result<Floats> {
        Floats::try_zeros(len)
    }

    fn ints(&self, len: usize) -> Result<Vec<u32>> {
        Ok(vec![0; len])
    }

    fn rope_tables(&self, tables: RopeTables) -> Result<RopeTables> {
        Ok(tables)
    }

    fn adopt(&self, values: Floats) -> Result<Floats> {
        Ok(values)
    }

    fn adam(&self, shard: &Shard) -> Result<CpuAdam> {
        Ok(CpuAdam { m: Floats::try_zeros(shard.len)?, v: Floats::try_zeros(shard.len)? })
    }

    fn forget_moments(&self, adam: &mut CpuAdam) -> Result<()> {
        adam.m.fill(0.0);
        adam.v.fill(0.0);
        Ok(())
    }

    fn adam_to_host(&self, _: &Floats, adam: &CpuAdam) -> Result<AdamHost> {
        Ok(AdamHost { m: adam.m.clone(), v: adam.v.clone(), master: None })
    }

    fn has_masters(&self, _: &CpuAdam) -> bool {
        false
    }

    fn read_adam(
        &self,
        _: &Floats,
        adam: &CpuAdam,
        part: AdamPart,
        from: usize,
        to: &mut [f32],
    ) -> Result<()> {
        let state = match part {
            AdamPart::First => &adam.m,
            AdamPart::Second => &adam.v,
            AdamPart::Master => return Err(LmError::Input("the CPU keeps no masters".to_owned())),
        };
        to.copy_from_slice(&state[from..from + to.len()]);
        Ok(())
    }

    fn write_adam(
        &self,
        from: &[f32],
        _: &mut Floats,
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

    fn write_buf(&self, from: &[f32], mut to: PartMut<'_, Floats>) -> Result<()> {
        to.slice().copy_from_slice(from);
        Ok(())
    }

    fn read_buf(&self, from: Part<'_, Floats>, to: &mut [f32]) -> Result<()> {
        to.copy_from_slice(from.slice());
        Ok(())
    }

    fn read_grad(&self, from: Part<'_, Floats>, to: &mut [f32]) -> Result<()> {
        self.read_buf(from, to)
    }

    fn read_stat(&self, from: Part<'_, Floats>, to: &mut [f32]) -> Result<()> {
        self.read_buf(from, to)
    }

    fn write_stat(&self, from: &[f32], mut to: PartMut<'_, Floats>) -> Result<()> {
        to.slice().copy_from_slice(from);
        Ok(())
    }

    fn write_ints(&self, from: &[u32], to: PartMut<'_, Vec<u32>>) -> Result<()> {
        to.buf[to.range].copy_from_slice(from);
        Ok(())
    }

    fn zero(&self, mut buf: PartMut<'_, Floats>) -> Result<()> {
        buf.slice().fill(0.0);
        Ok(())
    }

    fn zero_grad(&self, mut grad: PartMut<'_, Floats>) -> Result<()> {
        grad.slice().fill(0.0);
        Ok(())
    }

    fn gather(
        &self,
        table: Part<'_, Floats>,
        ids: Part<'_, Vec<u32>>,
        width: usize,
        mut out: PartMut<'_, Floats>,
    ) -> Result<()> {
        rows::gather(table.slice(), ids.ids(), width, out.slice());
        Ok(())
    }

    fn scatter(
        &self,
        from: Part<'_, Floats>,
        ids: Part<'_, Vec<u32>>,
        width: usize,
        mut out: PartMut<'_, Floats>,
    ) -> Result<()> {
        rows::scatter(from.slice(), ids.ids(), width, out.slice());
        Ok(())
    }

    fn embed_backward(
        &self,
        dout: Part<'_, Floats>,
        ids: Part<'_, Vec<u32>>,
        width: usize,
        mut table_grad: PartMut<'_, Floats>,
    ) -> Result<()> {
        rows::embed_backward(dout.slice(), ids.ids(), width, table_grad.slice());
        Ok(())
    }

    fn linear(
        &self,
        size: Linear,
        x: Part<'_, Floats>,
        w: Part<'_, Floats>,
        mut y: PartMut<'_, Floats>,
    ) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (x, w) = (Mat::new(x.slice(), rows, input), Mat::new(w.slice(), output, input));
        matmul(MatMut::new(y.slice(), rows, output), Write::Set, 1.0, x, w.t(), Threads::All);
        Ok(())
    }

    fn linear_dx(
        &self,
        size: Linear,
        dy: Part<'_, Floats>,
        w: Part<'_, Floats>,
        mut dx: PartMut<'_, Floats>,
    ) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (dy, w) = (Mat::new(dy.slice(), rows, output), Mat::new(w.slice(), output, input));
        matmul(MatMut::new(dx.slice(), rows, input), Write::Set, 1.0, dy, w, Threads::All);
        Ok(())
    }

    fn linear_dw(
        &self,
        size: Linear,
        write: Write,
        dy: Part<'_, Floats>,
        x: Part<'_, Floats>,
        mut dw: PartMut<'_, Floats>,
    ) -> Result<()> {
        let Linear { rows, input, output } = size;
        let (dy, x) = (Mat::new(dy.slice(), rows, output), Mat::new(x.slice(), rows, input));
        matmul(MatMut::new(dw.slice(), output, input), write, 1.0, dy.t(), x, Threads::All);
        Ok(())
    }

    fn add_bias(&self, mut y: PartMut<'_, Floats>, bias: Part<'_, Floats>) -> Result<()> {
        rows::add_bias(y.slice(), bias.slice());
        Ok(())
    }

    fn bias_backward(
        &self,
        dy: Part<'_, Floats>,
        mut db: PartMut<'_, Floats>,
        partial: &mut Floats,
    ) -> Result<()> {
        rows::bias_backward(dy.slice(), db.slice(), partial);
        Ok(())
    }

    fn add(&self, a: Part<'_, Floats>, b: Part<'_, Floats>, mut sum: PartMut<'_, Floats>) -> Result<()> {
        rows::add(a.slice(), b.slice(), sum.slice());
        Ok(())
    }

    fn rmsnorm(
        &self,
        x: Part<'_, Floats>,
        w: Part<'_, Floats>,
        eps: f32,
        mut y: PartMut<'_, Floats>,
        rstd: &mut Floats,
    ) -> Result<()> {
        norm::rmsnorm(x.slice(), w.slice(), eps, y.slice(), rstd);
        Ok(())
    }

    fn add_rmsnorm(
        &self,
        x: Part<'_, Floats>,
        r: Part<'_, Floats>,
        w: Part<'_, Floats>,
        eps: f32,
        mut sum: PartMut<'_, Floats>,
        mut y: PartMut<'_, Floats>,
        rstd: &mut Floats,
    ) -> Result<()> {
        norm::add_rmsnorm(x.slice(), r.slice(), w.slice(), eps, sum.slice(), y.slice(), rstd);
        Ok(())
    }

    fn rmsnorm_backward(
        &self,
        dy: Part<'_, Floats>,
        x: Part<'_, Floats>,
        rstd: &Floats,
        w: Part<'_, Floats>,
        mut dx: PartMut<'_, Floats>,
        mut dw: PartMut<'_, Floats>,
        partial: &mut Floats,
    ) -> Result<()> {
        let rows = x.range.len() / w.range.len();
        let rstd = &rstd[..rows];
        norm::rmsnorm_backward(dy.slice(), x.slice(), rstd, w.slice(), dx.slice(), dw.slice(), partial);
        Ok(())
    }

    fn rope(
        &self,
        mut qkv: PartMut<'_, Floats>,
        heads: Heads,
        positions: Part<'_, Vec<u32>>,
        tables: &RopeTables,
        backward: bool,
    ) -> Result<()> {
        let turn = if backward { rope::Turn::Backward } else { rope::Turn::Forward };
        let rotated = heads.heads + heads.kv_heads;
        rope::rope(qkv.slice(), heads.qkv_dim(), rotated, positions.ids(), tables, turn);
        Ok(())
    }

    fn attention(
        &self,
        qkv: Part<'_, Floats>,
        starts: &[usize],
        heads: Heads,
        mut out: PartMut<'_, Floats>,
        lse: &mut Floats,
    ) -> Result<()> {
        attention::attention(qkv.slice(), starts, heads, out.slice(), lse);
        Ok(())
    }

    fn attention_backward(
        &self,
        qkv: Part<'_, Floats>,
        starts: &[usize],
        heads: Heads,
        out: Part<'_, Floats>,
        lse: &Floats,
        dout: Part<'_, Floats>,
        mut dqkv: PartMut<'_, Floats>,
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

    fn swiglu(&self, gate_up: Part<'_, Floats>, width: usize, mut act: PartMut<'_, Floats>) -> Result<()> {
        swiglu::swiglu(gate_up.slice(), act.slice(), width);
        Ok(())
    }

    fn swiglu_backward(
        &self,
        mut gate_up: PartMut<'_, Floats>,
        width: usize,
        mut act: PartMut<'_, Floats>,
    ) -> Result<()> {
        swiglu::swiglu_backward(gate_up.slice(), act.slice(), width);
        Ok(())
    }

    fn loss_rows(
        &self,
        row_loss: RowLoss,
        vocabulary: usize,
        mut logits: PartMut<'_, Floats>,
        mut rows: LossRows<'_, Self>,
    ) -> Result<()> {
        let (targets, weight, norm) = (rows.targets.ids(), rows.weight.slice(), rows.norm.slice());
        let (old, reference) = (rows.old.slice(), rows.reference.slice());
        let row = |i: usize| loss::Row {
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

    fn sum_of_squares(&self, grad: &Floats) -> Result<f64> {
        Ok(adam::sum_of_squares(grad))
    }

    fn adam_step(
        &self,
        update: AdamUpdate,
        layout: &Layout,
        piece: Piece,
        params: &mut Floats,
        grad: &mut Floats,
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
