//! Statements to prove, as trees and as canonical text.
//!
//! Canonical text consists of `$d x y` for each group of distinct variables, `$e |- …` for each hypothesis, and `$p |- …` for
//! the conclusion, separated by single spaces. It is unambiguous because no math symbol contains `$`. In normal form, the
//! variables are renamed in order of appearance to those of the database in a fixed order, so that statements that differ
//! only in the names of variables have equal texts.

use crate::database::{Distinct, StatementId, Symbol, distinct};
use crate::grammar::{ParseError, Tree, TreeNode, TypeId};
use crate::theory::{Rule, RuleId, Theory};
use rustc_hash::{FxHashMap, FxHashSet};
use sgs_formal::Malformed;

/// Limits of statements from untrusted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementLimits {
    /// Maximum number of symbols of the text.
    pub symbols: usize,
    /// Maximum number of hypotheses.
    pub hypotheses: usize,
    /// Maximum number of distinct variables.
    pub variables: usize,
}

impl Default for StatementLimits {
    fn default() -> Self {
        Self { symbols: 1_000, hypotheses: 32, variables: 64 }
    }
}

/// A statement in the language of a theory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Statement {
    /// `$d` pairs of variables of the statement, sorted.
    pub distinct: Box<[Distinct]>,
    /// Hypotheses, without the provable typecode.
    pub hypotheses: Box<[Tree]>,
    /// The conclusion, without the provable typecode.
    pub conclusion: Tree,
}

/// The parts of a statement as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementText<'a> {
    /// Groups of pairwise distinct variables.
    pub distinct: Vec<Vec<&'a str>>,
    /// Hypotheses, with `|-` in front.
    pub hypotheses: Vec<Vec<&'a str>>,
    /// The conclusion, with `|-` in front.
    pub conclusion: Vec<&'a str>,
}

impl<'a> StatementText<'a> {
    /// Splits canonical text into its parts.
    ///
    /// # Errors
    /// Returns an error if a token precedes the first keyword, or if a part is missing, repeated or out of order.
    pub fn split(text: &'a str) -> Result<Self, Malformed> {
        let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
        for token in text.split_ascii_whitespace() {
            let section = sections.last_mut();
            match (token, section) {
                ("$d" | "$e" | "$p", Some(("$p", _))) => {
                    return malformed("after-conclusion", format!("`{token}` after the conclusion"));
                }
                ("$d", Some(("$e", _))) => return malformed("order", "`$d` after a hypothesis"),
                ("$d" | "$e" | "$p", _) => sections.push((token, Vec::new())),
                (_, Some((_, tokens))) => tokens.push(token),
                (_, None) => {
                    return malformed("no-keyword", format!("`{token}` before $d, $e or $p"));
                }
            }
        }
        let Some(("$p", conclusion)) = sections.pop() else {
            return malformed("no-conclusion", "there is no `$p` with a conclusion");
        };
        let mut out = Self { conclusion, ..Self::default() };
        for (keyword, tokens) in sections {
            if keyword == "$d" { out.distinct.push(tokens) } else { out.hypotheses.push(tokens) }
        }
        Ok(out)
    }

    fn symbols(&self) -> usize {
        self.distinct.iter().chain(&self.hypotheses).map(|p| p.len() + 1).sum::<usize>()
            + self.conclusion.len()
            + 1
    }
}

impl Statement {
    /// Returns the statement of a rule, with the database's variables.
    pub fn of_rule(rule: &Rule) -> Self {
        Self {
            distinct: rule.distinct.clone(),
            hypotheses: rule.hypotheses.clone(),
            conclusion: rule.conclusion.clone(),
        }
    }

    /// Parses canonical text, in normal form or not.
    pub fn parse(theory: &Theory, text: &str, limits: StatementLimits) -> Result<Self, Malformed> {
        Self::from_text(theory, &StatementText::split(text)?, limits)
    }

