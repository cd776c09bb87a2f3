//! Model weights in host memory as f32, read from and written to Hugging Face folders.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use sha2::{Digest, Sha256};

use crate::config::ModelConfig;
use crate::error::{LmError, Result};
use crate::host_buffer::HostBuffer;
use crate::layout::{Layout, TensorSpec};
use crate::shard::Shard;
use sgs_base::random::SeededRng;

/// Element type of the tensors in a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// 32-bit floats: no loss.
    F32,
    /// bfloat16: half the size, 8 significant bits, rounded to nearest even.
    Bf16,
}

impl FileType {
    /// Returns the number of bytes per element.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// When a written file is flushed to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Immediately.
    Now,
    /// By the code that publishes the folder; large files are hashed while they are written.
    Later,
}

/// Maximum size of a model file in bytes. A tensor is never split, so a larger one is alone in its file. Workers fetch
/// and check several files at a time.
pub(crate) const LARGEST_FILE: usize = 1_000_000_000;

/// A model's configuration and all its parameters in one flat f32 buffer.
#[derive(Debug, Clone)]
pub struct HostWeights {
    /// The model's configuration.
    pub config: ModelConfig,
    /// Positions of the tensors in `data`.
    pub layout: Layout,
    /// The parameters, `[layout.len]`; gaps for alignment are zero.
    pub data: HostBuffer,
}

impl HostWeights {
    /// Creates initial weights for training from scratch: normal with standard deviation 0.02 (projections into
    /// the residual stream are scaled by `1 / sqrt(2 layers)`, as in GPT-2), norms 1, biases 0.
    pub fn random(config: &ModelConfig, seed: u64) -> Self {
        let layout = Layout::new(config);
        let mut data = HostBuffer::zeros(layout.len);
        let residual = 0.02 / (2.0 * config.layers as f32).sqrt();
        for (index, tensor) in layout.tensors.iter().enumerate() {
            let values = &mut data[tensor.span.range()];
            if tensor.name.ends_with("norm.weight") {
                values.fill(1.0);
            } else if tensor.shape.len() == 2 {
                let into_residual =
                    tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight");
                let scale = if into_residual { residual } else { 0.02 };
                let mut rng = SeededRng::stream(seed, index as u64);
                values.iter_mut().for_each(|v| *v = scale * rng.normal());
            }
        }
        Self { config: config.clone(), layout, data }
    }

    /// Reads `config.json` and `model.safetensors` (or the shards named in `model.safetensors.index.json`) of a
    /// folder. Tensors may be f32, bf16 or f16.
    ///
    /// # Errors
    /// Returns an error, which names the file and the tensor, if a file is missing, truncated or corrupt, or if
    /// a tensor is missing, unknown, of a wrong shape or type, or contains NaN or infinity.
    pub fn load(dir: &Path) -> Result<Self> {
        let config = ModelConfig::load(dir)?;
        let layout = Layout::new(&config);
        check_shapes(dir, &config, &layout)?;
        let mut data = HostBuffer::try_zeros(layout.len)?;
        visit_model(dir, &config, &layout, |spec, dtype, bytes| {
            let target = &mut data[spec.span.range()];
            decode(dtype, bytes, target).map_err(TensorError::Tensor)?;
            match first_not_finite(target) {
                Some((at, value)) => Err(TensorError::Tensor(format!("element {at} is {value}"))),
                None => Ok(()),
            }
        })?;
        Ok(Self { config, layout, data })
    }

    /// Returns a tensor's values by its Hugging Face name.
    pub fn tensor(&self, name: &str) -> Option<&[f32]> {
        self.layout.tensors.iter().find(|t| t.name == name).map(|t| &self.data[t.span.range()])
    }

