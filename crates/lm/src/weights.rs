//! Weights on the host in f32, read from and written to Hugging Face folders.

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
use crate::cpu::Floats;
use crate::error::{LmError, Result};
use crate::layout::{Layout, TensorSpec};
use crate::ranks::Shard;
use crate::rng::Rng;

/// Element type of the tensors in a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// 32-bit floats: exact.
    F32,
    /// bfloat16: half the size, 8 bits of mantissa, rounded to nearest even.
    Bf16,
}

impl FileType {
    /// Bytes of an element.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// When a file that was written is flushed to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// At once.
    Now,
    /// By whoever publishes the folder that it lies in; large files are summed on their way.
    Later,
}

/// Largest file of a model, in bytes, as Hugging Face has it by default.
pub const LARGEST_FILE: usize = 5_000_000_000;

/// A model's shape and all its parameters in one flat f32 buffer.
#[derive(Debug, Clone)]
pub struct HostWeights {
    /// The shape.
    pub config: ModelConfig,
    /// Where each tensor lies in `data`.
    pub layout: Layout,
    /// The parameters, `[layout.len]`; gaps for alignment are zero.
    pub data: Floats,
}

impl HostWeights {
    /// Fresh weights for training from scratch: normal with standard deviation 0.02 (projections into the
    /// residual stream scaled by `1 / sqrt(2 layers)`, GPT-2's rule), norms 1, biases 0.
    pub fn random(config: &ModelConfig, seed: u64) -> Self {
        let layout = Layout::new(config);
        let mut data = Floats::zeros(layout.len);
        let residual = 0.02 / (2.0 * config.layers as f32).sqrt();
        for (index, tensor) in layout.tensors.iter().enumerate() {
            let values = &mut data[tensor.span.range()];
            if tensor.name.ends_with("norm.weight") {
                values.fill(1.0);
            } else if tensor.shape.len() == 2 {
                let into_residual =
                    tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight");
                let scale = if into_residual { residual } else { 0.02 };
                let mut rng = Rng::new(seed, index as u64);
                values.iter_mut().for_each(|v| *v = scale * rng.normal());
            }
        }
        Self { config: config.clone(), layout, data }
    }

    /// Reads `config.json` and `model.safetensors` (or the shards that `model.safetensors.index.json`
    /// names) of a folder; f32, bf16 and f16 tensors.
    ///
    /// # Errors
    /// A file is absent, truncated or corrupt; a tensor is missing, unknown, of a wrong shape or type, or
    /// holds NaN or infinity. The error names the file and the tensor.
    pub fn load(dir: &Path) -> Result<Self> {
        let config = ModelConfig::load(dir)?;
        let layout = Layout::new(&config);
        check_shapes(dir, &config, &layout)?;
        let mut data = Floats::try_zeros(layout.len)?;
        visit_model(dir, &config, &layout, |spec, dtype, bytes| {
            let target = &mut data[spec.span.range()];
            decode(dtype, bytes, target).map_err(Refused::Tensor)?;
            match first_not_finite(target) {
                Some((at, value)) => Err(Refused::Tensor(format!("element {at} is {value}"))),
                None => Ok(()),
            }
        })?;
        Ok(Self { config, layout, data })
    }

    /// One tensor's values by its Hugging Face name.
    pub fn tensor(&self, name: &str) -> Option<&[f32]> {
        self.layout.tensors.iter().find(|t| t.name == name).map(|t| &self.data[t.span.range()])
    }

    /// Writes `config.json` and `model.safetensors` (or several, if it is large) into an existing folder; whoever
    /// needs the folder to appear whole writes it under a temporary name first (as checkpoints do).
    ///
    /// # Errors
    /// The files cannot be written, or a parameter is NaN or infinite.
    pub fn save(&self, dir: &Path, file_type: FileType) -> Result<()> {
        let read = |from: usize, to: &mut [f32]| {
            to.copy_from_slice(&self.data[from..from + to.len()]);
            Ok(())
        };
        let how = (file_type, LARGEST_FILE, Flush::Now);
        save_model(dir, &self.config, &self.layout, &read, how).map(drop)
    }
}

/// Writes `config.json` and the tensors of a model whose flat parameters `source` reads, a piece at a time; the largest
/// file is in bytes.
pub(crate) fn save_model(
    dir: &Path,
    config: &ModelConfig,
    layout: &Layout,
    source: Source<'_>,
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

/// Tensors that files of this family may hold and this engine recomputes or shares.
fn ignorable(name: &str, tied_head: bool) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (tied_head && name == "lm_head.weight")
}

