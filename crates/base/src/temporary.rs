//! Files and folders with temporary names, which no signal leaves behind.
//!
//! A program writes an output under a temporary name in the same folder and renames it when it is complete. Dropping a
//! [`Temporary`] removes it. A program that a signal ends calls [`remove_all`] first.
//!
//! ```
//! use sgs_base::temporary::Temporary;
//! use std::io::Write;
//!
//! let target = std::env::temp_dir().join(format!("sgs-example-{}", std::process::id()));
//! let (mut temporary, mut file) = Temporary::file_beside(&target)?;
//! file.write_all(b"whole")?;
//! temporary.publish(&target)?;
//! assert_eq!(std::fs::read(&target)?, b"whole");
//! # std::fs::remove_file(&target)?;
//! # std::io::Result::Ok(())
//! ```

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Prefix of temporary names. After a crash, files and folders with such a name can be deleted.
pub const PREFIX: &str = ".tmp-";

/// The temporary files and folders of this process that [`remove_all`] removes, in the order of their creation.
static ALL: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

#[derive(Clone, Debug)]
struct Entry {
    /// Distinguishes entries with the same path.
    serial: u64,
    path: PathBuf,
    extent: Extent,
}

/// What the removal of a [`Temporary`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The file, or the folder with its contents.
    Whole,
    /// The contents of the folder, but not the folder itself.
    Contents,
    /// The folder, if it is empty.
    IfEmpty,
}

/// A file or folder of this process that is not complete. Dropping it removes the file or folder, and so does
/// [`remove_all`].
#[derive(Debug)]
#[must_use]
pub struct Temporary {
    entry: Entry,
    is_kept: bool,
}

impl Temporary {
    /// Registers a path that may not exist yet.
    pub fn new(path: PathBuf, extent: Extent) -> Self {
        Self::register(&mut lock(), path, extent)
    }

    /// Registers what `make` creates; nothing if it fails. No signal ends the process until `make` returns, and `make` must
    /// not use another [`Temporary`].
    pub fn create<T, E>(make: impl FnOnce() -> Result<(PathBuf, Extent, T), E>) -> Result<(Self, T), E> {
        let mut all = lock();
        let (path, extent, made) = make()?;
        Ok((Self::register(&mut all, path, extent), made))
    }

    fn register(all: &mut Vec<Entry>, path: PathBuf, extent: Extent) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let entry = Entry { serial: SERIAL.fetch_add(1, Ordering::Relaxed), path, extent };
        all.push(entry.clone());
        Self { entry, is_kept: false }
    }

    /// Creates a file with a temporary name in the same folder as `target`, and opens it for writing.
    pub fn file_beside(target: &Path) -> io::Result<(Self, File)> {
        let path = path_beside(target);
        Self::create(|| {
            let file = File::options().write(true).create_new(true).open(&path)?;
            Ok((path, Extent::Whole, file))
        })
    }

    /// Creates a folder with a temporary name in the same folder as `target`.
    pub fn folder_beside(target: &Path) -> io::Result<Self> {
        let path = path_beside(target);
        let make = || fs::create_dir(&path).map(|()| (path, Extent::Whole, ()));
        Ok(Self::create(make)?.0)
    }

    /// Registers a temporary name in the same folder as `target`, for code that creates the file itself.
    pub fn name_beside(target: &Path) -> Self {
        Self::new(path_beside(target), Extent::Whole)
    }

    /// Returns the path of the file or folder.
    pub fn path(&self) -> &Path {
        &self.entry.path
    }

    /// Renames the file or folder to its final name, and keeps it.
    ///
    /// # Errors
    /// Returns an error if it cannot be renamed. Then it is removed when it is dropped.
    pub fn publish(&mut self, target: &Path) -> io::Result<()> {
        // With the lock, a signal finds either the temporary name or the final one.
        let mut all = lock();
        fs::rename(&self.entry.path, target)?;
        self.is_kept = true;
        unregister(&mut all, self.entry.serial);
        Ok(())
    }

    /// Keeps the file or folder: from now on, only [`Temporary::remove`] removes it.
    pub fn keep(&mut self) {
        self.is_kept = true;
        unregister(&mut lock(), self.entry.serial);
    }

    /// Removes the file or folder, also if it was kept.
    pub fn remove(mut self) -> io::Result<()> {
        let removed = self.entry.remove();
        self.keep();
        removed
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept {
            // If this fails, its temporary name shows that it can be deleted.
            let _ = self.entry.remove();
            self.keep();
        }
    }
}

