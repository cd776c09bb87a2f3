//! Base models that a run makes for itself: how they are made, and where they stand.

use crate::Usage;
use crate::base_model::cache;
use anyhow::{Context, Result};
use sgs_metamath::slice::{SLICE_SHA256, sha256};
use sgs_rundir::directories::{CHECKSUMS, check_directory};
use sgs_rundir::files::write_file;
use std::fs;
use std::path::{Path, PathBuf};

/// How a base model of the embedded system is made.
pub struct Recipe {
    /// What stands behind `made:`.
    pub name: &'static str,
    /// Theorems that are composed at random for it.
    pub composed: usize,
    /// Reviews for each theorem, at most.
    pub reviews: usize,
    /// Two trainings, as `sgs pretrain` and `sgs sft` read them: everything from scratch, then theorems as people write
    /// them. Theorems that were composed are most of the first; ending on them would leave their style.
    pub stages: [&'static str; 2],
}

/// The file of a model that is copied last.
const CONFIG: &str = "config.json";

/// Whether a folder holds a whole copy.
pub fn is_model(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// All of them.
pub const RECIPES: [Recipe; 2] = [
    Recipe {
        name: "13m",
        composed: 1_600_000,
        reviews: 16,
        stages: [
            include_str!("../../../presets/base/13m-1.toml"),
            include_str!("../../../presets/base/13m-2.toml"),
        ],
    },
    Recipe {
        name: "30m",
        composed: 1_600_000,
        reviews: 16,
        stages: [
            include_str!("../../../presets/base/30m-1.toml"),
            include_str!("../../../presets/base/30m-2.toml"),
        ],
    },
];

/// Refuses a value of `model.base` that names a recipe which there is not.
///
/// # Errors
/// It does.
pub fn check(base: &str) -> Result<(), Usage> {
    if !base.starts_with("made:") || Recipe::of(base).is_some() {
        return Ok(());
    }
    let names: Vec<String> = RECIPES.iter().map(|recipe| format!("made:{}", recipe.name)).collect();
    Err(Usage(format!("model.base={base}: there is no such recipe, only {}", names.join(", "))))
}

impl Recipe {
    /// The recipe that a value of `model.base` names.
    pub fn of(base: &str) -> Option<&'static Recipe> {
        let name = base.strip_prefix("made:")?;
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Where it is made: a folder of the user's cache. Another recipe or another slice of set.mm has another.
    pub fn home(&self) -> PathBuf {
        let [first, second] = self.stages;
        let text = format!("{SLICE_SHA256}\n{}\n{}\n{first}\n{second}", self.composed, self.reviews);
        cache().join(format!("made-{}-{}", self.name, &sha256(text.as_bytes())[..16]))
    }

    /// The model, once it is made: the folder appears whole.
    pub fn model(&self) -> PathBuf {
        self.home().join("model")
    }

    /// A run's own copy of the model in `folder`, made now if it is not there: a cache may be cleared, and ranks on other
    /// machines see the run's folder.
    ///
    /// # Errors
    /// The model is neither there nor in the cache, or the file system refuses.
    pub fn copied_to(&self, folder: &Path) -> Result<PathBuf> {
        if is_model(folder) {
            // A copy by an older program has no list; its weights are compared with what was frozen.
            if folder.join(CHECKSUMS).exists() {
                check_directory(folder).context("the run's copy of its base model")?;
            }
            return Ok(folder.to_owned());
        }
        let from = self.model();
        let missing = || {
            format!(
                "{} is not there: `sgs resume` of a run with model.base=made:{} makes it",
                from.display(),
                self.name
            )
        };
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&from).with_context(missing)? {
            files.push(entry?.path());
        }
        // The last file says that all are there.
        files.retain(|path| !path.ends_with(CHECKSUMS));
        files.sort_by_key(|path| path.ends_with(CONFIG));
        let mut list = String::new();
        for path in files {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.file_name().unwrap_or_default();
            list.push_str(&format!("{}  {}\n", sha256(&bytes), name.to_string_lossy()));
            if path.ends_with(CONFIG) {
                write_file(&folder.join(CHECKSUMS), list.as_bytes())?;
            }
            write_file(&folder.join(name), &bytes)?;
        }
        Ok(folder.to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_found_and_have_homes_of_their_own() {
        let homes: Vec<PathBuf> =
            RECIPES.iter().filter_map(|r| Some(Recipe::of(&format!("made:{}", r.name))?.home())).collect();
        assert_eq!(homes.len(), RECIPES.len());
        assert_ne!(homes[0], homes[1]);
        for other in ["13m", "made:", "made:13", "made:13m/..", "shipped"] {
            assert!(Recipe::of(other).is_none(), "{other}");
        }
        assert!(check("made:13m").is_ok() && check("shipped").is_ok() && check("made-by-me").is_ok());
        assert!(check("made:20m").unwrap_err().to_string().contains("made:30m"));
    }

    #[test]
    fn a_run_keeps_a_copy_once_it_has_one() {
        let run = tempfile::tempdir().unwrap();
        let own = run.path().join("base");
        let missing = RECIPES[0].copied_to(&own);
        // Only where nobody has made the model, as on a machine of CI, can nothing be copied.
        assert!(missing.is_err() || is_model(&own));
        fs::write(own.join(CONFIG), b"{}").unwrap();
        assert_eq!(RECIPES[0].copied_to(&own).unwrap(), own);
    }
}
