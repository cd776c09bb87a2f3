//! Features of a statement, for analysis only.

use crate::text::{Binder, LeanStatement, SourceToken, TokenKind, lex, words};
use sgs_selfplay::Features;

/// Words and symbols that make a type a proposition if they occur outside of brackets.
const RELATIONS: &[&str] = &[
    "=", "≠", "<", ">", "≤", "≥", "∈", "∉", "∣", "∤", "∧", "∨", "¬", "↔", "∀", "∃", "≡", "⊆", "⊂", "∥", "⟂",
];

/// Counts the features of a statement in canonical text. All are zero if it cannot be parsed.
///
/// Lengths are in tokens, without comments. The depth is the deepest nesting of brackets in the conclusion. A hypothesis
/// is a bound name (or an anonymous instance) whose type contains a relation or a logical symbol outside of brackets, or
/// whose name begins with `h`.
pub fn features(statement: &str) -> Features {
    let Ok(read) = LeanStatement::read(statement) else { return Features::default() };
    let conclusion = read.conclusion();
    let tokens = meaning(conclusion);
    let count =
        |symbols: &[&str]| tokens.iter().filter(|t| symbols.contains(&t.text(conclusion))).count() as u32;
    Features {
        length: words(read.before_proof()).len() as u32,
        conclusion_length: tokens.len() as u32,
        disjunctions: count(&["∨", "Or"]),
        conjunctions: count(&["∧", "And"]),
        implications: count(&["→", "->"]),
        depth: depth(&tokens),
        hypotheses: read.declaration.binders.iter().map(|binder| hypotheses(statement, binder)).sum(),
    }
}

fn meaning(source: &str) -> Vec<SourceToken> {
    lex(source).into_iter().filter(|t| !t.is_trivia()).collect()
}

fn depth(tokens: &[SourceToken]) -> u32 {
    let (mut now, mut deepest) = (0_u32, 0);
    for token in tokens {
        match token.kind {
            TokenKind::Open => now += 1,
            TokenKind::Close => now = now.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(now);
    }
    deepest
}

fn hypotheses(statement: &str, binder: &Binder) -> u32 {
    // A binder such as `(x := 1)` has no type, and its range is empty or reversed.
    let ty = statement.get(binder.ty.clone()).unwrap_or_default();
    let mut level = 0_i32;
    let mut relation = false;
    for token in meaning(ty) {
        match token.kind {
            TokenKind::Open => level += 1,
            TokenKind::Close => level -= 1,
            _ => relation |= level == 0 && RELATIONS.contains(&token.text(ty)),
        }
    }
    let named = binder.names.iter().filter(|n| relation || n.starts_with('h')).count();
    if binder.names.is_empty() { u32::from(relation) } else { named as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_the_conclusion() {
        let f = features(
            "theorem t (x y : ℝ) (h₀ : x > 0 ∧ y > 0) (h₁ h₂ : p) (f : ℕ → ℕ) : x = 1 ∨ (y = 2 ∧ (x = y → y = 1)) := by",
        );
        assert_eq!((f.disjunctions, f.conjunctions, f.implications), (1, 1, 1));
        assert_eq!(f.depth, 2);
        assert_eq!(f.hypotheses, 3);
        assert_eq!(f.conclusion_length, 19);
        assert!(f.length > f.conclusion_length);
        assert_eq!(features("junk"), Features::default());
    }
}