impl Entry {
    fn remove(&self) -> io::Result<()> {
        const ATTEMPTS: u32 = 10;
        for _ in 1..ATTEMPTS {
            if self.try_remove().is_ok() {
                return Ok(());
            }
            // Another process may have created a file at the same time.
            std::thread::sleep(Duration::from_millis(10));
        }
        self.try_remove()
    }

    fn try_remove(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        match self.extent {
            Extent::Whole => remove_path(&self.path),
            Extent::Contents => fs::read_dir(&self.path)?.try_for_each(|entry| remove_path(&entry?.path())),
            Extent::IfEmpty => match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
                removed => removed,
            },
        }
    }
}

/// Removes a file, or a folder with its contents. A symbolic link is not followed.
fn remove_path(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Proof that [`remove_all`] was called. While it exists, a thread that creates, publishes, keeps or drops a [`Temporary`]
/// waits, so that it does not fail because of the removal.
#[derive(Debug)]
#[must_use = "the process must end before this is dropped"]
pub struct AllRemoved {
    _all: MutexGuard<'static, Vec<Entry>>,
}

/// Removes all temporary files and folders of this process, which must end afterwards.
pub fn remove_all() -> AllRemoved {
    let mut all = lock();
    // What was created last may be inside what was created before.
    for entry in std::mem::take(&mut *all).iter().rev() {
        // The process ends anyway.
        let _ = entry.remove();
    }
    AllRemoved { _all: all }
}

/// Returns a new temporary path in the same folder as `target`.
fn path_beside(target: &Path) -> PathBuf {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.join(format!("{}{}-{name}", own_prefix(), SERIAL.fetch_add(1, Ordering::Relaxed)))
}

/// Returns the prefix of the temporary names of this process.
pub fn own_prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

fn lock() -> MutexGuard<'static, Vec<Entry>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unregister(all: &mut Vec<Entry>, serial: u64) {
    all.retain(|entry| entry.serial != serial);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a new folder for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sgs-temporary-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    // One test, because `remove_all` removes the files of all tests of a process.
    #[test]
    fn temporaries_are_published_kept_or_removed() {
        let folder = folder("all");
        let target = folder.join("target");
        fs::write(&target, "old").unwrap();

        let (dropped, _) = Temporary::file_beside(&target).unwrap();
        assert!(names(&folder)[0].starts_with(&own_prefix()) && names(&folder)[0].ends_with("-target"));
        drop(dropped);
        assert_eq!(names(&folder), ["target"]);

        let (mut published, _) = Temporary::file_beside(&target).unwrap();
        published.publish(&target).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "");
        drop(published);
        let (mut failed, _) = Temporary::file_beside(&target).unwrap();
        failed.publish(&folder.join("missing/target")).unwrap_err();
        drop(failed);
        assert_eq!(names(&folder), ["target"], "it is neither published nor left");

        let mut kept = Temporary::folder_beside(&folder.join("kept")).unwrap();
        let at = kept.path().to_owned();
        fs::write(at.join("file"), "").unwrap();
        kept.keep();
        assert!(lock().is_empty());
        kept.remove().unwrap();
        assert!(!at.exists(), "what was kept can be removed");

        // Another folder inside the first, and a folder of the user's, whose contents are removed.
        let own = folder.join("own");
        fs::create_dir_all(own.join("inner")).unwrap();
        fs::write(own.join("file"), "").unwrap();
        let made = |path: &Path, extent| Temporary::new(path.to_owned(), extent);
        let left = [
            made(&own, Extent::Contents),
            Temporary::folder_beside(&target).unwrap(),
            Temporary::name_beside(&target),
            made(&folder.join("missing"), Extent::Whole),
            made(&folder, Extent::IfEmpty),
        ];
        fs::create_dir_all(left[1].path().join("a/b")).unwrap();
        Temporary::create(|| Err::<(PathBuf, Extent, ()), _>("not made")).unwrap_err();
        let removed = remove_all();
        assert_eq!((names(&folder), names(&own)), (vec!["own".to_owned(), "target".to_owned()], vec![]));

        // Another thread waits for the end of the process.
        let waiting = std::thread::spawn({
            let target = folder.join("late");
            move || Temporary::file_beside(&target).map(drop)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(removed);
        waiting.join().unwrap().unwrap();

        drop(left);
        fs::remove_dir(&own).unwrap();
        fs::remove_file(&target).unwrap();
        drop(made(&folder, Extent::IfEmpty));
        assert!(!folder.exists());
    }
}
