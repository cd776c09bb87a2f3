//! Prompts of the roles. With the built-in templates, they are identical byte for byte to those of the paper's models.
//!
//! Every prompt is one user message, which the tokenizer's chat template wraps. The built-in templates are in `prompts/`.

use crate::read::Proof;
use crate::templates::{
    CONJECTURER, CONJECTURER_STP, CONJECTURER_UNCONDITIONED, GUIDE, REPAIR, REPAIR_COT, SOLVER, SOLVER_COT,
    Templates,
};
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
pub fn solver(templates: &Templates, problem: &Problem, form: SolverForm) -> String {
    let template = match form {
        SolverForm::NonCot => SOLVER,
        SolverForm::Cot => SOLVER_COT,
        SolverForm::Compact => return crate::compact::solver(problem),
    };
    solver_in_words(problem, templates.get(template)).trim().to_owned()
}

/// Returns the messages of a turn that repairs a refused proof, in the format of Goedel-Prover-V2: the Solver's
/// message, the proof, and the error. The position of the error is omitted, because verdicts do not contain it.
pub fn repair(
    templates: &Templates,
    problem: &Problem,
    failed: &FailedProof,
    form: SolverForm,
) -> Vec<String> {
    let Proof { mut helpers, body } = Proof::from_text(&failed.proof);
    if !helpers.is_empty() {
        helpers.push_str("\n\n");
    }
    let code = format!("{}{helpers}{}{body}", problem.context, problem.statement);
    let template = templates.get(if form == SolverForm::Cot { REPAIR_COT } else { REPAIR });
    let error = fill(template, &[("{error}", &failed.error)]);
    vec![solver(templates, problem, form), format!("```lean4\n{code}\n```"), error]
}

/// Returns the Conjecturer's message.
pub fn conjecturer(templates: &Templates, condition: Condition<'_>) -> String {
    match condition {
        Condition::Target(problem) => fill(templates.get(CONJECTURER), &[("{seed}", &problem.statement)]),
        Condition::Solved { problem, proof } => fill(
            templates.get(CONJECTURER_STP),
            &[("{seed}", &problem.statement), ("{proof}", proof.trim_end())],
        ),
        Condition::Nothing(_) => templates.get(CONJECTURER_UNCONDITIONED).to_owned(),
    }
}

/// Returns the Guide's message. Both statements are canonical, so a conjecture's comments cannot address the Guide.
pub fn guide(templates: &Templates, target: &Problem, conjecture: &Problem) -> String {
    let values = [("{seed}", &*target.statement), ("{conjecture}", &*conjecture.statement)];
    fill(templates.get(GUIDE), &values)
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
        let built_in = Templates::default();
        let [ask, answer, error] = &repair(&built_in, &problem, &failed, SolverForm::NonCot)[..] else {
            panic!("three")
        };
        assert_eq!(*ask, solver(&built_in, &problem, SolverForm::NonCot));
        let code = "import Mathlib\n\nlemma a : True := trivial\n\ntheorem t : 1 = 1 := by\n  simp";
        assert_eq!(*answer, format!("```lean4\n{code}\n```"));
        let told = "The proof (Round 0) is not correct. Following is the compilation error message.\n\n\nError 1:\n\n\
                    Error Message: {error} no";
        assert_eq!(*error, told);
        let cot = repair(&built_in, &problem, &failed, SolverForm::Cot).pop().unwrap();
        let more = "\n\n\nBefore producing the Lean 4 code to formally prove the given theorem, provide a detailed \
                    analysis of the error message.";
        assert_eq!(cot, format!("{told}{more}"));
    }

    #[test]
    fn values_are_not_templates() {
        assert_eq!(fill("a {x} b {y} c", &[("{x}", "{y}"), ("{y}", "{x}")]), "a {y} b {x} c");
    }
}
