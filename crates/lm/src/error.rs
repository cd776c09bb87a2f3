//! Errors of the language model, with the file, tensor or number concerned.

use std::path::{Path, PathBuf};

/// An error of the language model. Every variant says where the error occurred and what was found there.
#[derive(Debug, thiserror::Error)]
pub enum LmError {
    /// A file or folder could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A JSON file is invalid.
    #[error("{}: {error}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Position and cause.
        error: serde_json::Error,
    },
    /// `config.json` is inconsistent, or describes a model that is not supported.
    #[error("{origin}: {message}")]
    Config {
        /// The file, or "model configuration" if there is none.
        origin: String,
        /// The field, its value and the accepted values.
        message: String,
    },
    /// A file of tensors is truncated, corrupt or not in the safetensors format.
    #[error("{}: not a readable safetensors file: {message}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        message: String,
    },
    /// A tensor is missing or unknown, has a wrong shape or type, or contains NaN or infinity.
    #[error("{}: tensor {tensor}: {message}", path.display())]
    Tensor {
        /// The file, or the folder if none of its files contains the tensor.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// What is wrong with it.
        message: String,
    },
    /// The arguments of a call are inconsistent with each other or with the model.
    #[error("{0}")]
    Input(String),
    /// A loss or gradient is NaN or infinite; nothing was updated.
    #[error(
        "training stopped at step {step}, batch {batch}: {what} is not finite ({value}); the weights are those after the last finite step"
    )]
    NotFinite {
        /// The optimiser step, counted from 0.
        step: u64,
        /// The batch within the call, counted from 0.
        batch: usize,
        /// The loss or the first such tensor.
        what: String,
        /// The value that is not finite.
        value: f64,
    },
    /// Another rank is lost, did not connect, or has a different configuration.
    #[error("{message}")]
    Rank {
        /// Which rank, where, and what happened to it.
        message: String,
    },
    /// Something does not fit into a device's memory.
    #[error(
        "device {device}: {what} needs {} and {} is free; {hint}",
        crate::error::bytes(*needed), crate::error::bytes(*free)
    )]
    Memory {
        /// Name of the device.
        device: String,
        /// What was to be allocated.
        what: String,
        /// Its size in bytes.
        needed: usize,
        /// Free memory in bytes.
        free: usize,
        /// What to reduce.
        hint: String,
    },
    /// The device rejected a request.
    #[error("device {device}: {message}")]
    Device {
        /// Name of the device.
        device: String,
        /// The device's error.
        message: String,
    },
}

/// Formats a number of bytes for users, with the exact number if it is rounded.
pub(crate) fn bytes(n: usize) -> String {
    let size = n as f64;
    for (unit, shift) in [("GiB", 30), ("MiB", 20)] {
        if n >> shift > 0 {
            return format!("{:.2} {unit} ({n} bytes)", size / f64::from(1u32 << shift));
        }
    }
    format!("{n} bytes")
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, LmError>;

impl LmError {
    /// Adds the path to an operating-system error.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Self::Io { path: path.to_path_buf(), error }
    }

    /// Adds the path to a JSON error.
    pub fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self + '_ {
        move |error| Self::Json { path: path.to_path_buf(), error }
    }

    /// Creates an error about one tensor of a file.
    pub fn tensor(path: &Path, tensor: &str, message: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_path_buf(), tensor: tensor.to_owned(), message: message.into() }
    }
}
