//! Attention of the training passes: which kernels, and the lists of tiles that they work through.

use std::sync::{Arc, PoisonError};

use super::compile::Program;
use super::gpu::{Arg, Array, Gpu, Kernel, int};
use super::{Cuda, Precision};
use crate::device::Heads;
use crate::error::{LmError, Result};

/// Warps of a block of the tensor-core kernels, 16 rows each: two blocks of four share a multiprocessor, and
/// one computes while the other waits.
pub(super) const WARPS: usize = 4;
/// Rows of a tile, and columns that stream past it.
pub(super) const ROWS: usize = 16 * WARPS;
const STEP: usize = 64;
pub(super) const THREADS: usize = 32 * WARPS;
/// Warps of a block of the simple kernels: one a row.
const SIMPLE_WARPS: usize = 8;
/// Widest head of the simple kernels.
const SIMPLE_WIDEST: usize = 256;

/// A tile as the kernels read it: first row of its sequence, length of the sequence, first row of the tile
/// within it, nothing.
type Tile = [u32; 4];

/// Lists of the sequences packed last, kept on the GPU until others come.
#[derive(Debug)]
pub(super) struct Attention {
    gpu: Arc<Gpu>,
    starts: Vec<usize>,
    /// Whether the lists are tiles (and how many) or rows.
    tensor: bool,
    tiles: usize,
    /// Tiles of queries, most work first; then tiles of keys, likewise.
    lists: Array<u32>,
    /// Sum over each head of `out · dout`, `[rows, heads]`.
    delta: Array<f32>,
}

/// Tiles of queries and of keys, each list from the most work to the least: late queries see many keys,
/// early keys are seen by many queries.
fn tiles(starts: &[usize]) -> (Vec<Tile>, Vec<Tile>) {
    let mut queries = Vec::new();
    for pair in starts.windows(2) {
        let length = pair[1] - pair[0];
        let tile = |first: usize| [pair[0] as u32, length as u32, first as u32, 0];
        queries.extend((0..length).step_by(ROWS).map(tile));
    }
    let mut keys = queries.clone();
    queries.sort_by_key(|t| std::cmp::Reverse((t[2] + ROWS as u32).min(t[1])));
    keys.sort_by_key(|t| std::cmp::Reverse(t[1] - t[2]));
    (queries, keys)
}

/// First row and length of each row's sequence.
fn rows(starts: &[usize]) -> Vec<[u32; 2]> {
    let sequence = |pair: &[usize]| {
        let entry = [pair[0] as u32, (pair[1] - pair[0]) as u32];
        std::iter::repeat_n(entry, pair[1] - pair[0])
    };
    starts.windows(2).flat_map(sequence).collect()
}

impl Attention {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let (lists, delta) = (Array::zeros(gpu, 4096, 4)?, Array::zeros(gpu, 4096, 4)?);
        Ok(Self { gpu: Arc::clone(gpu), starts: Vec::new(), tensor: false, tiles: 0, lists, delta })
    }

    /// Puts the lists of these sequences on the GPU unless they are there.
    fn prepare(&mut self, starts: &[usize], tensor: bool, heads: usize) -> Result<()> {
        let count = starts.last().copied().unwrap_or(0);
        if self.delta.len < count * heads {
            self.delta = Array::zeros(&self.gpu, count * heads, 4)?;
        }
        if self.starts == starts && self.tensor == tensor {
            return Ok(());
        }
        let numbers: Vec<u32> = if tensor {
            let (queries, keys) = tiles(starts);
            self.tiles = queries.len();
            queries.into_iter().chain(keys).flatten().collect()
        } else {
            rows(starts).into_iter().flatten().collect()
        };
        if self.lists.len < numbers.len() {
            self.lists = Array::zeros(&self.gpu, numbers.len().next_power_of_two(), 4)?;
        }
        self.lists.write(&numbers, 0)?;
        self.tensor = tensor;
        self.starts.clear();
        self.starts.extend_from_slice(starts);
        Ok(())
    }
}

/// Addresses of a backward pass.
pub(super) struct Backward {
    pub qkv: u64,
    pub out: u64,
    pub lse: u64,
    pub dout: u64,
    pub dqkv: u64,
}

