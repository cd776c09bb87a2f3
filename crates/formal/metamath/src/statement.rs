//! Statements to be proved: from the database or from outside, as trees and as canonical text.
//!
//! Canonical text: `$d x y` for each group of distinct variables, `$e |- …` for each hypothesis, `$p |- …` for the
//! conclusion, separated by single spaces. In normal form the variables are those of the database in a
//! fixed order, given out in order of appearance, so that statements that differ by a renaming are equal
//! texts. No math symbol contains `$`, so the text reads back without doubt.

use crate::database::{Distinct, StatementId, Symbol, distinct};
use crate::grammar::{Head, Tree, TypeId};
use crate::theory::{Rule, Theory};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bounds on statements from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementLimits {
    /// Symbols of the whole text.
    pub symbols: usize,
    pub hypotheses: usize,
    /// Number of different variables.
    pub variables: usize,
}

impl Default for StatementLimits {
    fn default() -> Self {
        Self { symbols: 1_000, hypotheses: 32, variables: 64 }
    }
}

/// A statement over a theory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statement {
    /// `$d` pairs, sorted, only over variables of the statement.
    pub distinct: Box<[Distinct]>,
    /// Hypotheses, without the provable typecode.
    pub hypotheses: Box<[Tree]>,
    /// The conclusion, without the provable typecode.
    pub conclusion: Tree,
}

/// Why a text is no statement. The `kind` is stable, for counting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct StatementError {
    /// Short name of the defect.
    pub kind: &'static str,
    /// What was found, and where.
    pub detail: String,
}

pub(crate) fn error(kind: &'static str, detail: impl Into<String>) -> StatementError {
    StatementError { kind, detail: detail.into() }
}

/// The parts of a statement as text, as they come in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementText<'a> {
    /// Groups of variables that must be distinct from each other.
    pub distinct: Vec<Vec<&'a str>>,
    /// Hypotheses with the provable typecode in front.
    pub hypotheses: Vec<Vec<&'a str>>,
    /// The conclusion with the provable typecode in front.
    pub conclusion: Vec<&'a str>,
}

impl<'a> StatementText<'a> {
    /// Splits canonical text into its parts.
    ///
    /// # Errors
    /// Text outside of the three keywords, or parts that are missing, doubled or out of order.
    pub fn split(text: &'a str) -> Result<Self, StatementError> {
        #[derive(Clone, Copy, PartialEq)]
        enum Part {
            Before,
            Distinct,
            Hypothesis,
            Conclusion,
        }
        let mut out = Self::default();
        let mut part = Part::Before;
        for token in text.split_ascii_whitespace() {
            match token {
                "$d" | "$e" | "$p" if part == Part::Conclusion => {
                    return Err(error("after-conclusion", format!("`{token}` after the conclusion")));
                }
                "$d" if part == Part::Hypothesis => return Err(error("order", "`$d` after a hypothesis")),
                "$d" => {
                    out.distinct.push(Vec::new());
                    part = Part::Distinct;
                }
                "$e" => {
                    out.hypotheses.push(Vec::new());
                    part = Part::Hypothesis;
                }
                "$p" => part = Part::Conclusion,
                _ => match part {
                    Part::Before => {
                        return Err(error("no-keyword", format!("`{token}` before $d, $e or $p")));
                    }
                    Part::Distinct => out.distinct.last_mut().into_iter().for_each(|g| g.push(token)),
                    Part::Hypothesis => out.hypotheses.last_mut().into_iter().for_each(|h| h.push(token)),
                    Part::Conclusion => out.conclusion.push(token),
                },
            }
        }
        let seen_conclusion = part == Part::Conclusion;
        if seen_conclusion {
            Ok(out)
        } else {
            Err(error("no-conclusion", "there is no `$p` with a conclusion"))
        }
    }

    fn symbols(&self) -> usize {
        self.distinct.iter().chain(&self.hypotheses).map(|p| p.len() + 1).sum::<usize>()
            + self.conclusion.len()
            + 1
    }
}

impl Statement {
    /// The statement of a rule of the database, with the database's own variables.
    pub fn of_rule(rule: &Rule) -> Self {
        Self {
            distinct: rule.distinct.clone(),
            hypotheses: rule.hypotheses.clone(),
            conclusion: rule.conclusion.clone(),
        }
    }

    /// Reads canonical text (in normal form or not).
    ///
    /// # Errors
    /// Each way of being malformed has its own kind.
    pub fn parse(theory: &Theory, text: &str, limits: StatementLimits) -> Result<Self, StatementError> {
        Self::from_text(theory, &StatementText::split(text)?, limits)
    }

