//! Extracts targets from Lean source: the theorems whose proof is `sorry`.

use super::record::{RecordError, may_stand_before};
use super::target::{DataSetError, MAX_HELD_BYTES, Target};
use crate::text::{ProofStart, SourceCommand, canonical_statement, commands, lex, parse_declaration, words};
use sgs_selfplay::{Problem, ProblemId};

/// Passes on the theorems without a proof. A target's context is everything before it, except other theorems without a
/// proof, examples and `#` commands. `header` is the context of a file without imports.
///
/// # Errors
/// Returns an error if the consumer does, or if the contexts together, which can be much larger than the file, are too large.
pub fn targets_from_source(
    file: &str,
    source: &str,
    header: &str,
    mut take: impl FnMut(Result<Target, RecordError>) -> Result<(), DataSetError>,
) -> Result<(), DataSetError> {
    let found = commands(source, &lex(source));
    let mut context =
        if found.iter().any(|c| c.keyword == "import") { String::new() } else { header.to_owned() };
    let mut held = 0;
    for command in &found {
        let text = source.get(command.range.clone()).unwrap_or_default();
        if command.is_theorem() && has_no_proof(text) {
            held += context.len();
            if held > MAX_HELD_BYTES {
                return Err(DataSetError::TooMuch);
            }
            take(target(file, text, command, &context))?;
        } else if command.keyword != "example" && !command.keyword.starts_with('#') {
            context.push_str(text);
        }
    }
    Ok(())
}

/// Returns whether the proof of a theorem is `sorry`.
fn has_no_proof(text: &str) -> bool {
    let Some(declaration) = parse_declaration(text, &lex(text)) else { return false };
    let after = match declaration.proof {
        ProofStart::By { after, .. } | ProofStart::Term { after, .. } => after,
        _ => return false,
    };
    matches!(words(text.get(after..).unwrap_or_default()).as_slice(), ["sorry"] | ["by", "sorry"])
}

fn target(file: &str, text: &str, command: &SourceCommand, context: &str) -> Result<Target, RecordError> {
    let fail = |reason: &str| RecordError { id: file.to_owned(), reason: reason.to_owned() };
    if command.has_attributes || !command.modifiers.is_empty() {
        return Err(fail("a theorem with attributes or modifiers cannot be a target; remove them"));
    }
    // The documentation comment is not part of the statement.
    let tokens = lex(text);
    let start = tokens.iter().find(|t| matches!(t.text(text), "theorem" | "lemma")).map_or(0, |t| t.start);
    let statement =
        canonical_statement(text.get(start..).unwrap_or_default()).map_err(|e| fail(&e.to_string()))?;
    may_stand_before(context, statement.name()).map_err(|problem| fail(&problem))?;
    let informal = text.get(..start).map(str::trim).filter(|doc| !doc.is_empty()).map(str::to_owned);
    let id = ProblemId::new(statement.name());
    let problem = Problem { id, statement: statement.text.into(), context: context.into() };
    Ok(Target { informal, source: Some(file.to_owned()), ..Target::new(problem) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theorems_with_sorry_are_targets_and_the_rest_is_context() {
        let source = "import Mathlib\n\nsection A\ndef f (n : ℕ) := n\n\n/-- Words. -/\ntheorem one : f 1 = 1 := by\n  sorry\n\ntheorem two : f 2 = 2 := rfl\n#check f\nlemma three : f 3 = 3 := sorry\nend A\nnamespace B\ntheorem four : f 4 = 4 := sorry\n";
        let mut read = Vec::new();
        targets_from_source("x.lean", source, "", |target| {
            read.push(target);
            Ok(())
        })
        .unwrap();
        let last = read.pop();
        let targets: Vec<Target> = read.into_iter().take(2).collect::<Result<_, _>>().unwrap();
        assert_eq!(&*targets[0].problem.statement, "theorem one : f 1 = 1 := by");
        assert_eq!(targets[0].informal.as_deref(), Some("/-- Words. -/"));
        let context = &targets[1].problem.context;
        assert!(
            context.contains("theorem two")
                && !context.contains("theorem one")
                && !context.contains("#check")
        );
        assert_eq!(&*targets[1].problem.statement, "lemma three : f 3 = 3 := by");
        assert!(last.is_some_and(|last| last.unwrap_err().reason.contains("`namespace B`")));
    }
}
