//! Statements in human-readable notation: `|- ph  &  |- ( ph -> ps )  =>  |- ps  ($d x ph)`. The notation can be parsed.

use crate::grammar::SyntaxPart;
use crate::statement::{Statement, StatementLimits, StatementText, malformed};
use crate::theory::Theory;
use sgs_formal::Malformed;

const AND: &str = "&";
const HENCE: &str = "=>";
const TURNSTILE: &str = "|-";
const DISTINCT: &str = "($d";

/// Formats a statement on one line: hypotheses, conclusion, groups of distinct variables.
pub fn print(text: &StatementText<'_>) -> String {
    let mut out = text.hypotheses.iter().map(|h| h.join(" ")).collect::<Vec<_>>().join("  &  ");
    if !out.is_empty() {
        out.push_str("  =>  ");
    }
    out.push_str(&text.conclusion.join(" "));
    for group in &text.distinct {
        out.push_str(&format!("  {DISTINCT} {})", group.join(" ")));
    }
    out
}

/// Splits a user's statement into its parts. Accepts canonical text, human-readable notation, or a formula; `|-` is optional.
pub fn split<'a>(theory: &Theory, text: &'a str) -> Result<StatementText<'a>, Malformed> {
    let text = text.trim_start_matches('\u{feff}');
    let is_canonical = text.split_ascii_whitespace().any(|token| matches!(token, "$d" | "$e" | "$p"));
    let mut parts = if is_canonical { StatementText::split(text)? } else { split_printed(theory, text)? };
    parts.hypotheses.iter_mut().chain([&mut parts.conclusion]).for_each(begin_with_turnstile);
    Ok(parts)
}

/// Splits a user's formula into symbols; `|-` is optional.
pub fn formula(text: &str) -> Vec<&str> {
    let mut formula = text.split_ascii_whitespace().collect();
    begin_with_turnstile(&mut formula);
    formula
}

fn begin_with_turnstile(formula: &mut Vec<&str>) {
    if formula.first().is_some_and(|first| *first != TURNSTILE) {
        formula.insert(0, TURNSTILE);
    }
}

fn split_printed<'a>(theory: &Theory, text: &'a str) -> Result<StatementText<'a>, Malformed> {
    let separators = [AND, HENCE].map(|separator| (separator, !is_in_formulas(theory, separator)));
    let joins = |token: &str, separator: &str| token == separator && separators.contains(&(separator, true));
    let mut out = StatementText::default();
    let mut formula = Vec::new();
    let mut hence = false;
    let mut tokens = text.split_ascii_whitespace();
    while let Some(token) = tokens.next() {
        if token == DISTINCT {
            out.distinct.push(group(&mut tokens)?);
        } else if !out.distinct.is_empty() {
            return malformed("after-conclusion", format!("`{token}` after the distinct variables"));
        } else if joins(token, AND) || joins(token, HENCE) {
            if hence {
                return malformed("order", format!("`{token}` after `{HENCE}`: one conclusion follows it"));
            }
            hence = joins(token, HENCE);
            out.hypotheses.push(std::mem::take(&mut formula));
        } else {
            formula.push(token);
        }
    }
    if !hence && !out.hypotheses.is_empty() {
        return malformed(
            "no-conclusion",
            format!("`{AND}` joins hypotheses, but `{HENCE}` and the conclusion are missing"),
        );
    }
    out.conclusion = formula;
    Ok(out)
}

/// Returns whether formulas of the database can contain a symbol. Set.mm declares `&` and `=>` only for its comments.
fn is_in_formulas(theory: &Theory, symbol: &str) -> bool {
    let productions = theory.grammar().productions().iter();
    theory.database().symbol(symbol).is_some_and(|symbol| {
        productions.flat_map(|p| p.parts.iter()).any(|part| *part == SyntaxPart::Constant(symbol))
    })
}

/// Parses the variables of a group `($d …)` after its opening token.
fn group<'a>(tokens: &mut impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, Malformed> {
    let mut group = Vec::new();
    for token in tokens {
        let last = token.strip_suffix(')');
        group.extend(Some(last.unwrap_or(token)).filter(|variable| !variable.is_empty()));
        if last.is_some() {
            return Ok(group);
        }
    }
    malformed("distinct", format!("`{DISTINCT}` without its closing parenthesis"))
}

impl Statement {
    /// Parses a user's statement (see [`split`]).
    pub fn from_user_text(theory: &Theory, text: &str, limits: StatementLimits) -> Result<Self, Malformed> {
        Self::from_user_parts(theory, &split(theory, text)?, limits)
    }

    /// Parses a statement from the parts given by a user.
    pub fn from_user_parts(
        theory: &Theory,
        parts: &StatementText<'_>,
        limits: StatementLimits,
    ) -> Result<Self, Malformed> {
        Self::from_text(theory, parts, limits).map_err(|mut e| {
            let all = parts.hypotheses.iter().chain([&parts.conclusion]);
            let meant = all.filter(|_| e.kind == "no-formula").find_map(|f| in_parentheses(theory, f));
            if let Some(meant) = meant {
                e.detail.push_str(&format!("; did you mean `{meant}`? (outer parentheses are required)"));
            }
            e
        })
    }
}

/// Adds parentheses around a text that is a formula only with them.
fn in_parentheses(theory: &Theory, formula: &[&str]) -> Option<String> {
    let symbols: Vec<&str> = formula.strip_prefix(&[TURNSTILE])?.to_vec();
    let parses = |tokens: &[&str]| {
        let symbols: Option<Vec<_>> = tokens.iter().map(|t| theory.database().symbol(t)).collect();
        symbols.is_some_and(|symbols| {
            let types = |s| theory.type_of_variable(s);
            theory.grammar().parse(theory.formula_type(), &symbols, types).is_ok()
        })
    };
    let wrapped = [&["("][..], &symbols, &[")"][..]].concat();
    (!parses(&symbols) && parses(&wrapped)).then(|| format!("{TURNSTILE} {}", wrapped.join(" ")))
}
