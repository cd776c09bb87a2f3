//! The base models embedded in the program, one per formal system, each a folder in Hugging Face layout.

use super::problems::SystemName;
use crate::error::{Context, Result, bail};
use sgs_base::digest::hex;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that is copied last. Its presence marks a model folder as complete.
pub const CONFIG: &str = "config.json";

/// Maximum size in bytes of a file of a shipped model.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// Returns whether a folder holds a complete model.
pub fn is_model(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// The files of a model: name and content.
pub type Files = [(&'static str, &'static [u8]); 4];

/// Returns the files of the base model of a formal system.
///
/// # Errors
/// Returns an error for an external system.
pub fn files(system: SystemName) -> Result<Files> {
    match system {
        SystemName::Metamath => Ok(sgs_metamath::BASE_MODEL),
        SystemName::Lean => Ok(sgs_lean::BASE_MODEL),
        SystemName::External => {
            bail!("no base model ships for an external system: set model.base to a folder")
        }
    }
}

/// Returns the SHA-256 over the names and contents of all files, in hexadecimal.
///
/// # Errors
/// Returns an error for an external system.
pub fn hash(system: SystemName) -> Result<String> {
    Ok(hash_of(files(system)?))
}

/// Returns the [`hash`] of a copy in a folder, or `None` if a file is missing.
pub fn hash_in(folder: &Path) -> Result<Option<String>> {
    let mut found = Vec::new();
    for (name, _) in sgs_metamath::BASE_MODEL {
        let path = folder.join(name);
        match sgs_base::files::read(&path, MOST_BYTES) {
            Ok(bytes) => found.push((name, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    Ok(Some(hash_of(found)))
}

fn hash_of<B: AsRef<[u8]>>(files: impl IntoIterator<Item = (&'static str, B)>) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in files {
        hash.update(name.as_bytes());
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

/// Writes the model into a folder, unless it is already there, and returns the folder.
///
/// Files are written atomically, so an existing file with different content was modified after it was written. It is
/// not overwritten, because other commands may have used it as the base model.
///
/// # Errors
/// Returns an error if a file has different content, or cannot be read or written.
pub fn unpack(system: SystemName, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, bytes) in files(system)? {
        let path = folder.join(name);
        match sgs_base::files::read(&path, MOST_BYTES) {
            Ok(found) if found == bytes => {}
            Ok(_) => bail!(
                "{} differs from the base model that ships with this program; remove it, and it will be written again",
                path.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                sgs_rundir::files::write_file(&path, bytes)?;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    Ok(folder.to_owned())
}

/// Returns the folder of the model to use: the named one, or that of the shipped model, which is unpacked first.
///
/// # Errors
/// Returns an error if no folder is named and the shipped model cannot be unpacked.
pub fn folder_for(system: SystemName, named: Option<&Path>) -> Result<PathBuf> {
    named.map_or_else(|| unpack(system, &cache_folder(system)?), |folder| Ok(folder.to_owned()))
}

/// Returns the folder where the model is unpacked for commands that do not work on a run.
pub fn cache_folder(system: SystemName) -> Result<PathBuf> {
    Ok(cache()?.join(format!("base-{}", &hash(system)?[..16])))
}

/// Returns the program's folder in the user's cache. A shared folder, such as the system's temporary folder, is not
/// suitable, because another user could have put files there.
///
/// # Errors
/// Returns an error if the user has no home.
pub fn cache() -> Result<PathBuf> {
    let cache = sgs_base::host::cache_folder();
    let cache =
        cache.context("this user has no home folder: set HOME or XDG_CACHE_HOME to a folder for models")?;
    Ok(cache.join("sgs"))
}
