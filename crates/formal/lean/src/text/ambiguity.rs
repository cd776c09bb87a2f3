//! Places that Lean could read otherwise than our lexer does.
//!
//! Lean's lexer knows every notation of the environment and always takes the longest; ours knows none. They can
//! disagree only where something that hides text (a comment, a string, a character) begins or ends at a place that a
//! longer symbol could claim, or where a number or a word ends. No honest proof needs such a place, and a blank takes
//! each of them away.

use super::lexer::{Token, TokenKind, char_literal, escape, is_word_start};

/// The first such place: its byte offset, and what is wrong there.
pub fn ambiguity(source: &str, tokens: &[Token]) -> Option<(usize, &'static str)> {
    let mut before: Option<&Token> = None;
    for (index, token) in tokens.iter().enumerate() {
        let joined = before.filter(|t| t.end == token.start);
        let earlier = index.checked_sub(2).and_then(|at| tokens.get(at));
        let found = alone(source, token).or_else(|| joined.and_then(|before| pair(source, before, token)));
        if let Some(what) = found.or_else(|| joined.and_then(|b| mark(source, earlier, b, token))) {
            return Some((token.start, what));
        }
        before = Some(token);
    }
    None
}

/// Tokens that are doubtful wherever they stand.
fn alone(source: &str, token: &Token) -> Option<&'static str> {
    let text = token.text(source);
    match token.kind {
        // Versions of Lean differ in whether the first character of a comment counts.
        TokenKind::BlockComment if text.starts_with("/-/") || text.starts_with("/--/") => {
            Some("a comment that begins with a slash or closes itself")
        }
        TokenKind::DocComment if text.starts_with("/--/") || text.starts_with("/-!/") => {
            Some("a comment that closes itself")
        }
        // To Lean, `/--` is a token with blanks behind it, which may be a comment of another kind.
        TokenKind::DocComment if doc_text(text).starts_with("--") || doc_text(text).starts_with("/-") => {
            Some("a comment that begins with another one")
        }
        TokenKind::Str { .. } if text.starts_with('r') || ends_like_raw(source, token.start) => {
            Some("a raw string")
        }
        TokenKind::Str { interpolated: false } => string(text),
        TokenKind::Char if text.contains(['\n', '\r']) => Some("a line break as a character"),
        TokenKind::QuotedWord if text.contains(is_odd_in_name) => Some("a name in «» with a symbol in it"),
        TokenKind::Number if text.ends_with('_') => Some("a number that ends in `_`"),
        // `∑'` of Mathlib, or a symbol and a character?
        TokenKind::Symbol if text.ends_with('\'') => {
            let quote = source.get(token.end - 1..).unwrap_or_default();
            (char_literal(quote) > 0).then_some("a character right after a symbol")
        }
        _ => None,
    }
}

/// Whether `r#` stands before a quote, whatever token we took the `r` for the end of.
fn ends_like_raw(source: &str, quote: usize) -> bool {
    let before = source.get(..quote).unwrap_or_default();
    let word = before.trim_end_matches('#');
    word.len() < before.len() && word.ends_with('r')
}

/// What stands in a documentation comment.
fn doc_text(comment: &str) -> &str {
    comment.get(3..).unwrap_or_default().trim_start()
}

/// A string without escapes that Lean does not know; one with braces must read the same as code and as text.
fn string(text: &str) -> Option<&'static str> {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        let Some(length) = rest.get(at..).and_then(escape) else {
            return Some("an escape in a string that Lean does not know, or a string over several lines");
        };
        rest = rest.get(at + length..).unwrap_or_default();
    }
    let braces = inner.chars().try_fold(0_u32, |depth, c| match c {
        '{' => Some(depth + 1),
        '}' => depth.checked_sub(1),
        _ => Some(depth),
    });
    let hides = inner.contains(['\'', '\\', '«']) || inner.contains("--") || inner.contains("/-");
    if inner.contains('{') && (braces != Some(0) || hides) {
        return Some("a string whose braces could hold code");
    }
    None
}

