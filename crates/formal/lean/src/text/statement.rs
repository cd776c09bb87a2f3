//! Statements in canonical form: one theorem that ends in `:= by`.

use super::command::commands;
use super::declaration::{Declaration, ProofStart, parse_declaration};
use super::lexer::{SourceToken, TokenKind, lex};
use super::words;
use std::ops::Range;

/// A statement in canonical form, with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanStatement {
    /// The canonical text, which ends in `:= by`.
    pub text: String,
    /// Its parts, as ranges of `text`.
    pub declaration: Declaration,
}

impl LeanStatement {
    /// Returns the declared name.
    pub fn name(&self) -> &str {
        self.slice(&self.declaration.name)
    }

    /// Returns the components of the declared name.
    pub fn declared(&self) -> DeclaredName<'_> {
        DeclaredName::of(self.name())
    }

    /// Returns binders, colon and conclusion, trimmed.
    pub fn signature(&self) -> &str {
        let end = self.declaration.proof.statement_end(&self.text);
        self.slice(&(self.declaration.name.end..end)).trim()
    }

    /// Returns the conclusion.
    pub fn conclusion(&self) -> &str {
        self.slice(&self.declaration.conclusion).trim()
    }

    /// Returns the statement without its final `:= by`.
    pub fn before_proof(&self) -> &str {
        self.slice(&(0..self.declaration.proof.statement_end(&self.text))).trim_end()
    }

    fn slice(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }

    /// Parses a canonical text.
    ///
    /// # Errors
    /// Returns an error if the text is not a theorem that ends in `:= by`.
    pub fn read(text: &str) -> Result<Self, LeanStatementError> {
        let tokens = lex(text);
        let declaration = parse_declaration(text, &tokens).ok_or(LeanStatementError::NoStatement)?;
        let ProofStart::By { after, .. } = declaration.proof else {
            return Err(LeanStatementError::NoProofPosition);
        };
        if !text.get(after..).is_some_and(|rest| rest.trim().is_empty()) {
            return Err(LeanStatementError::Proof);
        }
        Ok(Self { text: text.to_owned(), declaration })
    }
}

/// The namespace and the last component of a declared name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredName<'s> {
    /// Whether it begins with `_root_.`, which ignores and opens no namespace.
    pub rooted: bool,
    /// Everything before the last component; empty for a name of one component.
    pub namespace: &'s str,
    /// The last component.
    pub last: &'s str,
}

