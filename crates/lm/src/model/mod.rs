//! The decoder: its parameters on a device, and one forward and backward pass over packed sequences.
//!
//! [`Model`] is what is shared between trainer and sampler; [`Workspace`] holds everything else that a
//! pass writes, planned once for a number of tokens by [`Plan`].

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
use crate::cpu::Floats;
use crate::device::{Device, Part, PartMut, first};
use crate::error::{LmError, Result};
use crate::layout::Layout;
use crate::rope::RopeTables;
use crate::weights::{HostWeights, PIECE, Refused, check_shapes, in_pieces, visit_model};

pub use gradients::{Gradients, Peers};
pub use plan::{Mode, Plan};
pub use workspace::Workspace;

/// A model's parameters on a device, with the tables that depend only on its shape.
pub struct Model<D: Device> {
    /// Where the parameters live.
    pub device: Arc<D>,
    pub config: ModelConfig,
    /// Where each tensor lies in `params`.
    pub layout: Layout,
    /// All parameters, `[layout.len]`.
    pub params: D::Buf,
    /// Rotary tables for positions below [`Model::max_positions`].
    pub rope: D::Rope,
    /// Longest sequence that this model runs, in tokens.
    pub max_positions: usize,
}

impl<D: Device> std::fmt::Debug for Model<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("device", &self.device.name()).field("config", &self.config).finish()
    }
}

impl<D: Device> Model<D> {
    /// Puts weights on a device. `max_positions` bounds the rotary tables; more than the configuration
    /// allows is cut down to it.
    ///
    /// # Errors
    /// The device has no room.
    pub fn new(device: Arc<D>, weights: HostWeights, max_positions: usize) -> Result<Self> {
        let HostWeights { config, layout, data } = weights;
        if data.len() != layout.len {
            return Err(LmError::Input(format!("{} parameters for a layout of {}", data.len(), layout.len)));
        }
        let max_positions = max_positions.min(config.max_positions);
        let rope = device.rope_tables(RopeTables::new(&config, max_positions))?;
        let params = device.adopt(data)?;
        Ok(Self { device, config, layout, params, rope, max_positions })
    }

    /// Reads a model folder straight onto the device, tensor by tensor: the host never holds the model.
    ///
    /// # Errors
    /// As [`HostWeights::load`], and when the device has no room.
    pub fn load(device: Arc<D>, dir: &Path, max_positions: usize) -> Result<Self> {
        let config = ModelConfig::load(dir)?;
        let layout = Layout::new(&config);
        check_shapes(dir, &config, &layout)?;
        let (needed, free) = (layout.len * device.bytes_per_parameter().0, device.free_bytes());
        if let Some(free) = free.filter(|free| *free < needed) {
            return Err(LmError::Memory {
                device: device.name(),
                what: format!("the weights of {}", dir.display()),
                needed,
                free,
                hint: "end what else uses the device, or take a smaller model".to_owned(),
            });
        }
        let max_positions = max_positions.min(config.max_positions);
        let rope = device.rope_tables(RopeTables::new(&config, max_positions))?;
        let mut params = device.buf(layout.len)?;
        visit_model(dir, &config, &layout, |spec, dtype, bytes| {
            place(&*device, dtype, bytes, PartMut { buf: &mut params, range: spec.span.range() })
        })?;
        Ok(Self { device, config, layout, params, rope, max_positions })
    }

    /// Copies parameters to the host, from element `from` of the layout on.
    ///
    /// # Errors
    /// The device fails.
    pub fn read(&self, from: usize, to: &mut [f32]) -> Result<()> {
        self.device.read_buf(Part { buf: &self.params, range: from..from + to.len() }, to)
    }

    /// A copy of the weights on the host.
    ///
    /// # Errors
    /// The device fails.
    pub fn to_host(&self) -> Result<HostWeights> {
        let mut data = Floats::zeros(self.layout.len);
        self.device.read_buf(first(&self.params, self.layout.len), &mut data)?;
        Ok(HostWeights { config: self.config.clone(), layout: self.layout.clone(), data })
    }

    /// A second model with the same weights, for a policy that starts as a copy of another.
    ///
    /// # Errors
    /// The device has no room.
    pub fn duplicate(&self) -> Result<Self> {
        Self::new(Arc::clone(&self.device), self.to_host()?, self.max_positions)
    }
}

/// Puts a tensor as it lies in a file into a buffer: as it is where both are bfloat16, converted otherwise.
fn place<D: Device>(
    device: &D,
    dtype: Dtype,
    bytes: &[u8],
    to: PartMut<'_, D::Buf>,
) -> std::result::Result<(), Refused> {
    let PartMut { buf, range } = to;
    if dtype == Dtype::BF16 {
        let mut at = 0;
        for piece in bytes.chunks(2 * PIECE) {
            let end = range.start + at + piece.len() / 2;
            let to = PartMut { buf: &mut *buf, range: range.start + at..end };
            if let Some(bad) = first_bad_bf16(piece) {
                return Err(Refused::Tensor(format!("element {} is not a finite number", at + bad)));
            }
            if !device.write_bf16(piece, to).map_err(Refused::Failed)? {
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
        let to = PartMut { buf: &mut *buf, range: start..start + values.len() };
        device.write_buf(values, to).map_err(Refused::Failed)
    })
}

/// The first NaN or infinity among little-endian bfloat16.
fn first_bad_bf16(bytes: &[u8]) -> Option<usize> {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.par_iter().with_min_len(1 << 16).position_first(|pair| u16::from_le_bytes(*pair) & 0x7f80 == 0x7f80)
}
