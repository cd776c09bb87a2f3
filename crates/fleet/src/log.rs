//! Where the board's records go before anybody hears of what they record.
//!
//! [`FileLog`] is one append-only file: an 8-byte head, then frames of
//!
//! ```text
//! "SGSf"  length u32  flags u32  crc32(length, flags) u32  crc32(body) u32  body
//! ```
//!
//! little-endian; the body is a batch of records in postcard encoding, compressed with zstd if that is worth it
//! (flag 1). A frame that a crash cut short at the end of the file is dropped when the file is opened; a frame that
//! is broken although whole ones follow is an error, never skipped.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::record::Record;

/// Something is wrong with a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system said no.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried, with the file's name.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
    /// Another process has the log.
    #[error("{0} is in use by another coordinator; stop that one first")]
    InUse(PathBuf),
    /// The file is not a log or is damaged.
    #[error("{path}, byte {at}: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: usize,
        /// What is wrong.
        problem: String,
    },
    /// Records cannot be encoded.
    #[error("cannot encode records for the log: {0}")]
    Encode(String),
}

impl LogError {
    /// An error of the operating system, with what was tried.
    #[must_use]
    pub fn new(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io { what: what.into(), error }
    }
}

/// A durable home for records. Two exist: [`FileLog`], and a run's own journal.
pub trait TaskLog: Send {
    /// Writes records at the end. When it returns, the whole batch survives a crash of the process, and of the
    /// machine too if any of them is a promise ([`Record::is_promise`]).
    ///
    /// # Errors
    /// If they could not be written; the log must not be used after that.
    fn append(&mut self, records: &[Record]) -> Result<(), LogError>;

    /// Replaces everything by these records, durably and at once: after a crash either the old or the new is there.
    ///
    /// # Errors
    /// If they could not be written.
    fn replace(&mut self, records: &[Record]) -> Result<(), LogError>;
}

const HEAD: &[u8; 8] = b"SGSFLT\x00\x01";
const MARK: &[u8; 4] = b"SGSf";
const FRAME_HEAD: usize = 20;
const ZSTD: u32 = 1;
/// Bodies from this size on are compressed.
const COMPRESS_FROM: usize = 2048;
/// Records per frame of a rewritten log, so that no frame grows without bound.
const RECORDS_PER_FRAME: usize = 4096;

/// An append-only file of records. See the module's text.
#[derive(Debug)]
pub struct FileLog {
    path: PathBuf,
    file: File,
    /// Held while the log is open, beside the log: the log itself is replaced by renaming.
    _lock: File,
}

/// What was found in a log file.
#[derive(Debug)]
pub struct Found {
    /// All whole records, in order.
    pub records: Vec<Record>,
    /// Bytes of an unfinished write that were dropped from the end.
    pub torn_bytes: usize,
}

impl FileLog {
    /// Opens the log, made if it is not there, for this process alone.
    ///
    /// # Errors
    /// If it is in use, damaged, or cannot be read and written.
    pub fn open(path: &Path) -> Result<(Self, Found), LogError> {
        let at = |what: &str| format!("{what} {}", path.display());
        let lock_path = path.with_extension("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|e| LogError::new(format!("open {}", lock_path.display()), e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LogError::InUse(path.to_owned())),
            Err(TryLockError::Error(e)) => {
                return Err(LogError::new(format!("lock {}", lock_path.display()), e));
            }
        }
        if !path.exists() {
            write_whole(path, HEAD).map_err(|e| LogError::new(at("create"), e))?;
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|mut f| f.read_to_end(&mut bytes))
            .map_err(|e| LogError::new(at("read"), e))?;
        let (records, whole) = decode(&bytes, path)?;
        let file = OpenOptions::new().append(true).open(path).map_err(|e| LogError::new(at("open"), e))?;
        let torn_bytes = bytes.len() - whole;
        if torn_bytes > 0 {
            file.set_len(whole as u64)
                .and_then(|()| file.sync_all())
                .map_err(|e| LogError::new(at("trim"), e))?;
        }
        Ok((Self { path: path.to_owned(), file, _lock: lock }, Found { records, torn_bytes }))
    }
}

