//! A lexer for Lean 4: nested comments, all kinds of strings, characters, names in `«»`, Unicode.
//!
//! The lexer knows no grammar and no notations. It serves prompts and readers only: where its tokens differ from
//! Lean's, Lean's decide. It never fails, because anything that is not closed becomes one token.

/// A token of Lean source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceToken {
    /// The kind.
    pub kind: TokenKind,
    /// Byte offset of its first byte.
    pub start: usize,
    /// Byte offset after its last byte.
    pub end: usize,
}

impl SourceToken {
    /// Returns the token's text.
    pub fn text<'s>(&self, source: &'s str) -> &'s str {
        &source[self.start..self.end]
    }

    /// Returns whether it is a comment that Lean skips. Documentation comments are syntax.
    pub fn is_trivia(&self) -> bool {
        matches!(self.kind, TokenKind::LineComment | TokenKind::BlockComment)
    }
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// An identifier, including its dotted parts, or a keyword: `Nat.succ`, `theorem`, `x₁'`.
    Word,
    /// An identifier with at least one part in `«»`, which is never a keyword.
    QuotedWord,
    /// A command or notation that begins with `#` and a letter: `#eval`.
    HashWord,
    /// A number, including decimals and an exponent.
    Number,
    /// A string of any kind, including its delimiters.
    Str,
    /// A character literal.
    Char,
    /// One of `( [ { ⟨ ⌊ ⌈ ⟦ ⟪ ⦃` or `@[` or `#[`.
    Open,
    /// One of `) ] } ⟩ ⌋ ⌉ ⟧ ⟫ ⦄`.
    Close,
    /// `:=`
    Assign,
    /// `:` alone.
    Colon,
    /// The beginning of a quotation or a name literal.
    Backtick,
    /// Any other symbol: a single character, or one of `=>`, `->`, `<-`, `::`, `..`, `//`, `\/`, `/\`, `''`.
    Symbol,
    /// `-- …` up to the end of the line.
    LineComment,
    /// `/- … -/`, nested.
    BlockComment,
    /// `/-- … -/` or `/-! … -/`.
    DocComment,
    /// Something that is not closed before the end of the text.
    Unclosed,
}

