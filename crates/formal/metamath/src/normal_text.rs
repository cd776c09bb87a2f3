//! A normal form for detecting statements that are equal up to the names of variables and the order of hypotheses.

use crate::database::Symbol;
use crate::grammar::TreeNodeKind;
use crate::statement::Statement;
use crate::theory::Theory;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// The normal form of a statement, which ignores names of variables, order of hypotheses and `$d` conditions.
pub type NormalText = String;

/// Returns the normal form of a statement: the conclusion, whose variables are named first, then the hypotheses, sorted by
/// shape, with the remaining variables named in that order.
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
    let mut names: FxHashMap<Symbol, usize> = FxHashMap::default();
    let mut out = String::new();
    let conclusion = [&statement.conclusion];
    for tree in conclusion.into_iter().chain(shapes.iter().map(|s| &s.1)) {
        for head in tree.iter() {
            // Writing to a string cannot fail.
            let _ = match head.kind() {
                TreeNodeKind::Variable(v) => {
                    let n = names.len();
                    let n = *names.entry(v).or_insert(n);
                    let t = theory.type_of_variable(v).map_or(255, |t| t.0);
                    write!(out, "v{t}.{n} ")
                }
                TreeNodeKind::Production(p) => write!(out, "{p} "),
            };
        }
        out.push('|');
    }
    out
}
