//! Private folders for temporary files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// The folders of this process.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A private folder. Dropping it removes the folder, and so does [`remove_all`].
#[derive(Debug)]
pub struct PrivateFolder(TempDir);

impl PrivateFolder {
    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        folders().retain(|folder| folder != self.0.path());
    }
}

/// Creates a folder with a random name that only this user can enter, in `parent` or in the system's temporary folder. An
/// existing folder is never used, because another user could have prepared it.
///
/// # Errors
/// Returns an error if the folder cannot be created, or if it does not belong to this user alone.
pub fn private_folder(parent: Option<&Path>, prefix: &str) -> io::Result<PrivateFolder> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    fs::create_dir_all(&parent)?;
    let folder = tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(&parent)?;
    let about = fs::symlink_metadata(folder.path())?;
    let is_private = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    if !about.is_dir() || !is_private {
        let what =
            format!("{} does not belong to this user alone: choose another folder", folder.path().display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    folders().push(folder.path().to_owned());
    Ok(PrivateFolder(folder))
}

/// Removes all private folders of this process, which must end afterwards.
pub fn remove_all() {
    for folder in std::mem::take(&mut *folders()) {
        // A removal fails if another process creates a file at the same time.
        for _ in 0..10 {
            if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_private_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let inner = parent.path().join("made/when/missing");
        let folders = [(); 20].map(|()| private_folder(Some(&inner), "sgs-").unwrap());
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 20);
        for folder in folders {
            let path = folder.path().to_owned();
            assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o700);
            assert!(path.file_name().unwrap().len() > "sgs-".len());
            drop(folder);
            assert!(!path.exists());
        }
        assert!(private_folder(None, "sgs-").unwrap().path().starts_with(std::env::temp_dir()));

        // In the same test, because this removes the folders of all tests of a process.
        let left = [(); 3].map(|()| private_folder(Some(&inner), "sgs-").unwrap());
        fs::create_dir(left[0].path().join("work")).unwrap();
        drop(private_folder(Some(&inner), "sgs-").unwrap());
        assert_eq!(super::folders().len(), 3);
        remove_all();
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
        drop(left);
    }
}
