//! The rules of a theory, and their form for the unifier.

use crate::database::{Database, Distinct, StatementId, StatementKind, Symbol};
use crate::grammar::{Grammar, Tree, TreeNode, TreeNodeKind, TypeId};

/// A provable assertion: index in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// An axiom or theorem as an inference rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The assertion.
    pub statement: StatementId,
    /// Mandatory variables with their types, in the order of their `$f` statements.
    pub variables: Box<[(Symbol, TypeId)]>,
    /// Essential hypotheses, without the provable typecode.
    pub hypotheses: Box<[Tree]>,
    /// The conclusion, without the provable typecode.
    pub conclusion: Tree,
    /// `$d` pairs among the mandatory variables.
    pub distinct: Box<[Distinct]>,
}

/// Maximum number of variables of a rule, whose `$d` pairs name variables by 16-bit numbers.
pub(crate) const MAX_RULE_VARIABLES: usize = 1 << 16;

// The first word of a node is a metavariable or a constant with one of these flags, otherwise a production, which is followed
// by the numbers of its children's nodes.
pub(crate) const METAVARIABLE: u32 = 1 << 31;
pub(crate) const CONSTANT: u32 = 1 << 30;

/// The rules of a theory, compiled for unification. All unifiers of a theory share them.
#[derive(Debug, Default)]
pub(crate) struct CompiledRules {
    pub(crate) nodes: Vec<u32>,
    pub(crate) rules: Vec<CompiledRule>,
    hypothesis_roots: Vec<u32>,
    distinct: Vec<(u16, u16)>,
    pub(crate) arity: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CompiledRule {
    pub(crate) statement: StatementId,
    pub(crate) conclusion: u32,
    hypotheses: (u32, u32),
    distinct: (u32, u32),
    pub(crate) variables: u32,
    /// Whether all `$f` hypotheses precede all `$e` hypotheses, as in nearly all assertions.
    pub(crate) floats_first: bool,
}

impl CompiledRules {
    pub(crate) fn new(database: &Database, grammar: &Grammar, rules: &[Rule]) -> Self {
        let arity = grammar.productions().iter().map(|p| p.children.len() as u8).collect();
        let mut compiled = Self { arity, ..Self::default() };
        for rule in rules {
            #[allow(clippy::expect_used, reason = "the trees and $d pairs of a rule use only its variables")]
            let index = |s: Symbol| {
                let position = rule.variables.iter().position(|(v, _)| *v == s);
                position.expect("invariant: every variable of a rule is among its mandatory variables") as u32
            };
            let first = compiled.hypothesis_roots.len() as u32;
            for h in &rule.hypotheses {
                let root = compile(&mut compiled.nodes, &compiled.arity, h, |v| METAVARIABLE | index(v));
                compiled.hypothesis_roots.push(root);
            }
            let leaf = |v| METAVARIABLE | index(v);
            let conclusion = compile(&mut compiled.nodes, &compiled.arity, &rule.conclusion, leaf);
            let first_distinct = compiled.distinct.len() as u32;
            compiled.distinct.extend(rule.distinct.iter().map(|&(a, b)| (index(a) as u16, index(b) as u16)));
            compiled.rules.push(CompiledRule {
                statement: rule.statement,
                conclusion,
                hypotheses: (first, compiled.hypothesis_roots.len() as u32),
                distinct: (first_distinct, compiled.distinct.len() as u32),
                variables: rule.variables.len() as u32,
                floats_first: floats_first(database, rule),
            });
        }
        compiled
    }

    /// Returns the roots of a rule's hypotheses.
    pub(crate) fn hypotheses(&self, rule: CompiledRule) -> &[u32] {
        &self.hypothesis_roots[rule.hypotheses.0 as usize..rule.hypotheses.1 as usize]
    }

    /// Returns the `$d` pairs of a rule, by the numbers of its variables.
    pub(crate) fn distinct(&self, rule: CompiledRule) -> &[(u16, u16)] {
        &self.distinct[rule.distinct.0 as usize..rule.distinct.1 as usize]
    }
}

#[allow(clippy::expect_used, reason = "rules are created from assertions only")]
fn floats_first(database: &Database, rule: &Rule) -> bool {
    let is_float = |&h: &StatementId| matches!(database.statement(h).kind, StatementKind::Floating { .. });
    let assertion = database.assertion(rule.statement).expect("invariant: every rule is an assertion");
    assertion.hypotheses.is_sorted_by_key(|h| !is_float(h))
}

/// Appends a tree to a list of nodes and returns the number of its root.
pub(crate) fn compile(
    nodes: &mut Vec<u32>,
    arity: &[u8],
    tree: &[TreeNode],
    leaf: impl Fn(Symbol) -> u32,
) -> u32 {
    let root = nodes.len() as u32;
    // Positions of child numbers that are not known yet, in reverse order.
    let mut waiting: Vec<usize> = Vec::new();
    for head in tree {
        let at = nodes.len();
        if let Some(position) = waiting.pop() {
            nodes[position] = at as u32;
        }
        match head.kind() {
            TreeNodeKind::Production(p) => {
                nodes.push(p);
                let n = arity[p as usize] as usize;
                nodes.extend(std::iter::repeat_n(0, n));
                waiting.extend((at + 1..=at + n).rev());
            }
            TreeNodeKind::Variable(v) => nodes.push(leaf(v)),
        }
    }
    root
}
