//! The keys that have no effect in a configuration, because another key turns off the part that they belong to.

use crate::config::endpoint::Refresh;
use crate::config::held_out::{NONE, SPLIT};
use crate::config::{Layer, Resolved, RunConfig, SystemName};
use sgs_lean::Backing;
use sgs_lean::prompt::SolverForm;
use sgs_lm::ModelConfig;
use sgs_selfplay::Role;
use sgs_selfplay::config::{BatchSize, Conditioning, ConjectureForm, ConjectureRule, GuideKind, Selection};

/// Keys that have an effect only under a condition.
struct Dependence {
    /// The keys, without the name of their table.
    keys: &'static [&'static str],
    /// Their table.
    table: &'static str,
    /// The key that turns them off.
    cause: &'static str,
    /// Whether they have an effect.
    have_effect: fn(&RunConfig) -> bool,
}

const fn dependence(
    table: &'static str,
    keys: &'static [&'static str],
    cause: &'static str,
    have_effect: fn(&RunConfig) -> bool,
) -> Dependence {
    Dependence { keys, table, cause, have_effect }
}

/// All keys of a table, except the cause itself.
const ALL: &[&str] = &[];

/// The dependences. The first one that applies to a key explains why it has no effect.
const DEPENDENCES: &[Dependence] = &[
    dependence("lean", ALL, "problems.system", |c| c.problems.system == SystemName::Lean),
    dependence("lean.recycling", ALL, "lean.backing", |c| {
        c.lean.as_ref().is_some_and(|lean| lean.backing == Backing::Repl)
    }),
    dependence("lean", &["reading"], "lean.form", |c| {
        c.lean.as_ref().is_some_and(|lean| lean.form != SolverForm::Compact)
    }),
    dependence("lean", &["require_sandbox"], "lean.sandbox", |c| {
        c.lean.as_ref().is_some_and(|lean| lean.sandbox)
    }),
    dependence("external", ALL, "problems.system", |c| c.problems.system == SystemName::External),
    dependence("sampling.endpoint", ALL, "sampling.endpoint.roles", |c| {
        !c.sampling.endpoint.roles.is_empty()
    }),
    dependence("sampling.endpoint", &["solver_urls"], "sampling.endpoint.roles", |c| {
        c.sampling.endpoint.roles.contains(&Role::Solver)
    }),
    dependence("sampling.endpoint", &["conjecturer_urls"], "sampling.endpoint.roles", |c| {
        c.sampling.endpoint.roles.contains(&Role::Conjecturer)
    }),
    dependence("sampling.endpoint", &["guide_urls"], "sampling.endpoint.roles", |c| {
        c.sampling.endpoint.roles.contains(&Role::Guide)
    }),
    dependence("sampling.endpoint", &["folder", "folder_there"], "sampling.endpoint.refresh", |c| {
        c.sampling.endpoint.refresh != Refresh::Never
    }),
    dependence("sampling.endpoint", &["key_env"], "sampling.endpoint.key_file", |c| {
        c.sampling.endpoint.key_file.is_empty()
    }),
    dependence("evaluation", &["share"], "evaluation.held_out", |c| c.evaluation.held_out == SPLIT),
    dependence("evaluation", &["problems", "samples", "every"], "evaluation.held_out", |c| {
        c.evaluation.held_out != NONE
    }),
    // Weights that never change are evaluated once.
    dependence("evaluation", &["every"], "algorithm.solver.train", |c| {
        c.weights_of(Role::Solver).is_trained()
    }),
    dependence("checkpoints", ALL, "algorithm.solver.train", |c| c.algorithm.trains()),
    // The Solver.
    dependence(
        "algorithm.solver",
        &[
            "learning_rate",
            "decay_share",
            "loss_normalisation",
            "clip_low",
            "clip_high",
            "advantage_epsilon",
            "distinct_examples",
            "conjecture_share",
            "conjecture_max_rate",
            "entropy_bonus",
            "kl_coefficient",
        ],
        "algorithm.solver.train",
        |c| c.algorithm.solver.train,
    ),
    // The selection of stored proofs also decides which targets are sampled.
    dependence("algorithm.solver", &["objective", "selection"], "algorithm.solver.train", |c| {
        c.algorithm.solver.train || c.algorithm.solver.effective_selection() == Selection::FewProofs
    }),
    dependence("algorithm.penalties", &["length_of_unproved"], "algorithm.solver.train", |c| {
        c.algorithm.solver.train
    }),
    dependence("algorithm.optimizer", ALL, "algorithm.solver.train", |c| c.algorithm.trains()),
    dependence("training", &["micro_batch_tokens", "recompute"], "algorithm.solver.train", |c| {
        c.algorithm.trains()
    }),
    dependence(
        "algorithm.solver",
        &["clip_low", "clip_high", "advantage_epsilon"],
        "algorithm.solver.objective",
        |c| c.algorithm.solver.objective.is_grouped(),
    ),
    dependence("algorithm.solver", &["decay_share"], "generations", |c| c.generations > 0),
    dependence("algorithm.solver", &["loss_normalisation"], "algorithm.solver.objective", |c| {
        !c.algorithm.solver.objective.is_grouped()
    }),
    dependence("algorithm.solver", &["window"], "algorithm.solver.objective", |c| {
        c.algorithm.solver.objective.is_stored()
    }),
    dependence(
        "algorithm.solver",
        &["conjecture_share", "conjecture_max_rate"],
        "algorithm.conjecturer.on",
        |c| c.algorithm.conjecturer.on,
    ),
    dependence("algorithm.batch", &["order"], "algorithm.batch.size", |c| {
        c.algorithm.batch.size != BatchSize::All
    }),
    dependence("algorithm.batch", &["retire_after"], "algorithm.solver.objective", |c| {
        c.algorithm.solver.effective_selection() != Selection::FewProofs
    }),
    dependence("algorithm.batch", &["rehearsed_share"], "algorithm.batch.retire_after", |c| {
        c.algorithm.batch.retire_after > 0 || c.algorithm.solver.effective_selection() == Selection::FewProofs
    }),
    // The Conjecturer.
    dependence("algorithm", &["tied_weights"], "algorithm.conjecturer.on", |c| c.algorithm.conjecturer.on),
    dependence("algorithm", &["tied_weights"], "algorithm.conjecturer.form", |c| {
        c.algorithm.conjecturer.is_sampled() || c.algorithm.conjecturer.is_reweighted()
    }),
    dependence("algorithm.conjecturer", ALL, "algorithm.conjecturer.on", |c| c.algorithm.conjecturer.on),
    dependence("sampling", &["conjecturer_tokens"], "algorithm.conjecturer.on", |c| {
        c.algorithm.conjecturer.on
    }),
    dependence(
        "algorithm.conjecturer",
        &["learning_rate", "loss_normalisation", "frozen"],
        "algorithm.conjecturer.form",
        |c| c.algorithm.conjecturer.is_sampled(),
    ),
    dependence("sampling", &["conjecturer_tokens"], "algorithm.conjecturer.form", |c| {
        c.algorithm.conjecturer.is_sampled()
    }),
    dependence("algorithm.conjecturer", &["conditioning"], "algorithm.conjecturer.form", |c| {
        c.algorithm.conjecturer.is_sampled()
    }),
    dependence(
        "algorithm.conjecturer",
        &["learning_rate", "loss_normalisation"],
        "algorithm.conjecturer.frozen",
        |c| c.algorithm.conjecturer.is_trained(),
    ),
    dependence("algorithm.conjecturer", &["attempts_per_target"], "algorithm.conjecturer.form", |c| {
        c.algorithm.conjecturer.form != ConjectureForm::Attempt
    }),
    dependence(
        "algorithm.conjecturer",
        &["attempt_min_steps"],
        "algorithm.conjecturer.attempts_per_target",
        |c| c.algorithm.conjecturer.derived_per_target() > 0,
    ),
    dependence(
        "algorithm.conjecturer",
        &["composed_min_steps", "composed_max_steps"],
        "algorithm.conjecturer.form",
        |c| c.algorithm.conjecturer.form == ConjectureForm::Composed,
    ),
    dependence("algorithm.conjecturer", &["normalisation"], "algorithm.conjecturer.rule", |c| {
        c.algorithm.conjecturer.rule.is_normalised()
    }),
    dependence("algorithm.conjecturer.stp", &["min_seed_rate"], "algorithm.conjecturer.conditioning", |c| {
        c.algorithm.conjecturer.conditioning == Conditioning::Solved
    }),
    dependence(
        "algorithm.conjecturer.stp",
        &["max_rate", "elegance_cut", "reweight", "max_weight"],
        "algorithm.conjecturer.rule",
        |c| c.algorithm.conjecturer.rule == ConjectureRule::Stp,
    ),
    dependence("algorithm.conjecturer.stp", &["max_weight"], "algorithm.conjecturer.stp.reweight", |c| {
        c.algorithm.conjecturer.is_reweighted()
    }),
    // The Guide.
    dependence("algorithm.guide", ALL, "algorithm.guide.on", |c| c.algorithm.guide.on),
    dependence("sampling", &["guide_tokens"], "algorithm.guide.on", |c| c.algorithm.guide.on),
    dependence("model", &["guide"], "algorithm.guide.on", |c| c.algorithm.guide.on),
    dependence("sampling", &["guide_tokens"], "algorithm.guide.kind", |c| c.algorithm.has_model_reviews()),
    dependence("model", &["guide"], "algorithm.guide.kind", |c| c.algorithm.has_model_reviews()),
    dependence("algorithm.guide", &["malformed"], "algorithm.guide.kind", |c| {
        c.algorithm.guide.kind == GuideKind::Model
    }),
    dependence(
        "algorithm.guide",
        &["samples", "resamples", "min_readable", "scope"],
        "algorithm.guide.kind",
        |c| c.algorithm.guide.kind != GuideKind::Rubric,
    ),
    dependence("algorithm.guide", &["learned_rounds", "learned_neighbours"], "algorithm.guide.kind", |c| {
        c.algorithm.guide.kind == GuideKind::Learned
    }),
    dependence("algorithm.penalties", &["length_of_unproved"], "algorithm.solver.objective", |c| {
        let objective = c.algorithm.solver.objective;
        !objective.is_grouped() && !objective.is_stored()
    }),
    // Only Lean has such tactics.
    dependence("algorithm.penalties", &["forbidden_tactics"], "problems.system", |c| {
        c.problems.system == SystemName::Lean
    }),
    dependence(
        "algorithm.penalties",
        &["length_scope", "length_start", "length_of_unproved"],
        "algorithm.penalties.length",
        |c| c.algorithm.penalties.length,
    ),
];

