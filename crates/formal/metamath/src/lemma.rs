//! Conjectures as lemmas: what was proved for a target stands in the Solver's prompt as one hypothesis more, and where
//! a proof uses that hypothesis, the lemma's own proof is put in its place.
//!
//! What comes out is a proof of the bare target from its own hypotheses. Nothing here vouches for it: unifier and
//! kernel judge it like any other.

use crate::proof_text::{MAX_PROOF_TOKENS, ProofError};
use crate::statement::Statement;
use crate::tokens::HYPOTHESES;
use crate::unify::Step;

/// Whether a conjecture, in the target's variables, could be cited by a proof of the target: its hypotheses are among
/// the target's, it says something, and neither the target itself nor what the target supposes.
pub fn is_citable(target: &Statement, conjecture: &Statement) -> bool {
    target.hypotheses.len() < HYPOTHESES
        && conjecture.conclusion.len() >= 2
        && conjecture.conclusion != target.conclusion
        && !target.hypotheses.contains(&conjecture.conclusion)
        && conjecture.hypotheses.iter().all(|h| target.hypotheses.contains(h))
}

/// The target with the lemma's conclusion as its last hypothesis: what the Solver is shown.
pub fn with_lemma(target: &Statement, lemma: &Statement) -> Statement {
    let hypotheses = target.hypotheses.iter().chain([&lemma.conclusion]).cloned().collect();
    Statement { hypotheses, ..target.clone() }
}

/// A proof of [`with_lemma`] as a proof of the target: each use of the last hypothesis becomes `proof`, the lemma's own,
/// whose hypotheses become the target's. `None` if the lemma is none of this target.
///
/// # Errors
/// The proof grows beyond [`MAX_PROOF_TOKENS`].
pub fn put_in_place(
    target: &Statement,
    lemma: &Statement,
    proof: &[Step],
    steps: &[Step],
) -> Option<Result<Vec<Step>, ProofError>> {
    let place = |h: &u32| {
        let hypothesis = lemma.hypotheses.get(*h as usize)?;
        Some(Step::Hypothesis(target.hypotheses.iter().position(|t| t == hypothesis)? as u32))
    };
    let own: Vec<Step> = proof
        .iter()
        .map(|step| match step {
            Step::Hypothesis(h) => place(h),
            rule => Some(*rule),
        })
        .collect::<Option<_>>()?;
    let cited = Step::Hypothesis(target.hypotheses.len() as u32);
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
