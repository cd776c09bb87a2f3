//! Checkpoints: folders that appear atomically and from which training resumes bit for bit.
//!
//! A checkpoint has:
//!
//! - `model.safetensors` (or several files and their index) and `config.json`, in the Hugging Face layout with
//!   f32 or bf16 tensors;
//! - the optimizer's state: `optimizer-m.safetensors`, `optimizer-v.safetensors` and, if the model file has a
//!   lower precision than the weights, `optimizer-master.safetensors` (f32 tensors `m.NAME` and so on). The
//!   first format had all of them in `optimizer.safetensors`. With N ranks there is instead one file per rank,
//!   `optimizer-00001-of-0000N.safetensors`, with its packed shards `m`, `v` and `master`;
//! - `trainer.json`: format, step, number of ranks, and the caller's own state.

mod optimizer;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::device::{AdamHost, AdamPart, Device};
use crate::error::{LmError, Result};
use crate::footprint::Footprint;
use crate::layout::Layout;
use crate::model::Model;
use crate::ranks::ProcessGroup;
use crate::shard::Shard;
use crate::trainer::Policy;
use crate::weights::{FileType, Flush, HostWeights, LARGEST_FILE, Sums, save_model, write_small};
use optimizer::OptimizerFiles;

/// Format version of `trainer.json` that is written; versions from 1 on can be read.
const FORMAT: u32 = 2;

/// `trainer.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrainerState {
    format: u32,
    step: u64,
    /// Number of ranks that wrote the optimizer's state.
    #[serde(default = "one")]
    ranks: usize,
    /// Whether the optimizer's files include master weights.
    master: bool,
    #[serde(default)]
    extra: serde_json::Value,
}

fn one() -> usize {
    1
}

/// Options for writing a checkpoint.
#[derive(Debug, Clone)]
pub struct SaveOptions {
    /// Element type of `model.safetensors`.
    pub file_type: FileType,
    /// The caller's own state (cursors, seeds), which [`load`] returns.
    pub extra: serde_json::Value,
    /// Files to copy into the folder under their own names, such as the tokenizer's.
    pub companions: Vec<PathBuf>,
    /// Maximum size of a model file in bytes; larger models are written to several files. A tensor is never split.
    pub largest_file: usize,
    /// When the files are flushed.
    pub flush: Flush,
}

impl Default for SaveOptions {
    /// Returns the options for bf16 weights without extra files.
    fn default() -> Self {
        Self {
            file_type: FileType::Bf16,
            extra: serde_json::Value::Null,
            companions: Vec::new(),
            largest_file: LARGEST_FILE,
            flush: Flush::Now,
        }
    }
}

/// Writes a policy and its optimizer state piece by piece. An existing checkpoint of that name is replaced only
/// after the new one is complete.
///
/// # Errors
/// Returns an error if a parameter is NaN or infinite (the existing checkpoint stays), if the policy is sharded
/// over several ranks, or if writing fails.
pub fn save<D: Device>(dir: &Path, policy: &Policy<D>, options: &SaveOptions) -> Result<()> {
    let ranks = policy.shard.ranks;
    if ranks != 1 {
        return Err(LmError::Input(format!(
            "the optimizer state is sharded over {ranks} ranks: call save_together on all of them"
        )));
    }
    write_whole(dir, |tmp| {
        write_model(tmp, &policy.model, options)?;
        let masters = optimizer::write_whole_model(tmp, policy, options.file_type)?;
        write_state(tmp, policy.step, 1, masters, options)
    })
}

/// Writes a policy that several ranks train. Each rank writes its shard of the optimizer state, and rank 0
/// everything else. All ranks must call this function, and all must see the folder's file system.
pub fn save_together<D: Device>(
    dir: &Path,
    policy: &Policy<D>,
    options: &SaveOptions,
    group: &mut ProcessGroup,
) -> Result<()> {
    let names = Names::of(dir)?;
    let first = group.rank() == 0;
    let ranks = group.ranks();
    let only_first = |act: &dyn Fn() -> Result<()>| if first { act() } else { Ok(()) };
    group.together("making the checkpoint's folder", || only_first(&|| prepare(dir, &names)))?;
    let written = group.together("writing a checkpoint", || {
        only_first(&|| write_model(&names.tmp, &policy.model, options))?;
        optimizer::write_shard(&names.tmp, policy, options.file_type)
    });
    let done = written.and_then(|masters| {
        group.together("completing a checkpoint", || {
            only_first(&|| {
                all_parts(&names.tmp, ranks)?;
                write_state(&names.tmp, policy.step, ranks, masters, options)?;
                sync_dir(&names.tmp)?;
                swap(dir, &names)
            })
        })
    });
    if done.is_err() && first {
        remove(&names.tmp)?;
    }
    done
}

