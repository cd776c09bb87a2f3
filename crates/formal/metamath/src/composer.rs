//! Composes random theorems together with their proofs.

use crate::database::StatementId;
use crate::normal_text::{NormalText, normal_text};
use crate::statement::Statement;
use crate::theorem_proofs::TheoremProof;
use crate::theory::{RuleId, Theory};
use crate::unify::{Goal, ProofStep, Unifier};
use sgs_base::random::SeededRng;

/// Maximum number of symbols of a statement that is derived from a proof.
pub const MAX_SYMBOLS: usize = 100;
/// Maximum number of steps of a composed proof.
pub const MAX_STEPS: usize = 24;
/// Maximum number of nodes of a formula that is derived from a proof.
const MAX_NODES: usize = 100;
/// First position in the database at which a theorem is composed. A database with no more axioms and theorems has none.
pub const FIRST_POSITION: usize = 20;

/// A generator of random theorems.
///
/// Each attempt picks a position in the database and builds a proof from earlier rules, drawn by their frequency in the
/// lessons. A step pushes a hypothesis or a rule without hypotheses, or applies a rule to the top of the stack. The result
/// is the most general theorem that the steps prove.
pub struct Composer {
    /// Uses of rules, in the order of the lessons. A random index draws a rule by its frequency, and an index in a range
    /// draws a rule that is used there.
    uses: Vec<RuleId>,
    /// For each rule, how many of `uses` come from lessons before it.
    uses_before: Vec<usize>,
}

impl Composer {
    /// Creates a generator that draws rules by their frequency in `lessons`.
    pub fn new(theory: &Theory, lessons: &[TheoremProof]) -> Self {
        let mut uses = Vec::new();
        let mut uses_before = vec![0; theory.rules().len() + 1];
        let mut next = 0;
        for lesson in lessons {
            while next <= lesson.rule.0 as usize {
                uses_before[next] = uses.len();
                next += 1;
            }
            uses.extend(lesson.steps.iter().filter_map(|step| step.rule()));
        }
        for slot in &mut uses_before[next..] {
            *slot = uses.len();
        }
        Self { uses, uses_before }
    }

    /// Tries to compose a theorem, in the given context or in a random one. Returns `None` if this attempt fails, otherwise
    /// the theorem in normal form, with the rule before which it was composed, and the text that identifies its statement.
    pub fn compose(
        &self,
        theory: &Theory,
        unifier: &mut Unifier,
        draw: &mut SeededRng,
        context: Option<RuleId>,
    ) -> Option<(TheoremProof, NormalText)> {
        let context = match (context, theory.rules().len().saturating_sub(FIRST_POSITION)) {
            (Some(context), _) => context,
            (None, 0) => return None,
            (None, positions) => RuleId((FIRST_POSITION + draw.index(positions)) as u32),
        };
        let available = self.uses_before[context.0 as usize];
        if available == 0 {
            return None;
        }
        let before = theory.rule(context).statement;
        // The stack may hold several formulas until the last step.
        let mut fits =
            |steps: &[ProofStep], hypotheses| unifier.unifies(theory, &Goal::open(hypotheses, before), steps);
        let wanted = 2 + draw.index(6);
        let (mut steps, mut hypotheses, mut depth) = (Vec::new(), 0u32, 0usize);
        for _ in 0..wanted * 8 {
            if steps.len() >= wanted && depth == 1 {
                break;
            }
            let tried = self.next_step(theory, draw, context, available, depth, hypotheses);
            let Some((step, takes)) = tried else { continue };
            steps.push(step);
            let more = u32::from(step == ProofStep::Hypothesis(hypotheses));
            if takes > 0 && !fits(&steps, hypotheses) {
                steps.pop();
                continue;
            }
            hypotheses += more;
            depth = depth + 1 - takes;
        }
        if depth != 1 || inferences(&steps) < 2 || steps.len() > MAX_STEPS {
            return None;
        }
        let (statement, print) = general(theory, unifier, before, &steps, hypotheses as usize)?;
        Some((TheoremProof { rule: context, statement, steps }, print))
    }

    /// Draws a step that the stack allows, and returns it with the number of entries that it takes.
    fn next_step(
        &self,
        theory: &Theory,
        draw: &mut SeededRng,
        context: RuleId,
        available: usize,
        depth: usize,
        hypotheses: u32,
    ) -> Option<(ProofStep, usize)> {
        if depth < 3 && hypotheses < 3 && draw.chance(0.2) {
            return Some((ProofStep::Hypothesis(hypotheses), 0));
        }
        // Half of the draws come from rules that are used shortly before the position.
        let near = available.min(4_000);
        let index = if draw.chance(0.5) { available - 1 - draw.index(near) } else { draw.index(available) };
        let id = self.uses[index];
        if id >= context {
            return None;
        }
        let takes = theory.rule(id).hypotheses.len();
        (takes <= depth && (takes > 0 || depth < 3)).then_some((ProofStep::Rule(id), takes))
    }
}

/// Returns the number of assertions that a proof cites.
pub fn inferences(steps: &[ProofStep]) -> usize {
    steps.iter().filter_map(|step| step.rule()).count()
}

/// Returns the most general statement that steps prove from the rules before `before`, in normal form, with the text
/// that identifies it. Returns `None` if the steps prove nothing, if the statement is too large, or if it is trivial: a
/// variable, or one of its hypotheses.
pub fn general(
    theory: &Theory,
    unifier: &mut Unifier,
    before: StatementId,
    steps: &[ProofStep],
    hypotheses: usize,
) -> Option<(Statement, NormalText)> {
    let goal = Goal::open(hypotheses as u32, before);
    let statement = unifier.most_general(theory, &goal, steps, MAX_NODES)?;
    // A formula that is a single variable is trivial or contradictory.
    if statement.conclusion.len() < 2 || statement.hypotheses.contains(&statement.conclusion) {
        return None;
    }
    let normal = statement.normal_form(theory, |_| None)?;
    if normal.symbols(theory) > MAX_SYMBOLS {
        return None;
    }
    let print = normal_text(theory, &normal);
    Some((normal, print))
}
