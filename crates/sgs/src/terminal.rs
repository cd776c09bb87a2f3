//! The terminal: what is said stays visible above what changes in place, and colours mean something.

use indicatif::MultiProgress;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// What changes in place now; whatever else is written to standard error goes above it.
static LIVE: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Columns of a terminal that does not tell, and of what is no terminal.
const COLUMNS: usize = 80;

/// From here on, until the guard is dropped, this changes in place.
pub fn live(bars: &MultiProgress) -> Live {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(bars.clone());
    Live
}

/// While it lives, something changes in place.
pub struct Live;

impl Drop for Live {
    fn drop(&mut self) {
        *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Writes a line to standard error. A reader that has gone away is no panic: a run goes on without it.
pub fn say(text: Arguments<'_>) {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let write = || drop(writeln!(io::stderr(), "{text}"));
    match live {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

/// Standard error for logs: their lines stay above what changes in place.
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        say(format_args!("{}", text.trim_end_matches('\n')));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Columns of the terminal that standard error is.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// A text of one tone.
pub type Part = (Option<Tone>, String);

/// A line of text of the live view, cut where the terminal ends, whatever its size is then.
#[derive(Clone, Default)]
pub struct Line(Arc<Mutex<Vec<Part>>>);

impl Line {
    /// Shows another text, in parts of one tone each.
    pub fn set(&self, parts: Vec<Part>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// The text for so many columns.
    pub fn shown(&self, columns: usize) -> String {
        let mut left = columns.saturating_sub(1);
        let mut out = String::new();
        for (tone, text) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let all = text.chars().count();
            let part: String = match all > left {
                true => {
                    text.chars().take(left.saturating_sub(1)).chain(Some('…').filter(|_| left > 0)).collect()
                }
                false => text.clone(),
            };
            left = left.saturating_sub(all);
            out.push_str(&tone.map_or_else(|| part.clone(), |tone| paint(tone, &part)));
        }
        out
    }
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something was solved.
    Good,
    /// Something is not as it should be.
    Bad,
    /// What one looks for first.
    Strong,
    /// What one need not read.
    Quiet,
}

/// Colours a text for standard error, if that is a terminal that shows colours and nobody has asked for none.
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
    fn a_line_ends_where_the_terminal_does() {
        let line = Line::default();
        line.set(vec![(None, "solved ".into()), (None, "α → β → γ".into()), (None, "  more".into())]);
        assert_eq!(line.shown(80), "solved α → β → γ  more");
        assert_eq!(line.shown(12), "solved α →…");
        assert_eq!(line.shown(12).chars().count(), 11);
        assert_eq!(line.shown(0), "");
    }
}
