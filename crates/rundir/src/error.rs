//! What can go wrong with a run on disk, said so that a person knows what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Result of an operation on a run's files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that a caller's own closure returned.
pub type CallerError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong, where, and what to do about it. A message that explains what the system said has it within; where
/// it does not ([`Error::Caller`]), the cause is the error's source. Never both, or it would be told twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {}", path.display(), explain(error))]
    Io {
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// Another process holds the run's lock.
    #[error(
        "run {} is in use by {holder}: wait for it or stop it; the lock goes when that process ends",
        run.display()
    )]
    InUse {
        /// The run's directory.
        run: PathBuf,
        /// Who holds the lock, as far as the lock file tells.
        holder: String,
    },
    /// The directory holds no run.
    #[error("{} is not a run: {what}", path.display())]
    NotARun { path: PathBuf, what: String },
    /// A new run was asked for in a place that is taken.
    #[error("{} already holds {what}: choose another directory, or resume the run in it", path.display())]
    Taken { path: PathBuf, what: String },
    /// A configuration is not TOML or uses a reserved name.
    #[error("the configuration {}: {what}", path.display())]
    Config {
        /// The file, or the place where it would be written.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The configuration given differs from the one the run was started with.
    #[error(
        "the configuration differs from the one frozen in {}: {}; resume without changes, or start a new run",
        path.display(),
        differences.join("; ")
    )]
    ConfigDiffers {
        path: PathBuf,
        /// One sentence for each key that differs.
        differences: Vec<String>,
    },
    /// A file is torn, altered or missing.
    #[error("{} is damaged: {what}; {advice}", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// What does not hold.
        what: String,
        advice: String,
    },
    /// A directory is published once only.
    #[error("{} is already published and is never overwritten", path.display())]
    Published { path: PathBuf },
    /// A step of a round was asked for out of its turn.
    #[error("round {round} cannot {what}")]
    OutOfTurn {
        round: u32,
        /// What was asked for and why it is not its turn.
        what: String,
    },
    /// SQLite refused an operation on the journal.
    #[error("cannot {action} {}: {}", path.display(), explain_sqlite(error))]
    Journal {
        action: &'static str,
        /// The journal's file.
        path: PathBuf,
        /// SQLite's answer.
        error: rusqlite::Error,
    },
    /// The journal stopped at an earlier error; nothing more is acknowledged.
    #[error("the journal {} stopped: {cause}; what it acknowledged is safe: mend the cause and resume", path.display())]
    JournalStopped {
        /// The journal's file.
        path: PathBuf,
        /// The first error.
        cause: Arc<str>,
    },
    /// A wait ended at its deadline.
    #[error("waited {:.1} s for {what} in vain", waited.as_secs_f64())]
    Deadline {
        /// What was waited for.
        what: String,
        waited: Duration,
    },
    /// A Parquet file could not be read or written.
    #[error("Parquet file {}: {}", path.display(), error)]
    Parquet {
        path: PathBuf,
        /// The library's answer.
        error: parquet::errors::ParquetError,
    },
    /// A table's content does not fit its schema.
    #[error("table {}{}: {what}", path.display(), row.map(|r| format!(", row {r}")).unwrap_or_default())]
    Table {
        path: PathBuf,
        /// The row (for JSON Lines: the line), counted from 1, where one is to blame.
        row: Option<u64>,
        /// What does not fit, with the column's name.
        what: String,
    },
    /// A schema is not usable.
    #[error("table schema: {0}")]
    Schema(String),
    /// The caller's own code failed while it filled a directory that was to be published.
    #[error("{} was not written", path.display())]
    Caller {
        /// The directory that was to appear.
        path: PathBuf,
        /// The caller's error.
        source: CallerError,
    },
}

impl Error {
    /// A file error with its path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |error| Self::Io { action, path, error }
    }

    /// A damaged file.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), what: what.into(), advice: advice.into() }
    }

    /// Whether the disk or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { error, .. } => is_full(error),
            Self::Journal { error, .. } => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            _ => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn explain(error: &io::Error) -> String {
    use io::ErrorKind as K;
    match error.kind() {
        K::StorageFull => format!("the disk is full: free some space, then resume ({error})"),
        K::QuotaExceeded => format!("the disk quota is used up: free some space, then resume ({error})"),
        K::ReadOnlyFilesystem => {
            format!("the file system is mounted read-only: choose another directory ({error})")
        }
        K::PermissionDenied => format!("make the directory writable or choose another one ({error})"),
        _ => error.to_string(),
    }
}

fn explain_sqlite(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode as C;
    match error.sqlite_error_code() {
        Some(C::DiskFull) => "the disk is full: free some space, then resume".into(),
        Some(C::ReadOnly) => "the file or its file system is read-only: make it writable".into(),
        Some(C::CannotOpen) => format!("{error}: check that the directory exists and is writable"),
        Some(C::DatabaseBusy | C::DatabaseLocked) => {
            "another program keeps it locked: close that program, then resume".into()
        }
        _ => error.to_string(),
    }
}
