//! Training passes that are started as one graph.

use std::collections::HashMap;

use super::Cuda;
use super::gpu::Graph;
use crate::device::{Pass, Write};
use crate::error::Result;

/// Graphs that are kept; of a small model's batches, cut as they come, fewer kinds occur.
const GRAPHS: usize = 128;

/// What the kernels of a pass are told, but for what lies in their buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// Addresses of the weights and of the rotary tables.
    weights: [u64; 3],
    /// What attention is told of the sequences.
    attention: [u64; 6],
    loss_rows: usize,
    /// Bits of the loss's numbers.
    loss: [u32; 5],
    write: Write,
}

/// Passes as graphs. One that has occurred once, and was run as it came, has no graph yet.
#[derive(Debug, Default)]
pub struct Passes {
    known: HashMap<Key, Option<Graph>>,
    /// Recording has failed, and is not tried again.
    off: bool,
}

impl Passes {
    /// Runs a pass: as a graph if one of its kind has run before.
    pub(super) fn run(
        &mut self,
        device: &Cuda,
        pass: &Pass<'_, Cuda>,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        // Also so that nothing is copied to the GPU while a graph is recorded.
        let attention = device.prepare_attention(pass.starts, pass.heads)?;
        if self.off || device.gpu.recorder.is_on() {
            return run();
        }
        let (loss, ratio) = (pass.loss, pass.loss.ratio_bounds);
        let (low, high) = ratio.unwrap_or_default();
        let key = Key {
            weights: [pass.params.front(0)?, pass.rope.cos.front(0)?, pass.rope.sin.front(0)?],
            attention,
            loss_rows: pass.loss_rows,
            loss: [
                u32::from(ratio.is_some()),
                low.to_bits(),
                high.to_bits(),
                loss.entropy_bonus.to_bits(),
                loss.kl_penalty.to_bits(),
            ],
            write: pass.write,
        };
        if self.known.len() >= GRAPHS && !self.known.contains_key(&key) {
            device.gpu.wait()?;
            self.known.clear();
        }
        match self.known.get_mut(&key) {
            None => {
                self.known.insert(key, None);
                run()
            }
            Some(Some(graph)) => graph.launch(),
            Some(place) => match device.gpu.record(&mut run) {
                Ok(graph) => place.insert(graph).launch(),
                Err(_) => {
                    // A driver that cannot record runs the same kernels one by one.
                    self.off = true;
                    run()
                }
            },
        }
    }
}
