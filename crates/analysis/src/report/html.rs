//! Small pieces of HTML.

use crate::plot::{escape, parse_value, with_subscripts};
use std::fmt::Write;

/// A row's name with more characters is set as text over several lines.
const LONG: usize = 40;

/// A table of texts; numbers are set to the right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, each with a cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// The table as HTML; the first column is the rows' name.
    pub(super) fn html(&self) -> String {
        let mut out = String::from(r#"<div class="scroll"><table><thead><tr>"#);
        for column in &self.columns {
            let _ = write!(out, "<th>{}</th>", formulas(column));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            out.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                match i {
                    0 if cell.chars().count() > LONG => {
                        _ = write!(out, r#"<th class="long">{}</th>"#, escape(cell))
                    }
                    0 => _ = write!(out, "<th>{}</th>", escape(cell)),
                    _ if is_number(cell) || cell.len() <= 28 => {
                        _ = write!(out, r#"<td class="n">{}</td>"#, escape(cell))
                    }
                    _ => _ = write!(out, "<td>{}</td>", escape(cell)),
                }
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        out
    }

    /// The table as CSV. Numbers are numbers, shares from 0 to 1 and times in seconds; a column of numbers with their
    /// intervals becomes three.
    pub(super) fn csv(&self) -> String {
        let columns: Vec<Column> = (0..self.columns.len()).map(|i| Column::of(self, i)).collect();
        let line = |cells: Vec<String>| {
            let quoted: Vec<String> = cells.iter().map(|c| quote(c)).collect();
            format!("{}\n", quoted.join(","))
        };
        let names = self.columns.iter().zip(&columns).flat_map(|(name, column)| match column {
            Column::Interval => vec![name.clone(), format!("{name} low"), format!("{name} high")],
            Column::Text | Column::Number => vec![name.clone()],
        });
        let mut out = line(names.collect());
        for row in &self.rows {
            out.push_str(&line(
                row.iter().zip(&columns).flat_map(|(cell, column)| column.cells(cell)).collect(),
            ));
        }
        out
    }
}

/// What stands in a column.
enum Column {
    Text,
    Number,
    Interval,
}

/// Written where there is no number.
const NONE: &str = "–";

impl Column {
    fn of(table: &Table, column: usize) -> Self {
        let cells = || table.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != NONE);
        if cells().next().is_none() || !cells().all(|cell| numbers(cell).is_some()) {
            return Self::Text;
        }
        let has_interval = cells().filter_map(|cell| numbers(cell)).any(|(_, ends)| ends.is_some());
        if has_interval { Self::Interval } else { Self::Number }
    }

    fn cells(&self, cell: &str) -> Vec<String> {
        let show = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let read = numbers(cell);
        let ends = read.and_then(|(_, ends)| ends);
        match self {
            Self::Text => vec![cell.to_owned()],
            Self::Number => vec![show(read.map(|(value, _)| value))],
            Self::Interval => {
                let (low, high) = (ends.map(|e| e.0), ends.map(|e| e.1));
                vec![show(read.map(|(value, _)| value)), show(low), show(high)]
            }
        }
    }
}

/// `0.5 %`, or `0.5 % (0.1 to 0.9)`, of which the ends have the value's unit.
fn numbers(cell: &str) -> Option<(f64, Option<(f64, f64)>)> {
    let Some((value, ends)) = cell.strip_suffix(')').and_then(|cell| cell.split_once(" (")) else {
        return Some((parse_value(cell)?, None));
    };
    let unit = value.split_once(' ').map_or("", |(_, unit)| unit);
    let end = |text: &str| match text.ends_with(|c: char| c.is_ascii_digit()) && !unit.is_empty() {
        true => parse_value(&format!("{text} {unit}")),
        false => parse_value(text),
    };
    let (low, high) = ends.split_once(" to ")?;
    Some((parse_value(value)?, Some((end(low)?, end(high)?))))
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn is_number(cell: &str) -> bool {
    cell.chars().next().is_some_and(|c| c.is_ascii_digit() || c == '−' || c == '–' || c == '-')
}

/// Text with the paper's symbols set as there: indices below, exponents above.
pub(super) fn formulas(text: &str) -> String {
    with_subscripts(text, |index| format!("<sub>{index}</sub>")).replace("^B", "<sup>B</sup>")
}

/// Text shortened to `most` characters, with an ellipsis where something is missing.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} …", text.get(..at).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_escape_in_html_and_quote_in_csv() {
        let mut table = Table::new(["run", "A"]);
        table.rows.push(vec!["<b>, \"x\"".into(), "67.1 %".into()]);
        assert!(table.html().contains("&lt;b&gt;") && table.html().contains(r#"<td class="n">67.1 %"#));
        assert_eq!(table.csv(), "run,A\n\"<b>, \"\"x\"\"\",0.671\n");
    }

    #[test]
    fn numbers_in_csv_are_numbers() {
        let mut table = Table::new(["share", "time", "rate", "text"]);
        table.rows.push(["16.0 %", "2.28 min", "7.8 % (4.0 to 12.2)", "4 of 5"].map(str::to_owned).to_vec());
        table.rows.push(["–", "−3e-9 s", "1 %", "–"].map(str::to_owned).to_vec());
        assert_eq!(
            table.csv(),
            "share,time,rate,rate low,rate high,text\n0.16,136.8,0.078,0.04,0.122,4 of 5\n,-0.000000003,0.01,,,–\n"
        );
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("αβγδ", 2), "αβ …");
        assert_eq!(shortened("αβ", 2), "αβ");
    }
}
