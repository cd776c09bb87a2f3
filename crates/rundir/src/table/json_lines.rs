//! Tables as JSON Lines: one object per line, with keys named like the columns.

use super::{CellValue, ColumnType, Field};
use crate::error::{Error, Result};
use serde_json::{Map, Value as Json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// Reads a JSON Lines file. Empty lines and unknown keys are ignored.
pub(super) struct JsonLinesReader {
    fields: Vec<Field>,
    path: PathBuf,
    reader: BufReader<File>,
    line: u64,
    buffer: Vec<u8>,
}

impl JsonLinesReader {
    pub(super) fn open(path: &Path, fields: Vec<Field>) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self {
            fields,
            path: path.to_path_buf(),
            reader: BufReader::with_capacity(1 << 16, file),
            line: 0,
            buffer: Vec::new(),
        })
    }

    pub(super) fn next_row(&mut self) -> Result<Option<Vec<CellValue>>> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = (&mut self.reader)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)
                .map_err(Error::io("read", &self.path))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE_BYTES && self.buffer.last() != Some(&b'\n') {
                return Err(self.row_error(format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20)));
            }
            if !self.buffer.trim_ascii().is_empty() {
                return self.parse().map(Some);
            }
        }
    }

    fn parse(&self) -> Result<Vec<CellValue>> {
        let mut object: Map<String, Json> = serde_json::from_slice(&self.buffer)
            .map_err(|error| self.row_error(format!("not a JSON object: {error}")))?;
        self.fields
            .iter()
            .map(|field| match object.remove(&field.name) {
                None | Some(Json::Null) if field.optional => Ok(CellValue::Null),
                None => Err(self.row_error(format!("field '{}' is missing", field.name))),
                Some(json) => from_json(json, field).map_err(|what| self.row_error(what)),
            })
            .collect()
    }

    fn row_error(&self, what: String) -> Error {
        Error::Table { path: self.path.clone(), row: Some(self.line), what }
    }
}

fn from_json(json: Json, field: &Field) -> Result<CellValue, String> {
    let found = kind_of(&json);
    let mismatch = || format!("field '{}' should be {}, found {found}", field.name, field.column.as_str());
    let elements = |json: Json| match json {
        Json::Array(list) => Ok(list),
        _ => Err(mismatch()),
    };
    match (field.column, json) {
        (ColumnType::Str, Json::String(text)) => Ok(CellValue::Str(text.into())),
        (ColumnType::Bool, Json::Bool(b)) => Ok(CellValue::Bool(b)),
        (ColumnType::I64, Json::Number(n)) => n.as_i64().map(CellValue::I64).ok_or_else(mismatch),
        (ColumnType::F64, Json::Number(n)) => n.as_f64().map(CellValue::F64).ok_or_else(mismatch),
        (ColumnType::I32List, json) => elements(json)?
            .iter()
            .map(|n| n.as_i64().and_then(|n| i32::try_from(n).ok()).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(CellValue::I32List),
        (ColumnType::F32List, json) => elements(json)?
            .iter()
            .map(|n| n.as_f64().map(|x| x as f32).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(CellValue::F32List),
        (ColumnType::StrList, json) => elements(json)?
            .iter()
            .map(|t| t.as_str().map(str::to_owned).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(CellValue::StrList),
        _ => Err(mismatch()),
    }
}

fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}
