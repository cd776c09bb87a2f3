//! The keys that have no effect in a configuration, because another key turns off the part that they belong to.

use crate::config::endpoint::Refresh;
use crate::config::held_out::{NONE, SPLIT};
use crate::config::{Layer, Resolved, RunConfig, SystemName};
use sgs_lean::Backing;
use sgs_lean::prompt::SolverForm;
use sgs_lm::ModelConfig;
use sgs_selfplay::Role;
use sgs_selfplay::config::{
    AlgorithmConfig, BatchSize, Conditioning, ConjectureForm, ConjectureRule, GuideKind, Selection,
};

/// Keys that have an effect only under a condition.
struct Dependence {
    /// Their table.
    table: &'static str,
    /// The keys, without the name of their table.
    keys: &'static [&'static str],
    /// The key that turns them off.
    cause: &'static str,
    /// Whether they have an effect.
    have_effect: fn(&RunConfig) -> bool,
}

/// All keys of a table, except the cause itself.
const ALL: &[&str] = &[];

/// Declares [`DEPENDENCES`], with names for the parts of a configuration that the conditions use.
macro_rules! dependences {
    (
        |$config:ident, $solver:ident, $conjecturer:ident, $guide:ident, $endpoint:ident|
        $($table:expr, $keys:expr, $cause:expr, $condition:expr;)*
    ) => {
        /// The dependences. The first one that applies to a key explains why it has no effect.
        #[allow(unused_variables, reason = "most conditions use only one of the names")]
        const DEPENDENCES: &[Dependence] = &[$(Dependence {
            table: $table,
            keys: $keys,
            cause: $cause,
            have_effect: |$config| {
                let AlgorithmConfig { solver: $solver, conjecturer: $conjecturer, guide: $guide, .. } = &$config.algorithm;
                let $endpoint = &$config.sampling.endpoint;
                $condition
            },
        },)*];
    };
}

