//! Scalar functions and reductions that the compiler can vectorise in loops.

/// Number of partial sums per reduction: a full AVX-512 register of f32.
pub const LANES: usize = 16;

/// Returns `e^x` with a relative error of about 1e-7. NaN stays NaN; below -87.3 the result is 1.2e-38, above 88.3 it
/// is 2.3e38.
///
/// Uses Cephes' reduction and polynomial: `x = n ln 2 + r`, `|r| <= ln 2 / 2`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Adding and subtracting 1.5 · 2^23 rounds to the nearest integer, which is then also in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.3);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_2e-4f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let e = (r * r).mul_add(p, r + 1.0);
    let scale = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    e * scale
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns `Σ f(a_i, b_i)`, summed in a fixed order: per lane, then over the lanes, then the remaining elements.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (ac, bc) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (ar, br) = (ac.remainder(), bc.remainder());
    for (a, b) in ac.zip(bc) {
        for i in 0..LANES {
            lanes[i] += f(a[i], b[i]);
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for (a, b) in ar.iter().zip(br) {
        sum += f(*a, *b);
    }
    sum
}

/// Returns `Σ a_i b_i`.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum2(a, b, |a, b| a * b)
}

/// Returns the largest element; ignores NaN, and returns -inf for an empty slice.
#[inline(always)]
pub fn max(a: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = a.chunks_exact(LANES);
    let rest = chunks.remainder();
    for a in chunks {
        for i in 0..LANES {
            lanes[i] = if a[i] > lanes[i] { a[i] } else { lanes[i] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |m, a| if *a > m { *a } else { m })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_of_the_exact_value() {
        let mut worst = 0.0f64;
        for i in 0..200_000 {
            let x = -87.0 + 175.0 * (i as f32) / 200_000.0;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::NEG_INFINITY) < 2e-38);
    }

    #[test]
    fn reductions_cover_remainders() {
        for n in [0, 1, 15, 16, 17, 50] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let want: f32 = a.iter().map(|x| x * x).sum();
            assert_eq!(dot(&a, &a), want);
            assert_eq!(max(&a), a.last().copied().unwrap_or(f32::NEG_INFINITY));
        }
    }
}
