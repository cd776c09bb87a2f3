//! Random models of any shape whose completions have chosen lengths.
//!
//! Four components of the residual stream, which the layers do not write to, hold the state of a completion, and the head
//! derives the next token from it. The layers compute as those of a trained model, but change the logits little.
//!
//! A completion consists of random words. The number of words is geometrically distributed. Most completions end with
//! an *answer*: one token whose text contains a theorem with a proof and the scores of a review, so that every role can
//! use it. The others have no end and reach the token limit.

use anyhow::Result;
use serde_json::{Map, Value, json};
use sgs_base::random::SeededRng;
use sgs_lean::Templates;
use sgs_lean::prompt::{self, SolverForm};
use sgs_lm::ModelConfig;
use sgs_lm::config::{Family, RopeScaling};
use sgs_lm::host_buffer::HostBuffer;
use sgs_lm::layout::{Layout, TensorSpec};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_selfplay::Problem;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Special tokens. The prompt ends with the last one.
const SPECIAL: [&str; 4] = ["<pad>", "<end>", "<user>", "<assistant>"];
const END: usize = 1;
const ASSISTANT: usize = 3;
/// Number of special tokens and bytes.
const FIXED: usize = SPECIAL.len() + 256;

/// States of a completion.
const TEXT: usize = 0;
const ENDLESS: usize = 1;
const ANSWERED: usize = 2;
const START: usize = 3;
const STATES: usize = 4;
/// The logit of tokens that a state excludes.
const NEVER: f64 = -30.0;

/// Lengths of completions.
pub struct Lengths {
    /// Mean number of tokens of a completion that ends.
    pub mean: f64,
    /// Share of the completions that reach the token limit.
    pub endless: f64,
}

impl Lengths {
    /// Returns the mean length of completions with at most `limit` tokens, and the mean length of those that are being sampled,
    /// relative to it. Completions that end have a geometric distribution.
    pub fn until(&self, limit: f64) -> (f64, f64) {
        let ends = 1.0 - self.endless;
        let mean = ends * self.mean + self.endless * limit;
        // A completion is sampled for as many steps as it has tokens, and on average, half of its tokens exist.
        let square = ends * 2.0 * self.mean * self.mean + self.endless * limit * limit;
        (mean, square / (2.0 * mean * mean))
    }

    /// Returns the expected length of the longest of `count` completions, in tokens; a large number if some have no end.
    pub fn longest(&self, count: f64) -> f64 {
        const EULER: f64 = 0.577;
        if count * self.endless >= 1.0 { 1e6 } else { self.mean * (count.ln() + EULER) }
    }
}

/// Returns the shape of DeepSeek-Prover-V2-7B with this number of layers.
pub fn seven_b(layers: usize) -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 102_400,
        hidden_size: 4096,
        intermediate_size: 11_008,
        layers,
        heads: 32,
        kv_heads: 32,
        head_dim: 128,
        max_positions: 65_536,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        tied_head: false,
        qkv_bias: false,
        qk_norm: false,
        sliding_window: None,
        bos_token: None,
        eos_tokens: vec![END as u32],
        pad_token: Some(0),
    }
}

/// Returns the shape of the base model `made:30m`, with the longest context that the size `lean-d3k` needs.
pub fn thirty_m(layers: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: 4096,
        hidden_size: 512,
        intermediate_size: 1408,
        heads: 8,
        kv_heads: 8,
        head_dim: 64,
        max_positions: 8192,
        ..seven_b(layers)
    }
}

/// Returns a shape for CPUs.
pub fn tiny(layers: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: 2048,
        hidden_size: 64,
        intermediate_size: 128,
        heads: 2,
        kv_heads: 2,
        head_dim: 32,
        max_positions: 8192,
        ..seven_b(layers)
    }
}

/// The tokens of a model: special tokens, bytes, words, answers.
pub struct Vocabulary {
    words: Vec<String>,
    answers: Vec<String>,
}

