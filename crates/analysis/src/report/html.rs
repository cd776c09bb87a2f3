//! Tables and text as HTML and CSV.

use crate::plot::{Unit, escape, format_value, grouped, inert, percent, with_subscripts};
use crate::stats::Interval;
use std::fmt::Write;

/// Name of the column with the last round that a row covers. Every table has it.
const ROUND: &str = "Round";

/// Tables with more rows have a search field.
const SEARCHED: usize = 15;

/// Tables with more rows scroll in a box of limited height.
const TALL: usize = 12;

/// Maximum number of rows on a page. The CSV file has all.
const MOST_SHOWN: usize = 500;

/// Format of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A plain number.
    Plain,
    /// A fraction, shown as a percentage.
    Percent,
    /// A count.
    Count,
    /// A duration in seconds.
    Seconds,
    /// A difference of two fractions, shown as signed percentage points.
    Points,
}

impl Format {
    fn show(self, value: f64) -> String {
        match self {
            Self::Plain => format_value(value, Unit::Plain, 3),
            Self::Percent => percent(value),
            // Large counts are rounded.
            Self::Count if value.abs() < 1e7 => grouped(value),
            Self::Count => format_value(value.round(), Unit::Count, 4),
            Self::Seconds => format_value(value, Unit::Duration, 3),
            Self::Points => format!("{} points", signed_points(value)),
        }
    }
}

/// Formats a difference of two fractions as percentage points, with one decimal or as many as its sign needs.
pub(super) fn signed_points(difference: f64) -> String {
    let points = 100.0 * difference;
    let is_visible = |decimals: &usize| format!("{points:.decimals$}").contains(|c| ('1'..='9').contains(&c));
    match (1..=9).find(is_visible) {
        Some(decimals) => format!("{points:+.decimals$}").replace('-', "−"),
        None => "0.0".to_owned(),
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Empty,
    /// A text.
    Text(String),
    /// A statement, which is shown as code.
    Statement(String),
    /// A number.
    Number(f64, Format),
    /// A number with an interval.
    Interval(Interval, Format),
    /// A number and the total, such as `4 of 5`.
    Of(f64, f64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Number(f64::from(count), Format::Count)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Number(count as f64, Format::Count)
    }
}

impl Cell {
    /// Creates a cell with a number, or an empty one if there is none.
    pub(super) fn number(value: Option<f64>, format: Format) -> Self {
        value.filter(|v| v.is_finite()).map_or(Self::Empty, |value| Self::Number(value, format))
    }

    /// Creates a cell with a number and its interval, or with the number alone if there is no interval.
    pub(super) fn interval(value: f64, ends: Option<(f64, f64)>, format: Format) -> Self {
        match ends {
            Some((low, high)) => Self::Interval(Interval { value, low, high }, format),
            None => Self::number(Some(value), format),
        }
    }

    /// Creates a cell with the number of a round.
    pub(super) fn round(round: Option<u32>) -> Self {
        round.map_or(Self::Empty, Self::from)
    }

    /// Returns the content as shown on the page.
    pub fn text(&self) -> String {
        match self {
            Self::Empty => "–".to_owned(),
            Self::Text(text) | Self::Statement(text) => text.clone(),
            Self::Number(value, format) => format.show(*value),
            Self::Interval(i, format) => {
                let [value, low, high] = [i.value, i.low, i.high].map(|v| format.show(v));
                // The unit of the ends is that of the value.
                let plain = |end: String| end.trim_end_matches(" points").trim_end_matches('%').to_owned();
                format!("{value} ({} to {})", plain(low), plain(high))
            }
            Self::Of(part, all) => format!("{} of {}", grouped(*part), grouped(*all)),
        }
    }

    /// Returns the number by which a column is sorted.
    fn order(&self) -> Option<f64> {
        match self {
            Self::Number(value, _) | Self::Of(value, _) => Some(*value),
            Self::Interval(interval, _) => Some(interval.value),
            Self::Empty | Self::Text(_) | Self::Statement(_) => None,
        }
    }

    /// Returns the cells of the columns with the suffixes [`Cell::suffixes`] in a CSV file.
    fn csv(&self, columns: usize) -> Vec<String> {
        let mut cells = match self {
            Self::Empty => Vec::new(),
            Self::Text(text) | Self::Statement(text) => vec![inert(text).into_owned()],
            Self::Number(value, _) => vec![value.to_string()],
            Self::Interval(i, _) => [i.value, i.low, i.high].map(|v| v.to_string()).into(),
            Self::Of(part, all) => [part, all].map(f64::to_string).into(),
        };
        cells.resize(columns, String::new());
        cells
    }

    /// Returns the suffixes of the names of the columns that the cell has in a CSV file.
    fn suffixes(&self) -> &'static [&'static str] {
        match self {
            Self::Interval(..) => &["", " low", " high"],
            Self::Of(..) => &["", " of"],
            _ => &[""],
        }
    }
}

/// A table of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportTable {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

