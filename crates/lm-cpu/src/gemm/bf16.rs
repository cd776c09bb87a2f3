//! Products of matrices with [bfloat16](crate::bf16) operands and f32 sums, for training.
//!
//! The right operand is rounded and packed once, in panels of up to 64 columns. Each task computes some rows of the
//! destination: for each block of the inner dimension, it rounds its part of the left operand and multiplies it with all
//! panels, in tiles that fit the registers (Goto and van de Geijn 2008). The order of a sum depends only on the inner
//! dimension, so results depend neither on the number of threads nor on the other rows and columns.

#![allow(unsafe_code)]

use rayon::prelude::*;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::{Mat, MatMut, Operand, Write};
use crate::bf16::{
    LANES, before, dithered, is_available, nearest_pairs, pairs_of_upper_halves, round_nearest, round_weights,
};

/// Maximum length of a block of the inner dimension: a panel of it, 24 KiB, stays in the first-level cache.
const INNER: usize = 192;

/// Columns of a panel, four registers.
const PANEL: usize = 4 * LANES;

/// Rows of a tile. With four registers of columns, 24 sums fit the 32 registers.
const TILE: usize = 6;

/// Maximum number of rows of a task; a multiple of [`TILE`] and of [`LANES`].
const ROWS: usize = 96;

/// A product `dst = lhs rhs` or `dst += lhs rhs`. Each operand is contiguous along one of its dimensions.
pub(crate) struct Bf16Gemm<'a> {
    pub dst: MatMut<'a>,
    pub write: Write,
    pub lhs: Mat<'a>,
    pub rhs: Mat<'a>,
    /// The left operand consists of activations.
    pub rhs_kind: Operand,
}

/// A block of the inner dimension.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    len: usize,
}

impl Block {
    fn pairs(self) -> usize {
        self.len.div_ceil(2)
    }
}

/// A panel of the right operand.
#[derive(Clone, Copy)]
struct Panel {
    column: usize,
    /// A multiple of [`LANES`]; columns beyond the matrix are zero.
    width: usize,
}

/// Rows of the left operand, rounded. Pair `k` of row `r` is at `r * INNER / 2 + k`, or at `k * ROWS + r` if the operand is
/// contiguous along its rows.
#[repr(align(64))]
struct PackedRows([MaybeUninit<u32>; ROWS * INNER / 2]);

/// Divides the inner dimension into blocks of about the same length, multiples of 32.
fn blocks(inner: usize) -> impl Iterator<Item = Block> + Clone {
    let count = inner.div_ceil(INNER).max(1);
    let len = inner.div_ceil(count).next_multiple_of(2 * LANES);
    (0..inner).step_by(len.max(1)).map(move |start| Block { start, len: len.min(inner - start) })
}

fn panels(columns: usize) -> impl Iterator<Item = Panel> + Clone {
    (0..columns).step_by(PANEL).map(move |column| {
        let width = PANEL.min((columns - column).next_multiple_of(LANES));
        Panel { column, width }
    })
}

/// Returns the number of rows per task: as many as fit, divided evenly among the threads.
fn task_rows(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    let tasks = threads * rows.div_ceil(threads * ROWS).max(1);
    rows.div_ceil(tasks).next_multiple_of(TILE).clamp(TILE, ROWS)
}

impl Bf16Gemm<'_> {
    /// Computes the product on all threads of the current pool. `packed` is memory for the right operand.
    ///
    /// # Panics
    /// Panics if the shapes do not match, or if the processor lacks the instructions.
    pub(crate) fn run(self, packed: &mut Vec<u32>) {
        let Self { dst, write, lhs, rhs, rhs_kind } = self;
        let (rows, columns, inner) = (dst.rows, dst.cols, lhs.cols);
        assert!(
            rows == lhs.rows && columns == rhs.cols && inner == rhs.rows,
            "product of {rows}x{inner} and {}x{} into {rows}x{columns}",
            rhs.rows,
            rhs.cols
        );
        assert!(lhs.row_stride == 1 || lhs.col_stride == 1, "the left operand is not contiguous");
        assert!(rhs.row_stride == 1 || rhs.col_stride == 1, "the right operand is not contiguous");
        assert!(is_available(), "the device chose bf16 without the instructions");
        if rows == 0 || columns == 0 {
            return;
        }
        if inner == 0 && write == Write::Set {
            dst.data.chunks_mut(dst.row_stride).take(rows).for_each(|row| row[..columns].fill(0.0));
        }
        let width = columns.next_multiple_of(LANES);
        packed.resize(blocks(inner).map(|block| block.pairs() * width).sum(), 0);
        pack(rhs, rhs_kind, packed);
        let (rows_per_task, dst_stride) = (task_rows(rows), dst.row_stride);
        let parts = dst.data.par_chunks_mut(rows_per_task * dst_stride).take(rows.div_ceil(rows_per_task));
        parts.enumerate().for_each(|(task, dst)| {
            let row = task * rows_per_task;
            let count = rows_per_task.min(rows - row);
            let task = Rows { dst, dst_stride, write, lhs, row, count, columns, packed };
            // SAFETY: the processor has the instructions.
            unsafe { task.run() };
        });
    }
}

