//! SwiGLU: `silu(gate) · up` over the merged gate and up matrix, and its backward pass in place.

use rayon::prelude::*;

use super::math::sigmoid;
use super::{rows_per_task, simd};

/// Computes `act = gate σ(gate) up` (Shazeer 2020, eq. 6); `gate_up` is `[rows, 2 width]` with gate first, `act` is
/// `[rows, width]`.
pub fn swiglu(gate_up: &[f32], act: &mut [f32], width: usize) {
    let rows = rows_per_task(2 * width);
    act.par_chunks_mut(rows * width).zip(gate_up.par_chunks(rows * 2 * width)).for_each(|(act, gate_up)| {
        simd(
            #[inline(always)]
            || {
                for (act, gate_up) in act.chunks_exact_mut(width).zip(gate_up.chunks_exact(2 * width)) {
                    let (gate, up) = gate_up.split_at(width);
                    for ((a, g), u) in act.iter_mut().zip(gate).zip(up) {
                        *a = g * sigmoid(*g) * u;
                    }
                }
            },
        );
    });
}

/// Computes the backward pass of [`swiglu`] in place: `gate_up` is replaced by its gradient, and `act`, which holds
/// `∂L/∂act`, by the activation (which the weight gradient of the down projection needs next).
pub fn swiglu_backward(gate_up: &mut [f32], act: &mut [f32], width: usize) {
    let rows = rows_per_task(2 * width);
    act.par_chunks_mut(rows * width).zip(gate_up.par_chunks_mut(rows * 2 * width)).for_each(
        |(act, gate_up)| {
            simd(
                #[inline(always)]
                || {
                    for (act, gate_up) in act.chunks_exact_mut(width).zip(gate_up.chunks_exact_mut(2 * width))
                    {
                        let (gate, up) = gate_up.split_at_mut(width);
                        for ((a, g), u) in act.iter_mut().zip(gate).zip(up) {
                            let s = sigmoid(*g);
                            let silu = *g * s;
                            let d = *a;
                            *a = silu * *u;
                            *g = d * *u * (s + silu * (1.0 - s));
                            *u = d * silu;
                        }
                    }
                },
            );
        },
    );
}
