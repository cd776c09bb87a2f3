//! Writes SVG shapes and text whose colours are roles.
//!
//! No plotting library is used, because `plotters` and `charming` write fixed colours, which excludes a dark mode by
//! CSS variables, and `charming` needs a JavaScript engine. Little more than string formatting is required here.

use super::theme::Ink;
use std::fmt::Write;

/// Advance widths of Inter Regular for the characters 32 to 126, in thousandths of the font size.
const WIDTHS: [u16; 95] = [
    281, 278, 403, 631, 638, 812, 639, 222, 362, 362, 500, 659, 280, 460, 276, 357, 625, 464, 605, 636, 642,
    608, 624, 571, 616, 624, 276, 280, 659, 659, 659, 507, 936, 676, 651, 727, 719, 598, 587, 743, 740, 264,
    543, 652, 562, 889, 753, 761, 635, 761, 639, 638, 642, 741, 676, 949, 642, 665, 625, 362, 357, 362, 469,
    452, 497, 564, 621, 558, 621, 582, 361, 609, 591, 237, 237, 544, 237, 869, 585, 597, 609, 609, 372, 523,
    364, 581, 557, 812, 540, 557, 541, 362, 327, 362, 659,
];

/// Estimates the width of `text` at a font size.
pub fn text_width(text: &str, size: f64) -> f64 {
    let thousandths: u32 = text
        .chars()
        .map(|c| {
            let index = (c as usize).wrapping_sub(32);
            WIDTHS.get(index).map_or(620, |w| u32::from(*w))
        })
        .sum();
    f64::from(thousandths) * size / 1000.0
}

/// Escapes text for XML and HTML. Control characters become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Horizontal alignment of text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// Style of text.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Font size, px.
    pub size: f64,
    /// Whether the text is bold.
    pub bold: bool,
    /// Colour.
    pub ink: Ink,
    /// Alignment.
    pub anchor: Anchor,
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    /// Colour.
    pub ink: Ink,
    /// Width, px.
    pub width: f64,
    /// Dash pattern.
    pub dashes: Option<&'static str>,
}

impl Stroke {
    /// Creates the stroke of a solid line.
    pub fn solid(ink: Ink, width: f64) -> Self {
        Self { ink, width, dashes: None }
    }
}

/// SVG elements in drawing order.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    body: String,
}

impl Svg {
    /// Creates an empty drawing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the markup of the elements.
    pub fn finish(self) -> String {
        self.body
    }

