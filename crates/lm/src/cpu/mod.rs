//! The CPU device: f32 buffers, products by the `gemm` crate, everything else in fused kernels whose
//! row loops run on all threads and whose inner loops are compiled for the best instruction set that
//! the machine has.
//!
//! Every reduction is split by rows or columns, never by thread, so results do not depend on scheduling.

pub mod adam;
pub mod attention;
pub mod buffer;
pub mod device;
pub mod gemm;
pub mod loss;
pub mod math;
pub mod norm;
pub mod rope;
pub mod rows;
pub mod swiglu;

pub use buffer::Floats;
pub(crate) use buffer::Lent;
pub use device::{Cpu, CpuAdam};

/// Runs `f` compiled for the widest vectors that this machine has.
///
/// What `f` calls is vectorised only if it is `#[inline(always)]`.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Rows that one parallel task takes of a matrix `width` wide: about 16,384 numbers, so that a task
/// outweighs its dispatch. It depends on the shape alone.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}
