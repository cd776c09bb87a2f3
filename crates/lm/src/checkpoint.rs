//! Checkpoints: a folder that appears whole or not at all, and from which training goes on bit for bit.
//!
//! `model.safetensors`, `config.json` (Hugging Face layout, f32 or bf16), `optimizer.safetensors` (f32
//! tensors `m.NAME`, `v.NAME` and, where the model file is coarser than the weights, `master.NAME`) and
//! `trainer.json` (step, and what the caller wants to find again).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cpu::Floats;
use crate::device::{AdamHost, Device};
use crate::error::{LmError, Result};
use crate::model::Model;
use crate::trainer::Policy;
use crate::weights::{FileType, HostWeights, read_prefixed, write_synced, write_tensors};

/// Version of `trainer.json`.
const FORMAT: u32 = 1;

/// `trainer.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrainerState {
    format: u32,
    step: u64,
    /// Whether `optimizer.safetensors` holds master weights.
    master: bool,
    #[serde(default)]
    extra: serde_json::Value,
}

/// What else goes into a checkpoint.
#[derive(Debug, Clone)]
pub struct SaveOptions {
    /// Element type of `model.safetensors`.
    pub file_type: FileType,
    /// The caller's own state (cursors, seeds), handed back by [`load`].
    pub extra: serde_json::Value,
    /// Files copied into the folder under their own names, such as the tokenizer's.
    pub companions: Vec<PathBuf>,
}

impl Default for SaveOptions {
    /// bf16 weights, nothing else.
    fn default() -> Self {
        Self { file_type: FileType::Bf16, extra: serde_json::Value::Null, companions: Vec::new() }
    }
}

/// Writes a policy with its optimiser's state; an older checkpoint of that name is replaced only once the
/// new one is complete.
///
/// # Errors
/// A parameter is NaN or infinite (the older checkpoint stays), or the disk fails.
pub fn save<D: Device>(dir: &Path, policy: &Policy<D>, options: &SaveOptions) -> Result<()> {
    Snapshot::of(policy)?.save(dir, options)
}

/// A policy's weights and optimiser state on the host: what is saved while the policy itself goes on.
pub struct Snapshot {
    weights: HostWeights,
    adam: AdamHost,
    step: u64,
}

impl Snapshot {
    /// Copies a policy to the host.
    ///
    /// # Errors
    /// The device fails.
    pub fn of<D: Device>(policy: &Policy<D>) -> Result<Self> {
        Ok(Self {
            weights: policy.model.to_host()?,
            adam: policy.model.device.adam_to_host(&policy.adam)?,
            step: policy.step,
        })
    }

    /// Writes it as [`save`] does.
    ///
    /// # Errors
    /// As [`save`].
    pub fn save(&self, dir: &Path, options: &SaveOptions) -> Result<()> {
        write_whole(dir, |tmp| {
            write_model(tmp, &self.weights, options)?;
            let master = match (&self.adam.master, options.file_type) {
                (Some(master), _) => Some(&master[..]),
                (None, FileType::Bf16) => Some(&self.weights.data[..]),
                (None, FileType::F32) => None,
            };
            let moments = [("m.", &self.adam.m[..], FileType::F32), ("v.", &self.adam.v[..], FileType::F32)];
            let mut sets = moments.to_vec();
            sets.extend(master.map(|m| ("master.", m, FileType::F32)));
            write_tensors(&tmp.join("optimizer.safetensors"), &self.weights.layout, &sets)?;
            let state = TrainerState {
                format: FORMAT,
                step: self.step,
                master: master.is_some(),
                extra: options.extra.clone(),
            };
            let path = tmp.join("trainer.json");
            let text = serde_json::to_vec_pretty(&state).map_err(LmError::json(&path))?;
            write_synced(&path, &text)
        })
    }
}

/// Writes a model alone, without the optimiser's state.
///
/// # Errors
/// As [`save`].
pub fn export<D: Device>(dir: &Path, model: &Model<D>, options: &SaveOptions) -> Result<()> {
    let weights = model.to_host()?;
    write_whole(dir, |tmp| write_model(tmp, &weights, options))
}

