//! Extracts a proof from the Solver's completion.

use super::fence::lean_blocks;
use crate::text::{
    Bounds, LeanStatement, ProofStart, SourceCommand, commands, is_among, lex, parse_declaration, unix_lines,
};
use sgs_formal::Malformed;

/// A proof: the text after the statement's `:= by`, and theorems that precede the statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Commands before the theorem: helper lemmas, or commands that the judge will refuse. Often empty.
    pub helpers: String,
    /// The tactic block, with its leading blank or line break.
    pub body: String,
}

/// Separates helpers and body in the canonical text of a proof.
const SEPARATOR: &str = "\n-- proof of the target:\n";

impl Proof {
    /// Makes a proof without helpers.
    pub fn new(body: impl Into<String>) -> Self {
        Self { helpers: String::new(), body: body.into() }
    }

    /// Returns the canonical text. Without helpers, it is the body.
    pub fn to_text(&self) -> String {
        if self.helpers.is_empty() {
            self.body.clone()
        } else {
            format!("{}{SEPARATOR}{}", self.helpers, self.body)
        }
    }

    /// Parses the canonical text.
    pub fn from_text(text: &str) -> Self {
        match text.split_once(SEPARATOR) {
            Some((helpers, body)) => Self { helpers: helpers.to_owned(), body: body.to_owned() },
            None => Self::new(text),
        }
    }
}

/// Commands that set a context. They are dropped from completions, because the problem has its own context.
const CONTEXT: &str = "import open set_option universe universes variable variables namespace section \
    end example prelude module";

/// Extracts a proof of the theorem `statement` from a completion.
///
/// The proof is taken from the last block of Lean code that declares the theorem. If there is none, it is taken from
/// the last block that declares any theorem, and otherwise from the last block, which is read as bare tactics. The
/// completion's copies of statement and header and everything after the proof are dropped. Declarations before the
/// theorem become helpers.
pub fn read_proof(statement: &str, completion: &str, bounds: &Bounds) -> Result<Proof, Malformed> {
    if completion.len() > bounds.bytes * 4 {
        return Err(Malformed::new("too-long", format!("{} bytes", completion.len())));
    }
    let completion = &*unix_lines(completion);
    let name = LeanStatement::read(statement).map(|s| s.name().to_owned()).unwrap_or_default();
    let blocks = lean_blocks(completion);
    let mut read: Vec<TheoremReading> = blocks.iter().filter_map(|code| candidate(code, &name)).collect();
    let target = read.iter().rposition(|c| c.is_target);
    if let Some(best) = target.map(|at| read.swap_remove(at)).or_else(|| read.pop()) {
        return best.proof;
    }
    if let Some(code) = blocks.last() {
        return bare_tactics(code);
    }
    candidate(completion, &name).filter(|c| c.is_target).map(|c| c.proof).unwrap_or_else(|| {
        Err(Malformed::new("no-code-block", "no fenced block of Lean code, and no copy of the theorem"))
    })
}

/// Extracts the proof of the last theorem with the given name from a Lean file, or that of the last theorem if there is
/// no such name. Returns `None` if the file declares no theorem.
pub fn proof_in_source(code: &str, name: &str) -> Option<Result<Proof, Malformed>> {
    candidate(code, name).map(|candidate| candidate.proof)
}

struct TheoremReading {
    is_target: bool,
    proof: Result<Proof, Malformed>,
}

/// Reads a block that declares a theorem, or returns `None` if it declares none.
fn candidate(code: &str, name: &str) -> Option<TheoremReading> {
    let tokens = lex(code);
    let found = commands(code, &tokens);
    let theorem = |c: &SourceCommand| {
        let text = &code[c.range.clone()];
        parse_declaration(text, &lex(text)).map(|d| (text, d))
    };
    let named = |c: &SourceCommand| {
        theorem(c).is_some_and(|(text, d)| {
            text.get(d.name).is_some_and(|n| n == name || n.ends_with(&format!(".{name}")))
        })
    };
    let position = found.iter().rposition(|c| c.is_theorem() && named(c));
    let is_target = position.is_some();
    let position = position.or_else(|| found.iter().rposition(SourceCommand::is_theorem))?;
    let own = found.get(position)?;
    let proof = match theorem(own) {
        Some((text, declaration)) => body(text, declaration.proof),
        None => Err(Malformed::new("no-statement", "the theorem has no name or no `:`")),
    };
    // Nothing within a `mutual` block has a separate `end`.
    let mut is_open = false;
    let ends_mutual = found.iter().map(|command| match command.keyword.as_str() {
        "end" => std::mem::take(&mut is_open),
        word => {
            is_open |= word == "mutual";
            false
        }
    });
    let ends_mutual: Vec<bool> = ends_mutual.collect();
    let mut helpers: Vec<&str> = Vec::new();
    let mut is_kept = false;
    for (command, ends_mutual) in found.iter().zip(ends_mutual).take(position).rev() {
        let text = code.get(command.range.clone()).unwrap_or_default().trim();
        // `set_option … in` belongs to the command after it.
        let belongs = is_kept && text.split_whitespace().next_back() == Some("in");
        is_kept = belongs
            || ends_mutual
            || !(is_among(CONTEXT, &command.keyword) || command.keyword.starts_with('#'));
        if is_kept {
            helpers.push(text);
        }
    }
    helpers.reverse();
    let proof = proof.map(|body| Proof { helpers: helpers.join("\n\n"), body });
    Some(TheoremReading { is_target, proof })
}

