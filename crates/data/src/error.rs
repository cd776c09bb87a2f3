//! The error of this crate.

use sgs_lm::LmError;
use sgs_run::{Code, RunError, Usage};
use std::error::Error;
use std::fmt;

/// A result of this crate.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Why corpora, a base model or a problem set could not be made.
///
/// `{}` prints the message of the error itself; `{:#}` appends its causes, separated by colons.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// An operation of the crate `sgs-run` failed.
    Run(RunError),
    /// The file system refused an operation.
    Io(std::io::Error),
    /// A step failed for the reason that the message gives.
    Failed(String),
    /// What was being done when another error occurred.
    Context {
        /// What was being done.
        what: String,
        /// The error that occurred.
        source: Box<DataError>,
    },
    /// An error of the caller's observer, or of another library.
    Other(Box<dyn Error + Send + Sync>),
}

impl DataError {
    /// The error below all [`DataError::Context`] layers.
    pub fn root(&self) -> &Self {
        match self {
            Self::Context { source, .. } => source.root(),
            other => other,
        }
    }

    /// The exit code of a process that ends with this error.
    pub fn code(&self) -> Code {
        match self.root() {
            Self::Run(error) => error.code(),
            _ => Code::Failed,
        }
    }

    /// Adds what was being done.
    #[must_use]
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self::Context { what: what.to_string(), source: Box::new(self) }
    }

    /// The error that this one wraps, or this one if it wraps none.
    fn wrapped(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Run(error) => error,
            Self::Io(error) => error,
            Self::Other(error) => error.as_ref(),
            Self::Failed(_) | Self::Context { .. } => self,
        }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => write!(f, "{error}")?,
            Self::Io(error) => write!(f, "{error}")?,
            Self::Failed(what) | Self::Context { what, .. } => f.write_str(what)?,
            Self::Other(error) => write!(f, "{error}")?,
        }
        if f.alternate() {
            let mut cause = self.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl Error for DataError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(_) => None,
            // The wrapped error itself, so that a caller finds its type in the chain of causes.
            Self::Context { source, .. } => Some(source.wrapped()),
            Self::Run(_) | Self::Io(_) | Self::Other(_) => self.wrapped().source(),
        }
    }
}

impl From<RunError> for DataError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<Usage> for DataError {
    fn from(error: Usage) -> Self {
        Self::Run(error.into())
    }
}

impl From<LmError> for DataError {
    fn from(error: LmError) -> Self {
        Self::Run(error.into())
    }
}

impl From<std::io::Error> for DataError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Box<dyn Error + Send + Sync>> for DataError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::Other(error)
    }
}

macro_rules! other_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for DataError {
            fn from(error: $error) -> Self {
                Self::Other(Box::new(error))
            }
        })*
    };
}

other_errors!(
    serde_json::Error,
    std::str::Utf8Error,
    sgs_endpoint::EndpointError,
    sgs_keys::FileError,
    sgs_lean::StartError,
    sgs_lean::data::DataSetError,
    sgs_lean::data::RecordError,
    sgs_metamath::slice::SliceError,
    sgs_metamath::source::DatabaseError,
    sgs_metamath::system::SystemError,
    sgs_metamath::theory::TheoryError,
    sgs_rundir::Error,
);

/// Attaches a description of what was being done to an error.
pub(crate) trait Context<T> {
    /// Attaches a fixed description.
    fn context(self, what: impl fmt::Display) -> Result<T>;

    /// Attaches a description that is only built for an error.
    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Into<DataError>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.ok_or_else(|| DataError::Failed(what.to_string()))
    }

    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.ok_or_else(|| DataError::Failed(what().to_string()))
    }
}

/// Returns a [`DataError::Failed`] with a formatted message.
macro_rules! bail {
    ($($message:tt)*) => {
        return Err($crate::error::DataError::Failed(format!($($message)*)))
    };
}

pub(crate) use bail;
