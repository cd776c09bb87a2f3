//! The sets of attention kernels for training passes, and the selection for a model.

use super::Precision;

/// Warps per block of the tensor-core kernels, with 16 rows each. Two blocks of four warps share a
/// multiprocessor: one computes while the other waits.
pub(super) const WARPS: usize = 4;
/// Rows of a tile of the Hopper kernels, as in attention_hopper.cu.
pub(super) const TILE: usize = 128;
/// Head widths that the Hopper kernels support.
pub(super) const HEAD_DIMS: [usize; 2] = [64, 128];

/// Returns the length of a sequence in the Hopper kernels' `stats`: whole tiles.
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(TILE)
}

/// Sets of attention kernels, from the most general to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionVariant {
    /// One warp per row; head widths up to 256, any element type.
    Simple,
    /// Tensor cores through `mma.sync`: bfloat16, widths that are multiples of 16 up to 128.
    Tensor,
    /// Tensor cores of Hopper through `wgmma`: compute capability 9.0, bfloat16, widths 64 and 128.
    Hopper,
}

impl AttentionVariant {
    /// Returns the fastest variant for this head width on a GPU of this compute capability.
    pub(super) fn fastest(arch: (i32, i32), precision: Precision, head_dim: usize) -> Self {
        if precision != Precision::Bf16 || !head_dim.is_multiple_of(16) || head_dim > 128 {
            Self::Simple
        } else if arch == (9, 0) && HEAD_DIMS.contains(&head_dim) {
            Self::Hopper
        } else {
            Self::Tensor
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_padded_to_whole_tiles() {
        assert_eq!([0, 1, 127, 128, 129].map(padded), [0, 128, 128, 128, 256]);
    }

    #[test]
    fn kernels_suit_the_architecture_and_the_heads() {
        let fastest = AttentionVariant::fastest;
        assert_eq!(fastest((9, 0), Precision::Bf16, 128), AttentionVariant::Hopper);
        assert_eq!(fastest((9, 0), Precision::Bf16, 64), AttentionVariant::Hopper);
        assert_eq!(fastest((9, 0), Precision::Bf16, 96), AttentionVariant::Tensor);
        assert_eq!(fastest((9, 0), Precision::Bf16, 20), AttentionVariant::Simple);
        assert_eq!(fastest((9, 0), Precision::Bf16, 160), AttentionVariant::Simple);
        assert_eq!(fastest((9, 0), Precision::F32, 128), AttentionVariant::Simple);
        // Code for Hopper runs only on 9.0.
        for arch in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            assert_eq!(fastest(arch, Precision::Bf16, 128), AttentionVariant::Tensor);
        }
    }
}
