//! The journal: every task and its result, on the disk before it is acknowledged.
//!
//! A single-threaded loop hands records over with [`Journal::append`], which puts them into a bounded queue and
//! returns a [`Ticket`] at once. A writer thread commits whatever has gathered in one transaction (group commit,
//! flushed to the disk) and then raises the high-water mark that [`Journal::durable`] reads: a record is safe when
//! its ticket is at or below the mark. Tickets become durable in the order in which they were given.

mod queue;
mod reader;
mod store;

pub use reader::JournalReader;

use crate::error::{Error, Result};
use queue::{Next, Queue, Work};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use store::Store;

/// Format of the journal's tables; a journal of another version is refused.
pub const JOURNAL_VERSION: i32 = 1;

/// Name of a record: unique in the journal, and the order in which records are read back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    pub round: u32,
    /// What it records, such as `rollout` or `verdict`: the caller's own words.
    pub kind: Arc<str>,
    /// The problem, or whatever else the kind is about.
    pub problem: Arc<str>,
    /// Number among those of the same round, kind and problem.
    pub index: u32,
}

/// A record: its name and an opaque payload, which is compressed on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: RecordKey,
    pub payload: Vec<u8>,
}

/// A place in the order of everything handed to the journal by this process, counted from 1; 0 is before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Stages of a round, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The batch of the round is fixed.
    Started,
    /// All samples, verdicts and reviews are in the journal.
    Sampled,
    /// The new weights are published as a checkpoint, or the round has no update.
    Updated,
    /// The tables are published; the round is over.
    Published,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 4] = [Self::Started, Self::Sampled, Self::Updated, Self::Published];

    /// The stage's name as it is written in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Sampled => "sampled",
            Self::Updated => "updated",
            Self::Published => "published",
        }
    }
}

/// That a round has reached a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    pub round: u32,
    /// The stage that it reached.
    pub stage: Stage,
    /// From [`Stage::Updated`] on: the checkpoint that holds the weights after this round; absent while the weights
    /// are still the base model's.
    pub checkpoint: Option<u32>,
    /// Whatever the caller needs on resume, such as cursors and training metrics: opaque text.
    pub detail: String,
    /// When it was written, seconds since 1970.
    pub unix_time: f64,
}

/// Bounds of the journal's queue and waits.
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    /// Bytes of payload that may wait for the writer before [`Journal::append`] waits itself.
    pub queue_bytes: usize,
    /// Bytes of payload in one transaction.
    pub batch_bytes: usize,
    /// Longest wait for room in the queue, for a ticket, or for a lock of the database.
    pub deadline: Duration,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { queue_bytes: 64 << 20, batch_bytes: 8 << 20, deadline: Duration::from_secs(120) }
    }
}

/// Called by the writer thread after each commit with the new high-water mark; it must return soon.
pub type OnDurable = Box<dyn Fn(Ticket) + Send>;

/// The journal of a run, open for writing. All methods may be called from any thread.
pub struct Journal {
    path: PathBuf,
    queue: Arc<Queue>,
    durable: Arc<AtomicU64>,
    duplicates: Arc<AtomicU64>,
    limits: JournalLimits,
    writer: Option<JoinHandle<()>>,
    reader: JournalReader,
}

