//! Words and constructions that a proof never needs and that could make it more, or other, than a proof.
//!
//! This is the first layer of trust: cheap, and not a guarantee. It looks three times: for places that Lean could read
//! otherwise (`ambiguity`), for forbidden words anywhere in the text, without a lexer (`words`), and at the tokens,
//! where commands, options and reserved names are judged by what stands around them.

use super::ambiguity::ambiguity;
use super::bounds::{Bounds, Exceeded};
use super::command::{Command, KEYWORDS, MARGIN_KEYWORDS, MODIFIERS, commands};
use super::declaration::{ProofStart, parse_declaration};
use super::enclose::SUFFIXES;
use super::lexer::{Token, TokenKind, lex};
use super::line_of;
use super::words::{COMPILER, HASH_COMMANDS, META_CODE, SORRY, forbidden_word};
use std::fmt;

/// The rules of the textual layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Size, nesting, brackets, unclosed text, foreign characters.
    Bounds,
    /// A place that Lean could read otherwise than we do.
    Ambiguous,
    /// A command where only a proof may stand.
    Command,
    /// A `#…` command.
    HashCommand,
    /// `sorry` under any of its names.
    Sorry,
    /// Trust in the compiler in place of the kernel.
    Compiler,
    /// Code that runs while Lean elaborates.
    MetaCode,
    /// An option that is not on the list of harmless ones.
    Option,
    /// `open` without `in`.
    Open,
    /// An attribute.
    Attribute,
    /// A quotation or a name literal.
    Quotation,
    /// A string with code in it.
    InterpolatedString,
    /// A name of Lean's own machinery, of input and output, or of this checker.
    ReservedName,
    /// A helper that is not a plain theorem, or whose name the statement could mean.
    Helper,
}

impl Rule {
    /// The rule's name as it is counted and reported.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Bounds => "bounds",
            Rule::Ambiguous => "ambiguous",
            Rule::Command => "command",
            Rule::HashCommand => "hash-command",
            Rule::Sorry => "sorry",
            Rule::Compiler => "compiler",
            Rule::MetaCode => "meta-code",
            Rule::Option => "option",
            Rule::Open => "open",
            Rule::Attribute => "attribute",
            Rule::Quotation => "quotation",
            Rule::InterpolatedString => "interpolated-string",
            Rule::ReservedName => "reserved-name",
            Rule::Helper => "helper",
        }
    }
}

/// Why the textual layer refuses a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub rule: Rule,
    /// The offending word, or what exceeds which bound.
    pub what: String,
    /// Line of the text, counted from 1.
    pub line: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text layer, rule {}: `{}` in line {}", self.rule.as_str(), self.what, self.line)
    }
}

/// First parts of dotted names. Alone (`IO`, `System`) they may be names of the proof's own.
const RESERVED_ROOTS: &[&str] =
    &["Lean", "IO", "EIO", "BaseIO", "System", "Qq", "Mathlib.Tactic", "Lake", "Sgs"];

/// What no proof opens, and no helper is called: namespaces in which a short name is code.
const RESERVED_NAMESPACES: &[&str] =
    &["Lean", "IO", "System", "Qq", "Lake", "Elab", "Meta", "Tactic", "Compiler"];

/// Whole names, with or without a namespace before them.
const RESERVED_PARTS: &[&str] = &[
    "MetaM",
    "TacticM",
    "CoreM",
    "TermElabM",
    "CommandElabM",
    "MacroM",
    "CommandElab",
    "ofReduceBool",
    "sorryAx",
    "unsafeCast",
];

/// Options that a proof may set for one tactic, with the largest number each may have: they bound work.
const NUMBER_OPTIONS: &[(&str, u64)] = &[
    ("maxRecDepth", 100_000),
    ("maxHeartbeats", u64::MAX),
    ("synthInstance.maxHeartbeats", u64::MAX),
    ("synthInstance.maxSize", 100_000),
    ("exponentiation.threshold", 4_096),
];

/// Options that are on or off and change what is printed, or how names are chosen.
const SWITCH_OPTIONS: &[&str] =
    &["linter.unusedVariables", "linter.all", "tactic.hygienic", "pp.all", "pp.explicit"];

/// What a piece of text may be; decides which commands it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Proof,
    Helpers,
    Statement,
}