    /// Parses a statement from its parts.
    pub fn from_text(
        theory: &Theory,
        text: &StatementText<'_>,
        limits: StatementLimits,
    ) -> Result<Self, Malformed> {
        let symbols = text.symbols();
        if symbols > limits.symbols {
            return malformed("too-long", format!("{symbols} symbols, more than {}", limits.symbols));
        }
        if text.hypotheses.len() > limits.hypotheses {
            let n = text.hypotheses.len();
            return malformed(
                "too-many-hypotheses",
                format!("{n} hypotheses, more than {}", limits.hypotheses),
            );
        }
        let hypotheses = text
            .hypotheses
            .iter()
            .enumerate()
            .map(|(i, h)| formula(theory, h, &format!("hypothesis {}", i + 1)))
            .collect::<Result<Box<[Tree]>, _>>()?;
        let conclusion = formula(theory, &text.conclusion, "the conclusion")?;
        let statement = Self { hypotheses, conclusion, ..Self::default() };
        let used = statement.variables().len();
        if used > limits.variables {
            return malformed(
                "too-many-variables",
                format!("{used} variables, more than {}", limits.variables),
            );
        }
        let mut pairs = Vec::new();
        for group in &text.distinct {
            pairs.extend(distinct_group(theory, group)?);
        }
        Ok(statement.with_distinct(pairs))
    }

    /// Returns the statement with these `$d` pairs, except those with a variable that does not occur in it.
    #[must_use]
    pub fn with_distinct(mut self, mut pairs: Vec<Distinct>) -> Self {
        let used = self.variables();
        pairs.retain(|(a, b)| used.contains(a) && used.contains(b));
        pairs.sort_unstable();
        pairs.dedup();
        self.distinct = pairs.into();
        self
    }

    /// Returns the number of symbols of the canonical text.
    pub fn symbols(&self, theory: &Theory) -> usize {
        self.text(theory).split_ascii_whitespace().count()
    }

    /// Returns all trees: hypotheses, then the conclusion.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.hypotheses.iter().chain([&self.conclusion])
    }

    /// Returns the variables in order of appearance.
    pub fn variables(&self) -> Vec<Symbol> {
        let mut seen = FxHashSet::default();
        self.trees()
            .flat_map(|t| t.iter().filter_map(|h| h.as_variable()))
            .filter(|v| seen.insert(*v))
            .collect()
    }

    /// Renames the variables in order of appearance to the theory's variables in their fixed order. `type_of` returns the
    /// types of variables that are not declared in the outermost scope. Returns `None` if the theory has too few variables
    /// of a type or if a variable has no type.
    pub fn normal_form(&self, theory: &Theory, type_of: impl Fn(Symbol) -> Option<TypeId>) -> Option<Self> {
        let mut next: FxHashMap<TypeId, usize> = FxHashMap::default();
        let mut renaming = FxHashMap::default();
        for v in self.variables() {
            let t = theory.type_of_variable(v).or_else(|| type_of(v))?;
            let n = next.entry(t).or_insert(0);
            let new = theory.variables().iter().filter(|(_, vt, _)| *vt == t).nth(*n)?.0;
            *n += 1;
            renaming.insert(v, new);
        }
        self.rename(&renaming)
    }

    /// Renames variables. Returns `None` if one of them is not in the map.
    pub fn rename(&self, renaming: &FxHashMap<Symbol, Symbol>) -> Option<Self> {
        let rename = |tree: &Tree| -> Option<Tree> {
            tree.iter()
                .map(|&h| match h.as_variable() {
                    Some(v) => renaming.get(&v).map(|&n| TreeNode::variable(n)),
                    None => Some(h),
                })
                .collect()
        };
        let hypotheses = self.hypotheses.iter().map(rename).collect::<Option<_>>()?;
        let renamed = Self { hypotheses, conclusion: rename(&self.conclusion)?, ..Self::default() };
        // A pair with a variable that does not occur in the statement has no effect.
        let pair = |(a, b): &Distinct| Some(distinct(*renaming.get(a)?, *renaming.get(b)?));
        Some(renamed.with_distinct(self.distinct.iter().filter_map(pair).collect()))
    }

    /// Returns the canonical text.
    pub fn text(&self, theory: &Theory) -> String {
        let mut out = String::new();
        for group in distinct_groups(&self.distinct) {
            out.push_str("$d");
            for v in group {
                out.push(' ');
                out.push_str(theory.database().symbol_text(v));
            }
            out.push(' ');
        }
        for h in &self.hypotheses {
            out.push_str("$e |-");
            theory.push_text(h, &mut out);
            out.push(' ');
        }
        out.push_str("$p |-");
        theory.push_text(&self.conclusion, &mut out);
        out
    }
}