/// Two tokens without a blank between them.
fn pair(source: &str, before: &Token, token: &Token) -> Option<&'static str> {
    let symbol = before.kind == TokenKind::Symbol && !matches!(before.text(source), "," | ";");
    match token.kind {
        TokenKind::LineComment | TokenKind::BlockComment | TokenKind::DocComment if symbol => {
            Some("a comment right after a symbol")
        }
        TokenKind::Char if symbol && before.text(source) != "=" => Some("a character right after a symbol"),
        TokenKind::Str { interpolated: false } if symbol && !before.text(source).is_ascii() => {
            Some("a string right after a symbol")
        }
        TokenKind::Char | TokenKind::Str { interpolated: false }
            if matches!(
                before.kind,
                TokenKind::Word | TokenKind::HashWord | TokenKind::QuotedWord | TokenKind::Number
            ) =>
        {
            Some("a string or a character right after a word or a number")
        }
        TokenKind::Word | TokenKind::QuotedWord if before.kind == TokenKind::Number => {
            Some("a word right after a number")
        }
        _ => None,
    }
}

/// A mark of a comment that two symbols make together: `<-` and `-`, `-` and `/`. Only `//-` and `\/-` are what they
/// look like, where nothing is joined to them from the left.
fn mark(source: &str, earlier: Option<&Token>, before: &Token, token: &Token) -> Option<&'static str> {
    let (left, right) = (before.text(source), token.text(source));
    let makes = |first: char, second: char| left.ends_with(first) && right.starts_with(second);
    if makes('-', '/') && token.kind == TokenKind::Symbol && before.kind == TokenKind::Symbol {
        return Some("symbols that end a comment");
    }
    if !(makes('-', '-') || makes('/', '-')) || token.is_trivia() {
        return None;
    }
    let apart = earlier.is_none_or(|t| t.end < before.start || t.kind != TokenKind::Symbol);
    if matches!(left, "//" | "\\/") && right == "-" && apart {
        return None;
    }
    Some("symbols that begin a comment")
}

/// In a name in `«»` only letters, digits, blanks, dots and marks are beyond doubt.
fn is_odd_in_name(c: char) -> bool {
    !(c.is_alphanumeric() || is_word_start(c) || matches!(c, '«' | '»' | ' ' | '.' | '\'' | '!' | '?' | '_'))
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn doubtful(source: &str) -> bool {
        ambiguity(source, &lex(source)).is_some()
    }

    #[test]
    fn places_that_a_longer_symbol_could_claim_are_found() {
        for source in [
            "'a' ≠'\"' x",
            "x ∑'\"' y",
            "x <--1",
            "x |--1",
            "≠/- c -/",
            "x ///-1 -/",
            "≠//-1",
            "x //--1\n",
            "x -/ y",
            "/-/- x -/ y -/",
            "/--/ x",
            "0b1axiom x",
            "0xgaxiom",
            "1axiom",
            "x.1axiom",
            "r\"a\"",
            "'\n'",
            "«a\"b»",
            "«a--b»",
            "foo\"x\"",
            "\"a\\qb\"",
            "\"a\\\n  b\"",
            "\"{ /- }\"",
            "\"{\"",
            "x'a'\"\"",
            "xs[0]'\"' y",
            "#r\"a\"",
            "#r#\"a r#\"#",
        ] {
            assert!(doubtful(source), "{source}");
        }
    }

    #[test]
    fn honest_text_has_none() {
        for source in [
            "{ x : Int //-1 < x }",
            "(a ≤ b \\/-1 < 0)",
            "a /\\ b",
            "x - -1 -- comment",
            "f '' s",
            "xs[i]'h + xs[0]'(by omega)",
            "∑' n, b n",
            "\"{}\" ++ \"{x}\" ++ \"a\\n\\\"\\u03b1\"",
            "['a','b', '\\n'] = (c:=\"\")",
            "«my name» h.1.2 x.1.symm 1e5 0x1F 1.5 2..5",
            "simp [a,/- c -/ b];-- d\n foo",
            "⟨x,\"s\"⟩",
        ] {
            assert_eq!(ambiguity(source, &lex(source)), None, "{source}");
        }
    }
}
