//! Figures as plain data, and how they become SVG, PNG and CSV.
//!
//! A figure is made of panels; a panel of series. Rendering knows nothing of runs: `crate::figures` fills these types.

mod bars;
mod compose;
mod csv;
mod heatmap;
mod hover;
mod legend;
#[cfg(feature = "png")]
mod png;
mod scale;
mod svg;
pub mod theme;
mod xy;

pub(crate) use compose::swatch_svg;
pub use compose::{panel_svg, standalone_svg};
pub use csv::write_csv;
pub use hover::hover_json;
pub use legend::{Entry, entries};
#[cfg(feature = "png")]
pub use png::{PngError, write_png};
pub use scale::{Scale, Unit, format_value, parse_value};
pub(crate) use svg::with_subscripts;
pub use svg::{Svg, escape, text_width};
pub use theme::Ink;

/// A figure: one or more panels under one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// File name without extension, and anchor in the report.
    pub id: String,
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Panels in reading order.
    pub panels: Vec<Panel>,
}

/// One coordinate system of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// A few words above the panel; may be empty.
    pub title: String,
    /// How much room it takes.
    pub shape: Shape,
    /// What is drawn.
    pub content: Content,
}

/// How much room a panel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Half of the page's width.
    Half,
    /// Half of the page's width and about as high.
    Square,
    /// The whole width.
    Wide,
}

/// What a panel draws.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Curves over a numeric axis.
    Xy(Xy),
    /// Bars over categories.
    Bars(Bars),
    /// Rows of cells over rounds.
    Heatmap(Heatmap),
}

/// Curves over a numeric axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Xy {
    pub x: Axis,
    pub y: Axis,
    /// Curves, the last on top.
    pub series: Vec<Series>,
    pub lines: Vec<ReferenceLine>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit where the numbers do not show it.
    pub label: String,
    /// How numbers are written.
    pub unit: Unit,
    /// Whether the scale is logarithmic.
    pub log: bool,
    /// Lower and upper end where the data should not decide them.
    pub fixed: (Option<f64>, Option<f64>),
}

impl Axis {
    /// A linear axis whose ends the data decide.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, log: false, fixed: (None, None) }
    }

    /// The same axis starting at `low`.
    #[must_use]
    pub fn from(mut self, low: f64) -> Self {
        self.fixed.0 = Some(low);
        self
    }

    /// The same axis ending at `high`.
    #[must_use]
    pub fn to(mut self, high: f64) -> Self {
        self.fixed.1 = Some(high);
        self
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A solid line.
    Line,
    /// A thin dashed line: a model, not an observation.
    Fit,
    /// Points without a line.
    Points,
    /// A thin, pale line behind others; in no legend.
    Faint,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend; series of one name share an entry.
    pub name: String,
    pub ink: Ink,
    /// How it is drawn.
    pub style: Style,
    /// Points in order of x; those that are not finite break the line.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper end of a band at each point, or empty.
    pub band: Vec<(f64, f64)>,
}

impl Series {
    /// A solid line.
    pub fn line(name: impl Into<String>, ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, style: Style::Line, points, band: Vec::new() }
    }
}

/// A horizontal line with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceLine {
    pub value: f64,
    /// What it stands for.
    pub label: String,
    pub ink: Ink,
}

/// Bars over categories, one group per category, one bar per series.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The categories' meaning.
    pub x_label: String,
    pub categories: Vec<String>,
    pub y: Axis,
    /// One value per category each.
    pub series: Vec<BarSeries>,
    /// Whether bars stand on each other instead of side by side.
    pub stacked: bool,
}

/// Bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// Name in the legend.
    pub name: String,
    pub ink: Ink,
    /// A value per category; those that are not finite are left out.
    pub values: Vec<f64>,
    /// Half the length of each bar's whisker, or empty; those that are not finite are left out.
    pub errors: Vec<f64>,
}

impl BarSeries {
    /// Bars without whiskers.
    pub fn new(name: impl Into<String>, ink: Ink, values: Vec<f64>) -> Self {
        Self { name: name.into(), ink, values, errors: Vec::new() }
    }
}

/// Rows of cells over rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// The horizontal axis' meaning.
    pub x_label: String,
    /// The vertical axis' meaning.
    pub y_label: String,
    /// First round and one past the last.
    pub span: (u32, u32),
    /// Rows from top to bottom.
    pub rows: Vec<HeatRow>,
    /// Names of the two kinds of cells: yes, no.
    pub names: (String, String),
}

/// One row of a heatmap.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatRow {
    /// What the row stands for.
    pub name: String,
    /// First round of the first cell.
    pub start: u32,
    /// Cell by cell: yes, no, or nothing there.
    pub cells: Vec<Option<bool>>,
}
