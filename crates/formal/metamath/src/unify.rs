//! Proofs as lists of essential steps, and the unifier that checks them: first-order unification over shared terms.
//!
//! A proof lists, in postfix order, the steps that prove formulas: hypotheses of the problem and earlier assertions.
//! Applying an assertion creates fresh metavariables for its variables, unifies its hypotheses with the formulas on top of
//! the stack, and replaces these by its conclusion. The formula that remains at the end must unify with the goal, whose
//! variables are constants.
//!
//! A term is a node of a fixed tree together with the base of the metavariables that the tree's variables refer to, so
//! pushing a conclusion copies nothing. The work is limited, because unification can take exponential time.

use crate::database::{Distinct, StatementId, StatementKind, Symbol};
use crate::grammar::{SyntaxPart, Tree, TreeNode, TypeId};
use crate::proof::ProofOp;
use crate::rules::{CONSTANT, CompiledRule, CompiledRules, METAVARIABLE, compile};
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use sgs_selfplay::{Judgement, Verdict};

/// A step of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProofStep {
    /// A hypothesis of the problem, counted from 0.
    Hypothesis(u32),
    /// An assertion of the database.
    Rule(RuleId),
}

impl ProofStep {
    /// Returns the assertion that the step cites.
    pub fn rule(self) -> Option<RuleId> {
        match self {
            Self::Rule(id) => Some(id),
            Self::Hypothesis(_) => None,
        }
    }
}

/// Limits of a proof, which prevent exponential running time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofLimits {
    /// Maximum number of steps.
    pub steps: usize,
    /// Maximum number of formulas on the stack.
    pub stack: usize,
    /// Maximum number of nodes visited by unification, the occurs check and the `$d` check.
    pub work: u32,
    /// Maximum number of operations of the expanded proof.
    pub operations: usize,
}

impl Default for ProofLimits {
    fn default() -> Self {
        Self { steps: 1_000, stack: 256, work: 200_000, operations: 100_000 }
    }
}

/// A term: a node, and the base of the metavariables that the node's variables refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TermRef {
    node: u32,
    base: u32,
}

const UNBOUND: TermRef = TermRef { node: u32::MAX, base: 0 };

/// Marks the numbers of the goal's nodes, as opposed to those of rules.
const GOAL: u32 = 1 << 31;

/// A problem, compiled for unification.
#[derive(Clone, Debug)]
pub struct Goal {
    nodes: Vec<u32>,
    hypotheses: Vec<u32>,
    conclusion: u32,
    /// Variables in order of appearance.
    variables: Vec<(Symbol, TypeId, StatementId)>,
    /// For each variable, a bit set of the variables that it is distinct from.
    distinct: Vec<u128>,
    before: StatementId,
    statement: Statement,
}

impl Goal {
    /// Compiles a statement whose proof may use the statements before `before`. Its variables must be declared in the
    /// outermost scope.
    ///
    /// # Errors
    /// Returns an error if the statement has more than 96 variables, if a variable has no `$f`, or if the statement uses
    /// syntax that `before` precedes.
    pub fn new(theory: &Theory, statement: &Statement, before: StatementId) -> Result<Self, String> {
        Self::with_floats(theory, statement, before, &[])
    }

    /// Compiles a theorem of the database, with its own `$f` statements.
    pub fn of_rule(theory: &Theory, rule: RuleId) -> Result<Self, String> {
        Self::in_place_of(theory, rule, &Statement::of_rule(theory.rule(rule)))
    }

    /// Compiles a statement as if it replaced a theorem of the database. Its variables are looked up among the theorem's
    /// `$f` statements first, then in the outermost scope.
    pub fn in_place_of(theory: &Theory, rule: RuleId, statement: &Statement) -> Result<Self, String> {
        let floats: Vec<_> = theory.database().floats(theory.assertion(rule)).collect();
        Self::with_floats(theory, statement, theory.rule(rule).statement, &floats)
    }

    fn with_floats(
        theory: &Theory,
        statement: &Statement,
        before: StatementId,
        floats: &[(StatementId, Symbol, Symbol)],
    ) -> Result<Self, String> {
        let mut variables = Vec::new();
        for v in statement.variables() {
            let own = floats.iter().find(|f| f.2 == v).map(|f| (v, theory.grammar().float_type(f.1), f.0));
            let global = || theory.variables().iter().find(|g| g.0 == v).copied();
            match own.or_else(global) {
                Some(found) => variables.push(found),
                None => {
                    let text = theory.database().symbol_text(v);
                    return Err(format!(
                        "variable `{text}` is not declared in the database's outermost scope"
                    ));
                }
            }
        }
        if variables.len() > MAX_GOAL_VARIABLES {
            return Err(format!("{} variables, more than {MAX_GOAL_VARIABLES}", variables.len()));
        }
        if let Some(label) = later_syntax(theory, statement, before) {
            return Err(format!("the syntax `{label}` is not introduced before the problem's context"));
        }
        let index = |s: Symbol| variables.iter().position(|(v, _, _)| *v == s);
        let arity: Vec<u8> = theory.grammar().productions().iter().map(|p| p.children.len() as u8).collect();
        let mut nodes = Vec::new();
        #[allow(clippy::expect_used, reason = "`variables` was filled from the same trees")]
        let leaf = |s: Symbol| {
            CONSTANT | index(s).expect("invariant: every variable of a goal's trees is numbered") as u32
        };
        let hypotheses: Vec<u32> =
            statement.hypotheses.iter().map(|h| compile(&mut nodes, &arity, h, leaf)).collect();
        let conclusion = compile(&mut nodes, &arity, &statement.conclusion, leaf);
        let mut distinct = vec![0u128; variables.len()];
        for &(a, b) in &statement.distinct {
            // A pair with a variable that does not occur in the statement has no effect.
            if let (Some(a), Some(b)) = (index(a), index(b)) {
                distinct[a] |= 1 << b;
                distinct[b] |= 1 << a;
            }
        }
        Ok(Self { nodes, hypotheses, conclusion, variables, distinct, before, statement: statement.clone() })
    }