/// Refuses a tactic block (the text after `:= by`) that is not just that.
pub fn inspect_proof(body: &str, bounds: &Bounds) -> Result<(), Refusal> {
    let tokens = bounded(body, bounds)?;
    inspect_tokens(body, &tokens, Place::Proof)?;
    nothing_follows(body, &tokens, 0)
}

/// Refuses a statement (ending in `:= by`) that brings more than one theorem's type.
pub fn inspect_statement(statement: &str, bounds: &Bounds) -> Result<(), Refusal> {
    let tokens = bounded(statement, bounds)?;
    inspect_tokens(statement, &tokens, Place::Statement)
}

/// Refuses helpers (the text before the target's theorem) that are not plain theorems, or that declare a name
/// which the statement could mean by one of its own words.
pub fn inspect_helpers(helpers: &str, statement: &str, bounds: &Bounds) -> Result<(), Refusal> {
    let tokens = bounded(helpers, bounds)?;
    inspect_tokens(helpers, &tokens, Place::Helpers)?;
    let mut expected = 0;
    for command in commands(helpers, &tokens) {
        helper(helpers, &tokens, &command, statement)?;
        if tokens.get(expected..command.tokens.start).is_some_and(|gap| gap.iter().any(|t| !t.is_trivia())) {
            return Err(refusal(helpers, Rule::Helper, "text outside of a theorem", command.range.start));
        }
        expected = command.tokens.end;
    }
    if tokens.get(expected..).is_some_and(|gap| gap.iter().any(|t| !t.is_trivia())) {
        return Err(refusal(helpers, Rule::Helper, "text outside of a theorem", 0));
    }
    Ok(())
}

/// Whether a proof uses the tactic `try` (a token; not `symmetry`, not a comment, not `try?`).
pub fn uses_tactic_try(proof: &str) -> bool {
    lex(proof).iter().any(|t| t.kind == TokenKind::Word && t.text(proof) == "try")
}

fn refusal(source: &str, rule: Rule, what: impl Into<String>, at: usize) -> Refusal {
    Refusal { rule, what: what.into(), line: line_of(source, at) }
}

fn bounded(source: &str, bounds: &Bounds) -> Result<Vec<Token>, Refusal> {
    bounds.check(source).map_err(|error: Exceeded| refusal(source, Rule::Bounds, error.to_string(), 0))
}

/// Refuses what stands at the left margin after a proof that is indented: by Lean's grammar a proof has ended there,
/// and only `where` and its like belong to it still. Which commands there are does not matter. `after` is where the
/// proof begins.
fn nothing_follows(source: &str, tokens: &[Token], after: usize) -> Result<(), Refusal> {
    let margin = |t: &Token| t.start == 0 || source.get(..t.start).is_some_and(|b| b.ends_with('\n'));
    let mut own = tokens.iter().filter(|t| t.start >= after && !t.is_trivia());
    // A block that begins at the margin has all its lines there.
    if own.clone().next().is_none_or(&margin) {
        return Ok(());
    }
    let foreign = own.find(|t| {
        matches!(t.kind, TokenKind::Word | TokenKind::QuotedWord | TokenKind::HashWord)
            && margin(t)
            && !SUFFIXES.contains(&t.text(source))
    });
    foreign.map_or(Ok(()), |t| Err(refusal(source, Rule::Command, t.text(source), t.start)))
}

fn helper(source: &str, tokens: &[Token], command: &Command, statement: &str) -> Result<(), Refusal> {
    let refuse = |what: &str| Err(refusal(source, Rule::Helper, what, command.range.start));
    if !command.is_theorem() {
        return refuse(&command.keyword);
    }
    if !command.modifiers.iter().all(|m| matches!(m.as_str(), "private" | "protected"))
        || command.has_attributes
    {
        return refuse("attributes or modifiers before a helper");
    }
    let own = tokens.get(command.tokens.clone()).unwrap_or_default();
    let Some(declaration) = parse_declaration(source, own) else {
        return refuse("a helper that cannot be read");
    };
    match declaration.proof {
        ProofStart::Missing => return refuse("a helper without a proof"),
        ProofStart::By { after, .. } | ProofStart::Term { after, .. } => nothing_follows(source, own, after)?,
        ProofStart::Equations { at } => nothing_follows(source, own, at + 1)?,
    }
    let name = source.get(declaration.name).unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or(name).trim_matches(['«', '»']);
    let clash = lex(statement).iter().any(|t| {
        matches!(t.kind, TokenKind::Word | TokenKind::QuotedWord)
            && t.text(statement).split('.').any(|part| part.trim_matches(['«', '»']) == last)
    });
    let reserved = name.split('.').any(|part| RESERVED_NAMESPACES.contains(&part.trim_matches(['«', '»'])));
    if clash || reserved || name.starts_with("_root_") {
        return refuse(name);
    }
    Ok(())
}