    /// Writes `config.json` and `model.safetensors` (several files if it is large) to an existing folder. If
    /// the folder must appear atomically, write it under a temporary name first (as checkpoints do).
    ///
    /// # Errors
    /// Returns an error if the files cannot be written or if a parameter is NaN or infinite.
    pub fn save(&self, dir: &Path, file_type: FileType) -> Result<()> {
        let read = |from: usize, to: &mut [f32]| {
            to.copy_from_slice(&self.data[from..from + to.len()]);
            Ok(())
        };
        let how = (file_type, LARGEST_FILE, Flush::Now);
        save_model(dir, &self.config, &self.layout, &read, how).map(drop)
    }
}

/// Writes `config.json` and the tensors of a model whose flat parameters are read from `source` piece by piece;
/// `largest_file` is in bytes.
pub(crate) fn save_model(
    dir: &Path,
    config: &ModelConfig,
    layout: &Layout,
    source: TensorSource<'_>,
    (file_type, largest_file, flush): (FileType, usize, Flush),
) -> Result<Sums> {
    let mut json = config.to_json();
    json["torch_dtype"] = match file_type {
        FileType::F32 => "float32".into(),
        FileType::Bf16 => "bfloat16".into(),
    };
    let text = serde_json::to_string_pretty(&json).map_err(LmError::json(&dir.join("config.json")))?;
    write_small(&dir.join("config.json"), text.as_bytes(), flush)?;
    write_model_files(dir, tensors_of(layout, "", source, file_type), largest_file, flush)
}

/// Returns whether files of this family may contain the tensor although the engine recomputes or shares it.
fn ignorable(name: &str, tied_head: bool) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (tied_head && name == "lm_head.weight")
}

/// Passes every tensor of a model folder to `take`, one after the other, as stored in the file. Nothing else is
/// kept in memory.
pub(crate) fn visit_model(
    dir: &Path,
    config: &ModelConfig,
    layout: &Layout,
    mut take: impl FnMut(&TensorSpec, Dtype, &[u8]) -> std::result::Result<(), TensorError>,
) -> Result<()> {
    let ignore = |name: &str| ignorable(name, config.tied_head);
    visit_sets(dir, &tensor_files(dir)?, layout, &[""], ignore, |_, spec, dtype, bytes| {
        take(spec, dtype, bytes)
    })
}

/// Receives values and the index of the first one in a packed shard.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[f32], usize) -> Result<()>;

