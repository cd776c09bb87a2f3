//! Splits the theorems of a database into targets and training theorems.

use crate::normal_text::{NormalText, normal_text};
use crate::statement::{Statement, normal_form_of_rule};
use crate::theorem_proofs::{TheoremProof, theorem_proof};
use crate::theory::{RuleId, Theory};
use crate::unify::ProofStep;
use rustc_hash::{FxHashMap, FxHashSet};
use sgs_base::random::SeededRng;

/// Rules for choosing targets. The defaults define the set of the shipped slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitRule {
    /// Seed of the draw.
    pub seed: u64,
    /// Number of targets.
    pub targets: usize,
    /// Size of the quick set, which consists of the first targets.
    pub quick: usize,
    /// Size of the held-out set, which consists of the last targets.
    pub held_out: usize,
    /// Position of the first rule that can be a target.
    pub from: usize,
    /// Position after the last rule that can be a target.
    pub to: usize,
    /// Minimum number of essential steps of the database's proof.
    pub min_steps: usize,
    /// Maximum number of essential steps of the database's proof.
    pub max_steps: usize,
    /// Maximum number of symbols of the statement.
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

impl SplitRule {
    /// Returns the rule for a database: that of the shipped slice, with all numbers scaled down for a smaller database. A
    /// larger one has the same targets as its first 9,000 axioms and theorems.
    pub fn of(theory: &Theory) -> Self {
        Self::for_rules(theory.rules().len())
    }

    /// Returns the rule for a database with this number of axioms and theorems.
    fn for_rules(rules: usize) -> Self {
        let own = Self::default();
        let part = |number: usize| number * rules.min(own.to) / own.to;
        let [targets, from, to] = [own.targets, own.from, own.to].map(part);
        // The sets of a small database are small, but not empty.
        let [quick, held_out] = [own.quick, own.held_out].map(|number| part(number).max(1).min(targets));
        Self { targets, quick, held_out, from, to, ..own }
    }
}

/// The theorems of a theory, split into targets and training theorems.
#[derive(Clone, Debug)]
pub struct Split {
    /// Targets in random order, beginning with the quick set.
    pub targets: Vec<RuleId>,
    /// The other theorems with a proof of at most [`LESSON_STEPS`] steps, in database order, with their statements in normal
    /// form.
    pub lessons: Vec<TheoremProof>,
    /// Normal forms of the targets' statements, which training texts must not contain.
    pub forbidden: FxHashSet<NormalText>,
    /// Numbers of theorems that are not candidates, by reason.
    pub dropped: Vec<(&'static str, usize)>,
    /// Number of candidates from which the targets were drawn.
    pub candidates: usize,
}

/// Maximum number of steps of a proof in the training corpora.
pub const LESSON_STEPS: usize = 60;

/// Splits the theorems of a theory. Runs on one thread, because a `OnceLock` of [`Metamath`](crate::system::Metamath)
/// calls it.
pub fn split(theory: &Theory, rule: SplitRule) -> Split {
    let count = theory.rules().len();
    let read = |i: usize| {
        let id = RuleId(i as u32);
        let Some(statement) = normal_form_of_rule(theory, id) else { return (None, None) };
        let text = normal_text(theory, &statement);
        let steps = theorem_proof(theory, id, LESSON_STEPS).ok().flatten();
        (steps.map(|steps| (statement, steps)), Some(text))
    };
    let (proofs, texts): (Vec<_>, Vec<_>) = (0..count).map(read).unzip();
    let mut first_of: FxHashMap<&NormalText, usize> = FxHashMap::default();
    for (i, text) in texts.iter().enumerate() {
        if let Some(text) = text {
            first_of.entry(text).or_insert(i);
        }
    }
    let mut dropped: FxHashMap<&'static str, usize> = FxHashMap::default();
    let mut candidates = Vec::new();
    for i in rule.from..rule.to.min(count) {
        let known = texts[i].as_ref().and_then(|p| first_of.get(p)).is_some_and(|&first| first < i);
        match exclusion_reason(theory, RuleId(i as u32), proofs[i].as_ref(), known, rule) {
            Some(reason) => *dropped.entry(reason).or_insert(0) += 1,
            None => candidates.push(RuleId(i as u32)),
        }
    }
    let total = candidates.len();
    SeededRng::named(rule.seed, "targets").shuffle_by_index(&mut candidates);
    candidates.truncate(rule.targets);
    let chosen: FxHashSet<RuleId> = candidates.iter().copied().collect();
    let forbidden: FxHashSet<NormalText> =
        candidates.iter().filter_map(|r| texts[r.0 as usize].clone()).collect();
    let lessons = proofs
        .into_iter()
        .enumerate()
        .filter_map(|(i, p)| {
            p.map(|(statement, steps)| TheoremProof { rule: RuleId(i as u32), statement, steps })
        })
        .filter(|l| !chosen.contains(&l.rule))
        .filter(|l| texts[l.rule.0 as usize].as_ref().is_some_and(|p| !forbidden.contains(p)))
        .collect();
    let mut dropped: Vec<_> = dropped.into_iter().collect();
    dropped.sort_unstable();
    Split { targets: candidates, lessons, forbidden, dropped, candidates: total }
}

/// Returns why a rule cannot be a target; `None` if it can.
fn exclusion_reason(
    theory: &Theory,
    id: RuleId,
    proof: Option<&(Statement, Vec<ProofStep>)>,
    known: bool,
    rule: SplitRule,
) -> Option<&'static str> {
    let assertion = theory.assertion(id);
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
    (statement.symbols(theory) > rule.max_symbols).then_some("long statement")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_of_a_small_database_are_not_empty() {
        let sizes = |rules| {
            let rule = SplitRule::for_rules(rules);
            [rule.targets, rule.quick, rule.held_out]
        };
        assert_eq!(sizes(29), [3, 1, 1]);
        assert_eq!(sizes(8), [0, 0, 0]);
        assert_eq!((sizes(9_000), sizes(40_000)), ([1_000, 100, 200], [1_000, 100, 200]));
    }
}
