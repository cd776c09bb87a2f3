//! Features of a statement, for analysis: counted on trees where the connectives are known by their syntax axioms.

use crate::grammar::{Head, Tree};
use crate::statement::Statement;
use crate::theory::Theory;
use sgs_selfplay::Features;

/// The logical connectives of a theory, found by the labels that set.mm and its relatives use.
#[derive(Clone, Debug)]
pub struct Connectives {
    conjunction: Vec<u32>,
    disjunction: Vec<u32>,
    implication: Vec<u32>,
}

impl Connectives {
    /// Looks the syntax axioms up.
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

    fn among(set: &[u32], head: Head) -> bool {
        head.as_production().is_some_and(|p| set.contains(&p))
    }

    /// Whether a node is a conjunction.
    pub fn is_conjunction(&self, head: Head) -> bool {
        Self::among(&self.conjunction, head)
    }

    /// Whether a node is a disjunction.
    pub fn is_disjunction(&self, head: Head) -> bool {
        Self::among(&self.disjunction, head)
    }

    /// Whether a node is an implication.
    pub fn is_implication(&self, head: Head) -> bool {
        Self::among(&self.implication, head)
    }

    /// The production of the two-place conjunction, disjunction.
    pub fn binary(&self) -> Option<(u32, u32)> {
        Some((*self.conjunction.first()?, *self.disjunction.first()?))
    }

    /// The production of implication.
    pub fn implies(&self) -> Option<u32> {
        self.implication.first().copied()
    }

    /// What is claimed once the antecedents of nested implications are taken away.
    pub fn consequent<'a>(&self, theory: &Theory, tree: &'a [Head]) -> &'a [Head] {
        let mut rest = tree;
        while rest.first().is_some_and(|&h| self.is_implication(h)) {
            rest = &rest[theory.grammar().subtree_end(rest, 1)..];
        }
        rest
    }

    /// Number of parts of a conjunction or disjunction at the root (1 if it is neither).
    pub fn parts(&self, theory: &Theory, tree: &[Head], test: impl Fn(Head) -> bool + Copy) -> u32 {
        let Some(&root) = tree.first() else { return 0 };
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

/// Features of a statement.
pub fn features(theory: &Theory, connectives: &Connectives, statement: &Statement) -> Features {
    let count =
        |test: &dyn Fn(Head) -> bool| statement.conclusion.iter().filter(|h| test(**h)).count() as u32;
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

/// Longest path from the root to a leaf, in nodes.
fn depth(theory: &Theory, tree: &[Head]) -> u32 {
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
