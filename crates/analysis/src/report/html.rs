//! Small pieces of HTML.

use crate::plot::{escape, with_subscripts};
use std::fmt::Write;

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

    /// The table as CSV.
    pub(super) fn csv(&self) -> String {
        let line = |cells: &[String]| {
            let quoted: Vec<String> = cells.iter().map(|c| quote(c)).collect();
            format!("{}\n", quoted.join(","))
        };
        std::iter::once(&self.columns).chain(&self.rows).map(|cells| line(cells)).collect()
    }
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
        assert_eq!(table.csv(), "run,A\n\"<b>, \"\"x\"\"\",67.1 %\n");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("αβγδ", 2), "αβ …");
        assert_eq!(shortened("αβ", 2), "αβ");
    }
}
