//! Base models that a run makes for itself: how they are made, and where they stand.

use crate::base_model::cache;
use sgs_metamath::slice::{SLICE_SHA256, sha256};
use std::path::PathBuf;

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
}

#[cfg(test)]
mod tests {
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
    }
}
