//! Composes SVG documents: one per panel for a page, or one per figure for a file.

use super::legend::{self, LegendEntry, entries};
use super::svg::{Anchor, Svg, TextStyle, num};
use super::theme::{Ink, standalone_style};
use super::{Figure, FigurePanel, PanelContent, PanelShape, bars, xy};

const FONTS: &str = "Inter, Helvetica, Arial, sans-serif";
const NARROW: f64 = 460.0;
const WIDE: f64 = 940.0;
const GUTTER: f64 = 20.0;

/// Returns the width and height of a panel in SVG units. On a narrow screen, a wide panel is as wide as the others.
pub(super) fn size(panel: &FigurePanel, narrow: bool) -> (f64, f64) {
    match panel.shape {
        PanelShape::Wide if !narrow => (WIDE, 400.0),
        PanelShape::Half | PanelShape::Wide => (NARROW, 300.0),
    }
}

fn draw_panel(svg: &mut Svg, panel: &FigurePanel, width: f64, height: f64) {
    match &panel.content {
        PanelContent::Xy(xy) => xy::draw(svg, xy, &panel.title, width, height),
        PanelContent::Bars(bars) => bars::draw(svg, bars, &panel.title, width, height),
    }
}

/// Renders a panel as an SVG element whose colours come from the page's CSS variables (`theme::class_rules`).
/// `label` describes it to screen readers.
pub fn panel_svg(panel: &FigurePanel, label: &str, narrow: bool) -> String {
    let (width, height) = size(panel, narrow);
    let mut svg = Svg::new();
    draw_panel(&mut svg, panel, width, height);
    format!(
        r#"<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-family="{FONTS}">{}</svg>"#,
        num(width),
        num(height),
        super::escape(label),
        svg.finish()
    )
}

/// Renders the symbol of a legend entry as an SVG element for a page.
pub(crate) fn swatch_svg(entry: &LegendEntry) -> String {
    let mut svg = Svg::new();
    legend::draw_swatch(&mut svg, entry, 0.0, 7.0);
    format!(r#"<svg class="swatch" viewBox="0 0 22 14" aria-hidden="true">{}</svg>"#, svg.finish())
}

/// Renders a figure as an SVG file. Light colours are in attributes, for print and other programs; dark colours are in a
/// media query.
pub fn standalone_svg(figure: &Figure) -> String {
    let mut svg = Svg::new();
    let legend = entries(figure);
    let single = figure.panels.len() == 1 && figure.panels.iter().all(|p| p.shape != PanelShape::Wide);
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

/// Arranges panels in rows of two. A wide panel has a row to itself.
fn rows(panels: &[FigurePanel]) -> Vec<Vec<&FigurePanel>> {
    let mut rows: Vec<Vec<&FigurePanel>> = Vec::new();
    for panel in panels {
        match rows.last_mut() {
            Some(row)
                if row.len() == 1
                    && panel.shape != PanelShape::Wide
                    && row.iter().all(|p| p.shape != PanelShape::Wide) =>
            {
                row.push(panel)
            }
            _ => rows.push(vec![panel]),
        }
    }
    rows
}
