//! The judge: unifier and kernel together. A proof counts only if both accept it.

use crate::database::{Expression, StatementId};
use crate::kernel::{Dummies, Kernel, KernelError, KernelGoal};
use crate::proof::ProofOp;
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use crate::unify::{Checker, Goal, ProofLimits, Refusal, RuleBook, Step};
use rayon::prelude::*;
use sgs_selfplay::Verdict;

/// What the judge says of one proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Proved, refused, resource; `infra` if unifier and kernel disagree, which is a defect of ours.
    pub verdict: Verdict,
    /// Why, with the step's label; empty if proved.
    pub reason: String,
    /// The step, from 1, where one is to blame.
    pub step: Option<u32>,
}

impl From<Refusal> for Decision {
    fn from(r: Refusal) -> Self {
        let verdict = if r.resource { Verdict::Resource } else { Verdict::Refused };
        let reason = match r.step {
            Some(n) => format!("step {n}, {}", r.reason),
            None => r.reason,
        };
        Self { verdict, reason, step: r.step }
    }
}

/// Unifier and kernel with their buffers, for one thread.
#[derive(Default)]
pub struct Judge {
    checker: Checker,
    kernel: Kernel,
}

impl Judge {
    /// A judge with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The unifier with the substitution of the last proof that it accepted.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Decides whether `steps` prove the goal.
    pub fn decide(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        steps: &[Step],
        limits: ProofLimits,
    ) -> Decision {
        match self.prove(theory, book, goal, steps, limits) {
            Ok(_) => Decision { verdict: Verdict::Proved, reason: String::new(), step: None },
            Err(decision) => decision,
        }
    }

    /// The same, giving the full Metamath proof that the kernel accepted.
    ///
    /// # Errors
    /// The decision, if it is not `proved`.
    pub fn prove(
        &mut self,
        theory: &Theory,
        book: &RuleBook,
        goal: &Goal,
        steps: &[Step],
        limits: ProofLimits,
    ) -> Result<Vec<ProofOp>, Decision> {
        self.checker.check(theory, book, goal, steps, limits)?;
        let first = theory.database().statements().len() as u32;
        let ids: Vec<StatementId> = (first..).take(goal.hypothesis_count()).map(StatementId).collect();
        let ops = self.checker.expand(theory, book, goal, &ids, limits)?;
        match kernel_accepts(&mut self.kernel, theory, goal, &ops) {
            Ok(()) => Ok(ops),
            Err(KernelError::TooLarge(n)) => Err(Decision {
                verdict: Verdict::Resource,
                reason: format!("the full proof's expressions have more than {n} symbols"),
                step: None,
            }),
            Err(e) => Err(Decision {
                verdict: Verdict::Infra,
                reason: format!(
                    "the unifier accepts this proof and the kernel does not ({e}): please report it"
                ),
                step: None,
            }),
        }
    }
}

/// What the kernel alone says of a full proof. It refers to the goal's hypotheses by the ids behind those of the
/// database's statements.
///
/// # Errors
/// Why the kernel refuses it.
pub fn kernel_accepts(
    kernel: &mut Kernel,
    theory: &Theory,
    goal: &Goal,
    ops: &[ProofOp],
) -> Result<(), KernelError> {
    let kernel_goal = KernelGoal {
        before: goal.before(),
        floats: &goal.floats(),
        hypotheses: &hypothesis_expressions(theory, goal),
        conclusion: &expression(theory, &goal.statement().conclusion),
        distinct: goal.distinct(),
        dummies: Dummies::Free,
    };
    kernel.check(theory.database(), &kernel_goal, ops)
}

/// The goal's hypotheses as expressions, under ids behind all statements of the database.
pub(crate) fn hypothesis_expressions(theory: &Theory, goal: &Goal) -> Vec<(StatementId, Expression)> {
    let first = theory.database().statements().len() as u32;
    let number = |i: usize| StatementId(first + i as u32);
    goal.statement().hypotheses.iter().enumerate().map(|(i, h)| (number(i), expression(theory, h))).collect()
}

pub(crate) fn expression(theory: &Theory, tree: &[crate::grammar::Head]) -> Expression {
    let mut symbols = Vec::new();
    theory.grammar().unparse(tree, &mut symbols);
    // A theory has a provable typecode, or it could not have been made.
    let typecode = theory.grammar().provable().unwrap_or(crate::database::Symbol(0));
    Expression { typecode, symbols: symbols.into() }
}

/// A theorem of the database with its own proof as essential steps.
#[derive(Clone, Debug)]
pub struct TrueProof {
    pub rule: RuleId,
    pub statement: Statement,
    pub steps: Vec<Step>,
}

/// All theorems of the database whose proofs have at most `limit` steps. Proofs that cannot be read (incomplete
/// ones, for example) are left out.
pub fn true_proofs(theory: &Theory, limit: usize) -> Vec<TrueProof> {
    let read = |i: usize| {
        let rule = RuleId(i as u32);
        let assertion = theory.database().assertion(theory.rule(rule).statement)?;
        let steps = assertion.is_theorem().then(|| database_proof(theory, rule, limit))?.ok()??;
        Some(TrueProof { rule, statement: Statement::of_rule(theory.rule(rule)), steps })
    };
    (0..theory.rules().len()).into_par_iter().filter_map(read).collect()
}

/// A proof of the database as essential steps. `None` if it has more than `limit`.
///
/// # Errors
/// If the proof's text cannot be read.
pub fn database_proof(
    theory: &Theory,
    rule: RuleId,
    limit: usize,
) -> Result<Option<Vec<Step>>, crate::proof::ProofTextError> {
    let database = theory.database();
    let id = theory.rule(rule).statement;
    let Some(assertion) = database.assertion(id) else { return Ok(None) };
    let ops = crate::proof::read_proof(database, id, assertion)?;
    let provable = theory.grammar().provable();
    let Some(labels) = crate::proof::essential_steps(database, &ops, |t| Some(t) == provable, limit)? else {
        return Ok(None);
    };
    let hypotheses: Vec<StatementId> = assertion
        .hypotheses
        .iter()
        .copied()
        .filter(|&h| matches!(database.statement(h).kind, crate::database::StatementKind::Essential(_)))
        .collect();
    let step = |label: &StatementId| {
        let hypothesis = hypotheses.iter().position(|h| h == label).map(|i| Step::Hypothesis(i as u32));
        hypothesis.or_else(|| theory.rule_of(*label).map(Step::Rule))
    };
    match labels.iter().map(step).collect::<Option<Vec<Step>>>() {
        Some(steps) => Ok(Some(steps)),
        None => Err(crate::proof::ProofTextError::Malformed("a step is no provable assertion".to_owned())),
    }
}
