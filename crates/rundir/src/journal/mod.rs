//! The journal: a durable log of the results of the rounds in progress.
//!
//! [`Journal::append`] puts records into a bounded queue and returns a [`Ticket`] immediately. A writer thread commits all
//! queued records in one transaction (group commit) and then advances the high-water mark that [`Journal::durable`]
//! returns: a record is durable when its ticket is at or below the mark. Tickets become durable in the order in which they
//! were issued.

mod queue;
mod reader;
mod store;

pub use reader::JournalReader;

use crate::error::{Error, Result};
use crate::metrics::unix_time;
use queue::{JournalWrite, WriteQueue, WriterTask};
use serde::{Deserialize, Serialize};
use sgs_base::digest::checksum_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use store::Store;

/// Version of the journal's tables. Journals of other versions are rejected.
pub const JOURNAL_VERSION: i32 = 1;

/// Unique key of a record. Records are read in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    /// The round.
    pub round: u32,
    /// The kind of record, such as `rollout` or `verdict`. The journal does not interpret it.
    pub kind: Arc<str>,
    /// The problem, or another subject of this kind of record.
    pub problem: Arc<str>,
    /// Number among the records of the same round, kind and problem.
    pub index: u32,
}

/// A record with an opaque payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The unique key.
    pub key: RecordKey,
    /// The payload, which is compressed on disk.
    pub payload: Vec<u8>,
}

/// Sequence number of an operation that this process submitted to the journal, counted from 1. 0 precedes all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The stages of a round, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalStage {
    /// The round's batch is chosen.
    Started,
    /// All samples, verdicts and reviews are in the journal.
    Sampled,
    /// The new weights are published as a checkpoint, or the round has no update.
    Updated,
    /// The round's tables are published.
    Published,
}

impl JournalStage {
    /// All stages in order.
    pub const ALL: [Self; 4] = [Self::Started, Self::Sampled, Self::Updated, Self::Published];

    /// Returns the name that the journal stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Sampled => "sampled",
            Self::Updated => "updated",
            Self::Published => "published",
        }
    }
}

/// A journal entry that a round has reached a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// The round.
    pub round: u32,
    /// The stage that it has reached.
    pub stage: JournalStage,
    /// From [`JournalStage::Updated`] on: the round of the checkpoint with the weights after this round, or `None` for the base
    /// model.
    pub checkpoint: Option<u32>,
    /// Opaque text that the caller needs on resume, such as cursors and training metrics.
    pub detail: String,
    /// Time of writing, in seconds since 1970.
    pub unix_time: f64,
}

impl Marker {
    /// Creates a marker with the current time.
    pub(crate) fn now(round: u32, stage: JournalStage, checkpoint: Option<u32>, detail: &str) -> Self {
        Self { round, stage, checkpoint, detail: detail.to_owned(), unix_time: unix_time() }
    }

    /// Computes the checksum of all fields, which is stored with the marker.
    fn sum(&self) -> String {
        let Self { round, stage, checkpoint, detail, unix_time } = self;
        let (stage, bits) = (stage.as_str(), unix_time.to_bits());
        checksum_of(format!("{round}\n{stage}\n{checkpoint:?}\n{bits:x}\n{detail}").as_bytes())
    }
}

/// Returns the last stage that a round has reached; `None` if it has not started.
pub(crate) fn stage_of(markers: &[Marker], round: u32) -> Option<JournalStage> {
    markers.iter().filter(|m| m.round == round).map(|m| m.stage).max()
}

/// Maximum size of queued payloads in bytes. [`Journal::append`] blocks while the queue is full.
const QUEUE_BYTES: usize = 64 << 20;
/// Target size of the payloads in one transaction, in bytes.
const BATCH_BYTES: usize = 8 << 20;
/// Timeout of waits for space in the queue, for a ticket, and for a database lock.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The journal of a run, open for writing. Its methods may be called from any thread.
pub struct Journal {
    path: PathBuf,
    queue: Arc<WriteQueue>,
    durable: Arc<AtomicU64>,
    duplicates: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
    reader: JournalReader,
}

