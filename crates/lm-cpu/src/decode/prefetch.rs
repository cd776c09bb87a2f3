//! Prefetching for streams that are too short for the processor's own prefetcher.

#![allow(unsafe_code)]

/// Numbers per cache line.
pub(crate) const LINE: usize = 16;

/// Prefetches a cache line. This is only a hint, so any address is valid.
#[inline(always)]
pub(crate) fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction; it neither faults nor changes memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
