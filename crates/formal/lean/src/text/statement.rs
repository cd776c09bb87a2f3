//! Statements in canonical text: one theorem that ends in `:= by`.

use super::command::commands;
use super::declaration::{Declaration, ProofStart, parse_declaration};
use super::lexer::{Token, TokenKind, lex};
use std::ops::Range;

/// A statement with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The canonical text; ends in `:= by`.
    pub text: String,
    /// Its parts, as ranges of `text`.
    pub declaration: Declaration,
}

impl Statement {
    /// The declared name.
    pub fn name(&self) -> &str {
        self.slice(&self.declaration.name)
    }

    /// The declared name's parts.
    pub fn declared(&self) -> DeclaredName<'_> {
        DeclaredName::of(self.name())
    }

    /// Everything from the name's end up to the proof, trimmed: binders, colon, conclusion.
    pub fn signature(&self) -> &str {
        let end = self.declaration.proof.statement_end(&self.text);
        self.slice(&(self.declaration.name.end..end)).trim()
    }

    /// The conclusion.
    pub fn conclusion(&self) -> &str {
        self.slice(&self.declaration.conclusion).trim()
    }

    /// The statement without its final `:= by`.
    pub fn before_proof(&self) -> &str {
        self.slice(&(0..self.declaration.proof.statement_end(&self.text))).trim_end()
    }

    fn slice(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Reads a canonical text.
    pub fn read(text: &str) -> Result<Self, StatementError> {
        let tokens = lex(text);
        let declaration = parse_declaration(text, &tokens).ok_or(StatementError::NoStatement)?;
        let ProofStart::By { after, .. } = declaration.proof else {
            return Err(StatementError::NoProofPosition);
        };
        if !text.get(after..).is_some_and(|rest| rest.trim().is_empty()) {
            return Err(StatementError::Proof);
        }
        Ok(Self { text: text.to_owned(), declaration })
    }
}

/// A declared name: where it is declared, and its last part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredName<'s> {
    /// Written with `_root_.` before it: as it stands, whatever namespace is open, and without opening its own.
    pub rooted: bool,
    /// Everything before the last part; empty for a name of one part.
    pub namespace: &'s str,
    /// The last part.
    pub last: &'s str,
}

impl<'s> DeclaredName<'s> {
    /// Cuts a name at its last dot that is not inside of `«»`.
    pub fn of(name: &'s str) -> Self {
        let (rooted, name) = match name.strip_prefix("_root_.") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let mut quoted = false;
        let mut dot = None;
        for (at, c) in name.char_indices() {
            match c {
                '«' => quoted = true,
                '»' => quoted = false,
                '.' if !quoted => dot = Some(at),
                _ => {}
            }
        }
        let cut = dot.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?)));
        let (namespace, last) = cut.unwrap_or(("", name));
        Self { rooted, namespace, last }
    }
}

/// What had to be done to a text to make it canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// The final `:= by` stood inside a line comment and was put on a line of its own.
    CommentedProof,
    /// A final `sorry` was taken away.
    Sorry,
    /// `:= by` was added to a bare statement.
    NoProof,
}

/// Why a text is not a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// No theorem with a name and a colon.
    #[error("no theorem with a name and a `:` before its conclusion")]
    NoStatement,
    /// The place of the proof was not found.
    #[error("the place of the proof was not found (`:= by` or `:=` at the end of the statement)")]
    NoProofPosition,
    /// A proof stands where none may.
    #[error("the statement comes with a proof")]
    Proof,
    /// More than one declaration, or commands around it.
    #[error("more than one command where one theorem is expected")]
    MoreThanOne,
    /// Attributes or modifiers before the theorem.
    #[error("attributes or modifiers before the theorem")]
    Modified,
}

