//! Tables as JSON Lines: one object a line, keys named like the columns.

use super::{ColumnType, Field, Schema, Value};
use crate::error::{Error, Result};
use crate::files::AtomicFile;
use serde_json::{Map, Number, Value as Json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The longest line that is read, bytes.
const LONGEST_LINE: u64 = 256 << 20;

/// Writes a JSON Lines file that appears whole.
pub(super) struct JsonLinesWriter {
    schema: Schema,
    file: AtomicFile,
    rows: u64,
}

impl JsonLinesWriter {
    pub(super) fn create(path: &Path, schema: &Schema) -> Result<Self> {
        Ok(Self { schema: schema.clone(), file: AtomicFile::create(path)?, rows: 0 })
    }

    pub(super) fn push(&mut self, row: Vec<Value>) -> Result<()> {
        self.rows += 1;
        let path = self.file.target().to_path_buf();
        let mut object = Map::new();
        for (field, value) in self.schema.fields().iter().zip(row) {
            let json = to_json(value).map_err(|what| Error::Table {
                path: path.clone(),
                row: Some(self.rows),
                what: format!("column '{}': {what}", field.name),
            })?;
            object.insert(field.name.clone(), json);
        }
        let mut line = Json::Object(object).to_string();
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(Error::io("write", &path))
    }

    pub(super) fn finish(self) -> Result<()> {
        self.file.commit()
    }
}

fn to_json(value: Value) -> Result<Json, String> {
    let number = |x: f64| Number::from_f64(x).map(Json::Number).ok_or(format!("JSON cannot hold {x}"));
    Ok(match value {
        Value::Null => Json::Null,
        Value::Str(text) => Json::String((*text).to_owned()),
        Value::I64(n) => Json::from(n),
        Value::F64(x) => number(x)?,
        Value::Bool(b) => Json::Bool(b),
        Value::I32List(list) => Json::from(list),
        Value::F32List(list) => {
            list.into_iter().map(|x| number(x.into())).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::StrList(list) => Json::from(list),
    })
}

/// Reads a JSON Lines file; empty lines are skipped, keys that the schema does not name are ignored.
pub(super) struct JsonLinesReader {
    schema: Schema,
    path: PathBuf,
    reader: BufReader<File>,
    line: u64,
    buffer: Vec<u8>,
}

impl JsonLinesReader {
    pub(super) fn open(path: &Path, schema: &Schema) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self {
            schema: schema.clone(),
            path: path.to_path_buf(),
            reader: BufReader::with_capacity(1 << 16, file),
            line: 0,
            buffer: Vec::new(),
        })
    }

    pub(super) fn next_row(&mut self) -> Result<Option<Vec<Value>>> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = (&mut self.reader)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut self.buffer)
                .map_err(Error::io("read", &self.path))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LONGEST_LINE && self.buffer.last() != Some(&b'\n') {
                return Err(self.blame(format!("the line is longer than {} MiB", LONGEST_LINE >> 20)));
            }
            if !self.buffer.trim_ascii().is_empty() {
                return self.parse().map(Some);
            }
        }
    }

    fn parse(&self) -> Result<Vec<Value>> {
        let mut object: Map<String, Json> = serde_json::from_slice(&self.buffer)
            .map_err(|error| self.blame(format!("not a JSON object: {error}")))?;
        self.schema
            .fields()
            .iter()
            .map(|field| match object.remove(&field.name) {
                None | Some(Json::Null) if field.optional => Ok(Value::Null),
                None => Err(self.blame(format!("field '{}' is missing", field.name))),
                Some(json) => from_json(json, field).map_err(|what| self.blame(what)),
            })
            .collect()
    }

    fn blame(&self, what: String) -> Error {
        Error::Table { path: self.path.clone(), row: Some(self.line), what }
    }
}

fn from_json(json: Json, field: &Field) -> Result<Value, String> {
    let found = kind_of(&json);
    let mismatch = || format!("field '{}' should be {}, found {found}", field.name, field.column.as_str());
    let elements = |json: Json| match json {
        Json::Array(list) => Ok(list),
        _ => Err(mismatch()),
    };
    match (field.column, json) {
        (ColumnType::Str, Json::String(text)) => Ok(Value::Str(text.into())),
        (ColumnType::Bool, Json::Bool(b)) => Ok(Value::Bool(b)),
        (ColumnType::I64, Json::Number(n)) => n.as_i64().map(Value::I64).ok_or_else(mismatch),
        (ColumnType::F64, Json::Number(n)) => n.as_f64().map(Value::F64).ok_or_else(mismatch),
        (ColumnType::I32List, json) => elements(json)?
            .iter()
            .map(|n| n.as_i64().and_then(|n| i32::try_from(n).ok()).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(Value::I32List),
        (ColumnType::F32List, json) => elements(json)?
            .iter()
            .map(|n| n.as_f64().map(|x| x as f32).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(Value::F32List),
        (ColumnType::StrList, json) => elements(json)?
            .iter()
            .map(|t| t.as_str().map(str::to_owned).ok_or_else(mismatch))
            .collect::<Result<_, _>>()
            .map(Value::StrList),
        _ => Err(mismatch()),
    }
}

fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a truth value",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}
