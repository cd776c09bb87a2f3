//! Recipes of the base models that are made for runs, and their folders.

use sgs_base::digest::checksum_of;
use sgs_metamath::slice::SLICE_SHA256;
use sgs_run::config::MADE;
use sgs_run::config::base_model::cache;
use sgs_run::{RunError, Usage};
use std::path::PathBuf;

/// The recipe of a base model for Metamath.
pub struct Recipe {
    /// The name after `made:`.
    pub name: &'static str,
    /// Number of theorems to compose at random.
    pub composed: usize,
    /// Maximum number of reviews for each theorem.
    pub reviews: usize,
    /// Maximum number of inferences of a proof in the corpora.
    pub max_steps: Option<usize>,
    /// The configurations of its trainings: `sgs pretrain` on all corpora, then perhaps `sgs sft` on theorems written by
    /// people. Most texts of the first are composed theorems, whose style the second training removes.
    pub stages: &'static [&'static str],
    /// Measured time of its trainings on one H200, in seconds (`data/metamath/base/README.md`).
    pub h200_s: Option<u32>,
}

/// All recipes.
pub const RECIPES: [Recipe; 3] = [
    Recipe {
        name: "deep",
        composed: 333_000,
        reviews: 8,
        max_steps: Some(4),
        stages: &[include_str!("../../presets/base/deep.toml")],
        h200_s: None,
    },
    Recipe {
        name: "13m",
        composed: 1_600_000,
        reviews: 16,
        max_steps: None,
        stages: &[
            include_str!("../../presets/base/13m-1.toml"),
            include_str!("../../presets/base/13m-2.toml"),
        ],
        h200_s: Some(150),
    },
    Recipe {
        name: "30m",
        composed: 1_600_000,
        reviews: 16,
        max_steps: None,
        stages: &[
            include_str!("../../presets/base/30m-1.toml"),
            include_str!("../../presets/base/30m-2.toml"),
        ],
        h200_s: Some(170),
    },
];

/// Checks that a value of `model.base` does not name an unknown recipe.
pub fn check(base: &str) -> Result<(), Usage> {
    if !base.starts_with("made:") || Recipe::of(base).is_some() {
        return Ok(());
    }
    Err(Usage(format!("model.base={base}: there is no such recipe, only {}", MADE.join(", "))))
}

impl Recipe {
    /// Returns the recipe that a value of `model.base` names.
    pub fn of(base: &str) -> Option<&'static Recipe> {
        let name = base.strip_prefix("made:")?;
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Returns the folder in the user's cache in which the model is made. It is specific to the recipe and the slice of
    /// set.mm.
    pub fn home(&self) -> Result<PathBuf, RunError> {
        let limit = self.max_steps.map_or(String::new(), |steps| format!("{steps}\n"));
        let trainings = self.stages.join("\n");
        let text = format!("{SLICE_SHA256}\n{}\n{}\n{limit}{trainings}", self.composed, self.reviews);
        Ok(cache()?.join(format!("made-{}-{}", self.name, &checksum_of(text.as_bytes())[..16])))
    }

    /// Returns the folder of the model. It exists only when the model is complete.
    pub fn model(&self) -> Result<PathBuf, RunError> {
        Ok(self.home()?.join("model"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recipe_has_a_name_and_a_separate_folder() {
        let homes: Vec<PathBuf> =
            RECIPES.iter().filter_map(|r| Recipe::of(&format!("made:{}", r.name))?.home().ok()).collect();
        assert_eq!(homes.len(), RECIPES.len());
        assert_eq!(RECIPES.map(|recipe| format!("made:{}", recipe.name)), MADE);
        assert_ne!(homes[0], homes[1]);
        for other in ["13m", "made:", "made:13", "made:13m/..", "shipped"] {
            assert!(Recipe::of(other).is_none(), "{other}");
        }
        assert!(check("made:13m").is_ok() && check("shipped").is_ok() && check("made-by-me").is_ok());
        assert!(check("made:20m").unwrap_err().to_string().contains("made:30m"));
    }
}
