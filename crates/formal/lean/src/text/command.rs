//! Splits a Lean text into commands: `import`, `theorem`, `end`, …
//!
//! The words that begin a command are keywords of Lean's grammar and cannot occur inside a tactic block or a term, so
//! no parser is needed. Some words can occur there (`open … in`, `set_option … in`), and some are keywords only in
//! certain versions. These begin a command only at the left margin.

use super::is_among;
use super::lexer::{SourceToken, TokenKind};
use std::ops::Range;

/// A command of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCommand {
    /// The word that determines the command: `theorem`, `import`, `#eval`. Modifiers and attributes precede it.
    pub keyword: String,
    /// Byte range, from the documentation comment, attributes and modifiers up to the next command.
    pub range: Range<usize>,
    /// Whether attributes (`@[…]`) precede the keyword.
    pub has_attributes: bool,
    /// Modifiers that precede the keyword, in order: `private`, `noncomputable`, ….
    pub modifiers: Vec<String>,
}

impl SourceCommand {
    /// Returns whether the command declares a theorem.
    pub fn is_theorem(&self) -> bool {
        matches!(self.keyword.as_str(), "theorem" | "lemma")
    }
}

/// Words that begin a command at any position.
const KEYWORDS: &str = "theorem lemma def abbrev example axiom instance inductive coinductive structure \
    class opaque mutual namespace section end variable universe import prelude export attribute initialize \
    builtin_initialize notation notation3 infix infixl infixr prefix postfix macro macro_rules syntax elab \
    elab_rules declare_syntax_cat run_cmd run_elab run_meta simproc dsimproc simproc_decl dsimproc_decl \
    builtin_simproc builtin_dsimproc binder_predicate unlock_limits";

/// Words that begin a command at the left margin only.
const MARGIN_KEYWORDS: &str = "open set_option variables universes alias include omit deriving \
    add_decl_doc seal unseal recall proof_wanted register_simp_attr register_option suppress_compilation \
    unsuppress_compilation library_note compile_inductive irreducible_def constant module \
    initialize_simps_projections assert_not_exists add_aesop_rules erase_aesop_rules grind_pattern \
    grind_propagator";

/// Words that modify the following command.
const MODIFIERS: &str = "private protected noncomputable unsafe partial nonrec public meta local scoped";

/// Splits a text into commands. Text before the first command belongs to none.
pub fn commands(source: &str, tokens: &[SourceToken]) -> Vec<SourceCommand> {
    let mut found: Vec<SourceCommand> = Vec::new();
    let mut prefix = CommandPrefix::default();
    for (index, token) in tokens.iter().enumerate() {
        if token.is_trivia() || prefix.is_inside_attributes(source, token) {
            continue;
        }
        let text = token.text(source);
        match token.kind {
            TokenKind::DocComment => prefix.begin(index),
            TokenKind::Open if text == "@[" => {
                prefix.begin(index);
                (prefix.attributes, prefix.depth) = (true, 1);
            }
            TokenKind::Word if is_among(MODIFIERS, text) => {
                prefix.begin(index);
                prefix.modifiers.push(text.to_owned());
            }
            TokenKind::Word | TokenKind::HashWord if begins(source, token, text, &prefix) => {
                let prefix = std::mem::take(&mut prefix);
                let start = tokens[prefix.first.unwrap_or(index)].start;
                if let Some(last) = found.last_mut() {
                    last.range.end = start;
                }
                found.push(SourceCommand {
                    keyword: text.to_owned(),
                    range: start..source.len(),
                    has_attributes: prefix.attributes,
                    modifiers: prefix.modifiers,
                });
            }
            _ => prefix = CommandPrefix::default(),
        }
    }
    found
}

fn begins(source: &str, token: &SourceToken, text: &str, prefix: &CommandPrefix) -> bool {
    if token.kind == TokenKind::Word && is_among(KEYWORDS, text) {
        return true;
    }
    let margin = prefix.first.is_some()
        || source.get(..token.start).is_some_and(|b| b.is_empty() || b.ends_with('\n'));
    margin && (token.kind == TokenKind::HashWord || is_among(MARGIN_KEYWORDS, text))
}

/// Documentation, attributes and modifiers that precede a keyword.
#[derive(Default)]
struct CommandPrefix {
    first: Option<usize>,
    attributes: bool,
    /// Nesting of brackets inside of `@[…]`.
    depth: usize,
    modifiers: Vec<String>,
}

impl CommandPrefix {
    fn begin(&mut self, index: usize) {
        self.first.get_or_insert(index);
    }

    fn is_inside_attributes(&mut self, source: &str, token: &SourceToken) -> bool {
        if self.depth == 0 {
            return false;
        }
        let keyword = token.kind == TokenKind::Word && is_among(KEYWORDS, token.text(source));
        match token.kind {
            TokenKind::Open => self.depth += 1,
            TokenKind::Close => self.depth -= 1,
            // `@[simp` is not closed: a new command begins here.
            _ if keyword && token.text(source) != "instance" && token.text(source) != "macro" => {
                self.depth = 0;
                return false;
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn cut(source: &str) -> Vec<(String, String)> {
        let tokens = lex(source);
        let found = commands(source, &tokens);
        found.iter().map(|c| (c.keyword.clone(), source[c.range.clone()].trim().to_owned())).collect()
    }

    #[test]
    fn commands_are_split_at_keywords_and_keep_their_prefix() {
        let source = "import Mathlib\nopen Nat Real\n\n/-- doc -/\n@[simp, to_additive (attr := simp)]\nprivate lemma a : True := by\n  open Nat in\n  trivial\n-- theorem in a comment\ntheorem b : \"theorem\" = x.instance := by simp\n#print axioms b";
        let found = cut(source);
        let keywords: Vec<_> = found.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(keywords, ["import", "open", "lemma", "theorem", "#print"]);
        assert!(found[2].1.starts_with("/-- doc -/") && found[2].1.contains("open Nat in"));
        let commands = commands(source, &lex(source));
        assert!(commands[2].has_attributes);
        assert_eq!(commands[2].modifiers, ["private"]);
    }

    #[test]
    fn a_command_may_begin_in_the_middle_of_a_line() {
        assert_eq!(cut("theorem a : True := by trivial theorem b : True := by trivial").len(), 2);
    }

    #[test]
    fn names_that_contain_keywords_begin_no_command() {
        assert_eq!(
            cut("theorem a (h_def : x) (section' : y) : «def» = theorem_b := by simp [h_def]").len(),
            1
        );
    }
}