/// Returns the statement of a rule in normal form; `None` if the theory has too few variables.
pub fn normal_form_of_rule(theory: &Theory, rule: RuleId) -> Option<Statement> {
    let rule = theory.rule(rule);
    let type_of = |symbol| rule.variables.iter().find(|(v, _)| *v == symbol).map(|(_, t)| *t);
    Statement::of_rule(rule).normal_form(theory, type_of)
}

/// Rejects a text, with the name and the description of its defect.
pub(crate) fn malformed<T>(kind: &str, detail: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed::new(kind, detail))
}

fn formula(theory: &Theory, tokens: &[&str], which: &str) -> Result<Tree, Malformed> {
    let Some((&first, rest)) = tokens.split_first() else {
        return malformed("empty-formula", format!("{which} is empty"));
    };
    if first != "|-" {
        return malformed("no-turnstile", format!("{which} begins with `{first}`, not with `|-`"));
    }
    let mut symbols = Vec::with_capacity(rest.len());
    for (i, &token) in rest.iter().enumerate() {
        let Some(symbol) = theory.database().symbol(token) else {
            return malformed(
                "unknown-symbol",
                format!("{which}, symbol {}: `{token}` is not declared", i + 1),
            );
        };
        if theory.database().is_variable(symbol) && theory.type_of_variable(symbol).is_none() {
            return malformed("undeclared-variable", format!("{which}: variable `{token}` has no type here"));
        }
        symbols.push(symbol);
    }
    theory.grammar().parse(theory.formula_type(), &symbols, |s| theory.type_of_variable(s)).map_err(|e| {
        let why = match e {
            ParseError::NoReading { at } => match rest.get(at) {
                Some(token) => format!("does not parse: unexpected `{token}` at symbol {}", at + 1),
                None => "does not parse: it ends too early".to_owned(),
            },
            other => other.to_string(),
        };
        Malformed::new("no-formula", format!("{which} {why}"))
    })
}

fn distinct_group(theory: &Theory, group: &[&str]) -> Result<Vec<Distinct>, Malformed> {
    let mut variables = Vec::new();
    for &token in group {
        match theory.database().symbol(token) {
            Some(s) if theory.type_of_variable(s).is_some() => variables.push(s),
            _ => {
                return malformed("distinct", format!("`{token}` in $d is not a declared variable"));
            }
        }
    }
    if variables.len() < 2 || variables.len() > 64 {
        return malformed(
            "distinct",
            format!("`$d` needs two or more variables; this one has {}", variables.len()),
        );
    }
    let mut pairs = Vec::new();
    for (i, &a) in variables.iter().enumerate() {
        for &b in &variables[i + 1..] {
            if a == b {
                let text = theory.database().symbol_text(a);
                return malformed("distinct", format!("`{text}` occurs twice in one $d"));
            }
            pairs.push(distinct(a, b));
        }
    }
    Ok(pairs)
}

/// Covers sorted pairs by groups of pairwise distinct variables. The greedy choice is deterministic, so that equal sets of
/// pairs give equal groups.
fn distinct_groups(pairs: &[Distinct]) -> Vec<Vec<Symbol>> {
    let all: FxHashSet<Distinct> = pairs.iter().copied().collect();
    let mut open = all.clone();
    let mut variables: Vec<Symbol> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
    variables.sort_unstable();
    variables.dedup();
    let mut groups = Vec::new();
    for &(a, b) in pairs {
        if !open.contains(&(a, b)) {
            continue;
        }
        let mut group = vec![a, b];
        for &v in &variables {
            if !group.contains(&v) && group.iter().all(|&g| all.contains(&distinct(g, v))) {
                group.push(v);
            }
        }
        group.sort_unstable();
        for (i, &x) in group.iter().enumerate() {
            for &y in &group[i + 1..] {
                open.remove(&distinct(x, y));
            }
        }
        groups.push(group);
    }
    groups
}

/// Returns the first statement that a proof in a context may not use. The empty context includes the whole database.
pub fn context_limit(theory: &Theory, context: &str) -> Result<StatementId, Malformed> {
    if context.is_empty() {
        return Ok(StatementId(theory.database().statements().len() as u32));
    }
    theory.database().find(context).ok_or_else(|| {
        Malformed::new("unknown-context", format!("context: there is no label `{context}` in the database"))
    })
}
