//! Work that is submitted to a GPU, and the record of its times while a profile is taken.

#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;

use sgs_lm::device::{Linear, Write};

/// A kernel on the GPU.
#[derive(Debug, Clone, Copy)]
pub struct CudaKernel(pub(super) sys::CUfunction);

// SAFETY: a handle to a function of a module that stays loaded; any thread may use it.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

/// Which product of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearProduct {
    /// `y = x wᵀ`.
    Forward,
    /// `dx = dy w`.
    Input,
    /// `dw = dyᵀ x` or `dw += dyᵀ x`, f32.
    Weight(Write),
}

/// Work submitted to a GPU.
#[derive(Debug, Clone, Copy)]
pub enum TimedWork {
    /// A kernel of this crate.
    Kernel(CudaKernel),
    /// A matrix product.
    Product(LinearProduct, Linear),
    /// Zeroes this many bytes.
    Zeros(usize),
}

/// Work, and the events before and after it.
#[derive(Debug)]
pub(super) struct WorkTimes {
    pub work: TimedWork,
    pub start: sys::CUevent,
    pub end: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for WorkTimes {}

/// Records the times of work while it is enabled.
#[derive(Debug, Default)]
pub(super) struct WorkRecorder {
    pub on: AtomicBool,
    pub seen: Mutex<Vec<WorkTimes>>,
}

impl WorkRecorder {
    /// Returns whether a profile is being recorded.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}