    /// Creates a goal with `hypotheses` unknown hypotheses and an unknown conclusion, for [`Unifier::most_general`] and
    /// [`Unifier::unifies`].
    pub fn open(hypotheses: u32, before: StatementId) -> Self {
        Self {
            nodes: (0..hypotheses).map(|h| METAVARIABLE | h).collect(),
            hypotheses: (0..hypotheses).collect(),
            conclusion: 0,
            variables: Vec::new(),
            distinct: Vec::new(),
            before,
            statement: Statement::default(),
        }
    }

    /// Returns the first statement that a proof may not use.
    pub fn before(&self) -> StatementId {
        self.before
    }

    /// Returns the number of hypotheses.
    pub fn hypothesis_count(&self) -> usize {
        self.hypotheses.len()
    }

    /// Returns the `$f` statements of the goal's variables, in database order.
    pub fn floats(&self) -> Vec<StatementId> {
        let mut out: Vec<StatementId> = self.variables.iter().map(|v| v.2).collect();
        out.sort_unstable();
        out
    }

    /// Returns the statement to prove.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// Returns the `$d` pairs that a proof may rely on.
    pub fn distinct(&self) -> &[Distinct] {
        &self.statement.distinct
    }
}

/// Returns the label of a syntax axiom that the statement uses and that does not precede `before`.
pub(crate) fn later_syntax<'t>(
    theory: &'t Theory,
    statement: &Statement,
    before: StatementId,
) -> Option<&'t str> {
    let productions = theory.grammar().productions();
    let used = statement.trees().flat_map(|t| t.iter().filter_map(|h| h.as_production()));
    let later = used.map(|p| productions[p as usize].statement).find(|&s| s >= before)?;
    Some(&theory.database().statement(later).label)
}

/// Maximum number of `$d` pairs examined while dummy variables are chosen.
const DUMMY_WORK: usize = 1_000_000;

/// Maximum number of variables of a goal. The remaining bits of a 128-bit set are for dummy variables.
pub const MAX_GOAL_VARIABLES: usize = 96;

#[derive(Clone, Copy, Debug)]
struct CheckedStep {
    step: ProofStep,
    /// First metavariable of the step.
    base: u32,
    /// Start of its hypotheses' steps in `Unifier::children`.
    children: u32,
}

/// Everything that the terms of a proof refer to.
#[derive(Clone, Copy)]
struct Terms<'a> {
    theory: &'a Theory,
    rules: &'a CompiledRules,
    goal: &'a Goal,
}

impl<'a> Terms<'a> {
    fn new(theory: &'a Theory, goal: &'a Goal) -> Self {
        Self { theory, rules: theory.compiled(), goal }
    }

    #[inline]
    fn word(self, node: u32) -> u32 {
        if node & GOAL == 0 {
            self.rules.nodes[node as usize]
        } else {
            self.goal.nodes[(node & !GOAL) as usize]
        }
    }

    #[inline]
    fn child(self, term: TermRef, i: u32) -> TermRef {
        let at = (term.node & !GOAL) as usize + 1 + i as usize;
        let node = if term.node & GOAL == 0 { self.rules.nodes[at] } else { self.goal.nodes[at] | GOAL };
        TermRef { node, base: term.base }
    }

    /// Returns the children of a term whose first word is `production`.
    #[inline]
    fn children(
        self,
        term: TermRef,
        production: u32,
    ) -> impl DoubleEndedIterator<Item = TermRef> + ExactSizeIterator {
        (0..u32::from(self.rules.arity[production as usize])).map(move |i| self.child(term, i))
    }
}

/// Checks proofs by unification. It keeps its buffers from proof to proof.
#[derive(Debug, Default)]
pub struct Unifier {
    bindings: Vec<TermRef>,
    stack: Vec<(TermRef, u32)>,
    done: Vec<CheckedStep>,
    children: Vec<u32>,
    todo: Vec<(TermRef, TermRef)>,
    work: u32,
    /// Whether the current step bound an older metavariable, so that older terms may contain new ones.
    tainted: bool,
    /// For each metavariable, the set of variables in its term, if computed.
    masks: Vec<u128>,
    /// Open metavariables that occur in `$d` conditions. The bit of `dummies[i]` in a mask is the number of the goal's
    /// variables plus `i`.
    dummies: Vec<u32>,
    /// Pairs of masks with open metavariables; the variables of the first must be distinct from those of the second.
    apart: Vec<(u128, u128)>,
}

