//! Prompts of the roles, identical byte for byte to those of the paper's models.
//!
//! Every prompt is one user message, which the tokenizer's chat template wraps. The texts are in `prompts/`.

use crate::read::Proof;
use sgs_formal::Condition;
use sgs_selfplay::{FailedProof, Problem};

sgs_keys::choice! {
    /// The form of prompts for a proof: the two of DeepSeek-Prover-V2, and a compact one.
    #[derive(Default)]
    pub enum SolverForm {
        /// The code to complete and nothing else (the paper's form).
        #[default]
        NonCot = "non-cot",
        /// The code with `sorry` as its proof, and a request for a plan in words before the code.
        Cot = "cot",
        /// The compact form of all roles, which the shipped small model was trained on.
        Compact = "compact",
    }
}

/// Returns the Solver's message: header and statement in a fenced block.
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

/// Returns the messages of a turn that repairs a refused proof, in the format of Goedel-Prover-V2: the Solver's
/// message, the proof, and the error. The position of the error is omitted, because verdicts do not contain it.
pub fn repair(problem: &Problem, failed: &FailedProof, form: SolverForm) -> Vec<String> {
    let Proof { mut helpers, body } = Proof::from_text(&failed.proof);
    if !helpers.is_empty() {
        helpers.push_str("\n\n");
    }
    let code = format!("{}{helpers}{}{body}", problem.context, problem.statement);
    let mut error = format!(
        "The proof (Round 0) is not correct. Following is the compilation error message.\n\n\nError 1:\n\n\
         Error Message: {}",
        failed.error
    );
    if form == SolverForm::Cot {
        error.push_str(
            "\n\n\nBefore producing the Lean 4 code to formally prove the given theorem, provide a detailed analysis \
             of the error message.",
        );
    }
    vec![solver(problem, form), format!("```lean4\n{code}\n```"), error]
}

/// Returns the Conjecturer's message.
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

/// Returns the Guide's message. Both statements are canonical, so a conjecture's comments cannot address the Guide.
pub fn guide(target: &Problem, conjecture: &Problem) -> String {
    let values = [("{seed}", &*target.statement), ("{conjecture}", &*conjecture.statement)];
    fill(include_str!("prompts/guide.txt"), &values)
}

/// Returns the message that asks whether a problem has a proof (paper, Appendix D).
pub fn solvability(problem: &Problem) -> String {
    fill(include_str!("prompts/solvability.txt"), &[("{theorem}", &*problem.statement)])
}

/// Returns the message that asks for the difficulty and area of a problem (paper, Appendix D).
pub fn classification(problem: &Problem) -> String {
    fill(include_str!("prompts/classification.txt"), &[("{theorem}", &*problem.statement)])
}

/// Returns the Solver's message from a template, where `{code}` is replaced by header and statement.
pub fn solver_in_words(problem: &Problem, template: &str) -> String {
    fill(template, &[("{code}", &format!("{}{}", problem.context, problem.statement))])
}

/// Fills a template in one pass, so that placeholders inside of values are not replaced.
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
    fn a_repair_is_a_dialogue_of_problem_proof_and_error() {
        let problem = Problem {
            id: sgs_selfplay::ProblemId::new("p"),
            statement: "theorem t : 1 = 1 := by".into(),
            context: "import Mathlib\n\n".into(),
        };
        let proof = Proof { helpers: "lemma a : True := trivial".into(), body: "\n  simp".into() };
        let failed = FailedProof { proof: proof.to_text().into(), error: "{error} no".into(), step: None };
        let [ask, answer, error] = &repair(&problem, &failed, SolverForm::NonCot)[..] else {
            panic!("three")
        };
        assert_eq!(*ask, solver(&problem, SolverForm::NonCot));
        let code = "import Mathlib\n\nlemma a : True := trivial\n\ntheorem t : 1 = 1 := by\n  simp";
        assert_eq!(*answer, format!("```lean4\n{code}\n```"));
        assert!(error.ends_with("\n\n\nError 1:\n\nError Message: {error} no"), "{error}");
        let cot = repair(&problem, &failed, SolverForm::Cot).pop().unwrap();
        assert!(cot.starts_with(error.as_str()) && cot.ends_with("analysis of the error message."), "{cot}");
    }

    #[test]
    fn values_are_not_templates() {
        assert_eq!(fill("a {x} b {y} c", &[("{x}", "{y}"), ("{y}", "{x}")]), "a {y} b {x} c");
    }
}
