//! Fixtures for tests and benchmarks.

use std::sync::Arc;

use crate::config::{Family, ModelConfig, RopeScaling};
use crate::device::Device;
use crate::error::Result;
use crate::model::Model;
use crate::weights::HostWeights;

/// Returns the shape that is used to compare this engine with others: 4 layers, width 256, 4 heads, feed-forward width
/// 1,024, vocabulary 1,024, separate head.
pub fn small_shape() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 1024,
        hidden_size: 256,
        intermediate_size: 1024,
        layers: 4,
        heads: 4,
        kv_heads: 4,
        head_dim: 64,
        max_positions: 2048,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        tied_head: false,
        qkv_bias: false,
        qk_norm: false,
        sliding_window: None,
        bos_token: None,
        eos_tokens: Vec::new(),
        pad_token: None,
    }
}

/// Creates a model with random weights.
pub fn random_model<D: Device>(device: Arc<D>, config: &ModelConfig) -> Result<Model<D>> {
    Model::new(device, HostWeights::random(config, 0), config.max_positions)
}
