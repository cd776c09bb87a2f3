//! Renames the variables of a statement to match those of another.
//!
//! Statements are stored in a normal form that does not keep the names of variables. A conjecture is easier to compare with
//! its target if common parts look the same, so the Guide's prompt renames the conjecture's variables such that the two
//! statements have as many formulas and terms in common as possible. The choice depends only on the two statements.

use crate::database::Symbol;
use crate::grammar::{Grammar, TreeNode};
use crate::statement::Statement;
use crate::theory::Theory;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

/// Maximum number of passes over the variables. Each pass tries every pair of variables.
const ROUNDS: usize = 3;
/// Statements with more variables are not renamed, because the search would take too long.
const MOST_VARIABLES: usize = 16;

/// Returns `statement` with its variables renamed to those of `other` where that increases the number of common parts.
/// Distinct variables remain distinct, and types are preserved.
pub fn rename_to_match(theory: &Theory, statement: &Statement, other: &Statement) -> Statement {
    let own = statement.variables();
    let theirs = other.variables();
    if own.is_empty() || own.len().max(theirs.len()) > MOST_VARIABLES {
        return statement.clone();
    }
    let there = counted(parts(theory.grammar(), other, Some));
    let mut names: Vec<Symbol> = vec![Symbol(u32::MAX >> 1); own.len()];
    let shared = |names: &[Symbol]| {
        let name = |v: Symbol| own.iter().position(|o| *o == v).map(|i| names[i]);
        overlap(&there, parts(theory.grammar(), statement, name))
    };
    // Start with unused names, so that no part is common before a name is chosen.
    for (i, name) in names.iter_mut().enumerate() {
        name.0 -= i as u32;
    }
    let same_type = |v: Symbol, w: Symbol| theory.type_of_variable(v) == theory.type_of_variable(w);
    for _ in 0..ROUNDS {
        let before = names.clone();
        for (i, variable) in own.iter().enumerate() {
            improve(&mut names, i, theirs.iter().copied().filter(|w| same_type(*variable, *w)), &shared);
        }
        if names == before {
            break;
        }
    }
    let Some(names) = name_the_rest(theory, &own, names, &theirs) else { return statement.clone() };
    let renaming: FxHashMap<Symbol, Symbol> = own.into_iter().zip(names).collect();
    #[allow(clippy::expect_used, reason = "`own` contains all variables of the statement")]
    statement.rename(&renaming).expect("invariant: every variable has a new name")
}

/// Changes the name of variable `i` to the one with the most common parts. If another variable has that name, the two swap.
fn improve(
    names: &mut Vec<Symbol>,
    i: usize,
    candidates: impl Iterator<Item = Symbol>,
    shared: &impl Fn(&[Symbol]) -> usize,
) {
    let mut best = (shared(names), names.clone());
    for candidate in candidates {
        let mut trial = names.clone();
        if let Some(holder) = trial.iter().position(|n| *n == candidate) {
            trial[holder] = trial[i];
        }
        trial[i] = candidate;
        let score = shared(&trial);
        if score > best.0 {
            best = (score, trial);
        }
    }
    *names = best.1;
}

/// Chooses names that the other statement does not use for the variables without a match. Returns `None` if there are too
/// few.
fn name_the_rest(
    theory: &Theory,
    own: &[Symbol],
    mut names: Vec<Symbol>,
    theirs: &[Symbol],
) -> Option<Vec<Symbol>> {
    let mut taken: FxHashSet<Symbol> = theirs.iter().copied().collect();
    for (name, &variable) in names.iter_mut().zip(own) {
        if theirs.contains(name) {
            continue;
        }
        let t = theory.type_of_variable(variable)?;
        *name = theory.variables().iter().find(|(v, vt, _)| *vt == t && !taken.contains(v))?.0;
        taken.insert(*name);
    }
    Some(names)
}

/// Returns hashes of the parts of a statement: every formula and term with more than one node, and every variable together
/// with its parent node and position.
fn parts(grammar: &Grammar, statement: &Statement, name: impl Fn(Symbol) -> Option<Symbol>) -> Vec<u64> {
    let mut out = Vec::new();
    for tree in statement.trees() {
        let renamed: Vec<TreeNode> = tree
            .iter()
            .map(|&head| head.as_variable().and_then(&name).map_or(head, TreeNode::variable))
            .collect();
        for (at, &head) in renamed.iter().enumerate() {
            if head.as_variable().is_some() {
                continue;
            }
            out.push(hash(&renamed[at..grammar.subtree_end(&renamed, at)]));
            let mut child = at + 1;
            for position in 0..grammar.arity(head) {
                if renamed[child].as_variable().is_some() {
                    out.push(hash(&(head, position, renamed[child])));
                }
                child = grammar.subtree_end(&renamed, child);
            }
        }
    }
    out
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

fn counted(parts: Vec<u64>) -> FxHashMap<u64, usize> {
    let mut out = FxHashMap::default();
    for part in parts {
        *out.entry(part).or_insert(0) += 1;
    }
    out
}

fn overlap(there: &FxHashMap<u64, usize>, mut parts: Vec<u64>) -> usize {
    parts.sort_unstable();
    parts.chunk_by(|a, b| a == b).map(|same| same.len().min(there.get(&same[0]).copied().unwrap_or(0))).sum()
}
