//! Tables and text as HTML and CSV.

use crate::plot::{escape, parse_value, with_subscripts};
use std::fmt::Write;

/// Name of a first column with statements, which are formatted as code.
pub(super) const STATEMENT: &str = "Statement";

/// A table of texts. Numbers are right-aligned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportTable {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl ReportTable {
    /// Creates an empty table.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// Returns whether the first column has statements.
    fn names_statements(&self) -> bool {
        self.columns.first().is_some_and(|name| name == STATEMENT)
    }

    /// Renders the table as HTML. The first column has the names of the rows.
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
                    0 if self.names_statements() => {
                        _ = write!(out, r#"<th class="said"><code>{}</code></th>"#, escape(cell))
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

    /// Renders the table as CSV with plain numbers: fractions from 0 to 1, and durations in seconds. A column of numbers with
    /// intervals becomes three columns.
    pub(super) fn csv(&self) -> String {
        let columns: Vec<CsvColumn> = (0..self.columns.len()).map(|i| CsvColumn::of(self, i)).collect();
        let line = |cells: Vec<String>| {
            let quoted: Vec<String> = cells.iter().map(|c| quote(c)).collect();
            format!("{}\n", quoted.join(","))
        };
        let names = self.columns.iter().zip(&columns).flat_map(|(name, column)| column.names(name));
        let mut out = line(names.collect());
        for row in &self.rows {
            out.push_str(&line(
                row.iter().zip(&columns).flat_map(|(cell, column)| column.cells(cell)).collect(),
            ));
        }
        out
    }
}

/// Content of a column.
enum CsvColumn {
    Text,
    Number,
    Interval,
    /// `4 of 5`.
    Share,
    /// `2 to 7`, or `2` alone.
    Range,
    /// `5 · 0 · 1`, under a column name with the same number of parts.
    Parts(usize),
    /// `376 · 10.2 s`: a number and the time at which it was reached.
    Reached,
}

/// Placeholder for a missing number.
const NONE: &str = "–";

/// Separator between the parts of a cell.
const PARTS: &str = " · ";

impl CsvColumn {
    fn of(table: &ReportTable, column: usize) -> Self {
        let cells = || table.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != NONE);
        let parts = table.columns.get(column).map_or(1, |name| name.split(PARTS).count());
        let are_all = |are: &dyn Fn(&str) -> bool| cells().all(|cell| are(cell));
        if cells().next().is_none() {
            Self::Text
        } else if parts > 1 && are_all(&|cell| cell.split(PARTS).count() == parts) {
            Self::Parts(parts)
        } else if are_all(&|cell| counts(cell, PARTS).is_some()) {
            Self::Reached
        } else if are_all(&|cell| counts(cell, " of ").is_some()) {
            Self::Share
        } else if are_all(&|cell| numbers(cell).is_some()) {
            let has_interval = cells().filter_map(|cell| numbers(cell)).any(|(_, ends)| ends.is_some());
            if has_interval { Self::Interval } else { Self::Number }
        } else if are_all(&|cell| range(cell).is_some()) {
            Self::Range
        } else {
            Self::Text
        }
    }

    fn names(&self, name: &str) -> Vec<String> {
        let with = |more: &[&str]| more.iter().map(|more| format!("{name}{more}")).collect();
        match self {
            Self::Text | Self::Number => with(&[""]),
            Self::Interval => with(&["", " low", " high"]),
            Self::Share => with(&["", " of"]),
            Self::Range => with(&[" from", " to"]),
            Self::Reached => with(&["", " seconds"]),
            Self::Parts(_) => name.split(PARTS).map(str::to_owned).collect(),
        }
    }

    fn cells(&self, cell: &str) -> Vec<String> {
        let show = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let pair = |pair: Option<(f64, f64)>| vec![show(pair.map(|p| p.0)), show(pair.map(|p| p.1))];
        match self {
            Self::Text => vec![cell.to_owned()],
            Self::Number => vec![show(parse_value(cell))],
            Self::Interval => {
                let read = numbers(cell);
                let ends = pair(read.and_then(|(_, ends)| ends));
                [vec![show(read.map(|(value, _)| value))], ends].concat()
            }
            Self::Share => pair(counts(cell, " of ")),
            Self::Range => pair(range(cell)),
            Self::Reached => pair(counts(cell, PARTS)),
            Self::Parts(parts) => {
                let mut values: Vec<String> = cell.split(PARTS).map(|part| show(parse_value(part))).collect();
                values.resize(*parts, String::new());
                values
            }
        }
    }
}

