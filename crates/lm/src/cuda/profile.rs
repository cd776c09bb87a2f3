//! GPU time by what took it: events around everything that is started while a profile is taken.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::result as cu;
use cudarc::driver::sys;

use super::gemm::Product;
use super::gpu::{Gpu, Kernel};
use crate::device::Linear;
use crate::error::Result;

/// What the driver answers.
type Answer<T> = std::result::Result<T, cu::DriverError>;

/// Something started on a GPU.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// A kernel of this crate.
    Kernel(Kernel),
    /// A matrix product.
    Product(Product, Linear),
    /// So many bytes of zeros.
    Zeros(usize),
}

/// All work of one name in a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileLine {
    /// The kernel, or the product with rows, inputs and outputs.
    pub name: String,
    /// How often it was started.
    pub count: usize,
    /// GPU time, in seconds.
    pub seconds: f64,
    /// Floating-point operations, of products only.
    pub flops: f64,
}

#[derive(Debug)]
struct Timed {
    work: Work,
    start: sys::CUevent,
    end: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Timed {}

/// Takes times while it is on.
#[derive(Debug, Default)]
pub struct Recorder {
    on: AtomicBool,
    seen: Mutex<Vec<Timed>>,
}

impl Recorder {
    /// Whether a profile is taken.
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

impl Work {
    fn line(self) -> Answer<(String, f64)> {
        match self {
            Self::Kernel(kernel) => {
                let mut name: *const c_char = std::ptr::null();
                // SAFETY: the kernel's module stays loaded, and its name with it.
                let name = unsafe {
                    sys::cuFuncGetName(&raw mut name, kernel.0).result()?;
                    CStr::from_ptr(name)
                };
                Ok((name.to_string_lossy().into_owned(), 0.0))
            }
            Self::Product(product, Linear { rows, input, output }) => Ok((
                format!("{product:?} {rows} x {input} x {output}"),
                2.0 * rows as f64 * input as f64 * output as f64,
            )),
            Self::Zeros(bytes) => Ok((format!("zeros, {} MiB", bytes >> 20), 0.0)),
        }
    }
}

impl Gpu {
    /// Starts work on a stream, between two events while a profile is taken.
    pub(super) fn timed(
        &self,
        stream: sys::CUstream,
        work: Work,
        start: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.recorder.is_on() {
            return start();
        }
        let mark = || {
            let event = cu::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
            // SAFETY: event and stream are alive.
            unsafe { cu::event::record(event, stream) }.map(|()| event)
        };
        let fail = |e| self.error("recording an event", e);
        let before = mark().map_err(fail)?;
        start()?;
        let end = mark().map_err(fail)?;
        let mut seen = self.recorder.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Timed { work, start: before, end });
        Ok(())
    }

    /// GPU time of everything that `f` starts on this GPU, by name, longest first; the last line is the time between.
    /// `f` is alone, and starts its work on one stream: what others start meanwhile would be counted too.
    ///
    /// # Errors
    /// `f` or the driver fails.
    pub fn profile(&self, f: impl FnOnce() -> Result<()>) -> Result<Vec<ProfileLine>> {
        self.wait()?;
        self.recorder.on.store(true, Ordering::Relaxed);
        let outcome = f().and_then(|()| self.wait());
        self.recorder.on.store(false, Ordering::Relaxed);
        let seen = std::mem::take(&mut *self.recorder.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let lines = outcome.and_then(|()| lines(&seen).map_err(|e| self.error("reading events", e)));
        for timed in seen {
            // SAFETY: made by `timed` and not used again.
            let _ = unsafe { (cu::event::destroy(timed.start), cu::event::destroy(timed.end)) };
        }
        lines
    }
}

/// Sums by name; all events have passed.
fn lines(seen: &[Timed]) -> Answer<Vec<ProfileLine>> {
    // SAFETY: all are events of one stream that are alive.
    let seconds = |from, to| unsafe { cu::event::elapsed(from, to) }.map(|ms| f64::from(ms) / 1e3);
    let mut by_name: HashMap<String, ProfileLine> = HashMap::new();
    for timed in seen {
        let (name, flops) = timed.work.line()?;
        let line =
            by_name.entry(name.clone()).or_insert(ProfileLine { name, count: 0, seconds: 0.0, flops: 0.0 });
        line.count += 1;
        line.seconds += seconds(timed.start, timed.end)?;
        line.flops += flops;
    }
    let mut lines: Vec<ProfileLine> = by_name.into_values().collect();
    lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let gaps = seen.windows(2).map(|pair| seconds(pair[0].end, pair[1].start));
    let between = gaps.sum::<Answer<f64>>()?;
    lines.push(ProfileLine { name: "between".to_owned(), count: seen.len(), seconds: between, flops: 0.0 });
    Ok(lines)
}
