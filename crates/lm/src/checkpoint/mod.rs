//! Checkpoints: a folder that appears whole or not at all, and from which training goes on bit for bit.
//!
//! `model.safetensors` (or several files and their index), `config.json` (Hugging Face layout, f32 or bf16),
//! `optimizer-m.safetensors`, `optimizer-v.safetensors` and, where the model file is coarser than the weights,
//! `optimizer-master.safetensors` (f32 tensors `m.NAME` and so on; all in `optimizer.safetensors` in the first format) or,
//! from N ranks, `optimizer-00001-of-0000N.safetensors` (each rank's shards `m`, `v` and `master`, packed), and
//! `trainer.json` (format, step, ranks, and what the caller wants to find again).

mod optimiser;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::{AdamHost, AdamPart, Device};
use crate::error::{LmError, Result};
use crate::model::Model;
use crate::ranks::{Meeting, Shard};
use crate::trainer::Policy;
use crate::weights::{FileType, Flush, HostWeights, LARGEST_FILE, Sums, save_model, write_small};
use optimiser::Files;

/// Version of `trainer.json` that is written; those from 1 on are read.
const FORMAT: u32 = 2;

/// `trainer.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrainerState {
    format: u32,
    step: u64,
    /// Ranks that wrote the optimiser's state.
    #[serde(default = "one")]
    ranks: usize,
    /// Whether the optimiser's files hold master weights.
    master: bool,
    #[serde(default)]
    extra: serde_json::Value,
}

fn one() -> usize {
    1
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
    /// Largest file of the model in bytes; more weights go into several files. A tensor is never split.
    pub largest_file: usize,
    /// When the files are flushed.
    pub flush: Flush,
}

