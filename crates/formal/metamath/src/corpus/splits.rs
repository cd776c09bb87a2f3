//! Targets and the theorems that are left for training.

use super::draw::Draw;
use crate::judge::database_proof;
use crate::statement::Statement;
use crate::system::normal_form_of_rule;
use crate::theory::{RuleId, Theory};
use crate::unify::Step;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

/// How targets are chosen. The defaults are the project's own set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitRule {
    /// Seed of the draw.
    pub seed: u64,
    pub targets: usize,
    /// The first this many targets are the quick set.
    pub quick: usize,
    /// The last this many targets are for evaluation, where runs are trained on the others.
    pub held_out: usize,
    /// Rules before this position are no targets.
    pub from: usize,
    /// Rules from this position on are no targets.
    pub to: usize,
    /// Fewest essential steps of the database's proof.
    pub min_steps: usize,
    /// Most essential steps of the database's proof.
    pub max_steps: usize,
    /// Most symbols of the statement.
    pub max_symbols: usize,
}

impl Default for SplitRule {
    fn default() -> Self {
        Self {
            seed: 20_260_101,
            targets: 1_000,
            quick: 100,
            held_out: 200,
            from: 400,
            to: 9_000,
            min_steps: 2,
            max_steps: 24,
            max_symbols: 100,
        }
    }
}

/// A theorem with its proof in essential steps, as training may use it.
#[derive(Clone, Debug)]
pub struct Lesson {
    pub rule: RuleId,
    /// Its statement in normal form.
    pub statement: Statement,
    pub steps: Vec<Step>,
}

/// The split of a theory.
#[derive(Clone, Debug)]
pub struct Split {
    /// Targets in the order of the draw; the quick set comes first.
    pub targets: Vec<RuleId>,
    /// The other theorems that have a proof of at most [`LESSON_STEPS`] steps, in order of the database.
    pub lessons: Vec<Lesson>,
    /// Statements that no training text may hold: those of the targets, whatever their variables are called and
    /// in whatever order their hypotheses stand.
    pub forbidden: FxHashSet<NormalText>,
    /// Why theorems are no candidates for targets: reason and count.
    pub dropped: Vec<(&'static str, usize)>,
    /// Number of candidates that the targets were drawn from.
    pub candidates: usize,
}

/// Longer proofs are left out of the training corpora.
pub const LESSON_STEPS: usize = 60;

/// A statement up to names of variables, order of hypotheses and `$d` conditions.
pub type NormalText = String;

/// The text that a statement shares with all that say the same: conclusion first, so that its variables get their names
/// there; then the hypotheses, sorted by shape, with the remaining names in that order.
pub fn normal_text(theory: &Theory, statement: &Statement) -> NormalText {
    let mut shapes: Vec<_> = statement
        .hypotheses
        .iter()
        .map(|h| {
            let shape: Vec<i64> = h.iter().map(|n| n.as_production().map_or(-1, i64::from)).collect();
            (shape, h.clone())
        })
        .collect();
    shapes.sort();
    let mut names: FxHashMap<crate::database::Symbol, usize> = FxHashMap::default();
    let mut out = String::new();
    let conclusion = [&statement.conclusion];
    for tree in conclusion.into_iter().chain(shapes.iter().map(|s| &s.1)) {
        for head in tree.iter() {
            match (head.as_variable(), head.as_production()) {
                (Some(v), _) => {
                    let n = names.len();
                    let n = *names.entry(v).or_insert(n);
                    let t = theory.type_of_variable(v).map_or(255, |t| t.0);
                    out.push_str(&format!("v{t}.{n} "));
                }
                (None, Some(p)) => out.push_str(&format!("{p} ")),
                (None, None) => {}
            }
        }
        out.push('|');
    }
    out
}

/// Splits a theory into targets and lessons.
pub fn split(theory: &Theory, rule: SplitRule) -> Split {
    let count = theory.rules().len();
    let proofs: Vec<Option<(Statement, Vec<Step>)>> = (0..count)
        .into_par_iter()
        .map(|i| {
            let id = RuleId(i as u32);
            let assertion = theory.database().assertion(theory.rule(id).statement)?;
            if !assertion.is_theorem() {
                return None;
            }
            let steps = database_proof(theory, id, LESSON_STEPS).ok()??;
            Some((normal_form_of_rule(theory, id)?, steps))
        })
        .collect();
    let prints: Vec<Option<NormalText>> = (0..count)
        .into_par_iter()
        .map(|i| normal_form_of_rule(theory, RuleId(i as u32)).map(|s| normal_text(theory, &s)))
        .collect();
    let mut first_of: FxHashMap<&NormalText, usize> = FxHashMap::default();
    for (i, print) in prints.iter().enumerate() {
        if let Some(print) = print {
            first_of.entry(print).or_insert(i);
        }
    }
    let mut dropped: FxHashMap<&'static str, usize> = FxHashMap::default();
    let mut candidates = Vec::new();
    for i in rule.from..rule.to.min(count) {
        let known = prints[i].as_ref().and_then(|p| first_of.get(p)).is_some_and(|&first| first < i);
        match no_target(theory, RuleId(i as u32), proofs[i].as_ref(), known, rule) {
            Some(reason) => *dropped.entry(reason).or_insert(0) += 1,
            None => candidates.push(RuleId(i as u32)),
        }
    }
    let total = candidates.len();
    Draw::new(rule.seed, "targets").shuffle(&mut candidates);
    candidates.truncate(rule.targets);
    let chosen: FxHashSet<RuleId> = candidates.iter().copied().collect();
    let forbidden: FxHashSet<NormalText> =
        candidates.iter().filter_map(|r| prints[r.0 as usize].clone()).collect();
    let lessons = proofs
        .into_iter()
        .enumerate()
        .filter_map(|(i, p)| p.map(|(statement, steps)| Lesson { rule: RuleId(i as u32), statement, steps }))
        .filter(|l| !chosen.contains(&l.rule))
        .filter(|l| prints[l.rule.0 as usize].as_ref().is_some_and(|p| !forbidden.contains(p)))
        .collect();
    let mut dropped: Vec<_> = dropped.into_iter().collect();
    dropped.sort_unstable();
    Split { targets: candidates, lessons, forbidden, dropped, candidates: total }
}

/// Why a rule cannot be a target.
fn no_target(
    theory: &Theory,
    id: RuleId,
    proof: Option<&(Statement, Vec<Step>)>,
    known: bool,
    rule: SplitRule,
) -> Option<&'static str> {
    let Some(assertion) = theory.database().assertion(theory.rule(id).statement) else {
        return Some("no assertion");
    };
    if !assertion.is_theorem() {
        return Some("axiom or definition");
    }
    let label = theory.label(id);
    if label.contains("OLD") || label.contains("ALT") {
        return Some("old or alternative");
    }
    let comment = theory.database().comment(assertion).unwrap_or_default();
    let words = comment.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    if words.contains("(New usage is discouraged.)") || words.contains("(Proof modification is discouraged.)")
    {
        return Some("discouraged");
    }
    let Some((statement, steps)) = proof else { return Some("proof longer than 60 steps") };
    if steps.len() < rule.min_steps || steps.len() > rule.max_steps {
        return Some("number of steps");
    }
    if known {
        return Some("stated before");
    }
    let symbols = statement.text(theory).split_ascii_whitespace().count();
    (symbols > rule.max_symbols).then_some("long statement")
}
