//! Essential-step proofs and their checker: first-order unification over shared terms.
//!
//! A proof is the postfix list of the steps that prove formulas: hypotheses of the problem and earlier assertions.
//! Each assertion gets fresh metavariables, takes its hypotheses from the stack by unification and leaves its
//! conclusion there. A term is a node of a fixed tree together with the base of the metavariables that the tree's
//! variables mean, so pushing a conclusion copies nothing. What remains at the end must unify with the goal, whose
//! variables are constants. Work is counted, since unification can take exponential time.

use crate::database::{Distinct, StatementId, StatementKind, Symbol};
use crate::grammar::{Head, Tree, TypeId};
use crate::proof::ProofOp;
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};

/// One step of an essential-step proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The problem's hypothesis, counted from 0.
    Hypothesis(u32),
    /// An assertion of the database.
    Rule(RuleId),
}

/// Bounds on a proof, against exponential blow-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofLimits {
    /// Steps of the proof.
    pub steps: usize,
    /// Entries on the stack at any time.
    pub stack: usize,
    /// Nodes that unification, the occurs check and the `$d` check may visit.
    pub work: u32,
    /// Operations of the expanded proof.
    pub operations: usize,
}

impl Default for ProofLimits {
    fn default() -> Self {
        Self { steps: 1_000, stack: 256, work: 200_000, operations: 100_000 }
    }
}

/// Why a proof is not accepted. `step` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step at which checking stopped; `None` if it is about the end of the proof.
    pub step: Option<u32>,
    /// What is wrong, the step's label included.
    pub reason: String,
    /// Whether a bound was passed, so that nothing was decided.
    pub resource: bool,
}

/// A term: a node and the base of its metavariables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Term {
    node: u32,
    base: u32,
}

const UNBOUND: Term = Term { node: u32::MAX, base: 0 };

// Nodes: the first word of a node; its children's nodes follow it.
const METAVARIABLE: u32 = 1 << 31;
const CONSTANT: u32 = 1 << 30;
/// Nodes of the goal have this bit in their number.
const GOAL: u32 = 1 << 31;

/// The rules of a theory, laid out for unification. Shared by all checkers.
#[derive(Debug)]
pub struct RuleBook {
    nodes: Vec<u32>,
    rules: Vec<CompiledRule>,
    hypothesis_roots: Vec<u32>,
    distinct: Vec<(u16, u16)>,
    arity: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct CompiledRule {
    statement: StatementId,
    conclusion: u32,
    hypotheses: (u32, u32),
    distinct: (u32, u32),
    variables: u32,
    /// Whether all `$f` hypotheses stand before all `$e` hypotheses, as they nearly always do.
    floats_first: bool,
}

impl RuleBook {
    /// Lays out the rules of a theory.
    pub fn new(theory: &Theory) -> Self {
        let arity = theory.grammar().productions().iter().map(|p| p.children.len() as u8).collect();
        let mut book = Self {
            nodes: Vec::new(),
            rules: Vec::new(),
            hypothesis_roots: Vec::new(),
            distinct: Vec::new(),
            arity,
        };
        for rule in theory.rules() {
            let index = |s: Symbol| rule.variables.iter().position(|(v, _)| *v == s).unwrap_or(0) as u32;
            let first = book.hypothesis_roots.len() as u32;
            for h in &rule.hypotheses {
                let root = lay_out(&mut book.nodes, &book.arity, h, |v| METAVARIABLE | index(v));
                book.hypothesis_roots.push(root);
            }
            let conclusion =
                lay_out(&mut book.nodes, &book.arity, &rule.conclusion, |v| METAVARIABLE | index(v));
            let first_distinct = book.distinct.len() as u32;
            book.distinct.extend(rule.distinct.iter().map(|&(a, b)| (index(a) as u16, index(b) as u16)));
            book.rules.push(CompiledRule {
                statement: rule.statement,
                conclusion,
                hypotheses: (first, book.hypothesis_roots.len() as u32),
                distinct: (first_distinct, book.distinct.len() as u32),
                variables: rule.variables.len() as u32,
                floats_first: floats_first(theory, rule.statement),
            });
        }
        book
    }
}

fn floats_first(theory: &Theory, id: StatementId) -> bool {
    let database = theory.database();
    let is_float = |&h: &StatementId| matches!(database.statement(h).kind, StatementKind::Floating { .. });
    database.assertion(id).is_some_and(|a| a.hypotheses.is_sorted_by_key(|h| !is_float(h)))
}

/// Appends a tree to a node store; returns its root.
fn lay_out(nodes: &mut Vec<u32>, arity: &[u8], tree: &[Head], leaf: impl Fn(Symbol) -> u32) -> u32 {
    let root = nodes.len() as u32;
    // Places that wait for the number of the next node, last first.
    let mut waiting: Vec<usize> = Vec::new();
    for head in tree {
        let at = nodes.len();
        if let Some(place) = waiting.pop() {
            nodes[place] = at as u32;
        }
        match head.as_production() {
            Some(p) => {
                nodes.push(p);
                let n = arity[p as usize] as usize;
                nodes.extend(std::iter::repeat_n(0, n));
                waiting.extend((at + 1..=at + n).rev());
            }
            None => nodes.push(head.as_variable().map_or(0, &leaf)),
        }
    }
    root
}

/// A problem laid out for unification.
#[derive(Clone, Debug)]
pub struct Goal {
    nodes: Vec<u32>,
    hypotheses: Vec<u32>,
    conclusion: u32,
    /// Variables in order of appearance.
    variables: Vec<(Symbol, TypeId, StatementId)>,
    /// For each variable, those it is distinct from, as bits.
    distinct: Vec<u128>,
    pairs: Box<[Distinct]>,
    before: StatementId,
    statement: Statement,
}

impl Goal {
    /// Lays out a statement that may use what stands before `before`. The `$f` of each of its variables is looked
    /// up in the rule that it comes from or else in the outermost scope.
    ///
    /// # Errors
    /// More than 96 variables, a variable without a `$f` in front of `before`, or syntax that is introduced later.
    pub fn new(theory: &Theory, statement: &Statement, before: StatementId) -> Result<Self, String> {
        Self::with_floats(theory, statement, before, &[])
    }

