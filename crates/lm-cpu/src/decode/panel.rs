//! Kernels on panels. A panel holds up to 64 sequences as columns in feature-major order: element
//! `(feature, column)` is at `feature * width + column`.
//!
//! A weight matrix is read where the trainer stores it, row by row and once per panel. Each weight is broadcast to a
//! register and multiplied with one feature of all columns. In f32 nothing is packed or copied; in bfloat16 the columns
//! are, once per product ([`Columns`]). The sums of each column run over the features in an order that does not depend on
//! the other columns, so the results of a sequence do not depend on the batch.

#![allow(unsafe_code)]

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::prefetch::{LINE, prefetch};
use crate::gemm::Write;
use crate::{math, simd};
use sgs_lm::device::Precision;

/// The width of a panel is a multiple of this number of columns.
pub(crate) const COLUMN_STEP: usize = 16;
/// Maximum width of a panel.
pub(crate) const MAX_WIDTH: usize = sgs_lm::decode::PANEL;

/// Multiply-adds per parallel task of a product, enough to outweigh the cost of starting it.
const TASK: usize = 1 << 19;

/// Returns the number of rows of a matrix per parallel task.
fn task_rows(inner: usize, width: usize) -> usize {
    (TASK / (inner * width).max(1)).max(1).next_multiple_of(8)
}