impl ReportTable {
    /// Creates an empty table. The names of its columns are separated by ` | `.
    pub fn new(columns: &str) -> Self {
        Self { columns: columns.split(" | ").map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// Returns the table, or `None` if it has no rows.
    pub(super) fn filled(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// Renders the table as HTML, with headings that sort it. `name` is that of its file, and `label` names it for screen readers. A long
    /// table has a search field and a filter by round. The column
    /// `hidden` is left out.
    pub(super) fn html(&self, name: &str, label: &str, hidden: Option<&str>) -> String {
        let round = self.columns.iter().position(|column| column == ROUND);
        let is_shown = |at: usize| hidden != Some(self.columns[at].as_str());
        let round_of = |row: &[Cell]| Some(row.get(round?)?.order()? as u32);
        let shown = self.rows.get(..MOST_SHOWN).unwrap_or(&self.rows);
        let mut out = String::new();
        if shown.len() > SEARCHED {
            out.push_str(&search(&format!("rows-{name}"), label, shown.iter().map(|row| round_of(row))));
        }
        // On a narrow screen, statements are below the other cells of their rows.
        let is_statement =
            |at: usize| matches!(self.rows.first().and_then(|row| row.get(at)), Some(Cell::Statement(_)));
        let plain = (0..self.columns.len()).filter(|at| is_shown(*at) && !is_statement(*at)).count().max(1);
        let tall = if shown.len() > TALL { " tall" } else { "" };
        let _ = write!(
            out,
            r#"<div class="scroll{tall}"><table aria-label="{}" style="--columns:{plain}"><thead><tr>"#,
            escape(label)
        );
        for (at, column) in self.columns.iter().enumerate().filter(|(i, _)| is_shown(*i)) {
            let said = if is_statement(at) { r#" class="said""# } else { "" };
            let _ = write!(out, r#"<th{said}><button type="button">{}</button></th>"#, formulas(column));
        }
        let _ = write!(out, r#"</tr></thead><tbody id="rows-{name}">"#);
        for row in shown {
            let _ = write!(out, "<tr{}>", round_attribute(round_of(row)));
            for (i, cell) in row.iter().enumerate().filter(|(i, _)| is_shown(*i)) {
                let text = escape(&cell.text());
                let order = cell.order().map_or_else(String::new, |v| format!(r#" data-v="{v}""#));
                let _ = match cell {
                    Cell::Statement(_) => {
                        let text = unbroken(&text);
                        write!(out, r#"<td class="said"><code>{text}</code></td>"#)
                    }
                    _ if i == 0 => write!(out, "<th{order}>{text}</th>"),
                    _ if text.len() > 28 && order.is_empty() => write!(out, "<td>{text}</td>"),
                    _ => write!(out, r#"<td class="n"{order}>{text}</td>"#),
                };
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        if shown.len() < self.rows.len() {
            let (shown, all) = (shown.len(), self.rows.len());
            let _ =
                write!(out, r#"<p class="caption">The first {shown} of {all} rows; {name}.csv has all.</p>"#);
        }
        out
    }

    /// Renders the table as CSV with plain numbers: fractions from 0 to 1, and durations in seconds. A column of numbers with
    /// intervals becomes three columns.
    pub(super) fn csv(&self) -> String {
        let suffixes: Vec<&[&str]> = (0..self.columns.len())
            .map(|i| {
                self.rows.iter().filter_map(|row| row.get(i)).map(Cell::suffixes).max_by_key(|s| s.len())
            })
            .map(|widest| widest.unwrap_or(&[""]))
            .collect();
        let names = self.columns.iter().zip(&suffixes);
        let names = names
            .flat_map(|(name, s)| s.iter().map(move |suffix| inert(&format!("{name}{suffix}")).into_owned()));
        let mut out = line(names);
        for row in &self.rows {
            out.push_str(&line(row.iter().zip(&suffixes).flat_map(|(cell, s)| cell.csv(s.len()))));
        }
        out
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quote(&cell)).collect();
    format!("{}\n", cells.join(","))
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Returns a search field for the entries of the list or table `list`, and a filter by their rounds if there are several.
pub(super) fn search(list: &str, what: &str, rounds: impl Iterator<Item = Option<u32>>) -> String {
    let entries: Vec<Option<u32>> = rounds.collect();
    let distinct: std::collections::BTreeSet<u32> = entries.iter().copied().flatten().collect();
    let (what, count) = (escape(what), entries.len());
    let mut out = format!(
        r#"<div class="search"><input type="search" data-list="{list}" placeholder="Search {count} entries …" aria-label="Search: {what}">"#
    );
    if distinct.len() > 1 {
        let _ = write!(
            out,
            r#"<select data-list="{list}" aria-label="Round: {what}"><option value="">All rounds</option>"#
        );
        if entries.contains(&None) {
            out.push_str(r#"<option value="none">No round</option>"#);
        }
        for round in distinct {
            let _ = write!(out, r#"<option value="{round}">Round {round}</option>"#);
        }
        out.push_str("</select>");
    }
    out + "<output></output></div>"
}

/// Returns the attribute of an entry by which it is filtered.
pub(super) fn round_attribute(round: Option<u32>) -> String {
    format!(r#" data-round="{}""#, round.map_or_else(|| "none".to_owned(), |round| round.to_string()))
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

/// Returns HTML in which no line ends inside a symbol such as `->`.
fn unbroken(escaped: &str) -> String {
    let symbol = |symbol: &str| match symbol.contains('-') && (2..=24).contains(&symbol.len()) {
        true => format!(r#"<span class="symbol">{symbol}</span>"#),
        false => symbol.to_owned(),
    };
    escaped.split(' ').map(symbol).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_escaped_in_html_and_quoted_in_csv() {
        let mut table = ReportTable::new("run | Round | A");
        table.rows.push(vec!["<b>, \"x\"".into(), 3_u32.into(), Cell::number(Some(0.671), Format::Percent)]);
        let html = table.html("t", "a \"table\"", None);
        assert!(
            html.contains("&lt;b&gt;") && html.contains(r#"<td class="n" data-v="0.671">67.1%"#),
            "{html}"
        );
        assert!(html.contains(r#"<tr data-round="3">"#) && html.contains("a &quot;table&quot;"), "{html}");
        assert_eq!(table.csv(), "run,Round,A\n\"<b>, \"\"x\"\"\",3,0.671\n");
    }

    #[test]
    fn symbols_of_a_statement_are_not_broken() {
        let html = unbroken("( ph -&gt; ps ) - |-");
        assert_eq!(html, r#"( ph <span class="symbol">-&gt;</span> ps ) - <span class="symbol">|-</span>"#);
        // A long word must be broken on a narrow screen.
        let long = format!("a-{}", "b".repeat(40));
        assert_eq!(unbroken(&long), long);
    }

    #[test]
    fn numbers_in_csv_have_no_units() {
        let mut table = ReportTable::new("share | time | rate | solved | gain");
        let rate = Interval { value: 0.078, low: 0.04, high: 0.122 };
        table.rows.push(vec![
            Cell::number(Some(0.16), Format::Percent),
            Cell::number(Some(136.8), Format::Seconds),
            Cell::Interval(rate, Format::Percent),
            Cell::Of(4.0, 5.0),
            Cell::number(Some(-0.01), Format::Points),
        ]);
        let none = Cell::number(Some(f64::NAN), Format::Plain);
        table.rows.push(vec![none, Cell::Empty, 1_u32.into(), Cell::Empty, Cell::Empty]);
        assert_eq!(
            table.csv(),
            "share,time,rate,rate low,rate high,solved,solved of,gain\n0.16,136.8,0.078,0.04,0.122,4,5,-0.01\n,,1,,,,,\n"
        );
        let shown: Vec<String> = table.rows[0].iter().map(Cell::text).collect();
        assert_eq!(shown, ["16.0%", "2.28 min", "7.8% (4.0 to 12.2)", "4 of 5", "−1.0 points"]);
        assert_eq!(table.rows[1][0].text(), "–");
    }

    #[test]
    fn differences_show_their_signs() {
        for (difference, shown) in [
            (0.0354, "+3.5"),
            (-0.01, "−1.0"),
            (0.0004, "+0.04"),
            (-0.000_04, "−0.004"),
            (0.0, "0.0"),
            (-0.0, "0.0"),
        ] {
            assert_eq!(signed_points(difference), shown);
        }
    }

    #[test]
    fn columns_can_be_hidden_and_statements_can_move_below_their_rows() {
        let mut table = ReportTable::new("Run | Statement | Rollouts");
        table.rows.push(vec!["SGS".into(), Cell::Statement("|- ph".into()), 8_u32.into()]);
        let html = table.html("t", "T", Some("Run"));
        let head = r#"<th class="said"><button type="button">Statement</button></th>"#;
        assert!(html.contains(head) && html.contains("--columns:1") && !html.contains(">SGS<"), "{html}");
        let html = table.html("t", "T", None);
        assert!(html.contains(">SGS<") && html.contains("--columns:2"), "{html}");
    }

    #[test]
    fn long_tables_can_be_filtered_by_round() {
        let mut table = ReportTable::new("target | Round");
        (0..16).for_each(|i: u32| table.rows.push(vec!["t".into(), Cell::round((i > 0).then_some(i / 4))]));
        let html = table.html("targets", "Targets", None);
        for part in [
            r#"<select data-list="rows-targets""#,
            "No round",
            "Round 2</option>",
            r#"<tbody id="rows-targets">"#,
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        let row = table.rows[8].clone();
        table.rows.resize(501, row);
        assert!(
            table
                .html("targets", "Targets", None)
                .contains("The first 500 of 501 rows; targets.csv has all.")
        );
        table.rows.truncate(3);
        assert!(!table.html("targets", "Targets", None).contains("<select"));
    }

    #[test]
    fn texts_are_shortened_between_characters() {
        assert_eq!(shortened("αβγδ", 2), "αβ …");
        assert_eq!(shortened("αβ", 2), "αβ");
    }
}
