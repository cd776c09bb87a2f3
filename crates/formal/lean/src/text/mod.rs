//! Lean source as text: tokens, commands, declarations, and the constructions that a proof must not contain.
//!
//! Nothing is elaborated here. The module finds the end of a statement and the beginning of its proof, splits a
//! completion into commands, and refuses what a proof never needs. It is a filter and guarantees nothing; the other
//! layers in `docs/trust.md` make the decision.

mod ambiguity;
mod bounds;
mod command;
mod declaration;
mod enclose;
mod forbidden;
mod lexer;
mod negation;
mod rule;
mod statement;
mod words;

use std::borrow::Cow;

pub use ambiguity::ambiguity;
pub use bounds::{Bounds, BoundsError};
pub use command::{SourceCommand, commands};
pub use declaration::{Binder, BinderKind, Declaration, ProofStart, parse_declaration};
pub(crate) use enclose::{enclosed_proof, enclosed_statement, enclosed_theorems};
pub(crate) use forbidden::{inspect_header, uses_tactic_try};
pub use forbidden::{inspect_helpers, inspect_proof, inspect_statement};
pub use lexer::{Defect, SourceToken, TokenKind, lex};
pub use negation::negation;
pub use rule::{TextRefusal, TextRule};
pub(crate) use statement::canonical_conjecture;
pub use statement::{DeclaredName, LeanStatement, LeanStatementError, Repair, canonical_statement};

/// Replaces CRLF line ends by LF. Lean normalizes the line ends of files, and refuses a carriage return elsewhere.
pub(crate) fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Returns the line of a byte offset, counted from 1.
fn line_of(source: &str, offset: usize) -> u32 {
    let before = &source.as_bytes()[..offset.min(source.len())];
    u32::try_from(before.iter().filter(|b| **b == b'\n').count()).unwrap_or(u32::MAX - 1) + 1
}
