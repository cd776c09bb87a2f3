//! Products of a panel with bfloat16 operands and f32 sums (`VDPBF16PS`). One instruction multiplies two features of
//! sixteen columns, so these products take half the time of those in f32.
//!
//! The columns are rounded to the nearest number once per product. Weights are rounded when a tile reads them, so that
//! no second copy of the parameters must follow the trainer's updates.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::prefetch::{LINE, prefetch};
use crate::gemm::Write;

/// Features whose weights a tile rounds at a time; a multiple of 32.
const BLOCK: usize = 512;

/// Added to the bits of the weight of a feature before the lower half is dropped, so that a fraction of the weights is
/// rounded up that equals the dropped part on average. Rounding each weight to the nearest bf16 would ignore most of an
/// update, which is smaller than the spacing of bf16 numbers, and the sampler would lag behind the trainer. A weight
/// that bf16 represents exactly does not change.
///
/// The numbers are a low-discrepancy sequence: multiples of the golden ratio, modulo 1, in units of 2^-16.
pub(super) static DITHER: [u32; BLOCK] = {
    let (mut dither, mut i) = ([0; BLOCK], 0);
    while i < BLOCK {
        dither[i] = (i as u32 * 40_503) % (1 << 16);
        i += 1;
    }
    dither
};

/// Columns per register.
const LANES: usize = 16;

/// A product whose lengths were checked: `y` has a multiple of `width` elements, `weights` has `inner` features for
/// each row of `y`, and `pairs` is `[inner.div_ceil(2), width]`.
pub(super) struct Bf16Product<'a> {
    pub weights: &'a [f32],
    pub inner: usize,
    pub pairs: &'a [f32],
    pub width: usize,
    pub y: &'a mut [f32],
    pub write: Write,
}

/// Returns whether the processor has the instructions of this module.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512bw")
}

/// Rounds the panel `x`, `[inner, width]`, to bf16. An element of `pairs`, `[inner.div_ceil(2), width]`, holds two
/// adjacent features of a column in its bits, the first one in the lower half. A missing last feature is zero.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn round_pairs(x: &[f32], width: usize, pairs: &mut [f32]) {
    let zeros = [0.0f32; LANES];
    let order = interleaved();
    for (x, pairs) in x.chunks(2 * width).zip(pairs.chunks_exact_mut(width)) {
        let (low, high) = x.split_at(width);
        for (i, pairs) in pairs.chunks_exact_mut(LANES).enumerate() {
            let low = &low[i * LANES..][..LANES];
            let high = high.get(i * LANES..).and_then(|high| high.get(..LANES)).unwrap_or(&zeros);
            // SAFETY: the three slices have sixteen elements.
            unsafe {
                let both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(high.as_ptr()), _mm512_loadu_ps(low.as_ptr()));
                let both = _mm512_permutexvar_epi16(order, std::mem::transmute::<__m512bh, __m512i>(both));
                _mm512_storeu_ps(pairs.as_mut_ptr(), _mm512_castsi512_ps(both));
            }
        }
    }
}

/// Returns the permutation of 16-bit lanes that alternates the lower and the upper half of a register.
#[target_feature(enable = "avx512f")]
fn interleaved() -> __m512i {
    let lanes: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * LANES) as u16);
    // SAFETY: the array has the size of a register.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

