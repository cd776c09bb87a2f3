//! The journal's SQLite database.

use super::queue::JournalWrite;
use super::{JOURNAL_VERSION, Marker, Record, RecordKey};
use crate::error::{Error, Result};
use crate::files::{parent_of, remove_file, sync_directory};
use crate::write_point::reached;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};
use sgs_base::temporary::Temporary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// SQLite application id of journals: "sgsj" in ASCII.
const APPLICATION_ID: i32 = 0x7367_736a;
/// Maximum number of rows that one transaction removes when a round retires.
const RETIRE_ROWS: u32 = 2000;

const TABLES: &str = "
    CREATE TABLE record (
        id INTEGER PRIMARY KEY,
        round INTEGER NOT NULL,
        kind TEXT NOT NULL,
        problem TEXT NOT NULL,
        idx INTEGER NOT NULL,
        payload BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX record_key ON record (round, kind, problem, idx);
    CREATE TABLE marker (
        round INTEGER NOT NULL,
        stage TEXT NOT NULL,
        checkpoint INTEGER,
        detail TEXT NOT NULL,
        unix_time REAL NOT NULL,
        sum TEXT NOT NULL,
        PRIMARY KEY (round, stage)
    ) STRICT;
";

/// Adds the checksums of markers to a journal of an older program. Its existing markers have no checksums and are
/// accepted without them; in a journal of this program, the column is never null.
const ADD_SUM: &str = "ALTER TABLE marker ADD COLUMN sum TEXT";

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Error + use<> {
    let path = path.to_path_buf();
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(&path, &source.to_string()),
        _ => Error::Journal { action, path, error: source },
    }
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    let advice = "restore it from a copy; or move it away (with its -wal and -shm files) and resume: the run continues \
                  after its last published round and loses the samples since then";
    Error::damaged(path, what, advice)
}

/// The writing connection.
pub(super) struct Store {
    path: PathBuf,
    connection: Connection,
    compressor: zstd::bulk::Compressor<'static>,
}

impl Store {
    /// Opens and checks the database. Creates it if it does not exist.
    pub(super) fn open(path: &Path, busy: Duration) -> Result<Self> {
        if !path.exists() {
            create(path)?;
        }
        let connection = connect(path, busy, OpenFlags::empty())?;
        prepare(path, &connection)?;
        let mut compressor =
            zstd::bulk::Compressor::new(3).map_err(Error::io("prepare the compression of", path))?;
        compressor.include_checksum(true).map_err(Error::io("prepare the compression of", path))?;
        Ok(Self { path: path.to_path_buf(), connection, compressor })
    }

    /// Writes a batch in one transaction, and returns the number of records whose key existed.
    pub(super) fn write(&mut self, batch: Vec<JournalWrite>) -> Result<u64> {
        let mut retire = None;
        let mut duplicates = 0;
        reached("journal.begin", &self.path)?;
        let transaction = self.connection.transaction().map_err(failed("write", &self.path))?;
        for work in batch {
            match work {
                JournalWrite::Records(records) => {
                    duplicates += insert_records(&self.path, &transaction, &mut self.compressor, &records)?;
                }
                JournalWrite::Marker(marker) => {
                    insert_marker(&transaction, &marker).map_err(failed("write", &self.path))?
                }
                JournalWrite::Forget(round) => {
                    forget(&transaction, round).map_err(failed("shrink", &self.path))?
                }
                JournalWrite::Remove(keys) => {
                    remove(&transaction, &keys).map_err(failed("shrink", &self.path))?
                }
                JournalWrite::Retire(round) => retire = retire.max(Some(round)),
            }
        }
        reached("journal.commit", &self.path)?;
        transaction.commit().map_err(failed("write", &self.path))?;
        reached("journal.committed", &self.path)?;
        if let Some(round) = retire {
            self.retire(round)?;
        }
        Ok(duplicates)
    }

    /// Removes the records of rounds up to `round` in small transactions. If it is interrupted, recovery repeats it when the
    /// run is opened.
    fn retire(&mut self, round: u32) -> Result<()> {
        while !self.retire_some(round)? {}
        Ok(())
    }

