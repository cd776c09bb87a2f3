//! The folder that servers load weights from. Each version has a unique name, and a symbolic link points to the newest.
//!
//! A name contains the round and a hash of the weights, so the content under a name never changes. A folder gets its
//! name only when it is complete. Servers are started with the path of the link, so a restarted server loads the newest
//! weights.

use crate::error::{Context, Result, ensure};
use crate::workers::manifest::ModelManifest;
use sgs_rundir::directories::{publish_directory, remove_directory};
use sgs_rundir::files::remove_unfinished;
use std::path::{Path, PathBuf};

/// Number of hexadecimal digits of the hash in a name.
const ID: usize = 12;

/// The servers' weight folder. Only one run may use it.
pub(crate) struct ServersFolder {
    path: PathBuf,
    /// The path of this folder on the servers.
    there: String,
}

/// Weights that were written to the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaidOut {
    /// The unique name of the weights.
    pub name: String,
    /// The path of the weights on the servers.
    pub there: String,
}

impl ServersFolder {
    /// Opens the folder, and creates it if it is missing.
    pub(crate) fn open(path: &str, there: &str) -> Result<Self> {
        let about = || format!("the folder of `sampling.endpoint.folder`, {path}");
        std::fs::create_dir_all(path).with_context(about)?;
        let own = std::fs::canonicalize(path).with_context(about)?;
        remove_unfinished(&own).with_context(about)?;
        let there = if there.is_empty() { own.display().to_string() } else { there.to_owned() };
        Ok(Self { path: own, there: there.trim_end_matches('/').to_owned() })
    }

    /// Writes the weights of `model` after `rounds` updates, together with the other files of the `base` model
    /// (configuration, tokenizer), and points the link `set` to them. The previous version is kept, because a server
    /// may still be reading it; older versions are removed.
    pub(crate) fn lay_out(&self, set: &str, rounds: u32, model: &Path, base: &Path) -> Result<LaidOut> {
        let manifest = ModelManifest::of(model)?;
        let id: String = manifest.id.as_str().chars().take(ID).collect();
        let name = format!("{set}-{rounds:04}-{id}");
        let target = self.path.join(&name);
        if !target.is_dir() {
            publish_directory(&target, |place| {
                for entry in std::fs::read_dir(base)? {
                    let entry = entry?;
                    let (file, name) = (entry.path(), entry.file_name());
                    // The names of files that an interrupted process left begin with a dot.
                    let is_whole = !name.as_encoded_bytes().starts_with(b".");
                    if is_whole && file.is_file() && !is_weights(&file) {
                        std::fs::copy(&file, place.join(&name))?;
                    }
                }
                for name in manifest.files.iter().map(|file| file.name.as_str()) {
                    let (file, there) = (manifest.folder.join(name), place.join(name));
                    // A hard link avoids a copy if both folders are on the same file system.
                    if is_weights(&file) && std::fs::hard_link(&file, &there).is_err() {
                        std::fs::copy(&file, &there)?;
                    }
                }
                Ok(())
            })
            .with_context(|| format!("the weights {name} for the servers"))?;
        }
        let before = self.link(set, &name)?;
        self.prune(set, [Some(name.as_str()), before.as_deref()])?;
        Ok(LaidOut { there: format!("{}/{name}", self.there), name })
    }

    /// Points the link to a name. Returns its previous target if that is different.
    fn link(&self, set: &str, name: &str) -> Result<Option<String>> {
        let link = self.path.join(set);
        let about = || format!("the link {} for the servers", link.display());
        let is_taken = link.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        ensure!(
            !is_taken,
            "{} is not a symbolic link: choose another `sampling.endpoint.folder`",
            link.display()
        );
        let before = std::fs::read_link(&link).ok().map(|to| to.to_string_lossy().into_owned());
        if before.as_deref() == Some(name) {
            return Ok(None);
        }
        let fresh = self.path.join(format!(".{set}.link"));
        let _ = std::fs::remove_file(&fresh);
        std::os::unix::fs::symlink(name, &fresh).with_context(about)?;
        std::fs::rename(&fresh, &link).with_context(about)?;
        Ok(before)
    }