enum UnifyError {
    Different,
    Cyclic,
    Resource,
}

impl Unifier {
    /// Creates a unifier with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a proof. On success, the unifier keeps the substitution for [`Unifier::expand`].
    pub fn check(
        &mut self,
        theory: &Theory,
        goal: &Goal,
        steps: &[ProofStep],
        limits: ProofLimits,
    ) -> Result<(), Judgement> {
        let terms = Terms::new(theory, goal);
        self.clear(limits);
        if steps.len() > limits.steps {
            return Err(resource(None, format!("{} steps, more than {}", steps.len(), limits.steps)));
        }
        for (index, &step) in steps.iter().enumerate() {
            self.step(terms, index, step, limits)?;
        }
        let last = self.last()?;
        self.tainted = true;
        let target = TermRef { node: goal.conclusion | GOAL, base: 0 };
        match self.unify(terms, target, last, 0) {
            Ok(()) => {}
            Err(UnifyError::Resource) => {
                return Err(resource(None, "unification with the goal took too long"));
            }
            Err(_) => {
                let found = self.show(terms, last);
                return Err(refused(None, format!("the proof proves another statement: |-{found}")));
            }
        }
        self.check_distinct(terms)
    }

    fn last(&self) -> Result<TermRef, Judgement> {
        match self.stack[..] {
            [(last, _)] => Ok(last),
            _ => {
                let n = self.stack.len();
                Err(refused(None, format!("the proof leaves {n} formulas on the stack, not one")))
            }
        }
    }

    /// Returns the most general statement that `steps` prove: with the most general hypotheses, and only the `$d` conditions
    /// that the steps need. Returns `None` if the steps are not a proof, or if a formula has more than `limit` nodes. `goal`
    /// must be open and have as many hypotheses as the steps use.
    pub fn most_general(
        &mut self,
        theory: &Theory,
        goal: &Goal,
        steps: &[ProofStep],
        limit: usize,
    ) -> Option<Statement> {
        if !self.unifies(theory, goal, steps) {
            return None;
        }
        let terms = Terms::new(theory, goal);
        let last = self.last().ok()?;
        self.check_distinct(terms).ok()?;
        let dummies = self.distinct_floats(theory, goal)?;
        let hypotheses = goal
            .hypotheses
            .iter()
            .map(|&h| self.tree(terms, TermRef { node: h | GOAL, base: 0 }, &dummies, limit))
            .collect::<Option<Box<[Tree]>>>()?;
        let conclusion = self.tree(terms, last, &dummies, limit)?;
        let symbol = |bit: usize| dummy(&dummies, self.dummies[bit]).1;
        let bits = |mask: u128| (0..self.dummies.len()).filter(move |b| mask >> b & 1 != 0);
        let mut distinct = Vec::new();
        for &(a, b) in &self.apart {
            for x in bits(a) {
                distinct.extend(bits(b).map(|y| crate::database::distinct(symbol(x), symbol(y))));
            }
        }
        Some(Statement { hypotheses, conclusion, ..Statement::default() }.with_distinct(distinct))
    }

    /// Returns whether the steps can be applied in order, regardless of what they leave on the stack. `goal` must be open.
    pub fn unifies(&mut self, theory: &Theory, goal: &Goal, steps: &[ProofStep]) -> bool {
        let (terms, limits) = (Terms::new(theory, goal), ProofLimits::default());
        self.clear(limits);
        self.bindings.resize(goal.hypotheses.len(), UNBOUND);
        steps.iter().enumerate().all(|(i, &step)| self.step(terms, i, step, limits).is_ok())
    }

    /// Chooses a different variable for every open metavariable. Returns `None` if there are too few.
    fn distinct_floats(&self, theory: &Theory, goal: &Goal) -> Option<Vec<Option<StatementSymbol>>> {
        let mut out = vec![None; self.bindings.len()];
        let mut free: Vec<_> = theory.variables_at(goal.before).collect();
        let mut assign = |slot: usize, t: TypeId| {
            if self.bindings[slot] == UNBOUND {
                let at = free.iter().position(|f| f.1 == t)?;
                let (v, _, f) = free.remove(at);
                out[slot] = Some((f, v));
            }
            Some(())
        };
        for slot in 0..goal.hypotheses.len() {
            assign(slot, theory.formula_type())?;
        }
        for done in &self.done {
            let Some(id) = done.step.rule() else { continue };
            for (i, &(_, t)) in theory.rule(id).variables.iter().enumerate() {
                assign(done.base as usize + i, t)?;
            }
        }
        Some(out)
    }

    fn clear(&mut self, limits: ProofLimits) {
        self.bindings.clear();
        self.stack.clear();
        self.done.clear();
        self.children.clear();
        self.work = limits.work;
    }