    /// Runs one of these transactions. Returns `true` if it was the last one, after which the space is returned to the file
    /// system.
    pub(super) fn retire_some(&mut self, round: u32) -> Result<bool> {
        reached("journal.retire", &self.path)?;
        let removed = self
            .connection
            .execute(
                "DELETE FROM record WHERE id IN (SELECT id FROM record WHERE round <= ?1 LIMIT ?2)",
                params![round, RETIRE_ROWS],
            )
            .map_err(failed("shrink", &self.path))?;
        if removed == RETIRE_ROWS as usize {
            return Ok(false);
        }
        run_pragma(&self.connection, "PRAGMA incremental_vacuum").map_err(failed("shrink", &self.path))?;
        // A concurrent reader prevents the log from being truncated. The next round then truncates it.
        run_pragma(&self.connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            .map_err(failed("shrink", &self.path))?;
        Ok(true)
    }
}

fn connect(path: &Path, busy: Duration, more: OpenFlags) -> Result<Connection> {
    refuse_irregular(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
    connection.busy_timeout(busy).map_err(failed("open", path))?;
    Ok(connection)
}

/// Creates a journal under a temporary name and renames it, so that a journal without tables is always damage.
fn create(path: &Path) -> Result<()> {
    let Unfinished(unfinished) = &mut Unfinished(Temporary::name_beside(path));
    reached("journal.create", path)?;
    lay_out(unfinished.path()).map_err(failed("create", path))?;
    reached("journal.flush", path)?;
    File::open(unfinished.path()).and_then(|file| file.sync_all()).map_err(Error::io("flush", path))?;
    reached("journal.rename", path)?;
    // SQLite would apply the log of an earlier file with this name.
    remove_companions(path)?;
    unfinished.publish(path).map_err(Error::io("rename into place", path))?;
    reached("journal.sync-directory", path)?;
    sync_directory(parent_of(path))
}

fn lay_out(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    run_pragma(&connection, "PRAGMA auto_vacuum = INCREMENTAL")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", JOURNAL_VERSION)?;
    transaction.commit()?;
    // Do this after the tables are created, so that they are in the file itself and not in a log.
    run_pragma(&connection, "PRAGMA journal_mode = WAL")?;
    connection.close().map_err(|(_, error)| error)
}

/// Removes a database and SQLite's files next to it.
pub(super) fn remove_files(path: &Path) -> Result<()> {
    remove_companions(path)?;
    remove_file(path)
}

/// Returns an error if the database or one of SQLite's files next to it is a FIFO or a device, which SQLite could wait for.
/// The files must not be opened to find out, because closing them would release SQLite's locks.
pub(super) fn refuse_irregular(path: &Path) -> Result<()> {
    for file in companions(path).chain([path.to_owned()]) {
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(damaged(&file, "it is not a regular file"));
        }
    }
    Ok(())
}

/// Returns the paths of SQLite's files next to a database.
fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["-journal", "-wal", "-shm"].into_iter().map(|more| {
        let mut name = path.as_os_str().to_owned();
        name.push(more);
        name.into()
    })
}

fn remove_companions(path: &Path) -> Result<()> {
    companions(path).try_for_each(|file| remove_file(&file))
}

/// A journal under a temporary name. Dropping it also removes SQLite's files next to it.
struct Unfinished(Temporary);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, the files are removed when the run is opened again.
        let _ = remove_companions(self.0.path());
    }
}

pub(super) fn refuse_without_tables(path: &Path, connection: &Connection) -> Result<()> {
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    match tables.map_err(failed("read", path))? {
        0 => Err(damaged(path, "it is empty, although the run has started")),
        _ => Ok(()),
    }
}

/// Removes the records and markers of `round` and all later rounds.
fn forget(transaction: &Transaction<'_>, round: u32) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM record WHERE round >= ?1", params![round])?;
    transaction.execute("DELETE FROM marker WHERE round >= ?1", params![round]).map(drop)
}

fn remove(transaction: &Transaction<'_>, keys: &[RecordKey]) -> rusqlite::Result<()> {
    let sql = "DELETE FROM record WHERE round = ?1 AND kind = ?2 AND problem = ?3 AND idx = ?4";
    let mut statement = transaction.prepare(sql)?;
    for key in keys {
        statement.execute(params![key.round, &*key.kind, &*key.problem, key.index])?;
    }
    Ok(())
}

/// Runs a pragma to completion and ignores the rows that it returns.
fn run_pragma(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

fn prepare(path: &Path, connection: &Connection) -> Result<()> {
    let fail = || failed("open", path);
    let number = |c: &Connection, name| c.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    refuse_without_tables(path, connection)?;
    run_pragma(connection, "PRAGMA journal_mode = WAL").map_err(fail())?;
    run_pragma(connection, "PRAGMA synchronous = FULL").map_err(fail())?;
    if number(connection, "application_id").map_err(fail())? != APPLICATION_ID {
        return Err(damaged(path, "it is a database of another program"));
    }
    let version = number(connection, "user_version").map_err(fail())?;
    if version != JOURNAL_VERSION {
        let what = format!("its format is version {version}; this program reads version {JOURNAL_VERSION}");
        return Err(Error::damaged(path, what, "resume the run with the program that created it"));
    }
    if connection.prepare("SELECT sum FROM marker").is_err() {
        connection.execute_batch(ADD_SUM).map_err(fail())?;
    }
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fail())?;
    if verdict == "ok" { Ok(()) } else { Err(damaged(path, verdict.trim())) }
}