/// Parses two numbers with a word between them.
fn counts(cell: &str, word: &str) -> Option<(f64, f64)> {
    let (first, second) = cell.split_once(word)?;
    Some((parse_value(first)?, parse_value(second)?))
}

fn range(cell: &str) -> Option<(f64, f64)> {
    counts(cell, " to ").or_else(|| parse_value(cell).map(|value| (value, value)))
}

/// Parses `0.5%` or `0.5% (0.1 to 0.9)`. The ends have the unit of the value.
fn numbers(cell: &str) -> Option<(f64, Option<(f64, f64)>)> {
    let Some((value, ends)) = cell.strip_suffix(')').and_then(|cell| cell.split_once(" (")) else {
        return Some((parse_value(cell)?, None));
    };
    let unit = value.find([' ', '%']).map_or("", |at| &value[at..]);
    let end = |text: &str| match text.ends_with(|c: char| c.is_ascii_digit()) {
        true => parse_value(&format!("{text}{unit}")),
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

/// Escapes text and formats the indices and exponents of the paper's symbols.
pub(super) fn formulas(text: &str) -> String {
    with_subscripts(text, |index| format!("<sub>{index}</sub>")).replace("^B", "<sup>B</sup>")
}

/// Shortens text to `most` characters, with an ellipsis if it is longer.
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
    fn tables_are_escaped_in_html_and_quoted_in_csv() {
        let mut table = ReportTable::new(["run", "A"]);
        table.rows.push(vec!["<b>, \"x\"".into(), "67.1%".into()]);
        assert!(table.html().contains("&lt;b&gt;") && table.html().contains(r#"<td class="n">67.1%"#));
        assert_eq!(table.csv(), "run,A\n\"<b>, \"\"x\"\"\",0.671\n");
    }

    #[test]
    fn numbers_in_csv_have_no_units() {
        let mut table = ReportTable::new(["share", "time", "rate", "text"]);
        table.rows.push(["16.0%", "2.28 min", "7.8% (4.0 to 12.2)", "of 5"].map(str::to_owned).to_vec());
        table.rows.push(["–", "−3e-9 s", "1%", "–"].map(str::to_owned).to_vec());
        assert_eq!(
            table.csv(),
            "share,time,rate,rate low,rate high,text\n0.16,136.8,0.078,0.04,0.122,of 5\n,-0.000000003,0.01,,,–\n"
        );
        let mut table = ReportTable::new(["solved", "rounds", "a · b", "c · d", "run"]);
        table.rows.push(["4 of 5", "2 to 7", "5 · 0", "5", "376 · 2 min"].map(str::to_owned).to_vec());
        table.rows.push(["–", "3", "– · –", "x · y", "–"].map(str::to_owned).to_vec());
        table.rows.push(["1 of 12.5k", "–", "–", "–", "10k · 3 s"].map(str::to_owned).to_vec());
        assert_eq!(
            table.csv(),
            "solved,solved of,rounds from,rounds to,a,b,c · d,run,run seconds\n4,5,2,7,5,0,5,376,120\n,,3,3,,,x · y,,\n\
             1,12500,,,,,–,10000,3\n"
        );
    }

    #[test]
    fn texts_are_shortened_between_characters() {
        assert_eq!(shortened("αβγδ", 2), "αβ …");
        assert_eq!(shortened("αβ", 2), "αβ");
    }
}
