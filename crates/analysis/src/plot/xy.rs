//! Curves over a numeric axis.

use super::axes::{Axes, Frame, LABEL_SIZE, RIGHT_MARGIN, TICK_SIZE};
use super::labels::{self, Place};
use super::scale::Scale;
use super::svg::{Anchor, Stroke, Svg, TextStyle, num, polyline, text_width};
use super::theme::{Ink, SERIES_COLOURS};
use super::{Axis, Series, SeriesStyle, Xy};
use std::fmt::Write;

pub(super) const TITLE_SIZE: f64 = 13.5;

/// Draws a panel with curves.
pub(super) fn draw(svg: &mut Svg, xy: &Xy, title: &str, width: f64, height: f64) {
    let (axes, places) = labels::lay_out(xy, width, height, !title.is_empty());
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
    for (line, place) in xy.lines.iter().zip(places) {
        label_reference(svg, line, place);
    }
}

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
    let Some(row) = axes.row(line.value) else { return };
    let path = format!("M{} {}H{}", num(axes.frame.left), num(row), num(axes.frame.right));
    svg.stroke(&path, Stroke { ink: line.ink, width: 1.4, dashes: Some("2 4") });
}

/// Draws the label of a reference line on top, with an outline in the background colour so that grid lines do not cross it.
fn label_reference(svg: &mut Svg, line: &super::ReferenceLine, place: Option<Place>) {
    let Some(Place { x, y, anchor }) = place else { return };
    svg.text_with_rim(
        x,
        y,
        &line.label,
        TextStyle { size: labels::SIZE, bold: false, ink: line.ink, anchor },
    );
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
    if let [(x, low, high)] = rim[..] {
        let bar = format!("M{} {}V{}", num(x), num(low), num(high));
        svg.stroke(&bar, Stroke::solid(series.ink, 1.2));
    }
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
            match marker {
                _ if series.has_few_points() => mark(svg, points.iter(), series.ink),
                Some(i) => {
                    draw_lonely_points(svg, points, series.ink);
                    let stride = points.len().div_ceil(7).max(1);
                    let offset = (i * stride).div_euclid(5) % stride;
                    mark(svg, points.iter().skip(offset).step_by(stride), series.ink);
                }
                None => draw_lonely_points(svg, points, series.ink),
            }
        }
        SeriesStyle::Faint => {
            svg.raw(r#"<g opacity="0.28">"#);
            svg.stroke(&line, Stroke::solid(series.ink, 1.0));
            draw_lonely_points(svg, points, series.ink);
            svg.raw("</g>");
        }
        SeriesStyle::Fit => svg.stroke(&line, Stroke { ink: series.ink, width: 1.5, dashes: Some("5 4") }),
    }
}

fn is_there(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

/// Draws a marker at each point.
fn mark<'p>(svg: &mut Svg, points: impl Iterator<Item = &'p (f64, f64)>, ink: Ink) {
    points.filter(|p| is_there(p)).for_each(|(x, y)| draw_marker(svg, *x, *y, ink));
}

/// Draws a dot for points without neighbours, which would not produce a line.
fn draw_lonely_points(svg: &mut Svg, points: &[(f64, f64)], ink: Ink) {
    let exists = |i: usize| points.get(i).is_some_and(is_there);
    for (i, (x, y)) in points.iter().enumerate() {
        let alone = !(exists(i + 1) || i > 0 && exists(i - 1));
        if alone && exists(i) {
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
    use crate::plot::Unit;

    #[test]
    fn each_of_a_few_points_is_marked() {
        let drawn = |points: u32, other: &[u32], with_band: bool| {
            let series = std::iter::once(&points).chain(other).map(|points| {
                let points: Vec<(f64, f64)> = (0..*points).map(|i| (f64::from(i), 0.5)).collect();
                let band = if with_band { vec![(0.4, 0.6); points.len()] } else { Vec::new() };
                Series { band, ..Series::line("a", Ink::Series(0), points) }
            });
            let (x, y) = (Axis::new("x", Unit::Count), Axis::new("y", Unit::Percent).from(0.0));
            let xy = Xy { x, y, series: series.collect(), lines: Vec::new() };
            let mut svg = Svg::new();
            draw(&mut svg, &xy, "", 460.0, 300.0);
            svg.finish()
        };
        let dots = |points, other: &[u32]| drawn(points, other, false).matches("<circle").count();
        assert_eq!([1, 2, 12, 13].map(|points| dots(points, &[])), [1, 2, 12, 0]);
        // A panel with many curves marks some of many points.
        assert_eq!(dots(3, &[70, 70]), 3 + 7 + 7);
        // The interval of a single point is a bar, that of several an area.
        let strokes = |points| {
            let both =
                [true, false].map(|with_band| drawn(points, &[], with_band).matches("stroke-width").count());
            both[0] - both[1]
        };
        assert_eq!([1, 2].map(strokes), [1, 0]);
    }
}