    /// Appends markup without escaping it.
    pub fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Draws a filled rectangle.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, ink: Ink, tooltip: Option<&str>) {
        let [x, y, width, height] = [x, y, width, height].map(num);
        let fill = filled(ink);
        let end = tooltip.map_or("/>".to_owned(), |text| format!("><title>{}</title></rect>", escape(text)));
        let _ = write!(self.body, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" {fill}{end}"#);
    }

    /// Draws a stroked path.
    pub fn stroke(&mut self, d: &str, stroke: Stroke) {
        if d.is_empty() {
            return;
        }
        let shade = stroke.ink.shade();
        let dashes = stroke.dashes.map_or(String::new(), |d| format!(r#" stroke-dasharray="{d}""#));
        let _ = write!(
            self.body,
            r#"<path d="{d}" fill="none" stroke="{}" class="k{}" stroke-width="{}" stroke-linejoin="round" stroke-linecap="round"{dashes}/>"#,
            shade.light,
            shade.name,
            num(stroke.width)
        );
    }

    /// Draws a filled path with an opacity.
    pub fn fill(&mut self, d: &str, ink: Ink, opacity: f64) {
        if d.is_empty() {
            return;
        }
        let opacity = if opacity < 1.0 { format!(r#" fill-opacity="{opacity}""#) } else { String::new() };
        let _ = write!(self.body, r#"<path d="{d}" {}{opacity}/>"#, filled(ink));
    }

    /// Draws a filled circle.
    pub fn dot(&mut self, x: f64, y: f64, radius: f64, ink: Ink) {
        let [x, y, radius] = [x, y, radius].map(num);
        let _ = write!(self.body, r#"<circle cx="{x}" cy="{y}" r="{radius}" {}/>"#, filled(ink));
    }

    /// Draws a line of text with its baseline at y.
    pub fn text(&mut self, x: f64, y: f64, text: &str, style: TextStyle) {
        self.text_with(&format!(r#"x="{}" y="{}""#, num(x), num(y)), text, style);
    }

    /// Draws a line of text that is rotated by 90 degrees counterclockwise around its point.
    pub fn text_upwards(&mut self, x: f64, y: f64, text: &str, style: TextStyle) {
        self.text_with(&format!(r#"transform="translate({} {}) rotate(-90)""#, num(x), num(y)), text, style);
    }

    /// Draws a line of text with an outline in the background colour.
    pub fn text_with_rim(&mut self, x: f64, y: f64, text: &str, style: TextStyle) {
        let paper = Ink::Paper.shade();
        self.body.push_str(&format!(
            r#"<g stroke="{}" class="k{}" stroke-width="4" stroke-linejoin="round" paint-order="stroke">"#,
            paper.light, paper.name
        ));
        self.text(x, y, text, style);
        self.body.push_str("</g>");
    }

    fn text_with(&mut self, place: &str, text: &str, style: TextStyle) {
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let weight = if style.bold { r#" font-weight="600""# } else { "" };
        let _ = write!(
            self.body,
            r#"<text {place} font-size="{}"{weight}{anchor} {}>{}</text>"#,
            num(style.size),
            filled(style.ink),
            with_subscripts(text, |index| {
                let size = num(0.72 * style.size);
                format!(r#"<tspan font-size="{size}" dy="{}">{index}</tspan>"#, num(0.22 * style.size))
            })
        );
    }
}

/// Returns the attributes of a filled shape: the light colour, and the class of the page's rules.
fn filled(ink: Ink) -> String {
    let shade = ink.shade();
    format!(r#"fill="{}" class="f{}""#, shade.light, shade.name)
}

/// The paper's symbols that have an index.
const SYMBOLS: [&str; 4] = ["R_synth", "R_guide", "R_solve", "C_mid"];

/// Escapes text and formats the indices of the paper's symbols with `index`. Other underscores, which are part of names, are
/// unchanged.
pub(crate) fn with_subscripts(text: &str, index: impl Fn(&str) -> String) -> String {
    let mut out = escape(text);
    for symbol in SYMBOLS {
        if let Some((letter, below)) = symbol.split_once('_') {
            out = out.replace(symbol, &format!("{letter}{}", index(below)));
        }
    }
    out
}

/// Returns the path of a polyline. Points that are not finite interrupt it.
pub(super) fn polyline(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    let mut pen_down = false;
    for (x, y) in points {
        if !(x.is_finite() && y.is_finite()) {
            pen_down = false;
            continue;
        }
        let _ = write!(d, "{}{} {}", if pen_down { "L" } else { "M" }, num(x), num(y));
        pen_down = true;
    }
    d
}

/// Formats a coordinate with at most two decimals.
pub(super) fn num(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_inert() {
        let mut svg = Svg::new();
        let style = TextStyle { size: 12.0, bold: false, ink: Ink::Text, anchor: Anchor::Start };
        svg.text(1.0, 2.0, "<script>alert('x')</script> & \"q\"\u{0}", style);
        let out = svg.finish();
        assert!(
            !out.contains("<script") && out.contains("&lt;script&gt;") && !out.contains('\u{0}'),
            "{out}"
        );
    }

    #[test]
    fn lines_are_interrupted_by_points_that_are_not_finite() {
        let points = [(0.0, 0.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 1.5)];
        assert_eq!(polyline(points.into_iter()), "M0 0M2 1L3 1.5");
    }

    #[test]
    fn indices_are_formatted_and_names_are_unchanged() {
        let set = |text: &str| with_subscripts(text, |index| format!("[{index}]"));
        assert_eq!(set("Mean R_synth & my_run_1"), "Mean R[synth] &amp; my_run_1");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            [num(1.0), num(-0.001), num(2.345), num(f64::NAN)],
            ["1", "0", "2.35", "0"].map(String::from)
        );
    }
}
