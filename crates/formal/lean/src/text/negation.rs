//! The negation of a statement.
//!
//! Binders before the colon become binders of a `∀`. Lean elaborates both by the same rules, so hypotheses, instances
//! and implicit arguments keep their meaning. Parts that span several lines keep their columns, because the columns
//! determine the structure of `let`, `match` and tactic blocks.

use super::lexer::lex;
use super::statement::{LeanStatement, LeanStatementError};
use std::ops::Range;

/// Returns the statement with the same name that negates `statement`: `theorem a (x : T) : p := by` becomes
/// `theorem a : ¬ (∀ (x : T), p) := by`.
///
/// With `autoImplicit`, Lean would bind undeclared names outside of the negation. The result is a negation only if that
/// option is off.
pub fn negation(statement: &LeanStatement) -> Result<LeanStatement, LeanStatementError> {
    let source = &statement.text;
    let parts = &statement.declaration;
    let tokens = lex(source);
    let meant = || tokens.iter().filter(|t| !t.is_trivia());
    let last_before = |at: usize| meant().rfind(|t| t.end <= at).map_or(0, |t| t.end);
    let binders = match parts.binders.as_slice() {
        [] => None,
        [one] => Some(one.range.clone()),
        [first, .., last] => Some(first.range.start..last.range.end),
    };
    // The colon directly precedes the conclusion.
    let head = last_before(binders.as_ref().map_or(parts.conclusion.start - 1, |b| b.start));
    let begin = meant().find(|t| t.start >= parts.conclusion.start).map_or(head, |t| t.start);
    let conclusion = begin..last_before(parts.conclusion.end).max(begin);
    let breaks = |range: Range<usize>| source.get(range).is_some_and(|text| text.contains('\n'));
    let conclusion_text = placed(source, &conclusion, breaks(parts.conclusion.start..conclusion.end));
    let head = &source[..head];
    let text = match binders {
        None => format!("{head} : ¬ ({}) := by", conclusion_text.trim_start_matches(' ')),
        Some(all) => {
            let spans_lines = parts.binders.iter().any(|b| breaks(b.range.clone()));
            let binders = placed(source, &all, spans_lines);
            format!("{head} : ¬ (∀{binders},{conclusion_text}) := by")
        }
    };
    LeanStatement::read(&text)
}

/// Returns a part of a text, either after a blank or on its own line at its original column.
fn placed(source: &str, part: &Range<usize>, own_line: bool) -> String {
    let text = &source[part.clone()];
    if !own_line {
        return format!(" {text}");
    }
    let line = source.get(..part.start).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    format!("\n{}{text}", " ".repeat(line.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negated(text: &str) -> String {
        negation(&LeanStatement::read(text).unwrap()).unwrap().text
    }

    #[test]
    fn binders_of_every_kind_are_bound_inside() {
        let text = "theorem a.{u} {α : Type u} ⦃x : α⦄ [h : Decidable p] y (n : Nat := 3) : p ∨ ¬p := by";
        assert_eq!(
            negated(text),
            "theorem a.{u} : ¬ (∀ {α : Type u} ⦃x : α⦄ [h : Decidable p] y (n : Nat := 3), p ∨ ¬p) := by"
        );
        assert_eq!(negated("theorem a : 1 = 2 := by"), "theorem a : ¬ (1 = 2) := by");
        assert_eq!(negated("theorem a (p : Prop) : p := by"), "theorem a : ¬ (∀ (p : Prop), p) := by");
    }

    #[test]
    fn parts_that_span_lines_keep_their_columns() {
        assert_eq!(
            negated("theorem a (x : Nat)\n    (h : x > 0) :\n    x + 1 > 1 ∧\n      x > 0 := by"),
            "theorem a : ¬ (∀ (x : Nat)\n    (h : x > 0),\n    x + 1 > 1 ∧\n      x > 0) := by"
        );
        assert_eq!(
            negated("theorem a (h : let y := 1\n            y = x) : let z := 2\n  z = x := by"),
            format!(
                "theorem a : ¬ (∀\n{}(h : let y := 1\n            y = x),\n{}let z := 2\n  z = x) := by",
                " ".repeat(10),
                " ".repeat(21)
            )
        );
    }

    #[test]
    fn comments_hide_no_part_of_a_negation() {
        assert_eq!(
            negated("theorem a -- one\n  (x : Nat) -- two\n  : -- three\n  x = 1 -- four\n  := by"),
            "theorem a : ¬ (∀ (x : Nat),\n  x = 1) := by"
        );
    }

    #[test]
    fn twice_is_read_again() {
        let twice = negated(&negated("theorem a (x : Nat) : x = 1 := by"));
        assert_eq!(twice, "theorem a : ¬ (¬ (∀ (x : Nat), x = 1)) := by");
    }
}