impl Journal {
    /// Opens the journal at `path`, or makes one without records, and starts its writer thread. The caller holds the run's
    /// lock: two writers are not provided for.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the file is no journal, is corrupt or of another version; [`Error::Journal`] otherwise.
    pub fn open(path: &Path, limits: JournalLimits, on_durable: Option<OnDurable>) -> Result<Self> {
        let store = Store::open(path, limits.deadline)?;
        let reader = JournalReader::beside_writer(path, limits.deadline)?;
        let queue = Arc::new(Queue::new(limits.queue_bytes));
        let durable = Arc::new(AtomicU64::new(0));
        let duplicates = Arc::new(AtomicU64::new(0));
        let mut writer = Writer {
            path: path.to_path_buf(),
            store,
            queue: Arc::clone(&queue),
            durable: Arc::clone(&durable),
            duplicates: Arc::clone(&duplicates),
            batch_bytes: limits.batch_bytes,
            on_durable,
        };
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run())
            .map_err(Error::io("start the writer of", path))?;
        Ok(Self {
            path: path.to_path_buf(),
            queue,
            durable,
            duplicates,
            limits,
            writer: Some(thread),
            reader,
        })
    }

    /// Refuses a file without anything in it: every journal has its tables from its first moment on.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is one, or no database at all.
    pub fn refuse_empty(path: &Path) -> Result<()> {
        store::refuse_empty(path)
    }

    /// Removes the journal of a run that never began, with what SQLite has put beside it.
    ///
    /// # Errors
    /// It has markers: a run has begun with it; or it is damaged, or the file system refuses.
    pub(crate) fn remove_unused(path: &Path) -> Result<bool> {
        if path.exists() {
            match JournalReader::open(path, Duration::from_secs(10)).and_then(|journal| journal.markers()) {
                Ok(markers) if !markers.is_empty() => return Ok(false),
                Err(damaged @ Error::Damaged { .. }) => return Err(damaged),
                // Without its tables it never was a journal.
                Ok(_) | Err(_) => {}
            }
        }
        store::remove_files(path).map_err(Error::io("remove", path))?;
        Ok(true)
    }

    /// Hands records over and returns at once with a ticket that covers them all. Waits only while more than
    /// [`JournalLimits::queue_bytes`] are queued.
    ///
    /// A record whose key the journal already holds is not written again: the first one stands.
    ///
    /// # Errors
    /// [`Error::JournalStopped`] after a failed write, [`Error::Deadline`] if the queue stays full.
    pub fn append(&self, records: Vec<Record>) -> Result<Ticket> {
        if records.is_empty() {
            return Ok(self.durable());
        }
        let bytes = records.iter().map(|r| r.payload.len() + r.key.problem.len() + 64).sum();
        self.submit(Work::Records(records), bytes)
    }

    /// Everything up to this ticket is on the disk. One atomic load: call it as often as you like.
    pub fn durable(&self) -> Ticket {
        Ticket(self.durable.load(Ordering::Acquire))
    }

    /// Whether what `ticket` covers is on the disk.
    ///
    /// # Errors
    /// [`Error::JournalStopped`] if it never will be.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        if self.durable() >= ticket {
            return Ok(true);
        }
        match self.queue.failure() {
            Some(cause) => Err(Error::JournalStopped { path: self.path.clone(), cause }),
            None => Ok(false),
        }
    }

    /// Waits until what `ticket` covers is on the disk.
    ///
    /// # Errors
    /// [`Error::JournalStopped`] or [`Error::Deadline`].
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if self.durable() >= ticket {
            return Ok(());
        }
        self.queue.wait_until_done(ticket.0, self.limits.deadline).map_err(|stop| self.stopped(stop))
    }

    /// Records on the disk when this returns: [`Journal::append`], then [`Journal::wait`].
    ///
    /// # Errors
    /// As those.
    pub fn append_durably(&self, records: Vec<Record>) -> Result<()> {
        let ticket = self.append(records)?;
        self.wait(ticket)
    }

    /// Writes a marker and waits until it is on the disk, and with it everything handed over before. A marker of the
    /// same round and stage that exists already stands.
    ///
    /// # Errors
    /// As [`Journal::append_durably`].
    pub fn mark(&self, marker: Marker) -> Result<()> {
        let ticket = self.mark_later(marker)?;
        self.wait(ticket)
    }

    /// A marker like [`Journal::mark`], without the wait: the ticket tells when it is on the disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn mark_later(&self, marker: Marker) -> Result<Ticket> {
        let bytes = marker.detail.len() + 64;
        self.submit(Work::Marker(marker), bytes)
    }

    /// Removes what [`Journal::retire`] removes, bit by bit while nothing else is to be written; at the latest before
    /// the journal closes.
    pub fn retire_later(&self, round: u32) {
        self.queue.retire_later(round);
    }

    /// Removes the records of all rounds up to `round` (markers stay), gives the space back to the file system, and
    /// waits until that is done.
    ///
    /// # Errors
    /// As [`Journal::append_durably`].
    pub fn retire(&self, round: u32) -> Result<()> {
        let ticket = self.submit(Work::Retire(round), 64)?;
        self.wait(ticket)
    }

    /// Removes everything of the rounds from `round` on, markers too, and waits until that is done.
    ///
    /// # Errors
    /// As [`Journal::append_durably`].
    pub fn forget(&self, round: u32) -> Result<()> {
        let ticket = self.submit(Work::Forget(round), 64)?;
        self.wait(ticket)
    }

    /// Removes these records, if they are there, and waits until that is done: their keys are free again.
    ///
    /// # Errors
    /// As [`Journal::append_durably`].
    pub fn remove(&self, keys: Vec<RecordKey>) -> Result<()> {
        let bytes = keys.iter().map(|key| key.problem.len() + 64).sum();
        let ticket = self.submit(Work::Remove(keys), bytes)?;
        self.wait(ticket)
    }

    /// Records that were not written because their key was taken, since this journal was opened.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// What the journal holds on disk: see [`JournalReader`]. Records not yet durable do not show.
    pub fn reader(&self) -> &JournalReader {
        &self.reader
    }

    fn submit(&self, work: Work, bytes: usize) -> Result<Ticket> {
        let number =
            self.queue.submit(work, bytes, self.limits.deadline).map_err(|stop| self.stopped(stop))?;
        Ok(Ticket(number))
    }

    fn stopped(&self, stop: queue::Stopped) -> Error {
        match stop {
            queue::Stopped::Failed(cause) => Error::JournalStopped { path: self.path.clone(), cause },
            queue::Stopped::Deadline => Error::Deadline {
                what: format!("the journal {} to write", self.path.display()),
                waited: self.limits.deadline,
            },
        }
    }
}

