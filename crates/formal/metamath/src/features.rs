//! Features of a statement, for analysis. Connectives are recognised by their syntax axioms.

use crate::grammar::{Tree, TreeNode};
use crate::statement::Statement;
use crate::theory::Theory;
use sgs_selfplay::Features;

/// The logical connectives of a theory, identified by the labels of set.mm.
#[derive(Clone, Debug)]
pub struct Connectives {
    /// Productions of conjunction, the binary one first.
    pub conjunction: Vec<u32>,
    /// Productions of disjunction, the binary one first.
    pub disjunction: Vec<u32>,
    /// The production of implication.
    pub implication: Option<u32>,
}

impl Connectives {
    /// Looks up the syntax axioms of a theory.
    pub fn of(theory: &Theory) -> Self {
        let find = |label: &str| theory.grammar().production_of(theory.database().find(label)?);
        let all = |labels: [&str; 2]| labels.into_iter().filter_map(find).collect();
        Self { conjunction: all(["wa", "w3a"]), disjunction: all(["wo", "w3o"]), implication: find("wi") }
    }

    /// Returns a formula without the antecedents of its outermost implications.
    pub fn consequent<'a>(&self, theory: &Theory, tree: &'a [TreeNode]) -> &'a [TreeNode] {
        let mut rest = tree;
        while rest.first().is_some_and(|&h| is_among(self.implication.as_slice(), h)) {
            rest = &rest[theory.grammar().subtree_end(rest, 1)..];
        }
        rest
    }

    /// Returns the number of operands of nested `connectives` at the root; 1 if the root is none of them.
    pub fn parts(theory: &Theory, tree: &[TreeNode], connectives: &[u32]) -> u32 {
        let root = tree[0];
        if !is_among(connectives, root) {
            return 1;
        }
        let (mut at, mut sum) = (1, 0);
        for _ in 0..theory.grammar().arity(root) {
            let end = theory.grammar().subtree_end(tree, at);
            sum += Self::parts(theory, &tree[at..end], connectives);
            at = end;
        }
        sum
    }
}

fn is_among(set: &[u32], head: TreeNode) -> bool {
    head.as_production().is_some_and(|p| set.contains(&p))
}

/// Computes the features of a statement.
pub fn features(theory: &Theory, connectives: &Connectives, statement: &Statement) -> Features {
    let count = |set: &[u32]| statement.conclusion.iter().filter(|h| is_among(set, **h)).count() as u32;
    let tokens = |tree: &Tree| theory.grammar().unparse(tree).len() as u32 + 1;
    let conclusion_length = tokens(&statement.conclusion);
    Features {
        length: conclusion_length + statement.hypotheses.iter().map(tokens).sum::<u32>(),
        conclusion_length,
        disjunctions: count(&connectives.disjunction),
        conjunctions: count(&connectives.conjunction),
        implications: count(connectives.implication.as_slice()),
        depth: depth(theory, &statement.conclusion),
        hypotheses: statement.hypotheses.len() as u32,
    }
}

/// Returns the length of the longest path from the root to a leaf, in nodes.
pub(crate) fn depth(theory: &Theory, tree: &[TreeNode]) -> u32 {
    let (mut open, mut deepest): (Vec<usize>, usize) = (Vec::new(), 0);
    for &head in tree {
        deepest = deepest.max(open.len() + 1);
        match theory.grammar().arity(head) {
            0 => {
                while let Some(last) = open.last_mut() {
                    *last -= 1;
                    if *last > 0 {
                        break;
                    }
                    open.pop();
                }
            }
            n => open.push(n),
        }
    }
    deepest as u32
}