impl Dependence {
    fn applies_to(&self, key: &str) -> bool {
        let inner = key.strip_prefix(self.table).and_then(|rest| rest.strip_prefix('.'));
        key != self.cause && inner.is_some_and(|name| self.keys.is_empty() || self.keys.contains(&name))
    }
}

/// Returns the key that turns another key off, or `None` if that key has an effect.
fn cause(key: &str, config: &RunConfig) -> Option<&'static str> {
    let off = |d: &&Dependence| d.applies_to(key) && !(d.have_effect)(config);
    DEPENDENCES.iter().find(off).map(|dependence| dependence.cause)
}

impl Resolved {
    /// Returns a line for each key that the user has set and that has no effect. Values of presets are not reported.
    pub fn without_effect(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, layer) in &self.layers {
            let Some(place) = place(key, layer) else { continue };
            if let Some(cause) = cause(key, &self.config) {
                let value = self.value(cause).map(ToString::to_string).unwrap_or_default();
                let cause_layer = self.layer(cause);
                lines.push(format!("{place} has no effect: {cause} is {value} ({cause_layer})"));
            }
        }
        lines
    }

    /// Returns a line if the user has set `algorithm.batch.size` to more than the number of the run's targets. `targets`
    /// counts them, which takes time, so it is called only if the key is set.
    pub fn excess_batch(&self, targets: impl FnOnce() -> Option<usize>) -> Option<String> {
        const KEY: &str = "algorithm.batch.size";
        let BatchSize::Count(size) = self.config.algorithm.batch.size else { return None };
        let place = place(KEY, self.layer(KEY))?;
        let targets = targets().filter(|targets| size.get() as usize > *targets)?;
        Some(format!("{place} is {size}, but there are only {targets} targets: each round uses all of them"))
    }

    /// Returns a line for each role whose maximum completion length the user has set to more than the context window of
    /// its model, the base model `model`.
    pub fn excess_tokens(&self, model: &ModelConfig) -> Vec<String> {
        let (config, window) = (&self.config, self.config.window(model));
        let is_limited = |role: &Role| {
            let has_base = *role != Role::Guide || config.model.guide == "base";
            has_base && !config.sampling.endpoint.plays(*role) && config.sampling.tokens(*role) > window
        };
        let line = |role: Role| {
            let key = format!("sampling.{}_tokens", role.as_str());
            let (place, tokens) = (place(&key, self.layer(&key))?, config.sampling.tokens(role));
            Some(format!("{place} is {tokens}, but the context window has only {window} tokens"))
        };
        let roles = [Role::Solver, Role::Conjecturer, Role::Guide];
        roles.into_iter().filter(is_limited).filter_map(line).collect()
    }
}

/// Returns where the user has set a key, or `None` if a preset or a flag has set it.
fn place(key: &str, layer: &Layer) -> Option<String> {
    match layer {
        Layer::File(_) | Layer::Argument("--set") => Some(format!("{layer} {key}")),
        Layer::Variable(_) => Some(layer.to_string()),
        _ => None,
    }
}