/// The columns of a panel as a product reads them.
#[derive(Clone, Copy)]
pub(crate) enum Columns<'a> {
    /// `[inner, width]`.
    F32(&'a [f32]),
    /// Pairs of features in bfloat16, `[inner.div_ceil(2), width]`: see [`bf16::round_pairs`].
    #[cfg(target_arch = "x86_64")]
    Bf16(&'a [f32]),
}

impl<'a> Columns<'a> {
    /// Prepares the panel `x`, `[inner, width]`, for products of this precision. `rounded` has room for half as many
    /// numbers.
    pub(crate) fn new(x: &'a [f32], width: usize, precision: Precision, rounded: &'a mut [f32]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if precision == Precision::Bf16 {
            let rounded = &mut rounded[..(x.len() / width).div_ceil(2) * width];
            assert!(bf16::is_available(), "the device chose bf16 without the instructions");
            // SAFETY: the processor has the instructions.
            unsafe { bf16::round_pairs(x, width, rounded) };
            return Self::Bf16(rounded);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (width, precision, rounded);
        Self::F32(x)
    }
}

/// Returns the precision of a decoder's products if `wanted` is asked for: bf16 needs a processor that multiplies it.
pub(crate) fn available_precision(wanted: Precision) -> Precision {
    #[cfg(target_arch = "x86_64")]
    if wanted == Precision::Bf16 && bf16::is_available() {
        return Precision::Bf16;
    }
    let _ = wanted;
    Precision::F32
}

/// Computes `y = W x` or `y += W x` on all threads. `weights` is `[rows, inner]`, row-major; `x` has `inner` features;
/// `y` is `[rows, width]`.
pub(crate) fn product(
    weights: &[f32],
    inner: usize,
    x: Columns<'_>,
    width: usize,
    y: &mut [f32],
    write: Write,
) {
    let rows = task_rows(inner, width);
    y.par_chunks_mut(rows * width)
        .zip(weights.par_chunks(rows * inner))
        .for_each(|(y, weights)| product_here(weights, inner, x, width, y, write));
}

/// Computes the same as [`product`], on this thread.
pub(crate) fn product_here(
    weights: &[f32],
    inner: usize,
    x: Columns<'_>,
    width: usize,
    y: &mut [f32],
    write: Write,
) {
    assert!(width > 0 && width <= MAX_WIDTH && width.is_multiple_of(COLUMN_STEP), "panel width {width}");
    assert!(weights.len() * width >= y.len() * inner);
    match x {
        Columns::F32(x) => Arch::new().dispatch(PanelProduct { weights, inner, x, width, y, write }),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Columns::new` made these columns, so the processor has the instructions.
        Columns::Bf16(pairs) => unsafe {
            bf16::Bf16Product { weights, inner, pairs, width, y, write }.run();
        },
    }
}

struct PanelProduct<'a> {
    weights: &'a [f32],
    inner: usize,
    x: &'a [f32],
    width: usize,
    y: &'a mut [f32],
    write: Write,
}

impl WithSimd for PanelProduct<'_> {
    type Output = ();

    /// Divides the panel into column blocks that fit the register file: whole panels with 32 registers of 16
    /// numbers, sixteen columns at a time with 16 registers of 8 numbers.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match (S::F32_LANES, self.width) {
            (16, 16) => self.columns::<S, 1, 8>(simd, 0),
            (16, 32) => self.columns::<S, 2, 8>(simd, 0),
            (16, 48) => self.columns::<S, 3, 8>(simd, 0),
            (16, 64) => self.columns::<S, 4, 4>(simd, 0),
            (8, _) => (0..self.width).step_by(16).for_each(|c| self.columns::<S, 2, 4>(simd, c)),
            (4, _) => (0..self.width).step_by(16).for_each(|c| self.columns::<S, 4, 4>(simd, c)),
            _ => (0..self.width).step_by(S::F32_LANES).for_each(|c| self.columns::<S, 1, 4>(simd, c)),
        }
    }
}

impl PanelProduct<'_> {
    /// Computes all rows of the columns from `column` that `V` registers hold, `R` rows at a time.
    #[inline(always)]
    fn columns<S: Simd, const V: usize, const R: usize>(&mut self, simd: S, column: usize) {
        let rows = self.y.len() / self.width;
        assert!(column + V * S::F32_LANES <= self.width);
        assert!(self.x.len() >= self.inner * self.width && self.weights.len() >= rows * self.inner);
        let whole = rows - rows % R;
        for row in (0..whole).step_by(R) {
            // SAFETY: `row + R <= rows`; the lengths were checked above.
            unsafe { self.tile::<S, V, R>(simd, row, column) };
        }
        for row in whole..rows {
            // SAFETY: `row < rows`; the lengths were checked above.
            unsafe { self.tile::<S, V, 1>(simd, row, column) };
        }
    }

    /// Computes `R` rows by `V` registers of columns. It uses pointers because bounds checks would cost a third
    /// of the speed.
    ///
    /// # Safety
    /// There must be `row + R` rows of weights and of `y`, `x` must have `inner` rows, and `V` registers
    /// starting at `column` must be within `width`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const V: usize, const R: usize>(&mut self, simd: S, row: usize, column: usize) {
        let (inner, width) = (self.inner, self.width);
        let weights = self.weights[row * inner..].as_ptr();
        let x = self.x[column..].as_ptr();
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for k in 0..inner {
            if k % LINE == 0 {
                // Prefetch the next rows, because their streams are too short for the hardware prefetcher.
                (0..R).for_each(|r| prefetch(weights.wrapping_add((R + r) * inner + k)));
            }
            let mut columns = [simd.splat_f32s(0.0); V];
            for (v, columns) in columns.iter_mut().enumerate() {
                // SAFETY: `k < inner`, so the register is in row `k` of `x`.
                *columns = unsafe { x.add(k * width + v * S::F32_LANES).cast::<S::f32s>().read_unaligned() };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `r < R` and `k < inner`, so this is an element of row `row + r`.
                let weight = simd.splat_f32s(unsafe { *weights.add(r * inner + k) });
                for v in 0..V {
                    sums[v] = simd.mul_add_e_f32s(weight, columns[v], sums[v]);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let y = S::as_mut_simd_f32s(&mut self.y[(row + r) * width + column..(row + r + 1) * width]).0;
            for (y, sum) in y.iter_mut().zip(sums) {
                *y = match self.write {
                    Write::Set => *sum,
                    Write::Add => simd.add_f32s(*y, *sum),
                };
            }
        }
    }
}

/// Adds `bias[feature]` to every column of `y`, `[features, width]`.
pub(crate) fn add_bias(y: &mut [f32], bias: &[f32], width: usize) {
    simd(
        #[inline(always)]
        || {
            for (row, b) in y.chunks_exact_mut(width).zip(bias) {
                row.iter_mut().for_each(|y| *y += b);
            }
        },
    );
}

/// Applies RMSNorm to every column: `y = gain * x / sqrt(mean(x²) + eps)` (Zhang & Sennrich 2019).
pub(crate) fn rms_norm(x: &[f32], gain: &[f32], eps: f32, width: usize, y: &mut [f32]) {
    simd(
        #[inline(always)]
        || {
            // Use four partial sums per column, so that additions do not depend on each other.
            let mut sums = [[0.0f32; MAX_WIDTH]; 4];
            for (i, row) in x.chunks_exact(width).enumerate() {
                let sums = &mut sums[i % 4][..width];
                sums.iter_mut().zip(row).for_each(|(s, x)| *s = x.mul_add(*x, *s));
            }
            let [mut scale, b, c, d] = sums;
            for i in 0..width {
                let mean = (scale[i] + b[i] + c[i] + d[i]) / gain.len() as f32;
                scale[i] = 1.0 / (mean + eps).sqrt();
            }
            let scale = &scale[..width];
            for ((y, x), g) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(gain) {
                for ((y, x), s) in y.iter_mut().zip(x).zip(scale) {
                    *y = x * s * g;
                }
            }
        },
    );
}

/// Computes the first half of the feed-forward layer on all threads: `h = silu(G x) * (U x)`. `gate_up` is `G`
/// above `U`, each `[rows, inner]`; `h` is `[rows, width]`.
pub(crate) fn gated(gate_up: &[f32], inner: usize, x: Columns<'_>, width: usize, h: &mut [f32]) {
    let (gate, up) = gate_up.split_at(gate_up.len() / 2);
    let rows = task_rows(2 * inner, width);
    h.par_chunks_mut(rows * width)
        .zip(gate.par_chunks(rows * inner).zip(up.par_chunks(rows * inner)))
        .for_each(|(h, (gate, up))| gated_here(gate, up, inner, x, width, h));
}

fn gated_here(gate: &[f32], up: &[f32], inner: usize, x: Columns<'_>, width: usize, h: &mut [f32]) {
    /// Rows whose `U x` is kept on the stack.
    const ROWS: usize = 16;
    let mut held = [0.0f32; ROWS * MAX_WIDTH];
    let parts = gate.chunks(ROWS * inner).zip(up.chunks(ROWS * inner));
    for (h, (gate, up)) in h.chunks_mut(ROWS * width).zip(parts) {
        let held = &mut held[..h.len()];
        product_here(gate, inner, x, width, h, Write::Set);
        product_here(up, inner, x, width, held, Write::Set);
        simd(
            #[inline(always)]
            || {
                for (h, up) in h.iter_mut().zip(held) {
                    *h = *h * math::sigmoid(*h) * *up;
                }
            },
        );
    }
}

/// Transposes `rows` vectors of `cols` numbers: `to[c * to_stride + r] = from[r * from_stride + c]`.
pub(crate) fn transpose(
    from: &[f32],
    from_stride: usize,
    rows: usize,
    cols: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    /// Side of the squares that fit into registers and the first-level cache.
    const SIDE: usize = 16;
    simd(
        #[inline(always)]
        || {
            for c0 in (0..cols).step_by(SIDE) {
                let wide = SIDE.min(cols - c0);
                for r0 in (0..rows).step_by(SIDE) {
                    let high = SIDE.min(rows - r0);
                    if wide == SIDE && high == SIDE {
                        square::<SIDE>(
                            &from[r0 * from_stride + c0..],
                            from_stride,
                            &mut to[c0 * to_stride + r0..],
                            to_stride,
                        );
                    } else {
                        for (c, r) in (0..wide * high).map(|i| (c0 + i / high, r0 + i % high)) {
                            to[c * to_stride + r] = from[r * from_stride + c];
                        }
                    }
                }
            }
        },
    );
}

#[inline(always)]
fn square<const SIDE: usize>(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
    let mut rows = [[0.0f32; SIDE]; SIDE];
    for (r, row) in rows.iter_mut().enumerate() {
        row.copy_from_slice(&from[r * from_stride..][..SIDE]);
    }
    for c in 0..SIDE {
        let column: [f32; SIDE] = std::array::from_fn(|r| rows[r][c]);
        to[c * to_stride..][..SIDE].copy_from_slice(&column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_base::random::SeededRng;

    fn random(len: usize, stream: u64) -> Vec<f32> {
        let mut rng = SeededRng::stream(11, stream);
        (0..len).map(|_| rng.normal()).collect()
    }

    /// The precisions that this processor has.
    fn precisions() -> Vec<Precision> {
        let all = [Precision::F32, Precision::Bf16];
        all.into_iter().filter(|precision| available_precision(*precision) == *precision).collect()
    }

    /// Returns an element of a panel as an independent implementation rounds it.
    fn column(value: f32, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => f64::from(value),
            Precision::Bf16 => half::bf16::from_f32(value).to_f64(),
        }
    }

    /// Returns the weight of feature `k` as an independent implementation rounds it.
    fn weight(value: f32, k: usize, precision: Precision) -> f64 {
        let up = f64::from(half::bf16::from_bits((value.to_bits() >> 16) as u16 + 1));
        let down = f64::from(half::bf16::from_bits((value.to_bits() >> 16) as u16));
        match precision {
            Precision::F32 => f64::from(value),
            Precision::Bf16 => {
                let dropped = (f64::from(value) - down) / (up - down);
                let dither = ((k % 512) as f64 * 40_503.0 / 65_536.0).fract();
                if dropped + dither < 1.0 { down } else { up }
            }
        }
    }

    #[test]
    fn products_equal_sums_in_f64_at_every_width() {
        let shapes = [(1, 1), (7, 5), (24, 33), (131, 64), (300, 70), (9, 512), (5, 1025), (17, 1_300)];
        let widths = [16, 32, 48, 64];
        for (precision, (rows, inner), width) in precisions()
            .into_iter()
            .flat_map(|p| shapes.into_iter().flat_map(move |s| widths.map(move |w| (p, s, w))))
        {
            let (w, x, old) = (random(rows * inner, 0), random(inner * width, 1), random(rows * width, 2));
            let mut pairs = vec![f32::NAN; inner.div_ceil(2) * width];
            let columns = Columns::new(&x, width, precision, &mut pairs);
            for write in [Write::Set, Write::Add] {
                let mut y = old.clone();
                product(&w, inner, columns, width, &mut y, write);
                for (i, y) in y.iter().enumerate() {
                    let (r, c) = (i / width, i % width);
                    let terms = (0..inner).map(|k| {
                        weight(w[r * inner + k], k, precision) * column(x[k * width + c], precision)
                    });
                    let start = if write == Write::Add { f64::from(old[i]) } else { 0.0 };
                    let want = start + terms.clone().sum::<f64>();
                    let size = start.abs() + terms.map(f64::abs).sum::<f64>();
                    assert!(
                        (f64::from(*y) - want).abs() < 1e-6 * size,
                        "{precision:?} {rows} {inner} {width} {i}: {y} {want}"
                    );
                }
            }
        }
    }

    /// An update that is smaller than the spacing of bf16 changes some of the rounded weights.
    #[test]
    fn small_updates_reach_products_in_bf16() {
        let (inner, width) = (512, 16);
        let x = vec![1.0; inner * width];
        let mut pairs = vec![0.0; inner / 2 * width];
        let columns = Columns::new(&x, width, available_precision(Precision::Bf16), &mut pairs);
        // The spacing at 1 is 2^-7.
        for update in [1.0 / 4096.0, 1.0 / 1024.0, 1.0 / 300.0] {
            let mut y = vec![0.0; width];
            product(&vec![1.0 + update; inner], inner, columns, width, &mut y, Write::Set);
            let (sum, want) = (y[0] - inner as f32, inner as f32 * update);
            assert!((sum - want).abs() < 0.02 + 0.02 * want, "{sum} {want}");
        }
    }

    /// Tests the code for other machines: registers of eight numbers, and no vector registers.
    #[test]
    fn narrower_registers_give_the_same_products() {
        let (rows, inner, width) = (23, 41, 48);
        let (w, x) = (random(rows * inner, 0), random(inner * width, 1));
        let mut wide = vec![0.0; rows * width];
        product(&w, inner, Columns::F32(&x), width, &mut wide, Write::Set);
        let check = |name: &str, run: &dyn Fn(PanelProduct<'_>)| {
            let mut y = vec![0.0; rows * width];
            run(PanelProduct { weights: &w, inner, x: &x, width, y: &mut y, write: Write::Set });
            for (a, b) in y.iter().zip(&wide) {
                assert!((a - b).abs() < 1e-4, "{name}: {a} {b}");
            }
        };
        check("scalar", &|product| Simd::vectorize(pulp::Scalar::new(), product));
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            check("AVX2", &|product| Simd::vectorize(simd, product));
        }
    }

    #[test]
    fn a_column_does_not_depend_on_other_columns() {
        let (rows, inner) = (37, 50);
        let (w, column) = (random(rows * inner, 0), random(inner, 1));
        for precision in precisions() {
            let mut results = Vec::new();
            for (width, place) in [(16, 0), (16, 15), (32, 17), (48, 33), (64, 63)] {
                let mut x = random(inner * width, 2);
                (0..inner).for_each(|k| x[k * width + place] = column[k]);
                let (mut y, mut h) = (vec![0.0; rows * width], vec![0.0; 18 * width]);
                let mut pairs = vec![0.0; inner * width / 2];
                let columns = Columns::new(&x, width, precision, &mut pairs);
                product(&w, inner, columns, width, &mut y, Write::Set);
                gated(&w[..36 * inner], inner, columns, width, &mut h);
                let mut n = vec![0.0; inner * width];
                rms_norm(&x, &column, 1e-6, width, &mut n);
                let all = y.chunks(width).chain(h.chunks(width)).chain(n.chunks(width));
                results.push(all.map(|row| row[place].to_bits()).collect::<Vec<u32>>());
            }
            assert!(results.windows(2).all(|w| w[0] == w[1]), "{precision:?}");
        }
    }

    #[test]
    fn norm_and_gate_follow_their_formulas() {
        let (inner, width) = (30, 32);
        let (x, gain, w) = (random(inner * width, 0), random(inner, 1), random(14 * inner, 2));
        let (mut y, mut h) = (vec![0.0; inner * width], vec![0.0; 7 * width]);
        rms_norm(&x, &gain, 1e-3, width, &mut y);
        gated(&w, inner, Columns::F32(&x), width, &mut h);
        let at = |k: usize, c: usize| f64::from(x[k * width + c]);
        for c in 0..width {
            let mean = (0..inner).map(|k| at(k, c).powi(2)).sum::<f64>() / inner as f64;
            for k in 0..inner {
                let want = f64::from(gain[k]) * at(k, c) / (mean + 1e-3).sqrt();
                assert!((f64::from(y[k * width + c]) - want).abs() < 1e-5);
            }
            for r in 0..7 {
                let dot =
                    |row: usize| (0..inner).map(|k| f64::from(w[row * inner + k]) * at(k, c)).sum::<f64>();
                let (g, u) = (dot(r), dot(r + 7));
                let want = g / (1.0 + (-g).exp()) * u;
                assert!((f64::from(h[r * width + c]) - want).abs() < 1e-4 * want.abs().max(1.0));
            }
        }
    }

    #[test]
    fn transposes_of_any_shape() {
        for (rows, cols) in [(1, 1), (16, 16), (17, 40), (48, 5), (64, 96)] {
            let (from_stride, to_stride) = (cols + 3, rows + 2);
            let from = random(rows * from_stride, 0);
            let mut to = vec![0.0; cols * to_stride];
            transpose(&from, from_stride, rows, cols, &mut to, to_stride);
            for (r, c) in (0..rows * cols).map(|i| (i / cols, i % cols)) {
                assert_eq!(to[c * to_stride + r], from[r * from_stride + c]);
            }
        }
    }
}
