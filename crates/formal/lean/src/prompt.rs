//! What each role is asked, to the byte as the paper's models were asked.
//!
//! Every prompt is one user message; the tokenizer's chat template wraps it. The texts stand in `prompts/`.

use sgs_formal::Condition;
use sgs_selfplay::Problem;

sgs_keys::choice! {
    /// DeepSeek-Prover-V2's two ways to ask for a proof, and a short one.
    #[derive(Default)]
    pub enum SolverForm {
        /// The code to complete and nothing else (the paper's form).
        #[default]
        NonCot = "non-cot",
        /// With a request for a plan in words before the code, and `sorry` in the proof's place.
        Cot = "cot",
        /// The short form of all roles that the small model which ships was trained on.
        Compact = "compact",
    }
}

/// The Solver's message: header and statement in a fenced block.
pub fn solver(problem: &Problem, form: SolverForm) -> String {
    let code = format!("{}{}", problem.context, problem.statement);
    match form {
        SolverForm::NonCot => {
            format!("Complete the following Lean 4 code:\n\n```lean4\n{code}\n```").trim().to_owned()
        }
        SolverForm::Cot => {
            fill(include_str!("prompts/solver_cot.txt"), &[("{code}", &code)]).trim().to_owned()
        }
        SolverForm::Compact => crate::compact::solver(problem),
    }
}

/// The Conjecturer's message.
pub fn conjecturer(condition: Condition<'_>) -> String {
    match condition {
        Condition::Target(problem) => {
            fill(include_str!("prompts/conjecturer.txt"), &[("{seed}", &problem.statement)])
        }
        Condition::Solved { problem, proof } => fill(
            include_str!("prompts/conjecturer_stp.txt"),
            &[("{seed}", &problem.statement), ("{proof}", proof.trim_end())],
        ),
        Condition::Nothing(_) => include_str!("prompts/conjecturer_unconditioned.txt").to_owned(),
    }
}

/// The Guide's message. Both statements are canonical text, which holds no comments of a conjecture's author.
pub fn guide(target: &Problem, conjecture: &Problem) -> String {
    let values = [("{seed}", &*target.statement), ("{conjecture}", &*conjecture.statement)];
    fill(include_str!("prompts/guide.txt"), &values)
}

/// What a model is asked that tells problems without a proof from others (paper, Appendix D).
pub fn solvability(problem: &Problem) -> String {
    fill(include_str!("prompts/solvability.txt"), &[("{theorem}", &*problem.statement)])
}

/// What a model is asked that sorts problems by difficulty and area (paper, Appendix D).
pub fn classification(problem: &Problem) -> String {
    fill(include_str!("prompts/classification.txt"), &[("{theorem}", &*problem.statement)])
}

/// The Solver's message in the words of a model's own authors: `{code}` in the template stands for header and statement.
pub fn solver_in_words(problem: &Problem, template: &str) -> String {
    fill(template, &[("{code}", &format!("{}{}", problem.context, problem.statement))])
}

/// Puts values into a template in one pass: what a value holds is never read as a place for another.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + values.iter().map(|(_, v)| v.len()).sum::<usize>());
    let mut rest = template;
    loop {
        let next = values.iter().filter_map(|(key, value)| rest.find(key).map(|at| (at, *key, *value))).min();
        let Some((at, key, value)) = next else { break };
        text.push_str(&rest[..at]);
        text.push_str(value);
        rest = &rest[at + key.len()..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_templates() {
        assert_eq!(fill("a {x} b {y} c", &[("{x}", "{y}"), ("{y}", "{x}")]), "a {y} b {x} c");
    }
}
