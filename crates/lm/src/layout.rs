//! Positions of the tensors in the one flat buffer that holds all parameters.
//!
//! The query, key and value rows of a layer are adjacent, and so are its gate and up rows, so each group needs only one
//! matrix product. Names and shapes are those of Hugging Face files.

use crate::config::ModelConfig;

/// A contiguous part of a flat buffer, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl Span {
    /// Returns the part as a range.
    pub fn range(self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// A tensor under its Hugging Face name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// For example `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// `[out, in]` of a projection, `[vocabulary, width]` of a table, `[width]` of a norm or bias.
    pub shape: Vec<usize>,
    /// Position in the flat buffer.
    pub span: Span,
}

/// The merged tensors of one decoder layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerSpans {
    /// RMSNorm before attention, `[hidden]`.
    pub input_norm: Span,
    /// Query, key and value projections, `[(heads + 2 kv_heads) head_dim, hidden]`.
    pub qkv: Span,
    /// Biases of these projections, `[(heads + 2 kv_heads) head_dim]`, if the family has them.
    pub qkv_bias: Option<Span>,
    /// RMSNorm of query heads, then of key heads, `[2, head_dim]`, if the family has them.
    pub qk_norm: Option<Span>,
    /// Output projection of attention, `[hidden, heads head_dim]`.
    pub o: Span,
    /// RMSNorm before the feed-forward layer, `[hidden]`.
    pub post_norm: Span,
    /// Gate and up projections, `[2 intermediate, hidden]`.
    pub gate_up: Span,
    /// Down projection, `[hidden, intermediate]`.
    pub down: Span,
}

/// Layout of the flat parameter buffer; gradients and optimizer moments have the same layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Every tensor of the files, in buffer order.
    pub tensors: Vec<TensorSpec>,
    /// Embedding table, `[vocabulary, hidden]`.
    pub embed: Span,
    /// Tensors of each layer.
    pub layers: Vec<LayerSpans>,
    /// RMSNorm before the head, `[hidden]`.
    pub final_norm: Span,
    /// Output head, `[vocabulary, hidden]`; the embedding's span if it is tied.
    pub head: Span,
    /// Length of the buffer in elements, including the gaps for alignment.
    pub len: usize,
}

/// Tensors start at multiples of this many elements (64 bytes of f32: one cache line).
pub const ALIGN: usize = 16;

impl Layout {
    /// Computes the layout of a model.
    pub fn new(config: &ModelConfig) -> Self {
        let mut cursor = LayoutCursor { tensors: Vec::new(), len: 0 };
        let (d, v, f) = (config.hidden_size, config.vocab_size, config.intermediate_size);
        let (q, kv) = (config.q_dim(), config.kv_dim());
        let embed = cursor.merged(&[("model.embed_tokens.weight".to_owned(), vec![v, d])]);
        let layers = (0..config.layers)
            .map(|layer| {
                let name = |rest: &str| format!("model.layers.{layer}.{rest}");
                let attn = |p: &str, kind: &str| name(&format!("self_attn.{p}_proj.{kind}"));
                let mlp = |p: &str| name(&format!("mlp.{p}_proj.weight"));
                LayerSpans {
                    input_norm: cursor.merged(&[(name("input_layernorm.weight"), vec![d])]),
                    qkv: cursor.merged(&[
                        (attn("q", "weight"), vec![q, d]),
                        (attn("k", "weight"), vec![kv, d]),
                        (attn("v", "weight"), vec![kv, d]),
                    ]),
                    qkv_bias: config.qkv_bias.then(|| {
                        cursor.merged(&[
                            (attn("q", "bias"), vec![q]),
                            (attn("k", "bias"), vec![kv]),
                            (attn("v", "bias"), vec![kv]),
                        ])
                    }),
                    qk_norm: config.qk_norm.then(|| {
                        let norm =
                            |p: &str| (name(&format!("self_attn.{p}_norm.weight")), vec![config.head_dim]);
                        cursor.merged(&[norm("q"), norm("k")])
                    }),
                    o: cursor.merged(&[(attn("o", "weight"), vec![d, q])]),
                    post_norm: cursor.merged(&[(name("post_attention_layernorm.weight"), vec![d])]),
                    gate_up: cursor.merged(&[(mlp("gate"), vec![f, d]), (mlp("up"), vec![f, d])]),
                    down: cursor.merged(&[(mlp("down"), vec![d, f])]),
                }
            })
            .collect();
        let final_norm = cursor.merged(&[("model.norm.weight".to_owned(), vec![d])]);
        let head = if config.tied_head {
            embed
        } else {
            cursor.merged(&[("lm_head.weight".to_owned(), vec![v, d])])
        };
        Self { embed, layers, final_norm, head, len: cursor.len, tensors: cursor.tensors }
    }

    /// Returns the tensor that contains element `index`, or `None` for a gap.
    pub fn tensor_at(&self, index: usize) -> Option<&TensorSpec> {
        let after = self.tensors.partition_point(|t| t.span.offset <= index);
        self.tensors[..after].last().filter(|t| t.span.range().contains(&index))
    }
}

struct LayoutCursor {
    tensors: Vec<TensorSpec>,
    len: usize,
}

impl LayoutCursor {
    /// Appends tensors without gaps between them and aligns the end.
    fn merged(&mut self, parts: &[(String, Vec<usize>)]) -> Span {
        let start = self.len;
        for (name, shape) in parts {
            let span = Span { offset: self.len, len: shape.iter().product() };
            self.len += span.len;
            self.tensors.push(TensorSpec { name: name.clone(), shape: shape.clone(), span });
        }
        let whole = Span { offset: start, len: self.len - start };
        self.len = self.len.next_multiple_of(ALIGN);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spans_are_disjoint_ordered_and_complete() {
        for (family, tied) in [("llama", false), ("qwen2", true), ("qwen3", true)] {
            let config = ModelConfig::from_json(
                json!({"model_type": family, "vocab_size": 11, "hidden_size": 12, "intermediate_size": 7,
                    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
                    "tie_word_embeddings": tied}),
                "test",
            )
            .unwrap();
            let layout = Layout::new(&config);
            assert!(layout.tensors.windows(2).all(|w| w[0].span.range().end <= w[1].span.offset));
            assert_eq!(layout.tensors.iter().map(|t| t.span.len).sum::<usize>(), config.parameters());
            assert_eq!(layout.head == layout.embed, tied);
            let l = &layout.layers[1];
            assert_eq!(l.qkv.len, config.qkv_dim() * 12);
            assert!(
                layout
                    .tensor_at(l.qkv.offset + l.qkv.len - 1)
                    .unwrap()
                    .name
                    .ends_with("1.self_attn.v_proj.weight")
            );
        }
    }
}
