//! What a key may be, as data: `--explain` prints it, the check enforces it, the tests try its ends.

use std::fmt;
use std::ops::RangeInclusive;

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Switch,
    /// One of a few names.
    Names(&'static [&'static str]),
    /// A whole number, both ends included.
    Whole {
        /// The least.
        low: u64,
        /// The greatest.
        high: u64,
    },
    /// A number.
    Real {
        /// The lower end.
        low: End,
        /// The upper end.
        high: End,
    },
    /// A name or a whole number, both ends included.
    NameOrWhole {
        /// The name.
        name: &'static str,
        /// The least number.
        low: u64,
        /// The greatest.
        high: u64,
    },
    /// Text or a list; the sentence says which.
    Text(&'static str),
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End {
    /// The number.
    pub at: f64,
    /// Whether the number itself is allowed.
    pub included: bool,
}

/// The lower end of a range whose upper end is still to be said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Low(End);

/// A range that begins above `at`.
pub const fn above(at: f64) -> Low {
    Low(End { at, included: false })
}

/// A range that begins with `at`.
pub const fn at_least(at: f64) -> Low {
    Low(End { at, included: true })
}

impl Low {
    /// The range up to `at`, without it.
    pub const fn below(self, at: f64) -> Allowed {
        Allowed::Real { low: self.0, high: End { at, included: false } }
    }

    /// The range up to `at`.
    pub const fn at_most(self, at: f64) -> Allowed {
        Allowed::Real { low: self.0, high: End { at, included: true } }
    }
}

impl Allowed {
    /// Whether a whole number is allowed.
    pub fn admits_whole(&self, number: u64) -> bool {
        match *self {
            Allowed::Whole { low, high } | Allowed::NameOrWhole { low, high, .. } => {
                (low..=high).contains(&number)
            }
            _ => false,
        }
    }

    /// Whether a number is allowed; one that is not a number never is.
    pub fn admits_real(&self, number: f64) -> bool {
        let Allowed::Real { low, high } = *self else { return false };
        let above = number > low.at || (low.included && number == low.at);
        let below = number < high.at || (high.included && number == high.at);
        above && below
    }

    /// Whether a text is allowed. What a sentence asks for is for whoever reads the text to see.
    pub fn admits_text(&self, text: &str) -> bool {
        match self {
            Allowed::Names(names) => names.contains(&text),
            Allowed::NameOrWhole { name, .. } => *name == text,
            Allowed::Text(_) => true,
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

/// As `--explain` says it: `1 to 1024`, `above 0, below 1`, `cpu, cuda`.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Switch => f.write_str("true, false"),
            Allowed::Names(names) => f.write_str(&names.join(", ")),
            Allowed::Whole { low, high } => write!(f, "{low} to {high}"),
            Allowed::NameOrWhole { name, low, high } => write!(f, "\"{name}\", or {low} to {high}"),
            Allowed::Text(sentence) => f.write_str(sentence),
            Allowed::Real { low, high } => match (low.included, high.included) {
                (true, true) => write!(f, "{} to {}", low.at, high.at),
                (true, false) => write!(f, "from {}, below {}", low.at, high.at),
                (false, true) => write!(f, "above {}, at most {}", low.at, high.at),
                (false, false) => write!(f, "above {}, below {}", low.at, high.at),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_enforced() {
        let cases = [
            (above(0.0).below(1.0), "above 0, below 1", [false, true, false, false]),
            (above(0.0).at_most(1.0), "above 0, at most 1", [false, true, true, false]),
            (at_least(0.0).below(1.0), "from 0, below 1", [true, true, false, false]),
            (at_least(0.0).at_most(1.0), "0 to 1", [true, true, true, false]),
        ];
        for (allowed, said, admitted) in cases {
            assert_eq!(allowed.to_string(), said);
            assert_eq!([0.0, 0.5, 1.0, 1.5].map(|x| allowed.admits_real(x)), admitted, "{said}");
            assert!(!allowed.admits_real(f64::NAN) && !allowed.admits_real(f64::NEG_INFINITY), "{said}");
            assert!(!allowed.admits_whole(0) && !allowed.admits_text("0"), "{said}: another type");
        }
        let whole = Allowed::from(2..=5);
        assert_eq!(
            (whole.to_string().as_str(), [1, 2, 5, 6].map(|n| whole.admits_whole(n))),
            ("2 to 5", [false, true, true, false],)
        );
        let names = Allowed::from(&["cpu", "cuda"]);
        assert_eq!(names.to_string(), "cpu, cuda");
        assert!(names.admits_text("cuda") && !names.admits_text("tpu"));
        let either = Allowed::NameOrWhole { name: "all", low: 1, high: 9 };
        assert_eq!(either.to_string(), "\"all\", or 1 to 9");
        assert!(either.admits_text("all") && either.admits_whole(9) && !either.admits_whole(0));
    }
}