impl Vocabulary {
    /// Creates a vocabulary of `size` tokens. The words are the most frequent ones of the prompts for `problems`, so that
    /// prompts have about as many tokens as with a trained tokenizer, and made-up ones if there are too few.
    pub fn new(size: usize, problems: &[Problem], answers: Vec<String>) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let built_in = Templates::default();
        // A small vocabulary needs few prompts.
        let prompts: Vec<String> = problems
            .iter()
            .take(size / 16)
            .flat_map(|p| [prompt::solver(&built_in, p, SolverForm::NonCot), prompt::guide(&built_in, p, p)])
            .collect();
        prompts.iter().flat_map(|text| pieces(text)).for_each(|piece| *counts.entry(piece).or_default() += 1);
        let mut words: Vec<(&str, usize)> = counts.into_iter().filter(|(word, _)| word.len() > 1).collect();
        words.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let wanted = size - FIXED - answers.len();
        let made_up = (0..).map(|i| format!(" w{i}x"));
        let words = words.into_iter().map(|(word, _)| word.to_owned()).chain(made_up).take(wanted).collect();
        Self { words, answers }
    }

    /// Returns the state after a token, and whether a completion may contain it.
    fn state(&self, token: usize) -> (usize, bool) {
        match token.checked_sub(FIXED) {
            _ if token == ASSISTANT => (START, false),
            None => (TEXT, false),
            // Fences and tags would end a completion early.
            Some(i) if i < self.words.len() => {
                (i % 2, self.words[i].trim().chars().all(char::is_alphanumeric))
            }
            Some(_) => (ANSWERED, true),
        }
    }

    /// Returns the logits of a token in each state.
    fn logits(&self, token: usize, bias: &Bias) -> [f64; STATES] {
        let mut logits = [NEVER; STATES];
        match self.state(token) {
            _ if token == END => logits[ANSWERED] = 0.0,
            (TEXT, true) => (logits[TEXT], logits[START]) = (0.0, 0.0),
            (ENDLESS, true) => (logits[ENDLESS], logits[START]) = (0.0, bias.endless),
            (ANSWERED, true) => logits[TEXT] = bias.answer,
            _ => {}
        }
        logits
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let bytes = (0..=255).map(|byte| character(byte).to_string());
        let spelled = |text: &String| text.bytes().map(character).collect::<String>();
        let special = SPECIAL.iter().map(|text| (*text).to_owned());
        let texts = special.chain(bytes).chain(self.words.iter().chain(&self.answers).map(spelled));
        let vocabulary: Map<String, Value> = texts.enumerate().map(|(id, text)| (text, id.into())).collect();
        let added = SPECIAL.iter().enumerate().map(|(id, content)| {
            json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false,
                "lstrip": false, "rstrip": false})
        });
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": null, "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": []},
        });
        fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
        let template = "{% for message in messages %}<user>{{ message['content'] }}{% endfor %}<assistant>";
        let config = json!({"eos_token": "<end>", "pad_token": "<pad>", "chat_template": template});
        Ok(fs::write(folder.join("tokenizer_config.json"), config.to_string())?)
    }
}

/// Returns the pieces of a text that a byte-level tokenizer encodes separately: runs of letters, of digits, of other
/// characters, each with a preceding space.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let class = |c: char| match c {
        _ if c.is_whitespace() => 0,
        _ if c.is_alphabetic() => 1,
        _ if c.is_numeric() => 2,
        _ => 3,
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() && c != ' ');
        let skipped = rest.len() - rest.trim_start_matches(' ').len();
        rest = &rest[skipped.saturating_sub(1)..];
        let kind = class(rest.chars().find(|c| *c != ' ')?);
        let from = usize::from(rest.starts_with(' '));
        let end = rest[from..].find(|c| class(c) != kind).map_or(rest.len(), |end| from + end);
        let (piece, after) = rest.split_at(end.max(1));
        rest = after;
        Some(piece)
    })
}

