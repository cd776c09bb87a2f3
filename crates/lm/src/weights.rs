//! Weights on the host in f32, read from and written to Hugging Face folders.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, View};

use crate::config::ModelConfig;
use crate::cpu::Floats;
use crate::error::{LmError, Result};
use crate::layout::{Layout, TensorSpec};
use crate::rng::Rng;

/// Element type of the tensors in a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// 32-bit floats: exact.
    F32,
    /// bfloat16: half the size, 8 bits of mantissa, rounded to nearest even.
    Bf16,
}

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
        let mut data = Floats::zeros(layout.len);
        read_tensors(dir, &layout, &mut data, |name| ignorable(name, config.tied_head))?;
        Ok(Self { config, layout, data })
    }

    /// One tensor's values by its Hugging Face name.
    pub fn tensor(&self, name: &str) -> Option<&[f32]> {
        self.layout.tensors.iter().find(|t| t.name == name).map(|t| &self.data[t.span.range()])
    }

    /// Writes `config.json` and `model.safetensors` into an existing folder; whoever needs the folder to
    /// appear whole writes it under a temporary name first (as checkpoints do).
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn save(&self, dir: &Path, file_type: FileType) -> Result<()> {
        save_model(dir, &self.config, &self.layout, &self.data, file_type)
    }
}

/// Writes `config.json` and `model.safetensors` of a model whose flat parameters are `data`.
///
/// # Errors
/// The files cannot be written.
pub fn save_model(
    dir: &Path,
    config: &ModelConfig,
    layout: &Layout,
    data: &[f32],
    file_type: FileType,
) -> Result<()> {
    let mut json = config.to_json();
    json["torch_dtype"] = match file_type {
        FileType::F32 => "float32".into(),
        FileType::Bf16 => "bfloat16".into(),
    };
    let text = serde_json::to_string_pretty(&json).map_err(LmError::json(&dir.join("config.json")))?;
    write_synced(&dir.join("config.json"), text.as_bytes())?;
    write_tensors(&dir.join("model.safetensors"), layout, &[("", data, file_type)])
}

/// Tensors that files of this family may hold and this engine recomputes or shares.
fn ignorable(name: &str, tied_head: bool) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (tied_head && name == "lm_head.weight")
}

/// Reads every tensor of `layout` from the safetensors files of a folder into `data`.
fn read_tensors(dir: &Path, layout: &Layout, data: &mut [f32], ignore: impl Fn(&str) -> bool) -> Result<()> {
    read_sets(dir, &tensor_files(dir)?, layout, &mut [("", data)], ignore)
}

/// Reads several sets of tensors from one file, each under its prefix and in the same layout.
pub(crate) fn read_prefixed(path: &Path, layout: &Layout, sets: &mut [(&str, &mut [f32])]) -> Result<()> {
    read_sets(path, &[path.to_path_buf()], layout, sets, |_| false)
}

/// Fills every tensor of every set (a prefix and a buffer in `layout`) from the files; `whole` names the
/// source of a tensor that is in none of them.
fn read_sets(
    whole: &Path,
    files: &[PathBuf],
    layout: &Layout,
    sets: &mut [(&str, &mut [f32])],
    ignore: impl Fn(&str) -> bool,
) -> Result<()> {
    let mut wanted: HashMap<String, (&TensorSpec, usize)> = HashMap::new();
    for (i, (prefix, _)) in sets.iter().enumerate() {
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
            let target = &mut sets[set].1[spec.span.range()];
            decode(view.dtype(), view.data(), target).map_err(|m| LmError::tensor(path, name, m))?;
            if let Some((at, value)) = first_not_finite(target) {
                return Err(LmError::tensor(path, name, format!("element {at} is {value}")));
            }
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

fn map_file(path: &Path) -> Result<memmap2::Mmap> {
    let file = File::open(path).map_err(LmError::io(path))?;
    // SAFETY: the map is read-only and dropped before this module returns; checkpoints are replaced by
    // rename, never rewritten in place, so the mapped pages do not change under us.
    unsafe { memmap2::Mmap::map(&file) }.map_err(LmError::io(path))
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| safetensors_error(path, &e))
}

fn safetensors_error(path: &Path, error: &safetensors::SafeTensorError) -> LmError {
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
    values.iter().enumerate().find(|(_, v)| !v.is_finite()).map(|(i, v)| (i, *v))
}

/// A set of tensors on its way into a file: prefix of the names, values in the layout, element type.
pub(crate) type TensorSet<'a> = (&'a str, &'a [f32], FileType);

/// Writes sets of tensors into one safetensors file and syncs it.
pub(crate) fn write_tensors(path: &Path, layout: &Layout, sets: &[TensorSet<'_>]) -> Result<()> {
    let tensors = sets.iter().flat_map(|(prefix, data, file_type)| {
        layout.tensors.iter().map(move |t| {
            let values = &data[t.span.range()];
            (format!("{prefix}{}", t.name), TensorFile { shape: &t.shape, values, file_type: *file_type })
        })
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|e| match e {
        safetensors::SafeTensorError::IoError(source) => LmError::Io { path: path.to_path_buf(), source },
        other => safetensors_error(path, &other),
    })?;
    File::open(path).and_then(|f| f.sync_all()).map_err(LmError::io(path))
}

/// Writes a small file and syncs it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    let mut file = File::create(path).map_err(LmError::io(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(LmError::io(path))
}

/// One tensor on its way into a file, converted when its turn comes.
struct TensorFile<'a> {
    shape: &'a [usize],
    values: &'a [f32],
    file_type: FileType,
}

impl View for TensorFile<'_> {
    fn dtype(&self) -> Dtype {
        match self.file_type {
            FileType::F32 => Dtype::F32,
            FileType::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match self.file_type {
            FileType::F32 => self.values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            FileType::Bf16 => self.values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        })
    }

    fn data_len(&self) -> usize {
        self.values.len()
            * match self.file_type {
                FileType::F32 => 4,
                FileType::Bf16 => 2,
            }
    }
}
