//! Which colours of a figure stand for what.

use super::svg::{Anchor, Stroke, Svg, TextStyle, num, text_width};
use super::theme::Ink;
use super::xy::draw_marker;
use super::{Content, Figure, Style};

/// An entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub ink: Ink,
    /// A line, points or an area.
    pub swatch: Swatch,
}

/// The sign before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    /// A line, with a marker or without.
    Line {
        /// Whether the curve carries markers.
        marked: bool,
    },
    /// A dashed line.
    Fit,
    /// A dot.
    Point,
    /// A square.
    Area,
}

/// The legend's entries, each name once, in order of appearance; empty where there is but one curve.
pub fn entries(figure: &Figure) -> Vec<Entry> {
    let mut out: Vec<Entry> = Vec::new();
    let mut add = |name: &str, ink: Ink, swatch: Swatch| {
        match out.iter_mut().find(|e| e.name == name) {
            // One name for curves of several colours: the sign stands for their style.
            Some(known) if known.ink != ink => known.ink = Ink::Muted,
            Some(_) => {}
            None if name.is_empty() => {}
            None => out.push(Entry { name: name.to_owned(), ink, swatch }),
        }
    };
    for panel in &figure.panels {
        match &panel.content {
            Content::Xy(xy) => {
                let marked = xy.series.iter().filter(|s| s.style == Style::Line).count() > 2;
                for series in xy.series.iter().filter(|s| s.style != Style::Faint) {
                    let swatch = match series.style {
                        Style::Line => Swatch::Line { marked },
                        Style::Fit => Swatch::Fit,
                        Style::Points => Swatch::Point,
                        Style::Faint => continue,
                    };
                    add(&series.name, series.ink, swatch);
                }
            }
            Content::Bars(bars) => bars.series.iter().for_each(|s| add(&s.name, s.ink, Swatch::Area)),
            Content::Heatmap(map) => {
                add(&map.names.0, Ink::Yes, Swatch::Area);
                add(&map.names.1, Ink::No, Swatch::Area);
            }
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

fn entry_width(entry: &Entry) -> f64 {
    SWATCH_WIDTH + text_width(&entry.name, SIZE) * 1.03 + 20.0
}

/// Height of a legend that is set in lines of `width`.
pub(super) fn height(entries: &[Entry], width: f64) -> f64 {
    lines(entries, width).len() as f64 * LINE
}

fn lines(entries: &[Entry], width: f64) -> Vec<Vec<&Entry>> {
    let mut lines: Vec<Vec<&Entry>> = Vec::new();
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

/// Draws a legend with its upper left corner at (x, y).
pub(super) fn draw(svg: &mut Svg, entries: &[Entry], x: f64, y: f64, width: f64) {
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

/// Draws an entry's sign, 22 wide, around the height `middle`.
pub(super) fn draw_swatch(svg: &mut Svg, entry: &Entry, left: f64, middle: f64) {
    let path = format!("M{} {}h20", num(left + 1.0), num(middle));
    match entry.swatch {
        Swatch::Line { marked } => {
            svg.stroke(&path, Stroke { ink: entry.ink, width: 2.2, dashes: entry.ink.dashes() });
            if marked {
                draw_marker(svg, left + 11.0, middle, entry.ink);
            }
        }
        Swatch::Fit => svg.stroke(&path, Stroke { ink: entry.ink, width: 1.6, dashes: Some("5 4") }),
        Swatch::Point => svg.dot(left + 11.0, middle, 3.0, entry.ink),
        Swatch::Area => svg.rect(left + 5.0, middle - 6.0, 12.0, 12.0, entry.ink, None),
    }
}
