//! The error of this crate and of the crates that build on it, and how its causes are reported.

use crate::exit::Code;
use sgs_endpoint::EndpointError;
use sgs_lm::LmError;
use sgs_lm_sampler::SamplerError;
use std::error::Error;
use std::fmt;

/// A result with this crate's error.
pub type Result<T, E = RunError> = std::result::Result<T, E>;

/// A request that cannot be carried out: it has an unknown name, a value out of range, or options that exclude each
/// other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

impl Usage {
    /// Converts an error about the request. The text contains all causes, separated by colons.
    pub fn of(error: impl Error) -> Self {
        Self(format!("{error}{}", causes(&error)))
    }
}

/// Returns the causes of an error, each after a colon.
fn causes(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |&cause| cause.source()).map(|cause| format!(": {cause}")).collect()
}

/// The reason why an operation of this crate failed.
///
/// `{}` prints the message of the error itself; `{:#}` appends its causes, separated by colons.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The caller's request is invalid; nothing was started.
    Usage(Usage),
    /// A training rank was lost, did not join, or does not match this process.
    RankLost(LmError),
    /// A device has too little free memory for buffers whose sizes follow from the configuration.
    DeviceMemory(LmError),
    /// Two workers gave contradictory verdicts on the same proof.
    Disagreement(String),
    Endpoint(EndpointError),
    /// The run cannot begin with this configuration, for the reason that the message gives.
    CannotBegin(String),
    /// A step failed for the reason that the message gives.
    Failed(String),
    /// Another error, with a description of the operation that failed.
    Context {
        /// The operation that failed.
        what: String,
        /// The error that occurred.
        source: Box<RunError>,
    },
    /// An error of another library, or of the caller's observer.
    Other(Box<dyn Error + Send + Sync>),
}

impl RunError {
    /// Returns the error below all [`RunError::Context`] layers.
    pub fn root(&self) -> &Self {
        match self {
            Self::Context { source, .. } => source.root(),
            other => other,
        }
    }

    /// Returns the exit code of a process that ends with this error.
    pub fn code(&self) -> Code {
        match self.root() {
            Self::Usage(_) => Code::Usage,
            Self::RankLost(_) => Code::RankLost,
            _ => Code::Failed,
        }
    }

    /// Adds a description of the operation that failed.
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self::Context { what: what.to_string(), source: Box::new(self) }
    }

    /// Returns the error of an endpoint, if the endpoint cannot be used after this error.
    pub(crate) fn final_endpoint_error(&self) -> Option<&EndpointError> {
        match self.root() {
            Self::Endpoint(error) => Some(error).filter(|error| error.is_final()),
            _ => None,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => write!(f, "{error}")?,
            Self::RankLost(error) | Self::DeviceMemory(error) => write!(f, "{error}")?,
            Self::Endpoint(error) => write!(f, "{error}")?,
            Self::Disagreement(what)
            | Self::CannotBegin(what)
            | Self::Failed(what)
            | Self::Context { what, .. } => f.write_str(what)?,
            Self::Other(error) => write!(f, "{error}")?,
        }
        if f.alternate() {
            f.write_str(&causes(self))?;
        }
        Ok(())
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Usage(error) => error.source(),
            Self::RankLost(error) | Self::DeviceMemory(error) => error.source(),
            Self::Endpoint(error) => error.source(),
            Self::Disagreement(_) | Self::CannotBegin(_) | Self::Failed(_) => None,
            Self::Context { source, .. } => Some(source),
            Self::Other(error) => error.source(),
        }
    }
}

impl From<LmError> for RunError {
    fn from(error: LmError) -> Self {
        match error {
            lost @ LmError::Rank { .. } => Self::RankLost(lost),
            memory @ LmError::Memory { .. } => Self::DeviceMemory(memory),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<SamplerError> for RunError {
    fn from(error: SamplerError) -> Self {
        match error {
            SamplerError::Device(error) => error.into(),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<Usage> for RunError {
    fn from(error: Usage) -> Self {
        Self::Usage(error)
    }
}

impl From<sgs_keys::FileError> for RunError {
    fn from(error: sgs_keys::FileError) -> Self {
        Self::Usage(Usage::of(error))
    }
}

impl From<sgs_rundir::Error> for RunError {
    fn from(error: sgs_rundir::Error) -> Self {
        if error.is_unusable() { Self::Usage(Usage::of(error)) } else { Self::Other(Box::new(error)) }
    }
}

impl From<Box<dyn Error + Send + Sync>> for RunError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::Other(error)
    }
}

impl From<EndpointError> for RunError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

macro_rules! other_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for RunError {
            fn from(error: $error) -> Self {
                Self::Other(Box::new(error))
            }
        })*
    };
}

other_errors!(
    std::env::VarError,
    std::io::Error,
    std::num::ParseIntError,
    std::str::Utf8Error,
    serde_json::Error,
    parquet::errors::ParquetError,
    postcard::Error,
    toml::de::Error,
    toml::ser::Error,
    sgs_formal::Malformed,
    sgs_formal::NoDerivations,
    sgs_fleet::CallError,
    sgs_fleet::SubmitError,
    sgs_fleet::CrashLoop,
    sgs_fleet::LaunchError,
    sgs_fleet::NameError,
    sgs_fleet::ServiceError,
    sgs_fleet::TokenError,
    sgs_fleet::WorkerError,
    sgs_tls::TlsFilesError,
    sgs_external::Fault,
    sgs_lean::SettingsError,
    sgs_lean::StartError,
    sgs_lean::VersionError,
    sgs_lean::data::DataSetError,
    sgs_lean::data::RecordError,
    sgs_metamath::slice::SliceError,
    sgs_metamath::source::DatabaseError,
    sgs_metamath::theory::TheoryError,
    sgs_selfplay::RoundError,
    sgs_selfplay::RoundNotComplete,
    sgs_selfplay::state::RoundOutOfOrder,
);

/// Adds a description of the failed operation to an error.
pub trait Context<T> {
    /// Attaches a fixed description.
    fn context(self, what: impl fmt::Display) -> Result<T>;

    /// Attaches a description that is only built for an error.
    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Into<RunError>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.ok_or_else(|| RunError::Failed(what.to_string()))
    }

    fn with_context<W: fmt::Display>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.ok_or_else(|| RunError::Failed(what().to_string()))
    }
}

/// Returns a [`RunError::Failed`] with a formatted message.
#[macro_export]
macro_rules! bail {
    ($($message:tt)*) => {
        return Err($crate::error::RunError::Failed(format!($($message)*)))
    };
}

/// Returns a [`RunError::Failed`] unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            $crate::bail!($($message)*);
        }
    };
}

pub use {bail, ensure};
