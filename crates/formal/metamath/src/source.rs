//! Source files of a database, locations in them, and their tokens.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A location in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// File name as given by the user.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a database cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of a variant names its fields")]
pub enum DatabaseError {
    /// A file cannot be read.
    #[error("{}: cannot read: {message}", path.display())]
    Io { path: PathBuf, message: String },
    /// The text violates a rule of the Metamath language.
    #[error("{place}: {message}")]
    Syntax { place: SourceLocation, message: String },
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
        let bytes = bytes.map_err(|e| DatabaseError::Io { path: path.to_owned(), message: e.to_string() })?;
        Ok(Self { name: path.display().to_string().into(), bytes: bytes.into() })
    }

    pub(crate) fn place(&self, offset: usize) -> SourceLocation {
        let before = &self.bytes[..offset.min(self.bytes.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&b| b != b'\n').count() + 1;
        SourceLocation {
            file: self.name.clone(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn error(&self, offset: usize, message: impl Into<String>) -> DatabaseError {
        DatabaseError::Syntax { place: self.place(offset), message: message.into() }
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