/// Rounds the right operand into `to`: for each block of the inner dimension, all panels. Element
/// `pair * width + column` of a panel is a pair of a column.
fn pack(rhs: Mat<'_>, kind: Operand, mut to: &mut [u32]) {
    let mut tasks = Vec::new();
    for block in blocks(rhs.rows) {
        for panel in panels(rhs.cols) {
            let (part, rest) = to.split_at_mut(block.pairs() * panel.width);
            tasks.push((block, panel, part));
            to = rest;
        }
    }
    tasks.into_par_iter().for_each(|(block, panel, to)| {
        // SAFETY: the caller checked that the processor has the instructions.
        unsafe {
            if rhs.col_stride == 1 {
                pack_rows_of_panel(rhs, kind, block, panel, to);
            } else {
                pack_columns_of_panel(rhs, kind, block, panel, to);
            }
        }
    });
}

/// Packs a panel of an operand that is contiguous along its rows.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_rows_of_panel(rhs: Mat<'_>, kind: Operand, block: Block, panel: Panel, to: &mut [u32]) {
    let count = rhs.cols - panel.column;
    for (pair, to) in to.chunks_exact_mut(panel.width).enumerate() {
        let k = 2 * pair;
        let low = rhs.data[(block.start + k) * rhs.row_stride + panel.column..].as_ptr();
        let high_count = if k + 1 < block.len { count } else { 0 };
        let high = low.wrapping_add(rhs.row_stride);
        for (i, to) in to.chunks_exact_mut(LANES).enumerate() {
            let first = i * LANES;
            // SAFETY: the row of `low` has `count` numbers from the panel's first column, and so has the next one if it
            // belongs to the block; `to` has the size of a register.
            unsafe {
                let pairs = match kind {
                    Operand::Activations => nearest_pairs(
                        _mm512_maskz_loadu_ps(before(count, first), low.wrapping_add(first)),
                        _mm512_maskz_loadu_ps(before(high_count, first), high.wrapping_add(first)),
                    ),
                    Operand::Weights => pairs_of_upper_halves(
                        dithered(low, count, first, panel.column + first),
                        dithered(high, high_count, first, panel.column + first),
                    ),
                };
                _mm512_storeu_si512(to.as_mut_ptr().cast(), pairs);
            }
        }
    }
}

/// Packs a panel of an operand that is contiguous along its columns.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_columns_of_panel(rhs: Mat<'_>, kind: Operand, block: Block, panel: Panel, to: &mut [u32]) {
    let count = panel.width.min(rhs.cols - panel.column);
    let mut column = [const { MaybeUninit::<u32>::uninit() }; INNER / 2];
    for i in 0..panel.width {
        if i < count {
            let from = rhs.data[(panel.column + i) * rhs.col_stride + block.start..].as_ptr();
            // SAFETY: the column has the block's numbers, and `column` has room for the longest block.
            unsafe {
                match kind {
                    Operand::Activations => round_nearest(from, block.len, column.as_mut_ptr().cast()),
                    Operand::Weights => round_weights(from, block.len, block.start, &mut column),
                }
            }
        } else {
            column.fill(MaybeUninit::new(0));
        }
        for (to, pair) in to[i..].iter_mut().step_by(panel.width).zip(&column) {
            // SAFETY: the column has as many pairs as the panel.
            *to = unsafe { pair.assume_init() };
        }
    }
}

/// Rows of the destination, computed by one task.
struct Rows<'a> {
    dst: &'a mut [f32],
    dst_stride: usize,
    write: Write,
    lhs: Mat<'a>,
    /// First row in the left operand.
    row: usize,
    count: usize,
    columns: usize,
    /// The right operand, packed.
    packed: &'a [u32],
}

