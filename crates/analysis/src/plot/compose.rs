//! Panels become SVG documents: one each for a page, all together for a file.

use super::legend::{self, Entry, entries};
use super::svg::{Anchor, Svg, TextStyle, num};
use super::theme::{Ink, standalone_style};
use super::{Content, Figure, Panel, Shape, bars, heatmap, xy};

const FONTS: &str = "Inter, Helvetica, Arial, sans-serif";
const NARROW: f64 = 460.0;
const WIDE: f64 = 940.0;
const GUTTER: f64 = 20.0;

/// Width and height of a panel in its own units; on a narrow screen a wide panel is drawn like any other.
pub(super) fn size(panel: &Panel, narrow: bool) -> (f64, f64) {
    match panel.shape {
        Shape::Wide if !narrow => (WIDE, 400.0),
        Shape::Half | Shape::Wide => (NARROW, 300.0),
        Shape::Square => (NARROW, 460.0),
    }
}

fn draw_panel(svg: &mut Svg, panel: &Panel, width: f64, height: f64) {
    match &panel.content {
        Content::Xy(xy) => xy::draw(svg, xy, &panel.title, width, height),
        Content::Bars(bars) => bars::draw(svg, bars, &panel.title, width, height),
        Content::Heatmap(map) => heatmap::draw(svg, map, &panel.title, width, height),
    }
}

/// One SVG element for a page, to be coloured by the page's variables (`theme::class_rules`).
pub fn panel_svg(panel: &Panel, narrow: bool) -> String {
    let (width, height) = size(panel, narrow);
    let mut svg = Svg::new();
    draw_panel(&mut svg, panel, width, height);
    format!(
        r#"<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-family="{FONTS}">{}</svg>"#,
        num(width),
        num(height),
        super::escape(&panel.title),
        svg.finish()
    )
}

/// A legend entry's sign as an SVG element for a page.
pub(crate) fn swatch_svg(entry: &Entry) -> String {
    let mut svg = Svg::new();
    legend::draw_swatch(&mut svg, entry, 0.0, 7.0);
    format!(r#"<svg class="swatch" viewBox="0 0 22 14" aria-hidden="true">{}</svg>"#, svg.finish())
}

/// The whole figure as an SVG file: light colours in the attributes (what print and other programs see), dark ones
/// by a media query.
pub fn standalone_svg(figure: &Figure) -> String {
    let mut svg = Svg::new();
    let legend = entries(figure);
    let single = figure.panels.len() == 1 && figure.panels.iter().all(|p| p.shape != Shape::Wide);
    let full = if single { NARROW } else { WIDE };
    let mut y = 10.0 + 16.0;
    let title = TextStyle { size: 15.0, bold: true, ink: Ink::Text, anchor: Anchor::Start };
    svg.text(12.0, y, &figure.title, title);
    y += 10.0;
    legend::draw(&mut svg, &legend, 12.0, y, full - 24.0);
    y += legend::height(&legend, full - 24.0) + 6.0;
    for row in rows(&figure.panels) {
        let mut x = 0.0;
        let mut tallest: f64 = 0.0;
        for panel in row {
            let (width, height) = size(panel, false);
            svg.raw(&format!(r#"<g transform="translate({} {})">"#, num(x), num(y)));
            draw_panel(&mut svg, panel, width, height);
            svg.raw("</g>");
            x += width + GUTTER;
            tallest = tallest.max(height);
        }
        y += tallest + 6.0;
    }
    let mut paper = Svg::new();
    paper.rect(0.0, 0.0, full, y, Ink::Paper, None);
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" "#,
            r#"font-family="{2}"><style>{3}</style><title>{4}</title>{5}{6}</svg>"#,
            "\n"
        ),
        num(full),
        num(y),
        FONTS,
        standalone_style(),
        super::escape(&figure.title),
        paper.finish(),
        svg.finish()
    )
}

/// Panels in rows of two; a wide one has its row alone.
fn rows(panels: &[Panel]) -> Vec<Vec<&Panel>> {
    let mut rows: Vec<Vec<&Panel>> = Vec::new();
    for panel in panels {
        match rows.last_mut() {
            Some(row)
                if row.len() == 1
                    && panel.shape != Shape::Wide
                    && row.iter().all(|p| p.shape != Shape::Wide) =>
            {
                row.push(panel)
            }
            _ => rows.push(vec![panel]),
        }
    }
    rows
}
