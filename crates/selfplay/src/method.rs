//! The methods that the paper compares, and one that it names as future work, each as a configuration.

use crate::config::{
    AlgorithmConfig, Conditioning, ConjectureForm, ConjectureRule, GuideKind, Objective, UnrewardedHandling,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A training method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Solver, Conjecturer and Guide.
    Sgs,
    /// The main RL baseline: REINFORCE on problems with a solve rate of at most one half.
    ReinforceHalf,
    /// REINFORCE on every solved problem.
    Reinforce,
    /// Expert iteration.
    ExpertIteration,
    /// CISPO, targets only.
    Cispo,
    /// SGS without R_guide.
    SgsNoGuide,
    /// SGS with a Guide that learns during the run which conjectures help; beyond the paper.
    SgsLearnedGuide,
    /// SGS with a Conjecturer that is never updated.
    SgsFrozenConjecturer,
    /// SGS with a fixed prompt for the Conjecturer, and without R_guide.
    SgsNoConditioning,
    /// SGS with CISPO as the Solver's objective.
    SgsCispo,
    /// SGS in which the Conjecturer writes proofs, with the rubric as its Guide; beyond the paper.
    SgsProofs,
    /// SGS with the valid parts of failed rollouts as conjectures; beyond the paper.
    SgsAttempts,
    /// Theorems composed by a program instead of conjectures; beyond the paper.
    Composer,
    /// Composed theorems with proofs as long as those of the set `deep`: the best conjectures for it; beyond the paper.
    Oracle,
    /// The Self-play Theorem Prover of Dong and Ma 2025.
    Stp,
    /// The base model, sampled in every round without training.
    SamplingOnly,
}

impl Method {
    /// All methods, SGS first.
    pub const ALL: [Method; 16] = [
        Method::Sgs,
        Method::ReinforceHalf,
        Method::Reinforce,
        Method::ExpertIteration,
        Method::Cispo,
        Method::SgsNoGuide,
        Method::SgsLearnedGuide,
        Method::SgsFrozenConjecturer,
        Method::SgsNoConditioning,
        Method::SgsCispo,
        Method::SgsProofs,
        Method::SgsAttempts,
        Method::Composer,
        Method::Oracle,
        Method::Stp,
        Method::SamplingOnly,
    ];

