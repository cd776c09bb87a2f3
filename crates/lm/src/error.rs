//! Errors of the language model, with the file, tensor or number concerned.

use std::path::{Path, PathBuf};

/// An error of the language model. Every variant says where the error occurred and what was found there.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum LmError {
    /// A file or folder could not be read or written.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// A JSON file is invalid.
    #[error("{}: {error}", path.display())]
    Json { path: PathBuf, error: serde_json::Error },
    /// `config.json` is inconsistent, or describes a model that is not supported.
    #[error("{origin}: {message}")]
    Config { origin: String, message: String },
    #[error("{}: not a readable safetensors file: {message}", path.display())]
    Safetensors { path: PathBuf, message: String },
    /// A tensor is missing or unknown, has a wrong shape or type, or contains NaN or infinity.
    #[error("{}: tensor {tensor}: {message}", path.display())]
    Tensor { path: PathBuf, tensor: String, message: String },
    /// The arguments of a call are inconsistent with each other or with the model.
    #[error("{0}")]
    Input(String),
    #[error(
        "training stopped at step {step}, batch {batch}: {what} is not finite ({value}); the weights are those after the last finite step"
    )]
    NotFinite { step: u64, batch: usize, what: String, value: f64 },
    /// Another rank is lost, did not connect, or has a different configuration.
    #[error("{message}")]
    Rank { message: String },
    #[error(
        "device {device}: {what} needs {} and {} is free; {hint}",
        crate::error::bytes(*needed), crate::error::bytes(*free)
    )]
    Memory { device: String, what: String, needed: usize, free: usize, hint: String },
    /// The device rejected a request.
    #[error("device {device}: {message}")]
    Device { device: String, message: String },
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

    /// Names the file that an inconsistent configuration comes from.
    pub(crate) fn in_file(self, file: impl Into<String>) -> Self {
        match self {
            Self::Config { message, .. } => Self::Config { origin: file.into(), message },
            other => other,
        }
    }

    /// Creates an error about one tensor of a file.
    pub fn tensor(path: &Path, tensor: &str, message: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_path_buf(), tensor: tensor.to_owned(), message: message.into() }
    }
}
