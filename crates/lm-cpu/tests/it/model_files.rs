//! Large models: several files with an index, which are read and written piece by piece.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sgs_base::host::peak_memory;
use sgs_lm::LmError;
use sgs_lm::checkpoint::{SaveOptions, export};
use sgs_lm::config::ModelConfig;
use sgs_lm::model::Model;
use sgs_lm::testing::small_shape;
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm_cpu::Cpu;

fn model(config: &ModelConfig) -> Model<Cpu> {
    Model::new(Arc::new(Cpu::new(1).unwrap()), HostWeights::random(config, 7), 64).unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "safetensors"));
    files.sort();
    files
}

#[test]
fn a_model_over_the_limit_is_written_in_several_files_with_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(&small_shape());
    for (file_type, width) in [(FileType::F32, 4), (FileType::Bf16, 2)] {
        let dir = dir.path().join(format!("{width}"));
        let largest_file = 3_000_000;
        let options = SaveOptions { file_type, largest_file, ..SaveOptions::default() };
        export(&dir, &model, &options).unwrap();
        let files = files(&dir);
        let count = files.len();
        assert!(count > 2);
        for (i, file) in files.iter().enumerate() {
            let name = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
            assert!(file.ends_with(&name), "{}", file.display());
            // The header is not part of the limit.
            assert!(std::fs::metadata(file).unwrap().len() < largest_file as u64 + 10_000);
        }
        let index = std::fs::read(dir.join("model.safetensors.index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        assert_eq!(index["metadata"]["total_size"], model.config.parameters() * width);
        assert_eq!(index["weight_map"].as_object().unwrap().len(), model.layout.tensors.len());

        let host = HostWeights::load(&dir).unwrap();
        let read = Model::load(Arc::clone(&model.device), &dir, 64).unwrap();
        assert_eq!(read.params[..], host.data[..]);
        if file_type == FileType::F32 {
            assert_eq!(read.params[..], model.params[..]);
        }
        std::fs::remove_file(&files[1]).unwrap();
        let error = Model::load(Arc::clone(&model.device), &dir, 64).unwrap_err();
        assert!(matches!(&error, LmError::Io { path, .. } if *path == files[1]), "{error}");
    }
}

#[test]
fn a_number_that_is_not_finite_is_named_at_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let mut weights = HostWeights::random(&small_shape(), 7);
    weights.save(dir.path(), FileType::Bf16).unwrap();
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    // Replace the last element of the last tensor by infinity.
    bytes[end - 2..].copy_from_slice(&[0x80, 0x7f]);
    std::fs::write(&path, bytes).unwrap();
    let error = Model::load(Arc::new(Cpu::new(1).unwrap()), dir.path(), 64).unwrap_err().to_string();
    assert!(error.contains("tensor model.norm.weight") && error.contains("element 255"), "{error}");
    let at = weights.layout.layers[2].down.offset + 5;
    weights.data[at] = f32::NEG_INFINITY;
    let error = weights.save(dir.path(), FileType::F32).unwrap_err().to_string();
    assert!(error.contains("layers.2.mlp.down_proj.weight: element 5 is -inf"), "{error}");
}

/// Environment variable with the model folder, for the second process of the next test.
const FOLDER: &str = "SGS_TEST_MODEL";

#[test]
fn a_model_is_loaded_with_little_memory() {
    const MIB: u64 = 1 << 20;
    if let Ok(dir) = std::env::var(FOLDER) {
        let dir = Path::new(&dir);
        let device = Arc::new(Cpu::new(1).unwrap());
        let before = peak_memory().unwrap_or(0);
        let model = Model::load(device, dir, 64).unwrap();
        let loaded = peak_memory().unwrap_or(0);
        let options = SaveOptions { largest_file: 30_000_000, ..SaveOptions::default() };
        export(&dir.join("again"), &model, &options).unwrap();
        let saved = peak_memory().unwrap_or(0);
        let parameters = 4 * model.layout.len as u64;
        println!(
            "{parameters} bytes of parameters, {} to load, {} more to save",
            loaded - before,
            saved - loaded
        );
        // Memory holds the parameters, but not the files.
        assert!(loaded - before < parameters + 40 * MIB, "{before} {loaded}");
        // Memory holds the largest tensor, in both element types.
        assert!(saved - loaded < 64 * MIB, "{loaded} {saved}");
        return;
    }
    let config = ModelConfig {
        vocab_size: 8192,
        hidden_size: 1024,
        intermediate_size: 2816,
        layers: 2,
        heads: 16,
        kv_heads: 16,
        ..small_shape()
    };
    let dir = tempfile::tempdir().unwrap();
    HostWeights::random(&config, 1).save(dir.path(), FileType::Bf16).unwrap();
    // Measure memory in a process that has not created the model.
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "model_files::a_model_is_loaded_with_little_memory", "--nocapture"])
        .env(FOLDER, dir.path());
    let done = again.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    print!("{text}");
}

/// If the configuration claims sizes that the file does not have, loading fails before a buffer of that size is
/// allocated.
#[test]
fn the_configuration_is_compared_with_the_file_before_allocation() {
    let dir = tempfile::tempdir().unwrap();
    export(dir.path(), &model(&small_shape()), &SaveOptions::default()).unwrap();
    let path = dir.path().join("config.json");
    let config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let device = Arc::new(Cpu::new(1).unwrap());
    for (field, value, words) in [
        ("head_dim", 1_000u64, "has shape"),
        ("head_dim", 1_000_000, "gives rotary tables that are too large"),
        ("intermediate_size", 1_000_000, "has shape"),
        ("vocab_size", 200_000_000, "has shape"),
        ("num_hidden_layers", 4000, "is missing"),
        ("intermediate_size", 1 << 28, "has shape"),
        ("max_position_embeddings", 1 << 28, "gives rotary tables that are too large"),
    ] {
        let mut changed = config.clone();
        changed[field] = value.into();
        std::fs::write(&path, changed.to_string()).unwrap();
        for error in [
            HostWeights::load(dir.path()).unwrap_err().to_string(),
            Model::load(Arc::clone(&device), dir.path(), usize::MAX).unwrap_err().to_string(),
        ] {
            assert!(error.contains(words), "{field} {value}: {error}");
        }
    }
    let mut vast = config;
    for field in ["hidden_size", "intermediate_size", "head_dim", "vocab_size"] {
        vast[field] = (1u64 << 28).into();
    }
    std::fs::write(&path, vast.to_string()).unwrap();
    let error = HostWeights::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("parameters, which is not supported"), "{error}");
}
