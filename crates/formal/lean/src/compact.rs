//! The compact prompt format of all three roles, for models of a few million parameters that are trained on no other
//! format.
//!
//! A prompt consists of a token for the role, the statements without their names, and a token that marks the beginning
//! of the answer.

use crate::read::{Proof, read_conjecture, read_review};
use crate::text::{Bounds, LeanStatement, unix_lines};
use sgs_formal::{Condition, Malformed};
use sgs_selfplay::{FailedProof, Problem, Review};

/// The token that ends every completion.
pub const END: &str = "<end>";
/// The special tokens, in the order of their ids: padding, end, roles, and the beginnings of answers.
pub const SPECIAL: [&str; 8] =
    ["<pad>", END, "<solver>", "<conjecturer>", "<guide>", "<proof>", "<conjecture>", "<review>"];

/// Returns a statement without its name and `:= by`.
fn signature(statement: &str) -> String {
    LeanStatement::read(statement).map_or_else(|_| statement.to_owned(), |s| s.signature().to_owned())
}

/// Returns the Solver's prompt.
pub fn solver(problem: &Problem) -> String {
    format!("<solver>{}{}<proof>", problem.context, signature(&problem.statement))
}

/// Returns the Solver's prompt for a turn that repairs a refused proof.
pub fn repair(problem: &Problem, failed: &FailedProof) -> String {
    format!("{}{}<review>{}<proof>", solver(problem), failed.proof, failed.error)
}

/// Returns the Conjecturer's prompt.
pub fn conjecturer(condition: Condition<'_>) -> String {
    match condition {
        Condition::Target(problem) => format!("<conjecturer>{}<conjecture>", signature(&problem.statement)),
        Condition::Solved { problem, proof } => {
            format!("<conjecturer>{}<proof>{proof}<conjecture>", signature(&problem.statement))
        }
        Condition::Nothing(_) => "<conjecturer><conjecture>".to_owned(),
    }
}

/// Returns the Guide's prompt.
pub fn guide(target: &Problem, conjecture: &Problem) -> String {
    format!("<guide>{}<conjecture>{}<review>", signature(&target.statement), signature(&conjecture.statement))
}

/// Returns the Guide's answer: `relevance redundancy complexity`.
pub fn review(review: &Review) -> String {
    format!("{} {} {}", review.relevance, review.redundancy, review.complexity)
}

pub(crate) fn read_proof(completion: &str, bounds: &Bounds) -> Result<Proof, Malformed> {
    if completion.len() > bounds.bytes {
        return Err(Malformed::new("too-long", format!("{} bytes", completion.len())));
    }
    match completion.trim() {
        "" => Err(Malformed::new("empty-proof", "nothing")),
        _ => Ok(Proof::new(unix_lines(completion.trim_end()))),
    }
}

/// Reads a conjecture: a statement without its name.
pub(crate) fn read_signature(completion: &str, bounds: &Bounds) -> Result<String, Malformed> {
    read_conjecture(&format!("```lean4\ntheorem conjecture {}\n```", completion.trim()), bounds)
}

/// Reads a review: three numbers.
pub(crate) fn read_scores(completion: &str) -> Result<Review, Malformed> {
    let numbers: Vec<&str> = completion.split_whitespace().collect();
    let [relevance, redundancy, complexity] = numbers[..] else {
        return Err(Malformed::new("no-score", format!("{} words, not three", numbers.len())));
    };
    let tag = |name: &str, value: &str| format!("<begin_{name}_score>{value}<end_{name}_score>");
    read_review(
        &[
            tag("relevance", relevance),
            tag("redundancy", redundancy),
            tag("conclusion_complexity", complexity),
        ]
        .concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_selfplay::ProblemId;

    fn problem(statement: &str) -> Problem {
        Problem { id: ProblemId::new("p"), statement: statement.into(), context: "".into() }
    }

    #[test]
    fn prompts_name_the_role_and_omit_theorem_names() {
        let (a, b) = (problem("theorem a (p : Prop) (h1 : p) : p := by"), problem("theorem b : 1 = 1 := by"));
        assert_eq!(solver(&a), "<solver>(p : Prop) (h1 : p) : p<proof>");
        assert_eq!(solver(&b), "<solver>: 1 = 1<proof>");
        let failed = FailedProof { proof: "\n  simp".into(), error: "no progress".into(), step: None };
        assert_eq!(repair(&b, &failed), "<solver>: 1 = 1<proof>\n  simp<review>no progress<proof>");
        assert_eq!(conjecturer(Condition::Target(&b)), "<conjecturer>: 1 = 1<conjecture>");
        let solved = Condition::Solved { problem: &b, proof: "\n  rfl" };
        assert_eq!(conjecturer(solved), "<conjecturer>: 1 = 1<proof>\n  rfl<conjecture>");
        assert_eq!(conjecturer(Condition::Nothing(&a)), "<conjecturer><conjecture>");
        assert_eq!(guide(&a, &b), "<guide>(p : Prop) (h1 : p) : p<conjecture>: 1 = 1<review>");
    }

    #[test]
    fn answers_are_read_or_refused_by_name() {
        let bounds = Bounds::default();
        assert_eq!(
            read_proof("\n  intro h\n  exact h\n", &bounds).unwrap(),
            Proof::new("\n  intro h\n  exact h")
        );
        assert_eq!(read_proof(" \n", &bounds).unwrap_err().kind, "empty-proof");
        assert_eq!(
            read_signature("(p : Prop) (h1 : p) : p", &bounds).unwrap(),
            "theorem conjecture (p : Prop) (h1 : p) : p := by"
        );
        for (completion, kind) in [
            (": 1 = 1 := by\n  rfl\naxiom a : False", "not-one-statement"),
            (": 1 = 1\n```\n```lean4\naxiom a : False", "not-one-statement"),
            ("", "not-one-statement"),
            ("(p : Prop) : \u{202e}p", "bounds"),
        ] {
            assert_eq!(read_signature(completion, &bounds).unwrap_err().kind, kind, "{completion}");
        }
        let scores = Review { relevance: 4.0, redundancy: 0.0, complexity: 2.0 };
        assert_eq!(review(&scores), "4 0 2");
        assert_eq!(read_scores("4 0 2").unwrap(), scores);
        assert_eq!(read_scores("4 0").unwrap_err().kind, "no-score");
        assert_eq!(read_scores("4 0 9").unwrap_err().kind, "out-of-range");
        assert_eq!(read_scores("a 0 1").unwrap_err().kind, "not-a-number");
    }
}
