//! The benchmarks of the language model.

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
