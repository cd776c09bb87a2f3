//! Displays and compares statements and proofs of a formal system.

/// Converts statements and proofs of a formal system for display and comparison.
pub trait StatementDisplay {
    /// Formats a statement.
    fn statement(&self, statement: &str) -> String;
    /// Formats a proof from its canonical text and the problem's canonical statement and context.
    fn proof(&self, statement: &str, context: &str, proof: &str) -> String;
    /// Returns the identity of a statement up to the names of its variables. The default is the text.
    fn identity(&self, statement: &str, _context: &str) -> StatementIdentity {
        StatementIdentity { normal: statement.to_owned(), theorem: None }
    }
    /// Returns the number of steps of a proof in canonical text. The default is the number of words.
    fn steps(&self, proof: &str) -> u32 {
        u32::try_from(proof.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// The identity of a statement up to the names of its variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementIdentity {
    /// A normalised text, which is equal for statements that differ only in names.
    pub normal: String,
    /// The equivalent theorem in the statement's context, if any.
    pub theorem: Option<String>,
}