impl TaskLog for FileLog {
    fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        let at = |what: &str| format!("{what} {}", self.path.display());
        for batch in records.chunks(RECORDS_PER_FRAME) {
            let frame = encode(batch)?;
            self.file.write_all(&frame).map_err(|e| LogError::new(at("write to"), e))?;
        }
        if records.iter().any(Record::is_promise) {
            self.file.sync_data().map_err(|e| LogError::new(at("sync"), e))?;
        }
        Ok(())
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), LogError> {
        let mut bytes = HEAD.to_vec();
        for batch in records.chunks(RECORDS_PER_FRAME) {
            bytes.extend(encode(batch)?);
        }
        let at = |what: &str| format!("{what} {}", self.path.display());
        write_whole(&self.path, &bytes).map_err(|e| LogError::new(at("rewrite"), e))?;
        self.file =
            OpenOptions::new().append(true).open(&self.path).map_err(|e| LogError::new(at("open"), e))?;
        Ok(())
    }
}

/// Puts a file in place, whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn encode(records: &[Record]) -> Result<Vec<u8>, LogError> {
    let plain = postcard::to_stdvec(records).map_err(|e| LogError::Encode(e.to_string()))?;
    let (body, flags) = if plain.len() < COMPRESS_FROM {
        (plain, 0)
    } else {
        (zstd::bulk::compress(&plain, 1).map_err(|e| LogError::Encode(e.to_string()))?, ZSTD)
    };
    let length = u32::try_from(body.len())
        .map_err(|_| LogError::Encode("a batch is larger than 4 GiB; submit fewer tasks at a time".into()))?;
    let mut frame = Vec::with_capacity(FRAME_HEAD + body.len());
    frame.extend(MARK);
    frame.extend(length.to_le_bytes());
    frame.extend(flags.to_le_bytes());
    frame.extend(crc32fast::hash(&frame[4..12]).to_le_bytes());
    frame.extend(crc32fast::hash(&body).to_le_bytes());
    frame.extend(body);
    Ok(frame)
}

/// All whole records, and the number of bytes that they take up.
fn decode(bytes: &[u8], path: &Path) -> Result<(Vec<Record>, usize), LogError> {
    let damaged = |at: usize, problem: String| LogError::Damaged { path: path.to_owned(), at, problem };
    if bytes.get(..HEAD.len()) != Some(HEAD) {
        return Err(damaged(0, "this is not a task log of this version".into()));
    }
    let mut at = HEAD.len();
    let mut records = Vec::new();
    while at < bytes.len() {
        let Some((flags, body)) = frame_at(bytes, at) else { break };
        let batch = read_body(flags, body).map_err(|problem| damaged(at, problem))?;
        records.extend(batch);
        at += FRAME_HEAD + body.len();
    }
    if at < bytes.len()
        && let Some(next) = (at + 1..bytes.len()).find(|next| frame_at(bytes, *next).is_some())
    {
        let problem = format!(
            "a damaged record, with whole ones after it from byte {next}; restore the file from a copy"
        );
        return Err(damaged(at, problem));
    }
    Ok((records, at))
}

/// Flags and body of the frame that begins there, if it is whole and its sums are right.
fn frame_at(bytes: &[u8], at: usize) -> Option<(u32, &[u8])> {
    let head = bytes.get(at..at + FRAME_HEAD)?;
    if head.get(..4)? != MARK {
        return None;
    }
    let word = |i: usize| Some(u32::from_le_bytes(head.get(i..i + 4)?.try_into().ok()?));
    if crc32fast::hash(head.get(4..12)?) != word(12)? {
        return None;
    }
    let start = at + FRAME_HEAD;
    let body = bytes.get(start..start.checked_add(usize::try_from(word(4)?).ok()?)?)?;
    (crc32fast::hash(body) == word(16)?).then_some((word(8)?, body))
}