/// Hands every tensor of a model folder to `take`, one after the other, as its bytes lie in the file: nothing is held
/// but what `take` keeps.
///
/// # Errors
/// As [`HostWeights::load`], or what `take` says of a tensor.
pub(crate) fn visit_model(
    dir: &Path,
    config: &ModelConfig,
    layout: &Layout,
    mut take: impl FnMut(&TensorSpec, Dtype, &[u8]) -> std::result::Result<(), Refused>,
) -> Result<()> {
    let ignore = |name: &str| ignorable(name, config.tied_head);
    visit_sets(dir, &tensor_files(dir)?, layout, &[""], ignore, |_, spec, dtype, bytes| {
        take(spec, dtype, bytes)
    })
}

/// Takes values and the place of the first in a packed shard.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[f32], usize) -> Result<()>;

/// Reads several sets of tensors from one file, each under its prefix; each buffer holds a shard.
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
                    sets[set].1(values, piece.at + at - from).map_err(Refused::Failed)
                })?;
            }
            Ok(())
        },
    )
}

/// Compares the shapes that the configuration asks for with those of the files, of which only the heads are read: before
/// any buffer of those sizes is made.
pub(crate) fn check_shapes(dir: &Path, config: &ModelConfig, layout: &Layout) -> Result<()> {
    visit_model(dir, config, layout, |_, _, _| Ok(()))
}

/// Why a tensor was not taken.
pub(crate) enum Refused {
    /// The tensor is at fault: what is wrong with it.
    Tensor(String),
    /// Something else is.
    Failed(LmError),
}

/// Elements that are converted at a time.
pub(crate) const PIECE: usize = 1 << 22;

/// Decodes a range of a tensor piece by piece and hands each, with its first element, to `take`; NaN and infinity are
/// refused.
pub(crate) fn in_pieces(
    dtype: Dtype,
    bytes: &[u8],
    range: std::ops::Range<usize>,
    mut take: impl FnMut(usize, &[f32]) -> std::result::Result<(), Refused>,
) -> std::result::Result<(), Refused> {
    let width = width(dtype).map_err(Refused::Tensor)?;
    let mut values = vec![0.0; PIECE.min(range.len())];
    let mut at = range.start;
    while at < range.end {
        let values = &mut values[..PIECE.min(range.end - at)];
        decode(dtype, &bytes[at * width..(at + values.len()) * width], values).map_err(Refused::Tensor)?;
        if let Some((i, value)) = first_not_finite(values) {
            return Err(Refused::Tensor(format!("element {} is {value}", at + i)));
        }
        take(at, values)?;
        at += values.len();
    }
    Ok(())
}

/// Hands every tensor of every set (names with a prefix, in `layout`) to `take`; `whole` names the source of a tensor
/// that is in none of the files.
fn visit_sets(
    whole: &Path,
    files: &[PathBuf],
    layout: &Layout,
    prefixes: &[&str],
    ignore: impl Fn(&str) -> bool,
    mut take: impl FnMut(usize, &TensorSpec, Dtype, &[u8]) -> std::result::Result<(), Refused>,
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
                    format!("has shape {:?}, the configuration asks for {:?}", view.shape(), spec.shape);
                return Err(LmError::tensor(path, name, message));
            }
            take(set, spec, view.dtype(), view.data()).map_err(|refused| match refused {
                Refused::Tensor(message) => LmError::tensor(path, name, message),
                Refused::Failed(error) => error,
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

/// Gives back the pages of a file's part that was read, so that a model larger than the memory can pass through.
pub(crate) fn release(map: &memmap2::Mmap, part: &[u8]) {
    #[cfg(unix)]
    {
        let offset = part.as_ptr() as usize - map.as_ptr() as usize;
        // SAFETY: the map is of a file and read-only: pages that are needed again are read again.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, part.len()) };
    }
}

/// The safetensors files of a model folder: the single file, or the shards of its index.
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
    let text = std::fs::read_to_string(&index).map_err(LmError::io(&index))?;
    let parsed: Index = serde_json::from_str(&text).map_err(LmError::json(&index))?;
    let shards: BTreeSet<&String> = parsed.weight_map.values().collect();
    for shard in &shards {
        // A shard lies beside its index; an index from elsewhere must not point out of the folder.
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
    let file = File::open(path).map_err(LmError::io(path))?;
    // SAFETY: the map is read-only and dropped before this module returns; checkpoints are replaced by
    // rename, never rewritten in place, so the mapped pages do not change under us.
    unsafe { memmap2::Mmap::map(&file) }.map_err(LmError::io(path))
}

pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| safetensors_error(path, &e))
}

pub(crate) fn safetensors_error(path: &Path, error: &safetensors::SafeTensorError) -> LmError {
    LmError::Safetensors { path: path.to_path_buf(), message: error.to_string() }
}

/// Shape and values of every tensor of a file, by name.
pub(crate) type NamedTensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