fn body(text: &str, start: ProofStart) -> Result<String, Malformed> {
    match start {
        ProofStart::By { after, .. } => {
            let body = text[after..].trim_end();
            if body.trim().is_empty() {
                Err(Malformed::new("empty-proof", "nothing after `:= by`"))
            } else {
                Ok(body.to_owned())
            }
        }
        ProofStart::Term { after, .. } => {
            let term = text[after..].trim();
            if term.is_empty() {
                return Err(Malformed::new("empty-proof", "nothing after `:=`"));
            }
            // Indenting `exact` by one blank only keeps every following line of the term to its right.
            Ok(format!("\n exact {term}"))
        }
        ProofStart::Equations { .. } => {
            Err(Malformed::new("equations", "the proof is written as pattern-matching equations"))
        }
        ProofStart::Missing => Err(Malformed::new("no-proof", "the theorem has no `:=`")),
    }
}

/// Reads a block of tactics without a theorem.
fn bare_tactics(code: &str) -> Result<Proof, Malformed> {
    let tokens = lex(code);
    if commands(code, &tokens).iter().any(|c| c.keyword != "open" && c.keyword != "set_option") {
        return Err(Malformed::new("no-theorem", "a block with commands and no theorem"));
    }
    let lines = || code.lines().skip_while(|line| line.trim().is_empty());
    let margin = lines().any(|line| line.starts_with(|c: char| !c.is_whitespace()));
    let indent = if margin { "  " } else { "" };
    let body: String = lines().map(|line| format!("\n{indent}{line}")).collect();
    Ok(Proof::new(body.trim_end()))
}

