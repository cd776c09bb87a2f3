//! What Lean is given in place of what was written: the same code, column by column, without comments and in brackets
//! of ours.
//!
//! A comment that Lean never sees cannot turn out to be code. And a proof in brackets is a proof for Lean's own
//! grammar: a command in it, known to us or not, leaves the bracket open, which is an error.

use super::command::commands;
use super::declaration::{ProofStart, parse_declaration};
use super::lexer::{Token, TokenKind, lex};
use super::statement::Statement;

/// Words that may follow a proof and belong to its theorem.
pub(super) const SUFFIXES: &[&str] = &["where", "termination_by", "decreasing_by"];

/// The same text with blanks in place of every comment; lines and columns stay.
pub fn blank_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut at = 0;
    let is_comment = |t: &&Token| t.is_trivia() || t.kind == TokenKind::DocComment;
    for comment in lex(source).iter().filter(is_comment) {
        text.push_str(source.get(at..comment.start).unwrap_or_default());
        text.extend(comment.text(source).chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        at = comment.end;
    }
    text.push_str(source.get(at..).unwrap_or_default());
    text
}

/// A proof (a tactic block after `by`, or a term after `:=`) in brackets; what follows it and belongs to the theorem
/// (`where`, `termination_by`) stays behind them. Comments are gone.
pub fn enclosed_proof(proof: &str) -> String {
    let proof = blank_comments(proof);
    let (own, rest) = proof.split_at(suffix(&proof));
    let inner = own.strip_prefix(' ').unwrap_or(own).trim_end();
    if rest.is_empty() {
        return format!("({inner}\n)");
    }
    // The opening bracket takes a blank's place, and what follows keeps its column too.
    let column = " ".repeat(line_before(own, own.len()).chars().count());
    format!("({inner}\n)\n{column}{rest}")
}

/// A statement with its conclusion in brackets. Comments are gone.
pub fn enclosed_statement(statement: &Statement) -> Option<Statement> {
    let plain = Statement::read(&blank_comments(&statement.text)).ok()?;
    let range = plain.declaration.conclusion.clone();
    let conclusion = plain.text.get(range.clone())?;
    let start = range.start + (conclusion.len() - conclusion.trim_start().len());
    let end = range.start + conclusion.trim_end().len();
    let before = plain.text.get(..start)?;
    let before = before.strip_suffix(' ').unwrap_or(before);
    Statement::read(&format!("{before}({}){}", plain.text.get(start..end)?, plain.text.get(end..)?)).ok()
}

/// Helper theorems, each with its proof in brackets.
pub fn enclosed_theorems(source: &str) -> String {
    let found = commands(source, &lex(source));
    let each = found.iter().filter_map(|c| source.get(c.range.clone()));
    each.map(|theorem| enclosed_theorem(theorem.trim_end())).collect::<Vec<_>>().join("\n\n")
}

/// A helper theorem with its proof in brackets; one that is written as equations stays as it is. Comments are gone.
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

/// Where the words that may follow a proof begin, wherever they stand: outside of brackets they end every term and every
/// tactic. Only a `let rec` may have them for itself: then they must not be indented deeper than the proof.
fn suffix(proof: &str) -> usize {
    let tokens = lex(proof);
    let begins_line = |at: usize| {
        let line = line_before(proof, at);
        line.trim().is_empty().then(|| line.chars().count())
    };
    let first = tokens.first().filter(|t| proof.get(..t.start).is_some_and(|b| b.contains('\n')));
    // A proof that begins behind its `by` has the column of its other lines.
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

/// The line that `at` stands in, up to there.
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
    fn a_proof_stands_in_brackets_and_what_belongs_to_its_theorem_behind_them() {
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
    fn a_conclusion_stands_in_brackets() {
        let enclosed = |text: &str| enclosed_statement(&Statement::read(text).unwrap()).unwrap().text;
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
