//! Rotary position embeddings, applied in place to the query and key heads of a merged QKV matrix.

use rayon::prelude::*;

use super::{rows_per_task, simd};
use sgs_lm::rope::RopeTables;

/// Direction of the rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Forward pass.
    Forward,
    /// Backward pass: the transposed rotation.
    Backward,
}

/// Rotates the first `rotated_heads` heads of every row of `qkv` (`[rows, row_width]`) by its position:
/// `(a, b) → (a cos - b sin, b cos + a sin)`, where `a` and `b` are the two halves of a head (Su et al. 2021,
/// eq. 34, in the half-split order of Hugging Face files).
///
/// `positions` is `[rows]`; each is less than `tables.positions`.
pub fn rope(
    qkv: &mut [f32],
    row_width: usize,
    rotated_heads: usize,
    positions: &[u32],
    tables: &RopeTables,
    turn: Turn,
) {
    let half = tables.half;
    let rows = rows_per_task(row_width);
    qkv.par_chunks_mut(rows * row_width).zip(positions.par_chunks(rows)).for_each(|(qkv, positions)| {
        simd(
            #[inline(always)]
            || {
                for (row, position) in qkv.chunks_exact_mut(row_width).zip(positions) {
                    let at = *position as usize * half;
                    let (cos, sin) = (&tables.cos[at..at + half], &tables.sin[at..at + half]);
                    let heads = row[..rotated_heads * 2 * half].chunks_exact_mut(2 * half);
                    match turn {
                        Turn::Forward => heads.for_each(|head| rotate(head, cos, sin, 1.0)),
                        Turn::Backward => heads.for_each(|head| rotate(head, cos, sin, -1.0)),
                    }
                }
            },
        );
    });
}

#[inline(always)]
fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
    let (a, b) = head.split_at_mut(cos.len());
    for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        let s = sign * s;
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}