fn write_model(tmp: &Path, weights: &HostWeights, options: &SaveOptions) -> Result<()> {
    for tensor in &weights.layout.tensors {
        if let Some((at, value)) = crate::weights::first_not_finite(&weights.data[tensor.span.range()]) {
            let message = format!("element {at} is {value}; a checkpoint of it would be of no use");
            return Err(LmError::tensor(tmp, &tensor.name, message));
        }
    }
    weights.save(tmp, options.file_type)?;
    for companion in &options.companions {
        let name = companion
            .file_name()
            .ok_or_else(|| LmError::Input(format!("{} is not the name of a file", companion.display())))?;
        let bytes = fs::read(companion).map_err(LmError::io(companion))?;
        write_synced(&tmp.join(name), &bytes)?;
    }
    Ok(())
}

/// Reads a checkpoint: the policy, ready to go on, and the caller's own state.
///
/// # Errors
/// The folder or a file of it is absent, truncated, corrupt, of another shape, or holds NaN or infinity.
pub fn load<D: Device>(
    dir: &Path,
    device: Arc<D>,
    max_positions: usize,
) -> Result<(Policy<D>, serde_json::Value)> {
    recover(dir)?;
    let path = dir.join("trainer.json");
    let text = fs::read_to_string(&path).map_err(LmError::io(&path))?;
    let state: TrainerState = serde_json::from_str(&text).map_err(LmError::json(&path))?;
    if state.format != FORMAT {
        let message =
            format!("format {} was written by another version; this one reads {FORMAT}", state.format);
        return Err(LmError::Config { origin: path.display().to_string(), message });
    }
    let mut weights = HostWeights::load(dir)?;
    let n = weights.layout.len;
    let mut adam = AdamHost { m: Floats::zeros(n), v: Floats::zeros(n), master: None };
    let optimizer = dir.join("optimizer.safetensors");
    if state.master {
        let mut master = Floats::zeros(n);
        let sets = &mut [("m.", &mut adam.m[..]), ("v.", &mut adam.v[..]), ("master.", &mut master[..])];
        read_prefixed(&optimizer, &weights.layout, sets)?;
        weights.data.copy_from_slice(&master);
        adam.master = Some(master);
    } else {
        let sets = &mut [("m.", &mut adam.m[..]), ("v.", &mut adam.v[..])];
        read_prefixed(&optimizer, &weights.layout, sets)?;
    }
    let model = Model::new(Arc::clone(&device), weights, max_positions)?;
    let adam = device.adam_from_host(&model.params, adam)?;
    Ok((Policy { model: Arc::new(model), adam, step: state.step }, state.extra))
}

/// Fills a folder under a temporary name and renames it into place, so that `dir` is at every moment
/// absent, the old one whole, or the new one whole.
///
/// # Errors
/// `fill` fails (the temporary folder is removed, `dir` is as before) or the disk does.
pub fn write_whole(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let names = Names::of(dir)?;
    recover(dir)?;
    remove(&names.tmp)?;
    fs::create_dir_all(&names.tmp).map_err(LmError::io(&names.tmp))?;
    let filled = fill(&names.tmp).and_then(|()| sync_dir(&names.tmp));
    if let Err(error) = filled {
        remove(&names.tmp)?;
        return Err(error);
    }
    if dir.exists() {
        fs::rename(dir, &names.old).map_err(LmError::io(dir))?;
    }
    fs::rename(&names.tmp, dir).map_err(LmError::io(dir))?;
    sync_dir(&names.parent)?;
    remove(&names.old)
}

/// Finishes a replacement that was interrupted: without the new folder the old one gets its name back.
fn recover(dir: &Path) -> Result<()> {
    let names = Names::of(dir)?;
    if names.old.exists() {
        if dir.exists() {
            remove(&names.old)?;
        } else {
            fs::rename(&names.old, dir).map_err(LmError::io(&names.old))?;
        }
    }
    Ok(())
}

/// The folder's neighbours during a replacement.
struct Names {
    parent: PathBuf,
    tmp: PathBuf,
    old: PathBuf,
}

impl Names {
    fn of(dir: &Path) -> Result<Self> {
        let name = dir
            .file_name()
            .and_then(|n| n.to_str())
            .ok_or_else(|| LmError::Input(format!("{} is not the name of a folder", dir.display())))?;
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let beside = |suffix: &str| parent.join(format!(".{name}.{suffix}"));
        Ok(Self { tmp: beside("tmp"), old: beside("old"), parent })
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LmError::io(dir)(e)),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(LmError::io(dir))
}