    /// Reads a statement from its parts.
    ///
    /// # Errors
    /// Each way of being malformed has its own kind.
    pub fn from_text(
        theory: &Theory,
        text: &StatementText<'_>,
        limits: StatementLimits,
    ) -> Result<Self, StatementError> {
        let symbols = text.symbols();
        if symbols > limits.symbols {
            return Err(error("too-long", format!("{symbols} symbols, more than {}", limits.symbols)));
        }
        if text.hypotheses.len() > limits.hypotheses {
            let n = text.hypotheses.len();
            return Err(error(
                "too-many-hypotheses",
                format!("{n} hypotheses, more than {}", limits.hypotheses),
            ));
        }
        let hypotheses = text
            .hypotheses
            .iter()
            .enumerate()
            .map(|(i, h)| formula(theory, h, &format!("hypothesis {}", i + 1)))
            .collect::<Result<Box<[Tree]>, _>>()?;
        let conclusion = formula(theory, &text.conclusion, "the conclusion")?;
        let mut used = FxHashSet::default();
        for tree in hypotheses.iter().chain([&conclusion]) {
            used.extend(tree.iter().filter_map(|h| h.as_variable()));
        }
        if used.len() > limits.variables {
            return Err(error(
                "too-many-variables",
                format!("{} variables, more than {}", used.len(), limits.variables),
            ));
        }
        let mut pairs = Vec::new();
        for group in &text.distinct {
            pairs.extend(distinct_group(theory, group)?);
        }
        pairs.retain(|(a, b)| used.contains(a) && used.contains(b));
        pairs.sort_unstable();
        pairs.dedup();
        Ok(Self { distinct: pairs.into(), hypotheses, conclusion })
    }

    /// All trees: hypotheses, then the conclusion.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.hypotheses.iter().chain([&self.conclusion])
    }

    /// Variables in order of appearance.
    pub fn variables(&self) -> Vec<Symbol> {
        let mut seen = FxHashSet::default();
        self.trees()
            .flat_map(|t| t.iter().filter_map(|h| h.as_variable()))
            .filter(|v| seen.insert(*v))
            .collect()
    }

    /// Renames the variables in order of appearance to the theory's variables in their fixed order.
    /// `type_of` gives the types of variables that are not of the outermost scope. `None` if the theory has too few
    /// variables of a type or a variable has no type.
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

    /// Replaces variables; `None` if one of them is not in the map.
    pub fn rename(&self, renaming: &FxHashMap<Symbol, Symbol>) -> Option<Self> {
        let rename = |tree: &Tree| -> Option<Tree> {
            tree.iter()
                .map(|&h| match h.as_variable() {
                    Some(v) => renaming.get(&v).map(|&n| Head::variable(n)),
                    None => Some(h),
                })
                .collect()
        };
        let mut pairs = Vec::with_capacity(self.distinct.len());
        for (a, b) in &self.distinct {
            // Pairs over variables that no longer occur say nothing.
            if let (Some(&a), Some(&b)) = (renaming.get(a), renaming.get(b)) {
                pairs.push(distinct(a, b));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        Some(Self {
            distinct: pairs.into(),
            hypotheses: self.hypotheses.iter().map(rename).collect::<Option<_>>()?,
            conclusion: rename(&self.conclusion)?,
        })
    }

    /// Canonical text.
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

fn formula(theory: &Theory, tokens: &[&str], which: &str) -> Result<Tree, StatementError> {
    let Some((&first, rest)) = tokens.split_first() else {
        return Err(error("empty-formula", format!("{which} is empty")));
    };
    if first != "|-" {
        return Err(error("no-turnstile", format!("{which} begins with `{first}`, not with `|-`")));
    }
    let mut symbols = Vec::with_capacity(rest.len());
    for (i, &token) in rest.iter().enumerate() {
        let Some(symbol) = theory.database().symbol(token) else {
            return Err(error(
                "unknown-symbol",
                format!("{which}, symbol {}: `{token}` is not declared", i + 1),
            ));
        };
        if theory.database().is_variable(symbol) && theory.type_of_variable(symbol).is_none() {
            return Err(error(
                "undeclared-variable",
                format!("{which}: variable `{token}` has no type here"),
            ));
        }
        symbols.push(symbol);
    }
    theory
        .grammar()
        .parse(theory.formula_type(), &symbols, |s| theory.type_of_variable(s))
        .map_err(|e| error("no-formula", format!("{which} {e}")))
}

fn distinct_group(theory: &Theory, group: &[&str]) -> Result<Vec<Distinct>, StatementError> {
    let mut variables = Vec::new();
    for &token in group {
        match theory.database().symbol(token) {
            Some(s) if theory.type_of_variable(s).is_some() => variables.push(s),
            _ => return Err(error("distinct", format!("`{token}` in $d is no declared variable"))),
        }
    }
    if variables.len() < 2 || variables.len() > 64 {
        return Err(error("distinct", format!("a $d with {} variables", variables.len())));
    }
    let mut pairs = Vec::new();
    for (i, &a) in variables.iter().enumerate() {
        for &b in &variables[i + 1..] {
            if a == b {
                let text = theory.database().symbol_text(a);
                return Err(error("distinct", format!("`{text}` stands twice in one $d")));
            }
            pairs.push(distinct(a, b));
        }
    }
    Ok(pairs)
}

/// Covers sorted pairs by groups whose variables are pairwise distinct: greedy, so that equal sets of pairs give
/// equal groups.
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

/// A problem's context: which assertions may be used.
pub fn context_limit(theory: &Theory, context: &str) -> Result<StatementId, StatementError> {
    if context.is_empty() {
        return Ok(StatementId(theory.database().statements().len() as u32));
    }
    theory
        .database()
        .find(context)
        .ok_or_else(|| error("unknown-context", format!("there is no label `{context}` in the database")))
}
