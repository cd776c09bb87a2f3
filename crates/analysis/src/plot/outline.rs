//! Converts the text of an SVG to outlines of an embedded font, so that a rasteriser needs no fonts.

use super::svg::num;
use std::fmt::Write as _;
use ttf_parser::{Face, OutlineBuilder};

/// The regular and the semi-bold face of Inter.
pub(super) struct Faces([Face<'static>; 2]);

impl Faces {
    /// Reads the embedded font files.
    #[allow(clippy::expect_used, reason = "the files are part of the program")]
    pub(super) fn embedded() -> Self {
        let files: [&'static [u8]; 2] = [
            include_bytes!("../../assets/Inter-Regular.otf"),
            include_bytes!("../../assets/Inter-SemiBold.otf"),
        ];
        Self(files.map(|file| Face::parse(file, 0).expect("invariant: the embedded fonts are valid")))
    }

    /// Replaces each `text` element of `svg` by a `path` element.
    ///
    /// Supports the attributes and the `tspan` elements that [`Svg`](super::svg::Svg) writes.
    pub(super) fn outline(&self, svg: &str) -> Result<String, roxmltree::Error> {
        let document = roxmltree::Document::parse(svg)?;
        let mut out = String::with_capacity(4 * svg.len());
        let mut copied = 0;
        for text in document.descendants().filter(|node| node.has_tag_name("text")) {
            out.push_str(&svg[copied..text.range().start]);
            self.push_path(&mut out, text);
            copied = text.range().end;
        }
        out.push_str(&svg[copied..]);
        Ok(out)
    }

    fn push_path(&self, out: &mut String, text: roxmltree::Node) {
        let number =
            |node: roxmltree::Node, name| node.attribute(name).and_then(|value| value.parse::<f32>().ok());
        let face = &self.0[usize::from(text.has_attribute("font-weight"))];
        let size = number(text, "font-size").unwrap_or(16.0);
        let mut pen = Pen { path: String::new(), x: 0.0, y: 0.0, scale: 0.0 };
        for part in text.children() {
            let (inner, size) = if part.is_element() {
                pen.y += number(part, "dy").unwrap_or(0.0);
                (part.text(), number(part, "font-size").unwrap_or(size))
            } else {
                (part.text(), size)
            };
            pen.write(face, inner.unwrap_or_default(), size);
        }
        let start = match text.attribute("text-anchor") {
            Some("middle") => -pen.x / 2.0,
            Some("end") => -pen.x,
            _ => 0.0,
        };
        let x = number(text, "x").unwrap_or(0.0);
        let y = number(text, "y").unwrap_or(0.0);
        out.push_str("<path");
        for name in ["fill", "class"] {
            if let Some(value) = text.attribute(name) {
                let _ = write!(out, r#" {name}="{value}""#);
            }
        }
        let outer = text.attribute("transform").unwrap_or_default();
        let shift = format!("translate({} {})", num((x + start).into()), num(y.into()));
        let _ = write!(out, r#" transform="{outer} {shift}" d="{}"/>"#, pen.path);
    }
}

/// Writes glyphs as path data. Its position is the origin of the next glyph; font units times `scale` are SVG units.
struct Pen {
    path: String,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen {
    fn write(&mut self, face: &Face, text: &str, size: f32) {
        self.scale = size / f32::from(face.units_per_em());
        for c in text.chars() {
            // Glyph 0 shows that the font lacks the character.
            let glyph = face.glyph_index(c).unwrap_or_default();
            face.outline_glyph(glyph, self);
            self.x += f32::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * self.scale;
        }
    }

    fn push(&mut self, command: char, points: &[(f32, f32)]) {
        self.path.push(command);
        for &(x, y) in points {
            // The y axis of a font points upwards.
            let _ = write!(self.path, " {:.3} {:.3}", self.x + x * self.scale, self.y - y * self.scale);
        }
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.push('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.push('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.push('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.push('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.path.push('Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_becomes_a_path_at_its_place() {
        let svg = r#"<svg xmlns="http://www.w3.org/2000/svg"><text x="10" y="20" font-size="12" fill="red">I</text><text transform="translate(1 2) rotate(-90)" font-size="10" font-weight="600" text-anchor="end" class="f">R<tspan font-size="7" dy="2">solve</tspan></text></svg>"#;
        let out = Faces::embedded().outline(svg).unwrap();
        assert!(!out.contains("<text") && !out.contains("<tspan"), "{out}");
        assert!(out.contains(r#"<path fill="red" transform=" translate(10 20)" d="M"#), "{out}");
        // The end of the text is at the origin of its own transformation: it begins to the left.
        assert!(out.contains(r#"class="f" transform="translate(1 2) rotate(-90) translate(-"#), "{out}");
        roxmltree::Document::parse(&out).unwrap();
    }
}
