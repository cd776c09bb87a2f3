//! Checkpoints: exact resumption, damaged files, interrupted replacement, and NaN during training.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use safetensors::SafeTensors;
use sgs_base::random::SeededRng;
use sgs_lm::LmError;
use sgs_lm::checkpoint::{self, SaveOptions, Snapshot};
use sgs_lm::config::ModelConfig;
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::testing::small_shape;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::{FileType, Flush, HostWeights};
use sgs_lm_cpu::Cpu;
use sha2::{Digest, Sha256};

fn shape() -> ModelConfig {
    ModelConfig {
        vocab_size: 40,
        hidden_size: 32,
        intermediate_size: 48,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        ..small_shape()
    }
}

fn examples() -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(1, 0);
    (0..24)
        .map(|i| TrainExample {
            tokens: (0..10 + i).map(|_| rng.index(40) as u32).collect(),
            prompt_len: 1 + i % 5,
            weight: rng.normal(),
            ..TrainExample::default()
        })
        .collect()
}

fn options(seed: u64) -> TrainOptions {
    TrainOptions {
        loss: LossConfig::new(Objective::Reinforce, Normaliser::Sequence),
        adam: AdamConfig { learning_rate: 1e-3, ..AdamConfig::default() },
        schedule: LrSchedule::Cosine { warmup: 2, total: 40, floor: 0.1 },
        batch_size: 5,
        shuffle_seed: Some(seed),
    }
}

fn fresh(device: &Arc<Cpu>) -> Policy<Cpu> {
    let weights = HostWeights::random(&shape(), 3);
    Policy::new(Model::new(Arc::clone(device), weights, 64).unwrap()).unwrap()
}

fn train(trainer: &mut Trainer<Cpu>, policy: &mut Policy<Cpu>, seed: u64) -> Vec<(f64, f64)> {
    let mut losses = Vec::new();
    trainer
        .train(policy, &examples(), &options(seed), |s| losses.push((s.stats.loss, s.gradient_norm)))
        .unwrap();
    losses
}

#[test]
fn resumed_training_equals_uninterrupted_training_to_the_bit() {
    let device = Arc::new(Cpu::new(2).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
    let mut whole = fresh(&device);
    train(&mut trainer, &mut whole, 1);
    let want = train(&mut trainer, &mut whole, 2);
    for file_type in [FileType::F32, FileType::Bf16] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("solver");
        let mut first = fresh(&device);
        train(&mut trainer, &mut first, 1);
        let extra = serde_json::json!({"round": 7});
        checkpoint::save(
            &dir,
            &first,
            &SaveOptions { file_type, extra: extra.clone(), ..Default::default() },
        )
        .unwrap();
        drop(first);
        // The result must not depend on the number of threads or on the trainer.
        let device = Arc::new(Cpu::new(1).unwrap());
        let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
        let (mut second, found) = checkpoint::load(&dir, Arc::clone(&device), 64).unwrap();
        assert_eq!(found, extra);
        assert_eq!(train(&mut trainer, &mut second, 2), want, "{file_type:?}");
        assert_eq!(second.model.params[..], whole.model.params[..]);
    }
}

