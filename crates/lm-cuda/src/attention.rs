//! Attention of the training passes: selects the kernels, and prepares the lists of tiles that they process.

use std::sync::{Arc, PoisonError};

use super::Cuda;
use super::attention_variant::{AttentionVariant, TILE, WARPS, padded};
use super::compile::Program;
use super::gpu::{Arg, Array, Gpu, int};
use super::work::CudaKernel;
use sgs_lm::device::{Heads, row_count};
use sgs_lm::error::{LmError, Result};

/// Rows of a tile; also the number of columns that are loaded at a time.
pub(super) const ROWS: usize = 16 * WARPS;
const STEP: usize = 64;
pub(super) const THREADS: usize = 32 * WARPS;
/// Warps per block of the simple kernels; each warp processes one row.
const SIMPLE_WARPS: usize = 8;
/// Maximum head width of the simple kernels.
const SIMPLE_WIDEST: usize = 256;

/// The number of tiles of the `mma.sync` kernels is rounded up to a multiple of this.
const SURPLUS_TILES: usize = 16;

/// A tile as the kernels read it: first row of its sequence, length of the sequence, first row of the tile
/// within the sequence, and first row of the sequence if all sequences are padded.
type Tile = [u32; 4];

/// Lists for the sequences packed last; they stay on the GPU until the sequences change.
#[derive(Debug)]
pub(super) struct AttentionLists {
    gpu: Arc<Gpu>,
    starts: Vec<usize>,
    /// The kernels that the lists are for: rows for the simple kernels, tiles for the others.
    variant: AttentionVariant,
    /// The fastest variant that may be used.
    limit: AttentionVariant,
    /// Number of tiles, including those that only pad the grid.
    pub(super) tiles: usize,
    /// Number of rows if each sequence is padded to whole tiles of the Hopper kernels.
    pub(super) padded: usize,
    /// Tiles of queries, those with the most work first; then tiles of keys in the same order.
    lists: Array<u32>,
    /// Statistics of every row for the backward pass: the sum over each head of `out · dout`, `[rows, heads]`;
    /// on Hopper, `stats` of attention_hopper.cu.
    numbers: Array<f32>,
}

/// Divides queries and keys into tiles of `rows` rows. Each list is sorted by decreasing work: late queries attend to
/// many keys, and many queries attend to early keys.
fn tiles(starts: &[usize], rows: usize) -> (Vec<Tile>, Vec<Tile>) {
    let (mut queries, mut before) = (Vec::new(), 0);
    for pair in starts.windows(2) {
        let length = pair[1] - pair[0];
        let tile = |first: usize| [pair[0] as u32, length as u32, first as u32, before as u32];
        queries.extend((0..length).step_by(rows).map(tile));
        before += padded(length);
    }
    let mut keys = queries.clone();
    queries.sort_by_key(|t| std::cmp::Reverse((t[2] + rows as u32).min(t[1])));
    keys.sort_by_key(|t| std::cmp::Reverse(t[1] - t[2]));
    (queries, keys)
}

/// Returns the first row and the length of each row's sequence.
fn rows(starts: &[usize]) -> Vec<[u32; 2]> {
    let sequence = |pair: &[usize]| {
        let entry = [pair[0] as u32, (pair[1] - pair[0]) as u32];
        std::iter::repeat_n(entry, pair[1] - pair[0])
    };
    starts.windows(2).flat_map(sequence).collect()
}

