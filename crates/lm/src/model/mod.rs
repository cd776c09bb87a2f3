//! The decoder: its parameters on a device, and one forward and backward pass over packed sequences.
//!
//! [`Model`] is what is shared between trainer and sampler; [`Workspace`] holds everything else that a
//! pass writes, planned once for a number of tokens by [`Plan`].

mod backward;
mod forward;
pub mod plan;
mod workspace;

use std::sync::Arc;

use crate::config::ModelConfig;
use crate::cpu::Floats;
use crate::device::{Device, first};
use crate::error::{LmError, Result};
use crate::layout::Layout;
use crate::rope::RopeTables;
use crate::weights::HostWeights;

pub use plan::{Mode, Plan};
pub use workspace::Workspace;

/// A model's parameters on a device, with the tables that depend only on its shape.
pub struct Model<D: Device> {
    /// Where the parameters live.
    pub device: Arc<D>,
    /// The shape.
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
