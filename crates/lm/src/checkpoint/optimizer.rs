//! Files of the optimizer's state. The state of a whole model is stored under the tensors' names, with one file per
//! component, so that the files can be written concurrently. With several ranks, each rank stores its packed shard.
//!
//! A shard depends only on the layout and the number of ranks. Therefore any number of ranks can read the files that
//! another number of ranks wrote. Each rank reads its ranges from the files that contain them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use safetensors::Dtype;

use crate::device::{AdamHost, AdamPart, BufferSliceMut, Device};
use crate::error::{LmError, Result};
use crate::layout::Layout;
use crate::model::Model;
use crate::shard::Shard;
use crate::trainer::Policy;
use crate::weights::{
    FileType, Flush, Sink, Sums, TensorError, TensorFile, TensorSource, in_pieces, map_file, parse,
    read_prefixed, release, safetensors_error, tensors_of, write_tensors,
};

/// The components and their names in files.
const PARTS: [(AdamPart, &str); 3] =
    [(AdamPart::First, "m"), (AdamPart::Second, "v"), (AdamPart::Master, "master")];

/// How the state is divided into files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizerFiles {
    /// A whole model in a single file, as in the first format.
    One,
    /// A whole model with one file per component.
    Parts,
    /// One shard per rank, for this number of ranks (more than one).
    Shards(usize),
}

/// The file of [`OptimizerFiles::One`].
const ONE: &str = "optimizer.safetensors";

/// Returns the file name of a component in [`OptimizerFiles::Parts`].
fn file_of_part(name: &str) -> String {
    format!("optimizer-{name}.safetensors")
}

/// Returns the file name of a rank's shard.
pub fn file_of_shard(rank: usize, ranks: usize) -> String {
    format!("optimizer-{:05}-of-{ranks:05}.safetensors", rank + 1)
}

/// Reads a component of a policy's state. If the device has no master weights, they are the parameters.
fn read_part<D: Device>(policy: &Policy<D>, part: AdamPart, from: usize, to: &mut [f32]) -> Result<()> {
    let device = &policy.model.device;
    if part != AdamPart::Master || device.has_masters(&policy.adam) {
        return device.read_adam(&policy.model.params, &policy.adam, part, from, to);
    }
    for piece in policy.shard.packed(from..from + to.len()) {
        let start = piece.at - from;
        policy.model.read(piece.from, &mut to[start..start + piece.len])?;
    }
    Ok(())
}

/// Returns whether master weights must be written, which is the case if the device has them, or if the model's file
/// rounds the parameters.
fn wants_masters<D: Device>(policy: &Policy<D>, file_type: FileType) -> bool {
    policy.model.device.has_masters(&policy.adam) || file_type == FileType::Bf16
}

/// Writes the state of a whole model; returns whether it includes master weights.
pub fn write_whole_model<D: Device>(tmp: &Path, policy: &Policy<D>, file_type: FileType) -> Result<bool> {
    let masters = wants_masters(policy, file_type);
    for (part, name) in PARTS {
        if part != AdamPart::Master || masters {
            let read = |from: usize, to: &mut [f32]| read_part(policy, part, from, to);
            write_part(tmp, &policy.model.layout, name, &read, Flush::Now)?;
        }
    }
    Ok(masters)
}

/// Writes one component of a whole model's state.
pub fn write_part(
    tmp: &Path,
    layout: &Layout,
    name: &str,
    source: TensorSource<'_>,
    flush: Flush,
) -> Result<Sums> {
    let tensors = tensors_of(layout, &format!("{name}."), source, FileType::F32);
    write_tensors(&tmp.join(file_of_part(name)), tensors, flush)
}

/// Returns the components of a state in host memory, with their names.
pub fn host_parts<'a>(
    adam: &'a AdamHost,
    masters: Option<&'a [f32]>,
) -> impl Iterator<Item = (&'static str, &'a [f32])> {
    let data = [Some(&adam.m[..]), Some(&adam.v[..]), masters];
    PARTS.into_iter().zip(data).filter_map(|((_, name), data)| Some((name, data?)))
}

/// Writes a rank's shard from host memory. If it has no master weights, those of `parameters` are written, if given.
pub fn write_host_shard(
    tmp: &Path,
    shard: &Shard,
    adam: &AdamHost,
    parameters: Option<&[f32]>,
    flush: Flush,
) -> Result<Sums> {
    let copy = |data: &[f32], from: usize, to: &mut [f32]| {
        to.copy_from_slice(&data[from..from + to.len()]);
        Ok(())
    };
    let packed = |all: &[f32]| shard.pieces.iter().flat_map(|p| all[p.flat()].to_vec()).collect();
    let masters: Option<Cow<'_, [f32]>> = match &adam.master {
        Some(master) => Some(Cow::Borrowed(master)),
        None => parameters.map(packed),
    };
    let m = |from: usize, to: &mut [f32]| copy(&adam.m, from, to);
    let v = |from: usize, to: &mut [f32]| copy(&adam.v, from, to);
    let master = masters.as_deref().map(|masters| move |from: usize, to: &mut [f32]| copy(masters, from, to));
    let master: Option<TensorSource<'_>> = master.as_ref().map(|source| source as _);
    let sources: [Option<TensorSource<'_>>; 3] = [Some(&m), Some(&v), master];
    let mut tensors = Vec::new();
    for ((_, name), source) in PARTS.iter().zip(sources) {
        if let Some(source) = source {
            let (name, shape) = ((*name).to_owned(), vec![shard.len]);
            tensors.push(TensorFile { name, shape, source, from: 0, file_type: FileType::F32 });
        }
    }
    write_tensors(&tmp.join(file_of_shard(shard.rank, shard.ranks)), tensors, flush)
}

