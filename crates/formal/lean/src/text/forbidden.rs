//! The rules of the text layer, which refuses constructions that no proof needs and that could be more than a proof.
//!
//! This is the first layer of trust. It is cheap and gives no guarantee. It examines the code tokens of a text, and then
//! the places where Lean's lexer might split the text differently ([`ambiguity`](super::ambiguity)). Comments and
//! strings are not searched: Lean never sees a comment of a proof, and a string that both lexers read as a string is
//! data.

use super::ambiguity::ambiguity;
use super::bounds::{Bounds, BoundsError};
use super::command::{KEYWORDS, MARGIN_KEYWORDS, MODIFIERS, SourceCommand, commands};
use super::declaration::{ProofStart, parse_declaration};
use super::enclose::SUFFIXES;
use super::lexer::{SourceToken, TokenKind, lex};
use super::line_of;
use super::rule::{TextRefusal, TextRule};
use super::words::{COMPILER, META_CODE, SORRY, is_hash_command};

/// First components of reserved dotted names. A proof may use the component alone (`IO`, `System`) as a name.
const RESERVED_ROOTS: &[&str] =
    &["Lean", "IO", "EIO", "BaseIO", "System", "Qq", "Mathlib.Tactic", "Lake", "Sgs"];

/// Namespaces that contain code under short names. A proof must not open them, and no helper may be declared in them.
const RESERVED_NAMESPACES: &[&str] =
    &["Lean", "IO", "System", "Qq", "Lake", "Elab", "Meta", "Tactic", "Compiler"];

/// Reserved components at any position of a dotted name, in addition to the lists of forbidden words.
const RESERVED_COMPONENTS: &[&str] =
    &["MetaM", "TacticM", "CoreM", "TermElabM", "CommandElabM", "MacroM", "CommandElab"];

/// Numeric options that a proof may set for one tactic, with the largest value of each. They limit work.
const NUMBER_OPTIONS: &[(&str, u64)] = &[
    ("maxRecDepth", 100_000),
    ("maxHeartbeats", u64::MAX),
    ("synthInstance.maxHeartbeats", u64::MAX),
    ("synthInstance.maxSize", 100_000),
    ("exponentiation.threshold", 4_096),
];

/// Boolean options that a proof may set for one tactic. They change output, or the choice of names.
const SWITCH_OPTIONS: &[&str] =
    &["linter.unusedVariables", "linter.all", "tactic.hygienic", "pp.all", "pp.explicit"];

/// Commands that a header must not contain: they add assumptions, or run code during elaboration.
const HEADER_COMMANDS: &[&str] = &[
    "axiom",
    "constant",
    "opaque",
    "initialize",
    "builtin_initialize",
    "run_cmd",
    "run_elab",
    "run_meta",
    "elab",
    "elab_rules",
    "simproc",
    "dsimproc",
    "simproc_decl",
    "dsimproc_decl",
    "builtin_simproc",
    "builtin_dsimproc",
    "#eval",
    "#eval!",
    "#exit",
];

/// Attributes that a header must not contain: they replace the compiled code of a definition, or register code.
const HEADER_ATTRIBUTES: &[&str] = &[
    "extern",
    "implemented_by",
    "csimp",
    "init",
    "builtin_init",
    "macro",
    "tactic",
    "term_elab",
    "command_elab",
];

/// The part of a candidate that a text is used for. It determines which commands the text may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRole {
    Proof,
    Helpers,
    Statement,
}

/// Checks that a text is a single tactic block, as it follows `:= by`.
///
/// # Errors
/// Returns the first rule that the text breaks.
pub fn inspect_proof(body: &str, bounds: &Bounds) -> Result<(), TextRefusal> {
    let tokens = bounded(body, bounds)?;
    inspect_tokens(body, &tokens, TextRole::Proof)?;
    nothing_follows(body, &tokens, 0)
}

/// Checks that a text that ends in `:= by` is the statement of a single theorem.
///
/// # Errors
/// Returns the first rule that the text breaks.
pub fn inspect_statement(statement: &str, bounds: &Bounds) -> Result<(), TextRefusal> {
    let tokens = bounded(statement, bounds)?;
    inspect_tokens(statement, &tokens, TextRole::Statement)
}

