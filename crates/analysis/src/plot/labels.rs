//! Places of the labels of reference lines: to the right of the axes, or within them if a label is too wide.

use super::Xy;
use super::axes::{Axes, RIGHT_MARGIN};
use super::svg::{Anchor, text_width};

/// Font size, px.
pub(super) const SIZE: f64 = 11.5;
/// Distance between the baselines of labels to the right of the axes, px.
const LEADING: f64 = 14.0;
/// Space between the axes and the labels to their right, px.
const GAP: f64 = 6.0;
/// Maximum share of a panel's width for labels to the right of the axes.
const MOST: f64 = 0.3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub x: f64,
    /// Baseline.
    pub y: f64,
    pub anchor: Anchor,
}

/// Lays out the axes of a panel and the labels of its reference lines. A line outside the axes has no label.
pub(super) fn lay_out(xy: &Xy, width: f64, height: f64, has_title: bool) -> (Axes, Vec<Option<Place>>) {
    let widest = xy.lines.iter().map(|line| text_width(&line.label, SIZE)).fold(0.0, f64::max);
    let is_outside = !xy.lines.is_empty() && widest <= MOST * width;
    let margin = if is_outside { widest + GAP + 4.0 } else { RIGHT_MARGIN };
    let axes = Axes::new(xy, width, height, has_title, margin);
    let mut rows: Vec<(usize, f64)> =
        xy.lines.iter().enumerate().filter_map(|(i, line)| Some((i, axes.row(line.value)?))).collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places = vec![None; xy.lines.len()];
    let mut free_from = f64::NEG_INFINITY;
    for (i, row) in rows {
        let (x, y, anchor) = match is_outside {
            true => (axes.frame.right + GAP, row + 4.0, Anchor::Start),
            false => (axes.frame.right - 2.0, row - 5.0, Anchor::End),
        };
        let y = y.max(free_from);
        free_from = y + LEADING;
        places[i] = Some(Place { x, y, anchor });
    }
    (axes, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Ink, ReferenceLine, Series, Unit};

    #[test]
    fn labels_do_not_cover_each_other() {
        let line = |value: f64| ReferenceLine { value, label: "base model".into(), ink: Ink::Muted };
        let mut xy = Xy {
            x: Axis::new("Generations", Unit::Count).from(0.0),
            y: Axis::new("pass@8", Unit::Percent).from(0.0),
            series: vec![Series::line("", Ink::Series(0), vec![(0.0, 0.18), (1.0, 0.16)])],
            lines: vec![line(0.18), line(0.181)],
        };
        for anchor in [Anchor::Start, Anchor::End] {
            let (axes, places) = lay_out(&xy, 460.0, 300.0, true);
            let places: Vec<Place> = places.into_iter().flatten().collect();
            assert!((places[0].y - places[1].y).abs() >= 12.0, "{places:?}");
            let is_outside = |place: &Place| place.x > axes.frame.right;
            assert!(places.iter().all(|p| p.anchor == anchor && is_outside(p) == (anchor == Anchor::Start)));
            // These labels are too wide for the margin.
            xy.lines[0].label = "base model ".repeat(9);
        }
    }
}