/// Brings a data set's statement into canonical form: one theorem, ending in `:= by`, otherwise byte for byte.
///
/// A text that already has the form is returned unchanged. `sorry` as its proof is taken away; a `:= by` that a
/// line comment swallows is put on a line of its own.
pub fn canonical_statement(text: &str) -> Result<(Statement, Option<Repair>), StatementError> {
    let text = text.trim_end();
    let tokens = lex(text);
    let declaration = parse_declaration(text, &tokens).ok_or(StatementError::NoStatement)?;
    let rest = match declaration.proof {
        ProofStart::By { after, .. } | ProofStart::Term { after, .. } => {
            text.get(after..).unwrap_or_default()
        }
        ProofStart::Equations { .. } => return Err(StatementError::Proof),
        ProofStart::Missing => return without_proof(text, &tokens),
    };
    let is_by = matches!(declaration.proof, ProofStart::By { .. });
    let meaning: Vec<&str> = lex(rest).iter().filter(|t| !t.is_trivia()).map(|t| t.text(rest)).collect();
    match (meaning.as_slice(), is_by) {
        ([], true) if rest.is_empty() => Ok((Statement { text: text.to_owned(), declaration }, None)),
        ([], _) | (["sorry"], _) | (["by", "sorry"], false) => {
            let end = declaration.proof.statement_end(text);
            let head = text.get(..end).unwrap_or_default().trim_end();
            let statement = Statement::read(&format!("{head} := by"))?;
            Ok((statement, Some(Repair::Sorry)))
        }
        _ => Err(StatementError::Proof),
    }
}

fn without_proof(text: &str, tokens: &[Token]) -> Result<(Statement, Option<Repair>), StatementError> {
    let comment = tokens.last().filter(|t| t.kind == TokenKind::LineComment);
    if let Some(comment) = comment
        && let Some(before) = comment.text(text).strip_suffix(":= by")
    {
        let head = text.get(..comment.start).unwrap_or_default();
        // An empty comment (`-- := by`) goes; any other stays as it was written.
        let kept = if before.trim() == "--" { "" } else { before.trim_end() };
        let statement = Statement::read(&format!("{}\n  := by", format!("{head}{kept}").trim_end()))?;
        return Ok((statement, Some(Repair::CommentedProof)));
    }
    let ends_in_comment = tokens.last().is_some_and(|t| t.kind == TokenKind::LineComment);
    let glue = if ends_in_comment { "\n  := by" } else { " := by" };
    Ok((Statement::read(&format!("{text}{glue}"))?, Some(Repair::NoProof)))
}

/// Brings a conjecture into canonical form: exactly one `theorem` (or `lemma`, written as `theorem`), its proof
/// (if it brings one) taken away, no attributes and no modifiers; comments are left out, blanks inside a line become one, line breaks
/// and indentation stay (they can carry meaning), so that conjectures that differ in nothing else are equal.
///
/// `import`, `open` and `set_option` commands before it are dropped: a conjecture stands in its target's context.
pub fn canonical_conjecture(text: &str) -> Result<Statement, StatementError> {
    let tokens = lex(text);
    let found = commands(text, &tokens);
    let mut theorems = found.iter().filter(|c| c.is_theorem());
    let theorem = theorems.next().ok_or(StatementError::NoStatement)?;
    let others = found.iter().filter(|c| !c.is_theorem());
    if theorems.next().is_some()
        || !others.into_iter().all(|c| matches!(c.keyword.as_str(), "import" | "open" | "set_option"))
    {
        return Err(StatementError::MoreThanOne);
    }
    if theorem.has_attributes || !theorem.modifiers.is_empty() {
        return Err(StatementError::Modified);
    }
    let source = text.get(theorem.range.clone()).unwrap_or_default();
    let plain = without_comments(source);
    let declaration = parse_declaration(&plain, &lex(&plain)).ok_or(StatementError::NoStatement)?;
    let head = plain.get(..declaration.proof.statement_end(&plain)).unwrap_or_default();
    Statement::read(&format!("{} := by", head.trim_end()))
}

