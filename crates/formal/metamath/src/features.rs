//! Features of a statement, for analysis. Connectives are recognised by their syntax axioms.

use crate::grammar::{Tree, TreeNode};
use crate::statement::Statement;
use crate::theory::Theory;
use sgs_selfplay::Features;

/// The logical connectives of a theory, identified by the labels of set.mm.
#[derive(Clone, Debug)]
pub struct Connectives {
    conjunction: Vec<u32>,
    disjunction: Vec<u32>,
    implication: Vec<u32>,
}

impl Connectives {
    /// Looks up the syntax axioms of a theory.
    pub fn of(theory: &Theory) -> Self {
        let find = |labels: &[&str]| {
            labels
                .iter()
                .filter_map(|l| theory.grammar().production_of(theory.database().find(l)?))
                .collect::<Vec<u32>>()
        };
        Self {
            conjunction: find(&["wa", "w3a"]),
            disjunction: find(&["wo", "w3o"]),
            implication: find(&["wi"]),
        }
    }

    fn among(set: &[u32], head: TreeNode) -> bool {
        head.as_production().is_some_and(|p| set.contains(&p))
    }

    /// Returns whether a node is a conjunction.
    pub fn is_conjunction(&self, head: TreeNode) -> bool {
        Self::among(&self.conjunction, head)
    }

    /// Returns whether a node is a disjunction.
    pub fn is_disjunction(&self, head: TreeNode) -> bool {
        Self::among(&self.disjunction, head)
    }

    /// Returns whether a node is an implication.
    fn is_implication(&self, head: TreeNode) -> bool {
        Self::among(&self.implication, head)
    }

    /// Returns the productions of binary conjunction and disjunction.
    pub fn binary(&self) -> Option<(u32, u32)> {
        Some((*self.conjunction.first()?, *self.disjunction.first()?))
    }

    /// Returns the production of implication.
    pub fn implies(&self) -> Option<u32> {
        self.implication.first().copied()
    }

    /// Returns a formula without the antecedents of its outermost implications.
    pub fn consequent<'a>(&self, theory: &Theory, tree: &'a [TreeNode]) -> &'a [TreeNode] {
        let mut rest = tree;
        while rest.first().is_some_and(|&h| self.is_implication(h)) {
            rest = &rest[theory.grammar().subtree_end(rest, 1)..];
        }
        rest
    }

    /// Returns the number of operands of the nested connectives that satisfy `test` at the root; 1 if the root does not.
    pub fn parts(&self, theory: &Theory, tree: &[TreeNode], test: impl Fn(TreeNode) -> bool + Copy) -> u32 {
        let root = tree[0];
        if !test(root) {
            return 1;
        }
        let (mut at, mut sum) = (1, 0);
        for _ in 0..theory.grammar().arity(root) {
            let end = theory.grammar().subtree_end(tree, at);
            sum += self.parts(theory, &tree[at..end], test);
            at = end;
        }
        sum
    }
}

/// Computes the features of a statement.
pub fn features(theory: &Theory, connectives: &Connectives, statement: &Statement) -> Features {
    let count =
        |test: &dyn Fn(TreeNode) -> bool| statement.conclusion.iter().filter(|h| test(**h)).count() as u32;
    let tokens = |tree: &Tree| {
        let mut symbols = Vec::new();
        theory.grammar().unparse(tree, &mut symbols);
        symbols.len() as u32 + 1
    };
    let conclusion_length = tokens(&statement.conclusion);
    Features {
        length: conclusion_length + statement.hypotheses.iter().map(tokens).sum::<u32>(),
        conclusion_length,
        disjunctions: count(&|h| connectives.is_disjunction(h)),
        conjunctions: count(&|h| connectives.is_conjunction(h)),
        implications: count(&|h| connectives.is_implication(h)),
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
