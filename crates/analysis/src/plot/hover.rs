//! Data for the page's script, which shows the values under the pointer.

use super::compose::size;
use super::labels::lay_out;
use super::theme::Ink;
use super::{Axis, FigurePanel, PanelContent, Scale, SeriesStyle, Unit};
use serde_json::{Value, json};

/// Returns the axes and points of a panel with curves as JSON, or `None` for other panels, whose shapes have tooltips. A wide
/// panel has the frames of both its drawings.
pub fn hover_json(panel: &FigurePanel) -> Option<String> {
    let PanelContent::Xy(xy) = &panel.content else { return None };
    let frame = |narrow: bool| {
        let (width, height) = size(panel, narrow);
        let f = lay_out(xy, width, height, !panel.title.is_empty()).0.frame;
        json!({"w": width, "f": [f.left, f.top, f.right, f.bottom]})
    };
    let (width, height) = size(panel, false);
    let (axes, _) = lay_out(xy, width, height, !panel.title.is_empty());
    let series: Vec<Value> = xy
        .series
        .iter()
        .filter(|s| s.style != SeriesStyle::Faint)
        .map(|s| {
            let mut value = json!({
                "n": s.name,
                "c": class(s.ink),
                "x": s.points.iter().map(|p| short(p.0)).collect::<Vec<_>>(),
                "y": s.points.iter().map(|p| short(p.1)).collect::<Vec<_>>(),
            });
            if s.band.len() == s.points.len() && !s.band.is_empty() {
                value["l"] = s.band.iter().map(|b| short(b.0)).collect();
                value["h"] = s.band.iter().map(|b| short(b.1)).collect();
            }
            value
        })
        .collect();
    let axis = |scale: &Scale, axis: &Axis| json!({"a": scale.low, "b": scale.high, "u": unit_name(axis.unit), "t": axis.label});
    let out = json!({
        "full": frame(false),
        "narrow": frame(true),
        "x": axis(&axes.x, &xy.x),
        "y": axis(&axes.y, &xy.y),
        "s": series,
    });
    Some(for_script(&out))
}

/// Serialises JSON for a `<script>` element. `<` is escaped, so that it cannot end the element.
fn for_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn class(ink: Ink) -> &'static str {
    ink.shade().name
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Plain => "n",
        Unit::Percent => "p",
        Unit::Count => "c",
        Unit::Duration => "d",
    }
}

/// Rounds to five significant digits. A number that is not finite becomes `null`.
fn short(value: f64) -> Option<f64> {
    value.is_finite().then(|| format!("{value:.4e}").parse().unwrap_or(value))
}
