//! Rotary position embeddings: tables of cosines and sines per position and frequency, for every scaling rule.

use std::f64::consts::PI;

use crate::config::{ModelConfig, RopeScaling};

/// Cosines and sines of the rotary angles, each `[positions, head_dim / 2]`, multiplied by YaRN's attention factor.
#[derive(Debug, Clone)]
pub struct RopeTables {
    /// Cosines, row-major `[positions, half]`.
    pub cos: Vec<f32>,
    /// Sines, row-major `[positions, half]`.
    pub sin: Vec<f32>,
    /// `head_dim / 2`.
    pub half: usize,
    /// Number of positions in the tables.
    pub positions: usize,
}

impl RopeTables {
    /// Computes the tables for positions `0..positions`.
    ///
    /// As in Hugging Face transformers, angles are rounded to f32 before the cosine is taken, because models
    /// with long contexts were trained with that rounding.
    pub fn new(config: &ModelConfig, positions: usize) -> Self {
        let (frequencies, scale) = inverse_frequencies(config);
        let half = frequencies.len();
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for position in 0..positions {
            for frequency in &frequencies {
                let angle = f64::from(position as f32 * *frequency as f32);
                cos.push((angle.cos() * scale) as f32);
                sin.push((angle.sin() * scale) as f32);
            }
        }
        Self { cos, sin, half, positions }
    }
}

/// Returns the angle per position of each of the `head_dim / 2` pairs, and the factor for cosines and sines.
pub fn inverse_frequencies(config: &ModelConfig) -> (Vec<f64>, f64) {
    let dim = config.head_dim as f64;
    let plain: Vec<f64> =
        (0..config.head_dim / 2).map(|i| config.rope_theta.powf(-2.0 * i as f64 / dim)).collect();
    match config.rope_scaling {
        RopeScaling::None => (plain, 1.0),
        RopeScaling::Linear { factor } => (plain.iter().map(|f| f / factor).collect(), 1.0),
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_max_positions,
            attention_factor,
            truncate,
        } => {
            let context = original_max_positions as f64;
            // Peng et al. 2023, eq. 17: the dimension that completes `rotations` turns within the context.
            let dimension = |rotations: f64| {
                dim * (context / (rotations * 2.0 * PI)).ln() / (2.0 * config.rope_theta.ln())
            };
            let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            (low, high) = (low.max(0.0), high.min(dim - 1.0));
            if low == high {
                high += 0.001;
            }
            let mix = |(i, f): (usize, &f64)| {
                let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * interpolated + f * (1.0 - interpolated)
            };
            (plain.iter().enumerate().map(mix).collect(), attention_factor)
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => {
            let context = original_max_positions as f64;
            let stretch = |f: &f64| {
                let wavelength = 2.0 * PI / f;
                if wavelength > context / low_freq_factor {
                    f / factor
                } else if wavelength < context / high_freq_factor {
                    *f
                } else {
                    let smooth =
                        (context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * f / factor + smooth * f
                }
            };
            (plain.iter().map(stretch).collect(), 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(rope: serde_json::Value) -> ModelConfig {
        let value = json!({"model_type": "llama", "vocab_size": 11, "hidden_size": 256, "intermediate_size": 12,
            "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 131072,
            "rope_theta": 500000.0, "rope_scaling": rope});
        ModelConfig::from_json(value, "test").unwrap()
    }

    #[test]
    fn llama3_keeps_short_wavelengths_and_divides_long_ones() {
        let scaled = config(json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}));
        let plain = config(serde_json::Value::Null);
        let (f, _) = inverse_frequencies(&scaled);
        let (p, _) = inverse_frequencies(&plain);
        assert_eq!(f[0], p[0]);
        assert!((f[63] - p[63] / 8.0).abs() < 1e-15);
        assert!(f.windows(2).all(|w| w[0] > w[1]), "frequencies fall");
    }

    #[test]
    fn yarn_lies_between_plain_and_interpolated() {
        let scaled =
            config(json!({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}));
        let plain = config(serde_json::Value::Null);
        let (f, scale) = inverse_frequencies(&scaled);
        let (p, _) = inverse_frequencies(&plain);
        assert!((scale - (0.1 * 16f64.ln() + 1.0)).abs() < 1e-12);
        for (f, p) in f.iter().zip(&p) {
            assert!(*f <= *p && *f >= p / 16.0 * 0.999_999);
        }
    }

    #[test]
    fn linear_position_equals_plain_position_divided() {
        let scaled = RopeTables::new(&config(json!({"rope_type": "linear", "factor": 4.0})), 9);
        let plain = RopeTables::new(&config(serde_json::Value::Null), 3);
        for i in 0..plain.half {
            assert!((scaled.cos[8 * scaled.half + i] - plain.cos[2 * plain.half + i]).abs() < 1e-6);
        }
    }
}
