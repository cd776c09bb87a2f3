//! Errors of a run's files, with messages that say what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Result of an operation on a run's files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that a caller's closure returned.
pub type CallerError = Box<dyn std::error::Error + Send + Sync>;

/// An error of an operation on a run's files: what went wrong, where, and what to do.
///
/// The message includes the cause, except for [`Error::Caller`], whose cause is its source. A cause is never both, because
/// it would be printed twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "`path`, `what` and `advice` are used as in `Damaged` everywhere")]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {}", path.display(), explain(error))]
    Io {
        /// The operation, as a verb for the message.
        action: &'static str,
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another process holds the run's lock.
    #[error(
        "run {} is in use by {holder}: wait for that process to end, or stop it",
        run.display()
    )]
    InUse {
        /// The run's directory.
        run: PathBuf,
        /// The process that holds the lock, according to the lock file.
        holder: String,
    },
    /// The directory contains no run.
    #[error(
        "{} is not a run: {}; give a folder that `sgs run` created",
        path.display(),
        if path.is_file() { "it is a file" } else { "it has no config.toml" }
    )]
    NotARun { path: PathBuf },
    /// A run cannot be created in a directory because of its contents.
    #[error("{} already holds {what}: choose another folder (--out)", path.display())]
    Taken { path: PathBuf, what: String },
    /// A configuration is not valid TOML or uses a reserved name.
    #[error("the configuration {}: {what}", path.display())]
    Config {
        /// The file, which may not exist yet.
        path: PathBuf,
        what: String,
    },
    /// The configuration differs from the one that the run was started with.
    #[error(
        "the configuration differs from the one frozen in {}: {}; resume without changes, or start a new run",
        path.display(),
        differences.join("; ")
    )]
    ConfigDiffers {
        path: PathBuf,
        /// One clause for each key that differs.
        differences: Vec<String>,
    },
    /// A file is torn, altered or missing.
    #[error("{} is damaged: {what}; {advice}", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// The problem.
        what: String,
        /// How to repair it.
        advice: String,
    },
    /// The directory is already published.
    #[error("{} is already published and is never overwritten", path.display())]
    Published { path: PathBuf },
    /// A step of a round was requested out of order.
    #[error("round {round} cannot {what}")]
    OutOfTurn {
        /// The round.
        round: u32,
        /// The step, and the stage that the run has reached.
        what: String,
    },
    /// An SQLite operation on the journal failed.
    #[error("cannot {action} {}: {}", path.display(), explain_sqlite(error))]
    Journal {
        /// The operation, as a verb for the message.
        action: &'static str,
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The journal stopped after an earlier error and acknowledges nothing more.
    #[error(
        "the journal {} stopped: {cause}; acknowledged records are safe: fix the cause and resume",
        path.display()
    )]
    JournalStopped {
        path: PathBuf,
        /// The first error.
        cause: Arc<str>,
    },
    /// A wait timed out.
    #[error("timed out after {:.1} s waiting for {what}", waited.as_secs_f64())]
    Deadline {
        what: String,
        /// The timeout.
        waited: Duration,
    },
    /// A Parquet file cannot be read or written.
    #[error("Parquet file {}: {}", path.display(), error)]
    Parquet {
        path: PathBuf,
        /// The library's error.
        error: parquet::errors::ParquetError,
    },
    /// A table's content does not match its schema.
    #[error("table {}{}: {what}", path.display(), row.map(|r| format!(", row {r}")).unwrap_or_default())]
    Table {
        path: PathBuf,
        /// The row, or the line of a JSON Lines file, counted from 1, if one is known.
        row: Option<u64>,
        /// The problem, with the column's name.
        what: String,
    },
    /// A schema is invalid.
    #[error("table schema: {0}")]
    Schema(String),
    /// The caller's closure failed while it filled a directory.
    #[error("{} was not written", path.display())]
    Caller {
        /// The directory.
        path: PathBuf,
        /// The caller's error.
        source: CallerError,
    },
}

impl Error {
    /// Returns whether the caller named a folder that cannot be used as requested: not a run, another run, or a run in use.
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::NotARun { .. } | Self::Taken { .. } | Self::InUse { .. })
    }

    /// Returns a converter from an operating system error to [`Error::Io`].
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |error| Self::Io { action, path, error }
    }

    /// Creates an [`Error::Damaged`].
    pub(crate) fn damaged(path: &Path, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), what: what.into(), advice: advice.into() }
    }

    /// Returns whether a file operation failed because the file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the operation failed because of missing permissions. The file itself may be intact.
    pub fn is_permission_denied(&self) -> bool {
        use rusqlite::ErrorCode as C;
        match self {
            Self::Io { error, .. } => {
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
            }
            Self::Journal { error, .. } => {
                matches!(error.sqlite_error_code(), Some(C::CannotOpen | C::ReadOnly | C::PermissionDenied))
            }
            _ => false,
        }
    }
}

fn explain(error: &io::Error) -> String {
    use io::ErrorKind as K;
    match error.kind() {
        K::StorageFull => format!("the disk is full: free some space, then resume ({error})"),
        K::QuotaExceeded => format!("the disk quota is used up: free some space, then resume ({error})"),
        K::ReadOnlyFilesystem => {
            format!("the file system is mounted read-only: choose another folder ({error})")
        }
        K::PermissionDenied => format!("make the folder writable or choose another one ({error})"),
        _ => error.to_string(),
    }
}

fn explain_sqlite(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode as C;
    match error.sqlite_error_code() {
        Some(C::DiskFull) => "the disk is full: free some space, then resume".into(),
        Some(C::ReadOnly) => "the file or its file system is read-only: make it writable".into(),
        Some(C::CannotOpen) => format!("{error}: check that the folder exists and is writable"),
        Some(C::DatabaseBusy | C::DatabaseLocked) => {
            "another program has locked it: close that program, then resume".into()
        }
        _ => error.to_string(),
    }
}
