//! The kernel: checks full Metamath proofs by substitution on symbol strings (Metamath book, §4.1.3-4.1.5).
//!
//! It uses neither grammar, trees nor unification, so that an error in them cannot lead to a wrong verdict. It shares no
//! checking code with the unifier; both use the same parsed database and the same proof operations.

use crate::database::{
    Assertion, Database, Distinct, Expression, StatementId, StatementKind, Symbol, distinct,
};
use crate::proof::ProofOp;

/// The statement that a full proof has to prove.
#[derive(Clone, Debug)]
pub struct KernelGoal<'a> {
    /// The first statement that the proof may not use.
    pub before: StatementId,
    /// `$f` statements of the mandatory variables. Other `$f` statements of the database declare dummy variables.
    pub floats: &'a [StatementId],
    /// Essential hypotheses, each with the id that the proof uses for it.
    pub hypotheses: &'a [(StatementId, Expression)],
    /// The conclusion.
    pub conclusion: &'a Expression,
    /// `$d` pairs that the proof may rely on, sorted.
    pub distinct: &'a [Distinct],
    /// Further pairs with dummy variables, sorted (for a theorem of a database). Without them, dummy variables are distinct
    /// from all other variables, because the author of a theorem can add these `$d` statements.
    pub dummy_distinct: Option<&'a [Distinct]>,
}

/// Why the kernel rejects a proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum KernelError {
    #[error("operation {op}: {message}")]
    Refused { op: usize, message: String },
    #[error("the expressions of the proof have more than {0} symbols")]
    TooLarge(usize),
}

/// An expression on the stack: its symbols in the arena, typecode first.
#[derive(Clone, Copy, Default)]
struct StackEntry {
    start: u32,
    end: u32,
}

/// Checks full proofs. It keeps its buffers from proof to proof.
#[derive(Default)]
pub struct Kernel {
    /// Number of the current operation, from 1.
    op: usize,
    arena: Vec<Symbol>,
    stack: Vec<StackEntry>,
    saved: Vec<StackEntry>,
    /// For each symbol, its substitution in the current assertion; valid if the stamp is current.
    substitution: Vec<(u32, StackEntry)>,
    stamp: u32,
    /// For each symbol, whether it occurred in the current expression.
    met: Vec<bool>,
    /// Variables of the two expressions that must be distinct, without repetition.
    sides: [Vec<Symbol>; 2],
}

/// Maximum total number of symbols in the expressions of a proof.
pub const MAX_SYMBOLS: usize = 4_000_000;

impl Kernel {
    /// Creates a kernel with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a proof.
    pub fn check(
        &mut self,
        database: &Database,
        goal: &KernelGoal<'_>,
        ops: &[ProofOp],
    ) -> Result<(), KernelError> {
        self.arena.clear();
        self.stack.clear();
        self.saved.clear();
        if self.substitution.len() < database.symbol_count() {
            self.substitution.resize(database.symbol_count(), (0, StackEntry::default()));
            self.met.resize(database.symbol_count(), false);
        }
        self.op = 0;
        for op in ops {
            self.op += 1;
            match *op {
                ProofOp::Save => match self.stack.last() {
                    Some(&top) => self.saved.push(top),
                    None => return self.refuse("nothing to save"),
                },
                ProofOp::Recall(n) => match self.saved.get(n as usize) {
                    Some(&entry) => self.stack.push(entry),
                    None => return self.refuse(format!("nothing was saved as {n}")),
                },
                ProofOp::Use(id) => self.apply(database, goal, id)?,
            }
        }
        let [last] = self.stack[..] else {
            return self.refuse(format!("{} expressions are left on the stack, not one", self.stack.len()));
        };
        let symbols = &self.arena[last.start as usize..last.end as usize];
        if symbols.first() != Some(&goal.conclusion.typecode) || symbols[1..] != *goal.conclusion.symbols {
            return self.refuse("the proof proves another statement");
        }
        Ok(())
    }