impl Default for SaveOptions {
    /// bf16 weights, nothing else.
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

/// Writes a policy with its optimiser's state, a piece at a time; an older checkpoint of that name is replaced only
/// once the new one is complete.
///
/// # Errors
/// A parameter is NaN or infinite (the older checkpoint stays), the policy is one of several ranks', or the disk fails.
pub fn save<D: Device>(dir: &Path, policy: &Policy<D>, options: &SaveOptions) -> Result<()> {
    alone(&policy.shard)?;
    write_whole(dir, |tmp| {
        write_model(tmp, &policy.model, options)?;
        let masters = optimiser::write_whole_model(tmp, policy, options.file_type)?;
        write_state(tmp, policy.step, 1, masters, options)
    })
}

/// Writes a policy that several ranks train: each its own part of the optimiser's state, rank 0 the rest. All ranks
/// call this; the folder must be on a file system that all of them see.
///
/// # Errors
/// As [`save`], on any rank; or a rank is lost.
pub fn save_together<D: Device>(
    dir: &Path,
    policy: &Policy<D>,
    options: &SaveOptions,
    meeting: &mut Meeting,
) -> Result<()> {
    let names = Names::of(dir)?;
    let first = meeting.rank() == 0;
    let ranks = meeting.ranks();
    let only_first = |act: &dyn Fn() -> Result<()>| if first { act() } else { Ok(()) };
    meeting.together("making the checkpoint's folder", || only_first(&|| prepare(dir, &names)))?;
    let written = meeting.together("writing a checkpoint", || {
        only_first(&|| write_model(&names.tmp, &policy.model, options))?;
        optimiser::write_shard(&names.tmp, policy, options.file_type)
    });
    let done = written.and_then(|masters| {
        meeting.together("completing a checkpoint", || {
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

/// A policy's weights and optimiser state on the host: what is saved while the policy itself goes on.
pub struct Snapshot {
    weights: HostWeights,
    adam: AdamHost,
    shard: Shard,
    step: u64,
}

impl Snapshot {
    /// Copies a policy to the host: the weights, and what this rank keeps of the optimiser's state.
    ///
    /// # Errors
    /// The device fails.
    pub fn of<D: Device>(policy: &Policy<D>) -> Result<Self> {
        Self::over(None, policy)
    }

    /// The same into the memory of an older copy, if there is one and it is of the same shape.
    ///
    /// # Errors
    /// As [`Snapshot::of`].
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

    /// Memory for a copy.
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

    /// Writes it as [`save`] does.
    ///
    /// # Errors
    /// As [`save`].
    pub fn save(&self, dir: &Path, options: &SaveOptions) -> Result<()> {
        alone(&self.shard)?;
        write_whole(dir, |tmp| {
            self.save_part(tmp, options)?;
            self.complete(tmp, options)
        })
    }

    /// Writes the weights and this rank's part of the optimiser's state into a folder that exists, all files side by side;
    /// the other ranks add theirs with [`save_part`], and [`Snapshot::complete`] makes a checkpoint of it. Gives the sums
    /// of the large files if they are flushed later.
    ///
    /// # Errors
    /// As [`save`].
    pub fn save_part(&self, dir: &Path, options: &SaveOptions) -> Result<Sums> {
        let HostWeights { config, layout, data } = &self.weights;
        let (adam, shard, flush) = (&self.adam, &self.shard, options.flush);
        let model = || {
            copy_companions(dir, options)?;
            save_model(dir, config, layout, &slice(data), how(options))
        };
        let mut files: Vec<Writer<'_>> = vec![Box::new(model)];
        let masters = self.has_masters(options);
        if shard.ranks > 1 {
            let masters = masters.then_some(&data[..]);
            files.push(Box::new(move || optimiser::write_host_shard(dir, shard, adam, masters, flush)));
        } else {
            let of_device = adam.master.as_ref().unwrap_or(data);
            for (name, data) in optimiser::host_parts(adam, masters.then_some(&of_device[..])) {
                let write = move || optimiser::write_part(dir, layout, name, &slice(data), flush);
                files.push(Box::new(write));
            }
        }
        side_by_side(&files)
    }

    /// Makes a checkpoint of a folder that every rank has written its part into.
    ///
    /// # Errors
    /// The part of a rank is not there, or the disk fails.
    pub fn complete(&self, dir: &Path, options: &SaveOptions) -> Result<()> {
        all_parts(dir, self.shard.ranks)?;
        write_state(dir, self.step, self.shard.ranks, self.has_masters(options), options)
    }

    fn has_masters(&self, options: &SaveOptions) -> bool {
        self.adam.master.is_some() || options.file_type == FileType::Bf16
    }
}

/// Writes what a rank but the first keeps of a policy into a folder that exists: see [`Snapshot::save_part`].
///
/// # Errors
/// As [`save`].
pub fn save_part<D: Device>(dir: &Path, policy: &Policy<D>, options: &SaveOptions) -> Result<()> {
    optimiser::write_shard(dir, policy, options.file_type).map(|_| ())
}

/// Writes a file, or several that belong together.
type Writer<'a> = Box<dyn Fn() -> Result<Sums> + Sync + 'a>;

/// Writes files, each in a thread of its own where there is one to be had; waits for all, whichever fails.
fn side_by_side(files: &[Writer<'_>]) -> Result<Sums> {
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

/// Checks that the parts of all ranks are to be seen.
fn all_parts(dir: &Path, ranks: usize) -> Result<()> {
    // A single rank has written its parts itself.
    for rank in (0..ranks).filter(|_| ranks > 1) {
        let part = dir.join(optimiser::file_of_shard(rank, ranks));
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

/// How a model's files are written.
fn how(options: &SaveOptions) -> (FileType, usize, Flush) {
    (options.file_type, options.largest_file, options.flush)
}

/// A source over numbers on the host.
fn slice(data: &[f32]) -> impl Fn(usize, &mut [f32]) -> Result<()> + '_ {
    |from, to| {
        to.copy_from_slice(&data[from..from + to.len()]);
        Ok(())
    }
}

fn alone(shard: &Shard) -> Result<()> {
    let ranks = shard.ranks;
    if ranks == 1 {
        return Ok(());
    }
    Err(LmError::Input(format!(
        "one of {ranks} ranks holds a part of the optimiser's state: save it together"
    )))
}

/// Writes a model alone, without the optimiser's state, a tensor at a time.
///
/// # Errors
/// As [`save`].
pub fn export<D: Device>(dir: &Path, model: &Model<D>, options: &SaveOptions) -> Result<()> {
    write_whole(dir, |tmp| write_model(tmp, model, options))
}

fn write_model<D: Device>(tmp: &Path, model: &Model<D>, options: &SaveOptions) -> Result<()> {
    let read = |from: usize, to: &mut [f32]| model.read(from, to);
    save_model(tmp, &model.config, &model.layout, &read, how(options))?;
    copy_companions(tmp, options)
}

fn copy_companions(tmp: &Path, options: &SaveOptions) -> Result<()> {
    for companion in &options.companions {
        let name = companion
            .file_name()
            .ok_or_else(|| LmError::Input(format!("{} is not the name of a file", companion.display())))?;
        let bytes = fs::read(companion).map_err(LmError::io(companion))?;
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

/// Whether there is a checkpoint; one whose replacement was interrupted gets its name back first.
///
/// # Errors
/// The disk fails.
pub fn exists(dir: &Path) -> Result<bool> {
    recover(dir)?;
    Ok(dir.exists())
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
    load_for_rank(dir, device, max_positions, (0, 1))
}

/// Reads a rank's part of a checkpoint, `(rank, ranks)`; it may have been written by another number of ranks.
/// Nobody may replace the checkpoint meanwhile.
///
/// # Errors
/// As [`load`].
pub fn load_for_rank<D: Device>(
    dir: &Path,
    device: Arc<D>,
    max_positions: usize,
    (rank, ranks): (usize, usize),
) -> Result<(Policy<D>, serde_json::Value)> {
    let path = dir.join("trainer.json");
    let text = fs::read_to_string(&path).map_err(LmError::io(&path))?;
    let state: TrainerState = serde_json::from_str(&text).map_err(LmError::json(&path))?;
    let fail = |message: String| LmError::Config { origin: path.display().to_string(), message };
    let files = match (state.format, state.ranks) {
        (_, 0) => return Err(fail("ranks is 0".to_owned())),
        (1, 1) => Files::One,
        (FORMAT, 1) => Files::Parts,
        (1 | FORMAT, ranks) => Files::Shards(ranks),
        (other, _) => {
            let message = "was written by another version; this one reads 1 and";
            return Err(fail(format!("format {other} {message} {FORMAT}")));
        }
    };
    let mut model = Model::load(device, dir, max_positions)?;
    let masters = state.master;
    if masters && model.device.bytes_per_parameter().0 == 4 {
        optimiser::read_masters(dir, files, &mut model)?;
    }
    let shard = Shard::of(&model.layout, rank, ranks);
    let mut policy = Policy::of_shard(model, shard)?;
    optimiser::read(dir, files, masters, &mut policy)?;
    policy.step = state.step;
    Ok((policy, state.extra))
}

/// Fills a folder under a temporary name and renames it into place, so that `dir` is at every moment
/// absent, the old one whole, or the new one whole.
///
/// # Errors
/// `fill` fails (the temporary folder is removed, `dir` is as before) or the disk does.
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

/// An empty temporary folder.
fn prepare(dir: &Path, names: &Names) -> Result<()> {
    recover(dir)?;
    remove(&names.tmp)?;
    fs::create_dir_all(&names.tmp).map_err(LmError::io(&names.tmp))
}

/// Gives the complete temporary folder its name.
fn swap(dir: &Path, names: &Names) -> Result<()> {
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
