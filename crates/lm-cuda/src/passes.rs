//! Training passes that are started as CUDA graphs.

use std::collections::HashMap;

use super::Cuda;
use super::gpu::Graph;
use sgs_lm::device::{Pass, Write};
use sgs_lm::error::Result;

/// Maximum number of graphs. The batches of a small model have fewer kinds of passes.
const GRAPHS: usize = 128;

/// The arguments of a pass's kernels, except for the contents of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PassKey {
    /// Addresses of the weights and of the rotary tables.
    weights: [u64; 3],
    /// Arguments of the attention kernels.
    attention: [u64; 6],
    loss_rows: usize,
    /// Bits of the loss's parameters.
    loss: [u32; 5],
    write: Write,
}

/// Recorded passes. A pass that has run only once has no graph yet.
#[derive(Debug, Default)]
pub struct Passes {
    known: HashMap<PassKey, Option<Graph>>,
    /// Whether recording has failed; it is then not tried again.
    off: bool,
}

impl Passes {
    /// Runs a pass, as a graph if one of its kind has run before.
    pub(super) fn run(
        &mut self,
        device: &Cuda,
        pass: &Pass<'_, Cuda>,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        // This also ensures that nothing is copied to the GPU during a recording.
        let attention = device.prepare_attention(pass.starts, pass.heads)?;
        if self.off || device.gpu.recorder.is_on() {
            return run();
        }
        let (loss, ratio) = (pass.loss, pass.loss.ratio_bounds);
        let (low, high) = ratio.unwrap_or_default();
        let key = PassKey {
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
                    // If the driver cannot record, the kernels are started one by one.
                    self.off = true;
                    run()
                }
            },
        }
    }
}