impl Journal {
    /// Opens the journal at `path`, or creates an empty one, and starts its writer thread. The caller must hold the run's lock,
    /// because only one process may write.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] if the file is not a journal, is corrupt or has another version, and [`Error::Journal`] if
    /// SQLite fails otherwise.
    pub fn open(path: &Path) -> Result<Self> {
        let store = Store::open(path, DEADLINE)?;
        let reader = JournalReader::beside_writer(path, DEADLINE)?;
        let queue = Arc::new(WriteQueue::new(QUEUE_BYTES));
        let durable = Arc::new(AtomicU64::new(0));
        let duplicates = Arc::new(AtomicU64::new(0));
        let mut writer = JournalWriter {
            path: path.to_path_buf(),
            store,
            queue: Arc::clone(&queue),
            durable: Arc::clone(&durable),
            duplicates: Arc::clone(&duplicates),
        };
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run())
            .map_err(Error::io("start the writer of", path))?;
        Ok(Self { path: path.to_path_buf(), queue, durable, duplicates, writer: Some(thread), reader })
    }

    /// Removes a journal without markers, and SQLite's files next to it. Returns `false` if the journal has markers.
    pub(crate) fn remove_unused(path: &Path) -> Result<bool> {
        if path.exists() {
            match JournalReader::open(path, Duration::from_secs(10)).and_then(|journal| journal.markers()) {
                Ok(markers) if !markers.is_empty() => return Ok(false),
                Err(damaged @ Error::Damaged { .. }) => return Err(damaged),
                // A database without the journal's tables was never completed.
                Ok(_) | Err(_) => {}
            }
        }
        store::remove_files(path)?;
        Ok(true)
    }

    /// Queues records and returns a ticket that covers them all. Blocks only while the queue is full (64 MiB).
    ///
    /// A record whose key is already in the journal is not written, so the first record is kept.
    ///
    /// # Errors
    /// Returns [`Error::JournalStopped`] after a failed write, and [`Error::Deadline`] if the queue remains full.
    pub fn append(&self, records: Vec<Record>) -> Result<Ticket> {
        if records.is_empty() {
            return Ok(self.durable());
        }
        let bytes = records.iter().map(|r| r.payload.len() + r.key.problem.len() + 64).sum();
        self.submit(JournalWrite::Records(records), bytes)
    }

    /// Returns the highest durable ticket. This is a single atomic load.
    pub fn durable(&self) -> Ticket {
        Ticket(self.durable.load(Ordering::Acquire))
    }

    /// Returns whether everything up to `ticket` is durable.
    ///
    /// # Errors
    /// Returns [`Error::JournalStopped`] if it never will be.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        if self.durable() >= ticket {
            return Ok(true);
        }
        match self.queue.failure() {
            Some(cause) => Err(Error::JournalStopped { path: self.path.clone(), cause }),
            None => Ok(false),
        }
    }

    /// Waits until everything up to `ticket` is durable.
    ///
    /// # Errors
    /// Returns [`Error::JournalStopped`] after a failed write, and [`Error::Deadline`] on a timeout.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if self.durable() >= ticket {
            return Ok(());
        }
        self.queue.wait_until_done(ticket.0, DEADLINE).map_err(|stop| self.stopped(stop))
    }

    /// Appends records and waits until they are durable.
    pub fn append_durably(&self, records: Vec<Record>) -> Result<()> {
        self.wait(self.append(records)?)
    }

    /// Writes a marker and waits until it and all earlier records are durable. If the round already has a marker of this stage,
    /// that one is kept.
    pub fn mark(&self, marker: Marker) -> Result<()> {
        let bytes = marker.detail.len() + 64;
        self.wait(self.submit(JournalWrite::Marker(marker), bytes)?)
    }

    /// Removes the same records as [`Journal::retire`], in small steps while the journal is idle, and the rest before it closes.
    pub fn retire_later(&self, round: u32) {
        self.queue.retire_later(round);
    }

    /// Removes the records of all rounds up to `round`, but not their markers, returns the space to the file system, and waits
    /// until this is done.
    pub fn retire(&self, round: u32) -> Result<()> {
        self.wait(self.submit(JournalWrite::Retire(round), 64)?)
    }

    /// Removes the records and markers of `round` and all later rounds, and waits until this is done.
    pub fn forget(&self, round: u32) -> Result<()> {
        self.wait(self.submit(JournalWrite::Forget(round), 64)?)
    }

    /// Removes the records with these keys, if they exist, and waits until this is done. The keys can then be used again.
    pub fn remove(&self, keys: Vec<RecordKey>) -> Result<()> {
        let bytes = keys.iter().map(|key| key.problem.len() + 64).sum();
        self.wait(self.submit(JournalWrite::Remove(keys), bytes)?)
    }

    /// Returns the number of records that were not written because their key existed, since the journal was opened.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// Returns a reader of the journal's durable content.
    pub fn reader(&self) -> &JournalReader {
        &self.reader
    }

    fn submit(&self, work: JournalWrite, bytes: usize) -> Result<Ticket> {
        let number = self.queue.submit(work, bytes, DEADLINE).map_err(|stop| self.stopped(stop))?;
        Ok(Ticket(number))
    }

    fn stopped(&self, stop: queue::WaitError) -> Error {
        match stop {
            queue::WaitError::Failed(cause) => Error::JournalStopped { path: self.path.clone(), cause },
            queue::WaitError::Deadline => Error::Deadline {
                what: format!("the journal {} to write", self.path.display()),
                waited: DEADLINE,
            },
        }
    }
}

impl Drop for Journal {
    /// Writes the queued records and stops the writer thread.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).field("durable", &self.durable()).finish()
    }
}

/// State of the writer thread.
struct JournalWriter {
    path: PathBuf,
    store: Store,
    queue: Arc<WriteQueue>,
    durable: Arc<AtomicU64>,
    duplicates: Arc<AtomicU64>,
}

impl JournalWriter {
    fn run(&mut self) {
        let _on_panic = StopOnPanic(Arc::clone(&self.queue));
        while let Some(next) = self.queue.take(BATCH_BYTES) {
            let outcome = match next {
                WriterTask::Batch(batch, last) => self.write(batch, last),
                WriterTask::Retire(round) => self.retire_some(round),
            };
            if let Err(error) = outcome {
                tracing::error!(journal = %self.path.display(), %error, "the journal stopped");
                self.queue.fail(error.to_string().into());
                return;
            }
        }
    }

    fn write(&mut self, batch: Vec<JournalWrite>, last: u64) -> Result<()> {
        let duplicates = self.store.write(batch)?;
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        self.durable.store(last, Ordering::Release);
        self.queue.done(last);
        Ok(())
    }

    fn retire_some(&mut self, round: u32) -> Result<()> {
        if self.store.retire_some(round)? {
            self.queue.retired(round);
        }
        Ok(())
    }
}

/// Fails the queue if the writer thread panics, so that no caller waits for it.
struct StopOnPanic(Arc<WriteQueue>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its writer thread panicked".into());
        }
    }
}