impl Bf16Product<'_> {
    /// Computes the product.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) fn run(mut self) {
        match self.width {
            16 => self.rows::<1, 8>(),
            32 => self.rows::<2, 8>(),
            48 => self.rows::<3, 8>(),
            64 => self.rows::<4, 4>(),
            width => unreachable!("invariant: a panel is 16, 32, 48 or 64 columns wide, not {width}"),
        }
    }

    /// Computes all rows, `R` at a time. A row of the panel fits `V` registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn rows<const V: usize, const R: usize>(&mut self) {
        let rows = self.y.len() / self.width;
        assert!(self.width == V * LANES && self.weights.len() >= rows * self.inner);
        assert!(self.pairs.len() >= self.inner.div_ceil(2) * self.width);
        let whole = rows - rows % R;
        for row in (0..whole).step_by(R) {
            // SAFETY: `row + R <= rows`; the lengths were checked above.
            unsafe { self.tile::<V, R>(row) };
        }
        for row in whole..rows {
            // SAFETY: `row < rows`; the lengths were checked above.
            unsafe { self.tile::<V, 1>(row) };
        }
    }

    /// Computes `R` rows.
    ///
    /// # Safety
    /// There must be `row + R` rows of weights and of `y`, and the width must be `V` registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn tile<const V: usize, const R: usize>(&mut self, row: usize) {
        let inner = self.inner;
        let weights = self.weights[row * inner..].as_ptr();
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        let mut rounded = [[const { MaybeUninit::<u32>::uninit() }; BLOCK / 2]; R];
        for start in (0..inner).step_by(BLOCK) {
            let count = BLOCK.min(inner - start);
            for (r, rounded) in rounded.iter_mut().enumerate() {
                // SAFETY: row `row + r` has `count` weights from `start`.
                unsafe { round_weights(weights.add(r * inner + start), count, rounded) };
            }
            let pairs = self.pairs[start / 2 * self.width..].as_ptr();
            for k in 0..count.div_ceil(2) {
                if k % (LINE / 2) == 0 {
                    // Prefetch the next rows, because their streams are too short for the hardware prefetcher.
                    (0..R).for_each(|r| prefetch(weights.wrapping_add((R + r) * inner + start + 2 * k)));
                }
                // SAFETY: `pairs` has a row for each pair of features, with `V` registers.
                let columns: [__m512bh; V] = std::array::from_fn(|v| unsafe {
                    std::mem::transmute(_mm512_loadu_ps(pairs.add((k * V + v) * LANES)))
                });
                for (sums, rounded) in sums.iter_mut().zip(&rounded) {
                    // SAFETY: `round_weights` wrote the first `count.div_ceil(2)` elements, and both types are
                    // registers of 512 bits.
                    let weight: __m512bh = unsafe {
                        std::mem::transmute(_mm512_set1_epi32(rounded[k].assume_init().cast_signed()))
                    };
                    for (sum, columns) in sums.iter_mut().zip(columns) {
                        *sum = _mm512_dpbf16_ps(*sum, weight, columns);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let y = self.y[(row + r) * self.width..][..self.width].as_mut_ptr();
            for (v, sum) in sums.iter().enumerate() {
                // SAFETY: the row has `V` registers.
                unsafe {
                    let y = y.add(v * LANES);
                    let sum = match self.write {
                        Write::Set => *sum,
                        Write::Add => _mm512_add_ps(_mm512_loadu_ps(y), *sum),
                    };
                    _mm512_storeu_ps(y, sum);
                }
            }
        }
    }
}

/// Rounds `count` weights to bf16, two per element of `to`: adds [`DITHER`] to their bits and keeps the upper half. After
/// them it writes zeros up to the next multiple of 32.
///
/// # Safety
/// `weights` must point to `count` numbers, and `count` must be at most [`BLOCK`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn round_weights(weights: *const f32, count: usize, to: &mut [MaybeUninit<u32>; BLOCK / 2]) {
    let upper = upper_halves();
    for (i, to) in to.chunks_exact_mut(LANES).take(count.div_ceil(2 * LANES)).enumerate() {
        let half = |first: usize| {
            let mask = ((1u32 << count.saturating_sub(first).min(LANES)) - 1) as __mmask16;
            let dither = DITHER[first..][..LANES].as_ptr();
            // SAFETY: the mask selects only numbers before `count`; masked numbers are not read. `dither` has
            // sixteen numbers.
            unsafe {
                let bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, weights.wrapping_add(first)));
                _mm512_add_epi32(bits, _mm512_loadu_si512(dither.cast()))
            }
        };
        let both = _mm512_permutex2var_epi16(half(2 * i * LANES), upper, half((2 * i + 1) * LANES));
        // SAFETY: `to` has sixteen elements, the size of a register.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), both) };
    }
}

/// Returns the permutation that selects the upper halves of the 32-bit lanes of two registers.
#[target_feature(enable = "avx512f")]
fn upper_halves() -> __m512i {
    let lanes: [u16; 32] = std::array::from_fn(|i| 2 * i as u16 + 1);
    // SAFETY: the array has the size of a register.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}