fn inspect_tokens(source: &str, tokens: &[Token], place: Place) -> Result<(), Refusal> {
    // The tokens first: their reasons are the clearer ones.
    inspect_each(source, tokens, place)?;
    if let Some(found) = forbidden_word(source, tokens) {
        return Err(refusal(source, found.rule, found.word, found.at));
    }
    match ambiguity(source, tokens) {
        Some((at, what)) => Err(refusal(source, Rule::Ambiguous, what, at)),
        None => Ok(()),
    }
}

fn inspect_each(source: &str, tokens: &[Token], place: Place) -> Result<(), Refusal> {
    let meaning: Vec<&Token> = tokens.iter().filter(|t| !t.is_trivia()).collect();
    for (index, token) in meaning.iter().enumerate() {
        let text = token.text(source);
        let refuse = |rule: Rule| Err(refusal(source, rule, text, token.start));
        match token.kind {
            TokenKind::HashWord if is_hash_command(source, token, text) => return refuse(Rule::HashCommand),
            TokenKind::Backtick => return refuse(Rule::Quotation),
            TokenKind::Open if text == "@[" => return refuse(Rule::Attribute),
            TokenKind::DocComment if place == Place::Proof => return refuse(Rule::Command),
            TokenKind::Str { interpolated: true } => return refuse(Rule::InterpolatedString),
            TokenKind::QuotedWord => reserved(source, token, text)?,
            TokenKind::Word => word(source, &meaning, index, place)?,
            _ => {}
        }
    }
    Ok(())
}

fn word(source: &str, meaning: &[&Token], index: usize, place: Place) -> Result<(), Refusal> {
    let Some(token) = meaning.get(index) else { return Ok(()) };
    let text = token.text(source);
    let refuse = |rule: Rule| Err(refusal(source, rule, text, token.start));
    let follows_percent =
        meaning.get(index + 1).is_some_and(|t| t.start == token.end && t.text(source) == "%");
    // `foo%` is a syntax of its own in Lean (`eval%`, `decl_name%`); the percent sign is a token here.
    let with_percent = if follows_percent { format!("{text}%") } else { String::new() };
    let is_one_of = |list: &[&str]| list.contains(&text) || list.contains(&with_percent.as_str());
    let after_dot =
        index > 0 && meaning.get(index - 1).is_some_and(|t| t.end == token.start && t.text(source) == ".");
    if is_one_of(SORRY) {
        return refuse(Rule::Sorry);
    }
    if is_one_of(COMPILER) {
        return refuse(Rule::Compiler);
    }
    if is_one_of(META_CODE) {
        return refuse(Rule::MetaCode);
    }
    match text {
        "open" => return open(source, meaning, index),
        "set_option" => return option(source, meaning, index),
        "config" => return configuration(source, meaning, index),
        "theorem" | "lemma" if place == Place::Helpers => return Ok(()),
        "theorem" | "lemma" if place == Place::Statement && index == 0 => return Ok(()),
        "private" | "protected" if place == Place::Helpers => return Ok(()),
        _ => {}
    }
    let margin = source.get(..token.start).is_some_and(|b| b.is_empty() || b.ends_with('\n'));
    let is_command = KEYWORDS.contains(&text) || MODIFIERS.contains(&text) && !is_plain_word(text);
    if !after_dot && (is_command || margin && (MARGIN_KEYWORDS.contains(&text) || MODIFIERS.contains(&text)))
    {
        return refuse(Rule::Command);
    }
    reserved(source, token, text)
}

/// Modifiers that are keywords only in newer versions: ordinary names in older proofs.
fn is_plain_word(text: &str) -> bool {
    matches!(text, "public" | "meta" | "nonrec")
}

