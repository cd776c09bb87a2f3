//! Conjectures as lemmas: a conjecture proved for a target is shown in the Solver's prompt as an additional hypothesis, and
//! uses of that hypothesis in a proof are replaced by the conjecture's own proof.
//!
//! The result is a proof of the bare target from its own hypotheses. The unifier and the kernel check it like any other proof,
//! so nothing depends on the correctness of this module.

use crate::proof_text::{MAX_PROOF_TOKENS, ProofError};
use crate::statement::Statement;
use crate::tokens::HYPOTHESES;
use crate::unify::ProofStep;

/// Returns whether a proof of the target could cite a conjecture that is written in the target's variables: its hypotheses
/// are among the target's, and its conclusion is neither a variable, nor the target's conclusion, nor one of its hypotheses.
pub fn is_citable(target: &Statement, conjecture: &Statement) -> bool {
    target.hypotheses.len() < HYPOTHESES
        && conjecture.conclusion.len() >= 2
        && conjecture.conclusion != target.conclusion
        && !target.hypotheses.contains(&conjecture.conclusion)
        && conjecture.hypotheses.iter().all(|h| target.hypotheses.contains(h))
}

/// Returns the target with the lemma's conclusion as an additional last hypothesis, as shown to the Solver.
pub fn with_lemma(target: &Statement, lemma: &Statement) -> Statement {
    let hypotheses = target.hypotheses.iter().chain([&lemma.conclusion]).cloned().collect();
    Statement { hypotheses, ..target.clone() }
}

/// Converts a proof of [`with_lemma`] to a proof of the target by replacing each use of the last hypothesis by `proof`, the
/// lemma's own proof. Returns `None` if the lemma's proof uses a hypothesis that the target does not have.
///
/// # Errors
/// Returns an error if the resulting proof has more than [`MAX_PROOF_TOKENS`].
pub fn inline_lemma(
    target: &Statement,
    lemma: &Statement,
    proof: &[ProofStep],
    steps: &[ProofStep],
) -> Option<Result<Vec<ProofStep>, ProofError>> {
    let in_target = |h: &u32| {
        let hypothesis = lemma.hypotheses.get(*h as usize)?;
        Some(ProofStep::Hypothesis(target.hypotheses.iter().position(|t| t == hypothesis)? as u32))
    };
    let own: Vec<ProofStep> = proof
        .iter()
        .map(|step| match step {
            ProofStep::Hypothesis(h) => in_target(h),
            rule => Some(*rule),
        })
        .collect::<Option<_>>()?;
    let cited = ProofStep::Hypothesis(target.hypotheses.len() as u32);
    let uses = steps.iter().filter(|step| **step == cited).count();
    let length = own.len().saturating_mul(uses).saturating_add(steps.len() - uses);
    if length > MAX_PROOF_TOKENS {
        return Some(Err(ProofError::too_many()));
    }
    let mut out = Vec::with_capacity(length);
    for step in steps {
        if *step == cited {
            out.extend_from_slice(&own);
        } else {
            out.push(*step);
        }
    }
    Some(Ok(out))
}
