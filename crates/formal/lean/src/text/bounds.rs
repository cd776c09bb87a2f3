//! Bounds on untrusted text, checked before anything else looks at it.

use super::lexer::{Token, TokenKind, closing, lex};

sgs_keys::table! {
    /// How large a piece of model text may be. By default: four times what the longest completion of 8,192 tokens can
    /// spell, and far beyond any honest nesting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bounds {
        /// Bytes of a model's text that are read.
        pub bytes: usize = 256 * 1024, in 1..=1 << 30,
        /// Nesting of brackets in it.
        pub depth: usize = 200, in 1..=10_000,
        /// Characters of a number in it.
        pub numeral: usize = 1_000, in 1..=1 << 30,
        /// Characters of a name in it.
        pub name: usize = 500, in 1..=1 << 30,
    }
}

/// Which bound a text exceeds, or which character it may not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many bytes.
    #[error("{found} bytes, at most {limit} are read")]
    Bytes { found: usize, limit: usize },
    /// Brackets nest too deeply.
    #[error("brackets nest deeper than {limit}")]
    Depth { limit: usize },
    /// A number is too long.
    #[error("a number of {found} characters, at most {limit} are read")]
    Numeral { found: usize, limit: usize },
    /// A name is too long.
    #[error("a name of {found} bytes, at most {limit} are read")]
    Name { found: usize, limit: usize },
    /// A control character, or one that changes the direction of writing.
    #[error("the character U+{0:04X} does not belong in Lean source")]
    Character(u32),
    /// A bracket without its partner.
    #[error("the bracket `{0}` has no partner")]
    Bracket(String),
    /// Something is not closed before the end.
    #[error("a {0} is not closed")]
    Unclosed(&'static str),
}

impl Bounds {
    /// Checks a text and returns its tokens.
    ///
    /// Brackets must match: a text that closes what it did not open could reach out of the place it is put in.
    pub fn check(&self, source: &str) -> Result<Vec<Token>, Exceeded> {
        if source.len() > self.bytes {
            return Err(Exceeded::Bytes { found: source.len(), limit: self.bytes });
        }
        if let Some(c) = source.chars().find(|c| is_foreign(*c)) {
            return Err(Exceeded::Character(c as u32));
        }
        let tokens = lex(source);
        let mut open: Vec<&str> = Vec::new();
        for token in &tokens {
            let text = token.text(source);
            match token.kind {
                TokenKind::Open => {
                    open.push(text);
                    if open.len() > self.depth {
                        return Err(Exceeded::Depth { limit: self.depth });
                    }
                }
                TokenKind::Close if open.pop().and_then(closing) != Some(text) => {
                    return Err(Exceeded::Bracket(text.to_owned()));
                }
                TokenKind::Number if text.len() > self.numeral => {
                    return Err(Exceeded::Numeral { found: text.len(), limit: self.numeral });
                }
                TokenKind::Word | TokenKind::QuotedWord if text.len() > self.name => {
                    return Err(Exceeded::Name { found: text.len(), limit: self.name });
                }
                TokenKind::Unclosed(defect) => {
                    return Err(Exceeded::Unclosed(match defect {
                        super::Defect::Comment => "comment",
                        super::Defect::Str => "string",
                        super::Defect::Name => "name in «»",
                        super::Defect::Char => "character in `'`",
                    }));
                }
                _ => {}
            }
        }
        match open.pop() {
            Some(bracket) => Err(Exceeded::Bracket(bracket.to_owned())),
            None => Ok(tokens),
        }
    }
}

/// Control characters but newline, carriage return and tab; marks that change the direction of writing; the
/// byte order mark and other characters without width that can hide text.
fn is_foreign(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept() {
        let bounds = Bounds { bytes: 40, depth: 2, numeral: 5, name: 8 };
        assert!(bounds.check("exact (f [1, 2])").is_ok());
        assert!(matches!(bounds.check(&"x".repeat(41)), Err(Exceeded::Bytes { .. })));
        assert_eq!(bounds.check("(((1)))"), Err(Exceeded::Depth { limit: 2 }));
        assert!(matches!(bounds.check("123456"), Err(Exceeded::Numeral { .. })));
        assert!(matches!(bounds.check("abcdefghi"), Err(Exceeded::Name { .. })));
        assert_eq!(bounds.check("a\u{202e}b"), Err(Exceeded::Character(0x202e)));
        assert_eq!(bounds.check("a\0b"), Err(Exceeded::Character(0)));
    }

    #[test]
    fn what_reaches_out_of_its_place_is_refused() {
        let bounds = Bounds::default();
        assert_eq!(bounds.check("simp)"), Err(Exceeded::Bracket(")".into())));
        assert_eq!(bounds.check("(simp]"), Err(Exceeded::Bracket("]".into())));
        assert_eq!(bounds.check("(simp"), Err(Exceeded::Bracket("(".into())));
        assert_eq!(bounds.check("simp /- x"), Err(Exceeded::Unclosed("comment")));
        assert_eq!(bounds.check("simp \"x"), Err(Exceeded::Unclosed("string")));
        assert!(bounds.check("exact Set.mem_setOf.2 (-- )\n h)").is_ok());
    }
}
