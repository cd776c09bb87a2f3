//! Writes to standard output without the panics of `println!`. A closed pipe, as with `head`, is not a failure (see
//! [`crate::exit`]). No text can control the terminal (see [`harmless`]).

pub use sgs_data::text_table::text_table as table;

use crate::terminal::{columns, harmless};
use crate::wrap::{fitted, wrapped};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use sgs_analysis::plot::grouped;
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

/// Formats a number, with two decimals unless it is whole.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 { grouped(value) } else { decimals(value) }
}

/// Formats a number with two decimals.
pub fn decimals(value: f64) -> String {
    format!("{value:.2}")
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

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

fn write_line(out: &mut impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{}", harmless(&text.to_string(), false))?;
    out.flush()
}