#[test]
fn a_snapshot_that_reuses_memory_is_saved_like_the_policy() {
    let device = Arc::new(Cpu::new(2).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
    let mut policy = fresh(&device);
    train(&mut trainer, &mut policy, 1);
    let older = Snapshot::over(None, &policy).unwrap();
    train(&mut trainer, &mut policy, 2);
    let folder = tempfile::tempdir().unwrap();
    for (i, file_type) in [FileType::F32, FileType::Bf16].into_iter().enumerate() {
        let options = SaveOptions { file_type, ..SaveOptions::default() };
        let [policys, copys] = ["policy", "copy"].map(|name| folder.path().join(format!("{name}-{i}")));
        checkpoint::save(&policys, &policy, &options).unwrap();
        fs::create_dir(&copys).unwrap();
        let options = SaveOptions { flush: Flush::Later, ..options };
        let copy = Snapshot::over((i == 0).then(|| Snapshot::over(None, &fresh(&device)).unwrap()), &policy)
            .unwrap();
        let sums = copy.save_part(&copys, &options).unwrap();
        copy.complete(&copys, &options).unwrap();
        let small = ["config.json", "trainer.json"].map(|name| copys.join(name));
        for path in sums.iter().map(|(path, _)| path).chain(&small) {
            let other = policys.join(path.file_name().unwrap());
            assert!(fs::read(path).unwrap() == fs::read(other).unwrap(), "{}, {file_type:?}", path.display());
        }
        for (path, sum) in &sums {
            assert_eq!(Sha256::digest(fs::read(path).unwrap())[..], sum[..], "{}", path.display());
        }
        // The hashes are those of the weights, of the two moments and, if the weights are rounded, of the exact ones.
        assert_eq!(sums.len(), if file_type == FileType::F32 { 3 } else { 4 });
    }
    // The memory of a snapshot of another shape cannot be reused.
    let other = ModelConfig { layers: 1, ..shape() };
    let model = Model::new(Arc::clone(&device), HostWeights::random(&other, 3), 64).unwrap();
    let copy = Snapshot::over(Some(older), &Policy::new(model).unwrap()).unwrap();
    let place = folder.path().join("other");
    fs::create_dir(&place).unwrap();
    copy.save_part(&place, &SaveOptions::default()).unwrap();
    assert_eq!(HostWeights::load(&place).unwrap().config, other);
}

#[test]
fn a_model_file_of_bf16_holds_rounded_weights() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let policy = fresh(&device);
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = dir.path().join("tokenizer.json");
    fs::write(&tokenizer, "{}").unwrap();
    let dir = dir.path().join("model");
    let options = SaveOptions { companions: vec![tokenizer], ..SaveOptions::default() };
    checkpoint::export(&dir, &policy.model, &options).unwrap();
    let read = HostWeights::load(&dir).unwrap();
    assert_eq!(read.config, shape());
    assert!(dir.join("tokenizer.json").exists());
    for (a, b) in read.data.iter().zip(policy.model.params.iter()) {
        assert!((a - b).abs() <= b.abs() / 256.0);
    }
}

/// Converts a checkpoint to the first format, which had the optimizer state in one file.
fn as_the_first_format(dir: &Path) {
    let parts = ["m", "v", "master"].map(|name| dir.join(format!("optimizer-{name}.safetensors")));
    let bytes: Vec<Vec<u8>> = parts.iter().filter_map(|part| fs::read(part).ok()).collect();
    let tensors = bytes.iter().flat_map(|bytes| SafeTensors::deserialize(bytes).unwrap().tensors());
    safetensors::serialize_to_file(tensors, None, &dir.join("optimizer.safetensors")).unwrap();
    parts.iter().filter(|part| part.exists()).for_each(|part| fs::remove_file(part).unwrap());
    rewrite(&dir.join("trainer.json"), |b| replace(b, "\"format\": 2", "\"format\": 1"));
}

#[test]
fn a_checkpoint_of_the_first_format_resumes_bit_for_bit() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
    let mut policy = fresh(&device);
    train(&mut trainer, &mut policy, 1);
    let folder = tempfile::tempdir().unwrap();
    let dirs = [FileType::F32, FileType::Bf16].map(|file_type| {
        let dir = folder.path().join(format!("{file_type:?}"));
        checkpoint::save(&dir, &policy, &SaveOptions { file_type, ..Default::default() }).unwrap();
        as_the_first_format(&dir);
        assert!(!dir.join("optimizer-m.safetensors").exists());
        dir
    });
    let want = train(&mut trainer, &mut policy, 2);
    for dir in dirs {
        let (mut read, _) = checkpoint::load(&dir, Arc::clone(&device), 64).unwrap();
        assert_eq!(train(&mut trainer, &mut read, 2), want, "{}", dir.display());
    }
}

