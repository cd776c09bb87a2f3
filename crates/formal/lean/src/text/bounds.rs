//! Limits on untrusted text, which are checked before anything parses it. They do not depend on the grammar, which
//! Lean's parser checks.

sgs_keys::table! {
    /// Limits on text from a model. The default size is four times the longest text that 8,192 tokens can spell, and the
    /// default nesting is far deeper than in any honest proof.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bounds {
        /// Maximum size, in bytes.
        pub bytes: usize = 256 * 1024, in 1..=1 << 30,
        /// Maximum nesting of brackets. Lean's parser uses stack for each.
        pub depth: usize = 200, in 1..=10_000,
        /// Maximum length of a number, in characters.
        pub numeral: usize = 1_000, in 1..=1 << 30,
        /// Maximum length of a name, in bytes.
        pub name: usize = 500, in 1..=1 << 30,
    }
}

/// The limit that a text exceeds, or the character that makes it invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum BoundsError {
    #[error("{found} bytes exceed the limit of {limit}")]
    Bytes { found: usize, limit: usize },
    #[error("brackets nest deeper than {limit}")]
    Depth { limit: usize },
    #[error("a number of {found} characters exceeds the limit of {limit}")]
    Numeral { found: usize, limit: usize },
    #[error("a name of {found} bytes exceeds the limit of {limit}")]
    Name { found: usize, limit: usize },
    #[error("the character U+{0:04X} is not allowed in Lean source")]
    Character(u32),
}

impl Bounds {
    /// Checks a text.
    ///
    /// # Errors
    /// Returns the first limit that the text exceeds.
    pub fn check(&self, source: &str) -> Result<(), BoundsError> {
        if source.len() > self.bytes {
            return Err(BoundsError::Bytes { found: source.len(), limit: self.bytes });
        }
        if let Some(c) = source.chars().find(|c| is_foreign(*c)) {
            return Err(BoundsError::Character(c as u32));
        }
        // Programs disagree on whether a carriage return alone ends a line, and with it a comment.
        if source.split('\r').skip(1).any(|rest| !rest.starts_with('\n')) {
            return Err(BoundsError::Character('\r' as u32));
        }
        let mut depth = 0_usize;
        for c in source.chars() {
            match c {
                '(' | '[' | '{' | '⟨' => depth += 1,
                ')' | ']' | '}' | '⟩' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > self.depth {
                return Err(BoundsError::Depth { limit: self.depth });
            }
        }
        for word in source.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '\'')) {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            match word.len() {
                found if is_number && found > self.numeral => {
                    return Err(BoundsError::Numeral { found, limit: self.numeral });
                }
                found if !is_number && found > self.name => {
                    return Err(BoundsError::Name { found, limit: self.name });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a character is invalid. Invalid are control characters except newline, carriage return and tab,
/// marks that change the direction of writing, Unicode's line separators, the byte order mark, and other characters
/// without width that can hide text.
fn is_foreign(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_enforced() {
        let bounds = Bounds { bytes: 40, depth: 2, numeral: 5, name: 8 };
        assert!(bounds.check("exact (f [1, 2])").is_ok());
        assert!(matches!(bounds.check(&"x".repeat(41)), Err(BoundsError::Bytes { .. })));
        assert_eq!(bounds.check("(((1)))"), Err(BoundsError::Depth { limit: 2 }));
        assert_eq!(Bounds::default().check("-- 1) 2) ((\n"), Ok(()));
        assert!(matches!(bounds.check("123456"), Err(BoundsError::Numeral { .. })));
        assert!(matches!(bounds.check("abcdefghi"), Err(BoundsError::Name { .. })));
        assert_eq!(bounds.check("a\u{202e}b"), Err(BoundsError::Character(0x202e)));
        assert_eq!(bounds.check("a\0b"), Err(BoundsError::Character(0)));
        assert_eq!(bounds.check("-- a\rb"), Err(BoundsError::Character(0x0d)));
        assert_eq!(bounds.check("-- a\u{2028}b"), Err(BoundsError::Character(0x2028)));
        assert!(bounds.check("-- a\r\nb").is_ok());
    }
}
