//! Parsers for the answers of a model about a problem: solvability, difficulty and area.

use serde::{Deserialize, Serialize};

/// Whether a problem has a proof, according to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Solvability {
    /// It has one.
    Solvable,
    /// The model does not know.
    Unknown,
    /// It has none.
    Unsolvable,
}

/// Parses the answer to [`sgs_lean::prompt::solvability`]. The last tag counts, because a model may mention others before.
pub fn read_solvability(answer: &str) -> Option<Solvability> {
    use Solvability::{Solvable, Unknown, Unsolvable};
    [("<SOLVABLE>", Solvable), ("<UNKNOWN>", Unknown), ("<UNSOLVABLE>", Unsolvable)]
        .into_iter()
        .filter_map(|(tag, label)| Some((answer.rfind(tag)?, label)))
        .max_by_key(|(at, _)| *at)
        .map(|(_, label)| label)
}

/// The difficulties of problems.
pub const DIFFICULTIES: [&str; 4] = ["pre_high_school", "high_school", "competition", "undergraduate"];

/// The areas of mathematics.
pub const AREAS: [&str; 10] = [
    "algebra",
    "analysis",
    "number_theory",
    "combinatorics",
    "geometry",
    "topology",
    "probability",
    "linear_algebra",
    "logic",
    "other",
];

/// Parses the answer to [`sgs_lean::prompt::classification`]: it must name one difficulty and one area, with at most two
/// other words.
pub fn read_classification(answer: &str) -> Option<(&'static str, &'static str)> {
    let answer = answer.to_lowercase();
    let words = answer.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty());
    let words: Vec<&str> = words.collect();
    let only = |names: &[&'static str]| {
        let mut found = words.iter().filter_map(|word| names.iter().find(|name| *name == word).copied());
        found.next().filter(|_| found.next().is_none())
    };
    // `Difficulty: high_school, area: other.` is accepted, a sentence is not.
    let both = (only(&DIFFICULTIES)?, only(&AREAS)?);
    (words.len() <= 4).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tag_counts() {
        let read = |text| read_solvability(text);
        assert_eq!(read("Is it <UNSOLVABLE>? No: <SOLVABLE>."), Some(Solvability::Solvable));
        assert_eq!(read("<SOLVABLE> … <UNSOLVABLE>"), Some(Solvability::Unsolvable));
        assert_eq!(read("<UNKNOWN>"), Some(Solvability::Unknown));
        assert_eq!(read("SOLVABLE, <solvable>"), None);
    }

    #[test]
    fn two_words_are_a_class_and_a_sentence_is_none() {
        assert_eq!(read_classification("undergraduate algebra"), Some(("undergraduate", "algebra")));
        let spelled = "Difficulty: **High_School**\nArea: linear_algebra.";
        assert_eq!(read_classification(spelled), Some(("high_school", "linear_algebra")));
        for text in [
            "algebra",
            "competition",
            "high school algebra",
            "competition algebra geometry",
            "high_school competition logic",
            "It is a competition problem of number_theory",
            "",
        ] {
            assert_eq!(read_classification(text), None, "{text}");
        }
    }
}
