//! Placement of the labels of reference lines, so that they cover neither curves nor bands.

use super::axes::{Axes, RIGHT_MARGIN};
use super::svg::{Anchor, text_width};
use super::{Series, Xy};

/// Font size, px.
pub(super) const SIZE: f64 = 11.5;
/// Height of a label above and below its baseline, px.
const ASCENT: f64 = 9.5;
const DESCENT: f64 = 3.0;
/// Minimum distance from curves and bands, px.
const CLEARANCE: f64 = 3.0;
/// Distance between the places along a line that are tried, px.
const STEP: f64 = 12.0;
/// Distance between the baselines of labels to the right of the axes, px.
const LEADING: f64 = 14.0;
/// Space between the axes and the labels to their right, px.
const GAP: f64 = 6.0;
/// Maximum share of a panel's width for labels to the right of the axes.
const MOST: f64 = 0.3;

/// Place of a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub x: f64,
    /// Baseline.
    pub y: f64,
    pub anchor: Anchor,
}

#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// A piece of a curve or band between two values of x, with the top and bottom at both.
#[derive(Clone, Copy, Debug)]
struct Piece {
    x: (f64, f64),
    top: (f64, f64),
    bottom: (f64, f64),
}

impl Area {
    /// Returns the area of a label that ends at `right`.
    fn of(right: f64, baseline: f64, width: f64) -> Self {
        Self { left: right - width, top: baseline - ASCENT, right, bottom: baseline + DESCENT }
    }