    fn step(
        &mut self,
        terms: Terms<'_>,
        index: usize,
        step: ProofStep,
        limits: ProofLimits,
    ) -> Result<(), Judgement> {
        let number = Some(index as u32 + 1);
        let base = self.bindings.len() as u32;
        let first_child = self.children.len() as u32;
        let result = match step {
            ProofStep::Hypothesis(h) => match terms.goal.hypotheses.get(h as usize) {
                Some(&node) => TermRef { node: node | GOAL, base: 0 },
                None => {
                    return Err(refused(number, format!("h{}: the problem has no such hypothesis", h + 1)));
                }
            },
            ProofStep::Rule(id) => {
                let Some(rule) = terms.rules.rules.get(id.0 as usize).copied() else {
                    return Err(refused(number, "no such assertion"));
                };
                if rule.statement >= terms.goal.before {
                    let label = terms.theory.label(id);
                    return Err(refused(number, format!("{label}: does not precede the problem")));
                }
                self.apply(terms, number, id, rule)?;
                TermRef { node: rule.conclusion, base }
            }
        };
        if self.stack.len() >= limits.stack {
            return Err(resource(number, format!("more than {} formulas on the stack", limits.stack)));
        }
        self.stack.push((result, index as u32));
        self.done.push(CheckedStep { step, base, children: first_child });
        Ok(())
    }

    fn apply(
        &mut self,
        terms: Terms<'_>,
        number: Option<u32>,
        id: RuleId,
        rule: CompiledRule,
    ) -> Result<(), Judgement> {
        let base = self.bindings.len() as u32;
        let hypotheses = terms.rules.hypotheses(rule);
        let Some(bottom) = self.stack.len().checked_sub(hypotheses.len()) else {
            let (need, have) = (hypotheses.len(), self.stack.len());
            let label = terms.theory.label(id);
            return Err(refused(number, format!("{label}: needs {need} formulas, the stack has {have}")));
        };
        self.bindings.resize(base as usize + rule.variables as usize, UNBOUND);
        self.tainted = false;
        for (i, &h) in hypotheses.iter().enumerate() {
            let (found, child) = self.stack[bottom + i];
            self.children.push(child);
            let failure = match self.unify(terms, TermRef { node: h, base }, found, base) {
                Ok(()) => continue,
                Err(failure) => failure,
            };
            let label = terms.theory.label(id);
            return Err(match failure {
                UnifyError::Resource => resource(number, format!("{label}: unification took too long")),
                UnifyError::Cyclic => refused(
                    number,
                    format!("{label}: hypothesis {} does not unify: a variable would contain itself", i + 1),
                ),
                UnifyError::Different => {
                    let need = self.show(terms, TermRef { node: h, base });
                    let found = self.show(terms, found);
                    refused(
                        number,
                        format!(
                            "{label}: hypothesis {} does not unify: needs |-{need}, found |-{found}",
                            i + 1
                        ),
                    )
                }
            });
        }
        self.stack.truncate(bottom);
        Ok(())
    }

    /// Follows bindings. Returns the resulting term and its first word, which is a metavariable only if unbound.
    #[inline]
    fn resolve(&self, terms: Terms<'_>, mut term: TermRef) -> (TermRef, u32) {
        loop {
            let head = terms.word(term.node);
            if head & METAVARIABLE == 0 {
                return (term, head);
            }
            let bound = self.bindings[(term.base + (head & !METAVARIABLE)) as usize];
            if bound == UNBOUND {
                return (term, head);
            }
            term = bound;
        }
    }

