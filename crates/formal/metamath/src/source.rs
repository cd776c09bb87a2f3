//! Source files of a database, locations in them, and their tokens.

use std::path::Path;
use std::sync::Arc;

/// Why a database cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct DatabaseError {
    /// The file, and the line and column (in bytes, from 1) at which it violates a rule of the Metamath language. Only the
    /// file if it cannot be read.
    pub place: String,
    /// Description of the error.
    pub message: String,
}

/// Maximum size of an included file in bytes.
const MOST_INCLUDED_BYTES: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: Arc<str>,
    pub(crate) bytes: Arc<[u8]>,
}

impl SourceFile {
    pub(crate) fn read(path: &Path) -> Result<Self, DatabaseError> {
        Self::of(path, std::fs::read(path))
    }

    /// Reads a file that another file includes. Unlike the file that the user names, it must be regular.
    pub(crate) fn read_included(path: &Path) -> Result<Self, DatabaseError> {
        Self::of(path, sgs_base::files::read(path, MOST_INCLUDED_BYTES))
    }

    fn of(path: &Path, bytes: std::io::Result<Vec<u8>>) -> Result<Self, DatabaseError> {
        let place = path.display().to_string();
        match bytes {
            Ok(bytes) => Ok(Self { name: place.into(), bytes: bytes.into() }),
            Err(e) => Err(DatabaseError { place, message: format!("cannot read: {e}") }),
        }
    }

    /// Returns the location of a byte as `file:line:column`, from 1. The column is in bytes.
    pub(crate) fn place(&self, offset: usize) -> String {
        let before = &self.bytes[..offset.min(self.bytes.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&b| b != b'\n').count() + 1;
        format!("{}:{line}:{column}", self.name)
    }

    pub(crate) fn error(&self, offset: usize, message: impl Into<String>) -> DatabaseError {
        DatabaseError { place: self.place(offset), message: message.into() }
    }
}

/// Returns the start and end of the next token from `at`; `None` at the end of the text.
pub(crate) fn next_token(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let start = at + bytes[at..].iter().position(|&b| !is_space(b))?;
    let end = bytes[start..].iter().position(|&b| is_space(b)).map_or(bytes.len(), |length| start + length);
    Some((start, end))
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

/// Returns whether a token is a math symbol: printable ASCII without `$`.
pub(crate) fn is_symbol(token: &[u8]) -> bool {
    !token.is_empty() && token.iter().all(|&b| (0x21..=0x7e).contains(&b) && b != b'$')
}

/// Returns whether a token is a label: letters, digits, `-`, `_` and `.`.
pub(crate) fn is_label(token: &[u8]) -> bool {
    !token.is_empty() && token.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
