//! Read access to the journal.

use super::store::{damaged, failed, refuse_irregular, refuse_without_tables};
use super::{JournalStage, Marker, Record, RecordKey};
use crate::error::{Error, Result};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Row, ToSql, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

/// Maximum size of a decompressed payload in bytes. It protects against damaged files.
const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// Reads a journal, even while another process writes it.
pub struct JournalReader {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl JournalReader {
    /// Opens an existing journal for reading. Write permission is not needed.
    pub fn open(path: &Path, busy: Duration) -> Result<Self> {
        let reader = Self::connect(path, busy)?;
        reader.markers()?;
        Ok(reader)
    }

    /// Opens the journal in the process that writes it. This reader may be the last to close the database, and then
    /// removes SQLite's log.
    pub(super) fn beside_writer(path: &Path, busy: Duration) -> Result<Self> {
        let reader = Self::open_database(path, path, OpenFlags::SQLITE_OPEN_READ_WRITE, busy)?;
        reader.markers()?;
        Ok(reader)
    }

    /// Returns an error if the file has no tables, because a journal has them from the moment that it is created.
    pub(crate) fn refuse_empty(path: &Path, busy: Duration) -> Result<()> {
        refuse_without_tables(path, &Self::connect(path, busy)?.lock())
    }

    /// Opens the database read-only and reads its schema.
    fn connect(path: &Path, busy: Duration) -> Result<Self> {
        match Self::open_database(path, path, OpenFlags::SQLITE_OPEN_READ_ONLY, busy) {
            Err(error) if error.is_permission_denied() => Self::open_immutable(path, busy),
            opened => opened,
        }
    }

    /// Opens a closed journal that this process may not write. By default, SQLite creates files next to a database in WAL
    /// mode even to read it.
    fn open_immutable(path: &Path, busy: Duration) -> Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        if fs::metadata(&log).is_ok_and(|about| about.len() > 0) {
            // Part of the journal is in the log, which an immutable database does not have.
            return Err(Error::io("read the log of", path)(io::ErrorKind::PermissionDenied.into()));
        }
        let absolute = path.canonicalize().map_err(Error::io("open", path))?;
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let mode = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Self::open_database(path, Path::new(&format!("file:{escaped}?immutable=1")), mode, busy)
    }