    fn unify(&mut self, terms: Terms<'_>, a: TermRef, b: TermRef, fresh: u32) -> Result<(), UnifyError> {
        self.todo.clear();
        self.todo.push((a, b));
        while let Some((a, b)) = self.todo.pop() {
            if self.work == 0 {
                return Err(UnifyError::Resource);
            }
            self.work -= 1;
            let (a, ha) = self.resolve(terms, a);
            let (b, hb) = self.resolve(terms, b);
            if a == b {
                continue;
            }
            match (ha & METAVARIABLE != 0, hb & METAVARIABLE != 0) {
                (true, true) => {
                    let (sa, sb) = (a.base + (ha & !METAVARIABLE), b.base + (hb & !METAVARIABLE));
                    match sa.cmp(&sb) {
                        // Bind the newer metavariable to the older one.
                        std::cmp::Ordering::Greater => self.bind(sa, b, fresh),
                        std::cmp::Ordering::Less => self.bind(sb, a, fresh),
                        std::cmp::Ordering::Equal => {}
                    }
                }
                (true, false) => self.bind_checked(terms, a.base + (ha & !METAVARIABLE), b, fresh)?,
                (false, true) => self.bind_checked(terms, b.base + (hb & !METAVARIABLE), a, fresh)?,
                (false, false) => {
                    if ha != hb {
                        return Err(UnifyError::Different);
                    }
                    if ha & CONSTANT == 0 {
                        self.todo.extend(terms.children(a, ha).zip(terms.children(b, hb)).rev());
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn bind(&mut self, slot: u32, term: TermRef, fresh: u32) {
        self.tainted |= slot < fresh;
        self.bindings[slot as usize] = term;
    }

    /// Binds a metavariable after the occurs check. The check is skipped for a metavariable of the current step and an
    /// older term as long as this step has not bound any older metavariable, because the older term then cannot contain
    /// it.
    #[inline]
    fn bind_checked(
        &mut self,
        terms: Terms<'_>,
        slot: u32,
        term: TermRef,
        fresh: u32,
    ) -> Result<(), UnifyError> {
        // Terms of a goal contain no metavariables, except that those of an open goal contain the very first ones.
        let older = term.node & GOAL != 0 || term.base < fresh;
        let safe = slot >= fresh && !self.tainted && older;
        if !safe && self.occurs(terms, slot, term)? {
            return Err(UnifyError::Cyclic);
        }
        self.bind(slot, term, fresh);
        Ok(())
    }

    fn occurs(&mut self, terms: Terms<'_>, slot: u32, term: TermRef) -> Result<bool, UnifyError> {
        let mut todo = vec![term];
        while let Some(term) = todo.pop() {
            if self.work == 0 {
                return Err(UnifyError::Resource);
            }
            self.work -= 1;
            let (term, head) = self.resolve(terms, term);
            if head & METAVARIABLE != 0 {
                if term.base + (head & !METAVARIABLE) == slot {
                    return Ok(true);
                }
                continue;
            }
            if term.node & GOAL != 0 {
                continue;
            }
            todo.extend(terms.children(term, head));
        }
        Ok(false)
    }

    /// Checks the `$d` conditions of every step against those of the goal. Metavariables that the proof leaves open are
    /// dummy variables, which are distinct from all other variables.
    fn check_distinct(&mut self, terms: Terms<'_>) -> Result<(), Judgement> {
        self.masks.clear();
        self.dummies.clear();
        self.apart.clear();
        for index in 0..self.done.len() {
            let CheckedStep { step: ProofStep::Rule(id), base, .. } = self.done[index] else { continue };
            let pairs = terms.rules.distinct(terms.rules.rules[id.0 as usize]);
            if pairs.is_empty() {
                continue;
            }
            if self.masks.is_empty() {
                self.masks.resize(self.bindings.len(), 0);
            }
            let number = Some(index as u32 + 1);
            for &(a, b) in pairs {
                let too_many = || resource(number, "too many variables for the $d check");
                let a = self.mask(terms, base + u32::from(a)).ok_or_else(too_many)?;
                let b = self.mask(terms, base + u32::from(b)).ok_or_else(too_many)?;
                if (a | b) >> terms.goal.variables.len() != 0 {
                    self.apart.push((a, b));
                }
                if let Some((x, y)) = clash(terms.goal, a, b) {
                    let name = |i: usize| match terms.goal.variables.get(i) {
                        Some((v, _, _)) => terms.theory.database().symbol_text(*v).to_owned(),
                        None => "a dummy variable".to_owned(),
                    };
                    let label = terms.theory.label(id);
                    let reason = if x == y {
                        format!("{label}: $d violated: {} occurs on both sides", name(x))
                    } else {
                        format!("{label}: $d violated: the problem has no $d {} {}", name(x), name(y))
                    };
                    return Err(refused(number, reason));
                }
            }
        }
        self.apart.sort_unstable();
        self.apart.dedup();
        Ok(())
    }

    /// Returns the set of variables in a metavariable's term: the goal's variables in the low bits, then dummy variables.
    /// Returns `None` if there are too many variables or the work limit is reached.
    fn mask(&mut self, terms: Terms<'_>, slot: u32) -> Option<u128> {
        let mut open = vec![slot];
        while let Some(&top) = open.last() {
            if self.masks[top as usize] & KNOWN != 0 {
                open.pop();
                continue;
            }
            let bound = self.bindings[top as usize];
            if bound == UNBOUND {
                let bit = terms.goal.variables.len() + self.dummies.len();
                if bit >= 127 {
                    return None;
                }
                self.dummies.push(top);
                self.masks[top as usize] = KNOWN | 1 << bit;
                continue;
            }
            let (mut mask, waiting) = (0u128, open.len());
            let mut todo = vec![bound];
            while let Some(term) = todo.pop() {
                self.work = self.work.checked_sub(1)?;
                let head = terms.word(term.node);
                if head & METAVARIABLE != 0 {
                    let inner = term.base + (head & !METAVARIABLE);
                    let known = self.masks[inner as usize];
                    if known & KNOWN == 0 {
                        open.push(inner);
                    }
                    mask |= known & !KNOWN;
                } else if head & CONSTANT != 0 {
                    mask |= 1 << (head & !CONSTANT);
                } else {
                    todo.extend(terms.children(term, head));
                }
            }
            if open.len() == waiting {
                self.masks[top as usize] = KNOWN | mask;
            }
        }
        Some(self.masks[slot as usize] & !KNOWN)
    }

    /// Formats a term for a message, truncated after 48 symbols, with open metavariables as `?n`.
    fn show(&self, terms: Terms<'_>, term: TermRef) -> String {
        const SYMBOLS: usize = 48;
        enum Todo<'a> {
            Term(TermRef),
            Parts(&'a [SyntaxPart], TermRef, u32),
        }
        let (mut out, mut count) = (String::new(), 0);
        let mut todo = vec![Todo::Term(term)];
        while let Some(next) = todo.pop() {
            if count >= SYMBOLS {
                out.push_str(" …");
                break;
            }
            match next {
                Todo::Term(term) => {
                    let (term, head) = self.resolve(terms, term);
                    if head & METAVARIABLE != 0 {
                        out.push_str(&format!(" ?{}", term.base + (head & !METAVARIABLE)));
                        count += 1;
                    } else if head & CONSTANT != 0 {
                        out.push(' ');
                        let (v, _, _) = terms.goal.variables[(head & !CONSTANT) as usize];
                        out.push_str(terms.theory.database().symbol_text(v));
                        count += 1;
                    } else {
                        todo.push(Todo::Parts(
                            &terms.theory.grammar().productions()[head as usize].parts,
                            term,
                            0,
                        ));
                    }
                }
                Todo::Parts(parts, term, child) => {
                    let Some((first, rest)) = parts.split_first() else { continue };
                    match first {
                        SyntaxPart::Constant(s) => {
                            out.push(' ');
                            out.push_str(terms.theory.database().symbol_text(*s));
                            count += 1;
                            todo.push(Todo::Parts(rest, term, child));
                        }
                        SyntaxPart::Child(_) => {
                            todo.push(Todo::Parts(rest, term, child + 1));
                            todo.push(Todo::Term(terms.child(term, child)));
                        }
                    }
                }
            }
        }
        out
    }

    /// Returns the formula that each step of the last accepted proof proves, in the goal's variables; `None` for a formula of
    /// more than `limit` nodes. Open metavariables become dummy variables.
    ///
    /// # Errors
    /// Returns an error if the theory has too few variables for the dummies.
    pub fn step_formulas(
        &self,
        theory: &Theory,
        goal: &Goal,
        limit: usize,
    ) -> Result<Vec<Option<Tree>>, Judgement> {
        let terms = Terms::new(theory, goal);
        let dummies = self.dummy_floats(theory, goal)?;
        let mut out = Vec::with_capacity(self.done.len());
        for done in &self.done {
            let root = match done.step {
                ProofStep::Hypothesis(h) => TermRef { node: goal.hypotheses[h as usize] | GOAL, base: 0 },
                ProofStep::Rule(id) => {
                    TermRef { node: terms.rules.rules[id.0 as usize].conclusion, base: done.base }
                }
            };
            out.push(self.tree(terms, root, &dummies, limit));
        }
        Ok(out)
    }

    /// Returns, for each step of the last accepted proof, the steps (from 0) that prove its hypotheses.
    pub fn step_children(&self) -> Vec<&[u32]> {
        (0..self.done.len())
            .map(|i| {
                let from = self.done[i].children as usize;
                let to = self.done.get(i + 1).map_or(self.children.len(), |d| d.children as usize);
                &self.children[from..to]
            })
            .collect()
    }

    fn tree(
        &self,
        terms: Terms<'_>,
        root: TermRef,
        dummies: &[Option<StatementSymbol>],
        limit: usize,
    ) -> Option<Tree> {
        let mut out = Vec::new();
        let mut todo = vec![root];
        while let Some(term) = todo.pop() {
            if out.len() >= limit {
                return None;
            }
            let (term, head) = self.resolve(terms, term);
            if head & METAVARIABLE != 0 {
                out.push(TreeNode::variable(dummy(dummies, term.base + (head & !METAVARIABLE)).1));
            } else if head & CONSTANT != 0 {
                out.push(TreeNode::variable(terms.goal.variables[(head & !CONSTANT) as usize].0));
            } else {
                out.push(TreeNode::production(head));
                todo.extend(terms.children(term, head).rev());
            }
        }
        Some(out.into())
    }

    /// Chooses a variable for each metavariable that the proof leaves open, subject to the `$d` conditions: preferably one
    /// that is declared before the goal and not used yet, then one used for another dummy, then one of the goal's.
    fn dummy_floats(&self, theory: &Theory, goal: &Goal) -> Result<Vec<Option<StatementSymbol>>, Judgement> {
        let mut out = vec![None; self.bindings.len()];
        let mut work = DUMMY_WORK;
        let mut taken: Vec<(StatementSymbol, TypeId)> = Vec::new();
        // The variable of each bit of a mask, if chosen already.
        let mut of_bit: Vec<Option<Symbol>> = goal.variables.iter().map(|v| Some(v.0)).collect();
        of_bit.resize(goal.variables.len() + self.dummies.len(), None);
        for done in &self.done {
            let ProofStep::Rule(id) = done.step else { continue };
            for (i, &(_, t)) in theory.rule(id).variables.iter().enumerate() {
                let slot = done.base + i as u32;
                if self.bindings[slot as usize] != UNBOUND {
                    continue;
                }
                let bit = self.dummies.iter().position(|&d| d == slot).map(|d| d + goal.variables.len());
                let own = |v: Symbol| goal.variables.iter().any(|g| g.0 == v);
                let fresh = theory
                    .variables_at(goal.before)
                    .filter(|(v, vt, _)| *vt == t && !own(*v) && !taken.iter().any(|(x, _)| x.1 == *v))
                    .map(|(v, _, f)| (f, v));
                let used = taken.iter().filter(|x| x.1 == t).map(|x| x.0);
                let goals = goal.variables.iter().filter(|g| g.1 == t).map(|g| (g.2, g.0));
                let mut free = None;
                for (f, v) in fresh.chain(used).chain(goals) {
                    let cost = 1 + bit.map_or(0, |_| self.apart.len());
                    work = work
                        .checked_sub(cost)
                        .ok_or_else(|| resource(None, "the choice of dummy variables took too long"))?;
                    if self.is_allowed(goal, bit, v, &of_bit) {
                        free = Some((f, v));
                        break;
                    }
                }
                let Some((f, v)) = free else {
                    return Err(resource(None, "the database has too few variables for this proof"));
                };
                if let Some(bit) = bit {
                    of_bit[bit] = Some(v);
                }
                if !own(v) && !taken.contains(&((f, v), t)) {
                    taken.push(((f, v), t));
                }
                out[slot as usize] = Some((f, v));
            }
        }
        Ok(out)
    }

    /// Returns whether `v` may replace the open metavariable of a bit, given the choices made for other bits.
    fn is_allowed(&self, goal: &Goal, bit: Option<usize>, v: Symbol, of_bit: &[Option<Symbol>]) -> bool {
        let Some(bit) = bit else { return true };
        let number = |x: Symbol| goal.variables.iter().position(|g| g.0 == x);
        let fits = |others: u128| {
            of_bit.iter().enumerate().filter(|(b, _)| others >> b & 1 != 0).all(|(_, other)| match other {
                None => true,
                Some(w) if *w == v => false,
                Some(w) => match (number(v), number(*w)) {
                    (Some(v), Some(w)) => goal.distinct[v] >> w & 1 != 0,
                    _ => true,
                },
            })
        };
        self.apart.iter().all(|&(a, b)| (a >> bit & 1 == 0 || fits(b)) && (b >> bit & 1 == 0 || fits(a)))
    }

    /// Expands the last accepted proof to a full Metamath proof. The goal's hypotheses have the ids that follow those of the
    /// database's statements.
    ///
    /// # Errors
    /// Returns an error if no proof was accepted, if the full proof has too many operations, or if the database has too few
    /// variables for the dummies.
    pub fn expand(
        &self,
        theory: &Theory,
        goal: &Goal,
        limits: ProofLimits,
    ) -> Result<Vec<ProofOp>, Judgement> {
        let Some(root) = self.stack.last().map(|s| s.1) else {
            return Err(refused(None, "there is no accepted proof"));
        };
        let mut expansion = Expansion {
            unifier: self,
            terms: Terms::new(theory, goal),
            dummies: self.dummy_floats(theory, goal)?,
            saved: vec![None; self.bindings.len()],
            saves: 0,
            ops: Vec::new(),
            limit: limits.operations,
        };
        expansion.run(root)?;
        Ok(expansion.ops)
    }
}

/// A `$f` statement and its variable.
type StatementSymbol = (StatementId, Symbol);

/// Marks a mask that has been computed.
const KNOWN: u128 = 1 << 127;

/// Returns the dummy variable of an open metavariable.
#[allow(clippy::expect_used, reason = "dummies are chosen for all open metavariables of a proof or for none")]
fn dummy(dummies: &[Option<StatementSymbol>], slot: u32) -> StatementSymbol {
    dummies[slot as usize].expect("invariant: every open metavariable has a dummy variable")
}

/// Returns a variable of `a` and one of `b` that are not known to be distinct, if there are any.
fn clash(goal: &Goal, a: u128, b: u128) -> Option<(usize, usize)> {
    if a & b != 0 {
        let i = (a & b).trailing_zeros() as usize;
        return Some((i, i));
    }
    let own = (1u128 << goal.variables.len()) - 1;
    let (mut rest, b) = (a & own, b & own);
    while rest != 0 {
        let x = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let bad = b & !goal.distinct[x];
        if bad != 0 {
            return Some((x, bad.trailing_zeros() as usize));
        }
    }
    None
}

fn refused(step: Option<u32>, reason: impl Into<String>) -> Judgement {
    judgement(Verdict::Refused, step, reason.into())
}

/// Reports that a limit was exceeded, so that the validity of the proof is unknown.
fn resource(step: Option<u32>, reason: impl Into<String>) -> Judgement {
    judgement(Verdict::Resource, step, reason.into())
}

/// Returns a judgement. The caller measures the time.
pub(crate) fn judgement(verdict: Verdict, step: Option<u32>, reason: String) -> Judgement {
    let reason = match step {
        Some(n) => format!("step {n}, {reason}"),
        None => reason,
    };
    Judgement { verdict, reason, step, micros: 0 }
}

/// Returns the id that the goal's hypothesis `index` has in a full proof: that of a statement after the database's.
pub(crate) fn hypothesis_id(theory: &Theory, index: u32) -> StatementId {
    StatementId(theory.database().statements().len() as u32 + index)
}

/// Pending output of an expansion.
enum ExpansionTask {
    ProofStep(u32),
    Term(TermRef),
    Use(StatementId),
    Save(u32),
}

struct Expansion<'a> {
    unifier: &'a Unifier,
    terms: Terms<'a>,
    dummies: Vec<Option<StatementSymbol>>,
    /// For each metavariable, the number under which the proof of its typecode is saved.
    saved: Vec<Option<u32>>,
    saves: u32,
    ops: Vec<ProofOp>,
    limit: usize,
}

impl Expansion<'_> {
    fn run(&mut self, root: u32) -> Result<(), Judgement> {
        let mut todo = vec![ExpansionTask::ProofStep(root)];
        while let Some(next) = todo.pop() {
            if self.ops.len() > self.limit {
                return Err(resource(
                    None,
                    format!("the full proof has more than {} operations", self.limit),
                ));
            }
            match next {
                ExpansionTask::Use(id) => self.ops.push(ProofOp::Use(id)),
                ExpansionTask::Save(slot) => {
                    self.ops.push(ProofOp::Save);
                    self.saved[slot as usize] = Some(self.saves);
                    self.saves += 1;
                }
                ExpansionTask::ProofStep(index) => self.step(index, &mut todo),
                ExpansionTask::Term(term) => self.term(term, &mut todo),
            }
        }
        Ok(())
    }

    fn step(&mut self, index: u32, todo: &mut Vec<ExpansionTask>) {
        let done = self.unifier.done[index as usize];
        match done.step {
            ProofStep::Hypothesis(h) => self.ops.push(ProofOp::Use(hypothesis_id(self.terms.theory, h))),
            ProofStep::Rule(id) => {
                let rule = self.terms.rules.rules[id.0 as usize];
                todo.push(ExpansionTask::Use(rule.statement));
                // A rule's variable need not have a node, so it is referred to by its metavariable.
                let variable = |v: u32| ExpansionTask::Term(TermRef { node: SLOT, base: done.base + v });
                let count = self.terms.rules.hypotheses(rule).len();
                let children = &self.unifier.children[done.children as usize..done.children as usize + count];
                if rule.floats_first {
                    todo.extend(children.iter().rev().map(|&c| ExpansionTask::ProofStep(c)));
                    todo.extend((0..rule.variables).rev().map(variable));
                    return;
                }
                let (mut variables, mut essentials) = (0, 0);
                let from = todo.len();
                for &h in &self.terms.theory.assertion(id).hypotheses {
                    match self.terms.theory.database().statement(h).kind {
                        StatementKind::Floating { .. } => {
                            todo.push(variable(variables));
                            variables += 1;
                        }
                        _ => {
                            todo.push(ExpansionTask::ProofStep(children[essentials]));
                            essentials += 1;
                        }
                    }
                }
                todo[from..].reverse();
            }
        }
    }

    fn term(&mut self, term: TermRef, todo: &mut Vec<ExpansionTask>) {
        if term.node == SLOT {
            return self.slot(term.base, todo);
        }
        let head = self.terms.word(term.node);
        if head & METAVARIABLE != 0 {
            self.slot(term.base + (head & !METAVARIABLE), todo);
        } else if head & CONSTANT != 0 {
            self.ops.push(ProofOp::Use(self.terms.goal.variables[(head & !CONSTANT) as usize].2));
        } else {
            let production = &self.terms.theory.grammar().productions()[head as usize];
            todo.push(ExpansionTask::Use(production.statement));
            for &child in production.hypothesis_child.iter().rev() {
                todo.push(ExpansionTask::Term(self.terms.child(term, u32::from(child))));
            }
        }
    }

    /// Emits the proof of a metavariable's typecode. It is saved if it has more than one operation, because a compressed
    /// proof may neither save a hypothesis nor save anything twice.
    fn slot(&mut self, mut slot: u32, todo: &mut Vec<ExpansionTask>) {
        loop {
            if let Some(n) = self.saved[slot as usize] {
                self.ops.push(ProofOp::Recall(n));
                return;
            }
            let bound = self.unifier.bindings[slot as usize];
            if bound == UNBOUND {
                self.ops.push(ProofOp::Use(dummy(&self.dummies, slot).0));
                return;
            }
            let head = self.terms.word(bound.node);
            if head & METAVARIABLE != 0 {
                slot = bound.base + (head & !METAVARIABLE);
                continue;
            }
            if head & CONSTANT == 0 && self.terms.rules.arity[head as usize] > 0 {
                todo.push(ExpansionTask::Save(slot));
            }
            todo.push(ExpansionTask::Term(bound));
            return;
        }
    }
}

/// The node of a term that is itself the metavariable `base`.
const SLOT: u32 = u32::MAX;
