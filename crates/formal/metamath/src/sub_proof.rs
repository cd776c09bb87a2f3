//! Sub-proofs of a proof in postfix order.

use crate::theory::Theory;
use crate::unify::ProofStep;
use std::ops::Range;

/// Returns the start of each step's sub-proof: the sub-proof of step `i` is `starts[i]..=i`.
///
/// # Panics
/// Panics if the steps are not a proof.
pub fn sub_proof_starts(theory: &Theory, steps: &[ProofStep]) -> Vec<usize> {
    let starts = starts(theory, steps);
    assert_eq!(starts.len(), steps.len(), "invariant: the steps are a proof");
    starts
}

/// Returns the ranges of the sub-proofs of steps that may not be a proof, largest first. Steps after one that takes more
/// entries than the stack has are ignored.
pub fn sub_proofs_by_size(theory: &Theory, steps: &[ProofStep]) -> Vec<Range<usize>> {
    let starts = starts(theory, steps).into_iter().enumerate();
    let mut found: Vec<Range<usize>> = starts.map(|(i, start)| start..i + 1).collect();
    found.sort_by_key(|part| std::cmp::Reverse(part.len()));
    found
}

/// Returns the start of each step's sub-proof, up to a step that takes more entries than the stack has.
fn starts(theory: &Theory, steps: &[ProofStep]) -> Vec<usize> {
    let mut starts = Vec::with_capacity(steps.len());
    let mut stack: Vec<usize> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let arity = step.rule().map_or(0, |id| theory.rule(id).hypotheses.len());
        let Some(base) = stack.len().checked_sub(arity) else { break };
        let start = if arity > 0 { stack[base] } else { i };
        stack.truncate(base);
        stack.push(start);
        starts.push(start);
    }
    starts
}

/// Renumbers the hypotheses of some steps in order of appearance. Also returns the original numbers of the used hypotheses.
pub fn renumber(steps: &[ProofStep]) -> (Vec<ProofStep>, Vec<u32>) {
    let mut used: Vec<u32> = Vec::new();
    let steps = steps
        .iter()
        .map(|step| match step {
            ProofStep::Hypothesis(h) => {
                let n = used.iter().position(|u| u == h).unwrap_or_else(|| {
                    used.push(*h);
                    used.len() - 1
                });
                ProofStep::Hypothesis(n as u32)
            }
            rule => *rule,
        })
        .collect();
    (steps, used)
}
