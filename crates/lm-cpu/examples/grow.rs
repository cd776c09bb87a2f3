//! Creates a wider and deeper model with the same function as a given model, to measure larger models whose
//! outputs are as long as those of a trained one.
//!
//! Usage: `grow FROM TO [hidden=N] [heads=N] [intermediate=N] [layers=N]`. `FROM` and `TO` are folders in
//! Hugging Face layout; the model must not have grouped heads.
//!
//! New units read through random weights and write through zeros (Chen et al. 2016, Net2Net). The new
//! components of the residual stream stay 0, and the weights of the norms compensate for the mean over more
//! components.

#![allow(clippy::print_stdout, missing_docs)]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use sgs_lm::ModelConfig;
use sgs_lm::layout::{Layout, TensorSpec};
use sgs_lm::model::{Mode, Model};
use sgs_lm::trainer::Trainer;
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm_cpu::Cpu;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, sizes @ ..] = arguments.as_slice() else {
        return Err("grow FROM TO [hidden=N] [heads=N] [intermediate=N] [layers=N]".into());
    };
    let old = HostWeights::load(Path::new(from))?;
    let mut config = old.config.clone();
    for size in sizes {
        let (name, value) = size.split_once('=').ok_or("sizes look like layers=8")?;
        let value: usize = value.parse()?;
        match name {
            "hidden" => config.hidden_size = value,
            "heads" => (config.heads, config.kv_heads) = (value, value),
            "intermediate" => config.intermediate_size = value,
            "layers" => config.layers = value,
            other => return Err(format!("no size {other}").into()),
        }
    }
    // The mean of squares in the norms is over more components, so epsilon is scaled as well.
    config.norm_eps *= old.config.hidden_size as f32 / config.hidden_size as f32;
    let new = grown(&old, config)?;
    let gap = largest_gap(old, &new)?;
    if gap > 1e-3 {
        return Err(format!("log-probs differ by {gap:.1e}").into());
    }
    let to = Path::new(to);
    fs::create_dir_all(to)?;
    new.save(to, FileType::Bf16)?;
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        let source = Path::new(from).join(name);
        if source.exists() {
            fs::copy(source, to.join(name))?;
        }
    }
    println!("{} parameters; log-probs differ by at most {gap:.1e}", new.config.parameters());
    Ok(())
}

/// Returns the numbers of rows and columns of a tensor.
fn shape(tensor: &TensorSpec) -> (usize, usize) {
    match tensor.shape[..] {
        [rows, columns] => (rows, columns),
        _ => (1, tensor.span.len),
    }
}

fn grown(old: &HostWeights, config: ModelConfig) -> Result<HostWeights, Box<dyn Error>> {
    config.validate()?;
    let from = &old.config;
    let shrinks = config.hidden_size < from.hidden_size
        || config.heads < from.heads
        || config.intermediate_size < from.intermediate_size
        || config.layers < from.layers;
    if shrinks || from.kv_heads != from.heads {
        return Err("a model can only grow, and only one without groups of heads".into());
    }
    let mean = (from.hidden_size as f32 / config.hidden_size as f32).sqrt();
    let mut new = HostWeights::random(&config, 1);
    for tensor in Layout::new(&config).tensors {
        let name = tensor.name.as_str();
        // These tensors write to the residual stream.
        let writes = [".o_proj.", ".down_proj.", "embed_tokens."].iter().any(|part| name.contains(part));
        let target = &mut new.data[tensor.span.range()];
        if writes {
            target.fill(0.0);
        }
        let Some(source) = Layout::new(from).tensors.into_iter().find(|t| t.name == name) else { continue };
        let ((_, wide), (rows, columns)) = (shape(&tensor), shape(&source));
        let values = &old.data[source.span.range()];
        let by = if name.ends_with("norm.weight") { mean } else { 1.0 };
        for (row, values) in values.chunks_exact(columns).enumerate().take(rows) {
            for (to, value) in target[row * wide..].iter_mut().zip(values) {
                *to = by * value;
            }
        }
    }
    Ok(new)
}

/// Returns the largest difference of log-probabilities on sequences of arbitrary tokens.
fn largest_gap(old: HostWeights, new: &HostWeights) -> Result<f32, Box<dyn Error>> {
    let vocabulary = old.config.vocab_size;
    let sequences: Vec<Vec<u32>> =
        (0..4).map(|s| (0..60).map(|i| ((i * i * 31 + s * 977 + 5) % vocabulary) as u32).collect()).collect();
    let mut all = Vec::new();
    for weights in [old, new.clone()] {
        let device = Arc::new(Cpu::new(0)?);
        let config = weights.config.clone();
        let model = Model::new(Arc::clone(&device), weights, 512)?;
        let mut trainer = Trainer::new(device, &config, 512, Mode::Infer)?;
        let got = trainer.log_probs(&model, sequences.iter().map(|s| (&s[..], 1)))?;
        all.push(got.into_iter().flat_map(|g| g.log_probs).collect::<Vec<f32>>());
    }
    Ok(all[0].iter().zip(&all[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}
