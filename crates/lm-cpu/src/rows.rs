//! Copies and sums of rows: embedding lookup and its gradient, gathering, biases.

#![allow(unsafe_code)]

use rayon::prelude::*;

use super::norm::{PARTIAL_ROWS, sum_rows};
use super::{rows_per_task, simd};

/// Computes `out[i] = table[ids[i]]`.
pub fn gather(table: &[f32], ids: &[u32], width: usize, out: &mut [f32]) {
    let rows = rows_per_task(width);
    out.par_chunks_mut(rows * width).zip(ids.par_chunks(rows)).for_each(|(out, ids)| {
        for (out, id) in out.chunks_exact_mut(width).zip(ids) {
            let at = *id as usize * width;
            out.copy_from_slice(&table[at..at + width]);
        }
    });
}

/// Computes `out[ids[i]] = rows[i]`; the ids are distinct.
pub fn scatter(rows: &[f32], ids: &[u32], width: usize, out: &mut [f32]) {
    for (row, id) in rows.chunks_exact(width).zip(ids) {
        let at = *id as usize * width;
        out[at..at + width].copy_from_slice(row);
    }
}

/// Columns per task of [`embed_backward`].
const COLUMNS: usize = 64;

/// Computes `grad[ids[i]] += dout[i]`. Each task adds a block of columns in the order of `i`, so the sums do not depend
/// on the number of threads.
pub fn embed_backward(dout: &[f32], ids: &[u32], width: usize, grad: &mut [f32]) {
    struct Shared(*mut f32);
    // SAFETY: tasks write disjoint columns, see below.
    unsafe impl Sync for Shared {}
    impl Shared {
        fn ptr(&self) -> *mut f32 {
            self.0
        }
    }
    assert!(dout.len() >= ids.len() * width);
    assert!(ids.iter().all(|id| (*id as usize + 1) * width <= grad.len()), "token id beyond the table");
    let grad = Shared(grad.as_mut_ptr());
    (0..width.div_ceil(COLUMNS)).into_par_iter().for_each(|block| {
        let columns = block * COLUMNS..((block + 1) * COLUMNS).min(width);
        simd(
            #[inline(always)]
            || {
                for (row, id) in dout.chunks_exact(width).zip(ids) {
                    let at = *id as usize * width + columns.start;
                    // SAFETY: inside `grad` by the check above; only this task accesses these columns.
                    let target = unsafe { std::slice::from_raw_parts_mut(grad.ptr().add(at), columns.len()) };
                    for (t, x) in target.iter_mut().zip(&row[columns.clone()]) {
                        *t += x;
                    }
                }
            },
        );
    });
}

/// Computes `y[row] += bias`.
pub fn add_bias(y: &mut [f32], bias: &[f32]) {
    let width = bias.len();
    y.par_chunks_mut(rows_per_task(width) * width).for_each(|y| {
        simd(
            #[inline(always)]
            || {
                for y in y.chunks_exact_mut(width) {
                    for (y, b) in y.iter_mut().zip(bias) {
                        *y += b;
                    }
                }
            },
        );
    });
}

/// Computes `db += Σ_rows dy`; `partial` is scratch memory of `rows.div_ceil(64) · width`.
pub fn bias_backward(dy: &[f32], db: &mut [f32], partial: &mut [f32]) {
    let width = db.len();
    let used = dy.len().div_ceil(PARTIAL_ROWS * width) * width;
    partial[..used].par_chunks_mut(width).zip(dy.par_chunks(PARTIAL_ROWS * width)).for_each(
        |(partial, dy)| {
            partial.fill(0.0);
            sum_rows(dy, partial);
        },
    );
    sum_rows(&partial[..used], db);
}

/// Computes `sum = a + b`.
pub fn add(a: &[f32], b: &[f32], sum: &mut [f32]) {
    const CHUNK: usize = 1 << 14;
    sum.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).zip(b.par_chunks(CHUNK)).for_each(|((sum, a), b)| {
        simd(
            #[inline(always)]
            || {
                for ((s, a), b) in sum.iter_mut().zip(a).zip(b) {
                    *s = a + b;
                }
            },
        );
    });
}
