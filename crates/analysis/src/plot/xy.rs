//! Curves over a numeric axis.

use super::scale::{Scale, Unit, nice_range};
use super::svg::{Anchor, Stroke, Svg, TextStyle, num, polyline, text_width};
use super::theme::{Ink, SERIES_COLOURS};
use super::{Axis, Series, SeriesStyle, Xy};
use std::fmt::Write;

pub(super) const TICK_SIZE: f64 = 12.0;
pub(super) const LABEL_SIZE: f64 = 12.5;
pub(super) const TITLE_SIZE: f64 = 13.5;
const RIGHT_MARGIN: f64 = 16.0;

/// Position of the axes within a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame {
    /// Returns the area that remains after the title, tick labels and axis labels.
    pub fn new(width: f64, height: f64, has_title: bool, widest_tick: f64, has_y_label: bool) -> Self {
        Self {
            left: (widest_tick + 12.0 + if has_y_label { LABEL_SIZE + 17.0 } else { 0.0 }).max(30.0),
            top: if has_title { 32.0 } else { 14.0 },
            right: width - RIGHT_MARGIN,
            bottom: height - 44.0,
        }
    }

    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

/// Axes of a panel with curves, for drawing and for finding the values under the pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    pub frame: Frame,
    pub x: Scale,
    pub y: Scale,
}

/// Lays out the axes of a panel.
pub(super) fn axes(xy: &Xy, width: f64, height: f64, has_title: bool) -> Axes {
    let finite = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    let xs = xy.series.iter().flat_map(|s| s.points.iter().filter(finite)).map(|p| p.0);
    let (x_low, x_high) = extent(xs);
    let bands = xy.series.iter().flat_map(|s| &s.band);
    let ys = xy.series.iter().flat_map(|s| s.points.iter().filter(finite)).map(|p| p.1);
    let ys = ys.chain(bands.flat_map(|b| [b.0, b.1])).chain(xy.lines.iter().map(|l| l.value));
    let (y_low, y_high) = extent(ys.filter(|y| y.is_finite()));
    // The horizontal axis ends with the data, so that curves fill the panel.
    let tight = (xy.x.fixed.0.or(finite_or_none(x_low)), xy.x.fixed.1.or(finite_or_none(x_high)));
    let (x_low, x_high) = range(&xy.x, x_low, x_high, tight);
    let (y_low, y_high) = range(&xy.y, y_low, y_high, xy.y.fixed);
    let mut y = Scale { low: y_low, high: y_high, from: 0.0, to: 0.0 };
    let widest = y
        .labelled_ticks(5, xy.y.unit)
        .into_iter()
        .map(|(_, text)| text_width(&text, TICK_SIZE))
        .fold(0.0, f64::max);
    let frame = Frame::new(width, height, has_title, widest, !xy.y.label.is_empty());
    (y.from, y.to) = (frame.bottom, frame.top);
    let x = Scale { low: x_low, high: x_high, from: frame.left, to: frame.right };
    Axes { frame, x, y }
}

fn finite_or_none(v: f64) -> Option<f64> {
    v.is_finite().then_some(v)
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
}

fn range(axis: &Axis, low: f64, high: f64, fixed: (Option<f64>, Option<f64>)) -> (f64, f64) {
    // If all values are zero, a range of 0 to 1% shows this better than 0 to 100%.
    let high = if axis.unit == Unit::Percent && high == 0.0 && fixed.1.is_none() { 0.01 } else { high };
    nice_range(low, high, fixed)
}

/// Draws a panel with curves.
pub(super) fn draw(svg: &mut Svg, xy: &Xy, title: &str, width: f64, height: f64) {
    let axes = axes(xy, width, height, !title.is_empty());
    let Axes { frame, x, y } = axes;
    panel_title(svg, title);
    draw_y_axis(svg, &frame, &y, &xy.y);
    draw_x_axis(svg, &frame, &x, &xy.x);
    for line in &xy.lines {
        draw_reference(svg, &axes, line);
    }
    let clip = |v: f64| if (frame.left - 0.5..=frame.right + 0.5).contains(&v) { v } else { f64::NAN };
    for series in &xy.series {
        let points: Vec<(f64, f64)> =
            series.points.iter().map(|p| (clip(x.pixel(p.0)), y.pixel(p.1))).collect();
        draw_band(svg, series, &points, &axes);
    }
    let marked = xy.series.iter().filter(|s| s.style == SeriesStyle::Line).count() > 2;
    for (i, series) in xy.series.iter().enumerate() {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|p| (clip(x.pixel(p.0)), y.pixel(p.1).clamp(frame.top - 1.0, frame.bottom + 1.0)))
            .collect();
        draw_series(svg, series, &points, marked.then_some(i));
    }
    for line in &xy.lines {
        label_reference(svg, &axes, line, &xy.series);
    }
}