/// Damages a checkpoint and returns the error of loading it.
fn load_damaged(damage: impl FnOnce(&Path)) -> String {
    let device = Arc::new(Cpu::new(1).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("solver");
    checkpoint::save(&dir, &fresh(&device), &SaveOptions { file_type: FileType::F32, ..Default::default() })
        .unwrap();
    damage(&dir);
    match checkpoint::load(&dir, device, 64) {
        Ok(_) => "loaded".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Replaces the first occurrence of a text of the same length.
fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn damaged_checkpoints_name_file_and_tensor() {
    assert_eq!(load_damaged(|_| ()), "loaded");
    let says = |error: String, words: &[&str]| {
        for word in words {
            assert!(error.contains(word), "{error:?} does not say {word:?}");
        }
    };
    for file in ["model.safetensors", "optimizer-m.safetensors", "optimizer-v.safetensors"] {
        let truncated = load_damaged(|dir| rewrite(&dir.join(file), |b| b.truncate(b.len() / 2)));
        says(truncated, &[file, "not a readable safetensors file"]);
        let empty = load_damaged(|dir| rewrite(&dir.join(file), Vec::clear));
        says(empty, &[file]);
        let garbled = load_damaged(|dir| rewrite(&dir.join(file), |b| b[..16].fill(0xff)));
        says(garbled, &[file]);
        let nan = load_damaged(|dir| {
            rewrite(&dir.join(file), |b| {
                let end = b.len();
                b[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
            })
        });
        says(nan, &[file, "tensor", "is NaN"]);
        let unknown = load_damaged(|dir| {
            rewrite(&dir.join(file), |b| {
                replace(b, "model.layers.1.mlp.up_proj", "model.layers.1.mlp.uq_proj")
            })
        });
        says(unknown, &[file, "uq_proj", "not a tensor of this model"]);
        let missing = load_damaged(|dir| fs::remove_file(dir.join(file)).unwrap());
        says(missing, &[file]);
    }
    let reshaped = load_damaged(|dir| {
        rewrite(&dir.join("config.json"), |b| {
            replace(b, "\"intermediate_size\": 48", "\"intermediate_size\": 64")
        })
    });
    says(reshaped, &["model.safetensors", "proj.weight", "shape", "48", "64"]);
    let more_layers = load_damaged(|dir| {
        rewrite(&dir.join("config.json"), |b| {
            replace(b, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")
        })
    });
    says(more_layers, &["model.layers.2.", "is missing"]);
    says(load_damaged(|dir| fs::write(dir.join("trainer.json"), "{").unwrap()), &["trainer.json"]);
    says(
        load_damaged(|dir| {
            rewrite(&dir.join("trainer.json"), |b| replace(b, "\"format\": 2", "\"format\": 9"))
        }),
        &["trainer.json", "format 9"],
    );
}

#[test]
fn an_interrupted_replacement_leaves_the_old_checkpoint() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("solver");
    let mut policy = fresh(&device);
    checkpoint::save(&dir, &policy, &SaveOptions::default()).unwrap();

    let failed = checkpoint::write_whole(&dir, |tmp| {
        fs::write(tmp.join("model.safetensors"), "half").unwrap();
        Err(LmError::Input("the disk is full".to_owned()))
    });
    assert!(failed.unwrap_err().to_string().contains("disk is full"));
    assert_eq!(checkpoint::load(&dir, Arc::clone(&device), 64).unwrap().0.step, 0);

    // Create the state after a kill between the two renames: the new folder is complete but still has its temporary
    // name.
    fs::rename(&dir, parent.path().join(".solver.old")).unwrap();
    assert_eq!(checkpoint::load(&dir, Arc::clone(&device), 64).unwrap().0.step, 0);
    assert!(dir.exists());

    policy.step = 5;
    checkpoint::save(&dir, &policy, &SaveOptions::default()).unwrap();
    assert_eq!(checkpoint::load(&dir, device, 64).unwrap().0.step, 5);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn shards_are_read_through_their_index() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let policy = fresh(&device);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("model");
    checkpoint::export(&dir, &policy.model, &SaveOptions { file_type: FileType::F32, ..Default::default() })
        .unwrap();
    let bytes = fs::read(dir.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for (i, name) in
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"].iter().enumerate()
    {
        let mut names = file.names();
        names.sort_unstable();
        let part: Vec<&str> =
            names.into_iter().enumerate().filter(|(n, _)| n % 2 == i).map(|(_, n)| n).collect();
        let views = part.iter().map(|n| (*n, file.tensor(n).unwrap()));
        safetensors::serialize_to_file(views, None, &dir.join(name)).unwrap();
        map.extend(part.iter().map(|n| ((*n).to_owned(), (*name).into())));
    }
    fs::remove_file(dir.join("model.safetensors")).unwrap();
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
    assert_eq!(HostWeights::load(&dir).unwrap().data[..], policy.model.params[..]);

    let outside = index.to_string().replace("model-00001-of-00002", "../model-00001");
    fs::write(dir.join("model.safetensors.index.json"), outside).unwrap();
    assert!(HostWeights::load(&dir).unwrap_err().to_string().contains("not a plain file name"));
}

#[test]
fn a_nan_stops_training_and_the_error_names_step_batch_and_tensor() {
    let device = Arc::new(Cpu::new(2).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
    let mut policy = fresh(&device);
    train(&mut trainer, &mut policy, 1);
    let steps = policy.step;

    // Only the third batch has token 39, whose embedding is NaN.
    let mut examples = examples();
    examples.iter_mut().for_each(|e| e.tokens.iter_mut().for_each(|t| *t = (*t).min(38)));
    examples[12].tokens[0] = 39;
    let model = Arc::get_mut(&mut policy.model).unwrap();
    let width = shape().hidden_size;
    model.params[39 * width..40 * width].fill(f32::INFINITY);
    let before_bad = 12 / 5;
    let ordered = TrainOptions { shuffle_seed: None, ..options(0) };
    let error = trainer.train(&mut policy, &examples, &ordered, |_| ()).unwrap_err();
    match &error {
        LmError::NotFinite { step, batch, what, .. } => {
            assert_eq!((*step, *batch), (steps + before_bad as u64, before_bad));
            assert!(what.contains("gradient of model."), "{what}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(policy.step, steps + before_bad as u64);
    let broken = policy.model.params.iter().filter(|p| !p.is_finite()).count();
    assert_eq!(broken, width, "the bad step spread to no other weight");
    // The gradient of the bad batch is discarded, so the next batch is finite again.
    let model = Arc::get_mut(&mut policy.model).unwrap();
    model.params[39 * width..40 * width].fill(0.1);
    trainer.train(&mut policy, &examples, &ordered, |_| ()).unwrap();
}

#[test]
fn weights_held_by_a_sampler_are_not_updated() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 60, Mode::Train).unwrap();
    let mut policy = fresh(&device);
    let held = Arc::clone(&policy.model);
    let error = trainer.train(&mut policy, &examples(), &options(1), |_| ()).unwrap_err().to_string();
    assert!(error.contains("in use elsewhere"), "{error}");
    drop(held);
    trainer.train(&mut policy, &examples(), &options(1), |_| ()).unwrap();
}

#[test]
fn examples_that_do_not_fit_are_rejected_before_training() {
    let device = Arc::new(Cpu::new(1).unwrap());
    let mut trainer = Trainer::new(Arc::clone(&device), &shape(), 20, Mode::Train).unwrap();
    let mut policy = fresh(&device);
    let before = policy.model.params.clone();
    for (example, word) in [
        (TrainExample::plain((0..22).collect()), "22 tokens"),
        (TrainExample::plain(vec![1, 40]), "vocabulary"),
        (TrainExample::plain(vec![1]), "at least one"),
    ] {
        let list = [TrainExample::plain(vec![1, 2, 3]), example];
        let error = trainer.train(&mut policy, &list, &options(1), |_| ()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!((policy.step, &policy.model.params[..]), (0, &before[..]));
    }
}
