//! Writes files atomically.
//!
//! A file is written under a temporary name in the same directory, flushed and renamed, and the directory is flushed.
//! After a crash, the file has either its old or its new content. Files in a directory with a temporary name are not
//! flushed, because publishing the directory flushes them all.

use crate::error::{Error, Result};
use crate::write_point::reached;
use sgs_base::temporary::{self, Temporary};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use sgs_base::temporary::PREFIX as TEMPORARY_PREFIX;

/// A file that appears under its final name when [`AtomicFile::commit`] is called. Dropping it before that removes it, and so
/// does [`remove_all`](temporary::remove_all).
#[derive(Debug)]
pub struct AtomicFile {
    writer: BufWriter<File>,
    temporary: Temporary,
    target: PathBuf,
}

impl AtomicFile {
    /// Creates a file that will appear at `target`, in an existing directory.
    ///
    /// # Errors
    /// Returns an error if the temporary file cannot be created, or if `target` exists and is not a file.
    pub fn create(target: &Path) -> Result<Self> {
        // The rename would replace a device such as /dev/null.
        if fs::metadata(target).is_ok_and(|found| !found.is_file()) {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a file");
            return Err(Error::io("create", target)(error));
        }
        reached("file.create", target)?;
        let (temporary, file) = Temporary::file_beside(target).map_err(Error::io("create", target))?;
        Ok(Self { writer: BufWriter::with_capacity(1 << 16, file), temporary, target: target.to_path_buf() })
    }

    /// Returns the path where the file will appear.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the content and renames the file to its final name, replacing an older file. In a directory with a temporary
    /// name, nothing is flushed.
    ///
    /// # Errors
    /// Returns an error if writing fails. The older file, if any, is then unchanged.
    pub fn commit(mut self) -> Result<()> {
        let target = &self.target;
        reached("file.flush", target)?;
        self.writer.flush().map_err(Error::io("write", target))?;
        let directory = parent_of(target);
        let unfinished = is_unfinished(directory);
        if !unfinished {
            self.writer.get_ref().sync_all().map_err(Error::io("flush", target))?;
        }
        reached("file.rename", target)?;
        self.temporary.publish(target).map_err(Error::io("rename into place", target))?;
        reached("file.sync-directory", target)?;
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

/// Writes a file atomically.
///
/// # Errors
/// Returns an error if writing fails. The older file, if any, is then unchanged.
pub fn write_file(target: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(target)?;
    file.write_all(bytes).map_err(Error::io("write", target))?;
    file.commit()
}

/// Maximum size in bytes of a file that is read as a whole.
const MOST_BYTES: u64 = 1 << 30;

/// Reads a file. A FIFO or a device is refused, because reading it could wait or never end.
///
/// # Errors
/// Returns an error if the file cannot be read, is not regular, or has more than 1 GiB.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    sgs_base::files::read(path, MOST_BYTES).map_err(Error::io("read", path))
}

/// Reads a UTF-8 file like [`read()`].
///
/// # Errors
/// Returns an error if the file cannot be read, is not regular, is not UTF-8, or has more than 1 GiB.
pub fn read_to_string(path: &Path) -> Result<String> {
    sgs_base::files::read_to_string(path, MOST_BYTES).map_err(Error::io("read", path))
}

/// Reads a text that an earlier process may have written; empty if the file does not exist.
///
/// # Errors
/// Returns an error if the file exists and cannot be read, or if it is not UTF-8.
pub fn read_if_exists(path: &Path) -> Result<String> {
    match read_to_string(path) {
        Err(error) if !error.is_not_found() => Err(error),
        text => Ok(text.unwrap_or_default()),
    }
}

/// Returns whether a path is a file. Unlike [`Path::is_file`], it fails if this user lacks the permission to look.
pub(crate) fn is_file(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(about) => Ok(about.is_file()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(Error::io("inspect", path)(error)),
    }
}

/// Removes a file, if it exists.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes the unfinished files and directories in `directory`, and returns their paths. No other process may be writing
/// there.
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

/// Returns whether the directory has a temporary name that this process chose.
fn is_unfinished(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&temporary::own_prefix()))
}

/// Returns the directory that contains `path`.
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
        if directory.exists() {
            let error = std::io::Error::new(std::io::ErrorKind::NotADirectory, "it is a file; give a folder");
            return Err(Error::io("create the folder", directory)(error));
        }
        fs::create_dir_all(directory).map_err(Error::io("create the folder", directory))?;
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
    fn a_file_is_not_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let message = ensure_directory(&file).unwrap_err().to_string();
        assert!(message.contains("it is a file; give a folder"), "{message}");
    }

    #[test]
    fn a_committed_file_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_file(&path, b"old").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["a.txt"]);
    }

    #[test]
    fn a_dropped_file_leaves_the_old_one_unchanged() {
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
    fn only_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("device");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for target in [link.as_path(), dir.path()] {
            let error = write_file(target, b"new").unwrap_err().to_string();
            assert!(error.contains("it exists and is not a file"), "{error}");
        }
        assert_eq!(names(dir.path()), ["device"]);
    }

    #[test]
    fn unfinished_files_are_removed_and_returned() {
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
