//! The methods that the paper compares, and some beyond it. The preset of each is its configuration.

use crate::config::AlgorithmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Declares [`Method`]: for each method its name on the command line and in files, which is also that of its preset, its
/// name in legends, and its description, with the section of the paper.
macro_rules! methods {
    ($($method:ident = $name:literal, $label:literal, $description:literal;)*) => {
        /// A training method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Method {
            $(#[doc = $description] $method,)*
        }

        impl Method {
            /// All methods, SGS first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$method),*];

            /// Returns the method's name on the command line and in files.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$method => $name,)* }
            }

            /// Returns the method's name in legends.
            pub fn label(self) -> &'static str {
                match self { $(Self::$method => $label,)* }
            }

            /// Returns a one-line description for reports.
            pub fn description(self) -> &'static str {
                match self { $(Self::$method => $description,)* }
            }

            /// Returns the method's preset (TOML).
            pub fn preset(self) -> &'static str {
                match self { $(Self::$method => include_str!(concat!("../presets/method/", $name, ".toml")),)* }
            }
        }
    };
}

methods! {
    Sgs = "sgs", "SGS",
        "Solver, Conjecturer and Guide (paper, §3)";
    ReinforceHalf = "reinforce-half", "RL (REINFORCE-1/2)",
        "Solver only, REINFORCE on problems with a solve rate of at most 1/2 (Appendix G.2)";
    Reinforce = "reinforce", "RL (REINFORCE)",
        "Solver only, REINFORCE on every solved problem (Appendix G.1)";
    ExpertIteration = "expert-iteration", "Expert iteration",
        "Solver only, targets with fewer than 16 proofs, proofs of the last 3 rounds (Appendix G.4)";
    Cispo = "cispo", "CISPO",
        "Solver only, CISPO with group advantages (Appendix G.3)";
    SgsNoGuide = "sgs-no-guide", "No Guide",
        "SGS with R_solve as the Conjecturer's only reward (§4.4, No Guide)";
    SgsFrozenConjecturer = "sgs-frozen-conjecturer", "Frozen Conjecturer",
        "SGS with a Conjecturer that is never trained (§4.4, Frozen Conjecturer)";
    SgsNoConditioning = "sgs-no-conditioning", "No problem conditioning",
        "SGS with a fixed prompt for the Conjecturer and no Guide (§4.4, No Problem Conditioning)";
    SgsCispo = "sgs-cispo", "SGS with CISPO",
        "SGS with CISPO as the Solver's objective (§4.5)";
    SgsProofs = "sgs-proofs", "SGS with proofs",
        "SGS whose Conjecturer writes proofs, with the rubric as its Guide (beyond the paper)";
    SgsAttempts = "sgs-attempts", "SGS with attempts",
        "SGS with the valid parts of failed rollouts as conjectures (beyond the paper)";
    Composer = "composer", "Composer",
        "theorems that a program composes instead of conjectures (beyond the paper)";
    Oracle = "oracle", "Oracle",
        "theorems composed like those of the set deep instead of conjectures: its ceiling (beyond the paper)";
    Stp = "stp", "STP",
        "conjectures from solved problems and their proofs, expert iteration (Appendix F.2; Dong and Ma 2025)";
    SamplingOnly = "sampling-only", "Parallel sampling",
        "the base model sampled in every round, without training (§4.3, parallel sampling)";
}

impl Method {
    /// Returns the method's configuration with the paper's hyperparameters (Appendix C), except for the learning rates,
    /// which depend on the model. Ignores the parts of the preset that are for one size only.
    #[allow(clippy::expect_used, reason = "the presets are part of the program")]
    pub fn config(self) -> AlgorithmConfig {
        let mut preset: toml::Table = self.preset().parse().expect("invariant: a preset is TOML");
        let algorithm = preset.remove("algorithm").unwrap_or_else(|| toml::Table::new().into());
        algorithm.try_into().expect("invariant: a preset has valid keys")
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of parsing an unknown method name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown method {0:?}; expected one of {all}", all = Method::ALL.map(Method::as_str).join(", "))]
pub struct UnknownMethod(pub String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Method::ALL.into_iter().find(|method| method.as_str() == name);
        found.ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}
