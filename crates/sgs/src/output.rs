//! Writes to standard output without the panics of `println!`. A closed pipe, as with `head`, is not a failure (see
//! [`crate::exit`]). No text can control the terminal (see [`harmless`]).

pub use sgs_data::text_table::text_table as table;

use crate::terminal::harmless;
use anyhow::{Context, Result};
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

/// Formats a count with its noun: `1 round`, `2 rounds`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

fn write_line(out: &mut impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{}", harmless(&text.to_string(), false))?;
    out.flush()
}