impl Rows<'_> {
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn run(mut self) {
        let transposed = self.lhs.col_stride != 1;
        let mut left = PackedRows([const { MaybeUninit::uninit() }; ROWS * INNER / 2]);
        let mut packed = self.packed;
        for block in blocks(self.lhs.cols) {
            if transposed {
                self.pack_columns(block, &mut left)
            } else {
                self.pack_rows(block, &mut left)
            }
            for panel in panels(self.columns) {
                let (right, rest) = packed.split_at(block.pairs() * panel.width);
                packed = rest;
                for first in (0..self.count).step_by(TILE) {
                    // SAFETY: the rows of the tile were packed above, for every pair of the block.
                    unsafe {
                        match (panel.width / LANES, transposed) {
                            (1, false) => self.tile::<1, false>(&left, right, block, panel, first),
                            (2, false) => self.tile::<2, false>(&left, right, block, panel, first),
                            (3, false) => self.tile::<3, false>(&left, right, block, panel, first),
                            (_, false) => self.tile::<4, false>(&left, right, block, panel, first),
                            (1, true) => self.tile::<1, true>(&left, right, block, panel, first),
                            (2, true) => self.tile::<2, true>(&left, right, block, panel, first),
                            (3, true) => self.tile::<3, true>(&left, right, block, panel, first),
                            (_, true) => self.tile::<4, true>(&left, right, block, panel, first),
                        }
                    }
                }
            }
        }
    }

    /// Rounds a block of a left operand that is contiguous along the inner dimension. The last tile is completed with
    /// zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_rows(&self, block: Block, to: &mut PackedRows) {
        for (r, to) in to.0.chunks_exact_mut(INNER / 2).take(self.count.next_multiple_of(TILE)).enumerate() {
            if r < self.count {
                let from = self.lhs.data[(self.row + r) * self.lhs.row_stride + block.start..].as_ptr();
                // SAFETY: the row has the block's numbers, and `to` has room for the longest block.
                unsafe { round_nearest(from, block.len, to.as_mut_ptr().cast()) };
            } else {
                to.fill(MaybeUninit::new(0));
            }
        }
    }

    /// Rounds a block of a left operand that is contiguous along its rows. The last tile is completed with zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_columns(&self, block: Block, to: &mut PackedRows) {
        let registers = self.count.next_multiple_of(TILE).div_ceil(LANES);
        for (pair, to) in to.0.chunks_exact_mut(ROWS).take(block.pairs()).enumerate() {
            let k = 2 * pair;
            let low = self.lhs.data[(block.start + k) * self.lhs.col_stride + self.row..].as_ptr();
            let high = low.wrapping_add(self.lhs.col_stride);
            let high_count = if k + 1 < block.len { self.count } else { 0 };
            for (i, to) in to.chunks_exact_mut(LANES).take(registers).enumerate() {
                let load = |from: *const f32, count| {
                    // SAFETY: `from` has `count` numbers, and the mask selects no others.
                    unsafe { _mm512_maskz_loadu_ps(before(count, i * LANES), from.wrapping_add(i * LANES)) }
                };
                let pairs = nearest_pairs(load(low, self.count), load(high, high_count));
                // SAFETY: `to` has the size of a register.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), pairs) };
            }
        }
    }

    /// Computes the rows from `first` of a panel of `V` registers, as far as the block contributes to them.
    ///
    /// # Safety
    /// All rows of the tile and all pairs of the block must be packed, contiguous along the rows if `TRANSPOSED`.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn tile<const V: usize, const TRANSPOSED: bool>(
        &mut self,
        left: &PackedRows,
        right: &[u32],
        block: Block,
        panel: Panel,
        first: usize,
    ) {
        let (row_step, pair_step) = if TRANSPOSED { (1, ROWS) } else { (INNER / 2, 1) };
        let left = left.0[first * row_step..].as_ptr();
        let mut sums = [[_mm512_setzero_ps(); V]; TILE];
        for (pair, right) in right.chunks_exact(V * LANES).enumerate() {
            // SAFETY: `right` has `V` registers, and both types are registers of 512 bits.
            let columns: [__m512bh; V] = std::array::from_fn(|v| unsafe {
                std::mem::transmute(_mm512_loadu_si512(right.as_ptr().add(v * LANES).cast()))
            });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                let row = unsafe { (*left.add(r * row_step + pair * pair_step)).assume_init() };
                // SAFETY: both types are registers of 512 bits.
                let row: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi32(row.cast_signed())) };
                for (sum, columns) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(*sum, row, columns);
                }
            }
        }
        let add = self.write == Write::Add || block.start > 0;
        let columns = self.columns - panel.column;
        for (r, sums) in sums.iter().enumerate().take(self.count - first) {
            let row = self.dst[(first + r) * self.dst_stride + panel.column..].as_mut_ptr();
            for (v, sum) in sums.iter().enumerate() {
                let mask = before(columns, v * LANES);
                // SAFETY: the row has `columns` numbers from the panel's first column, and the mask selects no others.
                unsafe {
                    let at = row.add(v * LANES);
                    let sum = if add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, at), *sum) } else { *sum };
                    _mm512_mask_storeu_ps(at, mask, sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16::{DITHER, DITHER_LEN};
    use half::bf16;
    use sgs_base::random::SeededRng;

    fn weight(value: f32, position: usize) -> f64 {
        let bits = value.to_bits() + DITHER[position % DITHER_LEN];
        f64::from(f32::from_bits(bits & 0xffff_0000))
    }

    /// Stores the matrix whose element `(i, j)` is `value(i, j)`, row by row or column by column.
    fn stored(rows: usize, columns: usize, by_rows: bool, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let (outer, inner) = if by_rows { (rows, columns) } else { (columns, rows) };
        let at = |o, i| if by_rows { value(o, i) } else { value(i, o) };
        (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| at(o, i)).collect()
    }

    fn view(data: &[f32], rows: usize, columns: usize, by_rows: bool) -> Mat<'_> {
        if by_rows { Mat::new(data, rows, columns) } else { Mat::new(data, columns, rows).t() }
    }

    #[test]
    fn products_equal_sums_in_f64_of_operands_that_were_rounded_independently() {
        if !is_available() {
            return;
        }
        let mut rng = SeededRng::stream(17, 0);
        for (m, n, k) in [
            (3, 5, 0),
            (0, 4, 7),
            (4, 0, 7),
            (1, 1, 1),
            (7, 5, 3),
            (97, 65, 33),
            (6, 64, 192),
            (100, 130, 450),
            (203, 16, 1111),
        ] {
            let a: Vec<f32> = (0..m * k).map(|_| rng.normal()).collect();
            let b: Vec<f32> = (0..k * n).map(|_| rng.normal()).collect();
            for (lhs_by_rows, rhs_by_rows, kind) in [
                (true, false, Operand::Weights),
                (true, true, Operand::Weights),
                (false, true, Operand::Activations),
                (true, false, Operand::Activations),
            ] {
                let left = stored(m, k, lhs_by_rows, |i, j| a[i * k + j]);
                let right = stored(k, n, rhs_by_rows, |i, j| b[i * n + j]);
                let run = |write, dst: &mut [f32], threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let (lhs, rhs) = (view(&left, m, k, lhs_by_rows), view(&right, k, n, rhs_by_rows));
                    let dst = MatMut::strided(dst, m, n, n + 3);
                    pool.install(|| Bf16Gemm { dst, write, lhs, rhs, rhs_kind: kind }.run(&mut Vec::new()));
                };
                let mut found = vec![7.0f32; m * (n + 3)];
                run(Write::Set, &mut found, 2);
                let mut again = vec![7.0f32; m * (n + 3)];
                run(Write::Set, &mut again, 5);
                assert_eq!(found, again, "the number of threads changes the product");
                run(Write::Add, &mut again, 3);
                for i in 0..m {
                    for j in 0..n {
                        let terms = (0..k).map(|x| {
                            let position = if rhs_by_rows { j } else { x };
                            let right = match kind {
                                Operand::Weights => weight(b[x * n + j], position),
                                Operand::Activations => bf16::from_f32(b[x * n + j]).to_f64(),
                            };
                            bf16::from_f32(a[i * k + x]).to_f64() * right
                        });
                        let (want, size) =
                            terms.fold((0.0, 0.0), |(sum, size), t: f64| (sum + t, size + t.abs()));
                        let at = i * (n + 3) + j;
                        let close =
                            |value: f32, want: f64| (f64::from(value) - want).abs() <= 1e-6 * size + 1e-6;
                        assert!(
                            close(found[at], want),
                            "{m}x{n}x{k} {kind:?} ({i}, {j}): {} {want}",
                            found[at]
                        );
                        assert!(close(again[at], 2.0 * want), "added: {} {want}", again[at]);
                    }
                    assert!(
                        again[i * (n + 3) + n..][..3].iter().all(|x| *x == 7.0),
                        "the gap between rows is untouched"
                    );
                }
            }
        }
    }

    #[test]
    fn blocks_and_panels_cover_every_length_once() {
        for length in 0..2000 {
            let ends = blocks(length).fold(0, |end, block| {
                assert!(block.start == end && block.start.is_multiple_of(2 * LANES));
                assert!((1..=INNER).contains(&block.len));
                end + block.len
            });
            assert_eq!(ends, length);
            let columns = panels(length).fold(0, |end, panel| {
                assert!(panel.column == end && panel.width <= PANEL && panel.width.is_multiple_of(LANES));
                (panel.column + panel.width).min(length)
            });
            assert_eq!(columns, length);
        }
    }
}
