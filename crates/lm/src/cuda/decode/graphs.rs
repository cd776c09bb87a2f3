//! Steps that are started as one graph.

use std::collections::HashMap;

use super::CudaDecoder;
use super::shape::Shape;
use crate::cuda::Cuda;
use crate::cuda::gpu::Graph;
use crate::error::Result;
use crate::model::Model;

/// Columns of the largest step that is recorded; larger ones take the GPU longer than starting their kernels takes.
const RECORDED_COLUMNS: usize = 4096;
/// Graphs that are kept.
const GRAPHS: usize = 256;

/// Steps as graphs, by their shape. One that has occurred once, and was run as it came, has no graph yet.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    known: HashMap<Shape, Option<Graph>>,
    /// Addresses of the weights and rotary tables that they read.
    weights: [u64; 2],
    /// Recording has failed, and is not tried again.
    off: bool,
}

impl Graphs {
    /// Runs a step: as a graph if one of its kind has run before.
    pub(super) fn step(
        &mut self,
        device: &Cuda,
        decoder: &mut CudaDecoder,
        model: &Model<Cuda>,
        shape: Shape,
    ) -> Result<()> {
        // A profile times kernels one by one.
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
                    // A driver that cannot record runs the same kernels one by one.
                    self.off = true;
                    device.step(decoder, model, shape)
                }
            },
        }
    }

    /// Forgets all of them; none may be under way.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