fn read_body(flags: u32, body: &[u8]) -> Result<Vec<Record>, String> {
    let plain;
    let body = match flags {
        0 => body,
        ZSTD => {
            plain = zstd::stream::decode_all(body).map_err(|e| format!("cannot decompress: {e}"))?;
            &plain
        }
        other => return Err(format!("unknown flags {other}: written by a newer version?")),
    };
    postcard::from_bytes(body).map_err(|e| format!("cannot read records: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Attempt, TaskId, TaskKind, WorkerName};
    use proptest::prelude::*;

    fn records(number: u64) -> Vec<Record> {
        let mut all = Vec::new();
        for i in 0..number {
            all.push(Record::Submitted {
                task: TaskId(i),
                kind: TaskKind::Verify,
                priority: -1,
                payload: vec![i as u8; 100].into(),
            });
            let worker = WorkerName::new("w").expect("a good name");
            all.push(Record::Leased { task: TaskId(i), attempt: Attempt(1), worker });
        }
        all
    }

    fn open(path: &Path) -> (FileLog, Found) {
        FileLog::open(path).expect("opens")
    }

    #[test]
    fn what_is_appended_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.log");
        let all = records(300);
        let (mut log, found) = open(&path);
        assert!(found.records.is_empty());
        for batch in all.chunks(7) {
            log.append(batch).expect("appends");
        }
        drop(log);
        let (mut log, found) = open(&path);
        assert_eq!(found.records, all);
        log.replace(&all[..20]).expect("replaces");
        log.append(&all[20..30]).expect("appends");
        drop(log);
        assert_eq!(open(&path).1.records, &all[..30]);
    }

    #[test]
    fn one_coordinator_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.log");
        let (log, _) = open(&path);
        assert!(matches!(FileLog::open(&path), Err(LogError::InUse(_))));
        drop(log);
        open(&path);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.log");
        fs::write(&path, b"something else entirely").expect("writes");
        assert!(matches!(FileLog::open(&path), Err(LogError::Damaged { at: 0, .. })));
    }

    #[test]
    fn damage_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.log");
        let (mut log, _) = open(&path);
        for batch in records(10).chunks(5) {
            log.append(batch).expect("appends");
        }
        drop(log);
        let mut bytes = fs::read(&path).expect("reads");
        bytes[40] ^= 1;
        fs::write(&path, bytes).expect("writes");
        assert!(matches!(FileLog::open(&path), Err(LogError::Damaged { at: 8, .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Cut anywhere: what comes back are the batches that were whole, and the log goes on from there.
        #[test]
        fn a_torn_end_is_dropped(cut in 0.0..1.0f64, noise in proptest::collection::vec(any::<u8>(), 0..50)) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("tasks.log");
            let all = records(20);
            let (mut log, _) = open(&path);
            let mut ends = vec![(HEAD.len() as u64, 0)];
            for (i, batch) in all.chunks(4).enumerate() {
                log.append(batch).expect("appends");
                ends.push((fs::metadata(&path).expect("is there").len(), (i + 1) * 4));
            }
            drop(log);
            let length = ends.last().expect("not empty").0;
            let keep = HEAD.len() as u64 + ((length - HEAD.len() as u64) as f64 * cut) as u64;
            let mut bytes = fs::read(&path).expect("reads");
            bytes.truncate(keep as usize);
            bytes.extend(&noise);
            fs::write(&path, &bytes).expect("writes");
            let whole = ends.iter().rev().find(|(end, _)| *end <= keep).expect("the head is whole").1;
            let (mut log, found) = open(&path);
            prop_assert_eq!(&found.records[..], &all[..whole]);
            log.append(&all[whole..]).expect("appends");
            drop(log);
            prop_assert_eq!(open(&path).1.records, all);
        }
    }
}