impl Cuda {
    /// Whether tensor cores compute attention of heads of this width.
    pub fn has_tensor_attention(&self, head_dim: usize) -> bool {
        self.precision == Precision::Bf16 && head_dim.is_multiple_of(16) && head_dim <= 128
    }

    /// The kernels for these heads: forward, and backward by queries and by keys; whether they use tensor cores.
    fn attention_kernels(&self, heads: Heads) -> Result<([Kernel; 3], bool)> {
        let Heads { heads: query_heads, kv_heads, head_dim } = heads;
        let tensor = self.has_tensor_attention(head_dim);
        if kv_heads == 0 || !query_heads.is_multiple_of(kv_heads) || head_dim > SIMPLE_WIDEST {
            return Err(LmError::Input(format!(
                "attention of {query_heads} heads over {kv_heads} key heads of width {head_dim}: the GPU runs \
                 whole groups of heads up to width {SIMPLE_WIDEST}"
            )));
        }
        let program = Program::Attention { head_dim, tensor };
        let kernels = self.program(program, ["attention", "attention_dq", "attention_dkv"], |kernels| {
            if tensor {
                let [forward, backward] = shared_bytes(head_dim);
                self.gpu.allow_shared(kernels[0], forward)?;
                self.gpu.allow_shared(kernels[1], backward)?;
                self.gpu.allow_shared(kernels[2], backward)?;
            }
            Ok(())
        })?;
        Ok((kernels, tensor))
    }

    /// Forward pass over addresses that the caller has checked.
    pub(super) fn run_attention(
        &self,
        starts: &[usize],
        heads: Heads,
        qkv: u64,
        out: u64,
        lse: u64,
    ) -> Result<()> {
        let (kernels, tensor) = self.attention_kernels(heads)?;
        let mut state = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        state.prepare(starts, tensor, heads.heads)?;
        let (list, count) = (state.lists.front(0)?, starts.last().copied().unwrap_or(0));
        let scale = Arg::Float(1.0 / (heads.head_dim as f32).sqrt());
        let shape = [int(heads.heads), int(heads.kv_heads), scale];
        if tensor {
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

    /// Backward pass over addresses that the caller has checked.
    pub(super) fn run_attention_backward(&self, starts: &[usize], heads: Heads, at: &Backward) -> Result<()> {
        let (kernels, tensor) = self.attention_kernels(heads)?;
        let mut state = self.attention.lock().unwrap_or_else(PoisonError::into_inner);
        state.prepare(starts, tensor, heads.heads)?;
        let count = starts.last().copied().unwrap_or(0);
        let (list, delta) = (state.lists.front(0)?, Arg::Ptr(state.delta.front(count * heads.heads)?));
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
            // The tiles of keys follow those of queries.
            head[1] = Arg::Ptr(list + (state.tiles * size_of::<Tile>()) as u64);
        }
        head.extend([lse, delta, dout, dqkv]);
        self.gpu.launch(kernels[2], keys_grid, block, shared, &head)
    }
}

/// Shared memory of the tensor-core kernels, forward and backward, in bytes.
pub(super) fn shared_bytes(head_dim: usize) -> [u32; 2] {
    // Rows are padded by eight elements against bank conflicts; two stages of keys and of values stream.
    let row = 2 * (head_dim + 8);
    [(ROWS + 4 * STEP) * row, (2 * ROWS + 4 * STEP) * row].map(|bytes| bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_start_with_the_most_work() {
        let starts = [0, 1, 130, 130, 700];
        let (queries, keys) = tiles(&starts);
        for list in [&queries, &keys] {
            let mut covered = vec![0; 700];
            for [start, length, first, _] in list.iter() {
                let end = (first + ROWS as u32).min(*length);
                (start + first..start + end).for_each(|row| covered[row as usize] += 1);
            }
            assert!(covered.iter().all(|n| *n == 1), "{covered:?}");
        }
        assert_eq!(queries[0], [130, 570, 512, 0]);
        assert_eq!(keys[0], [130, 570, 0, 0]);
        assert_eq!(rows(&starts)[0], [0, 1]);
        assert_eq!(rows(&starts)[699], [130, 570]);
        assert_eq!(rows(&starts).len(), 700);
    }

    #[test]
    fn shared_memory_fits_a_block() {
        // 163 KiB a block on A100, 227 KiB on H100.
        assert!(shared_bytes(128).iter().all(|b| *b <= 163 << 10));
    }
}