    fn overlaps(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Returns whether the area is closer to a piece than the clearance.
    fn touches(&self, piece: &Piece) -> bool {
        let (left, right) = (self.left - CLEARANCE, self.right + CLEARANCE);
        let (from, to) = (left.max(piece.x.0), right.min(piece.x.1));
        if from > to {
            return false;
        }
        let length = piece.x.1 - piece.x.0;
        let at = |ends: (f64, f64), x: f64| {
            let share = if length > 0.0 { (x - piece.x.0) / length } else { 0.0 };
            ends.0 + share * (ends.1 - ends.0)
        };
        let top = at(piece.top, from).min(at(piece.top, to));
        let bottom = at(piece.bottom, from).max(at(piece.bottom, to));
        self.top - CLEARANCE < bottom && top < self.bottom + CLEARANCE
    }
}

/// Lays out the axes of a panel and the labels of its reference lines. A line outside the axes has no label.
pub(super) fn lay_out(xy: &Xy, width: f64, height: f64, has_title: bool) -> (Axes, Vec<Option<Place>>) {
    let axes = Axes::new(xy, width, height, has_title, RIGHT_MARGIN);
    if let Some(places) = along_lines(xy, &axes, true) {
        return (axes, places);
    }
    if let Some(margin) = margin(xy, width) {
        let axes = Axes::new(xy, width, height, has_title, margin);
        return (axes, outside(xy, &axes));
    }
    (axes, along_lines(xy, &axes, false).unwrap_or_else(|| at_ends(xy, &axes)))
}

/// Returns a place next to each line within the axes, as far right as possible. Returns `None` if a label has no place
/// where it covers no curve and, on request, no band.
fn along_lines(xy: &Xy, axes: &Axes, avoids_bands: bool) -> Option<Vec<Option<Place>>> {
    let mut pieces: Vec<Piece> = xy.series.iter().flat_map(|series| curve(series, axes)).collect();
    if avoids_bands {
        pieces.extend(xy.series.iter().flat_map(|series| band(series, axes)));
    }
    let mut taken: Vec<Area> = Vec::new();
    let mut places = Vec::new();
    for (i, line) in xy.lines.iter().enumerate() {
        let Some(row) = axes.row(line.value) else {
            places.push(None);
            continue;
        };
        let others = xy.lines.iter().enumerate().filter(|(j, _)| *j != i);
        let others: Vec<Piece> = others
            .filter_map(|(_, other)| axes.row(other.value))
            .map(|y| Piece { x: (axes.frame.left, axes.frame.right), top: (y, y), bottom: (y, y) })
            .collect();
        let is_free = |area: &Area| {
            !pieces.iter().chain(&others).any(|piece| area.touches(piece))
                && !taken.iter().any(|other| area.overlaps(other))
        };
        let area = candidates(axes, row, text_width(&line.label, SIZE)).find(is_free)?;
        taken.push(area);
        places.push(Some(Place { x: area.right, y: area.bottom - DESCENT, anchor: Anchor::End }));
    }
    Some(places)
}

/// Returns the areas next to a line at which its label may be, above and below, from right to left.
fn candidates(axes: &Axes, row: f64, width: f64) -> impl Iterator<Item = Area> {
    let frame = axes.frame;
    let last = frame.right - 2.0;
    let steps = ((last - width - frame.left) / STEP).max(0.0) as u32;
    let sides =
        move |step| [row - 5.0, row + 13.0].map(|y| Area::of(last - STEP * f64::from(step), y, width));
    (0..=steps)
        .flat_map(sides)
        .filter(move |area| area.top >= frame.top - ASCENT && area.bottom <= frame.bottom - 1.0)
}

/// Returns the width of the margin for labels to the right of the axes, or `None` if it would be too wide.
fn margin(xy: &Xy, width: f64) -> Option<f64> {
    let widest = xy.lines.iter().map(|line| text_width(&line.label, SIZE)).fold(0.0, f64::max);
    (widest <= MOST * width).then_some(widest + GAP + 4.0)
}

/// Returns a place to the right of the axes for each line, at its height unless another label is there.
fn outside(xy: &Xy, axes: &Axes) -> Vec<Option<Place>> {
    let mut rows: Vec<(usize, f64)> =
        xy.lines.iter().enumerate().filter_map(|(i, line)| Some((i, axes.row(line.value)?))).collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places = vec![None; xy.lines.len()];
    let mut free_from = f64::NEG_INFINITY;
    for (i, row) in rows {
        let y = (row + 4.0).max(free_from);
        free_from = y + LEADING;
        places[i] = Some(Place { x: axes.frame.right + GAP, y, anchor: Anchor::Start });
    }
    places
}

/// Returns the right end of each line, whatever is there.
fn at_ends(xy: &Xy, axes: &Axes) -> Vec<Option<Place>> {
    let place = |row| Place { x: axes.frame.right - 2.0, y: row - 5.0, anchor: Anchor::End };
    xy.lines.iter().map(|line| axes.row(line.value).map(place)).collect()
}

/// Returns the pieces of a curve in pixels: its points, and the lines between them.
fn curve(series: &Series, axes: &Axes) -> Vec<Piece> {
    let points: Vec<(f64, f64)> =
        series.points.iter().map(|p| (axes.x.pixel(p.0), axes.clamped(p.1))).collect();
    let piece = |a: (f64, f64), b: (f64, f64)| Piece { x: (a.0, b.0), top: (a.1, b.1), bottom: (a.1, b.1) };
    let is_finite = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
    let mut pieces: Vec<Piece> = points.iter().filter(|p| is_finite(p)).map(|p| piece(*p, *p)).collect();
    let pairs = points.iter().zip(points.iter().skip(1));
    pieces.extend(pairs.filter(|(a, b)| is_finite(a) && is_finite(b)).map(|(a, b)| piece(*a, *b)));
    pieces
}

/// Returns the pieces of the band of a curve in pixels.
fn band(series: &Series, axes: &Axes) -> Vec<Piece> {
    let ends: Vec<(f64, f64, f64)> = (series.points.iter().zip(&series.band))
        .map(|(p, b)| (axes.x.pixel(p.0), axes.clamped(b.1), axes.clamped(b.0)))
        .filter(|(x, top, bottom)| x.is_finite() && top.is_finite() && bottom.is_finite())
        .collect();
    let pairs = ends.iter().zip(ends.iter().skip(1));
    pairs.map(|(a, b)| Piece { x: (a.0, b.0), top: (a.1, b.1), bottom: (a.2, b.2) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Ink, ReferenceLine, Unit};

    fn panel(values: &[f64], band: Option<(f64, f64)>) -> Xy {
        let points: Vec<(f64, f64)> = (0_u32..).map(f64::from).zip(values.iter().copied()).collect();
        let band = band.map(|band| vec![band; points.len()]).unwrap_or_default();
        Xy {
            x: Axis::new("Generations", Unit::Count).from(0.0),
            y: Axis::new("pass@8", Unit::Percent).from(0.0),
            series: vec![Series { band, ..Series::line("", Ink::Series(0), points) }],
            lines: vec![ReferenceLine { value: 0.18, label: "base model".into(), ink: Ink::Muted }],
        }
    }

    /// Returns the place of the label, after a check that it covers nothing.
    fn placed(xy: &Xy) -> (Place, Axes) {
        let (axes, places) = lay_out(xy, 460.0, 300.0, true);
        let place = places[0].unwrap();
        let width = text_width("base model", SIZE);
        let right = if place.anchor == Anchor::End { place.x } else { place.x + width };
        let area = Area::of(right, place.y, width);
        let pieces = [curve(&xy.series[0], &axes), band(&xy.series[0], &axes)].concat();
        assert!(!pieces.iter().any(|piece| area.touches(piece)), "{area:?}");
        assert!(area.right <= 460.0 && area.left > axes.frame.left, "{area:?}");
        (place, axes)
    }

    #[test]
    fn a_label_is_at_the_free_side_of_the_end_of_its_line() {
        let (above, axes) = placed(&panel(&[0.18, 0.10, 0.05], None));
        assert_eq!((above.x, above.y), (axes.frame.right - 2.0, axes.y.pixel(0.18) - 5.0));
        let (below, axes) = placed(&panel(&[0.18, 0.185, 0.19], None));
        assert_eq!((below.x, below.y), (axes.frame.right - 2.0, axes.y.pixel(0.18) + 13.0));
    }

    #[test]
    fn a_label_gives_way_to_a_curve_that_crosses_its_line() {
        // The curve is close to both sides of the line at its right end.
        let (place, axes) = placed(&panel(&[0.05, 0.06, 0.07, 0.08, 0.2, 0.16, 0.2, 0.16], None));
        assert_eq!(place.anchor, Anchor::End);
        assert!(place.x < axes.frame.right - 50.0, "{place:?}");
    }

    #[test]
    fn a_label_is_outside_of_the_axes_if_a_band_surrounds_its_line() {
        let (place, axes) = placed(&panel(&[0.18, 0.17, 0.16], Some((0.08, 0.3))));
        assert!(place.anchor == Anchor::Start && place.x > axes.frame.right, "{place:?}");
        assert!(axes.frame.right < 400.0);
    }

    #[test]
    fn labels_do_not_cover_each_other() {
        let mut xy = panel(&[0.18, 0.17, 0.16], Some((0.08, 0.3)));
        xy.lines.push(ReferenceLine { value: 0.181, ..xy.lines[0].clone() });
        let (_, places) = lay_out(&xy, 460.0, 300.0, true);
        let rows: Vec<f64> = places.iter().flatten().map(|place| place.y).collect();
        assert!((rows[0] - rows[1]).abs() >= 12.0, "{rows:?}");
        // Labels that are too wide for the margin stay within the axes.
        xy.lines[0].label = "base model ".repeat(9);
        let (_, places) = lay_out(&xy, 460.0, 300.0, true);
        assert!(places.iter().flatten().all(|place| place.anchor == Anchor::End));
    }
}
