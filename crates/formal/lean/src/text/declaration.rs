//! The parts of a declaration: name, binders, conclusion, and the beginning of the proof.

use super::lexer::{SourceToken, TokenKind};
use std::ops::Range;

/// A bracketed group of binders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binder {
    /// The names that it binds; empty for an anonymous instance.
    pub names: Vec<String>,
    /// Byte range of the type, without a default value and its `:=`.
    pub ty: Range<usize>,
    /// Byte range, including the brackets.
    pub range: Range<usize>,
}

/// The beginning of a declaration's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum ProofStart {
    /// There is none: the text ends with the conclusion.
    Missing,
    /// `:= by`: the offset of `:=`, and the offset after `by`.
    By { assign: usize, after: usize },
    /// `:=` and a term: the offset of `:=`, and the offset after it.
    Term { assign: usize, after: usize },
    /// Equations, `| pattern => …`: the offset of `|`.
    Equations { at: usize },
}

impl ProofStart {
    /// Returns the offset at which the statement ends.
    pub fn statement_end(self, source: &str) -> usize {
        match self {
            ProofStart::Missing => source.len(),
            ProofStart::By { assign, .. } | ProofStart::Term { assign, .. } => assign,
            ProofStart::Equations { at } => at,
        }
    }
}

/// The parts of a declaration, as byte ranges of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The declared name; empty for `example`.
    pub name: Range<usize>,
    /// The binders before the colon.
    pub binders: Vec<Binder>,
    /// From after the colon up to the proof.
    pub conclusion: Range<usize>,
    /// The beginning of the proof.
    pub proof: ProofStart,
}

/// Parses the declaration at the beginning of `tokens`, after its attributes and modifiers. Returns `None` if it has no
/// keyword, no name or no colon.
pub fn parse_declaration(source: &str, tokens: &[SourceToken]) -> Option<Declaration> {
    let tokens: Vec<SourceToken> = tokens.iter().copied().filter(|t| !t.is_trivia()).collect();
    let mut reader = DeclarationParser { source, tokens: &tokens, at: 0 };
    let keyword = reader.keyword()?;
    let name = if keyword.text(source) == "example" { keyword.end..keyword.end } else { reader.name()? };
    let binders = reader.binders();
    let colon = reader.next().filter(|t| t.kind == TokenKind::Colon)?;
    let (end, proof) = reader.proof();
    Some(Declaration { name, binders, conclusion: colon.end..end, proof })
}

/// Parses the binders of a `variable` command. Returns `None` if it has anything else.
pub(super) fn variable_binders(source: &str, command: &[SourceToken]) -> Option<Vec<Binder>> {
    let tokens: Vec<SourceToken> = command.iter().copied().filter(|t| !t.is_trivia()).collect();
    let mut reader = DeclarationParser { source, tokens: &tokens, at: 1 };
    let binders = reader.binders();
    reader.peek().is_none().then_some(binders)
}

struct DeclarationParser<'s> {
    source: &'s str,
    tokens: &'s [SourceToken],
    at: usize,
}

