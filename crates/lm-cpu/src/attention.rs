//! Causal attention over packed sequences, forward and backward, in blocks of the lower triangle with a running
//! softmax (Dao et al. 2022, algorithms 1 and 4). Scores exist only on the stack of a task.

#![allow(unsafe_code)]

use rayon::prelude::*;

use super::gemm::{RawProduct, Threads, Write};
use super::math::{dot, exp, max};
use super::simd;
use sgs_lm::device::{Heads, row_count};

/// Queries and keys per block of scores.
const BLOCK: usize = 64;

/// A block of scores on the stack: 16 KiB.
#[repr(align(64))]
struct Scores([f32; BLOCK * BLOCK]);

/// A pointer to a buffer whose rows several tasks write at disjoint columns.
#[derive(Clone, Copy)]
struct SharedMut(*mut f32);

// SAFETY: tasks write disjoint elements (each has its own sequence and head); see the uses.
unsafe impl Send for SharedMut {}
// SAFETY: as above.
unsafe impl Sync for SharedMut {}

impl SharedMut {
    fn ptr(self) -> *mut f32 {
        self.0
    }
}

/// Position and size of a pair of blocks.
#[derive(Clone, Copy)]
struct HeadBlock {
    start: usize,
    len: usize,
}

fn blocks(from: usize, to: usize) -> impl Iterator<Item = HeadBlock> {
    (from..to).step_by(BLOCK).map(move |start| HeadBlock { start, len: BLOCK.min(to - start) })
}

/// Computes `out[i] = Σ_j softmax_j(q_i k_j / √d) v_j` over `j <= i` of the same sequence, and the log-sum-exp
/// of the scores. Sizes are as in [`sgs_lm::device::Device::attention`].
pub fn attention(qkv: &[f32], starts: &[usize], heads: Heads, out: &mut [f32], lse: &mut [f32]) {
    let rows = row_count(starts);
    let (d, width, out_width) = (heads.head_dim, heads.qkv_dim(), heads.heads * heads.head_dim);
    assert!(qkv.len() >= rows * width && out.len() >= rows * out_width && lse.len() >= rows * heads.heads);
    let group = heads.heads / heads.kv_heads;
    let (out, lse) = (SharedMut(out.as_mut_ptr()), SharedMut(lse.as_mut_ptr()));
    (0..(starts.len() - 1) * heads.heads).into_par_iter().for_each(|task| {
        let (sequence, head) = (task / heads.heads, task % heads.heads);
        let (from, to) = (starts[sequence], starts[sequence + 1]);
        let q_col = head * d;
        let k_col = (heads.heads + head / group) * d;
        let v_col = (heads.heads + heads.kv_heads + head / group) * d;
        let scale = 1.0 / (d as f32).sqrt();
        let mut scores = Scores([0.0; BLOCK * BLOCK]);
        for query in blocks(from, to) {
            let mut peak = [f32::NEG_INFINITY; BLOCK];
            let mut total = [0.0f32; BLOCK];
            for key in blocks(from, query.start + query.len) {
                let product = RawProduct {
                    m: query.len,
                    n: key.len,
                    k: d,
                    dst: scores.0.as_mut_ptr(),
                    dst_row_stride: BLOCK,
                    lhs: qkv[query.start * width + q_col..].as_ptr(),
                    lhs_strides: (width, 1),
                    rhs: qkv[key.start * width + k_col..].as_ptr(),
                    rhs_strides: (1, width),
                };
                // SAFETY: rows of both blocks are less than `rows`, and columns are within a row; `scores` has
                // `BLOCK` x `BLOCK` elements and belongs to this task.
                unsafe { product.run(Write::Set, scale, Threads::One) };
                simd(
                    #[inline(always)]
                    || {
                        for i in 0..query.len {
                            let valid = (query.start + i + 1 - key.start).min(key.len);
                            let row = &mut scores.0[i * BLOCK..i * BLOCK + key.len];
                            let new_peak = peak[i].max(max(&row[..valid]));
                            let shrink = exp(peak[i] - new_peak);
                            let sum = exponentials(&mut row[..valid], new_peak);
                            row[valid..].fill(0.0);
                            total[i] = total[i] * shrink + sum;
                            peak[i] = new_peak;
                            if key.start > from {
                                let at = (query.start + i) * out_width + q_col;
                                // SAFETY: row `query.start + i` and the columns of this head belong to this
                                // task only; the length check above covers them.
                                let o = unsafe { std::slice::from_raw_parts_mut(out.ptr().add(at), d) };
                                o.iter_mut().for_each(|o| *o *= shrink);
                            }
                        }
                    },
                );
                let product = RawProduct {
                    m: query.len,
                    n: d,
                    k: key.len,
                    // SAFETY: inside `out` by the length check above.
                    dst: unsafe { out.ptr().add(query.start * out_width + q_col) },
                    dst_row_stride: out_width,
                    lhs: scores.0.as_ptr(),
                    lhs_strides: (BLOCK, 1),
                    rhs: qkv[key.start * width + v_col..].as_ptr(),
                    rhs_strides: (width, 1),
                };
                let write = if key.start == from { Write::Set } else { Write::Add };
                // SAFETY: as for the scores; the destination has this task's rows and columns.
                unsafe { product.run(write, 1.0, Threads::One) };
            }
            simd(
                #[inline(always)]
                || {
                    for i in 0..query.len {
                        let row = query.start + i;
                        // SAFETY: this task's rows and columns, within the checked lengths.
                        let o = unsafe {
                            std::slice::from_raw_parts_mut(out.ptr().add(row * out_width + q_col), d)
                        };
                        let inverse = 1.0 / total[i];
                        o.iter_mut().for_each(|o| *o *= inverse);
                        // SAFETY: element (row, head) belongs to this task only.
                        unsafe { *lse.ptr().add(row * heads.heads + head) = peak[i] + total[i].ln() };
                    }
                },
            );
        }
    });
}

