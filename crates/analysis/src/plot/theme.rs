//! Colours: the palette of Okabe and Ito, which is suitable for all kinds of colour vision, slightly darkened for thin lines
//! on white and lightened for a dark background.

/// A colour by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ink {
    /// The n-th series.
    Series(usize),
    /// Titles and important numbers.
    Text,
    /// Axis labels and ticks.
    Muted,
    /// Grid lines.
    Grid,
    /// Axis lines.
    Axis,
    /// The background.
    Paper,
}

/// The light and dark values of a colour and the name of its CSS variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shade {
    /// Name of the CSS variable, without dashes. The classes `f…` (fill) and `k…` (stroke) contain it too.
    pub name: &'static str,
    /// Colour of the light theme.
    pub light: &'static str,
    /// Colour of the dark theme.
    pub dark: &'static str,
}

const fn shade(name: &'static str, light: &'static str, dark: &'static str) -> Shade {
    Shade { name, light, dark }
}

const SERIES: [Shade; 8] = [
    shade("s0", "#0072b2", "#4aa8e0"),
    shade("s1", "#d55e00", "#ff8f4a"),
    shade("s2", "#009e73", "#2fc99b"),
    shade("s3", "#b5548f", "#e596c3"),
    shade("s4", "#d99a00", "#f0b93f"),
    shade("s5", "#3f97c9", "#9bd4f5"),
    shade("s6", "#55595f", "#c4c8cd"),
    shade("s7", "#7b5b1f", "#c9a75f"),
];

const OTHERS: [Shade; 5] = [
    shade("text", "#1a1c1f", "#eceef0"),
    shade("muted", "#5d636b", "#a3a9b1"),
    shade("grid", "#e4e6ea", "#33373d"),
    shade("axis", "#9aa0a8", "#6b7179"),
    shade("paper", "#ffffff", "#16181c"),
];

/// Number of colours for series. Further series repeat the colours with other dash patterns.
pub const SERIES_COLOURS: usize = SERIES.len();

impl Ink {
    /// Returns the values of the colour.
    pub fn shade(self) -> Shade {
        let other = match self {
            Ink::Series(i) => return SERIES[i % SERIES.len()],
            Ink::Text => 0,
            Ink::Muted => 1,
            Ink::Grid => 2,
            Ink::Axis => 3,
            Ink::Paper => 4,
        };
        OTHERS[other]
    }

    /// Returns the dash pattern of solid lines, which distinguishes series beyond the palette.
    pub(super) fn dashes(self) -> Option<&'static str> {
        // Round caps make each dash longer by the width of the line.
        const PATTERNS: [&str; 4] = ["2 5", "8 6", "8 5 1 5", "14 6"];
        match self {
            Ink::Series(i) => Some(PATTERNS[(i / SERIES.len()).checked_sub(1)? % PATTERNS.len()]),
            _ => None,
        }
    }
}

/// Returns all colours.
pub fn shades() -> impl Iterator<Item = Shade> {
    SERIES.into_iter().chain(OTHERS)
}

/// Returns the CSS variables of the light or dark theme as declarations.
pub fn variables(dark: bool) -> String {
    shades().map(|s| format!("--{}:{};", s.name, if dark { s.dark } else { s.light })).collect()
}

/// Returns the CSS rules that assign the variables to the classes of a figure.
pub fn class_rules() -> String {
    shades().map(|s| format!("svg .f{0}{{fill:var(--{0})}}svg .k{0}{{stroke:var(--{0})}}", s.name)).collect()
}

/// Returns the CSS of a standalone figure, with the dark values for viewers that prefer a dark theme. The light values are in
/// attributes, for programs without CSS.
pub(super) fn standalone_style() -> String {
    let rules: String =
        shades().map(|s| format!(".f{0}{{fill:{1}}}.k{0}{{stroke:{1}}}", s.name, s.dark)).collect();
    format!("@media (prefers-color-scheme: dark){{{rules}}}")
}