/// Reads every tensor of a safetensors file as f32 (small integers exactly).
pub(crate) fn read_all(path: &Path) -> Result<NamedTensors> {
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

/// Bytes of an element of a type that is read.
fn width(dtype: Dtype) -> std::result::Result<usize, String> {
    match dtype {
        Dtype::F32 | Dtype::I32 => Ok(4),
        Dtype::BF16 | Dtype::F16 => Ok(2),
        other => Err(format!("has type {other:?}; F32, BF16 and F16 are read")),
    }
}

/// Little-endian numbers of a file type to f32; the length was checked by the parser.
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
        other => return Err(format!("has type {other:?}; F32, BF16 and F16 are read")),
    }
    Ok(())
}

/// The first NaN or infinity and its index.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<(usize, f32)> {
    // A sum over a block says whether there is one in it, and unlike a search it takes many values at a time.
    const BLOCK: usize = 1 << 12;
    for (i, block) in values.chunks(BLOCK).enumerate() {
        if block.iter().map(|v| u32::from(!v.is_finite())).sum::<u32>() > 0 {
            let found = block.iter().enumerate().find(|(_, v)| !v.is_finite());
            return found.map(|(j, v)| (i * BLOCK + j, *v));
        }
    }
    None
}

/// Reads elements of a flat buffer, from one on.
pub(crate) type Source<'a> = &'a dyn Fn(usize, &mut [f32]) -> Result<()>;

/// One tensor on its way into a file, read and converted when its turn comes.
pub(crate) struct TensorFile<'a> {
    /// Its name in the file.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Where its elements come from.
    pub source: Source<'a>,
    /// The first of them.
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

    /// Hands on the bytes that the file holds, a stretch at a time; NaN and infinity are refused.
    fn encode(&self, path: &Path, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let width = self.file_type.width();
        let mut values = vec![0.0; ENCODED_AT_ONCE.min(self.len())];
        let mut bytes = vec![0; values.len() * width];
        for at in (0..self.len()).step_by(ENCODED_AT_ONCE) {
            let count = ENCODED_AT_ONCE.min(self.len() - at);
            let (values, bytes) = (&mut values[..count], &mut bytes[..count * width]);
            (self.source)(self.from + at, values)?;
            if let Some((i, value)) = first_not_finite(values) {
                let message = format!("element {} is {value}; a checkpoint of it would be of no use", at + i);
                return Err(LmError::tensor(path, &self.name, message));
            }
            match self.file_type {
                FileType::F32 => put(values, bytes, f32::to_le_bytes),
                FileType::Bf16 => put(values, bytes, |v| bf16::from_f32(v).to_le_bytes()),
            }
            take(bytes)?;
        }
        Ok(())
    }
}

/// Elements of a tensor that are converted at a time on their way into a file: few enough to stay in a core's cache while
/// they are checked, converted, summed and written.
const ENCODED_AT_ONCE: usize = 1 << 14;

/// Numbers as the bytes of a file.
fn put<const N: usize>(values: &[f32], bytes: &mut [u8], f: impl Fn(f32) -> [u8; N]) {
    let (words, _) = bytes.as_chunks_mut::<N>();
    for (word, value) in words.iter_mut().zip(values) {
        *word = f(*value);
    }
}

/// All tensors of a layout from one source, with a prefix to their names.
pub(crate) fn tensors_of<'a>(
    layout: &Layout,
    prefix: &str,
    source: Source<'a>,
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

/// SHA-256 of files that were written for somebody else to flush and publish.
pub type Sums = Vec<(PathBuf, [u8; 32])>;

/// Writes tensors into one safetensors file, a stretch at a time. One that is flushed later is summed on its way, so that
/// whoever publishes it need not read it again.
pub(crate) fn write_tensors(path: &Path, mut tensors: Vec<TensorFile<'_>>, flush: Flush) -> Result<Sums> {
    // As the format wants them: those of wide elements first, which keeps all aligned.
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

/// What stands before the tensors of a file: names, shapes and places as JSON, and how long that is.
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
    // The tensors begin at a multiple of eight bytes.
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// Writes a model's tensors as Hugging Face does: `model.safetensors`, or where that would be larger than
/// `largest_file` bytes, files `model-00001-of-0000N.safetensors` and an index of them.
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
        return write_tensors(&dir.join("model.safetensors"), files.pop().unwrap_or_default(), flush);
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
    fn the_first_number_that_is_none_is_found_wherever_it_stands() {
        let mut values = vec![f32::MAX; 10_000];
        assert_eq!(first_not_finite(&values), None);
        for at in [9_999, 8_192, 4_096, 4_095, 17, 0] {
            values[at] = if at % 2 == 0 { f32::NEG_INFINITY } else { f32::NAN };
            assert_eq!(first_not_finite(&values).map(|(i, _)| i), Some(at));
        }
    }
}