    /// The same for a theorem that stands in the database, with its own `$f` statements.
    ///
    /// # Errors
    /// As [`Goal::new`].
    pub fn of_rule(theory: &Theory, rule: RuleId) -> Result<Self, String> {
        let id = theory.rule(rule).statement;
        let Some(assertion) = theory.database().assertion(id) else {
            return Err("not an assertion".to_owned());
        };
        let floats: Vec<_> = theory.database().floats(assertion).collect();
        Self::with_floats(theory, &Statement::of_rule(theory.rule(rule)), id, &floats)
    }

    /// A changed statement in the place of a theorem of the database, over (some of) that theorem's variables.
    ///
    /// # Errors
    /// As [`Goal::new`].
    pub fn in_place_of(theory: &Theory, rule: RuleId, statement: &Statement) -> Result<Self, String> {
        let id = theory.rule(rule).statement;
        let floats: Vec<_> =
            theory.database().assertion(id).into_iter().flat_map(|a| theory.database().floats(a)).collect();
        Self::with_floats(theory, statement, id, &floats)
    }

    fn with_floats(
        theory: &Theory,
        statement: &Statement,
        before: StatementId,
        floats: &[(StatementId, Symbol, Symbol)],
    ) -> Result<Self, String> {
        let mut variables = Vec::new();
        for v in statement.variables() {
            let own =
                floats.iter().find(|f| f.2 == v).and_then(|f| Some((v, theory.grammar().type_of(f.1)?, f.0)));
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
        let productions = theory.grammar().productions();
        let later = statement
            .trees()
            .flat_map(|t| t.iter().filter_map(|h| h.as_production()))
            .map(|p| productions[p as usize].statement)
            .find(|&s| s >= before);
        if let Some(syntax) = later {
            let label = &theory.database().statement(syntax).label;
            return Err(format!("the syntax `{label}` is not introduced before the problem's context"));
        }
        let index = |s: Symbol| variables.iter().position(|(v, _, _)| *v == s);
        let arity: Vec<u8> = theory.grammar().productions().iter().map(|p| p.children.len() as u8).collect();
        let mut nodes = Vec::new();
        let leaf = |s: Symbol| CONSTANT | index(s).unwrap_or(0) as u32;
        let hypotheses: Vec<u32> =
            statement.hypotheses.iter().map(|h| lay_out(&mut nodes, &arity, h, leaf)).collect();
        let conclusion = lay_out(&mut nodes, &arity, &statement.conclusion, leaf);
        let mut distinct = vec![0u128; variables.len()];
        for &(a, b) in &statement.distinct {
            if let (Some(a), Some(b)) = (index(a), index(b)) {
                distinct[a] |= 1 << b;
                distinct[b] |= 1 << a;
            }
        }
        Ok(Self {
            nodes,
            hypotheses,
            conclusion,
            variables,
            distinct,
            pairs: statement.distinct.clone(),
            before,
            statement: statement.clone(),
        })
    }

    /// A goal that is not known yet: `hypotheses` unknown formulas, and whatever the steps prove. For
    /// [`Checker::most_general`].
    pub fn open(hypotheses: u32, before: StatementId) -> Self {
        Self {
            nodes: (0..hypotheses).map(|h| METAVARIABLE | h).collect(),
            hypotheses: (0..hypotheses).collect(),
            conclusion: 0,
            variables: Vec::new(),
            distinct: Vec::new(),
            pairs: Box::default(),
            before,
            statement: Statement {
                distinct: Box::default(),
                hypotheses: Box::default(),
                conclusion: Box::default(),
            },
        }
    }

    /// Only statements before this one may be used.
    pub fn before(&self) -> StatementId {
        self.before
    }

    /// Number of hypotheses.
    pub fn hypothesis_count(&self) -> usize {
        self.hypotheses.len()
    }

    /// `$f` statements of the goal's variables, in order of their statements.
    pub fn floats(&self) -> Vec<StatementId> {
        let mut out: Vec<StatementId> = self.variables.iter().map(|v| v.2).collect();
        out.sort_unstable();
        out
    }

    /// The statement that is to be proved.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// `$d` pairs that may be relied on.
    pub fn distinct(&self) -> &[Distinct] {
        &self.pairs
    }
}

/// Pairs of `$d` conditions that the choice of dummy variables may look at.
const DUMMY_WORK: usize = 1_000_000;

/// Goals have at most this many variables; the rest of the 128 bits is for dummies.
pub const MAX_GOAL_VARIABLES: usize = 96;

/// One step as it was checked.
#[derive(Clone, Copy, Debug)]
struct Done {
    step: Step,
    base: u32,
    /// First of its hypotheses' steps in `children`.
    children: u32,
}

/// A checker with its buffers; it can check any number of proofs, one after the other.
#[derive(Debug, Default)]
pub struct Checker {
    bindings: Vec<Term>,
    stack: Vec<(Term, u32)>,
    done: Vec<Done>,
    children: Vec<u32>,
    todo: Vec<(Term, Term)>,
    work: u32,
    /// Whether an older metavariable was bound in the current step, so that older terms may hold new ones.
    tainted: bool,
    /// For each metavariable the variables in what it stands for, once known.
    masks: Vec<u128>,
    /// Open metavariables that take part in `$d` conditions; the bit of number `i` is the goal's variables plus `i`.
    dummies: Vec<u32>,
    /// Pairs of masks of which the variables must be distinct, where open metavariables are among them.
    apart: Vec<(u128, u128)>,
}

enum Unify {
    Different,
    Cyclic,
    Resource,
}

impl Checker {
    /// A checker with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a proof. On success the checker holds the substitution, for [`Checker::expand`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its step.
    pub fn check(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        steps: &[Step],
        limits: ProofLimits,
    ) -> Result<(), Refusal> {
        self.clear(limits);
        if steps.len() > limits.steps {
            return Err(resource(None, format!("{} steps, more than {}", steps.len(), limits.steps)));
        }
        for (index, &step) in steps.iter().enumerate() {
            self.step(theory, book, goal, index, step, limits)?;
        }
        let last = self.last()?;
        self.tainted = true;
        let target = Term { node: goal.conclusion | GOAL, base: 0 };
        match self.unify(book, goal, target, last, 0) {
            Ok(()) => {}
            Err(Unify::Resource) => return Err(resource(None, "unification with the goal took too long")),
            Err(_) => {
                let found = self.show(theory, book, goal, last);
                return Err(refused(None, format!("the proof proves another statement: |-{found}")));
            }
        }
        self.check_distinct(theory, book, goal)
    }

