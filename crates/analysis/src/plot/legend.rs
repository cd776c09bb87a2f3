//! Legends of figures.

use super::svg::{Anchor, Stroke, Svg, TextStyle, num, text_width};
use super::theme::Ink;
use super::xy::draw_marker;
use super::{Figure, PanelContent, SeriesStyle};

/// A legend entry.
#[derive(Clone, Debug, PartialEq)]
pub struct LegendEntry {
    /// Name of the entry.
    pub name: String,
    /// Colour of the symbol.
    pub ink: Ink,
    /// A line or an area.
    pub swatch: Swatch,
}

/// The symbol of a legend entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    /// A line with or without markers.
    Line {
        /// Whether the curve carries markers.
        marked: bool,
    },
    /// A dashed line.
    Fit,
    /// A square.
    Area,
}

/// Returns the legend entries of a figure in order of appearance, each name once. A figure with a single curve has none.
pub fn entries(figure: &Figure) -> Vec<LegendEntry> {
    let mut out: Vec<LegendEntry> = Vec::new();
    let mut add = |name: &str, ink: Ink, swatch: Swatch| {
        match out.iter_mut().find(|e| e.name == name) {
            // For a name that several colours share, the symbol shows the style.
            Some(known) if known.ink != ink => known.ink = Ink::Muted,
            Some(_) => {}
            None if name.is_empty() => {}
            None => out.push(LegendEntry { name: name.to_owned(), ink, swatch }),
        }
    };
    for panel in &figure.panels {
        match &panel.content {
            PanelContent::Xy(xy) => {
                let marked = xy.series.iter().filter(|s| s.style == SeriesStyle::Line).count() > 2;
                for series in xy.series.iter().filter(|s| s.style != SeriesStyle::Faint) {
                    let swatch = match series.style {
                        SeriesStyle::Line => Swatch::Line { marked: marked || series.has_few_points() },
                        SeriesStyle::Fit => Swatch::Fit,
                        SeriesStyle::Faint => continue,
                    };
                    add(&series.name, series.ink, swatch);
                }
            }
            PanelContent::Bars(bars) => bars.series.iter().for_each(|s| add(&s.name, s.ink, Swatch::Area)),
        }
    }
    if out.len() < 2 {
        out.clear();
    }
    out
}

const SIZE: f64 = 12.5;
const LINE: f64 = 20.0;
const SWATCH_WIDTH: f64 = 28.0;

fn entry_width(entry: &LegendEntry) -> f64 {
    SWATCH_WIDTH + text_width(&entry.name, SIZE) * 1.03 + 20.0
}

/// Returns the height of a legend that is wrapped at `width`.
pub(super) fn height(entries: &[LegendEntry], width: f64) -> f64 {
    lines(entries, width).len() as f64 * LINE
}

fn lines(entries: &[LegendEntry], width: f64) -> Vec<Vec<&LegendEntry>> {
    let mut lines: Vec<Vec<&LegendEntry>> = Vec::new();
    let mut used = f64::INFINITY;
    for entry in entries {
        let need = entry_width(entry);
        if used + need > width {
            lines.push(Vec::new());
            used = 0.0;
        }
        used += need;
        if let Some(line) = lines.last_mut() {
            line.push(entry);
        }
    }
    lines
}

/// Draws a legend with its top left corner at (x, y).
pub(super) fn draw(svg: &mut Svg, entries: &[LegendEntry], x: f64, y: f64, width: f64) {
    for (row, line) in lines(entries, width).into_iter().enumerate() {
        let mut left = x;
        let middle = y + row as f64 * LINE + LINE / 2.0;
        for entry in line {
            draw_swatch(svg, entry, left, middle);
            let style = TextStyle { size: SIZE, bold: false, ink: Ink::Text, anchor: Anchor::Start };
            svg.text(left + SWATCH_WIDTH, middle + 4.4, &entry.name, style);
            left += entry_width(entry);
        }
    }
}

/// Draws the symbol of an entry, 22 units wide and vertically centred at `middle`.
pub(super) fn draw_swatch(svg: &mut Svg, entry: &LegendEntry, left: f64, middle: f64) {
    let path = format!("M{} {}h20", num(left + 1.0), num(middle));
    match entry.swatch {
        Swatch::Line { marked } => {
            svg.stroke(&path, Stroke { ink: entry.ink, width: 2.2, dashes: entry.ink.dashes() });
            if marked {
                draw_marker(svg, left + 11.0, middle, entry.ink);
            }
        }
        Swatch::Fit => svg.stroke(&path, Stroke { ink: entry.ink, width: 1.6, dashes: Some("5 4") }),
        Swatch::Area => svg.rect(left + 5.0, middle - 6.0, 12.0, 12.0, entry.ink, None),
    }
}
