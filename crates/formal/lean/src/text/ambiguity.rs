//! Places where Lean's lexer might split a text differently from ours.
//!
//! Lean's lexer knows every notation of the environment and always takes the longest match; ours knows none. The two
//! can disagree only where something that hides text (a comment, a string, a character) begins or ends at a position
//! that a longer symbol could cover, or where a number or a word ends. Such places are rare, and a blank removes each
//! of them.

use super::lexer::{SourceToken, TokenKind, char_literal, escape, is_word_start};

/// Returns the byte offset of the first such place, and a description of it.
pub fn ambiguity(source: &str, tokens: &[SourceToken]) -> Option<(usize, &'static str)> {
    let mut before: Option<&SourceToken> = None;
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

/// Describes a token that is ambiguous regardless of its neighbours.
fn alone(source: &str, token: &SourceToken) -> Option<&'static str> {
    let text = token.text(source);
    match token.kind {
        // Versions of Lean disagree on whether `/-/` closes the comment that it opens.
        TokenKind::BlockComment if text.starts_with("/-/") || text.starts_with("/--/") => {
            Some("a comment that begins with a slash or closes itself")
        }
        TokenKind::DocComment if text.starts_with("/--/") || text.starts_with("/-!/") => {
            Some("a comment that closes itself")
        }
        // To Lean, `/--` is a token that whitespace may follow, and a comment of another kind is whitespace.
        TokenKind::DocComment if doc_text(text).starts_with("--") || doc_text(text).starts_with("/-") => {
            Some("a comment that begins with another one")
        }
        TokenKind::Str { .. } if ends_like_raw(source, token.start) => Some("a raw string after a symbol"),
        // Nothing in a raw string has a meaning but its end.
        TokenKind::Str { .. } if text.starts_with('r') => None,
        TokenKind::Str { interpolated: false } => string(text),
        TokenKind::Char if text.contains(['\n', '\r']) => Some("a line break as a character"),
        TokenKind::QuotedWord if text.contains(is_odd_in_name) => Some("a name in «» with a symbol in it"),
        TokenKind::Number if text.ends_with('_') => Some("a number that ends in `_`"),
        // It depends on the environment whether `∑'` is a symbol of Mathlib, or a symbol before a character.
        TokenKind::Symbol if text.ends_with('\'') => {
            let quote = &source[token.end - 1..];
            (char_literal(quote) > 0).then_some("a character right after a symbol")
        }
        _ => None,
    }
}

/// Returns whether `r` and one or more `#` precede the quote at `quote`, regardless of the token that ends in the `r`.
fn ends_like_raw(source: &str, quote: usize) -> bool {
    let before = &source[..quote];
    let word = before.trim_end_matches('#');
    word.len() < before.len() && word.ends_with('r')
}

/// Returns the text of a documentation comment, without its opening.
fn doc_text(comment: &str) -> &str {
    comment.get(3..).unwrap_or_default().trim_start()
}

/// Describes an ambiguity in a string: an escape that Lean does not have, or braces that would hide code or text if the
/// string were interpolated.
fn string(text: &str) -> Option<&'static str> {
    // A string that is not closed may be a single quote.
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        let Some(length) = rest.get(at..).and_then(escape) else {
            return Some("an escape in a string that Lean does not know, or a string over several lines");
        };
        rest = &rest[at + length..];
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

/// Describes an ambiguity of two tokens without a blank between them.
fn pair(source: &str, before: &SourceToken, token: &SourceToken) -> Option<&'static str> {
    let symbol = before.kind == TokenKind::Symbol && !matches!(before.text(source), "," | ";");
    match token.kind {
        TokenKind::LineComment | TokenKind::BlockComment | TokenKind::DocComment if symbol => {
            Some("a comment right after a symbol")
        }
        TokenKind::Char
            if symbol
                && before.text(source) != "="
                && !reads_alike(before.text(source), token.text(source)) =>
        {
            Some("a character right after a symbol")
        }
        TokenKind::Str { interpolated: false }
            if token.text(source).starts_with('r')
                && !matches!(before.kind, TokenKind::Open | TokenKind::Assign)
                && !matches!(before.text(source), "," | ";") =>
        {
            Some("a raw string right after another token")
        }
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

/// Returns whether a character literal covers the same bytes if its first quote belongs to the symbol before it: `'b'`
/// is then the name `b'`, and `'\n'` a backslash and the name `n'`. Neither can begin a string or a comment. Symbols that
/// are not ASCII or end in a quote are excluded, because there the quotes could be paired differently (`→''b'`).
fn reads_alike(symbol: &str, literal: &str) -> bool {
    if !symbol.is_ascii() || symbol.ends_with('\'') {
        return false;
    }
    let inner = literal.trim_matches('\'');
    let name = inner.strip_prefix('\\').unwrap_or(inner);
    name.len() == 1 && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Describes two adjacent symbols that form a comment mark together: `<-` and `-`, `-` and `/`. `//-` and `\/-` are
/// unambiguous unless another symbol is joined to them from the left.
fn mark(
    source: &str,
    earlier: Option<&SourceToken>,
    before: &SourceToken,
    token: &SourceToken,
) -> Option<&'static str> {
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

/// Returns whether a character of a name in `«»` is anything but a letter, digit, blank, dot or mark.
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
    fn positions_that_a_longer_symbol_could_cover_are_found() {
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
            "xr\"a\"",
            "≠r\"a\"",
            "1r\"a\"",
            "x::'\"' y",
            "x::'1' y",
            "a →''y'",
            "x::'\\\"' y",
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
    fn honest_text_is_unambiguous() {
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
            "f r\"a\\b\" (r#\"\"x\"\"#) [r\"--\",r\"/-\"]",
            "'a'::'b'::'\\n'::[]",
        ] {
            assert_eq!(ambiguity(source, &lex(source)), None, "{source}");
        }
    }
}
