//! Layout of the axes of a panel.

use super::scale::{Scale, Unit, nice_range};
use super::svg::text_width;
use super::{Axis, Xy};

pub(super) const TICK_SIZE: f64 = 12.0;
pub(super) const LABEL_SIZE: f64 = 12.5;
pub(super) const RIGHT_MARGIN: f64 = 16.0;

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
}

/// Axes of a panel with curves, for drawing and for finding the values under the pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    pub frame: Frame,
    pub x: Scale,
    pub y: Scale,
}

impl Axes {
    /// Lays out the axes of a panel next to a right margin.
    pub fn new(xy: &Xy, width: f64, height: f64, has_title: bool, margin: f64) -> Self {
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
        let frame = Frame { right: width - margin, ..frame };
        (y.from, y.to) = (frame.bottom, frame.top);
        let x = Scale { low: x_low, high: x_high, from: frame.left, to: frame.right };
        Self { frame, x, y }
    }

    /// Returns the vertical position of a value, or `None` if it is outside the axes.
    pub fn row(&self, value: f64) -> Option<f64> {
        let row = self.y.pixel(value);
        (self.frame.top - 0.5..=self.frame.bottom + 0.5).contains(&row).then_some(row)
    }
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
    let ends = nice_range(low, high, fixed);
    // A share is never outside of 0 to 100%.
    let is_share = axis.unit == Unit::Percent && low >= 0.0 && high <= 1.0;
    if is_share { (ends.0.max(0.0), ends.1.min(1.0)) } else { ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_shares_ends_at_100_percent() {
        let ends = |unit| range(&Axis::new("", unit), 1.0, 1.0, (None, None));
        assert_eq!((ends(Unit::Percent).1, ends(Unit::Plain).1 > 1.0), (1.0, true));
    }
}
