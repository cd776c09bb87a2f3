//! Incremental decoding of a completion.

use sgs_lm::LmError;
use sgs_lm::tokenizer::Tokenizer;

/// Character that the tokenizer returns for an incomplete character, which later tokens may complete.
const INCOMPLETE: char = '\u{fffd}';

/// A stop text, and how much of it the end of the searched text matches (Knuth–Morris–Pratt).
struct StopMatcher<'a> {
    stop: &'a [u8],
    /// For each prefix of the stop text: the length of the longest other prefix that it ends with.
    borders: Vec<usize>,
    matched: usize,
}

impl<'a> StopMatcher<'a> {
    fn new(stop: &'a str) -> Self {
        let mut borders = vec![0; stop.len()];
        for end in 1..stop.len() {
            borders[end] = extended(stop.as_bytes(), &borders, borders[end - 1], stop.as_bytes()[end]);
        }
        Self { stop: stop.as_bytes(), borders, matched: 0 }
    }

    /// Reads the next byte. Returns whether the stop text ends with it.
    fn push(&mut self, byte: u8) -> bool {
        self.matched = extended(self.stop, &self.borders, self.matched, byte);
        self.matched == self.stop.len()
    }
}

/// Returns how much of a stop text matches after `byte`, if `matched` bytes, but not all, matched before it.
fn extended(stop: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && stop[matched] != byte {
        matched = borders[matched - 1];
    }
    matched + usize::from(stop[matched] == byte)
}

/// Decodes the text of a completion token by token.
///
/// The text of a token depends on the tokens before it, and a character may consist of several tokens. So the new text is
/// the difference between two decodings that start at the last certain position.
pub(crate) struct Transcript<'a> {
    tokenizer: &'a Tokenizer,
    stops: Vec<StopMatcher<'a>>,
    tokens: Vec<u32>,
    /// Decoding starts at token `from`. The text of `from..read` is already in `text`.
    from: usize,
    read: usize,
    text: String,
    /// Number of bytes of `text` already returned.
    returned: usize,
    /// Whether a stop text was found. `text` ends before it.
    is_over: bool,
}

impl<'a> Transcript<'a> {
    /// Creates an empty transcript. The stop texts must not be empty.
    pub fn new(tokenizer: &'a Tokenizer, stops: &'a [String]) -> Self {
        let (tokens, text) = (Vec::new(), String::new());
        let stops = stops.iter().map(|stop| StopMatcher::new(stop)).collect();
        Self { tokenizer, stops, tokens, from: 0, read: 0, text, returned: 0, is_over: false }
    }

    /// Adds a token. Returns true if the text now contains a stop text.
    pub fn push(&mut self, token: u32) -> Result<bool, LmError> {
        if !self.is_over {
            self.tokens.push(token);
            self.decode_new(false)?;
        }
        Ok(self.is_over)
    }

    /// Returns the new text. Holds back a suffix that may be the beginning of a stop text.
    pub fn new_text(&mut self) -> &str {
        let held = self.stops.iter().map(|stop| stop.matched).max().filter(|_| !self.is_over).unwrap_or(0);
        self.text_until(self.text.len() - held)
    }

    /// Returns the remaining text, at the end of the completion.
    pub fn rest(&mut self) -> Result<&str, LmError> {
        if !self.is_over {
            self.decode_new(true)?;
        }
        Ok(self.text_until(self.text.len()))
    }

    fn text_until(&mut self, end: usize) -> &str {
        let from = self.returned.min(end);
        self.returned = end.max(self.returned);
        &self.text[from..end]
    }

    fn decode_new(&mut self, at_end: bool) -> Result<(), LmError> {
        let before = self.tokenizer.decode(&self.tokens[self.from..self.read])?;
        let now = self.tokenizer.decode(&self.tokens[self.from..])?;
        if now.ends_with(INCOMPLETE) && !at_end {
            return Ok(());
        }
        let Some(new) = now.strip_prefix(&before).filter(|new| !new.is_empty()) else { return Ok(()) };
        (self.from, self.read) = (self.read, self.tokens.len());
        let start = self.text.len();
        self.text.push_str(new);
        for (at, byte) in new.bytes().enumerate() {
            let ended = self.stops.iter_mut().filter_map(|stop| stop.push(byte).then_some(stop.stop.len()));
            if let Some(longest) = ended.max() {
                self.text.truncate(start + at + 1 - longest);
                self.is_over = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stop_texts_are_found_where_they_end_first(text in "[ab]{0,30}", stop in "[ab]{1,5}") {
            let mut matcher = StopMatcher::new(&stop);
            let end = text.bytes().position(|byte| matcher.push(byte));
            prop_assert_eq!(end.map(|end| end + 1 - stop.len()), text.find(&stop));
            if end.is_none() {
                let held = (0..stop.len()).rev().find(|n| text.ends_with(&stop[..*n]));
                prop_assert_eq!(Some(matcher.matched), held, "the suffix that may begin a stop text");
            }
        }
    }
}
