//! RMSNorm, alone and fused with the preceding residual sum, and its backward pass.

use rayon::prelude::*;

use sgs_lm::device::Heads;

use super::math::{dot, sum2};
use super::{rows_per_task, simd};

/// Computes `y = x · rstd · w` per row, with `rstd = 1 / sqrt(mean(x²) + eps)` (Zhang & Sennrich 2019, eq. 4).
///
/// `x` and `y` are `[rows, width]`, `w` is `[width]`, `rstd` is `[rows]`.
pub fn rmsnorm(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let width = w.len();
    let rows = rows_per_task(width);
    y.par_chunks_mut(rows * width).zip(x.par_chunks(rows * width)).zip(rstd.par_chunks_mut(rows)).for_each(
        |((y, x), rstd)| {
            simd(
                #[inline(always)]
                || {
                    for ((y, x), r) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(rstd) {
                        *r = normalise_row(x, w, eps, y);
                    }
                },
            );
        },
    );
}

/// Computes `sum = x + r`, then RMSNorm of `sum` into `y`; shapes as in [`rmsnorm`].
pub fn add_rmsnorm(
    x: &[f32],
    r: &[f32],
    w: &[f32],
    eps: f32,
    sum: &mut [f32],
    y: &mut [f32],
    rstd: &mut [f32],
) {
    let width = w.len();
    let rows = rows_per_task(width);
    let chunk = rows * width;
    y.par_chunks_mut(chunk)
        .zip(sum.par_chunks_mut(chunk))
        .zip(x.par_chunks(chunk))
        .zip(r.par_chunks(chunk))
        .zip(rstd.par_chunks_mut(rows))
        .for_each(|((((y, sum), x), r), rstd)| {
            simd(
                #[inline(always)]
                || {
                    let rows = y.chunks_exact_mut(width).zip(sum.chunks_exact_mut(width));
                    for (((y, sum), (x, r)), out) in
                        rows.zip(x.chunks_exact(width).zip(r.chunks_exact(width))).zip(rstd)
                    {
                        for ((s, x), r) in sum.iter_mut().zip(x).zip(r) {
                            *s = x + r;
                        }
                        *out = normalise_row(sum, w, eps, y);
                    }
                },
            );
        });
}

/// Computes one row of [`rmsnorm`]; returns its `rstd`.
#[inline(always)]
pub fn normalise_row(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) -> f32 {
    let r = 1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt();
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = x * r * w;
    }
    r
}

/// Number of rows whose weight gradient is summed into one partial row.
pub const PARTIAL_ROWS: usize = 64;

/// Computes the backward pass of [`rmsnorm`]: `dx += ∂L/∂x`, `dw += ∂L/∂w`.
///
/// With `x̂ = x rstd` and `g = dy w`: `∂L/∂x = rstd (g - x̂ mean(g x̂))`, `∂L/∂w = Σ_rows dy x̂`. `partial` is
/// scratch memory of at least `rows.div_ceil(PARTIAL_ROWS) · width`.
pub fn rmsnorm_backward(
    dy: &[f32],
    x: &[f32],
    rstd: &[f32],
    w: &[f32],
    dx: &mut [f32],
    dw: &mut [f32],
    partial: &mut [f32],
) {
    let width = w.len();
    let chunk = PARTIAL_ROWS * width;
    dx.par_chunks_mut(chunk)
        .zip(dy.par_chunks(chunk))
        .zip(x.par_chunks(chunk))
        .zip(rstd.par_chunks(PARTIAL_ROWS))
        .zip(partial.par_chunks_mut(width))
        .for_each(|((((dx, dy), x), rstd), partial)| {
            simd(
                #[inline(always)]
                || {
                    partial.fill(0.0);
                    let rows =
                        dx.chunks_exact_mut(width).zip(dy.chunks_exact(width)).zip(x.chunks_exact(width));
                    for (((dx, dy), x), r) in rows.zip(rstd) {
                        backward_row(dy, x, *r, w, dx, partial);
                    }
                },
            );
        });
    let used = rstd.len().div_ceil(PARTIAL_ROWS);
    sum_rows(&partial[..used * width], dw);
}

#[inline(always)]
fn backward_row(dy: &[f32], x: &[f32], r: f32, w: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    let shift = backward_shift(dy, x, r, w, dw);
    for (((dx, dy), x), w) in dx.iter_mut().zip(dy).zip(x).zip(w) {
        *dx += r * (dy * w - x * shift);
    }
}

