//! The decoder: its parameters on a device, and forward and backward passes over packed sequences.
//!
//! Trainer and sampler share a [`Model`]. A [`Workspace`] holds everything else that a pass writes;
//! [`MemoryPlan`] plans it for a number of tokens.

mod backward;
mod forward;
mod gradients;
pub mod plan;
mod workspace;

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use safetensors::Dtype;

use crate::config::ModelConfig;
use crate::device::{BufferSlice, BufferSliceMut, Device, first};
use crate::error::{LmError, Result};
use crate::host_buffer::HostBuffer;
use crate::layout::Layout;
use crate::rope::RopeTables;
use crate::weights::{HostWeights, PIECE, TensorError, check_shapes, in_pieces, visit_model};

pub use gradients::{Gradients, Peers};
pub use plan::{MemoryPlan, Mode, adam_bytes, model_bytes};
pub use workspace::Workspace;

/// A model's parameters on a device, and the tables that depend only on its configuration.
pub struct Model<D: Device> {
    /// The device that holds the parameters.
    pub device: Arc<D>,
    /// Configuration of the model.
    pub config: ModelConfig,
    /// Positions of the tensors in `params`.
    pub layout: Layout,
    /// All parameters, `[layout.len]`.
    pub params: D::Buf,
    /// Rotary tables for positions below [`Model::max_positions`].
    pub rope: D::Rope,
    /// Maximum length of a sequence, in tokens.
    pub max_positions: usize,
}

impl<D: Device> std::fmt::Debug for Model<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("device", &self.device.name()).field("config", &self.config).finish()
    }
}

impl<D: Device> Model<D> {
    /// Moves weights to a device. `max_positions` limits the rotary tables; the configuration's limit also applies.
    ///
    /// # Errors
    /// Returns an error if the positions exceed a sliding window, or if the device runs out of memory.
    pub fn new(device: Arc<D>, weights: HostWeights, max_positions: usize) -> Result<Self> {
        let HostWeights { config, layout, data } = weights;
        if data.len() != layout.len {
            return Err(LmError::Input(format!("{} parameters for a layout of {}", data.len(), layout.len)));
        }
        let max_positions = config.positions(max_positions)?;
        let rope = device.rope_tables(RopeTables::new(&config, max_positions))?;
        let params = device.upload(data)?;
        Ok(Self { device, config, layout, params, rope, max_positions })
    }

    /// Reads a model folder directly to the device, tensor by tensor, without a copy of the model in host memory.
    pub fn load(device: Arc<D>, dir: &Path, max_positions: usize) -> Result<Self> {
        let config = ModelConfig::load(dir)?;
        let layout = Layout::new(&config);
        check_shapes(dir, &config, &layout)?;
        let max_positions = config.positions(max_positions)?;
        let needed = model_bytes(device.footprint(), &config, max_positions);
        let free = device.free_bytes();
        if let Some(free) = free.filter(|free| *free < needed) {
            return Err(LmError::Memory {
                device: device.name(),
                what: format!("the weights of {}", dir.display()),
                needed,
                free,
                hint: "stop other programs on the device, or use a smaller model".to_owned(),
            });
        }
        let rope = device.rope_tables(RopeTables::new(&config, max_positions))?;
        let mut params = device.buf(layout.len)?;
        visit_model(dir, &config, &layout, |spec, dtype, bytes| {
            place(&*device, dtype, bytes, BufferSliceMut { buf: &mut params, range: spec.span.range() })
        })?;
        Ok(Self { device, config, layout, params, rope, max_positions })
    }

    /// Copies parameters to the host, starting at element `from` of the layout.
    pub fn read(&self, from: usize, to: &mut [f32]) -> Result<()> {
        self.device.read_buf(BufferSlice { buf: &self.params, range: from..from + to.len() }, to)
    }

    /// Copies the weights to the host.
    pub fn to_host(&self) -> Result<HostWeights> {
        let mut data = HostBuffer::zeros(self.layout.len);
        self.device.read_buf(first(&self.params, self.layout.len), &mut data)?;
        Ok(HostWeights { config: self.config.clone(), layout: self.layout.clone(), data })
    }
}

/// Copies a tensor from a file to a buffer, without conversion if both are bfloat16.
fn place<D: Device>(
    device: &D,
    dtype: Dtype,
    bytes: &[u8],
    to: BufferSliceMut<'_, D::Buf>,
) -> std::result::Result<(), TensorError> {
    let BufferSliceMut { buf, range } = to;
    if dtype == Dtype::BF16 {
        let mut at = 0;
        for piece in bytes.chunks(2 * PIECE) {
            let end = range.start + at + piece.len() / 2;
            let to = BufferSliceMut { buf: &mut *buf, range: range.start + at..end };
            if let Some(bad) = first_bad_bf16(piece) {
                return Err(TensorError::Tensor(format!("element {} is not a finite number", at + bad)));
            }
            if !device.write_bf16(piece, to).map_err(TensorError::Failed)? {
                break;
            }
            at += piece.len() / 2;
        }
        if at == range.len() {
            return Ok(());
        }
    }
    in_pieces(dtype, bytes, 0..range.len(), |at, values| {
        let start = range.start + at;
        let to = BufferSliceMut { buf: &mut *buf, range: start..start + values.len() };
        device.write_buf(values, to).map_err(TensorError::Failed)
    })
}

/// Returns the index of the first NaN or infinity in little-endian bfloat16.
fn first_bad_bf16(bytes: &[u8]) -> Option<usize> {
    /// Numbers per parallel task.
    const BLOCK: usize = 1 << 16;
    let (pairs, _) = bytes.as_chunks::<2>();
    let is_bad = |pair: &[u8; 2]| u16::from_le_bytes(*pair) & 0x7f80 == 0x7f80;
    // Check whole blocks first, because without an early exit a block is checked with vector instructions.
    let has_bad = |block: &[[u8; 2]]| block.iter().fold(false, |bad, pair| bad | is_bad(pair));
    let block = pairs.par_chunks(BLOCK).position_first(has_bad)?;
    pairs[block * BLOCK..].iter().position(is_bad).map(|at| block * BLOCK + at)
}
