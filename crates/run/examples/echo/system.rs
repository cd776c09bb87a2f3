//! A formal system whose theorems are words. Any text that contains a word is a proof of it.

use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{Features, Judgement, ParsedConjecture, Problem, ProblemId, Review, Verdict};
use std::sync::Arc;

/// The words, in symbols that the shipped tokenizer knows.
const WORDS: [&str; 8] = ["ph", "ps", "ch", "A", "B", "x", "y", "->"];

/// See the module documentation.
pub struct Echo;

/// Returns the words as problems.
pub fn targets() -> Vec<Arc<Problem>> {
    WORDS.iter().map(|word| Arc::new(problem(word))).collect()
}

fn problem(word: &str) -> Problem {
    Problem { id: ProblemId::new(word), statement: word.into(), context: "".into() }
}

impl FormalSystem for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        Prompt::Raw(format!("|- {}", problem.statement))
    }

    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        Prompt::Raw(format!("|- {} |-", condition.problem().statement))
    }

    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        Prompt::Raw(format!("|- {} |- {}", target.statement, conjecture.statement))
    }

    fn read_proof(&self, _: &Problem, completion: &str) -> Result<String, Malformed> {
        Ok(completion.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn read_conjecture(&self, _: Condition<'_>, completion: &str) -> Result<ParsedConjecture, Malformed> {
        let word = completion.split_whitespace().find(|word| WORDS.contains(word));
        word.map(ParsedConjecture::plain)
            .ok_or_else(|| Malformed::new("no-word", completion.chars().take(40).collect::<String>()))
    }

    fn read_review(&self, _: &str) -> Result<Review, Malformed> {
        Ok(Review { relevance: 3.0, redundancy: 0.0, complexity: 0.0 })
    }

    fn features(&self, statement: &str) -> Features {
        Features { length: statement.split_whitespace().count() as u32, ..Features::default() }
    }

    fn is_penalised(&self, _: &str) -> bool {
        false
    }

    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        let proved = proof.split_whitespace().any(|word| word == &*problem.statement);
        let verdict = if proved { Verdict::Proved } else { Verdict::Refused };
        let reason = if proved { String::new() } else { format!("`{}` is not in it", problem.statement) };
        Judgement { verdict, reason, step: None, micros: 0 }
    }
}