/// Reads several sets of tensors from one file, each identified by a prefix; each buffer holds a shard.
pub(crate) fn read_prefixed(
    path: &Path,
    layout: &Layout,
    shard: &Shard,
    sets: &mut [(&str, Sink<'_>)],
) -> Result<()> {
    let prefixes: Vec<&str> = sets.iter().map(|(prefix, _)| *prefix).collect();
    visit_sets(
        path,
        &[path.to_path_buf()],
        layout,
        &prefixes,
        |_| false,
        |set, spec, dtype, bytes| {
            for piece in shard.within(spec.span.range()) {
                let from = piece.from - spec.span.offset;
                in_pieces(dtype, bytes, from..from + piece.len, |at, values| {
                    sets[set].1(values, piece.at + at - from).map_err(TensorError::Failed)
                })?;
            }
            Ok(())
        },
    )
}

/// Compares the shapes required by the configuration with those of the files. Only the headers are read, before
/// any buffer is allocated.
pub(crate) fn check_shapes(dir: &Path, config: &ModelConfig, layout: &Layout) -> Result<()> {
    visit_model(dir, config, layout, |_, _, _| Ok(()))
}

/// Why a tensor was rejected.
pub(crate) enum TensorError {
    /// The tensor is invalid, for this reason.
    Tensor(String),
    /// Another error.
    Failed(LmError),
}

/// Number of elements that are converted at a time.
pub(crate) const PIECE: usize = 1 << 22;

/// Decodes a range of a tensor piece by piece and passes each piece, with the index of its first element, to
/// `take`. Rejects NaN and infinity.
pub(crate) fn in_pieces(
    dtype: Dtype,
    bytes: &[u8],
    range: std::ops::Range<usize>,
    mut take: impl FnMut(usize, &[f32]) -> std::result::Result<(), TensorError>,
) -> std::result::Result<(), TensorError> {
    let width = width(dtype).map_err(TensorError::Tensor)?;
    let mut values = vec![0.0; PIECE.min(range.len())];
    let mut at = range.start;
    while at < range.end {
        let values = &mut values[..PIECE.min(range.end - at)];
        decode(dtype, &bytes[at * width..(at + values.len()) * width], values)
            .map_err(TensorError::Tensor)?;
        if let Some((i, value)) = first_not_finite(values) {
            return Err(TensorError::Tensor(format!("element {} is {value}", at + i)));
        }
        take(at, values)?;
        at += values.len();
    }
    Ok(())
}

/// Passes every tensor of every set (names with a prefix, in `layout`) to `take`; `whole` names the source of a
/// tensor that is in none of the files.
fn visit_sets(
    whole: &Path,
    files: &[PathBuf],
    layout: &Layout,
    prefixes: &[&str],
    ignore: impl Fn(&str) -> bool,
    mut take: impl FnMut(usize, &TensorSpec, Dtype, &[u8]) -> std::result::Result<(), TensorError>,
) -> Result<()> {
    let mut wanted: HashMap<String, (&TensorSpec, usize)> = HashMap::new();
    for (i, prefix) in prefixes.iter().enumerate() {
        wanted.extend(layout.tensors.iter().map(|t| (format!("{prefix}{}", t.name), (t, i))));
    }
    let mut found: BTreeSet<String> = BTreeSet::new();
    for path in files {
        let map = map_file(path)?;
        let file = parse(path, &map)?;
        let mut names: Vec<&str> = file.names();
        names.sort_unstable();
        for name in names {
            let Some((spec, set)) = wanted.get(name).copied() else {
                if ignore(name) {
                    continue;
                }
                return Err(LmError::tensor(path, name, "is not a tensor of this model's shape"));
            };
            if !found.insert(name.to_owned()) {
                return Err(LmError::tensor(path, name, "was already in another file"));
            }
            let view = file.tensor(name).map_err(|e| safetensors_error(path, &e))?;
            if view.shape() != spec.shape {
                let message =
                    format!("has shape {:?}, but the configuration requires {:?}", view.shape(), spec.shape);
                return Err(LmError::tensor(path, name, message));
            }
            take(set, spec, view.dtype(), view.data()).map_err(|refused| match refused {
                TensorError::Tensor(message) => LmError::tensor(path, name, message),
                TensorError::Failed(error) => error,
            })?;
            release(&map, view.data());
        }
    }
    let mut missing: Vec<&String> = wanted.keys().filter(|name| !found.contains(*name)).collect();
    missing.sort_unstable();
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(LmError::tensor(whole, one, "is missing")),
        [one, more @ ..] => {
            let message = format!("is missing, and so are {} more", more.len());
            Err(LmError::tensor(whole, one, message))
        }
    }
}

/// Releases the pages of a part of a file, so that a model can be larger than the memory.
pub(crate) fn release(map: &memmap2::Mmap, part: &[u8]) {
    #[cfg(unix)]
    {
        let offset = part.as_ptr() as usize - map.as_ptr() as usize;
        // SAFETY: the map is a read-only map of a file; pages that are needed again are read again.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, part.len()) };
    }
}

/// Returns the safetensors files of a model folder: the single file, or the shards in its index.
fn tensor_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let single = dir.join("model.safetensors");
    let index = dir.join("model.safetensors.index.json");
    if single.exists() || !index.exists() {
        return Ok(vec![single]);
    }
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = crate::json::text(&index)?;
    let parsed: Index = serde_json::from_str(&text).map_err(LmError::json(&index))?;
    let shards: BTreeSet<&String> = parsed.weight_map.values().collect();
    for shard in &shards {
        // Shards are in the folder of their index; an index of unknown origin must not refer to files outside.
        if Path::new(shard.as_str()).components().count() != 1 || shard.starts_with('.') {
            return Err(LmError::Config {
                origin: index.display().to_string(),
                message: format!("shard {shard:?} is not a plain file name"),
            });
        }
    }
    Ok(shards.into_iter().map(|s| dir.join(s)).collect())
}

