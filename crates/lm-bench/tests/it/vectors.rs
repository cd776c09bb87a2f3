//! Checks small models with recorded numbers (Hugging Face transformers 5.17 and 5.23, f32).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm_bench::check;
use sgs_lm_cpu::Cpu;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data").join(name)
}

fn holds(name: &str) {
    let report = check::run(&folder(name), Arc::new(Cpu::new(2).unwrap())).unwrap();
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

#[test]
fn qwen3_with_head_norms() {
    holds("qwen3");
}

#[test]
fn qwen3_with_head_norms_and_tied_head() {
    holds("qwen3_tied");
}

#[test]
fn mistral_within_its_window() {
    holds("mistral");
}

/// `scripts/vectors.py` loads the saved models and compares their logits with the recorded ones.
#[test]
fn transformers_loads_saved_models_if_it_is_installed() {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import torch, transformers"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        assert!(
            !required.contains("transformers"),
            "SGS_REQUIRE names transformers, which {python} does not have"
        );
        eprintln!("skipped: no Python with torch and transformers; set SGS_PYTHON to one to run this check");
        return;
    }
    let saved = tempfile::tempdir().unwrap();
    let names = ["llama_gqa_tied", "llama_yarn", "qwen2_bias", "qwen3", "qwen3_tied", "mistral"];
    let copies = names.map(|name| {
        let copy = saved.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        HostWeights::load(&folder(name)).unwrap().save(&copy, FileType::F32).unwrap();
        std::fs::copy(folder(name).join("io.safetensors"), copy.join("io.safetensors")).unwrap();
        copy
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/vectors.py");
    let output = Command::new(python).args([script, "check"]).args(&copies).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("logits differ").count(), names.len());
}
