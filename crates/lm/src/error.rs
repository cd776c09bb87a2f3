//! What can go wrong with a language model, said with the file, tensor or number concerned.

use std::path::{Path, PathBuf};

/// An error of the language model: every variant names where it happened and what was found there.
#[derive(Debug, thiserror::Error)]
pub enum LmError {
    /// A file or folder could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// A JSON file is not what its name promises.
    #[error("{}: {error}", path.display())]
    Json {
        path: PathBuf,
        /// Where and why parsing stopped.
        error: serde_json::Error,
    },
    /// `config.json` describes a model that this engine does not run, or contradicts itself.
    #[error("{origin}: {message}")]
    Config {
        /// The file, or "model configuration" when there is none.
        origin: String,
        /// The field, its value and what is accepted.
        message: String,
    },
    /// A file of tensors is truncated, corrupt or not safetensors.
    #[error("{}: not a readable safetensors file: {message}", path.display())]
    Safetensors {
        path: PathBuf,
        /// What the parser said.
        message: String,
    },
    /// A tensor is missing, unknown, of a wrong shape or type, or holds NaN or infinity.
    #[error("{}: tensor {tensor}: {message}", path.display())]
    Tensor {
        /// The file (or folder, for a tensor that is in none of its files).
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// What is wrong with it.
        message: String,
    },
    /// The arguments of a call contradict each other or the model.
    #[error("{0}")]
    Input(String),
    /// A loss or gradient became NaN or infinite; nothing was updated.
    #[error(
        "training stopped at step {step}, batch {batch}: {what} is not finite ({value}); the weights are those after the last finite step"
    )]
    NotFinite {
        /// The optimiser step, counted from 0.
        step: u64,
        /// The batch within the call, counted from 0.
        batch: usize,
        /// The loss or the first offending tensor.
        what: String,
        value: f64,
    },
    /// Another rank of a training is gone, did not come, or does not fit; it is named.
    #[error("{message}")]
    Rank {
        /// Which rank, where, and what became of it.
        message: String,
    },
    /// Something does not fit into a device's memory.
    #[error(
        "device {device}: {what} needs {} and {} is free; {hint}",
        crate::error::bytes(*needed), crate::error::bytes(*free)
    )]
    Memory {
        device: String,
        /// What was to be placed there.
        what: String,
        /// Bytes of it.
        needed: usize,
        /// Bytes free.
        free: usize,
        /// What to make smaller.
        hint: String,
    },
    /// The device refused a request.
    #[error("device {device}: {message}")]
    Device { device: String, message: String },
}

/// Bytes for people, with the exact number where they are rounded.
pub(crate) fn bytes(n: usize) -> String {
    let size = n as f64;
    for (unit, shift) in [("GiB", 30), ("MiB", 20)] {
        if n >> shift > 0 {
            return format!("{:.2} {unit} ({n} bytes)", size / f64::from(1u32 << shift));
        }
    }
    format!("{n} bytes")
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, LmError>;

impl LmError {
    /// Names the path at which an operating-system error happened.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Self::Io { path: path.to_path_buf(), error }
    }

    /// Names the file in which JSON did not parse.
    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self + '_ {
        move |error| Self::Json { path: path.to_path_buf(), error }
    }

    /// An error about one tensor of one file.
    pub(crate) fn tensor(path: &Path, tensor: &str, message: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_path_buf(), tensor: tensor.to_owned(), message: message.into() }
    }
}