impl Drop for Journal {
    /// Writes what is still queued, then ends the writer thread.
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

/// The writer thread's part.
struct Writer {
    path: PathBuf,
    store: Store,
    queue: Arc<Queue>,
    durable: Arc<AtomicU64>,
    duplicates: Arc<AtomicU64>,
    batch_bytes: usize,
    on_durable: Option<OnDurable>,
}

impl Writer {
    fn run(&mut self) {
        let _on_panic = StopOnPanic(Arc::clone(&self.queue));
        while let Some(next) = self.queue.take(self.batch_bytes) {
            let outcome = match next {
                Next::Batch(batch, last) => self.write(batch, last),
                Next::Retire(round) => self.retire_some(round),
            };
            if let Err(error) = outcome {
                tracing::error!(journal = %self.path.display(), %error, "the journal stops");
                self.queue.fail(error.to_string().into());
                if let Some(notify) = &self.on_durable {
                    notify(Ticket(self.durable.load(Ordering::Acquire)));
                }
                return;
            }
        }
    }

    fn write(&mut self, batch: Vec<Work>, last: u64) -> Result<()> {
        let duplicates = self.store.write(batch)?;
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        self.durable.store(last, Ordering::Release);
        self.queue.done(last);
        if let Some(notify) = &self.on_durable {
            notify(Ticket(last));
        }
        Ok(())
    }

    fn retire_some(&mut self, round: u32) -> Result<()> {
        if self.store.retire_some(round)? {
            self.queue.retired(round);
        }
        Ok(())
    }
}

/// Lets nobody wait for a writer thread that is gone.
struct StopOnPanic(Arc<Queue>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its writer thread panicked".into());
        }
    }
}