/// Writes a rank's shard; returns whether it includes master weights.
pub fn write_shard<D: Device>(tmp: &Path, policy: &Policy<D>, file_type: FileType) -> Result<bool> {
    let masters = wants_masters(policy, file_type);
    let reads = PARTS.map(|(part, _)| move |from: usize, to: &mut [f32]| read_part(policy, part, from, to));
    let mut tensors = Vec::new();
    for ((part, name), read) in PARTS.iter().zip(&reads) {
        if *part != AdamPart::Master || masters {
            let (name, shape) = ((*name).to_owned(), vec![policy.shard.len]);
            tensors.push(TensorFile { name, shape, source: read, from: 0, file_type: FileType::F32 });
        }
    }
    write_tensors(&tmp.join(file_of_shard(policy.shard.rank, policy.shard.ranks)), tensors, Flush::Now)?;
    Ok(masters)
}

/// Reads a policy's shard of the state.
pub fn read<D: Device>(
    dir: &Path,
    files: OptimizerFiles,
    masters: bool,
    policy: &mut Policy<D>,
) -> Result<()> {
    let Policy { model, adam, shard, .. } = policy;
    let Some(Model { device, layout, params, .. }) = Arc::get_mut(model) else {
        return Err(LmError::Input(
            "the policy's weights are in use elsewhere while its state is read".to_owned(),
        ));
    };
    // Round the master weights to the parameters again. The file's weights can differ only for masters half-way between
    // two values (rounded on a CPU). The weights of the other ranks' shards are corrected by the first update.
    let take = std::cell::RefCell::new(|part: AdamPart, values: &[f32], at: usize| {
        device.write_adam(values, params, adam, part, at)
    });
    let put = |part: AdamPart| {
        let take = &take;
        move |values: &[f32], at: usize| (take.borrow_mut())(part, values, at)
    };
    let (mut m, mut v, mut master) = (put(AdamPart::First), put(AdamPart::Second), put(AdamPart::Master));
    let mut sinks: Vec<(&str, Sink<'_>)> = vec![("m", &mut m), ("v", &mut v)];
    if masters {
        sinks.push(("master", &mut master));
    }
    read_into(dir, files, layout, shard, &mut sinks)
}

/// Reads all master weights into a model with f32 parameters.
pub fn read_masters<D: Device>(dir: &Path, files: OptimizerFiles, model: &mut Model<D>) -> Result<()> {
    let Model { device, layout, params, .. } = model;
    let whole = Shard::whole(layout.len);
    let mut put = |values: &[f32], at: usize| {
        device.write_buf(values, BufferSliceMut { buf: &mut *params, range: at..at + values.len() })
    };
    if files == OptimizerFiles::One {
        // The other components of the file are not needed here.
        let mut skip = |_: &[f32], _: usize| Ok(());
        let mut skip_too = skip;
        let sinks: &mut [(&str, Sink<'_>)] =
            &mut [("m", &mut skip), ("v", &mut skip_too), ("master", &mut put)];
        return read_into(dir, files, layout, &whole, sinks);
    }
    read_into(dir, files, layout, &whole, &mut [("master", &mut put)])
}

fn read_into(
    dir: &Path,
    files: OptimizerFiles,
    layout: &Layout,
    shard: &Shard,
    sinks: &mut [(&str, Sink<'_>)],
) -> Result<()> {
    match files {
        OptimizerFiles::One => {
            let names: Vec<String> = sinks.iter().map(|(name, _)| format!("{name}.")).collect();
            let mut sets: Vec<(&str, Sink<'_>)> = Vec::new();
            for (name, (_, sink)) in names.iter().zip(sinks.iter_mut()) {
                sets.push((name, &mut **sink));
            }
            read_prefixed(&dir.join(ONE), layout, shard, &mut sets)
        }
        OptimizerFiles::Parts => sinks.iter_mut().try_for_each(|(name, sink)| {
            let sets: &mut [(&str, Sink<'_>)] = &mut [(&format!("{name}."), &mut **sink)];
            read_prefixed(&dir.join(file_of_part(name)), layout, shard, sets)
        }),
        OptimizerFiles::Shards(ranks) => (0..ranks).try_for_each(|rank| {
            let path = dir.join(file_of_shard(rank, ranks));
            read_from_shard(&path, &Shard::of(layout, rank, ranks), shard, sinks)
        }),
    }
}

/// Reads the ranges that `shard` needs from the file of another shard.
fn read_from_shard(path: &Path, other: &Shard, shard: &Shard, sinks: &mut [(&str, Sink<'_>)]) -> Result<()> {
    let map = map_file(path)?;
    let file = parse(path, &map)?;
    for (name, sink) in sinks {
        let view = file.tensor(name).map_err(|e| match e {
            safetensors::SafeTensorError::TensorNotFound(_) => LmError::tensor(path, name, "is missing"),
            other => safetensors_error(path, &other),
        })?;
        if view.shape() != [other.len] || view.dtype() != Dtype::F32 {
            let (found, want) = (view.shape(), other.len);
            let message = format!("has shape {found:?} and type {:?}, not [{want}] and F32", view.dtype());
            return Err(LmError::tensor(path, name, message));
        }
        for piece in &other.pieces {
            for wanted in shard.within(piece.flat()) {
                let start = piece.at + wanted.from - piece.from;
                in_pieces(Dtype::F32, view.data(), start..start + wanted.len, |at, values| {
                    sink(values, wanted.at + at - start).map_err(TensorError::Failed)
                })
                .map_err(|refused| match refused {
                    TensorError::Tensor(message) => LmError::tensor(path, name, message),
                    TensorError::Failed(error) => error,
                })?;
            }
        }
        release(&map, view.data());
    }
    Ok(())
}
