//! The CPU back end of the language model: f32 buffers, matrix products by the `gemm` crate, and fused kernels
//! for everything else. The row loops of the kernels run on all threads, and their inner loops are compiled for
//! the best instruction set of the machine. The sampler multiplies in bfloat16 if it is asked to and the processor can.
//!
//! Reductions are divided by rows or columns and never by thread, so results do not depend on scheduling.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod adam;
pub mod attention;
mod decode;
mod device;
pub mod gemm;
pub mod loss;
pub mod math;
pub mod norm;
pub mod rope;
pub mod rows;
pub mod swiglu;

pub use decode::CpuDecoder;
pub use decode::sampling::truncated as sample_truncated;
pub use device::{Cpu, CpuAdam, CpuFootprint};

/// Runs `f` compiled for the widest vectors that this machine has.
///
/// Functions that `f` calls are vectorised only if they are `#[inline(always)]`.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Returns the number of rows of a matrix of this `width` that one parallel task processes: about 16,384 numbers, so
/// that a task takes longer than its dispatch. The number depends only on the shape.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}