/// Rewrites a declaration without comments and with single blanks inside lines; `lemma` becomes `theorem`.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut end = None;
    let tokens = lex(source);
    let kept = tokens.iter().filter(|t| !t.is_trivia() && t.kind != TokenKind::DocComment);
    for (index, token) in kept.enumerate() {
        if let Some(end) = end {
            let gap = source.get(end..token.start).unwrap_or_default();
            if gap.contains('\n') {
                let line = source.get(..token.start).and_then(|s| s.rsplit('\n').next()).unwrap_or_default();
                text.push('\n');
                text.extend(std::iter::repeat_n(' ', line.chars().count()));
            } else if !gap.is_empty() {
                text.push(' ');
            }
        }
        text.push_str(if index == 0 && token.text(source) == "lemma" {
            "theorem"
        } else {
            token.text(source)
        });
        end = Some(token.end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> (String, Option<Repair>) {
        let (statement, repair) = canonical_statement(text).unwrap();
        (statement.text, repair)
    }

    #[test]
    fn statements_in_canonical_form_stay_as_they_are() {
        let text = "theorem t1 (x  : ℝ) (h  : x > 0)  :\n  x + 1 > 1 := by";
        assert_eq!(canonical(text), (text.to_owned(), None));
        let (statement, _) = canonical_statement(text).unwrap();
        assert_eq!(statement.name(), "t1");
        assert_eq!(statement.signature(), "(x  : ℝ) (h  : x > 0)  :\n  x + 1 > 1");
        assert_eq!(statement.conclusion(), "x + 1 > 1");
    }

    #[test]
    fn a_proof_position_inside_a_comment_is_set_free() {
        let (text, repair) = canonical("theorem a : 1/a < 1   -- not sufficient := by");
        assert_eq!(text, "theorem a : 1/a < 1   -- not sufficient\n  := by");
        assert_eq!(repair, Some(Repair::CommentedProof));
        assert_eq!(canonical("theorem a : S = H / 2       -- := by").0, "theorem a : S = H / 2\n  := by");
    }

    #[test]
    fn sorry_is_taken_away_and_a_bare_statement_completed() {
        for text in ["theorem a : p := by sorry", "theorem a : p := sorry", "theorem a : p :=\n  by\n  sorry"]
        {
            assert_eq!(canonical(text), ("theorem a : p := by".into(), Some(Repair::Sorry)), "{text}");
        }
        assert_eq!(canonical("theorem a : p"), ("theorem a : p := by".into(), Some(Repair::NoProof)));
        assert_eq!(
            canonical("theorem a : p -- c"),
            ("theorem a : p -- c\n  := by".into(), Some(Repair::NoProof))
        );
        assert_eq!(canonical_statement("theorem a : p := by simp").unwrap_err(), StatementError::Proof);
        assert_eq!(canonical_statement("def a := 1").unwrap_err(), StatementError::NoStatement);
    }

    #[test]
    fn equal_conjectures_are_equal_strings() {
        let a = canonical_conjecture(
            "import Mathlib\n\n/-- doc -/ lemma  l1 (x :  ℝ) : -- c\n  x <  x + 1 := by\n  sorry",
        )
        .unwrap();
        let b = canonical_conjecture("theorem l1 (x : ℝ) :\n  x < x /- c -/ + 1 := sorry").unwrap();
        assert_eq!(a.text, "theorem l1 (x : ℝ) :\n  x < x + 1 := by");
        assert_eq!(a, b);
    }

    #[test]
    fn conjectures_bring_nothing_along() {
        for text in [
            "axiom cheat : False\ntheorem b : 1 = 2 := by sorry",
            "def P := True\ntheorem b : P := by sorry",
            "theorem a : p := by sorry\ntheorem b : q := by sorry",
            "namespace A\ntheorem b : P := by sorry",
        ] {
            assert_eq!(canonical_conjecture(text), Err(StatementError::MoreThanOne), "{text}");
        }
        assert_eq!(canonical_conjecture("@[simp] theorem b : P := by sorry"), Err(StatementError::Modified));
        assert_eq!(canonical_conjecture("private theorem b : P := by sorry"), Err(StatementError::Modified));
        assert_eq!(canonical_conjecture("example : P := by sorry"), Err(StatementError::NoStatement));
        assert_eq!(canonical_conjecture("theorem b : P := by simp").unwrap().text, "theorem b : P := by");
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_canonical_text_is_a_fixed_point(text in "(theorem|lemma) [a-z]{1,3} ?(\\(x : ℕ\\) ){0,2}: [ -~\n∀→⟨⟩«»]{0,60}") {
            if let Ok((statement, _)) = canonical_statement(&text) {
                let (again, repair) = canonical_statement(&statement.text).unwrap();
                prop_assert_eq!(again, statement);
                prop_assert_eq!(repair, None);
            }
            let _ = canonical_conjecture(&text);
        }
    }
}