/// Splits a text into tokens, including comments.
pub fn lex(source: &str) -> Vec<SourceToken> {
    let mut lexer = Lexer { source, at: 0, tokens: Vec::with_capacity(source.len() / 4) };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    tokens: Vec<SourceToken>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: TokenKind, length: usize) -> bool {
        let end = (self.at + length).min(self.source.len());
        self.tokens.push(SourceToken { kind, start: self.at, end });
        self.at = end;
        true
    }

    fn step(&mut self) -> bool {
        let blanks = self.rest().len() - self.rest().trim_start_matches(is_blank).len();
        self.at += blanks;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return false };
        let second = rest[first.len_utf8()..].chars().next();
        match (first, second) {
            ('-', Some('-')) => {
                let length = rest.find('\n').unwrap_or(rest.len());
                self.push(TokenKind::LineComment, length)
            }
            ('/', Some('-')) => self.block_comment(),
            ('"', _) => self.string(),
            // In `xs[i]'h`, `]'` is one symbol of Lean.
            ('\'', _) if self.follows_bracket() => self.push(TokenKind::Symbol, 1),
            ('\'', Some('\'')) => self.push(TokenKind::Symbol, 2),
            ('\'', _) => match char_literal(rest) {
                Some(length) => self.push(TokenKind::Char, length),
                None => self.push(TokenKind::Unclosed, rest.len()),
            },
            ('r', Some('"' | '#')) if raw_string(rest).is_some() => match raw_string(rest) {
                Some(Some(length)) => self.push(TokenKind::Str, length),
                _ => self.push(TokenKind::Unclosed, rest.len()),
            },
            ('`', _) => self.push(TokenKind::Backtick, if second == Some('`') { 2 } else { 1 }),
            ('#', Some('[')) | ('@', Some('[')) => self.push(TokenKind::Open, 2),
            ('#', Some(c)) if c.is_ascii_alphabetic() => {
                let length = rest[1..].find(|c: char| !is_word_rest(c)).map_or(rest.len(), |n| n + 1);
                self.push(TokenKind::HashWord, length)
            }
            ('«', _) => self.word(),
            (c, _) if is_word_start(c) => self.word(),
            (c, _) if c.is_ascii_digit() => {
                let length = number(rest);
                self.push(TokenKind::Number, length)
            }
            (c, _) if is_open(c) => self.push(TokenKind::Open, c.len_utf8()),
            (c, _) if is_close(c) => self.push(TokenKind::Close, c.len_utf8()),
            (':', Some('=')) => self.push(TokenKind::Assign, 2),
            (':', Some(':')) | ('=', Some('>')) | ('-', Some('>')) | ('<', Some('-')) | ('.', Some('.')) => {
                self.push(TokenKind::Symbol, 2)
            }
            // In `{ x : Int //-1 < x }`, the second slash belongs to the first one and begins no comment.
            ('/', Some('/' | '\\')) | ('\\', Some('/')) => self.push(TokenKind::Symbol, 2),
            (':', _) => self.push(TokenKind::Colon, 1),
            // `∑'`, `∏'` and `⁻¹'` are symbols of Mathlib. A prime after any other symbol is treated in the same way.
            (c, Some('\'')) if !c.is_ascii() => self.push(TokenKind::Symbol, c.len_utf8() + 1),
            (c, _) => self.push(TokenKind::Symbol, c.len_utf8()),
        }
    }

    /// Returns whether the token that ends here is `]`.
    fn follows_bracket(&self) -> bool {
        self.tokens.last().is_some_and(|last| last.end == self.at && last.text(self.source) == "]")
    }

    fn block_comment(&mut self) -> bool {
        let rest = self.rest();
        // `/--/` is a complete comment in Lean: `/-` and `-/`.
        let documents = (rest.starts_with("/--") || rest.starts_with("/-!")) && !rest.starts_with("/--/");
        let bytes = rest.as_bytes();
        let (mut depth, mut at) = (1_usize, 2_usize);
        while depth > 0 {
            let ahead = bytes.get(at..).unwrap_or_default();
            at += ahead.iter().position(|byte| matches!(byte, b'-' | b'/')).unwrap_or(ahead.len());
            match (bytes.get(at), bytes.get(at + 1)) {
                (Some(b'-'), Some(b'/')) => {
                    depth -= 1;
                    at += 2;
                }
                (Some(b'/'), Some(b'-')) => {
                    depth += 1;
                    at += 2;
                }
                (Some(_), _) => at += 1,
                (None, _) => return self.push(TokenKind::Unclosed, bytes.len()),
            }
        }
        self.push(if documents { TokenKind::DocComment } else { TokenKind::BlockComment }, at)
    }

    fn string(&mut self) -> bool {
        let bytes = self.rest().as_bytes();
        let mut at = 1;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => return self.push(TokenKind::Str, at + 1),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        let length = self.rest().len();
        self.push(TokenKind::Unclosed, length)
    }

    fn word(&mut self) -> bool {
        let rest = self.rest();
        let (mut at, mut quoted) = (0, false);
        loop {
            let part = &rest[at..];
            if part.starts_with('«') {
                quoted = true;
                match part.find('»') {
                    Some(close) => at += close + '»'.len_utf8(),
                    None => {
                        let length = rest.len();
                        return self.push(TokenKind::Unclosed, length);
                    }
                }
            } else {
                at += part.find(|c: char| !is_word_rest(c)).unwrap_or(part.len());
            }
            let mut next = rest[at..].chars();
            let continues =
                next.next() == Some('.') && next.next().is_some_and(|c| is_word_start(c) || c == '«');
            if !continues {
                break;
            }
            at += 1;
        }
        self.push(if quoted { TokenKind::QuotedWord } else { TokenKind::Word }, at)
    }
}

/// Returns `None` if `text` does not begin with a raw string, and otherwise its length, or `Some(None)` if it is not
/// closed.
fn raw_string(text: &str) -> Option<Option<usize>> {
    let body = text.strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body.get(hashes..)?.strip_prefix('"')?;
    let mut close = String::from("\"");
    close.extend(std::iter::repeat_n('#', hashes));
    Some(inner.find(&close).map(|at| 1 + hashes + 1 + at + close.len()))
}