/// A copy of a policy's weights and optimizer state in host memory, which can be saved while training continues.
pub struct Snapshot {
    weights: HostWeights,
    adam: AdamHost,
    shard: Shard,
    step: u64,
}

impl Snapshot {
    /// Copies a policy to the host: the weights, and this rank's shard of the optimizer state. Reuses the memory of an older
    /// snapshot if there is one of the same shape.
    pub fn over<D: Device>(older: Option<Self>, policy: &Policy<D>) -> Result<Self> {
        let mut copy = older.filter(|o| o.fits(policy)).unwrap_or_else(|| Self::empty(policy));
        let device = &policy.model.device;
        policy.model.read(0, &mut copy.weights.data)?;
        device.read_adam(&policy.model.params, &policy.adam, AdamPart::First, 0, &mut copy.adam.m)?;
        device.read_adam(&policy.model.params, &policy.adam, AdamPart::Second, 0, &mut copy.adam.v)?;
        if let Some(master) = &mut copy.adam.master {
            device.read_adam(&policy.model.params, &policy.adam, AdamPart::Master, 0, master)?;
        }
        copy.step = policy.step;
        Ok(copy)
    }

    /// Returns the size in bytes of a snapshot in host memory: f32 weights, Adam's moments of a shard and, if
    /// parameters have a lower precision, its master weights.
    pub fn planned_bytes(footprint: &dyn Footprint, config: &ModelConfig, shard: &Shard) -> usize {
        let parts = if footprint.bytes_per_parameter().0 < 4 { 3 } else { 2 };
        4 * (Layout::new(config).len + parts * shard.len)
    }

    /// Allocates the memory of a snapshot.
    fn empty<D: Device>(policy: &Policy<D>) -> Self {
        let Model { device, config, layout, .. } = &*policy.model;
        let part = || device.host(policy.shard.len);
        let adam = AdamHost { m: part(), v: part(), master: device.has_masters(&policy.adam).then(part) };
        let data = device.host(layout.len);
        let weights = HostWeights { config: config.clone(), layout: layout.clone(), data };
        Self { weights, adam, shard: policy.shard.clone(), step: policy.step }
    }

    fn fits<D: Device>(&self, policy: &Policy<D>) -> bool {
        let model = &policy.model;
        self.weights.config == model.config
            && self.weights.layout.len == model.layout.len
            && self.shard == policy.shard
            && self.adam.master.is_some() == model.device.has_masters(&policy.adam)
    }

    /// Writes the weights and this rank's part of the optimizer state to an existing folder, all files
    /// concurrently. The other ranks add theirs with [`save_part`], and [`Snapshot::complete`] then turns the
    /// folder into a checkpoint. Returns the hashes of the large files if they are flushed later.
    pub fn save_part(&self, dir: &Path, options: &SaveOptions) -> Result<Sums> {
        let mut files = self.state_files(dir, options);
        files.push(Box::new(|| self.save_model(dir, options)));
        write_concurrently(&files)
    }

    /// Writes the same as [`Snapshot::save_part`], except for the weights.
    pub fn save_state(&self, dir: &Path, options: &SaveOptions) -> Result<Sums> {
        write_concurrently(&self.state_files(dir, options))
    }

    /// Writes the weights to an existing folder. Returns the same as [`Snapshot::save_part`].
    pub fn save_model(&self, dir: &Path, options: &SaveOptions) -> Result<Sums> {
        let HostWeights { config, layout, data } = &self.weights;
        save_model(dir, config, layout, &slice(data), write_options(options))
    }

