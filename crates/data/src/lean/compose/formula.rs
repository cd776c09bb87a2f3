//! Propositional formulas over atoms of any text.

use super::draw::{Draw, pick};

/// A formula. The text of an atom is at most an application, so it needs no brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    False,
    /// `p`, `P x`.
    Atom(String),
    Not(Box<Formula>),
    And(Box<Formula>, Box<Formula>),
    Or(Box<Formula>, Box<Formula>),
    Imp(Box<Formula>, Box<Formula>),
    Iff(Box<Formula>, Box<Formula>),
}

impl Formula {
    /// Draws a random formula with `size` connectives over the given atoms.
    pub fn random(draw: &mut Draw, size: usize, atoms: &[String]) -> Self {
        if size == 0 {
            return Self::Atom(pick(draw, atoms).clone());
        }
        let left = draw.below(size as u64) as usize;
        let mut part = |size| Box::new(Self::random(draw, size, atoms));
        let (a, b) = (part(left), part(size - 1 - left));
        match draw.below(20) {
            0..=5 => Self::And(a, b),
            6..=10 => Self::Or(a, b),
            11..=15 => Self::Imp(a, b),
            16 => Self::Iff(a, b),
            _ => Self::Not(if left > size - 1 - left { a } else { b }),
        }
    }

    /// Splits an implication into its premises and its conclusion, with `¬a` as `a → False`. Other formulas have no premises.
    pub fn premises(&self) -> (Vec<&Formula>, &Formula) {
        match self {
            Self::Imp(a, b) => {
                let (mut premises, conclusion) = b.premises();
                premises.insert(0, a);
                (premises, conclusion)
            }
            Self::Not(a) => (vec![a], &Self::False),
            _ => (Vec::new(), self),
        }
    }
}

impl std::fmt::Display for Formula {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |inner: &Self| match inner {
            Self::Not(_) | Self::Atom(_) | Self::False => inner.to_string(),
            _ => format!("({inner})"),
        };
        match self {
            Self::False => f.write_str("False"),
            Self::Atom(name) => f.write_str(name),
            Self::Not(a) => write!(f, "¬{}", part(a)),
            Self::And(a, b) => write!(f, "{} ∧ {}", part(a), part(b)),
            Self::Or(a, b) => write!(f, "{} ∨ {}", part(a), part(b)),
            Self::Imp(a, b) => write!(f, "{} → {}", part(a), part(b)),
            Self::Iff(a, b) => write!(f, "{} ↔ {}", part(a), part(b)),
        }
    }
}
