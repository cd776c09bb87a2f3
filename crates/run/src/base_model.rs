//! The base models that ship with the program, one a formal system, as a folder in Hugging Face layout.

use crate::config::SystemName;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A model's files, each with its content.
pub type Files = [(&'static str, &'static [u8]); 4];

const METAMATH: Files = [
    ("config.json", include_bytes!("../../../data/metamath/base/config.json")),
    ("model.safetensors", include_bytes!("../../../data/metamath/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../../data/metamath/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../data/metamath/base/tokenizer_config.json")),
];

const LEAN: Files = [
    ("config.json", include_bytes!("../../../data/lean/base/config.json")),
    ("model.safetensors", include_bytes!("../../../data/lean/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../../data/lean/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../data/lean/base/tokenizer_config.json")),
];

/// The files of the model that ships for a formal system.
pub fn files(system: SystemName) -> Files {
    match system {
        SystemName::Metamath => METAMATH,
        SystemName::Lean => LEAN,
    }
}

/// SHA-256 over all files.
pub fn hash(system: SystemName) -> String {
    hash_of(files(system))
}

/// The same of a copy in a folder; `None` if a file of it is not there.
///
/// # Errors
/// A file cannot be read.
pub fn hash_in(folder: &Path) -> Result<Option<String>> {
    let mut found = Vec::new();
    for (name, _) in METAMATH {
        let path = folder.join(name);
        match fs::read(&path) {
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
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Writes the model into a folder, unless it is there already; gives the folder. A file that stands there under its name
/// is whole, so that one with other content was altered: whoever has read it has worked with another model.
///
/// # Errors
/// A file is another, or the file system refuses.
pub fn unpack(system: SystemName, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, bytes) in files(system) {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(found) if found == bytes => {}
            Ok(_) => bail!(
                "{} is not the file of the base model that ships: it was altered; remove it, and it is written anew",
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

/// The folder of the model that a command works with: the one named, or the one that ships, unpacked.
///
/// # Errors
/// No folder is named, and the shipped model cannot be unpacked.
pub fn folder_for(system: SystemName, named: Option<&Path>) -> Result<PathBuf> {
    named.map_or_else(|| unpack(system, &cache_folder(system)), |folder| Ok(folder.to_owned()))
}

/// Where the model is unpacked for commands that work on no run: the user's cache, else the temporary folder.
pub fn cache_folder(system: SystemName) -> PathBuf {
    cache().join(format!("base-{}", &hash(system)[..16]))
}

/// The program's folder in the user's cache, else in the temporary folder.
pub fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    cache.join("sgs")
}