    fn open_database(path: &Path, name: &Path, mode: OpenFlags, busy: Duration) -> Result<Self> {
        refuse_irregular(path)?;
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(name, flags).map_err(failed("open", path))?;
        connection.busy_timeout(busy).map_err(failed("open", path))?;
        // SQLite opens the file with the first query.
        connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            .map_err(failed("open", path))?;
        Ok(Self { path: path.to_path_buf(), connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all markers, ordered by round and stage.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read, or if a marker has an unknown stage or a wrong checksum.
    pub fn markers(&self) -> Result<Vec<Marker>> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT * FROM marker").map_err(failed("read", &self.path))?;
        // Journals of older programs lack the column.
        let has_sums = statement.column_index("sum").is_ok();
        let rows = statement
            .query_map([], |row| {
                let sum: Option<String> = if has_sums { row.get("sum")? } else { None };
                let stage: String = row.get("stage")?;
                let (round, checkpoint) = (row.get("round")?, row.get("checkpoint")?);
                Ok((round, stage, checkpoint, row.get("detail")?, row.get("unix_time")?, sum))
            })
            .map_err(failed("read", &self.path))?;
        let (mut markers, mut unsummed) = (Vec::new(), Vec::new());
        for row in rows {
            let (round, name, checkpoint, detail, unix_time, sum) =
                row.map_err(failed("read", &self.path))?;
            let stage = JournalStage::ALL.into_iter().find(|s| s.as_str() == name);
            let stage = stage.ok_or_else(|| damaged(&self.path, &format!("unknown stage '{name}'")))?;
            let marker = Marker { round, stage, checkpoint, detail, unix_time };
            match sum {
                None => unsummed.push((round, stage)),
                Some(sum) if sum == marker.sum() => {}
                Some(_) => {
                    let what = format!("the marker '{name}' of round {round} does not match its checksum");
                    return Err(damaged(&self.path, &what));
                }
            }
            markers.push(marker);
        }
        markers.sort_by_key(|m| (m.round, m.stage));
        // An older program wrote markers without checksums, and no newer marker is followed by one of these.
        unsummed.sort();
        let older = markers.iter().take(unsummed.len()).map(|m| (m.round, m.stage));
        if let Some(((round, stage), _)) = unsummed.iter().zip(older).find(|(found, older)| **found != *older)
        {
            let what = format!("the marker '{}' of round {round} has lost its checksum", stage.as_str());
            return Err(damaged(&self.path, &what));
        }
        Ok(markers)
    }

    /// Calls `each` with the records of a round, or with those of one kind, in the order of their keys (kind, problem and
    /// index, with text compared bytewise). `each` must not use this reader.
    ///
    /// # Errors
    /// Returns an error if a record is damaged, or the first error of `each`.
    pub fn for_each_record(
        &self,
        round: u32,
        kind: Option<&str>,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let sql = "SELECT id, kind, problem, idx, payload FROM record \
                   WHERE round = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY round, kind, problem, idx";
        self.visit(sql, round, &kind, |_, record| each(record))
    }

    /// Calls `each` with the number and the content of the records that a query selects. Its parameters are the round and
    /// `parameter`.
    fn visit(
        &self,
        sql: &str,
        round: u32,
        parameter: &dyn ToSql,
        mut each: impl FnMut(i64, Record) -> Result<()>,
    ) -> Result<()> {
        let connection = self.lock();
        let mut statement = connection.prepare(sql).map_err(failed("read", &self.path))?;
        let mut rows = statement.query(params![round, parameter]).map_err(failed("read", &self.path))?;
        let mut last_kind: Arc<str> = "".into();
        while let Some(row) = rows.next().map_err(failed("read", &self.path))? {
            let fields = || -> rusqlite::Result<(i64, String, String, u32, Vec<u8>)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            };
            let (id, kind, problem, index, packed) = fields().map_err(failed("read", &self.path))?;
            if *last_kind != *kind {
                last_kind = kind.into();
            }
            let key = RecordKey { round, kind: Arc::clone(&last_kind), problem: problem.into(), index };
            let payload = self.unpacked(&key, &packed)?;
            each(id, Record { key, payload })?;
        }
        Ok(())
    }

    fn unpacked(&self, key: &RecordKey, packed: &[u8]) -> Result<Vec<u8>> {
        unpack(packed)
            .map_err(|what| damaged(&self.path, &format!("the payload of {key:?} is corrupt: {what}")))
    }

    /// Calls `each` with the records of a round that were written after the record with the number `after`, in the order of
    /// writing. Returns the number of the last record for the next call; 0 precedes the first record. This follows a round that
    /// another process works on. `each` must not use this reader.
    ///
    /// # Errors
    /// Returns an error if a record is damaged, or the first error of `each`.
    pub fn for_each_record_after(
        &self,
        round: u32,
        after: i64,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<i64> {
        let sql =
            "SELECT id, kind, problem, idx, payload FROM record WHERE id > ?2 AND +round = ?1 ORDER BY id";
        let mut last = after;
        self.visit(sql, round, &after, |id, record| {
            last = id;
            each(record)
        })?;
        Ok(last)
    }

    /// Returns the payload of a record, or `None` if there is no such record.
    pub fn get(&self, key: &RecordKey) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT payload FROM record WHERE round = ?1 AND kind = ?2 AND problem = ?3 AND idx = ?4";
        let name = params![key.round, &*key.kind, &*key.problem, key.index];
        let packed = self.lock().query_row(sql, name, |row| row.get::<_, Vec<u8>>(0)).optional();
        let packed = packed.map_err(failed("read", &self.path))?;
        packed.map(|packed| self.unpacked(key, &packed)).transpose()
    }

    /// Returns the records of a round, or those of one kind, in the order of their keys.
    pub fn records(&self, round: u32, kind: Option<&str>) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.for_each_record(round, kind, |record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    /// Returns the number of a round's records by kind.
    pub fn counts(&self, round: u32) -> Result<BTreeMap<String, u64>> {
        let sql = "SELECT kind, count(*) FROM record WHERE round = ?1 GROUP BY kind";
        self.query(sql, params![round], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))
    }

    /// Returns the rounds that have records, in ascending order.
    pub fn rounds_with_records(&self) -> Result<Vec<u32>> {
        self.query("SELECT DISTINCT round FROM record ORDER BY round", [], |row| row.get(0))
    }

    /// Collects the rows of a query.
    fn query<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        parameters: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<C> {
        let connection = self.lock();
        let rows = || connection.prepare(sql)?.query_map(parameters, row)?.collect::<rusqlite::Result<C>>();
        rows().map_err(failed("read", &self.path))
    }
}

impl std::fmt::Debug for JournalReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalReader").field("path", &self.path).finish()
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let size = zstd::zstd_safe::get_frame_content_size(packed).map_err(|_| "not a zstd frame".to_owned())?;
    let size = size.ok_or("its size is missing")?;
    if size > MAX_PAYLOAD_BYTES {
        return Err(format!("its size of {size} bytes exceeds {MAX_PAYLOAD_BYTES}"));
    }
    zstd::bulk::decompress(packed, size as usize).map_err(|error| error.to_string())
}
