//! A model's configuration, read from and written to Hugging Face's `config.json`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{LmError, Result};
use crate::json;

/// Decoder family of the weights; the families differ in the biases and norms of queries, keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama: no biases.
    Llama,
    /// Qwen2: a bias on query, key and value.
    Qwen2,
    /// Qwen3 (dense): RMSNorm of every query and key head before the rotation.
    Qwen3,
    /// Mistral: no biases; attention may be limited to a window.
    Mistral,
}

impl Family {
    /// `model_type` and class name of every family in `config.json`.
    const NAMES: [(Self, &str, &str); 4] = [
        (Self::Llama, "llama", "LlamaForCausalLM"),
        (Self::Qwen2, "qwen2", "Qwen2ForCausalLM"),
        (Self::Qwen3, "qwen3", "Qwen3ForCausalLM"),
        (Self::Mistral, "mistral", "MistralForCausalLM"),
    ];
}

/// How rotary frequencies are scaled for contexts longer than the `original_max_positions` of pretraining, by `factor`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Position interpolation: every frequency is divided by `factor`.
    Linear { factor: f64 },
    /// YaRN (Peng et al. 2023, §3): frequencies with more than `beta_fast` rotations over the original context are kept,
    /// and those with fewer than `beta_slow` are interpolated; with `truncate`, the range in between is rounded outwards
    /// to whole dimensions. Cosines and sines are multiplied by `attention_factor`, and scores by its square.
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        original_max_positions: usize,
        attention_factor: f64,
        truncate: bool,
    },
    /// Llama 3.1's rule: wavelengths longer than the original context divided by `low_freq_factor` are interpolated, those
    /// shorter than the context divided by `high_freq_factor` are kept, with a ramp in between.
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original_max_positions: usize },
}

/// Configuration of a decoder of the Llama family. [`ModelConfig::validate`] checks all fields.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Model family, which determines the variant of the architecture.
    pub family: Family,
    /// Vocabulary size, in tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Maximum length of a sequence (prompt and completion), in tokens.
    pub max_positions: usize,
    /// Epsilon of RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Whether the output head is the embedding table.
    pub tied_head: bool,
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether query and key heads are normalised before the rotation.
    pub qk_norm: bool,
    /// Number of positions that a token attends to, if the model limits them. This engine does not, so sequences
    /// must not be longer.
    pub sliding_window: Option<usize>,
    /// Beginning-of-sequence token, if the configuration has one.
    pub bos_token: Option<u32>,
    /// Tokens that end a completion.
    pub eos_tokens: Vec<u32>,
    /// Padding token; unused by this engine, kept for other programs.
    pub pad_token: Option<u32>,
}

/// `config.json` as other programs write it, with old names (`rope_theta`, `rope_scaling`) or new ones
/// (`rope_parameters`).
#[derive(Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Map<String, Value>>,
    rope_parameters: Option<Map<String, Value>>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default)]
    layer_types: Vec<String>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<OneOrMany>,
    pad_token_id: Option<u32>,
}

/// The part of `generation_config.json` that the engine reads.
#[derive(Deserialize)]
struct RawGeneration {
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "eos_token_id must be the id of a token or a list of ids")]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl From<OneOrMany> for Vec<u32> {
    fn from(ids: OneOrMany) -> Self {
        match ids {
            OneOrMany::One(id) => vec![id],
            OneOrMany::Many(ids) => ids,
        }
    }
}

/// Maximum number of layers that is accepted.
const MOST_LAYERS: usize = 4096;

/// Maximum number of parameters that is accepted.
const MOST_PARAMETERS: u128 = 1 << 42;

/// Maximum number of elements in the rotary tables that is accepted.
const MOST_ROTATIONS: usize = 1 << 28;