impl DeclarationParser<'_> {
    fn peek(&self) -> Option<SourceToken> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<SourceToken> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn keyword(&mut self) -> Option<SourceToken> {
        loop {
            let token = self.next()?;
            match (token.kind, token.text(self.source)) {
                (
                    TokenKind::Word,
                    "theorem" | "lemma" | "example" | "def" | "abbrev" | "axiom" | "instance" | "opaque",
                ) => {
                    return Some(token);
                }
                (TokenKind::Open, _) => {
                    self.close();
                }
                (TokenKind::DocComment | TokenKind::Word, _) => {}
                _ => return None,
            }
        }
    }

    /// Skips to the bracket that closes the last one, and returns it.
    fn close(&mut self) -> Option<SourceToken> {
        let mut depth = 1;
        while let Some(token) = self.next() {
            match token.kind {
                TokenKind::Open => depth += 1,
                TokenKind::Close => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(token);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn name(&mut self) -> Option<Range<usize>> {
        let token = self.next()?;
        if !matches!(token.kind, TokenKind::Word | TokenKind::QuotedWord) {
            return None;
        }
        // Universe parameters: `foo.{u, v}` or `foo .{u, v}`. Lean reads `.{` as one token.
        let dot = self.peek().filter(|t| t.text(self.source) == ".").map(|t| t.end);
        let brace = self.tokens.get(self.at + 1).filter(|t| t.text(self.source) == "{").map(|t| t.start);
        if dot.is_some() && dot == brace {
            self.at += 2;
            self.close()?;
        }
        Some(token.start..token.end)
    }

    fn binders(&mut self) -> Vec<Binder> {
        let mut binders = Vec::new();
        while let Some(token) = self.peek() {
            match token.kind {
                TokenKind::Open => {
                    self.at += 1;
                    let inner = self.at;
                    let Some(close) = self.close() else { break };
                    binders.push(self.binder(token, close, inner..self.at - 1));
                }
                // A bare name binds too (`theorem a x : …`), and so does `_`.
                TokenKind::Word | TokenKind::QuotedWord => {
                    self.at += 1;
                    binders.push(Binder {
                        names: vec![token.text(self.source).to_owned()],
                        ty: token.end..token.end,
                        range: token.start..token.end,
                    });
                }
                _ => break,
            }
        }
        binders
    }

    fn binder(&self, open: SourceToken, close: SourceToken, inner: Range<usize>) -> Binder {
        let is_instance = !matches!(open.text(self.source), "(" | "{" | "⦃");
        let tokens = &self.tokens[inner];
        let colon = tokens.iter().position(|t| t.kind == TokenKind::Colon);
        let (names, start) = match colon {
            Some(colon) => {
                (tokens[..colon].iter().map(|t| t.text(self.source).to_owned()).collect(), tokens[colon].end)
            }
            None if is_instance => (Vec::new(), open.end),
            None => (tokens.iter().map(|t| t.text(self.source).to_owned()).collect(), close.start),
        };
        // Find the `:=` of a default value, not that of a `let` in the type.
        let ty = &tokens[colon.unwrap_or(0)..];
        let assign = first_own_assign(&self.top_level(ty));
        Binder { names, ty: start..assign.map_or(close.start, |t| t.start), range: open.start..close.end }
    }

    /// Finds the `:=` of the declaration, which does not belong to a `let` or `have` of the conclusion.
    fn proof(&mut self) -> (usize, ProofStart) {
        let tokens = &self.tokens[self.at..];
        let level = self.top_level(tokens);
        // A statement without a proof, as in data sets, ends in `:= by`.
        let at_end = match tokens {
            [.., assign, by] if assign.kind == TokenKind::Assign && by.text(self.source) == "by" => {
                Some(*assign)
            }
            _ => None,
        };
        let assign = at_end.or_else(|| first_own_assign(&level)).or_else(|| {
            let pairs = level.windows(2).find(|w| w[0].0.kind == TokenKind::Assign && w[1].1 == "by");
            pairs.map(|w| w[0].0)
        });
        if let Some(assign) = assign {
            let next = tokens.iter().find(|t| t.start >= assign.end);
            let by = next.filter(|t| t.kind == TokenKind::Word && t.text(self.source) == "by");
            let proof = match by {
                Some(by) => ProofStart::By { assign: assign.start, after: by.end },
                None => ProofStart::Term { assign: assign.start, after: assign.end },
            };
            return (assign.start, proof);
        }
        let arm = level.iter().find(|(token, text)| *text == "|" && self.begins_line(token));
        match arm {
            Some((token, _)) => (token.start, ProofStart::Equations { at: token.start }),
            None => (tokens.last().map_or(self.source.len(), |t| t.end), ProofStart::Missing),
        }
    }

    fn top_level(&self, tokens: &[SourceToken]) -> Vec<(SourceToken, &str)> {
        let mut depth = 0_i32;
        let mut level = Vec::new();
        for token in tokens {
            match token.kind {
                TokenKind::Open => depth += 1,
                TokenKind::Close => depth -= 1,
                _ if depth == 0 => level.push((*token, token.text(self.source))),
                _ => {}
            }
        }
        level
    }

    fn begins_line(&self, token: &SourceToken) -> bool {
        self.source
            .get(..token.start)
            .is_some_and(|before| before.rsplit('\n').next().is_some_and(|line| line.trim().is_empty()))
    }
}

/// Returns the first `:=` that does not belong to a preceding `let` or `have`.
fn first_own_assign(level: &[(SourceToken, &str)]) -> Option<SourceToken> {
    let mut claims = 0_u32;
    for (token, text) in level {
        match token.kind {
            TokenKind::Word if matches!(*text, "let" | "have" | "haveI" | "letI" | "let_fun") => claims += 1,
            TokenKind::Assign if claims > 0 => claims -= 1,
            TokenKind::Assign => return Some(*token),
            TokenKind::Symbol if matches!(*text, "←" | "<-") => claims = claims.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::lexer::lex;
    use super::*;

    fn parse(source: &str) -> Declaration {
        parse_declaration(source, &lex(source)).unwrap()
    }

    #[test]
    fn the_parts_of_a_statement_are_found() {
        let source =
            "theorem t1.{u} (x y : ℝ) {n : ℕ} [Fact p] (a : Int := 85) (h : x > 0) :\n  x + 1 > 1 := by";
        let d = parse(source);
        assert_eq!(&source[d.name.clone()], "t1");
        assert_eq!(parse(&source.replace("t1.{u}", "t1 .{u}")).binders.len(), d.binders.len());
        let names: Vec<_> = d.binders.iter().map(|b| b.names.join(" ")).collect();
        assert_eq!(names, ["x y", "n", "", "a", "h"]);
        assert_eq!(&source[d.binders[3].ty.clone()], " Int ");
        assert_eq!(source[d.conclusion.clone()].trim(), "x + 1 > 1");
        assert!(matches!(d.proof, ProofStart::By { after, .. } if after == source.len()));
    }

    #[test]
    fn lets_of_the_conclusion_keep_their_assignments() {
        let source = "theorem a : let x := 1; have h := 2; x = 1 := by\n  have y : x = 1 := rfl\n  exact y";
        let d = parse(source);
        assert_eq!(source[d.conclusion].trim(), "let x := 1; have h := 2; x = 1");
        let open = "theorem a :\n  let f : ℕ → ℕ\n    | 0 => 1\n    | n + 1 => n\n  f 0 = 1 := by";
        assert!(matches!(parse(open).proof, ProofStart::By { .. }));
    }

    #[test]
    fn a_let_in_a_binder_is_part_of_its_type() {
        let source =
            "theorem a (h : let y := 1; y = x) (n : Nat := 3) (k : let z := 2\n  z = n := rfl) : p := by";
        let binders = parse(source).binders;
        assert_eq!(&source[binders[0].ty.clone()], " let y := 1; y = x");
        assert_eq!(&source[binders[1].ty.clone()], " Nat ");
        assert_eq!(&source[binders[2].ty.clone()], " let z := 2\n  z = n ");
    }

    #[test]
    fn proofs_are_terms_equations_or_missing() {
        assert!(matches!(parse("theorem a : 1 = 1 := rfl").proof, ProofStart::Term { .. }));
        assert!(matches!(
            parse("theorem a : ∀ n, n = n\n  | 0 => rfl\n  | _ + 1 => rfl").proof,
            ProofStart::Equations { .. }
        ));
        assert_eq!(parse("theorem a : |x| = 1").proof, ProofStart::Missing);
        assert!(matches!(parse("theorem a : 1 = 1 :=\n  by rfl").proof, ProofStart::By { .. }));
        assert!(parse_declaration("theorem a", &lex("theorem a")).is_none());
    }
}