    /// Returns the method's name on the command line and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Sgs => "sgs",
            Method::ReinforceHalf => "reinforce-half",
            Method::Reinforce => "reinforce",
            Method::ExpertIteration => "expert-iteration",
            Method::Cispo => "cispo",
            Method::SgsNoGuide => "sgs-no-guide",
            Method::SgsLearnedGuide => "sgs-learned-guide",
            Method::SgsFrozenConjecturer => "sgs-frozen-conjecturer",
            Method::SgsNoConditioning => "sgs-no-conditioning",
            Method::SgsCispo => "sgs-cispo",
            Method::SgsProofs => "sgs-proofs",
            Method::SgsAttempts => "sgs-attempts",
            Method::Composer => "composer",
            Method::Oracle => "oracle",
            Method::Stp => "stp",
            Method::SamplingOnly => "sampling-only",
        }
    }

    /// Returns a one-line description for help texts and reports, with the section of the paper.
    pub fn description(self) -> &'static str {
        match self {
            Method::Sgs => "Solver, Conjecturer and Guide (paper, §3)",
            Method::ReinforceHalf => {
                "Solver only, REINFORCE on problems with a solve rate of at most 1/2 (Appendix G.2)"
            }
            Method::Reinforce => "Solver only, REINFORCE on every solved problem (Appendix G.1)",
            Method::ExpertIteration => {
                "Solver only, targets with fewer than 16 proofs, proofs of the last 3 rounds (Appendix G.4)"
            }
            Method::Cispo => "Solver only, CISPO with group advantages (Appendix G.3)",
            Method::SgsNoGuide => "SGS with R_solve as the Conjecturer's only reward (§4.4, No Guide)",
            Method::SgsLearnedGuide => {
                "SGS with a Guide that learns which conjectures help (future work in the paper)"
            }
            Method::SgsFrozenConjecturer => {
                "SGS with a Conjecturer that is never trained (§4.4, Frozen Conjecturer)"
            }
            Method::SgsNoConditioning => {
                "SGS with a fixed prompt for the Conjecturer and no Guide (§4.4, No Problem Conditioning)"
            }
            Method::SgsCispo => "SGS with CISPO as the Solver's objective (§4.5)",
            Method::SgsProofs => {
                "SGS whose Conjecturer writes proofs, with the rubric as its Guide (beyond the paper)"
            }
            Method::SgsAttempts => {
                "SGS with the valid parts of failed rollouts as conjectures (beyond the paper)"
            }
            Method::Composer => "theorems that a program composes instead of conjectures (beyond the paper)",
            Method::Oracle => {
                "theorems composed like those of the set deep instead of conjectures: its ceiling (beyond the paper)"
            }
            Method::Stp => {
                "conjectures from solved problems and their proofs, expert iteration (Appendix F.2; Dong and Ma 2025)"
            }
            Method::SamplingOnly => {
                "the base model sampled in every round, without training (§4.3, parallel sampling)"
            }
        }
    }

    /// Returns the method's configuration with the paper's hyperparameters (Appendix C).
    pub fn config(self) -> AlgorithmConfig {
        let mut config = AlgorithmConfig::default();
        match self {
            Method::Sgs => {}
            Method::ReinforceHalf => solver_only(&mut config, Objective::ReinforceHalf),
            Method::Reinforce => solver_only(&mut config, Objective::Reinforce),
            Method::ExpertIteration => solver_only(&mut config, Objective::ExpertIteration),
            Method::Cispo => {
                solver_only(&mut config, Objective::Cispo);
                cispo_rate(&mut config);
            }
            Method::SgsNoGuide => config.guide.on = false,
            Method::SgsLearnedGuide => config.guide.kind = GuideKind::Learned,
            Method::SgsFrozenConjecturer => {
                config.conjecturer.frozen = true;
                config.guide.on = false;
            }
            Method::SgsNoConditioning => {
                config.conjecturer.conditioning = Conditioning::None;
                config.guide.on = false;
            }
            Method::SgsCispo => {
                config.solver.objective = Objective::Cispo;
                cispo_rate(&mut config);
            }
            Method::SgsProofs => {
                config.conjecturer.form = ConjectureForm::Proof;
                config.guide.kind = GuideKind::Rubric;
            }
            Method::SgsAttempts => {
                config.conjecturer.form = ConjectureForm::Attempt;
                config.conjecturer.conjectures_per_target = 6;
                config.guide.on = false;
            }
            Method::Composer => composed(&mut config),
            Method::Oracle => {
                composed(&mut config);
                config.conjecturer.composed_min_steps = 5;
                config.conjecturer.composed_max_steps = 12;
            }
            Method::Stp => stp(&mut config),
            Method::SamplingOnly => {
                solver_only(&mut config, Objective::Reinforce);
                config.solver.train = false;
            }
        }
        config
    }
}

fn solver_only(config: &mut AlgorithmConfig, objective: Objective) {
    config.solver.objective = objective;
    config.conjecturer.on = false;
    config.guide.on = false;
}

fn composed(config: &mut AlgorithmConfig) {
    config.conjecturer.form = ConjectureForm::Composed;
    config.guide.on = false;
}

/// Sets the best learning rate of CISPO (paper, Appendix C.2), which SGS with CISPO inherits (Table 1).
fn cispo_rate(config: &mut AlgorithmConfig) {
    config.solver.learning_rate = 1e-6;
    config.conjecturer.learning_rate = 1e-6;
}

/// Sets STP with the batch size and learning rate of the paper's Appendix F.2. Everything else follows Dong and Ma
/// 2025: one model for both roles, proofs weighted by their length, conjectures without a reward left out.
fn stp(config: &mut AlgorithmConfig) {
    config.tied_weights = true;
    config.solver.objective = Objective::ExpertIteration;
    config.conjecturer.conditioning = Conditioning::Solved;
    config.conjecturer.rule = ConjectureRule::Stp;
    config.conjecturer.stp.reweight = true;
    config.conjecturer.unselected = UnrewardedHandling::Dropped;
    config.conjecturer.malformed = UnrewardedHandling::Dropped;
    config.guide.on = false;
    config.penalties.length = false;
    config.penalties.short_proof_rate = 0.001;
    config.optimizer.batch_size = 64;
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