    fn last(&self) -> Result<Term, Refusal> {
        match self.stack[..] {
            [(last, _)] => Ok(last),
            _ => {
                let n = self.stack.len();
                Err(refused(None, format!("the proof leaves {n} formulas on the stack, not one")))
            }
        }
    }

    /// The most general statement that `steps` prove: hypotheses as general as the steps allow, and just the `$d`
    /// conditions that the steps need. `None` if the steps prove nothing, or a formula of more than `limit` nodes.
    /// `goal` is open, with as many hypotheses as the steps use.
    pub fn most_general(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        steps: &[Step],
        limits: ProofLimits,
        limit: usize,
    ) -> Option<Statement> {
        self.clear(limits);
        self.bindings.resize(goal.hypotheses.len(), UNBOUND);
        for (index, &step) in steps.iter().enumerate() {
            self.step(theory, book, goal, index, step, limits).ok()?;
        }
        let last = self.last().ok()?;
        self.check_distinct(theory, book, goal).ok()?;
        let dummies = self.distinct_floats(theory, goal)?;
        let hypotheses = goal
            .hypotheses
            .iter()
            .map(|&h| self.tree(book, goal, Term { node: h | GOAL, base: 0 }, &dummies, limit))
            .collect::<Option<Box<[Tree]>>>()?;
        let conclusion = self.tree(book, goal, last, &dummies, limit)?;
        let symbol = |bit: usize| dummies[self.dummies[bit] as usize].map(|d| d.1);
        let bits = |mask: u128| (0..self.dummies.len()).filter(move |b| mask >> b & 1 != 0);
        let mut distinct = Vec::new();
        for &(a, b) in &self.apart {
            for x in bits(a) {
                for y in bits(b) {
                    if let (Some(x), Some(y)) = (symbol(x), symbol(y)) {
                        distinct.push(crate::database::distinct(x, y));
                    }
                }
            }
        }
        let mut statement = Statement { distinct: Box::default(), hypotheses, conclusion };
        let used = statement.variables();
        distinct.retain(|(a, b)| used.contains(a) && used.contains(b));
        distinct.sort_unstable();
        distinct.dedup();
        statement.distinct = distinct.into();
        Some(statement)
    }