pub(crate) fn map_file(path: &Path) -> Result<memmap2::Mmap> {
    let file = sgs_base::files::open(path).map_err(LmError::io(path))?;
    // SAFETY: the map is read-only and is dropped before this module returns. Checkpoints are replaced by
    // rename and never rewritten in place, so the mapped pages do not change.
    unsafe { memmap2::Mmap::map(&file) }.map_err(LmError::io(path))
}

pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| safetensors_error(path, &e))
}

pub(crate) fn safetensors_error(path: &Path, error: &safetensors::SafeTensorError) -> LmError {
    LmError::Safetensors { path: path.to_path_buf(), message: error.to_string() }
}

/// Shape and values of every tensor of a file, by name.
pub type NamedTensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

/// Reads every tensor of a safetensors file as f32 (small integers exactly).
pub fn read_all(path: &Path) -> Result<NamedTensors> {
    let map = map_file(path)?;
    let file = parse(path, &map)?;
    let mut tensors = HashMap::new();
    for (name, view) in file.iter() {
        let mut values = vec![0.0; view.shape().iter().product()];
        decode(view.dtype(), view.data(), &mut values).map_err(|m| LmError::tensor(path, name, m))?;
        tensors.insert(name.to_owned(), (view.shape().to_vec(), values));
    }
    Ok(tensors)
}

/// Returns the number of bytes per element of a type that can be read.
fn width(dtype: Dtype) -> std::result::Result<usize, String> {
    match dtype {
        Dtype::F32 | Dtype::I32 => Ok(4),
        Dtype::BF16 | Dtype::F16 => Ok(2),
        other => Err(format!("has type {other:?}; F32, BF16 and F16 are supported")),
    }
}

/// Converts little-endian numbers of a file to f32; the parser has checked the length.
fn decode(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> std::result::Result<(), String> {
    fn each<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> f32 + Sync) {
        let (words, _) = bytes.as_chunks::<N>();
        out.par_iter_mut().with_min_len(1 << 14).zip(words).for_each(|(o, w)| *o = f(*w));
    }
    match dtype {
        Dtype::F32 => each(bytes, out, f32::from_le_bytes),
        Dtype::BF16 => each(bytes, out, |w| bf16::from_le_bytes(w).to_f32()),
        Dtype::F16 => each(bytes, out, |w| f16::from_le_bytes(w).to_f32()),
        Dtype::I32 => each(bytes, out, |w| i32::from_le_bytes(w) as f32),
        other => return Err(format!("has type {other:?}; F32, BF16 and F16 are supported")),
    }
    Ok(())
}

/// Returns the first NaN or infinity and its index.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<(usize, f32)> {
    // Unlike a search, a sum over a block is vectorised. It shows whether the block contains such a value.
    const BLOCK: usize = 1 << 12;
    for (i, block) in values.chunks(BLOCK).enumerate() {
        if block.iter().map(|v| u32::from(!v.is_finite())).sum::<u32>() > 0 {
            let found = block.iter().enumerate().find(|(_, v)| !v.is_finite());
            return found.map(|(j, v)| (i * BLOCK + j, *v));
        }
    }
    None
}

/// Reads elements of a flat buffer, starting at an index.
pub(crate) type TensorSource<'a> = &'a dyn Fn(usize, &mut [f32]) -> Result<()>;

/// A tensor to be written to a file; it is read and converted piece by piece.
pub(crate) struct TensorFile<'a> {
    /// Its name in the file.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Reads its elements.
    pub source: TensorSource<'a>,
    /// Index of its first element in `source`.
    pub from: usize,
    /// The type to write.
    pub file_type: FileType,
}