    /// Returns the writers of all files but those of the weights.
    fn state_files<'a>(&'a self, dir: &'a Path, options: &'a SaveOptions) -> Vec<CheckpointWriter<'a>> {
        let HostWeights { layout, data, .. } = &self.weights;
        let (adam, shard, flush) = (&self.adam, &self.shard, options.flush);
        let mut files: Vec<CheckpointWriter<'a>> =
            vec![Box::new(move || copy_companions(dir, options).map(|()| Sums::new()))];
        let masters = self.has_masters(options);
        if shard.ranks > 1 {
            let masters = masters.then_some(&data[..]);
            files.push(Box::new(move || optimizer::write_host_shard(dir, shard, adam, masters, flush)));
        } else {
            let of_device = adam.master.as_ref().unwrap_or(data);
            for (name, data) in optimizer::host_parts(adam, masters.then_some(&of_device[..])) {
                let write = move || optimizer::write_part(dir, layout, name, &slice(data), flush);
                files.push(Box::new(write));
            }
        }
        files
    }

    /// Completes a checkpoint after every rank has written its part.
    ///
    /// # Errors
    /// Returns an error if the part of a rank is missing or if writing fails.
    pub fn complete(&self, dir: &Path, options: &SaveOptions) -> Result<()> {
        all_parts(dir, self.shard.ranks)?;
        write_state(dir, self.step, self.shard.ranks, self.has_masters(options), options)
    }

    fn has_masters(&self, options: &SaveOptions) -> bool {
        self.adam.master.is_some() || options.file_type == FileType::Bf16
    }
}

/// Writes the shard of a rank other than 0 to an existing folder; see [`Snapshot::save_part`].
pub fn save_part<D: Device>(dir: &Path, policy: &Policy<D>, options: &SaveOptions) -> Result<()> {
    optimizer::write_shard(dir, policy, options.file_type).map(|_| ())
}

/// Writes one or more related files.
type CheckpointWriter<'a> = Box<dyn Fn() -> Result<Sums> + Sync + 'a>;

