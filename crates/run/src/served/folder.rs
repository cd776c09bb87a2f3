//! The folder that servers read weights from: each set under a name of its own, and a link to the newest.
//!
//! A name says of which round the weights are and what is in them, so that what stands under it is always right; it
//! appears whole. The link is what a server is started on: whenever it starts, it has the newest weights.

use crate::workers::sheet::ModelSheet;
use anyhow::{Context, Result, ensure};
use sgs_rundir::directories::{publish_directory, remove_directory};
use sgs_rundir::files::remove_unfinished;
use std::path::{Path, PathBuf};

/// So much of a hash tells weights apart.
const ID: usize = 12;

/// A folder for the servers, of one run alone.
pub struct ServersFolder {
    path: PathBuf,
    /// As the servers name it.
    there: String,
}

/// Weights that lie there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaidOut {
    /// Their name, which tells them from all others.
    pub name: String,
    /// Where they lie, as the servers name it.
    pub there: String,
}

impl ServersFolder {
    /// Opens the folder; it is made if it is missing.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn open(path: &str, there: &str) -> Result<Self> {
        let about = || format!("the folder of `sampling.endpoint.folder`, {path}");
        std::fs::create_dir_all(path).with_context(about)?;
        let own = std::fs::canonicalize(path).with_context(about)?;
        remove_unfinished(&own).with_context(about)?;
        let there = if there.is_empty() { own.display().to_string() } else { there.to_owned() };
        Ok(Self { path: own, there: there.trim_end_matches('/').to_owned() })
    }

    /// Lays out the weights of `model`, which have seen the updates of so many rounds, with what else the `base` model has
    /// beside its weights (its configuration, its tokenizer), and has the link `set` lead there. Of older ones those that
    /// were laid out last stay, as a server may still be reading them.
    ///
    /// # Errors
    /// The model has no weights, or the file system refuses.
    pub fn lay_out(&self, set: &str, rounds: u32, model: &Path, base: &Path) -> Result<LaidOut> {
        let sheet = ModelSheet::of(model)?;
        let id: String = sheet.id.as_str().chars().take(ID).collect();
        let name = format!("{set}-{rounds:04}-{id}");
        let target = self.path.join(&name);
        if !target.is_dir() {
            publish_directory(&target, |place| {
                for entry in std::fs::read_dir(base)? {
                    let file = entry?.path();
                    let name = file.file_name().unwrap_or_default();
                    // What an interrupted process has left begins with a dot.
                    let is_whole = !name.as_encoded_bytes().starts_with(b".");
                    if is_whole && file.is_file() && !is_weights(&file) {
                        std::fs::copy(&file, place.join(name))?;
                    }
                }
                for file in sheet.files.iter().map(|file| sheet.folder.join(file.name.as_str())) {
                    let there = place.join(file.file_name().unwrap_or_default());
                    // On one file system no byte is copied.
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

    /// Has the link lead to a name; gives where it led before, if that is another.
    fn link(&self, set: &str, name: &str) -> Result<Option<String>> {
        let link = self.path.join(set);
        let about = || format!("the link {} for the servers", link.display());
        let is_taken = link.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        ensure!(!is_taken, "{} is no link: choose another `sampling.endpoint.folder`", link.display());
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

/// Whether a name is one that weights of a set are laid out under: nothing else in the folder is ours to remove.
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
    fn weights_lie_whole_under_names_of_their_own_and_the_link_leads_to_the_newest() {
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
        // What is not ours stays.
        for own in ["solver-7b", "solver-0001-backup"] {
            std::fs::create_dir(place.join(own)).unwrap();
        }
        folder.lay_out("solver", 2, &dir.path().join("checkpoint-2"), &base).unwrap();
        assert!(place.join("solver-7b").is_dir() && place.join("solver-0001-backup").is_dir());
        // A run that is resumed a round earlier, with what an interrupted process has left.
        std::fs::create_dir(place.join(".tmp-1-1-x")).unwrap();
        let folder = ServersFolder::open(place.to_str().unwrap(), "").unwrap();
        let again = folder.lay_out("solver", 1, &dir.path().join("checkpoint-1"), &base).unwrap();
        assert_eq!(again.name, laid[1].name);
        assert_eq!(read("model.safetensors"), "w1");
        // Equal numbers, other weights: another name.
        let other = model(dir.path(), "other", "w1'");
        assert_ne!(folder.lay_out("solver", 1, &other, &base).unwrap().name, laid[1].name);
        std::fs::create_dir(place.join("conjecturer")).unwrap();
        let error = folder.lay_out("conjecturer", 0, &base, &base).unwrap_err().to_string();
        assert!(error.contains("is no link"), "{error}");
    }
}
