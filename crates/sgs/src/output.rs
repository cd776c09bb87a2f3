//! Writes to standard output without the panics of `println!`. A closed pipe, as with `head`, is not a failure (see
//! [`crate::exit`]). No text can control the terminal (see [`harmless`]).

pub use sgs_data::text_table::text_table as table;

use crate::terminal::{columns, harmless};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes a text and a newline.
pub fn line(text: impl Display) -> Result<()> {
    write_line(&mut io::stdout().lock(), text).context("cannot write to standard output")
}

/// Writes the content of a file: unchanged, unless it goes to a terminal.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() { harmless(text, false) } else { text.into() };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Returns the error that the verdicts cannot be written. Unlike for other commands, a closed output is an error, because
/// the remaining proofs are not verified and the exit code would say that they are.
pub fn unwritten_verdicts(error: &io::Error) -> anyhow::Error {
    anyhow!("cannot write the verdicts, and the remaining proofs are not verified: {error}")
}

/// Formats a count with its noun: `1 round`, `2 rounds`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Writes a line, wrapped to the width of a terminal. Further lines are indented by `indent` columns.
pub fn wrapped_line(text: &str, indent: usize) -> Result<()> {
    let columns = if io::stdout().is_terminal() { columns() } else { usize::MAX };
    line(wrapped(text, columns, indent))
}

/// Writes text of one or more lines for readers, which a terminal does not break inside words (see [`fitted`]).
pub fn prose(text: impl Display) -> Result<()> {
    let columns = if io::stdout().is_terminal() { columns() } else { usize::MAX };
    line(fitted(&text.to_string(), columns))
}

/// Breaks each line that is longer than `columns` between words; its rest is indented by four columns more.
pub fn fitted(text: &str, columns: usize) -> String {
    let fit = |line: &str| match width(line) > columns {
        true => wrapped(line, columns, line.len() - line.trim_start_matches(' ').len() + 4),
        false => line.to_owned(),
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

/// Splits a text at its blanks, which stay at the ends of the words. A command between backticks is one word, because a
/// line break would damage its copy.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let code = rest.find('`').filter(|start| !rest[..*start].contains(' '));
        let after_code = code.and_then(|start| Some(start + 2 + rest[start + 1..].find('`')?)).unwrap_or(0);
        let end = rest[after_code..].find(' ').map_or(rest.len(), |blank| after_code + blank + 1);
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word).filter(|word| !word.is_empty())
    })
}

/// Returns the number of columns of a text on a terminal, where codes of colours have none.
fn width(text: &str) -> usize {
    let codes = text.split("\x1b[").skip(1).filter_map(|rest| Some(rest.find('m')? + 3));
    text.chars().count() - codes.sum::<usize>()
}

/// Breaks a text between words into lines of at most `columns` columns, unless a word is longer.
pub fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for word in words(text) {
        let visible = width(word.trim_end());
        if at > indent && at + visible > columns {
            out.truncate(out.trim_end().len());
            out.push_str(&format!("\n{:indent$}", ""));
            at = indent;
        }
        out.push_str(word);
        at += width(word);
    }
    out
}

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

fn write_line(out: &mut impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{}", harmless(&text.to_string(), false))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let text = "solved      22.0% of 100 targets ever; 6.2% now";
        assert_eq!(wrapped(text, 80, 12), text);
        let expected = "solved      22.0% of 100\n            targets ever;\n            6.2% now";
        assert_eq!(wrapped(text, 25, 12), expected);
        assert_eq!(wrapped("next        /a/long/path", 15, 12), "next        /a/long/path");
    }

    #[test]
    fn lines_that_do_not_fit_are_broken_between_words_and_commands() {
        let text = "error: the run exists: `sgs resume runs/a` continues it\n  because: of it";
        assert_eq!(fitted(text, 80), text);
        assert_eq!(
            fitted(text, 30),
            "error: the run exists:\n    `sgs resume runs/a`\n    continues it\n  because: of it"
        );
        // A symbol of set.mm is no command.
        assert_eq!(fitted("A = `' B", 6), "A = `'\n    B");
        // Colours need no columns.
        assert_eq!(fitted("\x1b[31mwarning:\x1b[0m no", 11), "\x1b[31mwarning:\x1b[0m no");
        assert_eq!(fitted("\x1b[31mwarning:\x1b[0m no", 10), "\x1b[31mwarning:\x1b[0m\n    no");
    }
}
