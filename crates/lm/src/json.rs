//! Reads JSON and text files of a model folder.

use std::path::Path;

use serde_json::Value;
use sgs_base::files;

use crate::error::{LmError, Result};

/// Maximum size of these files in bytes. The largest are tokenizers and indexes of shards, with some 10 MB.
const MOST_BYTES: u64 = 32 << 20;

/// Returns the contents of a text file.
pub(crate) fn text(path: &Path) -> Result<String> {
    files::read_to_string(path, MOST_BYTES).map_err(LmError::io(path))
}

/// Returns the contents of a text file, or `None` if there is no such file.
pub(crate) fn optional_text(path: &Path) -> Result<Option<String>> {
    match files::read_to_string(path, MOST_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LmError::io(path)(e)),
    }
}

/// Returns the contents of a JSON file, or `null` if there is no such file.
pub(crate) fn optional_json(path: &Path) -> Result<Value> {
    match optional_text(path)? {
        Some(text) => serde_json::from_str(&text).map_err(LmError::json(path)),
        None => Ok(Value::Null),
    }
}
