//! The judge: a proof is valid only if both the unifier and the kernel accept it.

use crate::database::{Expression, StatementId};
use crate::grammar::TreeNode;
use crate::kernel::{Kernel, KernelError, KernelGoal};
use crate::proof::ProofOp;
use crate::theory::Theory;
use crate::unify::{Goal, ProofLimits, ProofStep, Unifier, hypothesis_id, judgement};
use sgs_selfplay::{Judgement, Verdict};

/// A unifier and a kernel with their buffers, for one thread.
#[derive(Default)]
pub struct Judge {
    unifier: Unifier,
    kernel: Kernel,
}

impl Judge {
    /// Creates a judge with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the unifier, which holds the substitution of the last proof that it accepted.
    pub fn unifier(&self) -> &Unifier {
        &self.unifier
    }

    /// Returns the unifier for uses that need no kernel.
    pub(crate) fn unifier_mut(&mut self) -> &mut Unifier {
        &mut self.unifier
    }

    /// Decides whether `steps` prove the goal: `proved`, `refused` or `resource`; `infra` if unifier and kernel disagree,
    /// which is a bug in one of them. The caller measures the time.
    pub fn decide(
        &mut self,
        theory: &Theory,
        goal: &Goal,
        steps: &[ProofStep],
        limits: ProofLimits,
    ) -> Judgement {
        match self.prove(theory, goal, steps, limits) {
            Ok(_) => judgement(Verdict::Proved, None, String::new()),
            Err(other) => other,
        }
    }

    /// Decides whether `steps` prove the goal, and returns the full Metamath proof that the kernel accepted.
    ///
    /// # Errors
    /// Returns the judgement if it is not `proved`.
    pub fn prove(
        &mut self,
        theory: &Theory,
        goal: &Goal,
        steps: &[ProofStep],
        limits: ProofLimits,
    ) -> Result<Vec<ProofOp>, Judgement> {
        self.unifier.check(theory, goal, steps, limits)?;
        let ops = self.unifier.expand(theory, goal, limits)?;
        let (verdict, reason) = match kernel_accepts(&mut self.kernel, theory, goal, &ops) {
            Ok(()) => return Ok(ops),
            Err(KernelError::TooLarge(n)) => {
                (Verdict::Resource, format!("the full proof's expressions have more than {n} symbols"))
            }
            Err(e) => (
                Verdict::Infra,
                format!("the unifier accepts this proof and the kernel does not ({e}): please report it"),
            ),
        };
        Err(judgement(verdict, None, reason))
    }
}

/// Checks a full proof with the kernel only. In the proof, the goal's hypotheses have the ids that follow those of the
/// database's statements.
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
        dummy_distinct: None,
    };
    kernel.check(theory.database(), &kernel_goal, ops)
}

/// Returns the goal's hypotheses as expressions, with the ids that follow those of the database's statements.
pub(crate) fn hypothesis_expressions(theory: &Theory, goal: &Goal) -> Vec<(StatementId, Expression)> {
    let ids = (0..).map(|index| hypothesis_id(theory, index));
    ids.zip(&goal.statement().hypotheses).map(|(id, h)| (id, expression(theory, h))).collect()
}

pub(crate) fn expression(theory: &Theory, tree: &[TreeNode]) -> Expression {
    Expression { typecode: theory.provable(), symbols: theory.grammar().unparse(tree).into() }
}