/// Returns the length of the character literal at the beginning of `text`, which starts with a quote.
fn char_literal(text: &str) -> Option<usize> {
    let body = &text[1..];
    let length = match body.chars().next()? {
        '\\' => escape(body)?,
        c => c.len_utf8(),
    };
    (body.as_bytes().get(length) == Some(&b'\'')).then_some(length + 2)
}

/// Returns the length of the escape sequence at the beginning of `text`, which starts with a backslash, or `None` if Lean
/// has no such sequence.
fn escape(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits = match bytes.get(1)? {
        b'\\' | b'"' | b'\'' | b'r' | b'n' | b't' => 0,
        b'x' => 2,
        b'u' => 4,
        _ => return None,
    };
    let hexadecimal = bytes.get(2..2 + digits)?.iter().all(u8::is_ascii_hexdigit);
    hexadecimal.then_some(2 + digits)
}

/// Returns the length of the number at the beginning of `text`. As in Lean, a letter after it begins another token:
/// `0b1axiom` is a number and a keyword.
fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let run = |from: usize, accept: fn(&u8) -> bool| {
        bytes.get(from..).map_or(0, |rest| rest.iter().take_while(|b| accept(b)).count())
    };
    if bytes.first() == Some(&b'0') {
        let digit: Option<fn(&u8) -> bool> = match bytes.get(1) {
            Some(b'x' | b'X') => Some(|b| b.is_ascii_hexdigit() || *b == b'_'),
            Some(b'b' | b'B') => Some(|b| matches!(b, b'0' | b'1' | b'_')),
            Some(b'o' | b'O') => Some(|b| matches!(b, b'0'..=b'7' | b'_')),
            _ => None,
        };
        let digits = digit.map_or(0, |digit| run(2, digit));
        if digits > 0 {
            return 2 + digits;
        }
    }
    let digit = |b: &u8| b.is_ascii_digit() || *b == b'_';
    let mut at = run(0, digit);
    // `1.5` is one number. `1..5` and `x.1.foo` end here.
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1 + run(at + 1, digit);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        if bytes.get(at + 1 + sign).is_some_and(u8::is_ascii_digit) {
            at += 1 + sign + run(at + 1 + sign, digit);
        }
    }
    at.max(1)
}

/// Returns whether Lean skips a character between tokens.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Returns whether a name can begin with a character (Lean's `isIdFirst`).
fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || is_letter_like(c)
}

/// Returns whether a name can continue with a character (Lean's `isIdRest`).
fn is_word_rest(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '\'' | '!' | '?') || is_letter_like(c) || is_subscript(c)
}

fn is_letter_like(c: char) -> bool {
    matches!(c,
        'α'..='ω' | 'Α'..='Ω' | '\u{3ca}'..='\u{3fb}' | '\u{1f00}'..='\u{1ffe}' | '\u{2100}'..='\u{214f}'
        | '\u{1d49c}'..='\u{1d59f}' | '\u{00c0}'..='\u{00ff}' | '\u{0100}'..='\u{017f}')
        && !matches!(c, 'λ' | 'Π' | 'Σ' | '×' | '÷')
}

fn is_subscript(c: char) -> bool {
    matches!(c, '\u{2080}'..='\u{2089}' | '\u{2090}'..='\u{209c}' | '\u{1d62}'..='\u{1d6a}' | '\u{2c7c}')
}

fn is_open(c: char) -> bool {
    matches!(c, '(' | '[' | '{' | '⟨' | '⌊' | '⌈' | '⟦' | '⟪' | '⦃')
}

