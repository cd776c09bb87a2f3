//! The door to Lean: what a proof must pass, and what of it Lean is given.

use crate::read::Proof;
use crate::text::{
    Bounds, Refusal, Statement, enclosed_proof, enclosed_statement, enclosed_theorems, inspect_helpers,
    inspect_proof,
};

/// Refuses a proof that the text layer refuses; otherwise gives statement and proof as Lean is to see them: the same
/// code without comments, and with brackets of ours around the conclusion and every proof.
///
/// # Errors
/// The rule of the text layer that the proof breaks.
pub fn admit(statement: &Statement, proof: &Proof, bounds: &Bounds) -> Result<(Statement, Proof), Refusal> {
    inspect_proof(&proof.body, bounds)?;
    inspect_helpers(&proof.helpers, &statement.text, bounds)?;
    // A statement that cannot be bracketed is one that Lean will refuse as it is.
    let statement = enclosed_statement(statement).unwrap_or_else(|| statement.clone());
    let proof = Proof { helpers: enclosed_theorems(&proof.helpers), body: enclosed_proof(&proof.body) };
    Ok((statement, proof))
}
