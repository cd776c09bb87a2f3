//! Which weights a role uses and whether they are trained. The training loop, workers, checkpoints and resuming all use
//! these rules.

use crate::config::{AlgorithmConfig, ConjectureForm, GuideKind};
use crate::data::Role;

/// A set of weights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weights {
    /// The frozen base model.
    Base,
    /// The Solver's trained weights. Tied weights use this variant, even if only the Conjecturer trains them.
    Solver,
    /// The Conjecturer's trained weights.
    Conjecturer,
    /// The Guide's frozen weights: those of the base model or of a separate model.
    Guide,
    /// Frozen weights of an external server, which the run does not load.
    Served,
}

impl Weights {
    /// Returns whether updates change the weights. Such weights are in every checkpoint, and workers reload them.
    pub fn is_trained(self) -> bool {
        matches!(self, Weights::Solver | Weights::Conjecturer)
    }

    /// Returns their folder in a checkpoint; `None` if checkpoints do not contain them.
    pub fn folder(self) -> Option<&'static str> {
        match self {
            Weights::Solver => Some("solver"),
            Weights::Conjecturer => Some("conjecturer"),
            Weights::Base | Weights::Guide | Weights::Served => None,
        }
    }
}

/// The source of a role's completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleBackend {
    /// The run's own samplers, or workers with copies of its weights.
    Local,
    /// An external server with fixed weights.
    Endpoint,
    /// An external server that receives the role's weights after each update.
    SyncedEndpoint,
}

impl AlgorithmConfig {
    /// Returns the weights that a role uses on a backend.
    pub fn weights_of(&self, role: Role, backend: RoleBackend) -> Weights {
        let own = self.own_weights_of(role);
        match backend {
            RoleBackend::Local => own,
            // Frozen weights need no synchronisation, so the server's own are used.
            RoleBackend::SyncedEndpoint if own.is_trained() => own,
            RoleBackend::SyncedEndpoint | RoleBackend::Endpoint => Weights::Served,
        }
    }

    fn own_weights_of(&self, role: Role) -> Weights {
        match role {
            Role::Guide => Weights::Guide,
            Role::Solver | Role::Conjecturer if self.tied_weights => {
                if self.is_trained_on(Role::Solver) || self.is_trained_on(Role::Conjecturer) {
                    Weights::Solver
                } else {
                    Weights::Base
                }
            }
            Role::Solver if self.is_trained_on(role) => Weights::Solver,
            // The Solver itself makes the attempts.
            Role::Conjecturer if self.conjecturer.form == ConjectureForm::Attempt => {
                self.own_weights_of(Role::Solver)
            }
            Role::Conjecturer if self.is_trained_on(role) => Weights::Conjecturer,
            Role::Solver | Role::Conjecturer => Weights::Base,
        }
    }

    /// Returns whether the examples of a role are trained on. Tied weights may change even if this is false.
    pub fn is_trained_on(&self, role: Role) -> bool {
        match role {
            Role::Solver => self.solver.train,
            Role::Conjecturer => self.conjecturer.is_trained(),
            Role::Guide => false,
        }
    }

    /// Returns whether a language model samples completions of a role.
    pub fn samples(&self, role: Role) -> bool {
        match role {
            Role::Solver => true,
            Role::Conjecturer => self.conjecturer.is_sampled(),
            Role::Guide => self.has_model_reviews(),
        }
    }

    /// Returns whether a language model reviews conjectures.
    pub fn has_model_reviews(&self) -> bool {
        self.guide.on && self.guide.kind != GuideKind::Rubric
    }

    /// Returns whether a role samples with the base model's weights on these backends; `has_own_guide` says whether the
    /// Guide has a separate model.
    pub fn samples_with_base(&self, backend_of: impl Fn(Role) -> RoleBackend, has_own_guide: bool) -> bool {
        let weights = |role| self.weights_of(role, backend_of(role));
        let guide = self.samples(Role::Guide) && !has_own_guide && weights(Role::Guide) == Weights::Guide;
        let conjecturer = self.samples(Role::Conjecturer) && weights(Role::Conjecturer) == Weights::Base;
        weights(Role::Solver) == Weights::Base || conjecturer || guide
    }

    /// Returns whether rank 0 needs the base model's weights although it samples nothing.
    pub fn updates_with_base(&self, backend_of: impl Fn(Role) -> RoleBackend) -> bool {
        let conjecturer = self.weights_of(Role::Conjecturer, backend_of(Role::Conjecturer));
        // The matching embeds statements with the base model if the Conjecturer's weights are elsewhere.
        let matching = self.conjecturer.is_reweighted() && !conjecturer.is_trained();
        // A synchronised server must answer differently from the base model.
        let follows = [Role::Solver, Role::Conjecturer]
            .into_iter()
            .any(|role| backend_of(role) == RoleBackend::SyncedEndpoint);
        self.solver.kl_coefficient != 0.0 || matching || follows
    }

    /// Returns whether any weights are trained.
    pub fn trains(&self) -> bool {
        self.is_trained_on(Role::Solver) || self.is_trained_on(Role::Conjecturer)
    }
}