impl ModelConfig {
    /// Reads `config.json` of a model folder, and the end tokens of its `generation_config.json`, which take
    /// precedence.
    ///
    /// # Errors
    /// Returns an error if `config.json` is missing, if a file is not JSON, or if the model is unsupported (another
    /// architecture or activation, other biases, sliding windows in some layers, an unknown RoPE type).
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let text = json::text(&path)?;
        let value: Value = serde_json::from_str(&text).map_err(LmError::json(&path))?;
        let mut config = Self::from_json(value, &path.display().to_string())?;
        let path = dir.join("generation_config.json");
        if let Some(text) = json::optional_text(&path)? {
            let raw: RawGeneration = serde_json::from_str(&text).map_err(LmError::json(&path))?;
            config.eos_tokens = raw.eos_token_id.map_or(config.eos_tokens, Vec::from);
            config.validate().map_err(|error| error.in_file(path.display().to_string()))?;
        }
        Ok(config)
    }

    /// Parses the contents of a `config.json`; `origin` names it in errors.
    pub fn from_json(value: Value, origin: &str) -> Result<Self> {
        let fail = |message: String| LmError::Config { origin: origin.to_owned(), message };
        let window = value.get("sliding_window").cloned();
        let Value::Object(mut fields) = value else { return Err(fail("expected a JSON object".to_owned())) };
        // Some programs write `null` for a default.
        fields.retain(|_, value| !value.is_null());
        let raw: RawConfig = serde_json::from_value(fields.into()).map_err(|e| fail(e.to_string()))?;
        let named = Family::NAMES.iter().find(|(_, name, _)| raw.model_type.as_deref() == Some(name));
        let Some((family, ..)) = named.copied() else {
            let found = raw.model_type.map_or("missing".to_owned(), |t| format!("{t:?}"));
            let names = Family::NAMES.map(|(_, name, _)| name).join(", ");
            return Err(fail(format!("model_type is {found}; this engine runs {names}")));
        };
        if let Some(act) = raw.hidden_act.as_deref()
            && act != "silu"
        {
            return Err(fail(format!("hidden_act is {act:?}; this engine runs \"silu\"")));
        }
        for (set, field) in [
            (raw.attention_bias && family != Family::Qwen2, "attention_bias"),
            (raw.mlp_bias, "mlp_bias"),
            (raw.use_sliding_window, "use_sliding_window"),
        ] {
            if set {
                return Err(fail(format!("{field} is true; models with it are not supported")));
            }
        }
        if let Some(kind) = raw.layer_types.iter().find(|kind| *kind != "full_attention") {
            return Err(fail(format!("layer_types contains {kind:?}; this engine runs \"full_attention\"")));
        }
        // A configuration without the field has the default of Mistral's class.
        let sliding_window = match window.unwrap_or(json!(4096)) {
            window if family == Family::Mistral && !window.is_null() => {
                let parsed = serde_json::from_value(window);
                Some(parsed.map_err(|e| fail(format!("sliding_window: {e}")))?)
            }
            _ => None,
        };
        if raw.num_attention_heads == 0 {
            return Err(fail("num_attention_heads is 0".to_owned()));
        }
        let max_positions = raw.max_position_embeddings.unwrap_or(2048);
        let (rope_theta, rope_scaling) = rope_of(&raw, max_positions).map_err(fail)?;
        let config = Self {
            family,
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim: raw.head_dim.unwrap_or(match family {
                // This is the default of Qwen3's class.
                Family::Qwen3 => 128,
                _ => raw.hidden_size / raw.num_attention_heads,
            }),
            max_positions,
            norm_eps: raw.rms_norm_eps.unwrap_or(1e-6) as f32,
            rope_theta,
            rope_scaling,
            tied_head: raw.tie_word_embeddings,
            qkv_bias: family == Family::Qwen2,
            qk_norm: family == Family::Qwen3,
            sliding_window,
            bos_token: raw.bos_token_id,
            eos_tokens: raw.eos_token_id.map_or_else(Vec::new, Vec::from),
            pad_token: raw.pad_token_id,
        };
        config.validate().map_err(|error| error.in_file(origin))?;
        Ok(config)
    }

    /// Checks the fields for consistency.
    ///
    /// # Errors
    /// Returns an error that names the first invalid field and its value.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_positions),
        ];
        let problem = if let Some((name, _)) = positive.iter().find(|(_, v)| *v == 0) {
            Some(format!("{name} is 0"))
        } else if let Some((name, v)) = positive.iter().find(|(_, v)| *v > 1 << 28) {
            Some(format!("{name} is {v}, which is not supported"))
        } else if self.layers > MOST_LAYERS {
            Some(format!("num_hidden_layers is {}, which is not supported", self.layers))
        } else if self.size() > MOST_PARAMETERS {
            Some(format!("these sizes give {} parameters, which is not supported", self.size()))
        } else if self.max_positions.saturating_mul(self.head_dim) > MOST_ROTATIONS {
            let (positions, head_dim) = (self.max_positions, self.head_dim);
            Some(format!(
                "max_position_embeddings {positions} with head_dim {head_dim} gives rotary tables that are too large"
            ))
        } else if !self.heads.is_multiple_of(self.kv_heads) {
            Some(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                self.heads, self.kv_heads
            ))
        } else if !self.head_dim.is_multiple_of(2) {
            Some(format!("head_dim {} is odd; rotary positions need pairs", self.head_dim))
        } else if !(self.norm_eps > 0.0 && self.norm_eps < 1.0) {
            Some(format!("rms_norm_eps is {}", self.norm_eps))
        } else if let Some(id) = self.eos_tokens.iter().find(|id| **id as usize >= self.vocab_size) {
            Some(format!("eos_token_id is {id}, but vocab_size {}", self.vocab_size))
        } else if !(self.rope_theta.is_finite() && self.rope_theta > 1.0) {
            Some(format!("rope_theta is {}", self.rope_theta))
        } else {
            None
        };
        match problem {
            None => Ok(()),
            Some(message) => Err(LmError::Config { origin: "model configuration".to_owned(), message }),
        }
    }

    /// Returns the number of positions of a model that is loaded for at most `asked`.
    ///
    /// # Errors
    /// Returns an error if that is more than the model's sliding window.
    pub fn positions(&self, asked: usize) -> Result<usize> {
        let positions = asked.min(self.max_positions);
        match self.sliding_window {
            Some(window) if window < positions => Err(LmError::Config {
                origin: "model configuration".to_owned(),
                message: format!(
                    "sliding_window is {window} and the context {positions} tokens; windows are not supported, so \
                     set the context (in a run model.context) to {window} or less"
                ),
            }),
            _ => Ok(positions),
        }
    }

    /// Returns the contents of `config.json`, with the old names, which every program accepts.
    pub fn to_json(&self) -> Value {
        let named = Family::NAMES.iter().find(|(family, ..)| *family == self.family);
        let (model_type, architecture) =
            named.map_or_else(Default::default, |(_, name, class)| (*name, *class));
        let rope_scaling = match &self.rope_scaling {
            RopeScaling::None => Value::Null,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_positions,
                attention_factor,
                truncate,
            } => {
                json!({"rope_type": "yarn", "factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow,
                    "original_max_position_embeddings": original_max_positions,
                    "attention_factor": attention_factor, "truncate": truncate})
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => {
                json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": low_freq_factor,
                    "high_freq_factor": high_freq_factor,
                    "original_max_position_embeddings": original_max_positions})
            }
        };
        let eos = match self.eos_tokens.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        json!({
            "architectures": [architecture],
            "model_type": model_type,
            "attention_bias": false,
            "mlp_bias": false,
            "hidden_act": "silu",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": shortest_f64(self.norm_eps),
            "rope_theta": self.rope_theta,
            "rope_scaling": rope_scaling,
            "tie_word_embeddings": self.tied_head,
            "sliding_window": self.sliding_window,
            "bos_token_id": self.bos_token,
            "eos_token_id": eos,
            "pad_token_id": self.pad_token,
        })
    }

    /// Returns the width of the merged query, key and value projection: `(heads + 2 kv_heads) head_dim`.
    pub fn qkv_dim(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Returns the width of all query heads together, which is also the width of the attention's output.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the width of all key (or value) heads together.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Returns the number of parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        // `validate` rejects anything larger.
        usize::try_from(self.size()).unwrap_or(usize::MAX)
    }

    /// Returns the number of parameters, without overflow for any field values.
    fn size(&self) -> u128 {
        let [d, head, f, v, layers] =
            [self.hidden_size, self.head_dim, self.intermediate_size, self.vocab_size, self.layers]
                .map(|n| n as u128);
        let (q, qkv) = (self.heads as u128 * head, (self.heads as u128 + 2 * self.kv_heads as u128) * head);
        let bias = if self.qkv_bias { qkv } else { 0 };
        let norms = if self.qk_norm { 2 * head } else { 0 };
        let layer = 2 * d + qkv * d + bias + norms + q * d + 3 * f * d;
        let tables = if self.tied_head { 1 } else { 2 };
        tables * v * d + layers * layer + d
    }
}

