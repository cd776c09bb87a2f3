//! Lean source as text: tokens, commands, declarations and statements.
//!
//! The module finds the end of a statement and the beginning of its proof, and splits completions and files into
//! commands, for prompts and readers. No decision about trust depends on it: Lean's own parser, in the judge, makes
//! those (`docs/trust.md`).

mod bounds;
mod command;
mod declaration;
mod header;
mod lexer;
mod negation;
mod statement;

use std::borrow::Cow;

pub use bounds::Bounds;
pub use command::{SourceCommand, commands};
pub use declaration::{Binder, Declaration, ProofStart, parse_declaration};
pub use header::assumptions;
pub(crate) use header::check_header;
pub use lexer::{SourceToken, TokenKind, lex};
pub use negation::negation;
pub(crate) use statement::canonical_conjecture;
pub use statement::{DeclaredName, LeanStatement, LeanStatementError, canonical_statement};

/// Replaces CRLF line ends by LF. Lean normalizes the line ends of files, and refuses a carriage return elsewhere.
pub(crate) fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Returns the words and symbols of a text, without comments.
pub(crate) fn words(text: &str) -> Vec<&str> {
    lex(text).iter().filter(|t| !t.is_trivia()).map(|t| t.text(text)).collect()
}

/// Returns whether a proof contains `sorry` or `admit` (as a token, not in a comment), so that it proves nothing.
pub fn is_admitted(proof: &str) -> bool {
    words(proof).iter().any(|word| matches!(*word, "sorry" | "admit"))
}

/// Returns whether a proof uses the tactic `try` (as a token: not `symmetry`, not in a comment, not `try?`).
pub(crate) fn uses_tactic_try(proof: &str) -> bool {
    lex(proof).iter().any(|t| t.kind == TokenKind::Word && t.text(proof) == "try")
}

/// Returns whether a word is in a list of words that are separated by blanks.
pub(crate) fn is_among(words: &str, word: &str) -> bool {
    words.as_bytes().split(|byte| *byte == b' ').any(|other| other == word.as_bytes())
}

/// Returns the line of a byte offset, counted from 1.
fn line_of(source: &str, offset: usize) -> usize {
    1 + source[..offset].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_is_a_token() {
        assert!(uses_tactic_try("\n  try simp"));
        assert!(uses_tactic_try("\n  all_goals (try linarith)"));
        assert!(!uses_tactic_try("\n  symmetry\n  -- try this\n  exact geometry.try'"));
        assert!(!uses_tactic_try("\n  /- try\n that -/ ring"));
        assert!(!uses_tactic_try("\n  exact entry \"try\""));
    }
}
