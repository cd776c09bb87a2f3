//! Terminal output: lines above the progress display, and colours with a meaning.

use crate::wrap::fitted;
use indicatif::{MultiProgress, ProgressStyle};
use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The current progress display; other lines on standard error are printed above it.
static LIVE: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Default width, for terminals of unknown size and for pipes.
pub const COLUMNS: usize = 80;

/// Returns the style of a progress bar.
pub fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Registers the progress display until the guard is dropped.
pub fn live(bars: &MultiProgress) -> LiveGuard {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(bars.clone());
    LiveGuard
}

/// While it exists, a progress display is registered.
pub struct LiveGuard;

impl Drop for LiveGuard {
    fn drop(&mut self) {
        *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The codes of colours that this program writes to a terminal.
const COLOURS: [&str; 9] = ["0", "1", "2", "3", "31", "32", "33", "34", "35"];

/// Makes a text harmless for a terminal, because it may quote a file, a model or a server. Control characters except
/// line breaks and tabs, and characters that change the direction of writing, become `\uXXXX` as in JSON. `coloured`
/// keeps the codes of colours.
pub fn harmless(text: &str, coloured: bool) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(2 * text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let colour = || {
            let (code, after) = rest.as_str().strip_prefix('[')?.split_once('m')?;
            (coloured && c == '\x1b' && COLOURS.contains(&code)).then(|| (code.to_owned(), after))
        };
        if let Some((code, after)) = colour() {
            let _ = write!(out, "\x1b[{code}m");
            rest = after.chars();
        } else if is_harmful(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn is_harmful(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes a line to standard error; a terminal does not break it inside words. Ignores a closed pipe, so that the run
/// continues.
pub fn print_line(text: Arguments<'_>) {
    let (text, is_terminal) = (text.to_string(), io::stderr().is_terminal());
    let mut text = harmless(&text, is_terminal);
    if is_terminal {
        text = fitted(&text, columns()).into();
    }
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let write = || drop(writeln!(io::stderr(), "{text}"));
    match live {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

/// Writes log lines to standard error, above the progress display.
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        print_line(format_args!("{}", text.trim_end_matches('\n')));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Returns the width of the terminal on standard error.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// A text with one tone.
pub type StyledText = (Option<Tone>, String);

/// A line of the progress display, truncated to the current width of the terminal.
#[derive(Clone, Default)]
pub struct LiveLine(Arc<Mutex<Vec<StyledText>>>);

impl LiveLine {
    /// Replaces the text, given as parts with one tone each.
    pub fn set(&self, parts: Vec<StyledText>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// Returns the text truncated to `columns` columns.
    pub fn shown(&self, columns: usize) -> String {
        let mut left = columns.saturating_sub(1);
        let mut out = String::new();
        for (tone, text) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let text = harmless(text, false);
            let all = text.chars().count();
            let part: String = match all > left {
                true => {
                    text.chars().take(left.saturating_sub(1)).chain(Some('…').filter(|_| left > 0)).collect()
                }
                false => text.into_owned(),
            };
            left = left.saturating_sub(all);
            out.push_str(&tone.map_or_else(|| part.clone(), |tone| paint(tone, &part)));
        }
        out
    }
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Strong,
    Quiet,
}

/// Colours a text for standard error, if it is a colour terminal and `NO_COLOR` is not set.
pub fn paint(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Strong => "1",
        Tone::Quiet => "2",
    };
    if is_coloured() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn is_coloured() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_cannot_control_the_terminal() {
        let text = "a\x1b]0;title\x07\x1b[2J\r\u{9b}31m\u{202e}b\u{61c}\tc\n∀ π";
        let shown = "a\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u009b31m\\u202eb\\u061c\tc\n∀ π";
        assert_eq!(harmless(text, false), shown);
        assert_eq!(harmless(text, true), shown);
        let painted = "\x1b[31mwarning:\x1b[0m \x1b[8mhidden \x1b";
        assert_eq!(harmless(painted, true), "\x1b[31mwarning:\x1b[0m \\u001b[8mhidden \\u001b");
        assert_eq!(harmless(painted, false).matches('\x1b').count(), 0);
        // JSON with escaped characters must still have the same meaning.
        let json = serde_json::to_string("\u{9b}2J\x7f").unwrap();
        let back: String = serde_json::from_str(&harmless(&json, false)).unwrap();
        assert_eq!(back, "\u{9b}2J\x7f");
        let line = LiveLine::default();
        line.set(vec![(None, "\x1b[2Jx".into())]);
        assert_eq!(line.shown(80), "\\u001b[2Jx");
    }

    #[test]
    fn a_line_is_truncated_to_the_width_of_the_terminal() {
        let line = LiveLine::default();
        line.set(vec![(None, "solved ".into()), (None, "α → β → γ".into()), (None, "  more".into())]);
        assert_eq!(line.shown(80), "solved α → β → γ  more");
        assert_eq!(line.shown(12), "solved α →…");
        assert_eq!(line.shown(12).chars().count(), 11);
        assert_eq!(line.shown(0), "");
    }
}