/// Returns the number whose shortest decimal form is that of the f32: 1e-6 instead of 9.999999974752427e-7.
fn shortest_f64(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// Returns the base and the scaling of the rotary frequencies from either form; errors name the field.
fn rope_of(raw: &RawConfig, max_positions: usize) -> std::result::Result<(f64, RopeScaling), String> {
    let (table, name) = match (&raw.rope_parameters, &raw.rope_scaling) {
        (Some(t), _) => (Some(t), "rope_parameters"),
        (None, t) => (t.as_ref(), "rope_scaling"),
    };
    let number = |key: &str| -> std::result::Result<Option<f64>, String> {
        match table.and_then(|t| t.get(key)) {
            None | Some(Value::Null) => Ok(None),
            Some(v) => v.as_f64().map(Some).ok_or_else(|| format!("{name}.{key} is {v}, not a number")),
        }
    };
    let need = |key: &str| number(key)?.ok_or_else(|| format!("{name}.{key} is missing"));
    let theta = number("rope_theta")?.or(raw.rope_theta).unwrap_or(10_000.0);
    let kind = table
        .and_then(|t| t.get("rope_type").or_else(|| t.get("type")))
        .and_then(Value::as_str)
        .unwrap_or("default");
    let original = || -> std::result::Result<usize, String> {
        match number("original_max_position_embeddings")? {
            None => Ok(max_positions),
            Some(n) if n >= 1.0 => Ok(n as usize),
            Some(n) => Err(format!("{name}.original_max_position_embeddings is {n}")),
        }
    };
    let factor_of = || match need("factor")? {
        f if f.is_finite() && f > 0.0 => Ok(f),
        f => Err(format!("{name}.factor is {f}")),
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: factor_of()? },
        "yarn" => {
            let original_max_positions = original()?;
            let factor = match number("factor")? {
                Some(_) => factor_of()?,
                None => max_positions as f64 / original_max_positions as f64,
            };
            let attention_factor = match number("attention_factor")? {
                Some(a) => a,
                None => match (number("mscale")?, number("mscale_all_dim")?) {
                    (Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                        yarn_attention_factor(factor, m) / yarn_attention_factor(factor, all)
                    }
                    _ => yarn_attention_factor(factor, 1.0),
                },
            };
            RopeScaling::Yarn {
                factor,
                beta_fast: number("beta_fast")?.unwrap_or(32.0),
                beta_slow: number("beta_slow")?.unwrap_or(1.0),
                original_max_positions,
                attention_factor,
                truncate: table.and_then(|t| t.get("truncate")).and_then(Value::as_bool).unwrap_or(true),
            }
        }
        "llama3" => RopeScaling::Llama3 {
            factor: factor_of()?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_max_positions: original()?,
        },
        other => {
            return Err(format!(
                "{name}.rope_type is {other:?}; this engine knows default, linear, yarn and llama3"
            ));
        }
    };
    Ok((theta, scaling))
}