fn insert_records(
    path: &Path,
    transaction: &Transaction<'_>,
    compressor: &mut zstd::bulk::Compressor<'static>,
    records: &[Record],
) -> Result<u64> {
    let mut statement = transaction
        .prepare(
            "INSERT INTO record (round, kind, problem, idx, payload) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )
        .map_err(failed("write", path))?;
    let mut duplicates = 0;
    for Record { key, payload } in records {
        let packed = compressor.compress(payload).map_err(Error::io("compress a record of", path))?;
        let inserted = statement
            .execute(params![key.round, &*key.kind, &*key.problem, key.index, packed])
            .map_err(failed("write", path))?;
        duplicates += u64::from(inserted == 0);
    }
    Ok(duplicates)
}

fn insert_marker(transaction: &Transaction<'_>, marker: &Marker) -> rusqlite::Result<()> {
    let Marker { round, stage, checkpoint, detail, unix_time } = marker;
    let sql = "INSERT INTO marker (round, stage, checkpoint, detail, unix_time, sum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    let values = params![round, stage.as_str(), checkpoint, detail, unix_time, marker.sum()];
    transaction.execute(sql, values).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::queue::{WaitError, WriteQueue};
    use crate::journal::{Journal, JournalReader};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(round: u32, kind: &str, problem: &str, index: u32, payload: &[u8]) -> Record {
        let key = RecordKey { round, kind: kind.into(), problem: problem.into(), index };
        Record { key, payload: payload.to_vec() }
    }

    fn open(path: &Path) -> Journal {
        Journal::open(path).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_first_record_of_each_key_comes_back_in_key_order(
            entries in vec((0u32..3, "[a-c]{0,2}", ".{0,3}", 0u32..3, vec(any::<u8>(), 0..200)), 0..60),
            cuts in vec(1usize..10, 0..10),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal.sqlite");
            let records: Vec<_> = entries.iter().map(|(r, k, p, i, b)| record(*r, k, p, *i, b)).collect();
            let journal = open(&path);
            let mut rest = &records[..];
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                journal.append(head.to_vec()).unwrap();
                rest = tail;
            }
            journal.append_durably(rest.to_vec()).unwrap();
            drop(journal);
            let journal = open(&path);
            let mut expected = BTreeMap::new();
            for r in &records {
                expected.entry(r.key.clone()).or_insert_with(|| r.payload.clone());
            }
            let mut found = Vec::new();
            for round in 0..3 {
                found.extend(journal.reader().records(round, None).unwrap());
            }
            let expected: Vec<_> = expected.into_iter().map(|(key, payload)| Record { key, payload }).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn duplicates_are_counted_and_the_first_record_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(&dir.path().join("j"));
        journal.append_durably(vec![record(1, "v", "p", 0, b"first")]).unwrap();
        journal
            .append_durably(vec![record(1, "v", "p", 0, b"second"), record(1, "v", "p", 1, b"x")])
            .unwrap();
        assert_eq!(journal.duplicates(), 1);
        let found = journal.reader().records(1, Some("v")).unwrap();
        assert_eq!(found[0].payload, b"first");
        assert_eq!(journal.reader().get(&found[0].key).unwrap().unwrap(), b"first");
        let absent = RecordKey { index: 9, ..found[0].key.clone() };
        assert_eq!(journal.reader().get(&absent).unwrap(), None);
        assert_eq!(journal.reader().counts(1).unwrap()["v"], 2);
    }

    #[test]
    fn the_log_of_a_lost_journal_is_not_applied_to_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("j"), dir.path().join("j-wal"));
        let journal = open(&path);
        journal.append_durably(vec![record(1, "r", "p", 0, b"old")]).unwrap();
        let left = std::fs::read(&log).unwrap();
        assert!(!left.is_empty());
        drop(journal);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&log, left).unwrap();
        let journal = open(&path);
        assert!(journal.reader().rounds_with_records().unwrap().is_empty());
        journal.append_durably(vec![record(1, "r", "p", 0, b"new")]).unwrap();
        drop(journal);
        assert_eq!(open(&path).reader().records(1, None).unwrap()[0].payload, b"new");
    }

    #[test]
    fn a_removed_record_can_be_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let journal = open(&path);
        let (lost, kept) = (record(1, "r", "p", 0, b"lost"), record(1, "r", "p", 1, b"kept"));
        journal.append_durably(vec![lost.clone(), kept.clone()]).unwrap();
        journal.remove(vec![lost.key, record(7, "r", "p", 0, b"").key]).unwrap();
        assert_eq!(open(&path).reader().records(1, None).unwrap(), std::slice::from_ref(&kept));
        let found = record(1, "r", "p", 0, b"found");
        journal.append_durably(vec![found.clone()]).unwrap();
        assert_eq!(journal.reader().records(1, None).unwrap(), [found, kept]);
    }

    #[test]
    fn retiring_a_round_returns_its_space_and_keeps_later_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let journal = open(&path);
        // Incompressible bytes.
        let noise: Vec<u8> = (0u32..4000).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let records = (0..3000).map(|i| {
            let mut payload = noise.clone();
            payload.rotate_left(i as usize);
            record(1 + i / 2900, "rollout", "p", i, &payload)
        });
        journal.append_durably(records.collect()).unwrap();
        let size = || {
            std::fs::metadata(&path).unwrap().len()
                + std::fs::metadata(dir.path().join("j-wal")).unwrap().len()
        };
        let before = size();
        journal.retire(1).unwrap();
        assert!(size() < before / 5, "{} of {before} bytes remain", size());
        assert_eq!(journal.reader().rounds_with_records().unwrap(), [2]);
        assert_eq!(journal.reader().records(2, None).unwrap().len(), 100);
    }

    #[test]
    fn a_file_of_another_program_is_rejected_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        std::fs::write(&path, vec![b'x'; 5000]).unwrap();
        let text = std::fs::read(&path).unwrap();
        let error = Store::open(&path, Duration::ZERO).err().unwrap();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), text, "the file was touched");
        let other = dir.path().join("other");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let error = Store::open(&other, Duration::ZERO).err().unwrap().to_string();
        assert!(error.contains("another program"), "{error}");
    }

    #[test]
    fn only_regular_files_are_opened() {
        for name in ["j", "j-wal", "j-shm", "j-journal"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("j");
            drop(Store::open(&path, Duration::ZERO).unwrap());
            let fifo = dir.path().join(name);
            let _ = fs::remove_file(&fifo);
            assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
            for error in [
                Store::open(&path, Duration::ZERO).err().unwrap(),
                JournalReader::open(&path, Duration::ZERO).err().unwrap(),
            ] {
                let error = error.to_string();
                assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
            }
        }
    }

    #[test]
    fn a_corrupt_page_or_payload_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let journal = open(&path);
        journal.append_durably((0..500).map(|i| record(1, "r", "p", i, &[7; 300])).collect()).unwrap();
        drop(journal);
        let connection = Connection::open(&path).unwrap();
        connection.execute("UPDATE record SET payload = x'0102' WHERE idx = 3", []).unwrap();
        drop(connection);
        let error = open(&path).reader().records(1, None).unwrap_err().to_string();
        assert!(error.contains("index: 3") && error.contains("corrupt"), "{error}");
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len();
        bytes[4096..length].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let error = Store::open(&path, Duration::ZERO).err().unwrap();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_full_disk_stops_the_journal_and_keeps_what_was_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut store = Store::open(&path, Duration::ZERO).unwrap();
        store.write(vec![JournalWrite::Records(vec![record(1, "r", "p", 0, b"safe")])]).unwrap();
        run_pragma(&store.connection, "PRAGMA max_page_count = 8").unwrap();
        let noise: Vec<u8> = (0u32..200_000).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let error =
            store.write(vec![JournalWrite::Records(vec![record(1, "r", "p", 1, &noise)])]).unwrap_err();
        assert!(error.to_string().contains("the disk is full"), "{error}");
        drop(store);
        assert_eq!(open(&path).reader().records(1, None).unwrap(), [record(1, "r", "p", 0, b"safe")]);
    }

    #[test]
    fn a_full_queue_blocks_until_the_deadline() {
        let queue = WriteQueue::new(100);
        let submit = |bytes| queue.submit(JournalWrite::Retire(0), bytes, Duration::from_millis(20));
        // An empty queue accepts an operation of any size.
        assert!(matches!(submit(500), Ok(1)));
        assert!(matches!(submit(10), Err(WaitError::Deadline)));
        assert!(queue.take(1).is_some());
        assert!(matches!(submit(60), Ok(2)) && matches!(submit(40), Ok(3)));
        assert!(matches!(submit(1), Err(WaitError::Deadline)));
    }

    #[test]
    fn tickets_become_durable_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(&dir.path().join("j"));
        let tickets: Vec<_> =
            (0..200).map(|i| journal.append(vec![record(1, "r", "p", i, b"x")]).unwrap()).collect();
        assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
        journal.wait(tickets[199]).unwrap();
        assert!(journal.is_durable(tickets[0]).unwrap() && journal.durable() == tickets[199]);
    }
}