    fn prune(&self, set: &str, keep: [Option<&str>; 2]) -> Result<()> {
        let about = || format!("the folder {} for the servers", self.path.display());
        for entry in std::fs::read_dir(&self.path).with_context(about)? {
            let entry = entry.with_context(about)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_laid_out(&name, set) && !keep.contains(&Some(name.as_str())) {
                remove_directory(&entry.path()).with_context(about)?;
            }
        }
        Ok(())
    }
}

/// Returns whether a name has the form of a weight version of `set`. Anything else in the folder must not be removed.
fn is_laid_out(name: &str, set: &str) -> bool {
    let rest = name.strip_prefix(set).and_then(|rest| rest.strip_prefix('-')?.split_once('-'));
    rest.is_some_and(|(round, id)| {
        let is_round = round.len() >= 4 && round.bytes().all(|b| b.is_ascii_digit());
        is_round && id.len() == ID && id.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

fn is_weights(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    [".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf"]
        .iter()
        .any(|end| name.ends_with(end))
        || name == sgs_rundir::directories::CHECKSUMS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn model(folder: &Path, name: &str, weights: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in
            [("model.safetensors", weights), ("config.json", name), ("optimizer-m.safetensors", "m")]
        {
            std::fs::write(path.join(file), text).unwrap();
        }
        path
    }

    #[test]
    fn each_version_has_a_unique_name_and_the_link_points_to_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let base = model(dir.path(), "base", "w0");
        std::fs::write(base.join("tokenizer.json"), "t").unwrap();
        for left in [".tmp-1-2-model.safetensors", ".tmp-1-3-config.json"] {
            std::fs::write(base.join(left), "torn").unwrap();
        }
        let place = dir.path().join("servers");
        let folder = ServersFolder::open(place.to_str().unwrap(), "/there/").unwrap();
        let laid: Vec<LaidOut> = (0..3)
            .map(|round| {
                let trained = model(dir.path(), &format!("checkpoint-{round}"), &format!("w{round}"));
                folder.lay_out("solver", round, &trained, &base).unwrap()
            })
            .collect();
        assert!(laid[2].there.starts_with("/there/solver-0002-"), "{laid:?}");
        let read = |file: &str| std::fs::read_to_string(place.join("solver").join(file)).unwrap();
        assert_eq!(
            [read("model.safetensors"), read("config.json"), read("tokenizer.json")],
            ["w2", "base", "t"]
        );
        assert!(!place.join("solver/optimizer-m.safetensors").exists());
        let of_base = folder.lay_out("solver", 7, &base, &base).unwrap();
        let names = std::fs::read_dir(place.join(of_base.name)).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["SHA256SUMS", "config.json", "model.safetensors", "tokenizer.json"]);
        folder.lay_out("solver", 1, &dir.path().join("checkpoint-1"), &base).unwrap();
        folder.lay_out("solver", 2, &dir.path().join("checkpoint-2"), &base).unwrap();
        let there = |laid: &LaidOut| place.join(&laid.name).is_dir();
        assert_eq!([there(&laid[0]), there(&laid[1]), there(&laid[2])], [false, true, true]);
        // Folders with other names are not removed.
        for own in ["solver-7b", "solver-0001-backup"] {
            std::fs::create_dir(place.join(own)).unwrap();
        }
        folder.lay_out("solver", 2, &dir.path().join("checkpoint-2"), &base).unwrap();
        assert!(place.join("solver-7b").is_dir() && place.join("solver-0001-backup").is_dir());
        // Simulate a run that resumes one round earlier, and a file that an interrupted process has left.
        std::fs::create_dir(place.join(".tmp-1-1-x")).unwrap();
        let folder = ServersFolder::open(place.to_str().unwrap(), "").unwrap();
        let again = folder.lay_out("solver", 1, &dir.path().join("checkpoint-1"), &base).unwrap();
        assert_eq!(again.name, laid[1].name);
        assert_eq!(read("model.safetensors"), "w1");
        // The same round with different weights gets a different name.
        let other = model(dir.path(), "other", "w1'");
        assert_ne!(folder.lay_out("solver", 1, &other, &base).unwrap().name, laid[1].name);
        std::fs::create_dir(place.join("conjecturer")).unwrap();
        let error = folder.lay_out("conjecturer", 0, &base, &base).unwrap_err().to_string();
        assert!(error.contains("is not a symbolic link"), "{error}");
    }
}
