//! An index of a database's assertions, which detects statements that are already known or follow in one step.

use crate::database::{StatementId, Symbol};
use crate::grammar::{Grammar, Tree, TreeNode};
use crate::normal_text::{NormalText, normal_text};
use crate::statement::{Statement, normal_form_of_rule};
use crate::theory::{RuleId, Theory};
use crate::unify::{Goal, ProofLimits, ProofStep, Unifier};
use rustc_hash::FxHashMap;

/// Why a statement is trivial in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Triviality {
    /// A preceding assertion is equal up to the names of variables and the order of hypotheses.
    Known,
    /// It is a hypothesis, or follows from its hypotheses by one preceding assertion.
    OneStep,
}

/// Finds the assertions of a theory by their statements and by the shape of their conclusions.
pub struct AssertionIndex {
    /// The first assertion with each statement.
    first: FxHashMap<NormalText, RuleId>,
    /// Assertions by the first two nodes of their conclusions, in database order.
    by_shape: FxHashMap<ConclusionShape, Vec<RuleId>>,
}

/// The root of a formula and its first child; `None` for a variable, which matches any formula or term.
type ConclusionShape = Option<(u32, Option<TreeNode>)>;

/// Maximum number of attempts to match the hypotheses of a rule.
const MAX_TRIES: usize = 2_000;

impl AssertionIndex {
    /// Indexes all assertions of a theory.
    pub fn new(theory: &Theory) -> Self {
        // Do this sequentially, like everything that a `OnceLock` of `Metamath` calls (see its fields).
        let mut first = FxHashMap::default();
        let mut by_shape: FxHashMap<ConclusionShape, Vec<RuleId>> = FxHashMap::default();
        for (i, rule) in theory.rules().iter().enumerate() {
            let id = RuleId(i as u32);
            if let Some(statement) = normal_form_of_rule(theory, id) {
                first.entry(normal_text(theory, &statement)).or_insert(id);
            }
            by_shape.entry(shape(&rule.conclusion)).or_default().push(id);
        }
        Self { first, by_shape }
    }

    /// Returns the first assertion that is equal up to the names of variables and the order of hypotheses, if it precedes
    /// `before`.
    pub fn find_equivalent(
        &self,
        theory: &Theory,
        statement: &Statement,
        before: StatementId,
    ) -> Option<RuleId> {
        let found = *self.first.get(&normal_text(theory, statement))?;
        (theory.rule(found).statement < before).then_some(found)
    }

    /// Returns whether a hypothesis, or hypotheses and one assertion that precedes `before`, prove the statement.
    fn is_one_step(
        &self,
        theory: &Theory,
        unifier: &mut Unifier,
        statement: &Statement,
        before: StatementId,
    ) -> bool {
        if statement.hypotheses.contains(&statement.conclusion) {
            return true;
        }
        let Ok(goal) = Goal::new(theory, statement, before) else { return false };
        let root = shape(&statement.conclusion);
        let shapes = [root, root.map(|(root, _)| (root, None)), None];
        let mut search = HypothesisSearch::new(theory, statement);
        for (i, shape) in shapes.iter().enumerate() {
            if shapes[..i].contains(shape) {
                continue;
            }
            for &rule in self.by_shape.get(shape).into_iter().flatten() {
                if theory.rule(rule).statement >= before {
                    break;
                }
                // The search does not check `$d` conditions.
                if search.apply(rule)
                    && unifier.check(theory, &goal, &search.steps, ProofLimits::default()).is_ok()
                {
                    return true;
                }
            }
        }
        false
    }

    /// Returns why a statement is trivial before `before`; `None` if it is not.
    pub fn triviality(
        &self,
        theory: &Theory,
        unifier: &mut Unifier,
        statement: &Statement,
        before: StatementId,
    ) -> Option<Triviality> {
        if self.find_equivalent(theory, statement, before).is_some() {
            return Some(Triviality::Known);
        }
        self.is_one_step(theory, unifier, statement, before).then_some(Triviality::OneStep)
    }
}

/// Returns the steps that derive a statement's conclusion from its hypotheses by one rule, without checking `$d` conditions.
pub fn application(theory: &Theory, rule: RuleId, statement: &Statement) -> Option<Vec<ProofStep>> {
    let mut search = HypothesisSearch::new(theory, statement);
    search.apply(rule).then_some(search.steps)
}

/// Searches for hypotheses of a statement that match those of a rule. Its memory is used again for the next rule.
struct HypothesisSearch<'a> {
    theory: &'a Theory,
    grammar: &'a Grammar,
    patterns: &'a [Tree],
    statement: &'a Statement,
    bindings: Vec<(Symbol, &'a [TreeNode])>,
    steps: Vec<ProofStep>,
    tries: usize,
}

impl<'a> HypothesisSearch<'a> {
    fn new(theory: &'a Theory, statement: &'a Statement) -> Self {
        let (bindings, steps) = (Vec::new(), Vec::new());
        Self { theory, grammar: theory.grammar(), patterns: &[], statement, bindings, steps, tries: 0 }
    }

    /// Returns whether a rule derives the statement's conclusion from its hypotheses; then `steps` are the proof. On
    /// failure, they have no meaning.
    fn apply(&mut self, rule: RuleId) -> bool {
        let r = self.theory.rule(rule);
        if self.statement.hypotheses.is_empty() && !r.hypotheses.is_empty() {
            return false;
        }
        self.patterns = &r.hypotheses;
        self.bindings.clear();
        self.steps.clear();
        self.tries = 0;
        let fits = self.match_tree(&r.conclusion, &self.statement.conclusion) && self.match_hypotheses();
        self.steps.push(ProofStep::Rule(rule));
        fits
    }

    /// Matches a pattern against a tree and extends the bindings. On failure, the bindings may be partially extended.
    fn match_tree(&mut self, pattern: &[TreeNode], tree: &'a [TreeNode]) -> bool {
        let mut at = 0;
        for &head in pattern {
            let Some(&here) = tree.get(at) else { return false };
            let Some(variable) = head.as_variable() else {
                if here != head {
                    return false;
                }
                at += 1;
                continue;
            };
            let end = self.grammar.subtree_end(tree, at);
            let part = &tree[at..end];
            match self.bindings.iter().find(|b| b.0 == variable) {
                Some(bound) if bound.1 != part => return false,
                Some(_) => {}
                None => self.bindings.push((variable, part)),
            }
            at = end;
        }
        at == tree.len()
    }

    /// Finds a hypothesis of the statement for each remaining hypothesis of the rule.
    fn match_hypotheses(&mut self) -> bool {
        let patterns = self.patterns;
        let Some(pattern) = patterns.get(self.steps.len()) else { return true };
        let statement = self.statement;
        for (h, tree) in statement.hypotheses.iter().enumerate() {
            self.tries += 1;
            if self.tries > MAX_TRIES {
                return false;
            }
            let bound = self.bindings.len();
            if self.match_tree(pattern, tree) {
                self.steps.push(ProofStep::Hypothesis(h as u32));
                if self.match_hypotheses() {
                    return true;
                }
                self.steps.pop();
            }
            self.bindings.truncate(bound);
        }
        false
    }
}

fn shape(tree: &[TreeNode]) -> ConclusionShape {
    let root = tree.first()?.as_production()?;
    Some((root, tree.get(1).copied().filter(|h| h.as_production().is_some())))
}
