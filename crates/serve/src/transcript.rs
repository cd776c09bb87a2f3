//! From the tokens of a completion to its text, as they come.

use sgs_lm::LmError;
use sgs_lm::tokenizer::Tokenizer;

/// What a broken character decodes to: more tokens may complete it.
const BROKEN: char = '\u{fffd}';

/// The text of a completion, token by token.
///
/// A token's spelling depends on those before it, and a character may be several tokens. So the new text is what the
/// tokens since the last sure place spell beyond what they spelled before.
pub(crate) struct Transcript<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
    tokens: Vec<u32>,
    /// Before `from` everything is sure; what `from..read` spells is in `text` already.
    from: usize,
    read: usize,
    text: String,
    /// Bytes of `text` that were handed out.
    told: usize,
    /// Whether one of `stops` was found: it, and what follows, is no part of the text.
    is_over: bool,
}

impl<'a> Transcript<'a> {
    pub fn new(tokenizer: &'a Tokenizer, stops: &'a [String]) -> Self {
        let (tokens, text) = (Vec::new(), String::new());
        Self { tokenizer, stops, tokens, from: 0, read: 0, text, told: 0, is_over: false }
    }

    /// Takes a token; `true` if a text that ends the completion is complete.
    pub fn push(&mut self, token: u32) -> Result<bool, LmError> {
        self.tokens.push(token);
        self.read_on(false)?;
        Ok(self.is_over)
    }

    /// Whether the completion has come to a text that ends it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The text that is sure by now and was not told yet. Held back is what may be the beginning of a text that ends the
    /// completion.
    pub fn fresh(&mut self) -> &str {
        let sure = if self.is_over { self.text.len() } else { self.text.len() - self.beginning_of_a_stop() };
        let from = self.told.min(sure);
        self.told = sure.max(self.told);
        self.text.get(from..sure).unwrap_or_default()
    }

    /// The rest, at the end of the completion.
    pub fn rest(&mut self) -> Result<&str, LmError> {
        if !self.is_over {
            self.read_on(true)?;
        }
        let from = self.told.min(self.text.len());
        self.told = self.text.len();
        Ok(self.text.get(from..).unwrap_or_default())
    }

    fn read_on(&mut self, to_the_end: bool) -> Result<(), LmError> {
        let before = self.tokenizer.decode(&self.tokens[self.from..self.read])?;
        let now = self.tokenizer.decode(&self.tokens[self.from..])?;
        if now.ends_with(BROKEN) && !to_the_end {
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

    /// Bytes at the end of the text that are a beginning of a text that ends the completion.
    fn beginning_of_a_stop(&self) -> usize {
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
