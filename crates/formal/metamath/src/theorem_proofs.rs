//! The proofs of a database's theorems, as essential steps: training examples, and test cases of the judge. They are not
//! checked here.

use crate::database::StatementId;
use crate::proof::{essential_steps, read_proof};
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use crate::unify::ProofStep;
use rayon::prelude::*;

/// A theorem with its proof as essential steps.
#[derive(Clone, Debug)]
pub struct TheoremProof {
    /// The theorem of the database, or the one before which it was composed.
    pub rule: RuleId,
    /// Its statement.
    pub statement: Statement,
    /// Its proof.
    pub steps: Vec<ProofStep>,
}

/// Returns all theorems of the database whose proofs have at most `max_steps` steps. Unreadable proofs (such as incomplete
/// ones) are left out.
pub fn theorem_proofs(theory: &Theory, max_steps: usize) -> Vec<TheoremProof> {
    let read = |i: usize| {
        let rule = RuleId(i as u32);
        let steps = theorem_proof(theory, rule, max_steps).ok()??;
        Some(TheoremProof { rule, statement: Statement::of_rule(theory.rule(rule)), steps })
    };
    (0..theory.rules().len()).into_par_iter().filter_map(read).collect()
}

/// Returns a theorem's proof in the database as essential steps; `None` if it has more than `max_steps`.
pub fn theorem_proof(
    theory: &Theory,
    rule: RuleId,
    max_steps: usize,
) -> Result<Option<Vec<ProofStep>>, String> {
    let database = theory.database();
    let assertion = theory.assertion(rule);
    let ops = read_proof(database, theory.rule(rule).statement, assertion)?;
    let is_provable = |typecode| typecode == theory.provable();
    let Some(labels) = essential_steps(database, &ops, is_provable, max_steps)? else { return Ok(None) };
    let hypotheses: Vec<StatementId> = database.essentials(assertion).map(|(h, _)| h).collect();
    let step = |label: &StatementId| {
        let hypothesis = hypotheses.iter().position(|h| h == label).map(|i| ProofStep::Hypothesis(i as u32));
        hypothesis.or_else(|| theory.rule_of(*label).map(ProofStep::Rule))
    };
    let steps: Option<Vec<ProofStep>> = labels.iter().map(step).collect();
    steps.map(Some).ok_or_else(|| "a step is not a provable assertion".to_owned())
}
