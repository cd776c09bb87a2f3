//! Colours: Okabe and Ito's palette, which people with any kind of colour vision can tell apart, darkened a little for
//! thin lines on white and lightened for a dark ground.

/// A colour by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ink {
    /// The n-th series.
    Series(usize),
    /// Titles and numbers that matter.
    Text,
    /// Axis labels and ticks.
    Muted,
    /// Grid lines.
    Grid,
    /// Axis lines.
    Axis,
    /// The ground.
    Paper,
    /// A cell that says yes.
    Yes,
    /// A cell that says no.
    No,
}

/// Light and dark value of one colour and the name of its CSS variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shade {
    /// Name of the CSS variable, without dashes, and of the classes `f…` (fill) and `k…` (stroke).
    pub name: &'static str,
    pub light: &'static str,
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

const OTHERS: [Shade; 7] = [
    shade("text", "#1a1c1f", "#eceef0"),
    shade("muted", "#5d636b", "#a3a9b1"),
    shade("grid", "#e4e6ea", "#33373d"),
    shade("axis", "#9aa0a8", "#6b7179"),
    shade("paper", "#ffffff", "#16181c"),
    shade("yes", "#009e73", "#2fc99b"),
    shade("no", "#f3c9a5", "#5a3a24"),
];

/// Number of colours for series; further ones repeat them with another dash pattern.
pub const SERIES_COLOURS: usize = SERIES.len();

impl Ink {
    /// The colour's values.
    pub fn shade(self) -> Shade {
        let other = match self {
            Ink::Series(i) => return SERIES[i % SERIES.len()],
            Ink::Text => 0,
            Ink::Muted => 1,
            Ink::Grid => 2,
            Ink::Axis => 3,
            Ink::Paper => 4,
            Ink::Yes => 5,
            Ink::No => 6,
        };
        OTHERS[other]
    }

    /// Dash pattern of a solid line of this colour: series beyond the palette are told apart by it.
    pub(super) fn dashes(self) -> Option<&'static str> {
        // Round ends make each dash as much longer as the line is wide.
        const PATTERNS: [&str; 4] = ["2 5", "8 6", "8 5 1 5", "14 6"];
        match self {
            Ink::Series(i) => Some(PATTERNS[(i / SERIES.len()).checked_sub(1)? % PATTERNS.len()]),
            _ => None,
        }
    }
}

/// Every colour.
pub fn shades() -> impl Iterator<Item = Shade> {
    SERIES.into_iter().chain(OTHERS)
}

/// CSS variables of the light theme, or of the dark one, as declarations.
pub fn variables(dark: bool) -> String {
    shades().map(|s| format!("--{}:{};", s.name, if dark { s.dark } else { s.light })).collect()
}

/// CSS rules that tie the classes of a figure to the variables.
pub fn class_rules() -> String {
    shades().map(|s| format!("svg .f{0}{{fill:var(--{0})}}svg .k{0}{{stroke:var(--{0})}}", s.name)).collect()
}

/// CSS of a figure in a file of its own: the dark values where the viewer prefers dark. The light ones stand in the
/// attributes, so that programs without CSS draw them.
pub(super) fn standalone_style() -> String {
    let rules: String =
        shades().map(|s| format!(".f{0}{{fill:{1}}}.k{0}{{stroke:{1}}}", s.name, s.dark)).collect();
    format!("@media (prefers-color-scheme: dark){{{rules}}}")
}
