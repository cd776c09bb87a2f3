//! Displays statements and proofs of a formal system.

/// Converts statements and proofs of a formal system for display.
pub trait StatementDisplay {
    /// Formats a statement.
    fn statement(&self, statement: &str) -> String;
    /// Formats a proof from its canonical text and the problem's canonical statement and context.
    fn proof(&self, statement: &str, context: &str, proof: &str) -> String;
}
