//! Checks four small models with recorded numbers (Hugging Face transformers 5.17, f32).

use std::path::Path;
use std::sync::Arc;

use sgs_lm_bench::check;
use sgs_lm_cpu::Cpu;

fn holds(name: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data").join(name);
    let report = check::run(&dir, Arc::new(Cpu::new(2).unwrap())).unwrap();
    assert_eq!(report.quantities.len(), 12, "{report}");
    assert!(report.passes(), "{name}\n{report}");
}

#[test]
fn llama_with_full_heads() {
    holds("llama_mha");
}

#[test]
fn llama_with_shared_key_heads_and_tied_head() {
    holds("llama_gqa_tied");
}

#[test]
fn llama_with_yarn() {
    holds("llama_yarn");
}

#[test]
fn qwen2_with_biases() {
    holds("qwen2_bias");
}
