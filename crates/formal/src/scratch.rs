//! Private folders for temporary files.

use sgs_base::temporary::{Extent, Temporary};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A private folder. Dropping it removes the folder, and so does [`remove_all`](sgs_base::temporary::remove_all).
#[derive(Debug)]
pub struct PrivateFolder(Temporary);

impl PrivateFolder {
    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
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
    let make = || -> io::Result<(PathBuf, Extent, ())> {
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir_in(&parent)?;
        Ok((folder.keep(), Extent::Whole, ()))
    };
    let folder = PrivateFolder(Temporary::create(make)?.0);
    let about = fs::symlink_metadata(folder.path())?;
    let is_private = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    if !about.is_dir() || !is_private {
        let what =
            format!("{} does not belong to this user alone: choose another folder", folder.path().display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(folder)
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

        let left = [(); 3].map(|()| private_folder(Some(&inner), "sgs-").unwrap());
        fs::create_dir(left[0].path().join("work")).unwrap();
        drop(sgs_base::temporary::remove_all());
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
        drop(left);
    }
}