/// Returns YaRN's factor for queries and keys, `0.1 mscale ln(factor) + 1` (Peng et al. 2023, eq. 22).
fn yarn_attention_factor(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Value {
        json!({"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
            "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6})
    }

    fn with(pairs: &[(&str, Value)]) -> Value {
        let mut v = base();
        for (k, x) in pairs {
            v[*k] = x.clone();
        }
        v
    }

    #[test]
    fn both_forms_of_rope_parameters_are_equivalent() {
        let table = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16});
        let old = with(&[("rope_theta", json!(500.0)), ("rope_scaling", table.clone())]);
        let mut new_table = table;
        new_table["rope_theta"] = json!(500.0);
        let new = with(&[("rope_parameters", new_table)]);
        let (old, new) =
            (ModelConfig::from_json(old, "old").unwrap(), ModelConfig::from_json(new, "new").unwrap());
        assert_eq!(old, new);
        assert_eq!(old.rope_theta, 500.0);
    }

    #[test]
    fn mscale_pair_cancels_when_equal() {
        let table = json!({"type": "yarn", "factor": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096});
        let config = ModelConfig::from_json(with(&[("rope_scaling", table)]), "x").unwrap();
        assert!(
            matches!(config.rope_scaling, RopeScaling::Yarn { attention_factor, .. } if attention_factor == 1.0)
        );
    }

    #[test]
    fn written_config_reads_back() {
        for table in [
            Value::Null,
            json!({"rope_type": "linear", "factor": 2.0}),
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}),
        ] {
            let config = ModelConfig::from_json(
                with(&[("rope_scaling", table), ("eos_token_id", json!([1, 2]))]),
                "x",
            )
            .unwrap();
            assert_eq!(ModelConfig::from_json(config.to_json(), "y").unwrap(), config);
        }
    }

    #[test]
    fn sequences_must_fit_into_a_sliding_window() {
        let mistral = |window: Value| {
            let value = with(&[("model_type", json!("mistral")), ("sliding_window", window)]);
            ModelConfig::from_json(value, "x").unwrap()
        };
        assert_eq!(mistral(Value::Null).positions(usize::MAX).unwrap(), 64);
        let config = mistral(json!(48));
        assert_eq!(ModelConfig::from_json(config.to_json(), "y").unwrap(), config);
        assert_eq!(config.positions(48).unwrap(), 48);
        let error = config.positions(usize::MAX).unwrap_err().to_string();
        assert!(error.contains("sliding_window is 48 and the context 64"), "{error}");
        // Other families ignore the field unless use_sliding_window is set.
        let qwen = with(&[("model_type", json!("qwen2")), ("sliding_window", json!(8))]);
        assert_eq!(ModelConfig::from_json(qwen, "x").unwrap().sliding_window, None);
    }

    #[test]
    fn generation_config_names_the_end_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let eos = |generation: &str| {
            std::fs::write(dir.path().join("generation_config.json"), generation).unwrap();
            ModelConfig::load(dir.path()).map(|config| config.eos_tokens)
        };
        std::fs::write(dir.path().join("config.json"), with(&[("eos_token_id", json!(1))]).to_string())
            .unwrap();
        assert_eq!(ModelConfig::load(dir.path()).unwrap().eos_tokens, [1]);
        assert_eq!(eos(r#"{"temperature": 0.6}"#).unwrap(), [1]);
        assert_eq!(eos(r#"{"eos_token_id": 2}"#).unwrap(), [2]);
        assert_eq!(eos(r#"{"eos_token_id": [2, 3]}"#).unwrap(), [2, 3]);
        let error = eos(r#"{"eos_token_id": "x"}"#).unwrap_err().to_string();
        assert!(error.contains("generation_config.json: eos_token_id must be"), "{error}");
        let error = eos(r#"{"eos_token_id": 1000000}"#).unwrap_err().to_string();
        assert!(error.contains("generation_config.json: eos_token_id is 1000000"), "{error}");
    }

    #[test]
    fn null_is_the_default() {
        let nulls = ["layer_types", "attention_bias", "tie_word_embeddings"].map(|key| (key, Value::Null));
        let config = ModelConfig::from_json(with(&nulls), "x").unwrap();
        let without = with(&[]).as_object().unwrap().clone();
        let without = without.into_iter().filter(|(key, _)| nulls.iter().all(|(null, _)| null != key));
        assert_eq!(config, ModelConfig::from_json(Value::Object(without.collect()), "x").unwrap());
        let error = ModelConfig::from_json(json!([]), "x").unwrap_err().to_string();
        assert!(error.contains("expected a JSON object"), "{error}");
    }

    #[test]
    fn configuration_errors_name_the_field() {
        for (key, value, word) in [
            ("model_type", json!("gpt2"), "model_type"),
            ("hidden_act", json!("gelu"), "hidden_act"),
            ("mlp_bias", json!(true), "mlp_bias"),
            ("layer_types", json!(["full_attention", "sliding_attention"]), "layer_types"),
            ("num_key_value_heads", json!(3), "num_key_value_heads"),
            ("vocab_size", json!(0), "vocab_size"),
            ("vocab_size", json!("many"), "expected usize"),
            ("rope_scaling", json!({"rope_type": "longrope"}), "rope_type"),
            ("rope_scaling", json!({"rope_type": "linear"}), "factor"),
            ("rope_scaling", json!({"rope_type": "linear", "factor": "x"}), "factor"),
        ] {
            let error = ModelConfig::from_json(with(&[(key, value)]), "here.json").unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("here.json"), "{error}");
        }
    }
}
