//! What the database itself has to say of a statement: whether it stands there already, and whether one of its
//! assertions gives it at once.

use crate::corpus::splits::{NormalText, normal_text};
use crate::database::{StatementId, Symbol};
use crate::grammar::{Grammar, Head};
use crate::statement::Statement;
use crate::system::normal_form_of_rule;
use crate::theory::{RuleId, Theory};
use crate::unify::{Checker, Goal, ProofLimits, RuleBook, Step};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// Why a statement teaches nothing at a place of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It stands before the place, under whatever names and order of hypotheses.
    Known,
    /// A hypothesis, or one assertion before the place applied to hypotheses, proves it.
    OneStep,
}

/// The assertions of a theory, found by their statements and by the shape of their conclusions.
pub struct Library {
    /// The first assertion with a statement.
    first: FxHashMap<NormalText, RuleId>,
    /// Assertions by the first two nodes of their conclusions, in order of the database.
    by_shape: FxHashMap<Shape, Vec<RuleId>>,
}

/// The root of a formula and what follows it; `None` stands for any formula or term.
type Shape = Option<(u32, Option<Head>)>;

/// Ways to give a rule its hypotheses that are tried before it is taken not to apply.
const MOST_TRIES: usize = 2_000;

impl Library {
    /// Reads all assertions of a theory.
    pub fn new(theory: &Theory) -> Self {
        let prints: Vec<Option<NormalText>> = (0..theory.rules().len())
            .into_par_iter()
            .map(|i| normal_form_of_rule(theory, RuleId(i as u32)).map(|s| normal_text(theory, &s)))
            .collect();
        let mut first = FxHashMap::default();
        for (i, print) in prints.into_iter().enumerate() {
            if let Some(print) = print {
                first.entry(print).or_insert(RuleId(i as u32));
            }
        }
        let mut by_shape: FxHashMap<Shape, Vec<RuleId>> = FxHashMap::default();
        for (i, rule) in theory.rules().iter().enumerate() {
            by_shape.entry(shape(&rule.conclusion)).or_default().push(RuleId(i as u32));
        }
        Self { first, by_shape }
    }

    /// The first assertion that states this, if it stands before the place.
    pub fn stated(&self, theory: &Theory, statement: &Statement, before: StatementId) -> Option<RuleId> {
        let found = *self.first.get(&normal_text(theory, statement))?;
        (theory.rule(found).statement < before).then_some(found)
    }

    /// A proof by a hypothesis alone or by one assertion before the place, applied to hypotheses.
    pub fn one_step(
        &self,
        theory: &Theory,
        book: &RuleBook,
        checker: &mut Checker,
        statement: &Statement,
        before: StatementId,
    ) -> Option<Vec<Step>> {
        if let Some(h) = statement.hypotheses.iter().position(|h| *h == statement.conclusion) {
            return Some(vec![Step::Hypothesis(h as u32)]);
        }
        let goal = Goal::new(theory, statement, before).ok()?;
        let root = shape(&statement.conclusion);
        let shapes = [root, root.map(|(root, _)| (root, None)), None];
        for (i, shape) in shapes.iter().enumerate() {
            if shapes[..i].contains(shape) {
                continue;
            }
            for &rule in self.by_shape.get(shape).into_iter().flatten() {
                if theory.rule(rule).statement >= before {
                    break;
                }
                // The `$d` conditions are the checker's to judge.
                if let Some(steps) = application(theory, rule, statement)
                    && checker.check(theory, book, &goal, &steps, ProofLimits::default()).is_ok()
                {
                    return Some(steps);
                }
            }
        }
        None
    }

    /// What is wrong with a statement at a place, if anything is.
    pub fn fault(
        &self,
        theory: &Theory,
        book: &RuleBook,
        checker: &mut Checker,
        statement: &Statement,
        before: StatementId,
    ) -> Option<Fault> {
        if self.stated(theory, statement, before).is_some() {
            return Some(Fault::Known);
        }
        self.one_step(theory, book, checker, statement, before).map(|_| Fault::OneStep)
    }
}

/// The steps that apply a rule to hypotheses of a statement so that its conclusion comes out, `$d` conditions aside.
pub fn application(theory: &Theory, rule: RuleId, statement: &Statement) -> Option<Vec<Step>> {
    let r = theory.rule(rule);
    if statement.hypotheses.is_empty() && !r.hypotheses.is_empty() {
        return None;
    }
    let mut search = Search {
        grammar: theory.grammar(),
        patterns: &r.hypotheses,
        statement,
        bindings: Vec::with_capacity(r.variables.len()),
        steps: Vec::with_capacity(r.hypotheses.len() + 1),
        tries: 0,
    };
    let fits = search.binds(&r.conclusion, &statement.conclusion) && search.gives_hypotheses();
    fits.then(|| {
        search.steps.push(Step::Rule(rule));
        search.steps
    })
}

/// A search for the hypotheses that a rule takes.
struct Search<'a> {
    grammar: &'a Grammar,
    patterns: &'a [crate::grammar::Tree],
    statement: &'a Statement,
    /// What the rule's variables stand for.
    bindings: Vec<(Symbol, &'a [Head])>,
    steps: Vec<Step>,
    tries: usize,
}

impl<'a> Search<'a> {
    /// Extends the bindings so that the pattern becomes the tree; where that cannot be, they may be left extended.
    fn binds(&mut self, pattern: &[Head], tree: &'a [Head]) -> bool {
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

    /// Finds a hypothesis of the statement for each that the rule still wants.
    fn gives_hypotheses(&mut self) -> bool {
        let patterns = self.patterns;
        let Some(pattern) = patterns.get(self.steps.len()) else { return true };
        let statement = self.statement;
        for (h, tree) in statement.hypotheses.iter().enumerate() {
            self.tries += 1;
            if self.tries > MOST_TRIES {
                return false;
            }
            let bound = self.bindings.len();
            if self.binds(pattern, tree) {
                self.steps.push(Step::Hypothesis(h as u32));
                if self.gives_hypotheses() {
                    return true;
                }
                self.steps.pop();
            }
            self.bindings.truncate(bound);
        }
        false
    }
}

fn shape(tree: &[Head]) -> Shape {
    let root = tree.first()?.as_production()?;
    Some((root, tree.get(1).copied().filter(|h| h.as_production().is_some())))
}