/// Replaces scores by `exp(score - peak)` and returns their sum.
#[inline(always)]
fn exponentials(row: &mut [f32], peak: f32) -> f32 {
    for x in row.iter_mut() {
        *x = exp(*x - peak);
    }
    super::math::sum2(row, row, |a, _| a)
}

/// Computes the gradient of the merged matrix (every element of `dqkv` is set). Sizes are as in
/// [`sgs_lm::device::Device::attention_backward`].
///
/// With `P` recomputed from `lse` and `D_i = Σ_c dout_ic out_ic`: `dV = Pᵀ dout`, `dS = P (dout Vᵀ - D) / √d`,
/// `dQ = dS K`, `dK = dSᵀ Q`. Each task processes one sequence and one key head with its query heads, so no two
/// tasks add to the same element.
pub fn attention_backward(
    qkv: &[f32],
    starts: &[usize],
    heads: Heads,
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dqkv: &mut [f32],
) {
    let rows = row_count(starts);
    let (d, width, out_width) = (heads.head_dim, heads.qkv_dim(), heads.heads * heads.head_dim);
    assert!(qkv.len() >= rows * width && dqkv.len() >= rows * width && lse.len() >= rows * heads.heads);
    assert!(out.len() >= rows * out_width && dout.len() >= rows * out_width);
    let group = heads.heads / heads.kv_heads;
    let scale = 1.0 / (d as f32).sqrt();
    let dqkv = SharedMut(dqkv.as_mut_ptr());
    (0..(starts.len() - 1) * heads.kv_heads).into_par_iter().for_each(|task| {
        let (sequence, kv_head) = (task / heads.kv_heads, task % heads.kv_heads);
        let (from, to) = (starts[sequence], starts[sequence + 1]);
        let k_col = (heads.heads + kv_head) * d;
        let v_col = (heads.heads + heads.kv_heads + kv_head) * d;
        let mut p = Scores([0.0; BLOCK * BLOCK]);
        let mut ds = Scores([0.0; BLOCK * BLOCK]);
        for head in kv_head * group..(kv_head + 1) * group {
            let q_col = head * d;
            for query in blocks(from, to) {
                let mut delta = [0.0f32; BLOCK];
                simd(
                    #[inline(always)]
                    || {
                        for (i, delta) in delta.iter_mut().enumerate().take(query.len) {
                            let at = (query.start + i) * out_width + q_col;
                            *delta = dot(&out[at..at + d], &dout[at..at + d]);
                        }
                    },
                );
                for key in blocks(from, query.start + query.len) {
                    let q = qkv[query.start * width + q_col..].as_ptr();
                    let k = qkv[key.start * width + k_col..].as_ptr();
                    let v = qkv[key.start * width + v_col..].as_ptr();
                    let o = dout[query.start * out_width + q_col..].as_ptr();
                    // SAFETY (all products of this pair of blocks): rows of both blocks are less than `rows` and
                    // columns are within a row, so the operands are within the checked lengths. `p` and `ds` belong to
                    // this task. In `dqkv`, only the query columns of `head` and the key and value columns of `kv_head`
                    // in rows of this sequence are written, and no other task accesses them.
                    let scores = |dst: *mut f32, lhs, lhs_stride, rhs, scale| {
                        let product = RawProduct {
                            m: query.len,
                            n: key.len,
                            k: d,
                            dst,
                            dst_row_stride: BLOCK,
                            lhs,
                            lhs_strides: (lhs_stride, 1),
                            rhs,
                            rhs_strides: (1, width),
                        };
                        // SAFETY: see above.
                        unsafe { product.run(Write::Set, scale, Threads::One) };
                    };
                    scores(p.0.as_mut_ptr(), q, width, k, scale);
                    scores(ds.0.as_mut_ptr(), o, out_width, v, 1.0);
                    simd(
                        #[inline(always)]
                        || {
                            for i in 0..query.len {
                                let valid = (query.start + i + 1 - key.start).min(key.len);
                                let p = &mut p.0[i * BLOCK..i * BLOCK + key.len];
                                let ds = &mut ds.0[i * BLOCK..i * BLOCK + key.len];
                                let lse = lse[(query.start + i) * heads.heads + head];
                                for (p, ds) in p[..valid].iter_mut().zip(&mut ds[..valid]) {
                                    *p = exp(*p - lse);
                                    *ds = *p * (*ds - delta[i]) * scale;
                                }
                                p[valid..].fill(0.0);
                                ds[valid..].fill(0.0);
                            }
                        },
                    );
                    let first_query = query.start == key.start && head == kv_head * group;
                    let to_keys = |col: usize, block: *const f32, rhs: *const f32, rhs_stride| {
                        let product = RawProduct {
                            m: key.len,
                            n: d,
                            k: query.len,
                            // SAFETY: see above.
                            dst: unsafe { dqkv.ptr().add(key.start * width + col) },
                            dst_row_stride: width,
                            lhs: block,
                            lhs_strides: (1, BLOCK),
                            rhs,
                            rhs_strides: (rhs_stride, 1),
                        };
                        let write = if first_query { Write::Set } else { Write::Add };
                        // SAFETY: see above.
                        unsafe { product.run(write, 1.0, Threads::One) };
                    };
                    to_keys(v_col, p.0.as_ptr(), o, out_width);
                    to_keys(k_col, ds.0.as_ptr(), q, width);
                    let to_queries = RawProduct {
                        m: query.len,
                        n: d,
                        k: key.len,
                        // SAFETY: see above.
                        dst: unsafe { dqkv.ptr().add(query.start * width + q_col) },
                        dst_row_stride: width,
                        lhs: ds.0.as_ptr(),
                        lhs_strides: (BLOCK, 1),
                        rhs: k,
                        rhs_strides: (width, 1),
                    };
                    let write = if key.start == from { Write::Set } else { Write::Add };
                    // SAFETY: see above.
                    unsafe { to_queries.run(write, 1.0, Threads::One) };
                }
            }
        }
    });
}
