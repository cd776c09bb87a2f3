//! The form in which Lean is given a text: the same code in the same columns, without comments and with added brackets.
//!
//! A comment that Lean never sees cannot turn out to be code. A command inside of the brackets around a proof, whether or
//! not it is on our lists, leaves the bracket open, which is an error in Lean's own grammar.

use super::command::commands;
use super::declaration::{ProofStart, parse_declaration};
use super::lexer::{SourceToken, TokenKind, lex};
use super::statement::LeanStatement;

/// Words that can follow a proof and belong to its theorem.
pub(super) const SUFFIXES: &[&str] = &["where", "termination_by", "decreasing_by"];

/// Replaces every comment by blanks. Lines and columns do not change.
pub fn blank_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut at = 0;
    let is_comment = |t: &&SourceToken| t.is_trivia() || t.kind == TokenKind::DocComment;
    for comment in lex(source).iter().filter(is_comment) {
        text.push_str(&source[at..comment.start]);
        text.extend(comment.text(source).chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        at = comment.end;
    }
    text.push_str(&source[at..]);
    text
}

/// Encloses a proof (a tactic block after `by`, or a term after `:=`) in brackets and removes its comments. Parts that
/// follow the proof and belong to the theorem (`where`, `termination_by`) remain outside.
pub fn enclosed_proof(proof: &str) -> String {
    let proof = blank_comments(proof);
    let (own, rest) = proof.split_at(suffix(&proof));
    let inner = own.strip_prefix(' ').unwrap_or(own).trim_end();
    if rest.is_empty() {
        return format!("({inner}\n)");
    }
    // The opening bracket replaces a blank, so that columns do not change. The rest keeps its column too.
    let column = " ".repeat(line_before(own, own.len()).chars().count());
    format!("({inner}\n)\n{column}{rest}")
}

/// Encloses the conclusion of a statement in brackets and removes comments. Returns `None` if the result is not a
/// statement.
pub fn enclosed_statement(statement: &LeanStatement) -> Option<LeanStatement> {
    let plain = LeanStatement::read(&blank_comments(&statement.text)).ok()?;
    let range = plain.declaration.conclusion.clone();
    let conclusion = plain.text.get(range.clone())?;
    let start = range.start + (conclusion.len() - conclusion.trim_start().len());
    let end = range.start + conclusion.trim_end().len();
    let before = plain.text.get(..start)?;
    let before = before.strip_suffix(' ').unwrap_or(before);
    LeanStatement::read(&format!("{before}({}){}", plain.text.get(start..end)?, plain.text.get(end..)?)).ok()
}

/// Encloses the proof of each helper theorem in brackets and removes comments.
pub fn enclosed_theorems(source: &str) -> String {
    let found = commands(source, &lex(source));
    let each = found.iter().filter_map(|c| source.get(c.range.clone()));
    each.map(|theorem| enclosed_theorem(theorem.trim_end())).collect::<Vec<_>>().join("\n\n")
}

/// Encloses the proof of a theorem in brackets, unless it is written as equations, and removes comments.
fn enclosed_theorem(source: &str) -> String {
    let plain = blank_comments(source);
    let after = parse_declaration(&plain, &lex(&plain)).map(|d| d.proof);
    match after {
        Some(ProofStart::By { after, .. } | ProofStart::Term { after, .. }) => {
            let (head, proof) = plain.split_at(after);
            format!("{head}{}", enclosed_proof(proof))
        }
        _ => plain,
    }
}

/// Returns the offset of the first word that ends a proof. Outside of brackets, these words end every term and every
/// tactic, except that a `let rec` can have its own; then they are indented deeper than the proof.
fn suffix(proof: &str) -> usize {
    let tokens = lex(proof);
    let begins_line = |at: usize| {
        let line = line_before(proof, at);
        line.trim().is_empty().then(|| line.chars().count())
    };
    let first = tokens.first().filter(|t| proof.get(..t.start).is_some_and(|b| b.contains('\n')));
    // The column of a proof that begins in the line of its `by` is that of its other lines.
    let margin = match first {
        Some(first) => begins_line(first.start).unwrap_or(0),
        None => tokens.iter().skip(1).filter_map(|t| begins_line(t.start)).min().unwrap_or(0),
    };
    let (mut depth, mut recursive) = (0_usize, false);
    for token in &tokens {
        let word = token.text(proof);
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 && word == "rec" => recursive = true,
            TokenKind::Word if depth == 0 && SUFFIXES.contains(&word) => {
                let at_margin = begins_line(token.start).is_some_and(|column| column <= margin);
                if word == "where" || !recursive || at_margin {
                    return token.start;
                }
            }
            _ => {}
        }
    }
    proof.len()
}

/// Returns the part of the line of `at` that precedes it.
fn line_before(text: &str, at: usize) -> &str {
    text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_blanks_and_columns_stay() {
        let source = "\n  simp /- α\n β -/ at h -- c\n  exact h \"-- s\" {x : Int //-1 < x}";
        let plain = blank_comments(source);
        assert_eq!(plain, "\n  simp     \n      at h     \n  exact h \"-- s\" {x : Int //-1 < x}");
        let columns = |s: &str| s.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
        assert_eq!(columns(&plain), columns(source));
    }

    #[test]
    fn proofs_are_enclosed_without_their_suffixes() {
        assert_eq!(enclosed_proof(" simp -- c"), "(simp\n)");
        assert_eq!(enclosed_proof("\n  a\n  b\n"), "(\n  a\n  b\n)");
        assert_eq!(
            enclosed_proof("\n  exact f n\nwhere\n  f : Nat → P := g"),
            "(\n  exact f n\n)\nwhere\n  f : Nat → P := g"
        );
        assert_eq!(enclosed_proof("\n  a\n  termination_by n"), "(\n  a\n)\n  termination_by n");
        assert_eq!(enclosed_proof("\n  f n\n    termination_by n"), "(\n  f n\n)\n    termination_by n");
        assert_eq!(enclosed_proof(" go n where\n  go : P := g"), "(go n\n)\n      where\n  go : P := g");
        assert_eq!(enclosed_proof(" f n\n    where f : P := g"), "(f n\n)\n    where f : P := g");
        let inner = "\n  let rec f := 1\n    termination_by n\n  exact f";
        assert_eq!(enclosed_proof(inner), format!("({inner}\n)"));
    }

    #[test]
    fn conclusions_are_enclosed() {
        let enclosed = |text: &str| enclosed_statement(&LeanStatement::read(text).unwrap()).unwrap().text;
        assert_eq!(enclosed("theorem a (x : ℕ) : x = x := by"), "theorem a (x : ℕ) :(x = x) := by");
        assert_eq!(enclosed("theorem a :\n  x = -- c\n  x := by"), "theorem a :\n (x =     \n  x) := by");
        assert_eq!(enclosed("theorem a : 1 = 1\n  := by"), "theorem a :(1 = 1)\n  := by");
    }

    #[test]
    fn helpers_are_enclosed_as_they_are_written() {
        assert_eq!(enclosed_theorem("lemma a : p := by simp"), "lemma a : p := by(simp\n)");
        assert_eq!(enclosed_theorem("/-- d -/ theorem a : p := rfl"), "         theorem a : p :=(rfl\n)");
        let equations = "theorem a : ∀ n, n = n\n  | 0 => rfl\n  | _ + 1 => rfl";
        assert_eq!(enclosed_theorem(equations), equations);
    }
}