    fn refuse(&self, message: impl Into<String>) -> Result<(), KernelError> {
        Err(KernelError::Refused { op: self.op, message: message.into() })
    }

    fn apply(
        &mut self,
        database: &Database,
        goal: &KernelGoal<'_>,
        id: StatementId,
    ) -> Result<(), KernelError> {
        if let Some((_, expression)) = goal.hypotheses.iter().find(|(h, _)| *h == id) {
            return self.push(expression.typecode, &expression.symbols);
        }
        let Some(statement) = database.statements().get(id.0 as usize) else {
            return self.refuse("no such statement");
        };
        // The `$f` statements of the outermost scope only declare types, so they may be used from any position.
        let global = matches!(statement.kind, StatementKind::Floating { until: StatementId(u32::MAX), .. });
        if id >= goal.before && !global {
            return self.refuse(format!("`{}` does not precede the goal", statement.label));
        }
        match &statement.kind {
            StatementKind::Floating { typecode, variable, until } => {
                if *until <= goal.before {
                    return self.refuse(format!("`{}` is out of scope", statement.label));
                }
                self.push(*typecode, &[*variable])
            }
            StatementKind::Essential(_) => {
                self.refuse(format!("`{}` is not a hypothesis of the goal", statement.label))
            }
            StatementKind::Assertion(assertion) => {
                let Some(base) = self.stack.len().checked_sub(assertion.hypotheses.len()) else {
                    return self.refuse(format!("the stack is too short for `{}`", statement.label));
                };
                self.substitute(database, assertion, base, &statement.label)?;
                self.check_distinct(database, goal, assertion, &statement.label)?;
                let start = self.arena.len();
                self.arena.push(assertion.conclusion.typecode);
                for &s in &assertion.conclusion.symbols {
                    self.push_substituted(s);
                }
                self.check_size()?;
                self.stack.truncate(base);
                self.stack.push(StackEntry { start: start as u32, end: self.arena.len() as u32 });
                Ok(())
            }
        }
    }

    fn push(&mut self, typecode: Symbol, symbols: &[Symbol]) -> Result<(), KernelError> {
        let start = self.arena.len() as u32;
        self.arena.push(typecode);
        self.arena.extend_from_slice(symbols);
        self.check_size()?;
        self.stack.push(StackEntry { start, end: self.arena.len() as u32 });
        Ok(())
    }

    fn check_size(&self) -> Result<(), KernelError> {
        if self.arena.len() > MAX_SYMBOLS { Err(KernelError::TooLarge(MAX_SYMBOLS)) } else { Ok(()) }
    }

