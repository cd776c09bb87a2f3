//! Reading the journal.

use super::store::{damaged, failed};
use super::{Marker, Record, RecordKey, Stage};
use crate::error::Result;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest payload that is read back, bytes: a bound for damaged files.
const LARGEST_PAYLOAD: usize = 1 << 30;

/// Reads a journal, also while another process writes it.
pub struct JournalReader {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl JournalReader {
    /// Opens an existing journal for reading only.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn open(path: &Path, busy: Duration) -> Result<Self> {
        Self::open_with(path, busy, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    /// The reader beside a writer in one process: it may be the last to close the database and tidies up then.
    pub(super) fn beside_writer(path: &Path, busy: Duration) -> Result<Self> {
        Self::open_with(path, busy, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn open_with(path: &Path, busy: Duration, mode: OpenFlags) -> Result<Self> {
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
        connection.busy_timeout(busy).map_err(failed("open", path))?;
        let reader = Self { path: path.to_path_buf(), connection: Mutex::new(connection) };
        reader.markers()?;
        Ok(reader)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All markers, by round and stage.
    ///
    /// # Errors
    /// The database cannot be read or names an unknown stage.
    pub fn markers(&self) -> Result<Vec<Marker>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT round, stage, checkpoint, detail, unix_time FROM marker")
            .map_err(failed("read", &self.path))?;
        let rows = statement
            .query_map([], |row| {
                let stage: String = row.get(1)?;
                Ok((row.get(0)?, stage, row.get(2)?, row.get(3)?, row.get(4)?))
            })
            .map_err(failed("read", &self.path))?;
        let mut markers = Vec::new();
        for row in rows {
            let (round, name, checkpoint, detail, unix_time) = row.map_err(failed("read", &self.path))?;
            let stage = Stage::ALL.into_iter().find(|s| s.as_str() == name);
            let stage = stage.ok_or_else(|| damaged(&self.path, &format!("unknown stage '{name}'")))?;
            markers.push(Marker { round, stage, checkpoint, detail, unix_time });
        }
        markers.sort_by_key(|m| (m.round, m.stage));
        Ok(markers)
    }

    /// Calls `each` with every record of a round, or with those of one kind, in the order of their keys (kind,
    /// problem, index; texts byte by byte), until it fails. `each` must not use this reader.
    ///
    /// # Errors
    /// A damaged record, or the error of `each`.
    pub fn for_each_record(
        &self,
        round: u32,
        kind: Option<&str>,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let connection = self.lock();
        let mut statement = connection
            .prepare(
                "SELECT kind, problem, idx, payload FROM record \
                 WHERE round = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY round, kind, problem, idx",
            )
            .map_err(failed("read", &self.path))?;
        let mut rows = statement.query(params![round, kind]).map_err(failed("read", &self.path))?;
        let mut last_kind: Arc<str> = "".into();
        while let Some(row) = rows.next().map_err(failed("read", &self.path))? {
            let fields = || -> rusqlite::Result<(String, String, u32, Vec<u8>)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            };
            let (kind, problem, index, packed) = fields().map_err(failed("read", &self.path))?;
            if *last_kind != *kind {
                last_kind = kind.into();
            }
            let key = RecordKey { round, kind: Arc::clone(&last_kind), problem: problem.into(), index };
            let payload = unpack(&packed)
                .map_err(|what| damaged(&self.path, &format!("the payload of {key:?} is corrupt: {what}")))?;
            each(Record { key, payload })?;
        }
        Ok(())
    }

    /// Calls `each` with every record of a round that came in after the record `after`, in the order of arrival, until
    /// it fails; gives the last record's number, for the next call. 0 is before the first record. For whoever watches a
    /// round that another process works on. `each` must not use this reader.
    ///
    /// # Errors
    /// A damaged record, or the error of `each`.
    pub fn for_each_record_after(
        &self,
        round: u32,
        after: i64,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<i64> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT id, kind, problem, idx, payload FROM record WHERE id > ?1 AND +round = ?2 ORDER BY id")
            .map_err(failed("read", &self.path))?;
        let mut rows = statement.query(params![after, round]).map_err(failed("read", &self.path))?;
        let mut last = after;
        while let Some(row) = rows.next().map_err(failed("read", &self.path))? {
            let fields = || -> rusqlite::Result<(i64, String, String, u32, Vec<u8>)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            };
            let (id, kind, problem, index, packed) = fields().map_err(failed("read", &self.path))?;
            let key = RecordKey { round, kind: kind.into(), problem: problem.into(), index };
            let payload = unpack(&packed)
                .map_err(|what| damaged(&self.path, &format!("the payload of {key:?} is corrupt: {what}")))?;
            each(Record { key, payload })?;
            last = id;
        }
        Ok(last)
    }

    /// The payload of one record, if the journal holds it.
    ///
    /// # Errors
    /// The database cannot be read, or the record is damaged.
    pub fn get(&self, key: &RecordKey) -> Result<Option<Vec<u8>>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare(
                "SELECT payload FROM record WHERE round = ?1 AND kind = ?2 AND problem = ?3 AND idx = ?4",
            )
            .map_err(failed("read", &self.path))?;
        let packed: Option<Vec<u8>> = statement
            .query_row(params![key.round, &*key.kind, &*key.problem, key.index], |row| row.get(0))
            .optional()
            .map_err(failed("read", &self.path))?;
        let unpacked = packed.map(|packed| unpack(&packed)).transpose();
        unpacked.map_err(|what| damaged(&self.path, &format!("the payload of {key:?} is corrupt: {what}")))
    }

    /// All records of a round, or those of one kind, in the order of their keys.
    ///
    /// # Errors
    /// As [`JournalReader::for_each_record`].
    pub fn records(&self, round: u32, kind: Option<&str>) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.for_each_record(round, kind, |record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    /// How many records of each kind a round has.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn counts(&self, round: u32) -> Result<BTreeMap<String, u64>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT kind, count(*) FROM record WHERE round = ?1 GROUP BY kind")
            .map_err(failed("read", &self.path))?;
        let rows = statement
            .query_map(params![round], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))
            .map_err(failed("read", &self.path))?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed("read", &self.path))
    }

    /// The rounds that have records, ascending.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn rounds_with_records(&self) -> Result<Vec<u32>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT DISTINCT round FROM record ORDER BY round")
            .map_err(failed("read", &self.path))?;
        let rows = statement.query_map([], |row| row.get(0)).map_err(failed("read", &self.path))?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed("read", &self.path))
    }
}

impl std::fmt::Debug for JournalReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalReader").field("path", &self.path).finish()
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let size = zstd::zstd_safe::get_frame_content_size(packed).map_err(|_| "no zstd frame".to_owned())?;
    let size = usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX);
    if size > LARGEST_PAYLOAD {
        return Err(format!("it claims {size} bytes"));
    }
    zstd::bulk::decompress(packed, size).map_err(|error| error.to_string())
}