/// Adds a row's part of `∂L/∂w` to `dw`; returns `rstd mean(g x̂)`.
#[inline(always)]
fn backward_shift(dy: &[f32], x: &[f32], r: f32, w: &[f32], dw: &mut [f32]) -> f32 {
    for ((dw, dy), x) in dw.iter_mut().zip(dy).zip(x) {
        *dw += dy * x * r;
    }
    // Compute mean(g x̂) with g = dy w. The product of three factors is computed in two steps while the row is in the
    // cache.
    let mut lanes = [0.0f32; super::math::LANES];
    let n = super::math::LANES;
    let whole = x.len() / n * n;
    for ((dy, x), w) in
        dy[..whole].chunks_exact(n).zip(x[..whole].chunks_exact(n)).zip(w[..whole].chunks_exact(n))
    {
        for i in 0..n {
            lanes[i] += dy[i] * x[i] * w[i];
        }
    }
    let mut sum = sum2(&lanes, &lanes, |a, _| a);
    for i in whole..x.len() {
        sum += dy[i] * x[i] * w[i];
    }
    sum * r * r / x.len() as f32
}

/// Applies RMSNorm to the query and key heads of every row of `qkv`; values are copied. `w` is `[2, head_dim]`: the
/// weights for query heads and for key heads.
pub fn head_norm(qkv: &[f32], heads: Heads, w: &[f32], eps: f32, out: &mut [f32]) {
    let width = heads.qkv_dim();
    let chunk = rows_per_task(width) * width;
    out.par_chunks_mut(chunk).zip(qkv.par_chunks(chunk)).for_each(|(out, qkv)| {
        out.copy_from_slice(qkv);
        out.chunks_exact_mut(width).for_each(|row| normalise_heads(row, heads, w, eps));
    });
}

/// Computes one row of [`head_norm`] in place.
pub fn normalise_heads(row: &mut [f32], heads: Heads, w: &[f32], eps: f32) {
    simd(
        #[inline(always)]
        || {
            for (head, w) in normed_heads(row, heads, w) {
                let r = 1.0 / (dot(head, head) / head.len() as f32 + eps).sqrt();
                for (x, w) in head.iter_mut().zip(w) {
                    *x *= r * w;
                }
            }
        },
    );
}

/// Returns the query and key heads of a row with their weights.
#[inline(always)]
fn normed_heads<'a>(
    row: &'a mut [f32],
    heads: Heads,
    w: &'a [f32],
) -> impl Iterator<Item = (&'a mut [f32], &'a [f32])> {
    let (query, key) = w.split_at(heads.head_dim);
    let weights = std::iter::repeat_n(query, heads.heads).chain(std::iter::repeat_n(key, heads.kv_heads));
    row.chunks_exact_mut(heads.head_dim).zip(weights)
}

/// Computes the backward pass of [`head_norm`]: replaces `dqkv`, the gradient of its output, by that of its input
/// `qkv`; `dw += ∂L/∂w`. `partial` is scratch memory of at least `rows.div_ceil(PARTIAL_ROWS) · 2 head_dim`.
pub fn head_norm_backward(
    qkv: &[f32],
    heads: Heads,
    w: &[f32],
    eps: f32,
    dqkv: &mut [f32],
    dw: &mut [f32],
    partial: &mut [f32],
) {
    let (width, dim) = (heads.qkv_dim(), heads.head_dim);
    let chunk = PARTIAL_ROWS * width;
    let used = dqkv.len().div_ceil(chunk) * w.len();
    let partial = &mut partial[..used];
    dqkv.par_chunks_mut(chunk).zip(qkv.par_chunks(chunk)).zip(partial.par_chunks_mut(w.len())).for_each(
        |((dqkv, qkv), partial)| {
            partial.fill(0.0);
            let (query, key) = partial.split_at_mut(dim);
            simd(
                #[inline(always)]
                || {
                    for (dy, x) in dqkv.chunks_exact_mut(width).zip(qkv.chunks_exact(width)) {
                        for (head, ((dy, w), x)) in
                            normed_heads(dy, heads, w).zip(x.chunks_exact(dim)).enumerate()
                        {
                            let r = 1.0 / (dot(x, x) / dim as f32 + eps).sqrt();
                            let dw = if head < heads.heads { &mut *query } else { &mut *key };
                            let shift = backward_shift(dy, x, r, w, dw);
                            for ((dy, x), w) in dy.iter_mut().zip(x).zip(w) {
                                *dy = r * (*dy * w - x * shift);
                            }
                        }
                    }
                },
            );
        },
    );
    sum_rows(partial, dw);
}

/// Computes `total += Σ_rows rows[row]`, in the order of rows.
pub(crate) fn sum_rows(rows: &[f32], total: &mut [f32]) {
    simd(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(total.len()) {
                for (t, x) in total.iter_mut().zip(row) {
                    *t += x;
                }
            }
        },
    );
}
