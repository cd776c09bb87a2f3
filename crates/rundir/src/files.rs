//! Files that appear whole or not at all.
//!
//! A file is written under a temporary name beside its final one, flushed to the disk, renamed, and the directory
//! flushed too: after a crash there is the old content or the new one, never a mixture. In a directory that is
//! unfinished itself nothing is flushed: whoever publishes the directory flushes all of it.

use crate::error::{Error, Result};
use crate::write_point::reached;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of unfinished files and directories begin; whatever has such a name is rubbish after a crash.
pub const TEMPORARY_PREFIX: &str = ".tmp-";

/// A file that is being written and shows under its final name only after [`AtomicFile::commit`].
/// Dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    writer: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl AtomicFile {
    /// Begins a file that is to appear at `target`, in an existing directory.
    ///
    /// # Errors
    /// The directory is missing, read-only or full.
    pub fn create(target: &Path) -> Result<Self> {
        let temporary = temporary_beside(target);
        reached("file.create", target)?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(Error::io("create", target))?;
        Ok(Self {
            writer: BufWriter::with_capacity(1 << 16, file),
            temporary,
            target: target.to_path_buf(),
            committed: false,
        })
    }

    /// Where the file will appear.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the content to the disk and gives the file its final name, replacing an older file of that name. In an
    /// unfinished directory the flushes are left to whoever publishes it.
    ///
    /// # Errors
    /// The disk is full or fails; then the older file, if any, is untouched.
    pub fn commit(mut self) -> Result<()> {
        reached("file.flush", &self.target)?;
        self.writer.flush().map_err(Error::io("write", &self.target))?;
        let directory = parent_of(&self.target);
        let unfinished = is_unfinished(directory);
        if !unfinished {
            self.writer.get_ref().sync_all().map_err(Error::io("flush", &self.target))?;
        }
        reached("file.rename", &self.target)?;
        fs::rename(&self.temporary, &self.target).map_err(Error::io("rename into place", &self.target))?;
        self.committed = true;
        reached("file.sync-directory", &self.target)?;
        if unfinished { Ok(()) } else { sync_directory(directory) }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // Should this fail too, the next opening of the run removes the file.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file atomically.
///
/// # Errors
/// As [`AtomicFile::commit`]; the older file, if any, is then untouched.
pub fn write_file(target: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(target)?;
    file.write_all(bytes).map_err(Error::io("write", target))?;
    file.commit()
}

/// Removes what an interrupted process left unfinished directly in `directory`, and says what it was.
/// Call it only while no other process writes there.
///
/// # Errors
/// The directory cannot be read or a leftover cannot be removed.
pub fn remove_unfinished(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let entry = entry.map_err(Error::io("list", directory))?;
        if !entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        let path = entry.path();
        let is_directory = entry.file_type().map_err(Error::io("inspect", &path))?.is_dir();
        let outcome = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        outcome.map_err(Error::io("remove the unfinished", &path))?;
        removed.push(path);
    }
    removed.sort();
    Ok(removed)
}

/// Whether this process is still filling the directory, under a temporary name.
fn is_unfinished(directory: &Path) -> bool {
    let own = format!("{TEMPORARY_PREFIX}{}-", std::process::id());
    directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own))
}

/// A fresh temporary name in the same directory as `target`.
pub(crate) fn temporary_beside(target: &Path) -> PathBuf {
    temporary_name(target, "")
}

/// A fresh name for something that is being removed.
pub(crate) fn doomed_beside(target: &Path) -> PathBuf {
    temporary_name(target, "removed-")
}

fn temporary_name(target: &Path, purpose: &str) -> PathBuf {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    parent_of(target).join(format!("{TEMPORARY_PREFIX}{purpose}{}-{serial}-{name}", std::process::id()))
}

/// The directory that holds `path`.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes renames and new names in `directory` durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory).and_then(|d| d.sync_all()).map_err(Error::io("flush", directory))
}

/// Creates `directory` if it is missing, and makes its name durable.
pub(crate) fn ensure_directory(directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        fs::create_dir_all(directory).map_err(Error::io("create the directory", directory))?;
        sync_directory(parent_of(directory))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_committed_file_replaces_the_old_one_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_file(&path, b"old").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["a.txt"]);
    }

    #[test]
    fn a_dropped_file_leaves_the_old_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_file(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        file.flush().unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["a.txt"]);
    }

    #[test]
    fn leftovers_are_removed_and_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".tmp-1-0-a"), b"x").unwrap();
        fs::create_dir_all(dir.path().join(".tmp-1-1-b/inner")).unwrap();
        fs::write(dir.path().join("keep"), b"x").unwrap();
        assert_eq!(remove_unfinished(dir.path()).unwrap().len(), 2);
        assert_eq!(names(dir.path()), ["keep"]);
    }

    #[test]
    fn a_missing_directory_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = write_file(&dir.path().join("no/such/file"), b"x").unwrap_err().to_string();
        assert!(error.contains("cannot create") && error.contains("no/such/file"), "{error}");
    }
}
