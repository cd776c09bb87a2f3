//! `sgs lm check` and the benchmarks of the language model.

use crate::program::{project, sgs};
use std::fs;
use std::path::Path;

/// Copies a test model to `dir`.
fn copy_model(dir: &Path) -> String {
    for entry in fs::read_dir(project("crates/lm/tests/data/llama_gqa_tied")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    dir.to_str().unwrap().to_owned()
}

#[test]
fn the_engine_matches_the_recorded_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let folder = copy_model(dir.path());
    let text = sgs(&["lm", "check", &folder]).expect(0).out;
    for part in ["logits", "log-probs", "loss cispo", "losses along Adam steps", "every quantity is within"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = sgs(&["lm", "check", "--json", &folder]).expect(0).json();
    assert_eq!(json["ok"], true);
    let logits = &json["quantities"][0];
    assert_eq!(logits["name"], "logits");
    assert!(logits["error"].as_f64().unwrap() < logits["tolerance"].as_f64().unwrap());
}

#[test]
fn an_error_beyond_the_tolerance_fails() {
    let dir = tempfile::tempdir().unwrap();
    let folder = copy_model(dir.path());
    let path = dir.path().join("expected.json");
    let mut expected: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    expected["ce"] = (expected["ce"].as_f64().unwrap() + 1e-3).into();
    fs::write(&path, expected.to_string()).unwrap();
    let done = sgs(&["lm", "check", &folder]).expect(1);
    let failed: Vec<&str> = done.out.lines().filter(|l| l.contains("FAILED")).collect();
    assert!(failed[0].starts_with("loss ce") && failed.len() == 2, "{}", done.out);
    assert_eq!(sgs(&["lm", "check", "--json", &folder]).expect(1).json()["ok"], false);
}

#[test]
fn a_folder_without_recorded_numbers_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = copy_model(dir.path());
    fs::remove_file(dir.path().join("io.safetensors")).unwrap();
    let done = sgs(&["lm", "check", &folder]).expect(1);
    assert!(done.err.contains("io.safetensors"), "{}", done.err);
}

#[test]
fn benchmarks_accept_a_model_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = copy_model(dir.path());
    let train =
        sgs(&["bench", "train", "--model", &folder, "--steps", "1", "--sequences", "2", "--length", "16"]);
    let out = train.expect(0).out;
    assert!(out.contains("tokens/s") && out.contains("GEMM peak") && out.contains("loss"), "{out}");
    let sample = [
        "bench",
        "sample",
        "--model",
        &folder,
        "--batch",
        "2",
        "--prompts",
        "1",
        "--prompt-tokens",
        "4",
        "--new-tokens",
        "4",
        "--runs",
        "1",
        "--threads",
        "1",
    ];
    let out = sgs(&sample).expect(0).out;
    assert!(out.contains("tokens/s") && out.contains("1 threads") && out.contains("cache"), "{out}");
}