/// Writes files concurrently, each in a separate thread if one can be started. Waits for all of them even if one fails.
fn write_concurrently(files: &[CheckpointWriter<'_>]) -> Result<Sums> {
    let written: Vec<Result<Sums>> = std::thread::scope(|scope| {
        let builder = || std::thread::Builder::new().name("checkpoint".into());
        let started: Vec<_> = files.iter().map(|write| builder().spawn_scoped(scope, write)).collect();
        let waited = started.into_iter().zip(files).map(|(thread, write)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => write(),
        });
        waited.collect()
    });
    Ok(written.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// Checks that the parts of all ranks are visible.
fn all_parts(dir: &Path, ranks: usize) -> Result<()> {
    // A single rank has written all parts itself.
    for rank in (0..ranks).filter(|_| ranks > 1) {
        let part = dir.join(optimizer::file_of_shard(rank, ranks));
        if !part.exists() {
            return Err(LmError::Input(format!(
                "{} of another rank is not to be seen here: give an output folder on a file system that all ranks \
                 share",
                part.display()
            )));
        }
    }
    Ok(())
}

/// Returns the options for the model's files.
fn write_options(options: &SaveOptions) -> (FileType, usize, Flush) {
    (options.file_type, options.largest_file, options.flush)
}

/// Returns a function that reads from a slice in host memory.
fn slice(data: &[f32]) -> impl Fn(usize, &mut [f32]) -> Result<()> + '_ {
    |from, to| {
        to.copy_from_slice(&data[from..from + to.len()]);
        Ok(())
    }
}

/// Writes only a model, without optimizer state, tensor by tensor.
pub fn export<D: Device>(dir: &Path, model: &Model<D>, options: &SaveOptions) -> Result<()> {
    write_whole(dir, |tmp| write_model(tmp, model, options))
}

fn write_model<D: Device>(tmp: &Path, model: &Model<D>, options: &SaveOptions) -> Result<()> {
    let read = |from: usize, to: &mut [f32]| model.read(from, to);
    save_model(tmp, &model.config, &model.layout, &read, write_options(options))?;
    copy_companions(tmp, options)
}

/// Maximum size in bytes of a file that is copied with a model.
const MOST_COMPANION_BYTES: u64 = 1 << 30;

fn copy_companions(tmp: &Path, options: &SaveOptions) -> Result<()> {
    for companion in &options.companions {
        let name = companion
            .file_name()
            .ok_or_else(|| LmError::Input(format!("{} is not the name of a file", companion.display())))?;
        let bytes = sgs_base::files::read(companion, MOST_COMPANION_BYTES).map_err(LmError::io(companion))?;
        write_small(&tmp.join(name), &bytes, options.flush)?;
    }
    Ok(())
}

fn write_state(tmp: &Path, step: u64, ranks: usize, master: bool, options: &SaveOptions) -> Result<()> {
    let state = TrainerState { format: FORMAT, step, ranks, master, extra: options.extra.clone() };
    let path = tmp.join("trainer.json");
    let text = serde_json::to_vec_pretty(&state).map_err(LmError::json(&path))?;
    write_small(&path, &text, options.flush)
}

/// Returns whether there is a checkpoint. If a replacement was interrupted, the old checkpoint is restored first.
pub fn exists(dir: &Path) -> Result<bool> {
    recover(dir)?;
    Ok(dir.exists())
}

/// Reads a checkpoint; returns the policy, ready for training, and the caller's own state.
///
/// # Errors
/// Returns an error if a file is missing, truncated, corrupt, of another shape, or contains NaN or infinity.
pub fn load<D: Device>(
    dir: &Path,
    device: Arc<D>,
    max_positions: usize,
) -> Result<(Policy<D>, serde_json::Value)> {
    recover(dir)?;
    load_for_rank(dir, device, max_positions, (0, 1))
}

/// Reads the part of a checkpoint that one of several ranks needs, given as `(rank, ranks)`. A different number
/// of ranks may have written the checkpoint. It must not be replaced during the call.
pub fn load_for_rank<D: Device>(
    dir: &Path,
    device: Arc<D>,
    max_positions: usize,
    (rank, ranks): (usize, usize),
) -> Result<(Policy<D>, serde_json::Value)> {
    let path = dir.join("trainer.json");
    let text = crate::json::text(&path)?;
    let state: TrainerState = serde_json::from_str(&text).map_err(LmError::json(&path))?;
    let fail = |message: String| LmError::Config { origin: path.display().to_string(), message };
    let files = match (state.format, state.ranks) {
        (_, 0) => return Err(fail("ranks is 0".to_owned())),
        (1, 1) => OptimizerFiles::One,
        (FORMAT, 1) => OptimizerFiles::Parts,
        (1 | FORMAT, ranks) => OptimizerFiles::Shards(ranks),
        (other, _) => {
            let message = "is not supported; supported are 1 and";
            return Err(fail(format!("format {other} {message} {FORMAT}")));
        }
    };
    let mut model = Model::load(device, dir, max_positions)?;
    let masters = state.master;
    if masters && model.device.footprint().bytes_per_parameter().0 == 4 {
        optimizer::read_masters(dir, files, &mut model)?;
    }
    let shard = Shard::of(&model.layout, rank, ranks);
    let mut policy = Policy::of_shard(model, shard)?;
    optimizer::read(dir, files, masters, &mut policy)?;
    policy.step = state.step;
    Ok((policy, state.extra))
}

/// Fills a folder under a temporary name and renames it, so that at any time `dir` is missing, completely old,
/// or completely new.
///
/// # Errors
/// Returns an error if `fill` or the file system fails. If `fill` fails, the temporary folder is removed and
/// `dir` is unchanged.
pub fn write_whole(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let names = Names::of(dir)?;
    prepare(dir, &names)?;
    let filled = fill(&names.tmp).and_then(|()| sync_dir(&names.tmp));
    if let Err(error) = filled {
        remove(&names.tmp)?;
        return Err(error);
    }
    swap(dir, &names)
}

/// Creates an empty temporary folder.
fn prepare(dir: &Path, names: &Names) -> Result<()> {
    recover(dir)?;
    remove(&names.tmp)?;
    fs::create_dir_all(&names.tmp).map_err(LmError::io(&names.tmp))
}

/// Renames the complete temporary folder.
fn swap(dir: &Path, names: &Names) -> Result<()> {
    if dir.exists() {
        fs::rename(dir, &names.old).map_err(LmError::io(dir))?;
    }
    fs::rename(&names.tmp, dir).map_err(LmError::io(dir))?;
    sync_dir(&names.parent)?;
    remove(&names.old)
}

/// Repairs an interrupted replacement: if the new folder is missing, the old one gets its name back.
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

/// Names of the folders that are involved in a replacement.
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
