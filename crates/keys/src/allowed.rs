//! Allowed values of a configuration key, as data: `--explain` prints them, the check enforces them, and tests try their
//! limits.

use std::fmt;
use std::ops::RangeInclusive;

/// The allowed values of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Switch,
    /// One of a few names.
    Names(&'static [&'static str]),
    /// An integer in an inclusive range.
    Whole {
        /// The minimum.
        low: u64,
        /// The maximum.
        high: u64,
    },
    /// A real number in a range.
    Real {
        /// The lower end.
        low: RangeEnd,
        /// The upper end.
        high: RangeEnd,
    },
    /// A name, or an integer in an inclusive range.
    NameOrWhole {
        /// The name.
        name: &'static str,
        /// The minimum number.
        low: u64,
        /// The maximum.
        high: u64,
    },
    /// A list of some of a few names.
    ListOf(&'static [&'static str]),
    /// Text or a list, described by a phrase.
    Text(&'static str),
    /// Text, or a table of texts, described by a phrase.
    TextOrTable(&'static str),
}

/// One end of a range of real numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeEnd {
    /// The number.
    pub at: f64,
    /// Whether the number itself is allowed.
    pub included: bool,
}

/// A range of real numbers without its upper end yet. See [`above`] and [`at_least`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeStart(RangeEnd);

/// Starts a range of numbers greater than `at`.
pub const fn above(at: f64) -> RangeStart {
    RangeStart(RangeEnd { at, included: false })
}

/// Starts a range of numbers greater than or equal to `at`.
pub const fn at_least(at: f64) -> RangeStart {
    RangeStart(RangeEnd { at, included: true })
}

impl RangeStart {
    /// Completes the range with numbers less than `at`.
    pub const fn below(self, at: f64) -> Allowed {
        Allowed::Real { low: self.0, high: RangeEnd { at, included: false } }
    }

    /// Completes the range with numbers less than or equal to `at`.
    pub const fn at_most(self, at: f64) -> Allowed {
        Allowed::Real { low: self.0, high: RangeEnd { at, included: true } }
    }
}

impl Allowed {
    /// Returns true if an integer is allowed.
    pub fn admits_whole(&self, number: u64) -> bool {
        match *self {
            Allowed::Whole { low, high } | Allowed::NameOrWhole { low, high, .. } => {
                (low..=high).contains(&number)
            }
            _ => false,
        }
    }

    /// Returns true if a real number is allowed. NaN never is.
    pub fn admits_real(&self, number: f64) -> bool {
        let Allowed::Real { low, high } = *self else { return false };
        let above = number > low.at || (low.included && number == low.at);
        let below = number < high.at || (high.included && number == high.at);
        above && below
    }

    /// Returns true if a text is allowed. Free text always is; its consumer checks it.
    pub fn admits_text(&self, text: &str) -> bool {
        match self {
            Allowed::Names(names) => names.contains(&text),
            Allowed::NameOrWhole { name, .. } => *name == text,
            Allowed::Text(_) | Allowed::TextOrTable(_) => true,
            _ => false,
        }
    }
}

impl From<RangeInclusive<u64>> for Allowed {
    fn from(range: RangeInclusive<u64>) -> Self {
        Allowed::Whole { low: *range.start(), high: *range.end() }
    }
}

impl<const N: usize> From<&'static [&'static str; N]> for Allowed {
    fn from(names: &'static [&'static str; N]) -> Self {
        Allowed::Names(names)
    }
}

impl From<&'static str> for Allowed {
    fn from(sentence: &'static str) -> Self {
        Allowed::Text(sentence)
    }
}

/// Formats the allowed values, such as `an integer from 1 to 1024`, `a number above 0, below 1` or `cpu, cuda`.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Switch => f.write_str("true or false"),
            Allowed::Names(names) => f.write_str(&names.join(", ")),
            Allowed::ListOf(names) => write!(f, "a list of {}", names.join(", ")),
            Allowed::Whole { low, high } => write!(f, "an integer from {low} to {high}"),
            Allowed::NameOrWhole { name, low, high } => {
                write!(f, "\"{name}\", or an integer from {low} to {high}")
            }
            Allowed::Text(sentence) | Allowed::TextOrTable(sentence) => f.write_str(sentence),
            Allowed::Real { low, high } => match (low.included, high.included) {
                (true, true) => write!(f, "a number from {} to {}", low.at, high.at),
                (true, false) => write!(f, "a number from {}, below {}", low.at, high.at),
                (false, true) => write!(f, "a number above {}, at most {}", low.at, high.at),
                (false, false) => write!(f, "a number above {}, below {}", low.at, high.at),
            },
        }
    }
}

#[cfg(test)]
mod tests;
