//! Steps that are started as CUDA graphs.

use std::collections::HashMap;

use super::CudaDecoder;
use super::shape::StepShape;
use crate::Cuda;
use crate::gpu::Graph;
use sgs_lm::error::Result;
use sgs_lm::model::Model;

/// Maximum number of columns of a recorded step. For larger steps, the GPU takes longer than launching the kernels, so
/// recording saves nothing.
const RECORDED_COLUMNS: usize = 4096;
/// Maximum number of graphs.
const GRAPHS: usize = 256;

/// Recorded steps by shape. A shape that has run only once has no graph yet.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    known: HashMap<StepShape, Option<Graph>>,
    /// Addresses of the weights and rotary tables that the graphs read.
    weights: [u64; 2],
    /// Whether recording has failed; it is then not tried again.
    off: bool,
}

impl Graphs {
    /// Runs a step, as a graph if one of its shape has run before.
    pub(super) fn step(
        &mut self,
        device: &Cuda,
        decoder: &mut CudaDecoder,
        model: &Model<Cuda>,
        shape: StepShape,
    ) -> Result<()> {
        // A profile measures individual kernels, so do not start a graph.
        if self.off || shape.columns() > RECORDED_COLUMNS || device.gpu.recorder.is_on() {
            return device.step(decoder, model, shape);
        }
        let weights = [model.params.front(0)?, model.rope.cos.front(0)?];
        if self.known.len() >= GRAPHS || self.weights != weights {
            device.gpu.wait()?;
            self.known.clear();
            self.weights = weights;
        }
        match self.known.get_mut(&shape) {
            None => {
                self.known.insert(shape, None);
                device.step(decoder, model, shape)
            }
            Some(Some(graph)) => graph.launch(),
            Some(place) => match device.gpu.record(|| device.step(decoder, model, shape)) {
                Ok(graph) => place.insert(graph).launch(),
                Err(_) => {
                    // If the driver cannot record, the kernels are started one by one.
                    self.off = true;
                    device.step(decoder, model, shape)
                }
            },
        }
    }

    /// Drops all graphs; none may be running.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