impl AttentionLists {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let (lists, numbers) = (Array::zeros(gpu, 4096, 4)?, Array::zeros(gpu, 4096, 4)?);
        let (variant, limit) = (AttentionVariant::Simple, AttentionVariant::Hopper);
        Ok(Self {
            gpu: Arc::clone(gpu),
            starts: Vec::new(),
            variant,
            limit,
            tiles: 0,
            padded: 0,
            lists,
            numbers,
        })
    }

    /// Copies the lists for these sequences to the GPU unless they are there already.
    fn prepare(&mut self, starts: &[usize], variant: AttentionVariant, heads: usize) -> Result<()> {
        self.padded = starts.windows(2).map(|pair| padded(pair[1] - pair[0])).sum();
        if self.numbers.len < 2 * self.padded * heads {
            self.numbers = Array::zeros(&self.gpu, 2 * self.padded * heads, 4)?;
        }
        if self.starts == starts && self.variant == variant {
            return Ok(());
        }
        let numbers: Vec<u32> = if variant == AttentionVariant::Simple {
            rows(starts).into_iter().flatten().collect()
        } else {
            let (mut queries, mut keys) =
                tiles(starts, if variant == AttentionVariant::Hopper { TILE } else { ROWS });
            if variant == AttentionVariant::Tensor {
                // Padding limits the number of different grids, so that passes can be recorded. Tiles without a
                // sequence come last and end immediately.
                let count = queries.len().next_multiple_of(SURPLUS_TILES);
                queries.resize(count, [0; 4]);
                keys.resize(count, [0; 4]);
            }
            self.tiles = queries.len();
            queries.into_iter().chain(keys).flatten().collect()
        };
        if self.lists.len < numbers.len() {
            self.lists = Array::zeros(&self.gpu, numbers.len().next_power_of_two(), 4)?;
        }
        self.lists.write(&numbers, 0)?;
        self.variant = variant;
        self.starts.clear();
        self.starts.extend_from_slice(starts);
        Ok(())
    }

    /// Returns the arguments of the kernels that depend on the sequences packed last.
    fn description(&self) -> Result<[u64; 6]> {
        let sizes = [self.variant as usize, self.tiles, self.padded, self.rows()].map(|n| n as u64);
        let [variant, tiles, padded, rows] = sizes;
        Ok([variant, tiles, padded, rows, self.lists.front(0)?, self.numbers.front(0)?])
    }

    /// Returns the number of rows of all sequences.
    pub(super) fn rows(&self) -> usize {
        row_count(&self.starts)
    }

    /// Returns the address of the tiles of queries, or of the list of rows.
    pub(super) fn query_tiles(&self) -> Result<u64> {
        self.lists.front(0)
    }

    /// Returns the address of the tiles of keys, which follow those of queries.
    pub(super) fn key_tiles(&self) -> Result<u64> {
        Ok(self.lists.front(2 * self.tiles * size_of::<Tile>() / 4)?
            + (self.tiles * size_of::<Tile>()) as u64)
    }

    /// Returns the address of the statistics for the backward pass.
    pub(super) fn numbers(&self, heads: usize) -> Result<u64> {
        self.numbers.front(2 * self.padded * heads)
    }
}

/// Addresses of a backward pass.
pub(super) struct AttentionBackward {
    pub qkv: u64,
    pub out: u64,
    pub lse: u64,
    pub dout: u64,
    pub dqkv: u64,
}

impl Cuda {
    /// Prepares the lists for these sequences; returns the arguments of the kernels that depend on them.
    pub(super) fn prepare_attention(&self, starts: &[usize], heads: Heads) -> Result<[u64; 6]> {
        let variant = self.variant(heads)?;
        let mut state = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        state.prepare(starts, variant, heads.heads)?;
        state.description()
    }

    /// Returns whether tensor cores compute attention for this head width.
    pub fn has_tensor_attention(&self, head_dim: usize) -> bool {
        AttentionVariant::fastest(self.gpu.arch, self.footprint.precision, head_dim)
            > AttentionVariant::Simple
    }

    /// Returns the kernels that training passes use for this head width.
    pub fn attention_variant(&self, head_dim: usize) -> AttentionVariant {
        let limit = self.attention.lock().unwrap_or_else(PoisonError::into_inner).limit;
        AttentionVariant::fastest(self.gpu.arch, self.footprint.precision, head_dim).min(limit)
    }

    /// Prevents training passes from using kernels that are faster than `limit`, for comparisons.
    pub fn limit_attention(&self, limit: AttentionVariant) {
        self.attention.lock().unwrap_or_else(PoisonError::into_inner).limit = limit;
    }

    /// Selects the kernels for these heads.
    fn variant(&self, heads: Heads) -> Result<AttentionVariant> {
        let Heads { heads: query_heads, kv_heads, head_dim } = heads;
        if kv_heads == 0 || !query_heads.is_multiple_of(kv_heads) || head_dim > SIMPLE_WIDEST {
            return Err(LmError::Input(format!(
                "attention of {query_heads} heads over {kv_heads} key heads of width {head_dim}: the GPU runs \
                 whole groups of heads up to width {SIMPLE_WIDEST}"
            )));
        }
        Ok(self.attention_variant(head_dim))
    }

    /// Returns the simple or `mma.sync` kernels: forward, and backward by queries and by keys.
    fn attention_kernels(&self, head_dim: usize, variant: AttentionVariant) -> Result<[CudaKernel; 3]> {
        let program = Program::Attention { head_dim, variant };
        self.program(program, ["attention", "attention_dq", "attention_dkv"], |kernels| {
            if variant == AttentionVariant::Tensor {
                let [forward, backward] = shared_bytes(head_dim);
                self.gpu.allow_shared(kernels[0], forward)?;
                self.gpu.allow_shared(kernels[1], backward)?;
                self.gpu.allow_shared(kernels[2], backward)?;
            }
            Ok(())
        })
    }

