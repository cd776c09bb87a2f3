//! Admission of a proof: the checks of the text layer, and the text that Lean is given.

use crate::read::Proof;
use crate::text::{
    Bounds, LeanStatement, TextRefusal, enclosed_proof, enclosed_statement, enclosed_theorems,
    inspect_helpers, inspect_proof,
};

/// Checks statement and proof against the text layer, and returns them in the form that Lean is given: without comments,
/// and with brackets around the conclusion and every proof.
///
/// # Errors
/// Returns the rule of the text layer that the proof breaks.
pub fn admit(
    statement: &LeanStatement,
    proof: &Proof,
    bounds: &Bounds,
) -> Result<(LeanStatement, Proof), TextRefusal> {
    inspect_proof(&proof.body, bounds)?;
    inspect_helpers(&proof.helpers, &statement.text, bounds)?;
    // Lean refuses a statement that cannot be bracketed, so it is passed on unchanged.
    let statement = enclosed_statement(statement).unwrap_or_else(|| statement.clone());
    let proof = Proof { helpers: enclosed_theorems(&proof.helpers), body: enclosed_proof(&proof.body) };
    Ok((statement, proof))
}