impl TensorFile<'_> {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn bytes(&self) -> usize {
        self.len() * self.file_type.width()
    }

    fn dtype(&self) -> Dtype {
        match self.file_type {
            FileType::F32 => Dtype::F32,
            FileType::Bf16 => Dtype::BF16,
        }
    }

    /// Passes the bytes for the file to `take`, piece by piece. Rejects NaN and infinity.
    fn encode(&self, path: &Path, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let width = self.file_type.width();
        let mut values = vec![0.0; READ_AT_ONCE.min(self.len())];
        let mut bytes = vec![0; ENCODED_AT_ONCE.min(self.len()) * width];
        for at in (0..self.len()).step_by(READ_AT_ONCE) {
            let values = &mut values[..READ_AT_ONCE.min(self.len() - at)];
            (self.source)(self.from + at, values)?;
            if let Some((i, value)) = first_not_finite(values) {
                let message = format!("element {} is {value}; a checkpoint would be unusable", at + i);
                return Err(LmError::tensor(path, &self.name, message));
            }
            for values in values.chunks(ENCODED_AT_ONCE) {
                let bytes = &mut bytes[..values.len() * width];
                match self.file_type {
                    FileType::F32 => put(values, bytes, f32::to_le_bytes),
                    FileType::Bf16 => put(values, bytes, |v| bf16::from_f32(v).to_le_bytes()),
                }
                take(bytes)?;
            }
        }
        Ok(())
    }
}

/// Number of elements that are read at a time. It is large because a GPU waits for all its streams when the buffer of a
/// read is freed.
const READ_AT_ONCE: usize = 1 << 20;

/// Number of elements that are converted at a time: few enough to stay in a core's cache while they are converted, hashed
/// and written.
const ENCODED_AT_ONCE: usize = 1 << 14;

/// Writes numbers as bytes.
fn put<const N: usize>(values: &[f32], bytes: &mut [u8], f: impl Fn(f32) -> [u8; N]) {
    let (words, _) = bytes.as_chunks_mut::<N>();
    for (word, value) in words.iter_mut().zip(values) {
        *word = f(*value);
    }
}

/// Returns all tensors of a layout, read from one source; `prefix` is prepended to their names.
pub(crate) fn tensors_of<'a>(
    layout: &Layout,
    prefix: &str,
    source: TensorSource<'a>,
    file_type: FileType,
) -> Vec<TensorFile<'a>> {
    let file = |t: &TensorSpec| TensorFile {
        name: format!("{prefix}{}", t.name),
        shape: t.shape.clone(),
        source,
        from: t.span.offset,
        file_type,
    };
    layout.tensors.iter().map(file).collect()
}

/// SHA-256 of written files that are flushed and published later.
pub type Sums = Vec<(PathBuf, [u8; 32])>;

/// Writes tensors to one safetensors file, piece by piece. A file that is flushed later is hashed while it is
/// written, so that it need not be read again for publication.
pub(crate) fn write_tensors(path: &Path, mut tensors: Vec<TensorFile<'_>>, flush: Flush) -> Result<Sums> {
    // The format requires wide elements first, so that all are aligned.
    tensors.sort_by(|a, b| (b.file_type.width(), &a.name).cmp(&(a.file_type.width(), &b.name)));
    let mut file =
        BufWriter::with_capacity(4 * ENCODED_AT_ONCE, File::create(path).map_err(LmError::io(path))?);
    let mut sum = (flush == Flush::Later).then(Sha256::new);
    let mut write = |bytes: &[u8]| {
        if let Some(sum) = &mut sum {
            sum.update(bytes);
        }
        file.write_all(bytes).map_err(LmError::io(path))
    };
    write(&head(path, &tensors)?)?;
    tensors.iter().try_for_each(|tensor| tensor.encode(path, &mut write))?;
    let file = file.into_inner().map_err(|error| LmError::io(path)(error.into_error()))?;
    if flush == Flush::Now {
        file.sync_all().map_err(LmError::io(path))?;
    }
    Ok(sum.map(|sum| (path.to_owned(), sum.finalize().into())).into_iter().collect())
}