// The table of the keys, the keys, the key that turns them off, and the condition under which they have an effect.
dependences! {
    |c, solver, conjecturer, guide, endpoint|
    "lean", ALL, "problems.system", c.problems.system == SystemName::Lean;
    "lean.recycling", ALL, "lean.backing", c.lean.as_ref().is_some_and(|lean| lean.backing == Backing::Repl);
    "lean", &["reading"], "lean.form", c.lean.as_ref().is_some_and(|lean| lean.form != SolverForm::Compact);
    "lean", &["require_sandbox"], "lean.sandbox", c.lean.as_ref().is_some_and(|lean| lean.sandbox);
    "external", ALL, "problems.system", c.problems.system == SystemName::External;
    "sampling.endpoint", ALL, "sampling.endpoint.roles", !endpoint.roles.is_empty();
    "sampling.endpoint", &["solver_urls"], "sampling.endpoint.roles", endpoint.roles.contains(&Role::Solver);
    "sampling.endpoint", &["conjecturer_urls"], "sampling.endpoint.roles", endpoint.roles.contains(&Role::Conjecturer);
    "sampling.endpoint", &["guide_urls"], "sampling.endpoint.roles", endpoint.roles.contains(&Role::Guide);
    "sampling.endpoint", &["folder", "folder_there"], "sampling.endpoint.refresh", endpoint.refresh != Refresh::Never;
    "sampling.endpoint", &["key_env"], "sampling.endpoint.key_file", endpoint.key_file.is_empty();
    "evaluation", &["share"], "evaluation.held_out", c.evaluation.held_out == SPLIT;
    "evaluation", &["problems", "samples", "every"], "evaluation.held_out", c.evaluation.held_out != NONE;
    // Weights that never change are evaluated once.
    "evaluation", &["every"], "algorithm.solver.train", c.weights_of(Role::Solver).is_trained();
    "checkpoints", ALL, "algorithm.solver.train", c.algorithm.trains();
    // The Solver.
    "algorithm.solver", &[
        "learning_rate", "decay_share", "loss_normalisation", "clip_low", "clip_high", "advantage_epsilon",
        "distinct_examples", "conjecture_share", "conjecture_max_rate", "entropy_bonus", "kl_coefficient"
    ], "algorithm.solver.train", solver.train;
    // The selection of stored proofs also decides which targets are sampled.
    "algorithm.solver", &["objective", "selection"], "algorithm.solver.train",
        solver.train || solver.effective_selection() == Selection::FewProofs;
    "algorithm.penalties", &["length_of_unproved"], "algorithm.solver.train", solver.train;
    "algorithm.optimizer", ALL, "algorithm.solver.train", c.algorithm.trains();
    "training", &["micro_batch_tokens", "recompute"], "algorithm.solver.train", c.algorithm.trains();
    "algorithm.solver", &["clip_low", "clip_high", "advantage_epsilon"], "algorithm.solver.objective",
        solver.objective.is_grouped();
    "algorithm.solver", &["decay_share"], "generations", c.generations > 0;
    "algorithm.solver", &["loss_normalisation"], "algorithm.solver.objective", !solver.objective.is_grouped();
    "algorithm.solver", &["window"], "algorithm.solver.objective", solver.objective.is_stored();
    "algorithm.solver", &["conjecture_share", "conjecture_max_rate"], "algorithm.conjecturer.on", conjecturer.on;
    "algorithm.batch", &["order"], "algorithm.batch.size", c.algorithm.batch.size != BatchSize::All;
    "algorithm.batch", &["retire_after"], "algorithm.solver.objective",
        solver.effective_selection() != Selection::FewProofs;
    "algorithm.batch", &["rehearsed_share"], "algorithm.batch.retire_after",
        c.algorithm.batch.retire_after > 0 || solver.effective_selection() == Selection::FewProofs;
    // The Conjecturer.
    "algorithm", &["tied_weights"], "algorithm.conjecturer.on", conjecturer.on;
    "algorithm", &["tied_weights"], "algorithm.conjecturer.form",
        conjecturer.is_sampled() || conjecturer.is_reweighted();
    "algorithm.conjecturer", ALL, "algorithm.conjecturer.on", conjecturer.on;
    "sampling", &["conjecturer_tokens"], "algorithm.conjecturer.on", conjecturer.on;
    "algorithm.conjecturer", &["learning_rate", "loss_normalisation", "frozen"], "algorithm.conjecturer.form",
        conjecturer.is_sampled();
    "sampling", &["conjecturer_tokens"], "algorithm.conjecturer.form", conjecturer.is_sampled();
    "algorithm.conjecturer", &["conditioning"], "algorithm.conjecturer.form", conjecturer.is_sampled();
    "algorithm.conjecturer", &["learning_rate", "loss_normalisation"], "algorithm.conjecturer.frozen",
        conjecturer.is_trained();
    "algorithm.conjecturer", &["attempts_per_target"], "algorithm.conjecturer.form",
        conjecturer.form != ConjectureForm::Attempt;
    "algorithm.conjecturer", &["attempt_min_steps"], "algorithm.conjecturer.attempts_per_target",
        conjecturer.derived_per_target() > 0;
    "algorithm.conjecturer", &["composed_kind", "composed_min_steps", "composed_max_steps"], "algorithm.conjecturer.form",
        conjecturer.form == ConjectureForm::Composed;
    "algorithm.conjecturer", &["normalisation"], "algorithm.conjecturer.rule", conjecturer.rule.is_normalised();
    "algorithm.conjecturer.stp", &["min_seed_rate"], "algorithm.conjecturer.conditioning",
        conjecturer.conditioning == Conditioning::Solved;
    "algorithm.conjecturer.stp", &["max_rate", "elegance_cut", "reweight", "max_weight"], "algorithm.conjecturer.rule",
        conjecturer.rule == ConjectureRule::Stp;
    "algorithm.conjecturer.stp", &["max_weight"], "algorithm.conjecturer.stp.reweight", conjecturer.is_reweighted();
    // The Guide.
    "algorithm.guide", ALL, "algorithm.guide.on", guide.on;
    "sampling", &["guide_tokens"], "algorithm.guide.on", guide.on;
    "model", &["guide"], "algorithm.guide.on", guide.on;
    "sampling", &["guide_tokens"], "algorithm.guide.kind", c.algorithm.has_model_reviews();
    "model", &["guide"], "algorithm.guide.kind", c.algorithm.has_model_reviews();
    "algorithm.guide", &["samples", "resamples", "min_readable", "scope", "malformed"], "algorithm.guide.kind",
        guide.kind == GuideKind::Model;
    "algorithm.penalties", &["length_of_unproved"], "algorithm.solver.objective",
        !solver.objective.is_grouped() && !solver.objective.is_stored();
    // Only Lean has such tactics.
    "algorithm.penalties", &["forbidden_tactics"], "problems.system", c.problems.system == SystemName::Lean;
    "algorithm.penalties", &["length_scope", "length_start", "length_of_unproved"], "algorithm.penalties.length",
        c.algorithm.penalties.length;
}

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
