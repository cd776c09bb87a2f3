//! Partition of the flat parameter buffer among ranks: the buffer is divided into buckets, and each bucket into
//! one share per rank.
//!
//! A bucket is the part of the buffer whose gradients the backward pass completes together: the embedding, each
//! layer, or the head with its norm. All shares of a bucket have the same size, except that the last rank's
//! share also has the remainder. The shares of a rank in all buckets, concatenated, are its shard; gradients,
//! moments and master weights of a shard are packed in that order.

use std::ops::Range;

use crate::layout::{ALIGN, Layout};

/// The partition of a flat buffer among a number of ranks; a pure function of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    /// Number of ranks.
    pub ranks: usize,
    /// The buckets as ranges of the flat buffer, in order and without gaps.
    pub buckets: Vec<Range<usize>>,
}

/// A contiguous part of the flat buffer that one rank keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First element in the flat buffer.
    pub from: usize,
    /// First element in the rank's packed state.
    pub at: usize,
    /// Number of elements.
    pub len: usize,
}

/// The part of the flat buffer that one rank keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Index of the rank, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// The non-empty pieces, in the order of both buffers.
    pub pieces: Vec<Piece>,
    /// Number of elements in the rank's packed state.
    pub len: usize,
}

/// A contiguous part of a tensor within a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorRun {
    /// Its position in both buffers.
    pub piece: Piece,
    /// Whether the tensor is a matrix or a table, as opposed to a norm or bias.
    pub matrix: bool,
}

impl Sharding {
    /// Partitions a model's parameters. With one rank, the whole buffer is one bucket.
    pub fn new(layout: &Layout, ranks: usize) -> Self {
        let ranks = ranks.max(1);
        if ranks == 1 {
            return Self { ranks, buckets: std::iter::once(0..layout.len).collect() };
        }
        let mut starts = vec![0];
        starts.extend(layout.layers.iter().map(|layer| layer.input_norm.offset));
        starts.push(layout.final_norm.offset);
        starts.push(layout.len);
        Self { ranks, buckets: starts.windows(2).map(|ends| ends[0]..ends[1]).collect() }
    }

    /// Returns the number of elements of a bucket in each rank's share; the last rank's share also has the remainder.
    pub fn even(&self, bucket: usize) -> usize {
        self.buckets[bucket].len() / self.ranks / ALIGN * ALIGN
    }

    /// Returns a rank's share of a bucket, in elements of the flat buffer.
    pub fn share(&self, bucket: usize, rank: usize) -> Range<usize> {
        let (whole, even) = (&self.buckets[bucket], self.even(bucket));
        let start = whole.start + rank * even;
        let end = if rank + 1 == self.ranks { whole.end } else { start + even };
        start..end
    }

    /// Returns the shard of a rank.
    pub fn shard(&self, rank: usize) -> Shard {
        let mut shard = Shard { rank, ranks: self.ranks, pieces: Vec::new(), len: 0 };
        for bucket in 0..self.buckets.len() {
            let share = self.share(bucket, rank);
            if !share.is_empty() {
                shard.pieces.push(Piece { from: share.start, at: shard.len, len: share.len() });
                shard.len += share.len();
            }
        }
        shard
    }
}

impl Shard {
    /// Creates the shard that is the whole buffer, for training with a single rank.
    pub fn whole(len: usize) -> Self {
        Self { rank: 0, ranks: 1, pieces: vec![Piece { from: 0, at: 0, len }], len }
    }

    /// Returns the shard of one of `ranks` ranks.
    pub fn of(layout: &Layout, rank: usize, ranks: usize) -> Self {
        Sharding::new(layout, ranks).shard(rank)
    }

    /// Returns the intersection of this shard and a range of the flat buffer.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = Piece> + '_ {
        let first = self.pieces.partition_point(|p| p.from + p.len <= range.start);
        self.pieces[first..].iter().map_while(move |piece| common(*piece, &range))
    }

    /// Returns the pieces of a range of the packed state.
    pub fn packed(&self, range: Range<usize>) -> impl Iterator<Item = Piece> + '_ {
        let first = self.pieces.partition_point(|p| p.at + p.len <= range.start);
        self.pieces[first..].iter().map_while(move |piece| {
            let (at, end) = (piece.at.max(range.start), (piece.at + piece.len).min(range.end));
            (at < end).then(|| Piece { from: piece.from + (at - piece.at), at, len: end - at })
        })
    }

    /// Maps an element of the packed state to the flat buffer.
    pub fn flat(&self, packed: usize) -> Option<usize> {
        let after = self.pieces.partition_point(|p| p.at <= packed);
        let piece = self.pieces[..after].last()?;
        (packed < piece.at + piece.len).then(|| piece.from + packed - piece.at)
    }
}