/// Returns the character that represents a byte in byte-level vocabularies.
fn character(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !plain(b)).count();
    char::from_u32(256 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Logits that give the wanted lengths.
struct Bias {
    answer: f64,
    endless: f64,
}

impl Bias {
    fn new(vocabulary: &Vocabulary, lengths: &Lengths) -> Self {
        let size = FIXED + vocabulary.words.len() + vocabulary.answers.len();
        let count = |state| (FIXED..size).filter(|t| vocabulary.state(*t) == (state, true)).count() as f64;
        let odds = |p: f64| (p / (1.0 - p)).ln();
        let relative = |p, state| odds(p) + (count(TEXT) / count(state)).ln();
        Self { answer: relative(1.0 / lengths.mean, ANSWERED), endless: relative(lengths.endless, ENDLESS) }
    }
}

/// Writes the folder of a model, which exists only when it is complete.
pub fn write(
    folder: &Path,
    config: &ModelConfig,
    tokens: &Vocabulary,
    lengths: &Lengths,
    seed: u64,
) -> Result<()> {
    let tmp = folder.with_extension("partial");
    fs::create_dir_all(&tmp)?;
    tokens.write(&tmp)?;
    let layout = Layout::new(config);
    let mut data = HostBuffer::try_zeros(layout.len)?;
    for (index, tensor) in layout.tensors.iter().enumerate() {
        let values = &mut data[tensor.span.range()];
        fill(values, scale(tensor, config), seed, index as u64);
        if tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight") {
            values[..STATES * tensor.shape[1]].fill(0.0);
        }
    }
    let width = config.hidden_size;
    // Compute the flag of a state, and its value after the last norm.
    let flag = (width as f64).sqrt() / 2.0;
    let seen = flag / ((width - STATES) as f64 / width as f64 + flag * flag / width as f64).sqrt();
    let bias = Bias::new(tokens, lengths);
    for token in 0..config.vocab_size {
        let row = |span: sgs_lm::layout::Span| span.offset + token * width;
        let embedding = row(layout.embed);
        data[embedding..embedding + STATES].fill(0.0);
        data[embedding + tokens.state(token).0] = flag as f32;
        let head = row(layout.head);
        for (state, logit) in tokens.logits(token, &bias).into_iter().enumerate() {
            data[head + state] = (logit / seen) as f32;
        }
    }
    HostWeights { config: config.clone(), layout, data }.save(&tmp, FileType::Bf16)?;
    Ok(fs::rename(tmp, folder)?)
}

/// Returns the standard deviation of a tensor's random values; `None` for ones.
fn scale(tensor: &TensorSpec, config: &ModelConfig) -> Option<f64> {
    match tensor.name.as_str() {
        name if name.ends_with("norm.weight") => None,
        "model.embed_tokens.weight" => Some(1.0),
        "lm_head.weight" => Some(0.5 / (config.hidden_size as f64).sqrt()),
        // The values are small, so that the state determines the logits.
        name if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") => Some(2e-4),
        _ => Some(0.02),
    }
}

/// Number of values that one thread draws: few enough that all processors draw the values of one matrix.
const PART: usize = 1 << 20;

/// Fills a tensor with uniform random values, on all processors.
fn fill(values: &mut [f32], scale: Option<f64>, seed: u64, stream: u64) {
    let Some(scale) = scale else { return values.fill(1.0) };
    let width = (scale * 12f64.sqrt() / 2f64.powi(32)) as f32;
    std::thread::scope(|scope| {
        for (number, part) in values.chunks_mut(PART).enumerate() {
            scope.spawn(move || {
                let mut rng = SeededRng::stream(seed, stream << 16 | number as u64);
                for pair in part.chunks_mut(2) {
                    let bits = rng.next_u64();
                    let halves = [bits as i32, (bits >> 32) as i32];
                    pair.iter_mut().zip(halves).for_each(|(value, half)| *value = half as f32 * width);
                }
            });
        }
    });
}
