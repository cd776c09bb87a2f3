//! Reads JSON files of a model folder.

use std::path::Path;

use serde_json::Value;

use crate::error::{LmError, Result};

/// Returns the contents of a JSON file, or `null` if there is no such file.
pub(crate) fn optional_json(path: &Path) -> Result<Value> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(LmError::json(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(e) => Err(LmError::io(path)(e)),
    }
}