    /// Determines the substitution from the `$f` hypotheses and compares the `$e` hypotheses with the stack.
    fn substitute(
        &mut self,
        database: &Database,
        assertion: &Assertion,
        base: usize,
        label: &str,
    ) -> Result<(), KernelError> {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.substitution.fill((0, StackEntry::default()));
            self.stamp = 1;
        }
        for (i, &h) in assertion.hypotheses.iter().enumerate() {
            if let StatementKind::Floating { typecode, variable, .. } = database.statement(h).kind {
                let entry = self.stack[base + i];
                if self.arena.get(entry.start as usize) != Some(&typecode) {
                    let text = database.symbol_text(variable);
                    return self.refuse(format!("`{label}`: the wrong type for `{text}`"));
                }
                let body = StackEntry { start: entry.start + 1, end: entry.end };
                self.substitution[variable.0 as usize] = (self.stamp, body);
            }
        }
        let mut number = 0;
        for (i, &h) in assertion.hypotheses.iter().enumerate() {
            if let StatementKind::Essential(expression) = &database.statement(h).kind {
                number += 1;
                if !self.equals(expression, self.stack[base + i]) {
                    return self.refuse(format!("`{label}`: hypothesis {number} does not match"));
                }
            }
        }
        Ok(())
    }

    fn substituted(&self, symbol: Symbol) -> Option<StackEntry> {
        let (stamp, entry) = self.substitution[symbol.0 as usize];
        (stamp == self.stamp).then_some(entry)
    }

    fn equals(&self, expression: &Expression, entry: StackEntry) -> bool {
        let have = &self.arena[entry.start as usize..entry.end as usize];
        let Some((&typecode, mut rest)) = have.split_first() else { return false };
        if typecode != expression.typecode {
            return false;
        }
        for &s in &expression.symbols {
            match self.substituted(s) {
                Some(e) => {
                    let want = &self.arena[e.start as usize..e.end as usize];
                    match rest.strip_prefix(want) {
                        Some(r) => rest = r,
                        None => return false,
                    }
                }
                None => match rest.split_first() {
                    Some((&first, r)) if first == s => rest = r,
                    _ => return false,
                },
            }
        }
        rest.is_empty()
    }

    fn push_substituted(&mut self, symbol: Symbol) {
        match self.substituted(symbol) {
            Some(e) => {
                if self.arena.len() <= MAX_SYMBOLS {
                    self.arena.extend_from_within(e.start as usize..e.end as usize);
                }
            }
            None => self.arena.push(symbol),
        }
    }

    fn check_distinct(
        &mut self,
        database: &Database,
        goal: &KernelGoal<'_>,
        assertion: &Assertion,
        label: &str,
    ) -> Result<(), KernelError> {
        for &(a, b) in &assertion.distinct {
            let (Some(ea), Some(eb)) = (self.substituted(a), self.substituted(b)) else {
                unreachable!("invariant: the $d pairs of an assertion contain only mandatory variables")
            };
            self.collect_variables(database, 0, ea);
            self.collect_variables(database, 1, eb);
            for &x in &self.sides[0] {
                for &y in &self.sides[1] {
                    if !allowed(database, goal, x, y) {
                        let (x, y) = (database.symbol_text(x), database.symbol_text(y));
                        return self.refuse(format!("`{label}`: `{x}` and `{y}` must be distinct"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Collects the variables of an expression without repetition, because a variable may occur millions of times.
    fn collect_variables(&mut self, database: &Database, side: usize, e: StackEntry) {
        let variables = &mut self.sides[side];
        variables.clear();
        for &s in &self.arena[e.start as usize..e.end as usize] {
            if database.is_variable(s) && !self.met[s.0 as usize] {
                self.met[s.0 as usize] = true;
                variables.push(s);
            }
        }
        for &s in variables.iter() {
            self.met[s.0 as usize] = false;
        }
    }
}

fn allowed(database: &Database, goal: &KernelGoal<'_>, x: Symbol, y: Symbol) -> bool {
    if x == y {
        return false;
    }
    let pair = distinct(x, y);
    if goal.distinct.binary_search(&pair).is_ok() {
        return true;
    }
    match goal.dummy_distinct {
        Some(pairs) => pairs.binary_search(&pair).is_ok(),
        None => {
            let mandatory = |v: Symbol| {
                goal.floats.iter().any(|&f| match database.statement(f).kind {
                    StatementKind::Floating { variable, .. } => variable == v,
                    _ => unreachable!("invariant: `floats` contains only $f statements"),
                })
            };
            !(mandatory(x) && mandatory(y))
        }
    }
}

/// Checks the proof of a theorem of the database.
pub fn verify_theorem(kernel: &mut Kernel, database: &Database, id: StatementId) -> Result<(), String> {
    let assertion = database.assertion(id).ok_or("not an assertion")?;
    let ops = crate::proof::read_proof(database, id, assertion)?;
    let hypotheses: Vec<(StatementId, Expression)> =
        database.essentials(assertion).map(|(h, e)| (h, e.clone())).collect();
    let floats: Vec<StatementId> = database.floats(assertion).map(|(f, _, _)| f).collect();
    let goal = KernelGoal {
        before: id,
        floats: &floats,
        hypotheses: &hypotheses,
        conclusion: &assertion.conclusion,
        distinct: &assertion.distinct,
        dummy_distinct: Some(&assertion.dummy_distinct),
    };
    kernel.check(database, &goal, &ops).map_err(|e| e.to_string())
}