/// Returns the header of a file: names, shapes and offsets of the tensors as JSON, preceded by its length.
fn head(path: &Path, tensors: &[TensorFile<'_>]) -> Result<Vec<u8>> {
    let mut end = 0;
    let infos = tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.bytes();
        let (dtype, shape) = (tensor.dtype(), tensor.shape.clone());
        (tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(about), infos.collect()).map_err(|e| safetensors_error(path, &e))?;
    let mut json = serde_json::to_vec(&metadata).map_err(LmError::json(path))?;
    // The tensors start at a multiple of eight bytes.
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// Writes a model's tensors as Hugging Face does: to `model.safetensors`, or, if that would be larger than
/// `largest_file` bytes, to files `model-00001-of-0000N.safetensors` with an index.
pub(crate) fn write_model_files(
    dir: &Path,
    tensors: Vec<TensorFile<'_>>,
    largest_file: usize,
    flush: Flush,
) -> Result<Sums> {
    let mut files: Vec<Vec<TensorFile<'_>>> = Vec::new();
    let (mut filled, mut total) = (0, 0);
    for tensor in tensors {
        let bytes = tensor.bytes();
        total += bytes;
        match files.last_mut() {
            Some(file) if filled + bytes <= largest_file => file.push(tensor),
            _ => {
                filled = 0;
                files.push(vec![tensor]);
            }
        }
        filled += bytes;
    }
    if files.len() <= 1 {
        let tensors = files.into_iter().flatten().collect();
        return write_tensors(&dir.join("model.safetensors"), tensors, flush);
    }
    let count = files.len();
    let (mut map, mut sums) = (BTreeMap::new(), Sums::new());
    for (i, file) in files.into_iter().enumerate() {
        let name = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
        map.extend(file.iter().map(|t| (t.name.clone(), name.clone())));
        sums.extend(write_tensors(&dir.join(name), file, flush)?);
    }
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": map });
    let path = dir.join("model.safetensors.index.json");
    let text = serde_json::to_vec_pretty(&index).map_err(LmError::json(&path))?;
    write_small(&path, &text, flush)?;
    Ok(sums)
}

/// Writes a small file.
pub(crate) fn write_small(path: &Path, bytes: &[u8], flush: Flush) -> Result<()> {
    let mut file = File::create(path).map_err(LmError::io(path))?;
    let written = file.write_all(bytes);
    let flushed = written.and_then(|()| if flush == Flush::Now { file.sync_all() } else { Ok(()) });
    flushed.map_err(LmError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_only_files_of_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let files = |shard: &str| {
            let index = serde_json::json!({ "weight_map": { "a": "model-1.safetensors", "b": shard } });
            std::fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
            tensor_files(dir.path())
        };
        assert_eq!(files("model-2.safetensors").unwrap().len(), 2);
        for outside in ["../model.safetensors", "/etc/hostname", "a/b.safetensors", "..", ".hidden", ""] {
            let error = files(outside).unwrap_err().to_string();
            assert!(error.contains("is not a plain file name"), "{outside}: {error}");
        }
    }

    #[test]
    fn the_first_number_that_is_not_finite_is_found_at_any_position() {
        let mut values = vec![f32::MAX; 10_000];
        assert_eq!(first_not_finite(&values), None);
        for at in [9_999, 8_192, 4_096, 4_095, 17, 0] {
            values[at] = if at % 2 == 0 { f32::NEG_INFINITY } else { f32::NAN };
            assert_eq!(first_not_finite(&values).map(|(i, _)| i), Some(at));
        }
    }
}
