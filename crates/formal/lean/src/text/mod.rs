//! Lean source as text: tokens, commands, declarations, and what a proof may not contain.
//!
//! Nothing here elaborates anything. It finds where a statement ends and its proof begins, cuts a completion into
//! commands, and refuses text that a proof never needs. It is a filter and a router, not a proof of anything: the
//! other layers of `docs/trust.md` decide.

mod ambiguity;
mod bounds;
mod command;
mod declaration;
mod enclose;
mod forbidden;
mod lexer;
mod negation;
mod statement;
mod words;

pub use ambiguity::ambiguity;
pub use bounds::{Bounds, Exceeded};
pub use command::{Command, commands};
pub use declaration::{Binder, BinderKind, Declaration, ProofStart, parse_declaration};
pub use enclose::{blank_comments, enclosed_proof, enclosed_statement, enclosed_theorems};
pub use forbidden::{Refusal, Rule, inspect_helpers, inspect_proof, inspect_statement, uses_tactic_try};
pub use lexer::{Defect, Token, TokenKind, closing, lex};
pub use negation::negation;
pub use statement::{
    DeclaredName, Repair, Statement, StatementError, canonical_conjecture, canonical_statement,
};

/// Line of a byte offset, counted from 1.
pub fn line_of(source: &str, offset: usize) -> u32 {
    let before = source.as_bytes().get(..offset.min(source.len())).unwrap_or_default();
    u32::try_from(before.iter().filter(|b| **b == b'\n').count()).unwrap_or(u32::MAX - 1) + 1
}
