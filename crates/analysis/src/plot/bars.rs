//! Bar charts.

use super::axes::{Frame, TICK_SIZE};
use super::scale::{Scale, format_value, nice_range};
use super::svg::{Anchor, Svg, TextStyle, num, text_width};
use super::theme::Ink;
use super::xy::{draw_y_axis, panel_title, x_label};
use super::{Bars, svg::Stroke};

pub(super) fn draw(svg: &mut Svg, bars: &Bars, title: &str, width: f64, height: f64) {
    let (low, high) = nice_range(0.0, highest(bars), (Some(bars.y.fixed.0.unwrap_or(0.0)), bars.y.fixed.1));
    let mut y = Scale { low, high, from: 0.0, to: 0.0 };
    let widest = y.labelled_ticks(5, bars.y.unit).into_iter().map(|(_, text)| text_width(&text, TICK_SIZE));
    let widest = widest.fold(0.0, f64::max);
    let mut frame = Frame::new(width, height, !title.is_empty(), widest, !bars.y.label.is_empty());
    let slot = frame.width() / bars.categories.len().max(1) as f64;
    let is_slanted =
        bars.categories.iter().any(|c| text_width(c, TICK_SIZE) > slot - 3.0) && bars.categories.len() < 40;
    let every = label_stride(bars, slot);
    if is_slanted && every > 1 && !are_numbers(bars) {
        frame.bottom -= 44.0;
    }
    (y.from, y.to) = (frame.bottom, frame.top);
    panel_title(svg, title);
    draw_y_axis(svg, &frame, &y, &bars.y);
    draw_bars(svg, bars, &frame, &y, slot);
    svg.stroke(
        &format!("M{} {}H{}", num(frame.left), num(frame.bottom), num(frame.right)),
        Stroke::solid(Ink::Axis, 1.0),
    );
    draw_categories(svg, bars, &frame, slot, every);
    let labelled = Frame { bottom: height - 44.0, ..frame };
    x_label(svg, &labelled, &bars.x_label);
}

fn are_numbers(bars: &Bars) -> bool {
    bars.categories.iter().all(|c| c.chars().next().is_some_and(|c| c.is_ascii_digit()))
}

/// Returns the number of categories per label at which labels do not overlap.
fn label_stride(bars: &Bars, slot: f64) -> usize {
    let widest = bars.categories.iter().map(|c| text_width(c, TICK_SIZE)).fold(0.0, f64::max);
    let least = (((widest + 6.0) / slot.max(1.0)).ceil() as usize).max(1);
    // Numeric labels have round distances.
    let round = [1, 2, 5, 10, 20, 50, 100].into_iter().find(|s| *s >= least).unwrap_or(least);
    if are_numbers(bars) { round } else { least }
}

fn highest(bars: &Bars) -> f64 {
    (0..bars.categories.len())
        .map(|i| bars.series.iter().filter_map(|s| s.values.get(i)).filter(|v| v.is_finite()).sum::<f64>())
        .fold(0.0, f64::max)
}

const WIDEST_BAR: f64 = 44.0;

fn draw_bars(svg: &mut Svg, bars: &Bars, frame: &Frame, y: &Scale, slot: f64) {
    let gap = (slot * 0.18).max(slot - WIDEST_BAR);
    for (i, category) in bars.categories.iter().enumerate() {
        let mut base = 0.0;
        for series in &bars.series {
            let Some(value) = series.values.get(i).copied().filter(|v| v.is_finite()) else { continue };
            let x = frame.left + i as f64 * slot + gap / 2.0;
            let (from, to) = (base, base + value);
            base += value;
            let (from, to) = (y.pixel(from.max(y.low)), y.pixel(to.clamp(y.low, y.high)));
            let text = format!("{}, {category}: {}", series.name, format_value(value, bars.y.unit, 4));
            svg.rect(x, to.min(from), slot - gap, (from - to).abs(), series.ink, Some(&text));
        }
    }
}

fn draw_categories(svg: &mut Svg, bars: &Bars, frame: &Frame, slot: f64, every: usize) {
    let slant = every > 1 && !are_numbers(bars) && bars.categories.len() < 40;
    for (i, category) in bars.categories.iter().enumerate() {
        let x = frame.left + (i as f64 + 0.5) * slot;
        if slant {
            let style = TextStyle { size: 11.0, bold: false, ink: Ink::Muted, anchor: Anchor::End };
            let mut inner = Svg::new();
            inner.text(0.0, 0.0, category, style);
            svg.raw(&format!(
                r#"<g transform="translate({} {}) rotate(-38)">"#,
                num(x + 4.0),
                num(frame.bottom + 13.0)
            ));
            svg.raw(&inner.finish());
            svg.raw("</g>");
        } else if i % every == 0 {
            let style = TextStyle { size: TICK_SIZE, bold: false, ink: Ink::Muted, anchor: Anchor::Middle };
            svg.text(x, frame.bottom + 18.0, category, style);
        }
    }
}
