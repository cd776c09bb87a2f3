//! Attention of the training passes on Hopper: shared memory, tensor maps, and kernel launches.

use super::Cuda;
use super::attention::{AttentionBackward, AttentionLists};
use super::attention_variant::{AttentionVariant, TILE};
use super::compile::Program;
use super::gpu::{Arg, int};
use super::work::CudaKernel;
use sgs_lm::device::Heads;
use sgs_lm::error::Result;

/// Rows that the backward pass loads at a time.
const STEP: usize = 64;
/// Pipeline stages: of keys and values in the forward pass, and of the streamed operands in the backward pass.
const STAGES: usize = 2;
const BACK_STAGES: usize = 4;
/// Number of threads per block: one warpgroup that copies, and two that compute.
const THREADS: usize = 384;
const STATS_THREADS: usize = 256;

/// Returns the shared memory in bytes: forward, backward by queries and by keys.
fn shared_bytes(head_dim: usize) -> [u32; 3] {
    let row = 2 * head_dim;
    let (barrier, to_align) = (8, 1024);
    let forward = (1 + 2 * STAGES) * TILE * row + (2 + 4 * STAGES) * barrier;
    let queries = (2 * TILE + 2 * BACK_STAGES * STEP) * row + (1 + 2 * BACK_STAGES) * barrier;
    // Two statistics per query are streamed as well.
    let keys = queries + BACK_STAGES * STEP * 2 * size_of::<f32>();
    [forward, queries, keys].map(|bytes| (bytes + to_align) as u32)
}

impl Cuda {
    /// Returns the kernels: forward, backward statistics, backward by queries and by keys.
    fn hopper_kernels(&self, head_dim: usize) -> Result<[CudaKernel; 4]> {
        let program = Program::Attention { head_dim, variant: AttentionVariant::Hopper };
        let names = ["attention", "attention_stats", "attention_dq", "attention_dkv"];
        self.program(program, names, |kernels| {
            let [forward, queries, keys] = shared_bytes(head_dim);
            self.gpu.allow_shared(kernels[0], forward)?;
            self.gpu.allow_shared(kernels[2], queries)?;
            self.gpu.allow_shared(kernels[3], keys)
        })
    }

    /// Runs the forward pass on addresses that the caller has checked.
    pub(super) fn run_hopper(
        &self,
        state: &AttentionLists,
        heads: Heads,
        qkv: u64,
        out: u64,
        lse: u64,
    ) -> Result<()> {
        let kernels = self.hopper_kernels(heads.head_dim)?;
        let arguments = [
            self.gpu.tensor_map(qkv, state.rows(), heads.qkv_dim(), TILE, heads.head_dim)?,
            Arg::Ptr(state.query_tiles()?),
            int(state.tiles),
            int(heads.heads),
            int(heads.kv_heads),
            Arg::Float(1.0 / (heads.head_dim as f32).sqrt()),
            Arg::Ptr(out),
            Arg::Ptr(lse),
        ];
        let [shared, ..] = shared_bytes(heads.head_dim);
        // One persistent block per multiprocessor processes one tile after the other.
        let blocks = self.gpu.processors.min(heads.heads * state.tiles);
        self.gpu.launch(kernels[0], (blocks, 1), THREADS, shared, &arguments)
    }

    /// Runs the backward pass on addresses that the caller has checked.
    pub(super) fn run_hopper_backward(
        &self,
        state: &AttentionLists,
        heads: Heads,
        at: &AttentionBackward,
    ) -> Result<()> {
        let Heads { heads: query_heads, kv_heads, head_dim } = heads;
        let [_, stats, by_queries, by_keys] = self.hopper_kernels(head_dim)?;
        let (rows, wide, narrow) = (state.rows(), heads.qkv_dim(), query_heads * head_dim);
        let map =
            |address, columns, box_rows| self.gpu.tensor_map(address, rows, columns, box_rows, head_dim);
        let (tile_qkv, step_qkv) = (map(at.qkv, wide, TILE)?, map(at.qkv, wide, STEP)?);
        let (tile_dout, step_dout) = (map(at.dout, narrow, TILE)?, map(at.dout, narrow, STEP)?);
        let (queries, keys) = (Arg::Ptr(state.query_tiles()?), Arg::Ptr(state.key_tiles()?));
        let (numbers, padded) = (Arg::Ptr(state.numbers(query_heads)?), int(state.padded));
        let arguments = [
            queries,
            int(query_heads),
            padded,
            Arg::Ptr(at.out),
            Arg::Ptr(at.lse),
            Arg::Ptr(at.dout),
            numbers,
        ];
        self.gpu.launch(stats, (query_heads, state.tiles), STATS_THREADS, 0, &arguments)?;
        let scale = Arg::Float(1.0 / (head_dim as f32).sqrt());
        let [_, shared, shared_by_keys] = shared_bytes(head_dim);
        let arguments = |dout, tiles| {
            [
                tile_qkv,
                step_qkv,
                dout,
                tiles,
                int(query_heads),
                int(kv_heads),
                scale,
                numbers,
                padded,
                Arg::Ptr(at.dqkv),
            ]
        };
        let grid = (query_heads, state.tiles);
        self.gpu.launch(by_queries, grid, THREADS, shared, &arguments(tile_dout, queries))?;
        let grid = (kv_heads, state.tiles);
        self.gpu.launch(by_keys, grid, THREADS, shared_by_keys, &arguments(step_dout, keys))
    }
}

#[cfg(test)]
mod tests {
    use super::super::attention_variant::HEAD_DIMS;
    use super::*;

    #[test]
    fn shared_memory_fits_a_block_of_hopper() {
        for head_dim in HEAD_DIMS {
            assert!(shared_bytes(head_dim).iter().all(|bytes| *bytes <= 227 << 10), "{head_dim}");
        }
    }
}