fn reserved(source: &str, token: &Token, text: &str) -> Result<(), Refusal> {
    let plain: String = text.chars().filter(|c| !matches!(c, '«' | '»')).collect();
    let name = plain.strip_prefix("_root_.").unwrap_or(&plain);
    let root = |list: &str| name.strip_prefix(list).is_some_and(|rest| rest.starts_with('.'));
    let parts = || {
        name.split('.')
            .any(|part| RESERVED_PARTS.contains(&part) || SORRY.contains(&part) || COMPILER.contains(&part))
    };
    let mut parts_of_name = name.split('.').map(|part| part.trim_start_matches('_'));
    let own = parts_of_name.any(|part| part.starts_with("sgs_") || part.starts_with("Sgs_"));
    if RESERVED_ROOTS.iter().any(|list| root(list)) || parts() || own {
        return Err(refusal(source, Rule::ReservedName, text, token.start));
    }
    Ok(())
}

/// `open A B in …` changes what one tactic or term sees; `open A B` alone would be a command.
fn open(source: &str, meaning: &[&Token], index: usize) -> Result<(), Refusal> {
    let mut depth = 0_i32;
    let at = meaning.get(index).map_or(0, |t| t.start);
    for token in meaning.get(index + 1..).unwrap_or_default() {
        let text = token.text(source);
        let reserved = || text.split('.').any(|p| RESERVED_NAMESPACES.contains(&p.trim_matches(['«', '»'])));
        match token.kind {
            TokenKind::Word if depth == 0 && text == "in" => return Ok(()),
            TokenKind::Word | TokenKind::QuotedWord if reserved() => {
                return Err(refusal(source, Rule::Open, format!("open {text}"), token.start));
            }
            TokenKind::Word | TokenKind::QuotedWord | TokenKind::Symbol => {}
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth -= 1,
            _ => break,
        }
    }
    Err(refusal(source, Rule::Open, "open", at))
}

/// `(config := { decide := true })` names what it sets, and the names are looked at; by position (`⟨false, true⟩`,
/// `.mk false true`) it could ask for compiled code without saying so.
fn configuration(source: &str, meaning: &[&Token], index: usize) -> Result<(), Refusal> {
    let rest = meaning.get(index + 1..).unwrap_or_default();
    let text = |at: usize| rest.get(at).map_or("", |t| t.text(source));
    if rest.first().is_none_or(|t| t.kind != TokenKind::Assign) {
        return Ok(());
    }
    let named = text(1) == "." && text(2) != "mk" && text(3) == ")";
    let mut depth = 0_usize;
    let mut inside = rest.iter().skip(1).take_while(|t| {
        match t.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 0
    });
    let positional = |t: &Token| {
        let text = t.text(source);
        text == "⟨" || text == "with" || text.rsplit('.').next() == Some("mk")
    };
    if named || text(1) == "{" && !inside.any(|t| positional(t)) {
        return Ok(());
    }
    let at = meaning.get(index).map_or(0, |t| t.start);
    Err(refusal(source, Rule::Compiler, "a configuration by position", at))
}

/// `set_option maxRecDepth 2000 in …` is harmless; every option that is not on the lists is refused.
fn option(source: &str, meaning: &[&Token], index: usize) -> Result<(), Refusal> {
    let text = |offset: usize| meaning.get(index + offset).map_or("", |t| t.text(source));
    let (name, value) = (text(1), text(2));
    let limit = NUMBER_OPTIONS.iter().find(|(option, _)| *option == name).map(|(_, limit)| *limit);
    let number = value.replace('_', "").parse::<u64>().ok();
    let bounded = limit.zip(number).is_some_and(|(limit, n)| n <= limit && (n > 0 || limit == u64::MAX));
    let switch = SWITCH_OPTIONS.contains(&name) && matches!(value, "true" | "false");
    if (bounded || switch) && text(3) == "in" {
        return Ok(());
    }
    let at = meaning.get(index).map_or(0, |t| t.start);
    Err(refusal(source, Rule::Option, format!("set_option {name} {value}"), at))
}

