//! Rounding to bfloat16, for products with bfloat16 operands and f32 sums (`VDPBF16PS`). The instruction multiplies pairs
//! of adjacent numbers along the inner dimension; a pair occupies 32 bits, with the first number in the lower half.
//!
//! Activations and gradients are rounded to the nearest number, weights with a fixed dither.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Numbers of 32 bits per register.
pub(crate) const LANES: usize = 16;

/// Length of [`DITHER`], a multiple of `2 * LANES`.
pub(crate) const DITHER_LEN: usize = 512;

/// Added to the bits of the weight of an input feature before the lower half is dropped, so that a fraction of the weights
/// is rounded up that equals the dropped part on average. Rounding each weight to the nearest bf16 would ignore most of
/// an update, which is smaller than the spacing of bf16 numbers. A weight that bf16 represents exactly does not change.
///
/// The numbers are a low-discrepancy sequence: multiples of the golden ratio, modulo 1, in units of 2^-16. Trainer and
/// sampler use the same one, so they multiply by the same weights.
pub(crate) static DITHER: [u32; DITHER_LEN] = {
    let (mut dither, mut i) = ([0; DITHER_LEN], 0);
    while i < DITHER_LEN {
        dither[i] = (i as u32 * 40_503) % (1 << 16);
        i += 1;
    }
    dither
};

/// Returns whether the processor has the instructions of the products in bf16.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512bw")
}

/// Returns the mask of the numbers of a register, starting at `first`, that are before `count`.
#[inline(always)]
pub(crate) fn before(count: usize, first: usize) -> __mmask16 {
    ((1u32 << count.saturating_sub(first).min(LANES)) - 1) as __mmask16
}

/// Rounds two registers to the nearest bf16 numbers and makes pairs of their lanes; `low` becomes the lower halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) fn nearest_pairs(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both types are registers of 512 bits.
    let both = unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) };
    _mm512_permutexvar_epi16(interleaved(), both)
}

/// Rounds `count` consecutive numbers to the nearest bf16 numbers, two per element of `to`. Fills the last register of
/// `to` with zeros.
///
/// # Safety
/// `from` must point to `count` numbers, and `to` to `count.div_ceil(2).next_multiple_of(LANES)` elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn round_nearest(from: *const f32, count: usize, to: *mut u32) {
    for first in (0..count).step_by(2 * LANES) {
        // SAFETY: the masks select only numbers before `count`, and `to` has a register for these numbers.
        unsafe {
            let half = |at: usize| _mm512_maskz_loadu_ps(before(count, at), from.wrapping_add(at));
            let both = _mm512_cvtne2ps_pbh(half(first + LANES), half(first));
            let both = std::mem::transmute::<__m512bh, __m512i>(both);
            _mm512_storeu_si512(to.add(first / 2).cast(), both);
        }
    }
}

/// Rounds `count` consecutive weights to bf16, two per element of `to`: adds [`DITHER`] to their bits and keeps the upper
/// half. The first one is that of input feature `feature`, a multiple of [`LANES`]. Fills the last register of `to` with
/// zeros.
///
/// # Safety
/// `weights` must point to `count` numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn round_weights(
    weights: *const f32,
    count: usize,
    feature: usize,
    to: &mut [MaybeUninit<u32>],
) {
    let upper = upper_halves();
    for (i, to) in to.chunks_exact_mut(LANES).take(count.div_ceil(2 * LANES)).enumerate() {
        // SAFETY: `weights` has `count` numbers, and `to` has the size of a register.
        unsafe {
            let half = |first| dithered(weights, count, first, feature + first);
            let both = _mm512_permutex2var_epi16(half(2 * i * LANES), upper, half((2 * i + 1) * LANES));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), both);
        }
    }
}

/// Returns the bits of a register of weights, from the one with index `first`, plus the dither of `feature`, a multiple of
/// [`LANES`], and those after it. The bf16 numbers are the upper halves. Lanes from `count` on have weight zero.
///
/// # Safety
/// `weights` must point to `count` numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn dithered(weights: *const f32, count: usize, first: usize, feature: usize) -> __m512i {
    let dither = DITHER[feature % DITHER_LEN..][..LANES].as_ptr();
    // SAFETY: the mask selects only numbers before `count`; masked numbers are not read. `dither` has sixteen numbers.
    unsafe {
        let weights = _mm512_maskz_loadu_ps(before(count, first), weights.wrapping_add(first));
        _mm512_add_epi32(_mm512_castps_si512(weights), _mm512_loadu_si512(dither.cast()))
    }
}

/// Returns the permutation of 16-bit lanes that alternates the lower and the upper half of a register.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn interleaved() -> __m512i {
    let lanes: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * LANES) as u16);
    // SAFETY: the array has the size of a register.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// Returns the permutation that selects the upper halves of the 32-bit lanes of two registers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn upper_halves() -> __m512i {
    let lanes: [u16; 32] = std::array::from_fn(|i| 2 * i as u16 + 1);
    // SAFETY: the array has the size of a register.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// Makes pairs of the upper halves of the lanes of two registers; those of `low` become the lower halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn pairs_of_upper_halves(low: __m512i, high: __m512i) -> __m512i {
    let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, upper))
}