/// Checks that helpers (the text before the theorem) are plain theorems, and that none declares a name that occurs in
/// the statement.
///
/// # Errors
/// Returns the first rule that the text breaks.
pub fn inspect_helpers(helpers: &str, statement: &str, bounds: &Bounds) -> Result<(), TextRefusal> {
    let tokens = bounded(helpers, bounds)?;
    inspect_tokens(helpers, &tokens, TextRole::Helpers)?;
    let outside = |at: usize| Err(refusal(helpers, TextRule::Helper, "text outside of a theorem", at));
    let mut expected = 0;
    for command in commands(helpers, &tokens) {
        inspect_helper(helpers, &tokens, &command, statement)?;
        if tokens.get(expected..command.tokens.start).is_some_and(|gap| gap.iter().any(|t| !t.is_trivia())) {
            return outside(command.range.start);
        }
        expected = command.tokens.end;
    }
    match tokens.get(expected..).and_then(|rest| rest.iter().find(|t| !t.is_trivia())) {
        Some(token) => outside(token.start),
        None => Ok(()),
    }
}

/// Checks the header of a problem (the text before its theorem): imports, options, notations, definitions and proved
/// theorems are allowed. Axioms, opaque constants, unsafe code, `sorry` and code that runs during elaboration are not,
/// because any statement could be proved with them.
///
/// # Errors
/// Returns the first offending word, under [`TextRule::Header`].
pub fn inspect_header(header: &str) -> Result<(), TextRefusal> {
    let tokens = lex(header);
    let refuse = |what: &str, at: usize| Err(refusal(header, TextRule::Header, what, at));
    for command in commands(header, &tokens) {
        if HEADER_COMMANDS.contains(&command.keyword.as_str()) {
            return refuse(&command.keyword, command.range.start);
        }
        if command.modifiers.iter().any(|modifier| modifier == "unsafe") {
            return refuse("unsafe", command.range.start);
        }
    }
    let mut attribute_depth = 0_usize;
    for token in &tokens {
        let text = token.text(header);
        match token.kind {
            TokenKind::Open if text == "@[" || attribute_depth > 0 => attribute_depth += 1,
            TokenKind::Close => attribute_depth = attribute_depth.saturating_sub(1),
            TokenKind::Word if attribute_depth > 0 && HEADER_ATTRIBUTES.contains(&text) => {
                return refuse(text, token.start);
            }
            TokenKind::Word | TokenKind::QuotedWord if has_forbidden_component(text) => {
                return refuse(text, token.start);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether a proof uses the tactic `try` (as a token: not `symmetry`, not in a comment, not `try?`).
pub fn uses_tactic_try(proof: &str) -> bool {
    lex(proof).iter().any(|t| t.kind == TokenKind::Word && t.text(proof) == "try")
}

fn refusal(source: &str, rule: TextRule, what: impl Into<String>, at: usize) -> TextRefusal {
    TextRefusal { rule, what: what.into(), line: line_of(source, at) }
}

fn bounded(source: &str, bounds: &Bounds) -> Result<Vec<SourceToken>, TextRefusal> {
    bounds.check(source).map_err(|error: BoundsError| refusal(source, TextRule::Bounds, error.to_string(), 0))
}

/// Refuses words at the left margin after an indented proof that begins at `after`. By Lean's grammar the proof has
/// ended there; only `where`, `termination_by` and `decreasing_by` can still belong to it. No list of commands is
/// needed.
fn nothing_follows(source: &str, tokens: &[SourceToken], after: usize) -> Result<(), TextRefusal> {
    let margin = |t: &SourceToken| t.start == 0 || source.get(..t.start).is_some_and(|b| b.ends_with('\n'));
    let mut code = tokens.iter().filter(|t| t.start >= after && !t.is_trivia());
    // A block that begins at the margin has all its lines there.
    if code.clone().next().is_none_or(&margin) {
        return Ok(());
    }
    let foreign = code.find(|t| {
        matches!(t.kind, TokenKind::Word | TokenKind::QuotedWord | TokenKind::HashWord)
            && margin(t)
            && !SUFFIXES.contains(&t.text(source))
    });
    foreign.map_or(Ok(()), |t| Err(refusal(source, TextRule::Command, t.text(source), t.start)))
}

fn inspect_helper(
    source: &str,
    tokens: &[SourceToken],
    command: &SourceCommand,
    statement: &str,
) -> Result<(), TextRefusal> {
    let refuse = |what: &str| Err(refusal(source, TextRule::Helper, what, command.range.start));
    if !command.is_theorem() {
        return refuse(&command.keyword);
    }
    if !command.modifiers.iter().all(|m| matches!(m.as_str(), "private" | "protected"))
        || command.has_attributes
    {
        return refuse("attributes or modifiers before a helper");
    }
    let own = &tokens[command.tokens.clone()];
    let Some(declaration) = parse_declaration(source, own) else {
        return refuse("a helper that cannot be read");
    };
    match declaration.proof {
        ProofStart::Missing => return refuse("a helper without a proof"),
        ProofStart::By { after, .. } | ProofStart::Term { after, .. } => nothing_follows(source, own, after)?,
        ProofStart::Equations { at } => nothing_follows(source, own, at + 1)?,
    }
    let name = &source[declaration.name];
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

fn inspect_tokens(source: &str, tokens: &[SourceToken], role: TextRole) -> Result<(), TextRefusal> {
    // Tokens before ambiguities, because their reasons are clearer.
    inspect_each(source, tokens, role)?;
    match ambiguity(source, tokens) {
        Some((at, what)) => Err(refusal(source, TextRule::Ambiguous, what, at)),
        None => Ok(()),
    }
}

fn inspect_each(source: &str, tokens: &[SourceToken], role: TextRole) -> Result<(), TextRefusal> {
    let code: Vec<&SourceToken> = tokens.iter().filter(|t| !t.is_trivia()).collect();
    for (index, token) in code.iter().enumerate() {
        let text = token.text(source);
        let refuse = |rule: TextRule| Err(refusal(source, rule, text, token.start));
        match token.kind {
            // A word with `#` at the start of a line is a command, whether it is listed or not.
            TokenKind::HashWord if begins_line(source, token) || is_hash_command(text) => {
                return refuse(TextRule::HashCommand);
            }
            TokenKind::Backtick => return refuse(TextRule::Quotation),
            TokenKind::Open if text == "@[" => return refuse(TextRule::Attribute),
            TokenKind::DocComment if role == TextRole::Proof => return refuse(TextRule::Command),
            TokenKind::Str { interpolated: true } => return refuse(TextRule::InterpolatedString),
            TokenKind::QuotedWord => inspect_name(source, token, text)?,
            TokenKind::Word => inspect_word(source, &code, index, role)?,
            _ => {}
        }
    }
    Ok(())
}

fn begins_line(source: &str, token: &SourceToken) -> bool {
    source
        .get(..token.start)
        .is_some_and(|before| before.rsplit('\n').next().is_some_and(|line| line.trim().is_empty()))
}

fn inspect_word(
    source: &str,
    code: &[&SourceToken],
    index: usize,
    role: TextRole,
) -> Result<(), TextRefusal> {
    let Some(token) = code.get(index) else { return Ok(()) };
    let text = token.text(source);
    let refuse = |rule: TextRule| Err(refusal(source, rule, text, token.start));
    let follows_percent = code.get(index + 1).is_some_and(|t| t.start == token.end && t.text(source) == "%");
    // To Lean, `eval%` and `decl_name%` are single tokens. Here the percent sign is a token.
    let with_percent = if follows_percent { format!("{text}%") } else { String::new() };
    let is_one_of = |list: &[&str]| list.contains(&text) || list.contains(&with_percent.as_str());
    let after_dot =
        index > 0 && code.get(index - 1).is_some_and(|t| t.end == token.start && t.text(source) == ".");
    if is_one_of(SORRY) {
        return refuse(TextRule::Sorry);
    }
    if is_one_of(COMPILER) {
        return refuse(TextRule::Compiler);
    }
    if is_one_of(META_CODE) {
        return refuse(TextRule::MetaCode);
    }
    match text {
        "open" => return inspect_open(source, code, index),
        "set_option" => return inspect_option(source, code, index),
        "config" => return inspect_configuration(source, code, index),
        "theorem" | "lemma" if role == TextRole::Helpers => return Ok(()),
        "theorem" | "lemma" if role == TextRole::Statement && index == 0 => return Ok(()),
        "private" | "protected" if role == TextRole::Helpers => return Ok(()),
        _ => {}
    }
    let margin = source.get(..token.start).is_some_and(|b| b.is_empty() || b.ends_with('\n'));
    let is_command = KEYWORDS.contains(&text) || MODIFIERS.contains(&text) && !is_ordinary_name(text);
    if !after_dot && (is_command || margin && (MARGIN_KEYWORDS.contains(&text) || MODIFIERS.contains(&text)))
    {
        return refuse(TextRule::Command);
    }
    inspect_name(source, token, text)
}

/// Returns whether a modifier is a keyword in newer versions only, and an ordinary name in older proofs.
fn is_ordinary_name(modifier: &str) -> bool {
    matches!(modifier, "public" | "meta" | "nonrec")
}

/// Returns whether a component of a dotted name is a forbidden word, with or without `«»`.
fn has_forbidden_component(name: &str) -> bool {
    let lists = [SORRY, COMPILER, META_CODE, RESERVED_COMPONENTS];
    name.split('.').any(|part| {
        let part = part.trim_matches(['«', '»']);
        lists.iter().any(|list| list.contains(&part))
    })
}

fn inspect_name(source: &str, token: &SourceToken, text: &str) -> Result<(), TextRefusal> {
    let plain: String = text.chars().filter(|c| !matches!(c, '«' | '»')).collect();
    let name = plain.strip_prefix("_root_.").unwrap_or(&plain);
    let has_root = |root: &str| name.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'));
    let mut components = name.split('.').map(|part| part.trim_start_matches('_'));
    let is_ours = components.any(|part| part.starts_with("sgs_") || part.starts_with("Sgs_"));
    if RESERVED_ROOTS.iter().any(|root| has_root(root)) || has_forbidden_component(name) || is_ours {
        return Err(refusal(source, TextRule::ReservedName, text, token.start));
    }
    Ok(())
}

/// Allows `open A B in …`, which affects one tactic or term. `open A B` alone would be a command.
fn inspect_open(source: &str, code: &[&SourceToken], index: usize) -> Result<(), TextRefusal> {
    let mut depth = 0_i32;
    let at = code.get(index).map_or(0, |t| t.start);
    for token in &code[index + 1..] {
        let text = token.text(source);
        let reserved = || text.split('.').any(|p| RESERVED_NAMESPACES.contains(&p.trim_matches(['«', '»'])));
        match token.kind {
            TokenKind::Word if depth == 0 && text == "in" => return Ok(()),
            TokenKind::Word | TokenKind::QuotedWord if reserved() => {
                return Err(refusal(source, TextRule::Open, format!("open {text}"), token.start));
            }
            TokenKind::Word | TokenKind::QuotedWord | TokenKind::Symbol => {}
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth -= 1,
            _ => break,
        }
    }
    Err(refusal(source, TextRule::Open, "open", at))
}

/// Allows a configuration that names its fields, `(config := { decide := true })`: the field names are checked like
/// all words. One that sets fields by position (`⟨false, true⟩`, `.mk false true`) could enable compiled code
/// without naming it.
fn inspect_configuration(source: &str, code: &[&SourceToken], index: usize) -> Result<(), TextRefusal> {
    let rest = &code[index + 1..];
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
    let positional = |t: &SourceToken| {
        let text = t.text(source);
        text == "⟨" || text == "with" || text.rsplit('.').next() == Some("mk")
    };
    if named || text(1) == "{" && !inside.any(|t| positional(t)) {
        return Ok(());
    }
    let at = code.get(index).map_or(0, |t| t.start);
    Err(refusal(source, TextRule::Compiler, "a configuration by position", at))
}

/// Allows `set_option NAME VALUE in …` for the options on the two lists.
fn inspect_option(source: &str, code: &[&SourceToken], index: usize) -> Result<(), TextRefusal> {
    let text = |offset: usize| code.get(index + offset).map_or("", |t| t.text(source));
    let (name, value) = (text(1), text(2));
    let limit = NUMBER_OPTIONS.iter().find(|(option, _)| *option == name).map(|(_, limit)| *limit);
    let number = value.replace('_', "").parse::<u64>().ok();
    let bounded = limit.zip(number).is_some_and(|(limit, n)| n <= limit && (n > 0 || limit == u64::MAX));
    let switch = SWITCH_OPTIONS.contains(&name) && matches!(value, "true" | "false");
    if (bounded || switch) && text(3) == "in" {
        return Ok(());
    }
    let at = code.get(index).map_or(0, |t| t.start);
    Err(refusal(source, TextRule::Option, format!("set_option {name} {value}"), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(body: &str) -> Option<TextRule> {
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
            "\n  -- no sorry needed\n  /- nor an axiom, nor run_tac -/ rfl",
            "\n  exact foo \"an axiom, sorry, #eval 1\"",
            "\r\n  rfl -- CRLF\r\n",
            "\n  exact foo r\"a\\b\" (r#\"\"quoted\"\"#)",
            "\n  exact 'a'::'b'::['c','d']",
            "\n  intro csimp implemented_by\n  exact csimp implemented_by",
        ] {
            assert_eq!(rule(body), None, "{body}");
        }
    }

    #[test]
    fn every_forbidden_word_is_refused_alone_and_not_as_a_part_of_a_name() {
        let lists: [(&[&str], TextRule); 3] =
            [(SORRY, TextRule::Sorry), (COMPILER, TextRule::Compiler), (META_CODE, TextRule::MetaCode)];
        for (list, expected) in lists {
            for word in list {
                assert_eq!(rule(&format!("\n  exact {word} x")), Some(expected), "{word}");
                assert_eq!(
                    rule(&format!("\n  exact h_{}", word.replace(['%', '!', '?'], "_"))),
                    None,
                    "{word}"
                );
                assert_eq!(rule(&format!("\n  simp -- {word}")), None, "{word} in a comment");
                assert_eq!(rule(&format!("\n  exact \"{word} x\"")), None, "{word} in a string");
            }
        }
    }

    #[test]
    fn every_command_is_refused() {
        for keyword in KEYWORDS {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(TextRule::Command), "{keyword}");
            assert_eq!(
                rule(&format!(" trivial {keyword} x")),
                Some(TextRule::Command),
                "{keyword} in a line"
            );
        }
        for keyword in MARGIN_KEYWORDS.iter().filter(|k| !matches!(**k, "open" | "set_option")) {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(TextRule::Command), "{keyword}");
        }
        for keyword in MODIFIERS {
            assert_eq!(rule(&format!("\n  trivial\n{keyword} x")), Some(TextRule::Command), "{keyword}");
        }
        assert_eq!(rule("\n  trivial\nopen Nat"), Some(TextRule::Open));
        assert_eq!(rule("\n  trivial\n/-- doc -/"), Some(TextRule::Command));
    }

    #[test]
    fn every_other_rule_refuses_something() {
        assert_eq!(rule("\n  trivial\n#exit"), Some(TextRule::HashCommand));
        assert_eq!(rule("\n  trivial #eval 1"), Some(TextRule::HashCommand));
        assert_eq!(rule("\n  trivial\n  #my_command"), Some(TextRule::HashCommand));
        assert_eq!(rule("\n  set_option debug.skipKernelTC true in\n  decide"), Some(TextRule::Option));
        assert_eq!(rule("\n  set_option maxRecDepth x in\n  decide"), Some(TextRule::Option));
        assert_eq!(rule("\n  exact (set_option warn.sorry false in foo)"), Some(TextRule::Option));
        assert_eq!(rule("\n  trivial\n@[simp] x"), Some(TextRule::Attribute));
        assert_eq!(rule("\n  exact `foo"), Some(TextRule::Quotation));
        assert_eq!(rule("\n  exact foo s!\"{x}\""), Some(TextRule::InterpolatedString));
        assert_eq!(rule("\n  open Lean in\n  exact x"), Some(TextRule::Open));
        assert_eq!(rule("\n  decide (config := ⟨false, true, false, false⟩)"), Some(TextRule::Compiler));
        assert_eq!(rule("\n  decide (config := .mk false true false false)"), Some(TextRule::Compiler));
        assert_eq!(rule("\n  decide (config := { (⟨false, true, false⟩) with })"), Some(TextRule::Compiler));
        assert_eq!(rule("\n  set_option maxRecDepth 0 in\n  decide"), Some(TextRule::Option));
        assert_eq!(rule("\n  set_option maxRecDepth 10000000 in\n  decide"), Some(TextRule::Option));
        assert_eq!(rule("\n  have h : 'a' ≠'\"' := by decide\n  exact h -- \""), Some(TextRule::Ambiguous));
        assert_eq!(rule("\n  exact x\nan_unknown_command y"), Some(TextRule::Command));
        assert_eq!(rule("\n  exact x\n#an_unknown_command y"), Some(TextRule::HashCommand));
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
            assert_eq!(rule(&format!("\n  exact {name}")), Some(TextRule::ReservedName), "{name}");
        }
        assert_eq!(rule("\n  exact (1"), Some(TextRule::Bounds));
        assert_eq!(rule("\n  exact 1 /- "), Some(TextRule::Bounds));
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
            assert!(matches!(check(bad), Some(TextRule::Helper | TextRule::Attribute)), "{bad}");
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
        assert_eq!(check("theorem a : (by run_tac foo) := by"), Some(TextRule::MetaCode));
        assert_eq!(check("theorem a : 1 = 1 := by\naxiom b : False"), Some(TextRule::Command));
        assert_eq!(check("axiom b : False\ntheorem a : 1 = 1 := by"), Some(TextRule::Command));
    }

    #[test]
    fn headers_add_neither_assumptions_nor_code() {
        for allowed in [
            "import Mathlib\nimport Aesop\nset_option maxHeartbeats 400000\nopen BigOperators Real Nat Topology Rat\n",
            "-- no axiom, no sorry\n/-- An `axiom`. -/\ndef f (n : ℕ) := n\n@[simp] theorem one : f 1 = 1 := rfl\n",
            "namespace A\nvariable (n : ℕ) (constant : ℕ)\nnotation \"|\" x \"|\" => abs x\nend A\n",
            "def s := \"axiom sorry\"\n",
        ] {
            assert_eq!(inspect_header(allowed), Ok(()), "{allowed}");
        }
        for (header, what) in [
            ("axiom foo : False\n", "axiom"),
            ("import Mathlib\nopen Real in axiom foo : False", "axiom"),
            ("private axiom foo : False", "axiom"),
            ("constant foo : False", "constant"),
            ("opaque foo : Nat", "opaque"),
            ("unsafe def foo : False := unsafeCast ()", "unsafe"),
            ("instance : Inhabited False := ⟨sorry⟩", "sorry"),
            ("theorem foo : False := Lean.ofReduceBool _ _ rfl", "Lean.ofReduceBool"),
            ("theorem foo : False := by native_decide", "native_decide"),
            ("set_option debug.skipKernelTC true", "debug.skipKernelTC"),
            ("def foo : False := «sorryAx» _ true", "«sorryAx»"),
            ("run_cmd Lean.logInfo \"\"", "run_cmd"),
            ("open Lean Elab Tactic\ndef f : TacticM Unit := pure ()", "TacticM"),
            ("@[simp, implemented_by g] def f (n : Nat) := n", "implemented_by"),
            ("#eval 1", "#eval"),
        ] {
            let refusal = inspect_header(header).unwrap_err();
            assert_eq!((refusal.rule, refusal.what.as_str()), (TextRule::Header, what), "{header}");
        }
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
