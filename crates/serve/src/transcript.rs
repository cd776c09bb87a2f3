//! Incremental decoding of a completion.

use sgs_lm::LmError;
use sgs_lm::tokenizer::Tokenizer;

/// Decoded from an incomplete character, which later tokens may complete.
const INCOMPLETE: char = '\u{fffd}';

/// Decodes the text of a completion token by token.
///
/// The text of a token depends on the tokens before it, and a character may consist of several tokens. So the new text is
/// the difference between two decodings that start at the last certain position.
pub(crate) struct Transcript<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
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
    pub fn new(tokenizer: &'a Tokenizer, stops: &'a [String]) -> Self {
        let (tokens, text) = (Vec::new(), String::new());
        Self { tokenizer, stops, tokens, from: 0, read: 0, text, returned: 0, is_over: false }
    }

    /// Adds a token. Returns true if the text now contains a stop text.
    pub fn push(&mut self, token: u32) -> Result<bool, LmError> {
        self.tokens.push(token);
        self.decode_new(false)?;
        Ok(self.is_over)
    }

    /// Returns true if a stop text was found.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the new text. Holds back a suffix that may be the beginning of a stop text.
    pub fn new_text(&mut self) -> &str {
        let certain = if self.is_over { self.text.len() } else { self.text.len() - self.partial_stop() };
        let from = self.returned.min(certain);
        self.returned = certain.max(self.returned);
        &self.text[from..certain]
    }

    /// Returns the remaining text, at the end of the completion.
    pub fn rest(&mut self) -> Result<&str, LmError> {
        if !self.is_over {
            self.decode_new(true)?;
        }
        let from = self.returned.min(self.text.len());
        self.returned = self.text.len();
        Ok(&self.text[from..])
    }

    fn decode_new(&mut self, at_end: bool) -> Result<(), LmError> {
        let before = self.tokenizer.decode(&self.tokens[self.from..self.read])?;
        let now = self.tokenizer.decode(&self.tokens[self.from..])?;
        if now.ends_with(INCOMPLETE) && !at_end {
            return Ok(());
        }
        let Some(new) = now.strip_prefix(&before).filter(|new| !new.is_empty()) else { return Ok(()) };
        let searched = self.text.len().saturating_sub(self.longest_stop());
        self.text.push_str(new);
        (self.from, self.read) = (self.read, self.tokens.len());
        let start = (0..=searched).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let found = self.stops.iter().filter_map(|stop| self.text[start..].find(stop.as_str())).min();
        if let Some(at) = found {
            self.text.truncate(start + at);
            self.is_over = true;
        }
        Ok(())
    }

    fn longest_stop(&self) -> usize {
        self.stops.iter().map(String::len).max().unwrap_or(0)
    }

    /// Returns the length of the longest suffix of the text, in bytes, that is the beginning of a stop text.
    fn partial_stop(&self) -> usize {
        let of = |stop: &String| {
            let most = stop.len().saturating_sub(1).min(self.text.len());
            (1..=most)
                .rev()
                .find(|n| stop.is_char_boundary(*n) && self.text.ends_with(&stop[..*n]))
                .unwrap_or(0)
        };
        self.stops.iter().map(of).max().unwrap_or(0)
    }
}
