//! Heatmaps over rounds. Each kind of cell is one path, so that hundreds of rows and rounds result in small files.

use super::axes::{Frame, LABEL_SIZE};
use super::scale::{Scale, Unit};
use super::svg::{Anchor, Svg, TextStyle, num};
use super::theme::Ink;
use super::xy::{draw_x_axis, panel_title};
use super::{Axis, Heatmap};
use std::fmt::Write;

pub(super) fn draw(svg: &mut Svg, map: &Heatmap, title: &str, width: f64, height: f64) {
    let frame = Frame::new(width, height, !title.is_empty(), 0.0, true);
    panel_title(svg, title);
    let (first, end) = (f64::from(map.span.0), f64::from(map.span.1.max(map.span.0 + 1)));
    let x = Scale { low: first, high: end, from: frame.left, to: frame.right };
    let row_height = frame.height() / map.rows.len().max(1) as f64;
    svg.fill(&cells(map, &frame, &x, row_height, |c| c.is_some()), Ink::No, 1.0);
    svg.fill(&cells(map, &frame, &x, row_height, |c| c == Some(true)), Ink::Yes, 1.0);
    for (i, row) in map.rows.iter().enumerate() {
        let yes = row.cells.iter().filter(|c| **c == Some(true)).count();
        let all = row.cells.iter().filter(|c| c.is_some()).count();
        let end = row.start as usize + row.cells.len();
        let text =
            format!("{}: {} in {yes} of {all} rounds, rounds {} to {end}", row.name, map.names.0, row.start);
        hover_row(svg, &frame, i as f64 * row_height, row_height, &text);
    }
    draw_x_axis(svg, &frame, &x, &Axis::new(map.x_label.clone(), Unit::Plain));
    let style = TextStyle { size: LABEL_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::Middle };
    svg.text_upwards(LABEL_SIZE + 9.0, 0.5 * (frame.top + frame.bottom), &map.y_label, style);
}

/// Returns the path of all sequences of adjacent cells that `wanted` selects.
fn cells(
    map: &Heatmap,
    frame: &Frame,
    x: &Scale,
    row_height: f64,
    wanted: impl Fn(Option<bool>) -> bool,
) -> String {
    let mut d = String::new();
    // Rows overlap slightly, so that there are no gaps between them.
    let drawn = row_height.max(0.3) + 0.05;
    for (i, row) in map.rows.iter().enumerate() {
        let top = frame.top + i as f64 * row_height;
        let mut start = None;
        for (j, cell) in row.cells.iter().copied().chain([None]).enumerate() {
            let is_wanted = j < row.cells.len() && wanted(cell);
            match (start, is_wanted) {
                (None, true) => start = Some(j),
                (Some(s), false) => {
                    let from = x.pixel(f64::from(row.start) + s as f64);
                    let to = x.pixel(f64::from(row.start) + j as f64);
                    let _ = write!(
                        d,
                        "M{} {}h{}v{}H{}z",
                        num(from),
                        num(top),
                        num(to - from),
                        num(drawn),
                        num(from)
                    );
                    start = None;
                }
                _ => {}
            }
        }
    }
    d
}

/// Draws an invisible rectangle with the row's tooltip.
fn hover_row(svg: &mut Svg, frame: &Frame, offset: f64, height: f64, text: &str) {
    svg.raw(&format!(
        r#"<rect x="{}" y="{}" width="{}" height="{}" fill-opacity="0"><title>{}</title></rect>"#,
        num(frame.left),
        num(frame.top + offset),
        num(frame.width()),
        num(height),
        super::escape(text)
    ));
}