/// `#s` is a cardinality in Mathlib and `#[` an array; `#eval` and its like are commands. A command stands at the
/// start of a line or has a name of two letters or more that Lean or Mathlib gives to a command.
fn is_hash_command(source: &str, token: &Token, text: &str) -> bool {
    let begins_line = source
        .get(..token.start)
        .is_some_and(|before| before.rsplit('\n').next().is_some_and(|line| line.trim().is_empty()));
    begins_line || HASH_COMMANDS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(body: &str) -> Option<Rule> {
        inspect_proof(body, &Bounds::default()).err().map(|r| r.rule)
    }

    #[test]
    fn honest_proofs_pass() {
        for body in [
            "\n  linarith",
            "\n  have h_def : x = 1 := by\n    simp [foo_def, Finset.sum_range_succ]\n  -- for instance, at the end\n  exact h_def",
            "\n  open Real in\n  simp",
            "\n  set_option maxRecDepth 2000 in\n  decide",
            "\n  rw [show #s = 3 from rfl]",
            "\n  intro h; exact h.instance.prefix",
            "\n  let rec f : ℕ → ℕ := fun n => n\n  exact ⟨f, by simp⟩",
            "\n  simp only [«my name», h.symm, Nat.init_le]",
            "\n  exact absurd h (by norm_num : ¬ (1 : ℝ) = 2)",
            "\n  induction n with\n  | zero => rfl\n  | succ n ih => omega",
            "\n  exact foo \"{}\" \"a string of words\\n\"",
            "\n  exact foo { x : Int //-1 < x }",
            "\n  intro IO System Environment extern h\n  exact h IO System Environment extern",
            "\n  exact f n\nwhere\n  f (n : ℕ) : P n := g n",
            "\n  set_option linter.unusedVariables false in\n  simp",
            "\n  simp (config := { decide := true, zeta := false }) at h",
            "\n  simp (config := .arith)",
        ] {
            assert_eq!(rule(body), None, "{body}");
        }
    }

    #[test]
    fn every_forbidden_word_is_refused_alone_and_not_as_a_part_of_a_name() {
        let lists: [(&[&str], Rule); 3] =
            [(SORRY, Rule::Sorry), (COMPILER, Rule::Compiler), (META_CODE, Rule::MetaCode)];
        for (list, expected) in lists {
            for word in list {
                assert_eq!(rule(&format!("\n  exact {word} x")), Some(expected), "{word}");
                assert_eq!(
                    rule(&format!("\n  exact h_{}", word.replace(['%', '!', '?'], "_"))),
                    None,
                    "{word}"
                );
                let comment = rule(&format!("\n  simp -- {word}"));
                let english = matches!(*word, "stop" | "admit" | "native");
                assert_eq!(comment, (!english).then_some(expected), "{word} in a comment");
                assert_eq!(rule(&format!("\n  exact \"{word} x\"")), Some(expected), "{word} in a string");
            }
        }
    }

    #[test]
    fn every_command_is_refused() {
        for keyword in KEYWORDS {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(Rule::Command), "{keyword}");
            assert_eq!(rule(&format!(" trivial {keyword} x")), Some(Rule::Command), "{keyword} in a line");
        }
        for keyword in MARGIN_KEYWORDS.iter().filter(|k| !matches!(**k, "open" | "set_option")) {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(Rule::Command), "{keyword}");
        }
        for keyword in MODIFIERS {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(Rule::Command), "{keyword}");
        }
        assert_eq!(rule("\n  trivial\nopen Nat"), Some(Rule::Open));
        assert_eq!(rule("\n  trivial\n/-- doc -/"), Some(Rule::Command));
    }

    #[test]
    fn every_other_rule_is_tried() {
        assert_eq!(rule("\n  trivial\n#exit"), Some(Rule::HashCommand));
        assert_eq!(rule("\n  trivial #eval 1"), Some(Rule::HashCommand));
        assert_eq!(rule("\n  trivial\n  #my_command"), Some(Rule::HashCommand));
        assert_eq!(rule("\n  set_option debug.skipKernelTC true in\n  decide"), Some(Rule::Option));
        assert_eq!(rule("\n  set_option maxRecDepth x in\n  decide"), Some(Rule::Option));
        assert_eq!(rule("\n  exact (set_option warn.sorry false in foo)"), Some(Rule::Option));
        assert_eq!(rule("\n  trivial\n@[simp] x"), Some(Rule::Attribute));
        assert_eq!(rule("\n  exact `foo"), Some(Rule::Quotation));
        assert_eq!(rule("\n  exact foo s!\"{x}\""), Some(Rule::InterpolatedString));
        assert_eq!(rule("\n  open Lean in\n  exact x"), Some(Rule::Open));
        assert_eq!(rule("\n  decide (config := ⟨false, true, false, false⟩)"), Some(Rule::Compiler));
        assert_eq!(rule("\n  decide (config := .mk false true false false)"), Some(Rule::Compiler));
        assert_eq!(rule("\n  decide (config := { (⟨false, true, false⟩) with })"), Some(Rule::Compiler));
        assert_eq!(rule("\n  set_option maxRecDepth 0 in\n  decide"), Some(Rule::Option));
        assert_eq!(rule("\n  set_option maxRecDepth 10000000 in\n  decide"), Some(Rule::Option));
        assert_eq!(rule("\n  have h : 'a' ≠'\"' := by decide\n  exact h -- \""), Some(Rule::Ambiguous));
        assert_eq!(rule("\n  exact x\nan_unknown_command y"), Some(Rule::Command));
        assert_eq!(rule("\n  exact x\n#an_unknown_command y"), Some(Rule::HashCommand));
        for name in [
            "Lean.Elab.Tactic.run",
            "IO.println",
            "_root_.Lean.x",
            "«Lean».x",
            "Foo.MetaM",
            "_sgs_pin_1",
            "«sorryAx»",
            "Lean.ofReduceBool",
        ] {
            assert_eq!(rule(&format!("\n  exact {name}")), Some(Rule::ReservedName), "{name}");
        }
        assert_eq!(rule("\n  exact (1"), Some(Rule::Bounds));
        assert_eq!(rule("\n  exact 1 /- "), Some(Rule::Bounds));
    }

    #[test]
    fn helpers_are_plain_theorems_whose_names_the_statement_does_not_use() {
        let statement = "theorem t (f : ℝ → ℝ) (h : Continuous f) : f.Prime = pow 2 := by";
        let check =
            |helpers: &str| inspect_helpers(helpers, statement, &Bounds::default()).err().map(|r| r.rule);
        assert_eq!(check("lemma aux : 1 = 1 := by rfl\n\ntheorem aux2 (n : ℕ) : n = n := rfl\n"), None);
        assert_eq!(check(""), None);
        assert_eq!(check("private theorem aux : 1 = 1 := rfl"), None);
        for bad in [
            "@[simp] theorem aux : 1 = 1 := rfl",
            "theorem Continuous : True := trivial",
            "theorem Foo.Prime : True := trivial",
            "theorem _root_.x : True := trivial",
            "theorem aux : 1 = 1",
            "junk theorem aux : 1 = 1 := rfl",
        ] {
            assert!(matches!(check(bad), Some(Rule::Helper | Rule::Attribute)), "{bad}");
        }
        for bad in [
            "def pow := 0",
            "axiom x : False",
            "instance : Add ℕ := ⟨fun _ _ => 3⟩",
            "local notation \"ℝ\" => ℕ",
            "macro \"x\" : tactic => foo",
            "variable (h : False)",
            "namespace A",
            "set_option warn.sorry false",
        ] {
            assert!(check(&format!("{bad}\ntheorem aux : 1 = 1 := rfl")).is_some(), "{bad}");
        }
    }

    #[test]
    fn statements_bring_no_code() {
        let check = |s: &str| inspect_statement(s, &Bounds::default()).err().map(|r| r.rule);
        assert_eq!(check("theorem a (x : Fin 3 := ⟨2, by norm_num⟩) : x = x := by"), None);
        assert_eq!(check("theorem a : (by run_tac foo) := by"), Some(Rule::MetaCode));
        assert_eq!(check("theorem a : 1 = 1 := by\naxiom b : False"), Some(Rule::Command));
        assert_eq!(check("axiom b : False\ntheorem a : 1 = 1 := by"), Some(Rule::Command));
    }

    #[test]
    fn try_is_a_token() {
        assert!(uses_tactic_try("\n  try simp"));
        assert!(uses_tactic_try("\n  all_goals (try linarith)"));
        assert!(!uses_tactic_try("\n  symmetry\n  -- try this\n  exact geometry.try'"));
        assert!(!uses_tactic_try("\n  /- try\n that -/ ring"));
        assert!(!uses_tactic_try("\n  exact entry \"try\""));
    }
}
