//! Figures as plain data, and their rendering as SVG and CSV.
//!
//! A figure consists of panels, and a panel of series. Rendering is independent of runs: `crate::figures` creates these
//! types.

mod axes;
mod bars;
mod compose;
mod csv;
mod hover;
mod labels;
mod legend;
mod scale;
mod svg;
pub mod theme;
mod xy;

pub(crate) use compose::swatch_svg;
pub use compose::{panel_svg, standalone_svg};
pub(crate) use csv::inert;
pub use csv::write_csv;
pub use hover::hover_json;
pub use legend::{LegendEntry, entries};
pub use scale::{Scale, Unit, format_value, grouped, percent};
pub(crate) use svg::with_subscripts;
pub use svg::{Svg, escape, text_width};
pub use theme::Ink;

/// A figure: one or more panels under one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// File name without extension, and anchor in the report.
    pub id: String,
    /// Title.
    pub title: String,
    /// Explanation of the figure.
    pub caption: String,
    /// Panels in reading order.
    pub panels: Vec<FigurePanel>,
}

/// A panel of a figure, with its own coordinate system.
#[derive(Clone, Debug, PartialEq)]
pub struct FigurePanel {
    /// Title above the panel, which may be empty.
    pub title: String,
    /// Size on the page.
    pub shape: PanelShape,
    /// The drawing.
    pub content: PanelContent,
}

/// Size of a panel on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelShape {
    /// Half of the page's width.
    Half,
    /// The full width of the page.
    Wide,
}

/// The drawing in a panel.
#[derive(Clone, Debug, PartialEq)]
pub enum PanelContent {
    /// Curves over a numeric axis.
    Xy(Xy),
    /// Bars over categories.
    Bars(Bars),
}

/// Curves over a numeric axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Xy {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Curves, of which the last is drawn on top.
    pub series: Vec<Series>,
    /// Horizontal lines.
    pub lines: Vec<ReferenceLine>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit if the numbers do not show it.
    pub label: String,
    /// Number format.
    pub unit: Unit,
    /// Lower and upper end, if they are not determined by the data.
    pub fixed: (Option<f64>, Option<f64>),
}

impl Axis {
    /// Creates an axis whose ends are determined by the data.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, fixed: (None, None) }
    }

    /// Fixes the lower end.
    #[must_use]
    pub fn from(mut self, low: f64) -> Self {
        self.fixed.0 = Some(low);
        self
    }
}

/// Drawing style of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesStyle {
    /// A solid line.
    Line,
    /// A thin dashed line, for a model rather than an observation.
    Fit,
    /// A thin, pale line behind the others, without a legend entry.
    Faint,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend. Series with the same name share an entry.
    pub name: String,
    /// Colour.
    pub ink: Ink,
    /// Drawing style.
    pub style: SeriesStyle,
    /// Points in order of x. Points that are not finite interrupt the line.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper end of the band at each point, or empty.
    pub band: Vec<(f64, f64)>,
}

impl Series {
    /// Creates a solid line.
    pub fn line(name: impl Into<String>, ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, style: SeriesStyle::Line, points, band: Vec::new() }
    }

    /// Returns whether each point is marked, because the series has too few for a line to show them.
    pub(super) fn has_few_points(&self) -> bool {
        const FEW: usize = 12;
        self.points.iter().filter(|p| p.0.is_finite() && p.1.is_finite()).count() <= FEW
    }
}

/// A horizontal line with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceLine {
    /// Position on the vertical axis.
    pub value: f64,
    /// Label of the line.
    pub label: String,
    /// Colour.
    pub ink: Ink,
}

/// A bar chart with a stack of one bar per series for each category.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Meaning of the categories.
    pub x_label: String,
    /// Names of the categories.
    pub categories: Vec<String>,
    /// Vertical axis.
    pub y: Axis,
    /// Series, each with one value per category.
    pub series: Vec<BarSeries>,
}

/// Bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// Name in the legend.
    pub name: String,
    /// Colour.
    pub ink: Ink,
    /// One value per category. Values that are not finite are not drawn.
    pub values: Vec<f64>,
}

impl BarSeries {
    /// Creates the bars of a series.
    pub fn new(name: impl Into<String>, ink: Ink, values: Vec<f64>) -> Self {
        Self { name: name.into(), ink, values }
    }
}
