//! Represents an f32 master weight as a bfloat16 weight and a remainder of 16 bits. If the weight is stored
//! anyway, its master costs 2 additional bytes instead of 4, without loss.
//!
//! The weight is the master rounded to the nearest bfloat16, with ties away from zero. The bits of the master are the
//! bits of the weight, shifted left by 16, plus a remainder in -2^15..2^15. (Rounding ties to even would need one more
//! value: an even weight would represent masters from 2^15 below to 2^15 above it, both included.)

/// Splits a master weight. The weight of a NaN is NaN; every other number is represented exactly.
pub fn split(master: f32) -> (half::bf16, i16) {
    // Drop the payload of a NaN, because its carry could turn it into a number.
    let bits = if master.is_nan() { f32::NAN } else { master }.to_bits();
    // The carry of a negative remainder increments the weight; the largest finite numbers become infinite.
    (half::bf16::from_bits((bits.wrapping_add(0x8000) >> 16) as u16), bits as i16)
}

/// Returns the master weight that was split.
pub fn join(weight: half::bf16, remainder: i16) -> f32 {
    f32::from_bits((u32::from(weight.to_bits()) << 16).wrapping_add_signed(i32::from(remainder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use rayon::prelude::*;

    #[test]
    fn every_master_weight_is_restored() {
        let wrong = |bits: u32| {
            let (weight, remainder) = split(f32::from_bits(bits));
            let joined = join(weight, remainder).to_bits();
            let kept = if bits << 1 > 0xff00_0000 { f32::NAN.to_bits() } else { bits };
            joined != kept || weight.is_nan() != f32::from_bits(kept).is_nan()
        };
        let wrong = |high: u32| (0..1 << 16).map(|low| u32::from(wrong(high << 16 | low))).sum::<u32>();
        assert_eq!((0..1 << 16).into_par_iter().map(wrong).max(), Some(0));
    }

    #[test]
    fn weights_are_the_nearest_and_ties_go_away_from_zero() {
        // Test upper halves of all kinds: zero, subnormal, odd and even, the largest finite, infinite, negative.
        for high in [0, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7e, 0x7f7f, 0x7f80, 0x8000, 0x8001, 0xbf81, 0xff7f]
        {
            let finite = high & 0x7fff < 0x7f80;
            for low in 0..=u16::MAX {
                let bits = u32::from(high) << 16 | u32::from(low);
                if !finite && low > 0 {
                    continue;
                }
                let (weight, _) = split(f32::from_bits(bits));
                let nearest =
                    if low == 0x8000 { high + 1 } else { bf16::from_f32(f32::from_bits(bits)).to_bits() };
                assert_eq!(weight.to_bits(), nearest, "{bits:#x}");
            }
        }
    }

    #[test]
    fn a_weight_without_remainder_is_its_own_master() {
        for bits in 0..=u16::MAX {
            let weight = bf16::from_bits(bits);
            if !weight.is_nan() {
                assert_eq!(split(weight.to_f32()), (weight, 0));
                assert_eq!(join(weight, 0).to_bits(), weight.to_f32().to_bits());
            }
        }
    }
}
