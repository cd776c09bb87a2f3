//! Checks small models with recorded numbers (Hugging Face transformers 5.17 and 5.23, f32).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::check::{self, Tolerances};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm_cpu::Cpu;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/data").join(name)
}

fn holds(name: &str) {
    holds_in(&folder(name));
}

fn holds_in(folder: &Path) {
    let report = check::run(folder, Arc::new(Cpu::new(2).unwrap()), Tolerances::default()).unwrap();
    assert_eq!(report.quantities.len(), 12, "{report}");
    assert!(report.passes(), "{}\n{report}", folder.display());
    println!("{report}");
}

/// Checks the model in the folder SGS_VECTORS (docs/language-model.md); without it, a Llama with one key head per query head.
#[test]
fn a_converted_model_gives_its_recorded_numbers() {
    holds_in(&std::env::var_os("SGS_VECTORS").map_or_else(|| folder("llama_mha"), PathBuf::from));
}

#[test]
fn an_error_beyond_the_tolerance_fails() {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder("llama_gqa_tied")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    let path = dir.path().join("expected.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    expected["ce"] = (expected["ce"].as_f64().unwrap() + 1e-3).into();
    std::fs::write(&path, expected.to_string()).unwrap();
    let report = check::run(dir.path(), Arc::new(Cpu::new(2).unwrap()), Tolerances::default()).unwrap();
    let failed: Vec<_> = report.quantities.iter().filter(|q| q.error > q.tolerance).collect();
    assert!(failed.len() == 1 && failed[0].name == "loss ce" && !report.passes(), "{report}");
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