    /// Whether the steps can be taken one after the other, whatever they leave on the stack. `goal` is open.
    pub fn unifies(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        steps: &[Step],
        limits: ProofLimits,
    ) -> bool {
        self.clear(limits);
        self.bindings.resize(goal.hypotheses.len(), UNBOUND);
        steps.iter().enumerate().all(|(i, &step)| self.step(theory, book, goal, i, step, limits).is_ok())
    }

    /// A variable of its own for every open metavariable; `None` if there are too few.
    fn distinct_floats(&self, theory: &Theory, goal: &Goal) -> Option<Vec<Option<StatementSymbol>>> {
        let mut out = vec![None; self.bindings.len()];
        let mut free: Vec<_> = theory.variables_at(goal.before).collect();
        let mut give = |slot: usize, t: TypeId| {
            if self.bindings[slot] == UNBOUND {
                let at = free.iter().position(|f| f.1 == t)?;
                let (v, _, f) = free.remove(at);
                out[slot] = Some((f, v));
            }
            Some(())
        };
        for slot in 0..goal.hypotheses.len() {
            give(slot, theory.formula_type())?;
        }
        for done in &self.done {
            let Step::Rule(id) = done.step else { continue };
            for (i, &(_, t)) in theory.rule(id).variables.iter().enumerate() {
                give(done.base as usize + i, t)?;
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
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        index: usize,
        step: Step,
        limits: ProofLimits,
    ) -> Result<(), Refusal> {
        let number = Some(index as u32 + 1);
        let base = self.bindings.len() as u32;
        let first_child = self.children.len() as u32;
        let result = match step {
            Step::Hypothesis(h) => match goal.hypotheses.get(h as usize) {
                Some(&node) => Term { node: node | GOAL, base: 0 },
                None => {
                    return Err(refused(number, format!("h{}: the problem has no such hypothesis", h + 1)));
                }
            },
            Step::Rule(id) => {
                let Some(rule) = book.rules.get(id.0 as usize).copied() else {
                    return Err(refused(number, "no such assertion".to_owned()));
                };
                if rule.statement >= goal.before {
                    let label = theory.label(id);
                    return Err(refused(number, format!("{label}: does not stand before the problem")));
                }
                self.apply(theory, book, goal, number, id, rule)?;
                Term { node: rule.conclusion, base }
            }
        };
        if self.stack.len() >= limits.stack {
            return Err(resource(number, format!("more than {} formulas on the stack", limits.stack)));
        }
        self.stack.push((result, index as u32));
        self.done.push(Done { step, base, children: first_child });
        Ok(())
    }

    fn apply(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        number: Option<u32>,
        id: RuleId,
        rule: CompiledRule,
    ) -> Result<(), Refusal> {
        let base = self.bindings.len() as u32;
        let hypotheses = &book.hypothesis_roots[rule.hypotheses.0 as usize..rule.hypotheses.1 as usize];
        let Some(bottom) = self.stack.len().checked_sub(hypotheses.len()) else {
            let (need, have) = (hypotheses.len(), self.stack.len());
            let label = theory.label(id);
            return Err(refused(number, format!("{label}: needs {need} formulas, the stack has {have}")));
        };
        self.bindings.resize(base as usize + rule.variables as usize, UNBOUND);
        self.tainted = false;
        for (i, &h) in hypotheses.iter().enumerate() {
            let (found, child) = self.stack[bottom + i];
            self.children.push(child);
            let failure = match self.unify(book, goal, Term { node: h, base }, found, base) {
                Ok(()) => continue,
                Err(failure) => failure,
            };
            let label = theory.label(id);
            return Err(match failure {
                Unify::Resource => resource(number, format!("{label}: unification took too long")),
                Unify::Cyclic => refused(
                    number,
                    format!("{label}: hypothesis {} does not unify: a variable would contain itself", i + 1),
                ),
                Unify::Different => {
                    let need = self.show(theory, book, goal, Term { node: h, base });
                    let found = self.show(theory, book, goal, found);
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

    #[inline]
    fn word(book: &RuleBook, goal: &Goal, node: u32) -> u32 {
        if node & GOAL == 0 { book.nodes[node as usize] } else { goal.nodes[(node & !GOAL) as usize] }
    }

    #[inline]
    fn child(book: &RuleBook, goal: &Goal, node: u32, i: u32) -> u32 {
        let at = (node & !GOAL) as usize + 1 + i as usize;
        if node & GOAL == 0 { book.nodes[at] } else { goal.nodes[at] | GOAL }
    }

    /// Follows bindings; returns the term with its head, which is a metavariable only if that is unbound.
    #[inline]
    fn resolve(&self, book: &RuleBook, goal: &Goal, mut term: Term) -> (Term, u32) {
        loop {
            let head = Self::word(book, goal, term.node);
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

    fn unify(&mut self, book: &RuleBook, goal: &Goal, a: Term, b: Term, fresh: u32) -> Result<(), Unify> {
        self.todo.clear();
        self.todo.push((a, b));
        while let Some((a, b)) = self.todo.pop() {
            if self.work == 0 {
                return Err(Unify::Resource);
            }
            self.work -= 1;
            let (a, ha) = self.resolve(book, goal, a);
            let (b, hb) = self.resolve(book, goal, b);
            if a == b {
                continue;
            }
            match (ha & METAVARIABLE != 0, hb & METAVARIABLE != 0) {
                (true, true) => {
                    let (sa, sb) = (a.base + (ha & !METAVARIABLE), b.base + (hb & !METAVARIABLE));
                    match sa.cmp(&sb) {
                        // The newer one is bound to the older.
                        std::cmp::Ordering::Greater => self.bind(sa, b, fresh),
                        std::cmp::Ordering::Less => self.bind(sb, a, fresh),
                        std::cmp::Ordering::Equal => {}
                    }
                }
                (true, false) => self.bind_checked(book, goal, a.base + (ha & !METAVARIABLE), b, fresh)?,
                (false, true) => self.bind_checked(book, goal, b.base + (hb & !METAVARIABLE), a, fresh)?,
                (false, false) => {
                    if ha != hb {
                        return Err(Unify::Different);
                    }
                    if ha & CONSTANT == 0 {
                        for i in (0..u32::from(book.arity[ha as usize])).rev() {
                            let pair = (
                                Term { node: Self::child(book, goal, a.node, i), base: a.base },
                                Term { node: Self::child(book, goal, b.node, i), base: b.base },
                            );
                            self.todo.push(pair);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn bind(&mut self, slot: u32, term: Term, fresh: u32) {
        self.tainted |= slot < fresh;
        self.bindings[slot as usize] = term;
    }

    /// Binds after the occurs check. A metavariable of the current step cannot occur in an older term as long as
    /// no older metavariable was bound in this step.
    #[inline]
    fn bind_checked(
        &mut self,
        book: &RuleBook,
        goal: &Goal,
        slot: u32,
        term: Term,
        fresh: u32,
    ) -> Result<(), Unify> {
        // A goal's terms hold no metavariables, or (an open goal's) only the very first ones.
        let older = term.node & GOAL != 0 || term.base < fresh;
        let safe = slot >= fresh && !self.tainted && older;
        if !safe && self.occurs(book, goal, slot, term)? {
            return Err(Unify::Cyclic);
        }
        self.bind(slot, term, fresh);
        Ok(())
    }

    fn occurs(&mut self, book: &RuleBook, goal: &Goal, slot: u32, term: Term) -> Result<bool, Unify> {
        let mut todo = vec![term];
        while let Some(term) = todo.pop() {
            if self.work == 0 {
                return Err(Unify::Resource);
            }
            self.work -= 1;
            let (term, head) = self.resolve(book, goal, term);
            if head & METAVARIABLE != 0 {
                if term.base + (head & !METAVARIABLE) == slot {
                    return Ok(true);
                }
                continue;
            }
            if term.node & GOAL != 0 {
                continue;
            }
            for i in 0..u32::from(book.arity[head as usize]) {
                todo.push(Term { node: Self::child(book, goal, term.node, i), base: term.base });
            }
        }
        Ok(false)
    }

    /// Checks the `$d` conditions of every step against those of the goal. Metavariables that the proof leaves open
    /// are dummies: distinct from everything else.
    fn check_distinct(&mut self, theory: &Theory, book: &RuleBook, goal: &Goal) -> Result<(), Refusal> {
        self.masks.clear();
        self.dummies.clear();
        self.apart.clear();
        for index in 0..self.done.len() {
            let Done { step: Step::Rule(id), base, .. } = self.done[index] else { continue };
            let rule = book.rules[id.0 as usize];
            if rule.distinct.0 == rule.distinct.1 {
                continue;
            }
            if self.masks.is_empty() {
                self.masks.resize(self.bindings.len(), 0);
            }
            let number = Some(index as u32 + 1);
            for &(a, b) in &book.distinct[rule.distinct.0 as usize..rule.distinct.1 as usize] {
                let too_many = || resource(number, "too many variables for the $d check".to_owned());
                let a = self.mask(book, goal, base + u32::from(a)).ok_or_else(too_many)?;
                let b = self.mask(book, goal, base + u32::from(b)).ok_or_else(too_many)?;
                if (a | b) >> goal.variables.len() != 0 {
                    self.apart.push((a, b));
                }
                if let Some((x, y)) = clash(goal, a, b) {
                    let name = |i: usize| match goal.variables.get(i) {
                        Some((v, _, _)) => theory.database().symbol_text(*v).to_owned(),
                        None => "a dummy variable".to_owned(),
                    };
                    let label = theory.label(id);
                    let reason = if x == y {
                        format!("{label}: $d violated: {} occurs on both sides", name(x))
                    } else {
                        format!("{label}: $d violated: the problem does not say $d {} {}", name(x), name(y))
                    };
                    return Err(refused(number, reason));
                }
            }
        }
        self.apart.sort_unstable();
        self.apart.dedup();
        Ok(())
    }

    /// The variables in what a metavariable stands for, as bits: the goal's first, then dummies. `None` if there
    /// are more than 128, or the work is used up.
    fn mask(&mut self, book: &RuleBook, goal: &Goal, slot: u32) -> Option<u128> {
        let mut open = vec![slot];
        while let Some(&top) = open.last() {
            if self.masks[top as usize] & KNOWN != 0 {
                open.pop();
                continue;
            }
            let bound = self.bindings[top as usize];
            if bound == UNBOUND {
                let bit = goal.variables.len() + self.dummies.len();
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
                let head = Self::word(book, goal, term.node);
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
                    for i in 0..u32::from(book.arity[head as usize]) {
                        todo.push(Term { node: Self::child(book, goal, term.node, i), base: term.base });
                    }
                }
            }
            if open.len() == waiting {
                self.masks[top as usize] = KNOWN | mask;
            }
        }
        Some(self.masks[slot as usize] & !KNOWN)
    }

    /// A term as text for a message, cut after some symbols; open metavariables as `?n`.
    fn show(&self, theory: &Theory, book: &RuleBook, goal: &Goal, term: Term) -> String {
        const SYMBOLS: usize = 48;
        enum Todo<'a> {
            Term(Term),
            Parts(&'a [crate::grammar::Part], Term, u32),
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
                    let (term, head) = self.resolve(book, goal, term);
                    if head & METAVARIABLE != 0 {
                        out.push_str(&format!(" ?{}", term.base + (head & !METAVARIABLE)));
                        count += 1;
                    } else if head & CONSTANT != 0 {
                        out.push(' ');
                        let (v, _, _) = goal.variables[(head & !CONSTANT) as usize];
                        out.push_str(theory.database().symbol_text(v));
                        count += 1;
                    } else {
                        todo.push(Todo::Parts(&theory.grammar().productions()[head as usize].parts, term, 0));
                    }
                }
                Todo::Parts(parts, term, child) => {
                    let Some((first, rest)) = parts.split_first() else { continue };
                    match first {
                        crate::grammar::Part::Constant(s) => {
                            out.push(' ');
                            out.push_str(theory.database().symbol_text(*s));
                            count += 1;
                            todo.push(Todo::Parts(rest, term, child));
                        }
                        crate::grammar::Part::Child(_) => {
                            todo.push(Todo::Parts(rest, term, child + 1));
                            let node = Self::child(book, goal, term.node, child);
                            todo.push(Todo::Term(Term { node, base: term.base }));
                        }
                    }
                }
            }
        }
        out
    }

    /// The proof just accepted by [`Checker::check`] as trees: what each step proves, in the goal's variables;
    /// `None` if a tree has more than `limit` nodes. Open metavariables become dummy variables.
    ///
    /// # Errors
    /// If the theory has too few variables to serve as dummies.
    pub fn step_formulas(
        &self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        limit: usize,
    ) -> Result<Vec<Option<Tree>>, Refusal> {
        let dummies = self.dummy_floats(theory, goal)?;
        let mut out = Vec::with_capacity(self.done.len());
        for done in &self.done {
            let root = match done.step {
                Step::Hypothesis(h) => Term { node: goal.hypotheses[h as usize] | GOAL, base: 0 },
                Step::Rule(id) => Term { node: book.rules[id.0 as usize].conclusion, base: done.base },
            };
            out.push(self.tree(book, goal, root, &dummies, limit));
        }
        Ok(out)
    }

    /// For each step of the proof just accepted, the steps (from 0) that prove its hypotheses.
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
        book: &RuleBook,
        goal: &Goal,
        root: Term,
        dummies: &[Option<StatementSymbol>],
        limit: usize,
    ) -> Option<Tree> {
        let mut out = Vec::new();
        let mut todo = vec![root];
        while let Some(term) = todo.pop() {
            if out.len() >= limit {
                return None;
            }
            let (term, head) = self.resolve(book, goal, term);
            if head & METAVARIABLE != 0 {
                let slot = (term.base + (head & !METAVARIABLE)) as usize;
                out.push(Head::variable(dummies.get(slot).copied().flatten()?.1));
            } else if head & CONSTANT != 0 {
                out.push(Head::variable(goal.variables[(head & !CONSTANT) as usize].0));
            } else {
                out.push(Head::production(head));
                for i in (0..u32::from(book.arity[head as usize])).rev() {
                    todo.push(Term { node: Self::child(book, goal, term.node, i), base: term.base });
                }
            }
        }
        Some(out.into())
    }

    /// A variable for each metavariable that the proof leaves open: one that stands before the goal and is not in
    /// use, else one already given out, else one of the goal's, as far as the `$d` conditions allow.
    fn dummy_floats(&self, theory: &Theory, goal: &Goal) -> Result<Vec<Option<StatementSymbol>>, Refusal> {
        let mut out = vec![None; self.bindings.len()];
        let mut work = DUMMY_WORK;
        let mut taken: Vec<(StatementSymbol, TypeId)> = Vec::new();
        // What each bit of a mask stands for, as far as it is settled.
        let mut of_bit: Vec<Option<Symbol>> = goal.variables.iter().map(|v| Some(v.0)).collect();
        of_bit.resize(goal.variables.len() + self.dummies.len(), None);
        for done in &self.done {
            let Step::Rule(id) = done.step else { continue };
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
                    if self.may_stand(goal, bit, v, &of_bit) {
                        free = Some((f, v));
                        break;
                    }
                }
                let Some((f, v)) = free else {
                    return Err(resource(
                        None,
                        "the database has too few variables for this proof".to_owned(),
                    ));
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

    /// Whether variable `v` may stand for the open metavariable of a bit, given what others stand for.
    fn may_stand(&self, goal: &Goal, bit: Option<usize>, v: Symbol, of_bit: &[Option<Symbol>]) -> bool {
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

    /// Expands the proof just accepted by [`Checker::check`] to a full Metamath proof. Hypothesis `i` of the goal is
    /// referred to as `hypothesis_ids[i]`.
    ///
    /// # Errors
    /// If it has more operations than the limit or needs more dummy variables than there are.
    pub fn expand(
        &self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        hypothesis_ids: &[StatementId],
        limits: ProofLimits,
    ) -> Result<Vec<ProofOp>, Refusal> {
        let Some(root) = self.stack.last().map(|s| s.1) else {
            return Err(refused(None, "there is no accepted proof".to_owned()));
        };
        let mut expansion = Expansion {
            checker: self,
            theory,
            book,
            goal,
            hypothesis_ids,
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

type StatementSymbol = (StatementId, Symbol);

const KNOWN: u128 = 1 << 127;

/// Two variables of `a` and `b` that may not meet, if there are any.
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

fn refused(step: Option<u32>, reason: impl Into<String>) -> Refusal {
    Refusal { step, reason: reason.into(), resource: false }
}

fn resource(step: Option<u32>, reason: impl Into<String>) -> Refusal {
    Refusal { step, reason: reason.into(), resource: true }
}

enum Emit {
    Step(u32),
    Term(Term),
    Use(StatementId),
    Save(u32),
}

struct Expansion<'a> {
    checker: &'a Checker,
    theory: &'a Theory,
    book: &'a RuleBook,
    goal: &'a Goal,
    hypothesis_ids: &'a [StatementId],
    dummies: Vec<Option<StatementSymbol>>,
    /// For each metavariable, the number under which the proof of its type was saved.
    saved: Vec<Option<u32>>,
    saves: u32,
    ops: Vec<ProofOp>,
    limit: usize,
}

impl Expansion<'_> {
    fn run(&mut self, root: u32) -> Result<(), Refusal> {
        let mut todo = vec![Emit::Step(root)];
        while let Some(next) = todo.pop() {
            if self.ops.len() > self.limit {
                return Err(resource(
                    None,
                    format!("the full proof has more than {} operations", self.limit),
                ));
            }
            match next {
                Emit::Use(id) => self.ops.push(ProofOp::Use(id)),
                Emit::Save(slot) => {
                    self.ops.push(ProofOp::Save);
                    self.saved[slot as usize] = Some(self.saves);
                    self.saves += 1;
                }
                Emit::Step(index) => self.step(index, &mut todo),
                Emit::Term(term) => self.term(term, &mut todo),
            }
        }
        Ok(())
    }

    fn step(&mut self, index: u32, todo: &mut Vec<Emit>) {
        let done = self.checker.done[index as usize];
        match done.step {
            Step::Hypothesis(h) => {
                self.ops.extend(self.hypothesis_ids.get(h as usize).map(|&id| ProofOp::Use(id)));
            }
            Step::Rule(id) => {
                let rule = self.book.rules[id.0 as usize];
                todo.push(Emit::Use(rule.statement));
                // The node of a rule's variable does not exist by itself: its metavariable does.
                let variable = |v: u32| Emit::Term(Term { node: SLOT, base: done.base + v });
                let count = (rule.hypotheses.1 - rule.hypotheses.0) as usize;
                let children = &self.checker.children[done.children as usize..done.children as usize + count];
                if rule.floats_first {
                    todo.extend(children.iter().rev().map(|&c| Emit::Step(c)));
                    todo.extend((0..rule.variables).rev().map(variable));
                    return;
                }
                let database = self.theory.database();
                let Some(assertion) = database.assertion(rule.statement) else { return };
                let (mut next_variable, mut next_child) = (0.., children.iter());
                let from = todo.len();
                for &h in &assertion.hypotheses {
                    match database.statement(h).kind {
                        StatementKind::Floating { .. } => todo.extend(next_variable.next().map(variable)),
                        _ => todo.extend(next_child.next().map(|&c| Emit::Step(c))),
                    }
                }
                todo[from..].reverse();
            }
        }
    }

    fn term(&mut self, term: Term, todo: &mut Vec<Emit>) {
        if term.node == SLOT {
            return self.slot(term.base, todo);
        }
        let head = Checker::word(self.book, self.goal, term.node);
        if head & METAVARIABLE != 0 {
            self.slot(term.base + (head & !METAVARIABLE), todo);
        } else if head & CONSTANT != 0 {
            self.ops.push(ProofOp::Use(self.goal.variables[(head & !CONSTANT) as usize].2));
        } else {
            let production = &self.theory.grammar().productions()[head as usize];
            todo.push(Emit::Use(production.statement));
            for &child in production.hypothesis_child.iter().rev() {
                let node = Checker::child(self.book, self.goal, term.node, u32::from(child));
                todo.push(Emit::Term(Term { node, base: term.base }));
            }
        }
    }

    /// Emits what a metavariable stands for; its proof of type is remembered if it has more than one operation
    /// (a compressed proof may not remember a hypothesis, nor anything twice).
    fn slot(&mut self, mut slot: u32, todo: &mut Vec<Emit>) {
        loop {
            if let Some(n) = self.saved[slot as usize] {
                self.ops.push(ProofOp::Recall(n));
                return;
            }
            let bound = self.checker.bindings[slot as usize];
            if bound == UNBOUND {
                self.ops.extend(self.dummies[slot as usize].map(|(f, _)| ProofOp::Use(f)));
                return;
            }
            let head = Checker::word(self.book, self.goal, bound.node);
            if head & METAVARIABLE != 0 {
                slot = bound.base + (head & !METAVARIABLE);
                continue;
            }
            if head & CONSTANT == 0 && self.book.arity[head as usize] > 0 {
                todo.push(Emit::Save(slot));
            }
            todo.push(Emit::Term(bound));
            return;
        }
    }
}

/// A term that is the metavariable number `base` itself.
const SLOT: u32 = u32::MAX;