/// Draws the title of a panel.
pub(super) fn panel_title(svg: &mut Svg, title: &str) {
    let style = TextStyle { size: TITLE_SIZE, bold: true, ink: Ink::Text, anchor: Anchor::Start };
    if !title.is_empty() {
        svg.text(12.0, 16.0, title, style);
    }
}

/// Draws the grid lines, numbers and label of the vertical axis.
pub(super) fn draw_y_axis(svg: &mut Svg, frame: &Frame, y: &Scale, axis: &Axis) {
    let mut grid = String::new();
    let style = TextStyle { size: TICK_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::End };
    for (tick, text) in y.labelled_ticks(5, axis.unit) {
        let py = y.pixel(tick);
        let _ = write!(grid, "M{} {}H{}", num(frame.left), num(py), num(frame.right));
        svg.text(frame.left - 7.0, py + 4.2, &text, style);
    }
    svg.stroke(&grid, Stroke::solid(Ink::Grid, 1.0));
    let style = TextStyle { size: LABEL_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::Middle };
    if !axis.label.is_empty() {
        svg.text_upwards(LABEL_SIZE + 9.0, 0.5 * (frame.top + frame.bottom), &axis.label, style);
    }
}

/// Draws the line, numbers and label of the horizontal axis.
pub(super) fn draw_x_axis(svg: &mut Svg, frame: &Frame, x: &Scale, axis: &Axis) {
    let mut marks = format!("M{} {}H{}", num(frame.left), num(frame.bottom), num(frame.right));
    let mut free_from = 0.0;
    for (tick, text) in x.labelled_ticks((frame.width() / 75.0) as usize, axis.unit) {
        let px = x.pixel(tick);
        let width = text_width(&text, TICK_SIZE);
        if px - width / 2.0 < free_from {
            continue;
        }
        // Keep the last number within the panel.
        let centre = px.min(frame.right + RIGHT_MARGIN - width / 2.0 - 1.0);
        free_from = centre + width / 2.0 + 8.0;
        let _ = write!(marks, "M{} {}v4", num(px), num(frame.bottom));
        let style = TextStyle { size: TICK_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::Middle };
        svg.text(centre, frame.bottom + 18.0, &text, style);
    }
    svg.stroke(&marks, Stroke::solid(Ink::Axis, 1.0));
    x_label(svg, frame, &axis.label);
}

/// Draws the label of the horizontal axis.
pub(super) fn x_label(svg: &mut Svg, frame: &Frame, label: &str) {
    let style = TextStyle { size: LABEL_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::Middle };
    svg.text(0.5 * (frame.left + frame.right), frame.bottom + 37.0, label, style);
}

fn draw_reference(svg: &mut Svg, axes: &Axes, line: &super::ReferenceLine) {
    let frame = &axes.frame;
    let py = axes.y.pixel(line.value);
    if !(py >= frame.top - 0.5 && py <= frame.bottom + 0.5) {
        return;
    }
    let path = format!("M{} {}H{}", num(frame.left), num(py), num(frame.right));
    svg.stroke(&path, Stroke { ink: line.ink, width: 1.4, dashes: Some("2 4") });
}

/// Draws the label of a reference line on top, with an outline in the background colour so that curves do not cross it.
fn label_reference(svg: &mut Svg, axes: &Axes, line: &super::ReferenceLine, series: &[Series]) {
    let (frame, py) = (&axes.frame, axes.y.pixel(line.value));
    if py >= frame.top - 0.5 && py <= frame.bottom + 0.5 {
        let style = TextStyle { size: 11.5, bold: false, ink: line.ink, anchor: Anchor::End };
        let shift = if has_label_below(line, series) && py + 15.0 < frame.bottom { 13.0 } else { -5.0 };
        svg.text_with_rim(frame.right - 2.0, py + shift, &line.label, style);
    }
}

/// Returns whether the curve that ends nearest to a reference line ends above it. The label above the line would hide
/// that end.
fn has_label_below(line: &super::ReferenceLine, series: &[Series]) -> bool {
    let gaps = series.iter().filter_map(|s| Some(s.points.last()?.1 - line.value));
    gaps.min_by(|a, b| a.abs().total_cmp(&b.abs())).is_some_and(|gap| gap > 0.0)
}