fn is_close(c: char) -> bool {
    matches!(c, ')' | ']' | '}' | '⟩' | '⌋' | '⌉' | '⟧' | '⟫' | '⦄')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(source: &str) -> Vec<(TokenKind, &str)> {
        lex(source).iter().map(|t| (t.kind, t.text(source))).collect()
    }

    fn words(source: &str) -> Vec<&str> {
        let tokens = lex(source);
        tokens.iter().filter(|t| t.kind == TokenKind::Word).map(|t| t.text(source)).collect()
    }

    #[test]
    fn comments_nest_and_hide_their_words() {
        assert_eq!(words("a /- b /- c -/ d -/ e -- f\ng"), ["a", "e", "g"]);
        assert_eq!(show("/--/ x")[0], (TokenKind::BlockComment, "/--/"));
        assert_eq!(show("/-- d -/ x")[0], (TokenKind::DocComment, "/-- d -/"));
        assert_eq!(show("/- x")[0].0, TokenKind::Unclosed);
    }

    #[test]
    fn strings_hide_their_words() {
        assert_eq!(words(r#"a "sorry \" -- b" c"#), ["a", "c"]);
        assert_eq!(words(r##"a r#"x" sorry "# c"##), ["a", "c"]);
        assert_eq!(words(r#"s!"a {x} sorry" c"#), ["s!", "c"]);
        assert_eq!(show("\"open")[0].0, TokenKind::Unclosed);
    }

    #[test]
    fn quotes_are_primes_characters_or_symbols() {
        assert_eq!(words("x' h₁'"), ["x'", "h₁'"]);
        assert_eq!(show("'a'")[0], (TokenKind::Char, "'a'"));
        assert_eq!(show("'\\n'")[0], (TokenKind::Char, "'\\n'"));
        assert_eq!(show("'\\u03b1'")[0].0, TokenKind::Char);
        assert_eq!(show("∑' n, b n")[0], (TokenKind::Symbol, "∑'"));
        assert_eq!(show("f '' s")[1], (TokenKind::Symbol, "''"));
        assert_eq!(show("'\"' x").len(), 2, "a quote character opens no string");
        assert_eq!(show("'\n' x")[0], (TokenKind::Char, "'\n'"), "a line break may be a character");
        assert_eq!(show("'ab' x")[0].0, TokenKind::Unclosed);
    }

    #[test]
    fn names_keep_their_parts_together() {
        assert_eq!(words("Real.sin x.1 h.le"), ["Real.sin", "x", "h.le"]);
        assert_eq!(show("«theorem».foo")[0], (TokenKind::QuotedWord, "«theorem».foo"));
        assert_eq!(words("theoremX h_def"), ["theoremX", "h_def"]);
        assert_eq!(show("#eval")[0].0, TokenKind::HashWord);
        assert_eq!(show("«x")[0].0, TokenKind::Unclosed);
    }

    #[test]
    fn slashes_of_symbols_begin_no_comment() {
        assert_eq!(words("{ x : Int //-1 < x } y"), ["x", "Int", "x", "y"]);
        assert_eq!(words("a \\/-1 < b"), ["a", "b"]);
        assert_eq!(words("a /-1 < b -/ c"), ["a", "c"]);
        assert_eq!(words("a ///-1 < b -/ c"), ["a", "c"]);
    }

    #[test]
    fn numbers_end_where_lean_ends_them() {
        assert_eq!(show("0b1axiom")[0].1, "0b1");
        assert_eq!(show("0o17axiom")[0].1, "0o17");
        assert_eq!(show("0xeaxiom")[0].1, "0xea");
        assert_eq!(show("1.5e-3")[0].1, "1.5e-3");
        assert_eq!(show("0x1F")[0].1, "0x1F");
        assert_eq!(show("2..5")[0].1, "2");
        assert_eq!(show("p.1.2")[1..].len(), 2);
    }

    #[test]
    fn an_unclosed_comment_extends_to_the_end() {
        for source in
            ["/-", "/- x", "/- a -", "/- a /", "/- a - b sorry", "/- ⟨x⟩", "/- /- a -/ ∀", "/-- a\n"]
        {
            assert_eq!(show(source), [(TokenKind::Unclosed, source)]);
        }
    }

    proptest! {
        #[test]
        fn tokens_are_in_order_on_char_boundaries_and_cover_all_but_blanks(
            source in prop_oneof![".{0,120}", "[-/!a∀»\"'\n]{0,40}"]
        ) {
            let mut at = 0;
            for token in lex(&source) {
                prop_assert!(token.start >= at && token.end > token.start);
                prop_assert!(source.get(at..token.start).is_some_and(|gap| gap.chars().all(is_blank)));
                prop_assert!(source.get(token.start..token.end).is_some());
                at = token.end;
            }
            prop_assert!(source[at..].chars().all(is_blank));
        }

        #[test]
        fn commenting_a_text_hides_every_word_of_it(text in "[a-z ]{0,40}") {
            let source = format!("/- {text} -/");
            prop_assert!(words(&source).is_empty());
        }
    }
}