    /// Runs the forward pass on addresses that the caller has checked.
    pub(super) fn run_attention(
        &self,
        starts: &[usize],
        heads: Heads,
        qkv: u64,
        out: u64,
        lse: u64,
    ) -> Result<()> {
        let variant = self.variant(heads)?;
        let mut state = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        state.prepare(starts, variant, heads.heads)?;
        if state.rows() == 0 {
            return Ok(());
        }
        if variant == AttentionVariant::Hopper {
            return self.run_hopper(&state, heads, qkv, out, lse);
        }
        let kernels = self.attention_kernels(heads.head_dim, variant)?;
        let (list, count) = (state.query_tiles()?, state.rows());
        let scale = Arg::Float(1.0 / (heads.head_dim as f32).sqrt());
        let shape = [int(heads.heads), int(heads.kv_heads), scale];
        if variant == AttentionVariant::Tensor {
            let [shared, _] = shared_bytes(heads.head_dim);
            let arguments =
                [Arg::Ptr(qkv), Arg::Ptr(list), shape[0], shape[1], shape[2], Arg::Ptr(out), Arg::Ptr(lse)];
            return self.gpu.launch(kernels[0], (heads.heads, state.tiles), THREADS, shared, &arguments);
        }
        let arguments = [
            Arg::Ptr(qkv),
            Arg::Ptr(list),
            int(count),
            shape[0],
            shape[1],
            shape[2],
            Arg::Ptr(out),
            Arg::Ptr(lse),
        ];
        let grid = (count.div_ceil(SIMPLE_WARPS), heads.heads);
        self.gpu.launch(kernels[0], grid, 32 * SIMPLE_WARPS, 0, &arguments)
    }

    /// Runs the backward pass on addresses that the caller has checked.
    pub(super) fn run_attention_backward(
        &self,
        starts: &[usize],
        heads: Heads,
        at: &AttentionBackward,
    ) -> Result<()> {
        let variant = self.variant(heads)?;
        let mut state = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        state.prepare(starts, variant, heads.heads)?;
        if state.rows() == 0 {
            return Ok(());
        }
        if variant == AttentionVariant::Hopper {
            return self.run_hopper_backward(&state, heads, at);
        }
        let kernels = self.attention_kernels(heads.head_dim, variant)?;
        let tensor = variant == AttentionVariant::Tensor;
        let count = state.rows();
        let (list, delta) = (state.query_tiles()?, Arg::Ptr(state.numbers(heads.heads)?));
        let scale = Arg::Float(1.0 / (heads.head_dim as f32).sqrt());
        let mut head = vec![Arg::Ptr(at.qkv), Arg::Ptr(list)];
        if !tensor {
            head.push(int(count));
        }
        head.extend([int(heads.heads), int(heads.kv_heads), scale]);
        let (grid, keys_grid, block, shared) = if tensor {
            let [_, shared] = shared_bytes(heads.head_dim);
            ((heads.heads, state.tiles), (heads.kv_heads, state.tiles), THREADS, shared)
        } else {
            let blocks = count.div_ceil(SIMPLE_WARPS);
            ((blocks, heads.heads), (blocks, heads.kv_heads), 32 * SIMPLE_WARPS, 0)
        };
        let (lse, dout, dqkv) = (Arg::Ptr(at.lse), Arg::Ptr(at.dout), Arg::Ptr(at.dqkv));
        let mut arguments = head.clone();
        arguments.extend([Arg::Ptr(at.out), lse, dout, dqkv, delta]);
        self.gpu.launch(kernels[1], grid, block, shared, &arguments)?;
        if tensor {
            head[1] = Arg::Ptr(state.key_tiles()?);
        }
        head.extend([lse, delta, dout, dqkv]);
        self.gpu.launch(kernels[2], keys_grid, block, shared, &head)
    }
}

/// Returns the shared memory of the tensor-core kernels, forward and backward, in bytes.
pub(super) fn shared_bytes(head_dim: usize) -> [u32; 2] {
    // Rows are padded by eight elements to avoid bank conflicts; keys and values are loaded in two stages each.
    let row = 2 * (head_dim + 8);
    [(ROWS + 4 * STEP) * row, (2 * ROWS + 4 * STEP) * row].map(|bytes| bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_start_with_the_most_work() {
        let starts = [0, 1, 130, 130, 700];
        for size in [ROWS, TILE] {
            let (queries, keys) = tiles(&starts, size);
            for list in [&queries, &keys] {
                let mut covered = vec![0; 700];
                for [start, length, first, _] in list.iter() {
                    let end = (first + size as u32).min(*length);
                    (start + first..start + end).for_each(|row| covered[row as usize] += 1);
                }
                assert!(covered.iter().all(|n| *n == 1), "{covered:?}");
            }
            assert_eq!(queries[0], [130, 570, 512, 384]);
            assert_eq!(keys[0], [130, 570, 0, 384]);
        }
        assert_eq!(rows(&starts)[0], [0, 1]);
        assert_eq!(rows(&starts)[699], [130, 570]);
        assert_eq!(rows(&starts).len(), 700);
    }

    #[test]
    fn shared_memory_fits_a_block() {
        // The limits are 163 KiB per block on A100 and 227 KiB on H100.
        assert!(shared_bytes(128).iter().all(|b| *b <= 163 << 10));
    }
}