/// Extracts a proof as the paper's code does. The completion must be exactly one `lean4` block and contain exactly one of
/// the substrings `theorem `, `lemma ` and `def `. The proof is the text after the first `:= by`.
pub fn read_proof_strict(completion: &str) -> Result<Proof, Malformed> {
    let refuse = |detail: &str| Err(Malformed::new("strict", detail));
    let trimmed = completion.trim();
    if !trimmed.starts_with("```lean4") || !trimmed.ends_with("```") {
        return refuse("the completion is not one fenced block");
    }
    if trimmed.matches("```lean4").count() != 1 || trimmed.matches("```").count() != 2 {
        return refuse("more than one fence");
    }
    let declared: usize = ["theorem ", "lemma ", "def "].iter().map(|w| trimmed.matches(w).count()).sum();
    if declared != 1 {
        return refuse("not exactly one `theorem `, `lemma ` or `def `");
    }
    let code = completion.rsplit_once("```lean4").map_or(completion, |(_, code)| code);
    let Some((_, after)) = code.split_once(":= by") else { return refuse("no `:= by`") };
    let body = after.rsplit_once("```").map_or(after, |(body, _)| body);
    Ok(Proof::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATEMENT: &str = "theorem t1 (x  : ℝ) (h  : x > 0)  :\n  x + 1 > 1 := by";

    fn read(completion: &str) -> Result<Proof, String> {
        read_proof(STATEMENT, completion, &Bounds::default()).map_err(|m| m.kind)
    }

    fn bare(body: &str) -> Result<Proof, String> {
        Ok(Proof::new(body))
    }

    #[test]
    fn prose_restated_statements_and_open_fences_are_read() {
        let code = format!("{STATEMENT}\n  linarith");
        assert_eq!(read(&format!("```lean4\nimport Mathlib\n\n{code}\n```")), bare("\n  linarith"));
        assert_eq!(read(&format!("Sure!\n```lean4\n{code}\n```\nDone.")), bare("\n  linarith"));
        assert_eq!(read(&format!("```lean4\n{code}")), bare("\n  linarith"));
        assert_eq!(read(&format!("```lean\n{code}\n```")), bare("\n  linarith"));
        assert_eq!(read(&code), bare("\n  linarith"));
        assert_eq!(read(&format!("```lean4\n{code}\n```").replace('\n', "\r\n")), bare("\n  linarith"));
        assert_eq!(read("```lean4\nlinarith\nring\n```"), bare("\n  linarith\n  ring"));
        assert_eq!(read("```lean4\n  linarith\n```"), bare("\n  linarith"));
        assert_eq!(read(""), Err("no-code-block".into()));
        assert_eq!(read(&format!("```lean4\n{STATEMENT}\n```")), Err("empty-proof".into()));
    }

    #[test]
    fn the_last_block_with_the_target_counts() {
        let text = format!(
            "Plan:\n```lean4\n{STATEMENT}\n  sorry\n```\nFinal:\n```lean4\n{STATEMENT}\n  nlinarith\n```\nSee\n```lean4\ntheorem other : True := by trivial\n```"
        );
        assert_eq!(read(&text), bare("\n  nlinarith"));
    }

    #[test]
    fn helpers_are_kept_and_context_and_trailing_commands_dropped() {
        let text = format!(
            "```lean4\nimport Mathlib\nopen Nat\nset_option maxHeartbeats 400000 in\nlemma aux : 1 = 1 := by rfl\n\nopen Real in\n/-- doc -/\n{STATEMENT}\n  linarith [aux]\n\n#print axioms t1\naxiom foo : False\n```"
        );
        let proof = read(&text).unwrap();
        assert_eq!(proof.helpers, "set_option maxHeartbeats 400000 in\n\nlemma aux : 1 = 1 := by rfl");
        assert_eq!(proof.body, "\n  linarith [aux]");
        assert_eq!(Proof::from_text(&proof.to_text()), proof);
        let cheat =
            read(&format!("```lean4\naxiom cheat : False\n{STATEMENT}\n  exact cheat.elim\n```")).unwrap();
        assert_eq!(cheat.helpers, "axiom cheat : False", "kept, so that the judge reports it");
        let mutual = "mutual\ntheorem a : True := b\n\ntheorem b : True := a\n\nend";
        let within =
            format!("```lean4\nnamespace N\nsection\nend\n\n{mutual}\nend N\n{STATEMENT}\n  simp\n```");
        assert_eq!(read(&within).unwrap().helpers, mutual.replace("mutual\n", "mutual\n\n"));
    }

    #[test]
    fn term_proofs_become_exact() {
        let head = STATEMENT.trim_end_matches("by").trim_end();
        assert_eq!(read(&format!("```lean4\n{head} by_contra h\n```")), bare("\n exact by_contra h"));
        assert_eq!(read(&format!("```lean4\n{head}\n  by linarith\n```")), bare(" linarith"));
        assert_eq!(
            read(&format!("```lean4\n{head}\n  fun x => by\n    simp\n```")),
            bare("\n exact fun x => by\n    simp")
        );
    }

    #[test]
    fn hypotheses_can_be_called_def() {
        let statement = "theorem t2 (f  : ℝ → ℝ) (h_def  : ∀ x, f x = x)  :\n  f 1 = 1 := by";
        let proof =
            read_proof(statement, &format!("```lean4\n{statement}\n  simp [h_def]\n```"), &Bounds::default());
        assert_eq!(proof.unwrap().body, "\n  simp [h_def]");
    }

    proptest! {
        #[test]
        fn no_completion_panics_the_readers(completion in "(```(lean4)?\n)?(theorem t1 )?[ -~\n∀«»]{0,80}(:= by)?[ -~\n]{0,40}(```)?") {
            let _ = read(&completion);
            let _ = read_proof_strict(&completion);
            let _ = super::super::read_conjecture(&completion, &Bounds::default());
            let _ = super::super::read_conjecture_strict(&completion);
            let _ = super::super::read_review(&completion);
        }

        #[test]
        fn an_echo_of_any_statement_with_a_proof_is_read_back(body in "\n  [a-z ]{1,20}(\n  [a-z ]{1,20}){0,3}") {
            prop_assume!(!body.trim().is_empty());
            prop_assume!(crate::text::commands(&body, &lex(&body)).is_empty());
            let proof = read(&format!("```lean4\n{STATEMENT}{body}\n```")).unwrap();
            prop_assert_eq!(proof.body.trim_end(), body.trim_end());
        }
    }
}
