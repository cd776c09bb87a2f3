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

impl Bounds {
    /// Checks a text.
    ///
    /// # Errors
    /// Returns the first limit that the text exceeds.
    pub fn check(&self, source: &str) -> Result<(), String> {
        if source.len() > self.bytes {
            return Err(format!("{} bytes exceed the limit of {}", source.len(), self.bytes));
        }
        if let Some(c) = source.chars().find(|c| is_foreign(*c)) {
            return Err(not_allowed(c));
        }
        // Programs disagree on whether a carriage return alone ends a line, and with it a comment.
        if source.split('\r').skip(1).any(|rest| !rest.starts_with('\n')) {
            return Err(not_allowed('\r'));
        }
        let mut depth = 0_usize;
        for c in source.chars() {
            match c {
                '(' | '[' | '{' | '⟨' => depth += 1,
                ')' | ']' | '}' | '⟩' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > self.depth {
                return Err(format!("brackets nest deeper than {}", self.depth));
            }
        }
        for word in source.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '\'')) {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            match word.len() {
                found if is_number && found > self.numeral => {
                    let limit = self.numeral;
                    return Err(format!("a number of {found} characters exceeds the limit of {limit}"));
                }
                found if !is_number && found > self.name => {
                    return Err(format!("a name of {found} bytes exceeds the limit of {}", self.name));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn not_allowed(c: char) -> String {
    format!("the character U+{:04X} is not allowed in Lean source", c as u32)
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
        let long = "x".repeat(41);
        for (text, said) in [
            (long.as_str(), "41 bytes exceed the limit of 40"),
            ("(((1)))", "nest deeper than 2"),
            ("123456", "a number of 6 characters"),
            ("abcdefghi", "a name of 9 bytes"),
            ("a\u{202e}b", "U+202E"),
            ("a\0b", "U+0000"),
            ("-- a\rb", "U+000D"),
            ("-- a\u{2028}b", "U+2028"),
        ] {
            assert!(bounds.check(text).unwrap_err().contains(said), "{text:?}");
        }
        assert!(bounds.check("exact (f [1, 2])").is_ok() && bounds.check("-- a\r\nb").is_ok());
        assert_eq!(Bounds::default().check("-- 1) 2) ((\n"), Ok(()));
    }
}