impl<'s> DeclaredName<'s> {
    /// Splits a name at its last dot outside of `«»`.
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

/// The reason why a text is not a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants")]
pub enum LeanStatementError {
    #[error("no theorem with a name and a `:` before its conclusion")]
    NoStatement,
    #[error("the beginning of the proof was not found (`:= by` or `:=` at the end of the statement)")]
    NoProofPosition,
    #[error("the statement has a proof")]
    Proof,
    #[error("more than one command where one theorem is expected")]
    MoreThanOne,
    #[error("attributes or modifiers before the theorem")]
    Modified,
}

/// Brings the statement of a data set into canonical form: one theorem that ends in `:= by`.
///
/// A text that is already canonical is returned unchanged. A proof by `sorry` is removed. A `:= by` inside of a line
/// comment is moved to its own line.
///
/// # Errors
/// Returns an error if the text is not a theorem, or has a proof.
pub fn canonical_statement(text: &str) -> Result<LeanStatement, LeanStatementError> {
    let text = text.trim_end();
    let tokens = lex(text);
    let declaration = parse_declaration(text, &tokens).ok_or(LeanStatementError::NoStatement)?;
    let rest = match declaration.proof {
        ProofStart::By { after, .. } | ProofStart::Term { after, .. } => &text[after..],
        ProofStart::Equations { .. } => return Err(LeanStatementError::Proof),
        ProofStart::Missing => return without_proof(text, &tokens),
    };
    let is_by = matches!(declaration.proof, ProofStart::By { .. });
    match (words(rest).as_slice(), is_by) {
        ([], true) if rest.is_empty() => Ok(LeanStatement { text: text.to_owned(), declaration }),
        ([], _) | (["sorry"], _) | (["by", "sorry"], false) => {
            let end = declaration.proof.statement_end(text);
            let head = text[..end].trim_end();
            LeanStatement::read(&format!("{head} := by"))
        }
        _ => Err(LeanStatementError::Proof),
    }
}

fn without_proof(text: &str, tokens: &[SourceToken]) -> Result<LeanStatement, LeanStatementError> {
    let comment = tokens.last().filter(|t| t.kind == TokenKind::LineComment);
    if let Some(comment) = comment
        && let Some(before) = comment.text(text).strip_suffix(":= by")
    {
        let head = &text[..comment.start];
        // An empty comment (`-- := by`) is removed. Any other is kept.
        let kept = if before.trim() == "--" { "" } else { before.trim_end() };
        return LeanStatement::read(&format!("{}\n  := by", format!("{head}{kept}").trim_end()));
    }
    let glue = if comment.is_some() { "\n  := by" } else { " := by" };
    LeanStatement::read(&format!("{text}{glue}"))
}

/// Brings a conjecture into canonical form, so that conjectures that differ in layout only are equal strings.
///
/// The text must contain exactly one `theorem` or `lemma` without attributes and modifiers. Its proof and its comments
/// are removed, `lemma` becomes `theorem`, and blanks within a line are merged. Line breaks and indentation are kept,
/// because they can carry meaning. `import`, `open` and `set_option` commands before the theorem are dropped: a
/// conjecture is judged after the header of its target.
pub fn canonical_conjecture(text: &str) -> Result<LeanStatement, LeanStatementError> {
    let tokens = lex(text);
    let found = commands(text, &tokens);
    let mut theorems = found.iter().filter(|c| c.is_theorem());
    let theorem = theorems.next().ok_or(LeanStatementError::NoStatement)?;
    let others = found.iter().filter(|c| !c.is_theorem());
    if theorems.next().is_some()
        || !others.into_iter().all(|c| matches!(c.keyword.as_str(), "import" | "open" | "set_option"))
    {
        return Err(LeanStatementError::MoreThanOne);
    }
    if theorem.has_attributes || !theorem.modifiers.is_empty() {
        return Err(LeanStatementError::Modified);
    }
    let source = &text[theorem.range.clone()];
    let plain = without_comments(source);
    let declaration = parse_declaration(&plain, &lex(&plain)).ok_or(LeanStatementError::NoStatement)?;
    let head = &plain[..declaration.proof.statement_end(&plain)];
    LeanStatement::read(&format!("{} := by", head.trim_end()))
}

/// Returns a declaration without comments, with single blanks within lines, and with `theorem` instead of `lemma`.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut end = None;
    let tokens = lex(source);
    let kept = tokens.iter().filter(|t| !t.is_trivia() && t.kind != TokenKind::DocComment);
    for (index, token) in kept.enumerate() {
        if let Some(end) = end {
            let gap = &source[end..token.start];
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

    fn canonical(text: &str) -> String {
        canonical_statement(text).unwrap().text
    }

    #[test]
    fn canonical_statements_are_unchanged() {
        let text = "theorem t1 (x  : ℝ) (h  : x > 0)  :\n  x + 1 > 1 := by";
        assert_eq!(canonical(text), text);
        let statement = canonical_statement(text).unwrap();
        assert_eq!(statement.name(), "t1");
        assert_eq!(statement.signature(), "(x  : ℝ) (h  : x > 0)  :\n  x + 1 > 1");
        assert_eq!(statement.conclusion(), "x + 1 > 1");
    }

    #[test]
    fn a_commented_proof_position_is_repaired() {
        let text = canonical("theorem a : 1/a < 1   -- not sufficient := by");
        assert_eq!(text, "theorem a : 1/a < 1   -- not sufficient\n  := by");
        assert_eq!(canonical("theorem a : S = H / 2       -- := by"), "theorem a : S = H / 2\n  := by");
    }

    #[test]
    fn sorry_is_removed_and_a_bare_statement_completed() {
        for text in ["theorem a : p := by sorry", "theorem a : p := sorry", "theorem a : p :=\n  by\n  sorry"]
        {
            assert_eq!(canonical(text), "theorem a : p := by", "{text}");
        }
        assert_eq!(canonical("theorem a : p"), "theorem a : p := by");
        assert_eq!(canonical("theorem a : p -- c"), "theorem a : p -- c\n  := by");
        assert_eq!(canonical_statement("theorem a : p := by simp").unwrap_err(), LeanStatementError::Proof);
        assert_eq!(canonical_statement("def a := 1").unwrap_err(), LeanStatementError::NoStatement);
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
    fn conjectures_contain_one_theorem_only() {
        for text in [
            "axiom cheat : False\ntheorem b : 1 = 2 := by sorry",
            "def P := True\ntheorem b : P := by sorry",
            "theorem a : p := by sorry\ntheorem b : q := by sorry",
            "namespace A\ntheorem b : P := by sorry",
        ] {
            assert_eq!(canonical_conjecture(text), Err(LeanStatementError::MoreThanOne), "{text}");
        }
        for text in ["@[simp] theorem b : P := by sorry", "private theorem b : P := by sorry"] {
            assert_eq!(canonical_conjecture(text), Err(LeanStatementError::Modified), "{text}");
        }
        assert_eq!(canonical_conjecture("example : P := by sorry"), Err(LeanStatementError::NoStatement));
        assert_eq!(canonical_conjecture("theorem b : P := by simp").unwrap().text, "theorem b : P := by");
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_canonical_text_is_a_fixed_point(text in "(theorem|lemma) [a-z]{1,3} ?(\\(x : ℕ\\) ){0,2}: [ -~\n∀→⟨⟩«»]{0,60}") {
            if let Ok(statement) = canonical_statement(&text) {
                prop_assert_eq!(canonical_statement(&statement.text).unwrap(), statement);
            }
            let _ = canonical_conjecture(&text);
        }
    }
}