impl Piece {
    /// Splits the piece at tensor boundaries and omits the gaps for alignment.
    pub fn runs(self, layout: &Layout) -> impl Iterator<Item = TensorRun> + '_ {
        let first = layout.tensors.partition_point(|t| t.span.range().end <= self.from);
        layout.tensors[first..].iter().map_while(move |tensor| {
            let piece = common(self, &tensor.span.range())?;
            Some(TensorRun { piece, matrix: tensor.shape.len() == 2 })
        })
    }

    /// Returns its range in the flat buffer.
    pub fn flat(self) -> Range<usize> {
        self.from..self.from + self.len
    }

    /// Returns its range in the packed state.
    pub fn packed(self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

/// Returns the part of a piece that is in a range; `None` if the piece starts after the range or they do not intersect.
fn common(piece: Piece, range: &Range<usize>) -> Option<Piece> {
    let (from, end) = (piece.from.max(range.start), (piece.from + piece.len).min(range.end));
    (from < end).then(|| Piece { from, at: piece.at + (from - piece.from), len: end - from })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;
    use crate::testing::small_shape;
    use proptest::prelude::*;

    fn layout(layers: usize, hidden: usize, vocabulary: usize, tied_head: bool) -> Layout {
        Layout::new(&ModelConfig {
            layers,
            hidden_size: hidden,
            vocab_size: vocabulary,
            intermediate_size: hidden + 5,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            tied_head,
            qkv_bias: tied_head,
            ..small_shape()
        })
    }

    proptest! {
        #[test]
        fn every_element_belongs_to_one_rank(
            layers in 1usize..5, hidden in 1usize..40, vocabulary in 1usize..90, tied: bool, ranks in 1usize..9,
        ) {
            let layout = layout(layers, hidden, vocabulary, tied);
            let sharding = Sharding::new(&layout, ranks);
            let mut owner = vec![usize::MAX; layout.len];
            for rank in 0..ranks {
                let shard = sharding.shard(rank);
                let mut packed = 0;
                for piece in &shard.pieces {
                    prop_assert!(piece.len > 0);
                    prop_assert_eq!(piece.at, packed);
                    prop_assert_eq!(piece.from % ALIGN, 0);
                    prop_assert_eq!(shard.flat(piece.at), Some(piece.from));
                    prop_assert_eq!(shard.flat(piece.at + piece.len - 1), Some(piece.from + piece.len - 1));
                    for element in piece.flat() {
                        prop_assert_eq!(owner[element], usize::MAX);
                        owner[element] = rank;
                    }
                    packed += piece.len;
                }
                prop_assert_eq!(packed, shard.len);
                prop_assert_eq!(shard.flat(packed), None);
                // No rank keeps more than its share and the remainders.
                let rest: usize = (0..sharding.buckets.len()).map(|b| sharding.share(b, ranks - 1).len() - sharding.even(b)).sum();
                prop_assert!(shard.len <= layout.len / ranks + rest);
            }
            prop_assert!(owner.iter().all(|o| *o != usize::MAX));
        }

        #[test]
        fn tensors_are_found_in_the_shards_that_hold_them(
            layers in 1usize..4, hidden in 1usize..40, ranks in 1usize..6, from in 0usize..4000, len in 0usize..3000,
        ) {
            let layout = layout(layers, hidden, 50, false);
            let range = from.min(layout.len)..(from + len).min(layout.len);
            let mut seen = 0;
            let mut of_tensors = 0;
            for rank in 0..ranks {
                let shard = Shard::of(&layout, rank, ranks);
                let packed = from.min(shard.len)..(from + len).min(shard.len);
                let mut next = packed.start;
                for piece in shard.packed(packed.clone()) {
                    prop_assert_eq!(piece.at, next);
                    prop_assert_eq!(shard.flat(piece.at), Some(piece.from));
                    prop_assert_eq!(shard.flat(piece.at + piece.len - 1), Some(piece.from + piece.len - 1));
                    next += piece.len;
                }
                prop_assert_eq!(next, packed.end);
                for piece in shard.within(range.clone()) {
                    prop_assert!(piece.from >= range.start && piece.from + piece.len <= range.end);
                    prop_assert_eq!(shard.flat(piece.at), Some(piece.from));
                    seen += piece.len;
                }
                for run in shard.pieces.iter().flat_map(|p| p.runs(&layout)) {
                    prop_assert_eq!(shard.flat(run.piece.at), Some(run.piece.from));
                    let tensor = layout.tensor_at(run.piece.from).unwrap();
                    prop_assert!(run.piece.flat().end <= tensor.span.range().end);
                    prop_assert_eq!(run.matrix, tensor.shape.len() == 2);
                    of_tensors += run.piece.len;
                }
            }
            prop_assert_eq!(seen, range.len());
            prop_assert_eq!(of_tensors, layout.tensors.iter().map(|t| t.span.len).sum::<usize>());
        }
    }

    #[test]
    fn one_rank_keeps_everything_in_one_piece() {
        let layout = layout(2, 16, 30, true);
        assert_eq!(Shard::of(&layout, 0, 1), Shard::whole(layout.len));
    }

    #[test]
    fn the_first_bucket_is_the_embedding_and_the_last_the_head() {
        let layout = layout(3, 16, 30, false);
        let sharding = Sharding::new(&layout, 2);
        assert_eq!(sharding.buckets.len(), 5);
        assert!(sharding.buckets[0].contains(&(layout.embed.offset + layout.embed.len - 1)));
        assert!(sharding.buckets[4].contains(&layout.head.offset));
        assert!(sharding.buckets[2].contains(&layout.layers[1].qkv.offset));
    }
}
