//! Profiles: GPU time per kernel and product, from events before and after each launch.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use cudarc::driver::result as cu;
use cudarc::driver::sys;

use super::gpu::{Gpu, wait_until};
use super::work::{TimedWork, WorkTimes};
use sgs_lm::device::Linear;
use sgs_lm::error::Result;

/// Result of a driver call.
type DriverResult<T> = std::result::Result<T, cu::DriverError>;

/// All launches with one name in a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileLine {
    /// The kernel's name, or the product with its rows, inputs and outputs.
    pub name: String,
    /// Number of launches.
    pub count: usize,
    /// GPU time, in seconds.
    pub seconds: f64,
    /// Floating-point operations; only for products.
    pub flops: f64,
}

impl TimedWork {
    fn line(self) -> DriverResult<(String, f64)> {
        match self {
            Self::Kernel(kernel) => {
                let mut name: *const c_char = std::ptr::null();
                // SAFETY: the kernel's module stays loaded, and so does its name.
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
    /// Submits work to a stream, between two events if a profile is being recorded.
    pub(super) fn timed(
        &self,
        stream: sys::CUstream,
        work: TimedWork,
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
        seen.push(WorkTimes { work, start: before, end });
        Ok(())
    }

    /// Measures the GPU time of all work that `f` submits to this GPU, by name, longest first; the last line is
    /// the time between launches. `f` must submit its work to one stream, and no other thread may use the GPU
    /// meanwhile, because its work would be counted too.
    ///
    /// # Errors
    /// Returns an error if `f` or the driver fails.
    pub fn profile(&self, f: impl FnOnce() -> Result<()>) -> Result<Vec<ProfileLine>> {
        self.wait()?;
        self.recorder.on.store(true, Ordering::Relaxed);
        let outcome = f().and_then(|()| self.wait());
        self.recorder.on.store(false, Ordering::Relaxed);
        let seen = std::mem::take(&mut *self.recorder.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let lines = outcome.and_then(|()| lines(&seen).map_err(|e| self.error("reading events", e)));
        for timed in seen {
            // SAFETY: created by `timed` and not used again.
            let _ = unsafe { (cu::event::destroy(timed.start), cu::event::destroy(timed.end)) };
        }
        lines
    }
}

/// Waits for the work, of which a sampler may have left some running, and sums the times by name.
fn lines(seen: &[WorkTimes]) -> DriverResult<Vec<ProfileLine>> {
    for timed in seen {
        // SAFETY: the event is alive.
        wait_until(|| unsafe { cu::event::query(timed.end) })?;
    }
    // SAFETY: all are live events of one stream.
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
    let between = gaps.sum::<DriverResult<f64>>()?;
    lines.push(ProfileLine { name: "between".to_owned(), count: seen.len(), seconds: between, flops: 0.0 });
    Ok(lines)
}