fn draw_band(svg: &mut Svg, series: &Series, points: &[(f64, f64)], axes: &Axes) {
    let frame = &axes.frame;
    let row = |v: f64| axes.y.pixel(v).clamp(frame.top, frame.bottom);
    let rim: Vec<(f64, f64, f64)> = points
        .iter()
        .zip(&series.band)
        .filter(|(p, b)| p.0.is_finite() && b.0.is_finite() && b.1.is_finite())
        .map(|(p, b)| (p.0, row(b.0), row(b.1)))
        .collect();
    if rim.len() < 2 {
        return;
    }
    let there = rim.iter().map(|r| (r.0, r.2));
    let back = rim.iter().rev().map(|r| (r.0, r.1));
    svg.fill(&format!("{}Z", polyline(there.chain(back))), series.ink, 0.16);
}

fn draw_series(svg: &mut Svg, series: &Series, points: &[(f64, f64)], marker: Option<usize>) {
    let line = polyline(points.iter().copied());
    match series.style {
        SeriesStyle::Line => {
            svg.stroke(&line, Stroke { ink: series.ink, width: 2.0, dashes: series.ink.dashes() });
            draw_lonely_points(svg, points, series.ink);
        }
        SeriesStyle::Faint => {
            svg.raw(r#"<g opacity="0.28">"#);
            svg.stroke(&line, Stroke::solid(series.ink, 1.0));
            svg.raw("</g>");
        }
        SeriesStyle::Fit => svg.stroke(&line, Stroke { ink: series.ink, width: 1.5, dashes: Some("5 4") }),
        SeriesStyle::Points => {
            for (x, y) in points.iter().filter(|p| p.0.is_finite() && p.1.is_finite()) {
                svg.dot(*x, *y, 2.2, series.ink);
            }
        }
    }
    if let (SeriesStyle::Line, Some(i)) = (series.style, marker) {
        let stride = points.len().div_ceil(7).max(1);
        let offset = (i * stride).div_euclid(5) % stride;
        for (x, y) in
            points.iter().skip(offset).step_by(stride).filter(|p| p.0.is_finite() && p.1.is_finite())
        {
            draw_marker(svg, *x, *y, series.ink);
        }
    }
}

/// Draws a dot for points without neighbours, which would not produce a line.
fn draw_lonely_points(svg: &mut Svg, points: &[(f64, f64)], ink: Ink) {
    let is_there = |i: usize| points.get(i).is_some_and(|p| p.0.is_finite() && p.1.is_finite());
    for (i, (x, y)) in points.iter().enumerate() {
        let alone = !(is_there(i + 1) || i > 0 && is_there(i - 1));
        if alone && is_there(i) {
            svg.dot(*x, *y, 3.5, ink);
        }
    }
}

/// Draws a marker whose shape distinguishes series without colour.
pub(super) fn draw_marker(svg: &mut Svg, x: f64, y: f64, ink: Ink) {
    let r = 3.6;
    let shape = match ink {
        // If colours repeat, the shapes differ.
        Ink::Series(i) => (i + i / SERIES_COLOURS) % 4,
        _ => 0,
    };
    match shape {
        0 => svg.dot(x, y, r, ink),
        1 => svg.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8, ink, None),
        2 => {
            let d = format!(
                "M{} {}l{} {}h{}Z",
                num(x),
                num(y - r * 1.2),
                num(r * 1.15),
                num(r * 2.1),
                num(-r * 2.3)
            );
            svg.fill(&d, ink, 1.0);
        }
        _ => {
            let d = format!("M{} {}l{r} {r}l-{r} {r}l-{r} -{r}Z", num(x), num(y - r));
            svg.fill(&d, ink, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Ink, ReferenceLine};

    #[test]
    fn the_label_of_a_reference_line_does_not_hide_the_end_of_the_nearest_curve() {
        let line = ReferenceLine { value: 0.18, label: "base model".into(), ink: Ink::Muted };
        let curve = |end| Series::line("", Ink::Series(0), vec![(0.0, 0.18), (1.0, end)]);
        assert!(has_label_below(&line, &[curve(0.20), curve(0.05)]));
        assert!(!has_label_below(&line, &[curve(0.16), curve(0.34)]));
        assert!(!has_label_below(&line, &[curve(0.18)]) && !has_label_below(&line, &[]));
    }
}
