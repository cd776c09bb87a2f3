//! What commands write to standard output. A reader that goes away, as `head` does, is no failure (see
//! [`crate::exit`]), which `println!` would turn into a panic.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// Writes a text and a line's end.
pub fn line(text: impl Display) -> Result<()> {
    write_line(&mut io::stdout().lock(), text).context("cannot write to standard output")
}

/// Writes a text as it stands.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

fn write_line(out: &mut impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{text}")?;
    out.flush()
}

/// Lays rows out in columns: the first column to the left, numbers after it to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let render = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (i, (cell, &width)) in cells.zip(&widths).enumerate() {
            if i == 0 {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.truncate(text.trim_end().len());
        text
    };
    let mut lines = vec![render(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| render(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["1".to_owned(), "23".to_owned()], vec!["100".to_owned(), "4".to_owned()]];
        assert_eq!(table(&["round", "n"], &rows), "round   n\n1      23\n100     4");
    }
}
