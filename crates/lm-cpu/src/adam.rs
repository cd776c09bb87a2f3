//! The optimizer's pass over all parameters; it also clips and zeroes the gradients.

use rayon::prelude::*;

use super::math::dot;
use super::simd;
use sgs_lm::device::AdamUpdate;

/// Elements per task; sums of squares are added chunk by chunk.
const CHUNK: usize = 1 << 15;

/// Returns `Σ g²`, in f32 within chunks of 256 and in f64 beyond, in an order that does not depend on the
/// number of threads.
pub fn sum_of_squares(grad: &[f32]) -> f64 {
    let chunk = |g: &[f32]| {
        simd(
            #[inline(always)]
            || g.chunks(256).map(|g| f64::from(dot(g, g))).sum::<f64>(),
        )
    };
    // Use a fixed binary tree over whole chunks, so that no list of partial sums is needed.
    fn tree(grad: &[f32], chunk: &(impl Fn(&[f32]) -> f64 + Sync)) -> f64 {
        if grad.len() <= CHUNK {
            return chunk(grad);
        }
        let middle = (grad.len() / 2).next_multiple_of(CHUNK);
        let (a, b) = grad.split_at(middle.min(grad.len()));
        let (a, b) = rayon::join(|| tree(a, chunk), || tree(b, chunk));
        a + b
    }
    tree(grad, &chunk)
}

/// Updates the elements of one piece of the buffer (Kingma & Ba 2015, algorithm 1, with decoupled decay as in
/// Loshchilov & Hutter 2019).
pub fn adam_step(update: AdamUpdate, params: &mut [f32], grad: &mut [f32], m: &mut [f32], v: &mut [f32]) {
    let correction1 = 1.0 - update.beta1.powf(update.t as f64);
    let correction2 = 1.0 - update.beta2.powf(update.t as f64);
    let step = (update.learning_rate / correction1) as f32;
    let inverse_root = (1.0 / correction2.sqrt()) as f32;
    let keep = (1.0 - update.learning_rate * update.weight_decay) as f32;
    let (b1, b2, eps) = (update.beta1 as f32, update.beta2 as f32, update.eps as f32);
    let (c1, c2) = ((1.0 - update.beta1) as f32, (1.0 - update.beta2) as f32);
    let scale = update.gradient_scale as f32;
    params
        .par_chunks_mut(CHUNK)
        .zip(grad.par_chunks_mut(CHUNK))
        .zip(m.par_chunks_mut(CHUNK))
        .zip(v.par_chunks_mut(CHUNK))
        .for_each(|(((params, grad), m), v)| {
            simd(
                #[inline(always)]
                || {
                    for (((p, g), m), v) in params.iter_mut().zip(grad).zip(m).zip(v) {
                        let x = *g * scale;
                        *m = b1 * *m + c1 * x;
                        *v = b2 * *v + c2 * x * x;
                        *p = *p * keep - step * *m / (v.sqrt() * inverse_root + eps);
                        if update.zero_gradient {
                            *g = 0.0;
                        }
                    }
                },
            );
        });
}
