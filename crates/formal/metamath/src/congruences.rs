//! Composes nested congruences together with their proofs.

use crate::composer::general;
use crate::grammar::{Tree, TreeNode};
use crate::normal_text::NormalText;
use crate::statement::Statement;
use crate::theorem_proofs::TheoremProof;
use crate::theory::{RuleId, Theory};
use crate::unify::{ProofStep, Unifier};
use sgs_base::random::SeededRng;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// Whether a congruence relates formulas or classes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CongruenceKind {
    /// `( ph -> ( ps <-> ch ) )`.
    Equivalence,
    /// `( ph -> A = B )`.
    Equality,
}

/// A rule whose hypotheses and conclusion are equivalences or equalities that follow from a formula.
struct Congruence {
    rule: RuleId,
    hypotheses: Vec<CongruenceKind>,
    conclusion: CongruenceKind,
}

/// A generator of nested congruences: if two parts are equal or equivalent, so are two expressions that contain them.
///
/// It uses the congruence rules of the lessons' proofs.
pub struct Congruences(Vec<Congruence>);

impl Congruences {
    /// Minimum number of uses in the lessons, so that a model knows the rule.
    const USES: usize = 5;
    /// Maximum number of hypotheses of a theorem.
    const HYPOTHESES: usize = 3;

    /// Creates a generator.
    pub fn new(theory: &Theory, lessons: &[TheoremProof]) -> Self {
        let mut uses = HashMap::<RuleId, usize>::new();
        for rule in lessons.iter().flat_map(|lesson| lesson.steps.iter().filter_map(|step| step.rule())) {
            *uses.entry(rule).or_default() += 1;
        }
        let rules = (0..theory.rules().len() as u32).map(RuleId);
        let known = rules.filter(|rule| uses.get(rule).is_some_and(|count| *count >= Self::USES));
        Self(known.filter_map(|rule| Congruence::of_rule(theory, rule)).collect())
    }

    /// Tries to compose a congruence with a number of inferences in `lengths`, in the given context or in a random one.
    /// Returns `None` if this attempt fails, otherwise the theorem in normal form, with the rule before which it was
    /// composed, and the text that identifies its statement.
    pub fn compose(
        &self,
        theory: &Theory,
        unifier: &mut Unifier,
        draw: &mut SeededRng,
        lengths: RangeInclusive<usize>,
        context: Option<RuleId>,
    ) -> Option<(TheoremProof, NormalText)> {
        let choices = (lengths.end() + 1).checked_sub(*lengths.start()).filter(|choices| *choices > 0)?;
        let inferences = lengths.start() + draw.index(choices);
        let kind = if draw.chance(0.5) { CongruenceKind::Equivalence } else { CongruenceKind::Equality };
        let (mut steps, mut hypotheses) = (Vec::new(), Vec::new());
        self.push_proof(draw, context, kind, inferences, &mut steps, &mut hypotheses)?;
        let context = context.or_else(|| {
            let first = 1 + steps.iter().filter_map(|step| step.rule()).map(|rule| rule.0 as usize).max()?;
            let later = theory.rules().len().checked_sub(first).filter(|later| *later > 0)?;
            Some(RuleId((first + draw.index(later)) as u32))
        })?;
        let before = theory.rule(context).statement;
        let (statement, print) = general(theory, unifier, before, &steps, hypotheses.len())?;
        Some((TheoremProof { rule: context, statement, steps }, print))
    }

    /// Appends a proof of a congruence with a number of inferences from rules before `context`. Returns `None` if it would need
    /// too many hypotheses, or if there is no such rule.
    fn push_proof(
        &self,
        draw: &mut SeededRng,
        context: Option<RuleId>,
        kind: CongruenceKind,
        inferences: usize,
        steps: &mut Vec<ProofStep>,
        hypotheses: &mut Vec<CongruenceKind>,
    ) -> Option<()> {
        if inferences == 0 {
            let known: Vec<_> = (0..hypotheses.len()).filter(|&i| hypotheses[i] == kind).collect();
            let has_room = hypotheses.len() < Self::HYPOTHESES;
            let index = if !known.is_empty() && (!has_room || draw.chance(0.5)) {
                known[draw.index(known.len())]
            } else if has_room {
                hypotheses.push(kind);
                hypotheses.len() - 1
            } else {
                return None;
            };
            steps.push(ProofStep::Hypothesis(index as u32));
            return Some(());
        }
        let is_available =
            |rule: &&Congruence| rule.conclusion == kind && context.is_none_or(|context| rule.rule < context);
        let rules: Vec<_> = self.0.iter().filter(is_available).collect();
        if rules.is_empty() {
            return None;
        }
        let congruence = rules[draw.index(rules.len())];
        let mut shares = vec![0; congruence.hypotheses.len()];
        for _ in 1..inferences {
            shares[draw.index(congruence.hypotheses.len())] += 1;
        }
        for (hypothesis, share) in congruence.hypotheses.iter().zip(shares) {
            self.push_proof(draw, context, *hypothesis, share, steps, hypotheses)?;
        }
        steps.push(ProofStep::Rule(congruence.rule));
        Some(())
    }
}

impl Congruence {
    /// Returns a rule as a congruence. Returns `None` if it has no hypotheses or another form, requires distinct variables, or
    /// has a hypothesis with a variable that the conclusion lacks (transitivity).
    fn of_rule(theory: &Theory, rule: RuleId) -> Option<Self> {
        let statement = Statement::of_rule(theory.rule(rule));
        let variables = |trees: &[Tree]| -> HashSet<_> {
            trees.iter().flatten().filter_map(|node| node.as_variable()).collect()
        };
        let hypotheses: Vec<_> =
            statement.hypotheses.iter().map(|tree| kind_of(theory, tree)).collect::<Option<_>>()?;
        let conclusion = kind_of(theory, &statement.conclusion)?;
        let is_congruence = !hypotheses.is_empty()
            && statement.distinct.is_empty()
            && variables(&statement.hypotheses)
                .is_subset(&variables(std::slice::from_ref(&statement.conclusion)));
        is_congruence.then_some(Self { rule, hypotheses, conclusion })
    }
}

/// Returns the kind of a formula of the form `( ph -> ( … <-> … ) )` or `( ph -> … = … )`.
fn kind_of(theory: &Theory, tree: &[TreeNode]) -> Option<CongruenceKind> {
    let label = |node: TreeNode| {
        let production = &theory.grammar().productions()[node.as_production()? as usize];
        Some(&*theory.database().statement(production.statement).label)
    };
    let [implication, antecedent, consequent, ..] = tree else { return None };
    antecedent.as_variable()?;
    match (label(*implication)?, label(*consequent)?) {
        ("wi", "wb") => Some(CongruenceKind::Equivalence),
        ("wi", "wceq") => Some(CongruenceKind::Equality),
        _ => None,
    }
}
