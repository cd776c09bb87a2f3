//! The Conjecturer's corpus: theorems with intermediate statements of their proofs.

use rayon::prelude::*;
use sgs_base::random::SeededRng;
use sgs_metamath::assertion_index::Triviality;
use sgs_metamath::composer::MAX_SYMBOLS;
use sgs_metamath::database::{Distinct, Symbol, distinct};
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::Split;
use sgs_metamath::statement::Statement;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::TheoremProof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits, Unifier};

/// The condition of a conjecture in the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum Condition {
    /// A theorem to be proved (canonical text).
    Target(String),
    /// The statement and the proof of a proved theorem (canonical text).
    Solved { statement: String, proof: String },
    /// Nothing.
    Nothing,
}

/// A conjecture for training.
#[derive(Clone, Debug)]
pub struct ConjectureExample {
    /// The theorem that it comes from, which determines its context.
    pub source: RuleId,
    /// The condition in the Conjecturer's prompt.
    pub condition: Condition,
    /// The statement that the Conjecturer should write.
    pub conjecture: String,
}

const MAX_NODES: usize = 100;
/// Maximum number of conjectures from one theorem.
const PER_LESSON: usize = 6;

/// A step of a theorem's proof as a separate statement, in the theorem's variables.
#[derive(Clone, Debug)]
pub(crate) struct Intermediate {
    pub(crate) statement: Statement,
    /// Length of its proof in steps.
    pub(crate) steps: usize,
    /// Why it is not a useful conjecture at the theorem's position.
    pub(crate) fault: Option<Triviality>,
}

/// Returns the intermediate statements of a proof: all steps except hypotheses and the last step.
pub(crate) fn intermediates(
    system: &Metamath,
    unifier: &mut Unifier,
    lesson: &TheoremProof,
) -> Vec<Intermediate> {
    let theory = system.theory();
    let before = theory.rule(lesson.rule).statement;
    let Ok(goal) = Goal::new(theory, &lesson.statement, before) else { return Vec::new() };
    if unifier.check(theory, &goal, &lesson.steps, ProofLimits::default()).is_err() {
        return Vec::new();
    }
    let Ok(formulas) = unifier.step_formulas(theory, &goal, MAX_NODES) else { return Vec::new() };
    let starts = sub_proof_starts(theory, &lesson.steps);
    let mut out: Vec<Intermediate> = Vec::new();
    for (i, formula) in formulas.into_iter().enumerate() {
        let (Some(conclusion), Some(_)) = (formula, lesson.steps[i].rule()) else { continue };
        if i + 1 == lesson.steps.len() || conclusion.len() < 2 {
            continue;
        }
        let (_, mut used) = renumber(&lesson.steps[starts[i]..=i]);
        used.sort_unstable();
        let hypotheses = used.iter().map(|&h| lesson.statement.hypotheses[h as usize].clone()).collect();
        let part = Statement { hypotheses, conclusion, ..Statement::default() };
        let pairs = pairs_with_dummies(&part, &lesson.statement);
        let statement = part.with_distinct(pairs);
        if statement.symbols(theory) <= MAX_SYMBOLS && !out.iter().any(|o| o.statement == statement) {
            let fault = system.assertion_index().triviality(theory, unifier, &statement, before);
            out.push(Intermediate { statement, steps: i + 1 - starts[i], fault });
        }
    }
    out
}

/// Returns the `$d` conditions of a part of a theorem: the theorem's own, and those that make dummies distinct from
/// everything.
fn pairs_with_dummies(part: &Statement, whole: &Statement) -> Vec<Distinct> {
    let own = whole.variables();
    let variables = part.variables();
    let mut pairs = Vec::new();
    for (i, &a) in variables.iter().enumerate() {
        for &b in &variables[i + 1..] {
            let dummy = |v: Symbol| !own.contains(&v);
            if dummy(a) || dummy(b) || whole.distinct.contains(&distinct(a, b)) {
                pairs.push(distinct(a, b));
            }
        }
    }
    pairs
}

/// Builds the corpus, without steps that precede their theorem in the database or follow in one step.
pub fn examples(system: &Metamath, split: &Split, seed: u64) -> Vec<ConjectureExample> {
    // Create it before the threads need it, because its creation also uses them.
    system.assertion_index();
    let mut out: Vec<ConjectureExample> = split
        .lessons
        .par_iter()
        .map_init(Unifier::new, |unifier, lesson| {
            let mut draw = SeededRng::numbered(seed, "conjectures", u64::from(lesson.rule.0));
            examples_of(system, split, lesson, unifier, &mut draw)
        })
        .flatten_iter()
        .collect();
    out.extend(solved_to_new(system.theory(), split, seed));
    out
}

fn examples_of(
    system: &Metamath,
    split: &Split,
    lesson: &TheoremProof,
    unifier: &mut Unifier,
    draw: &mut SeededRng,
) -> Vec<ConjectureExample> {
    let theory = system.theory();
    if lesson.statement.symbols(theory) > MAX_SYMBOLS {
        return Vec::new();
    }
    let target = lesson.statement.text(theory);
    let own = normal_text(theory, &lesson.statement);
    let mut found = intermediates(system, unifier, lesson);
    found.retain(|i| {
        let print = normal_text(theory, &i.statement);
        i.fault.is_none() && print != own && !split.forbidden.contains(&print)
    });
    draw.shuffle_by_index(&mut found);
    found.truncate(PER_LESSON);
    let mut out = Vec::new();
    let mut add = |condition, conjecture: &Statement| {
        out.push(ConjectureExample { source: lesson.rule, condition, conjecture: conjecture.text(theory) });
    };
    for intermediate in found {
        if draw.chance(0.1)
            && let Some(normal) = intermediate.statement.normal_form(theory, |_| None)
        {
            add(Condition::Nothing, &normal);
        }
        add(Condition::Target(target.clone()), &intermediate.statement);
    }
    out
}

/// Returns examples conditioned on solved problems: a lemma with its proof, and a theorem that uses the lemma.
fn solved_to_new(theory: &Theory, split: &Split, seed: u64) -> Vec<ConjectureExample> {
    let lesson_of: rustc_hash::FxHashMap<RuleId, &TheoremProof> =
        split.lessons.iter().map(|l| (l.rule, l)).collect();
    let mut draw = SeededRng::named(seed, "solved");
    let mut out = Vec::new();
    for lesson in &split.lessons {
        let mut used: Vec<RuleId> = lesson.steps.iter().filter_map(|step| step.rule()).collect();
        used.retain(|id| lesson_of.get(id).is_some_and(|l| (2..=16).contains(&l.steps.len())));
        used.sort_unstable();
        used.dedup();
        if lesson.statement.symbols(theory) > MAX_SYMBOLS {
            continue;
        }
        if let Some(lemma) = draw.pick(&used).and_then(|id| lesson_of.get(id)) {
            out.push(ConjectureExample {
                source: lesson.rule,
                condition: Condition::Solved {
                    statement: lemma.statement.text(theory),
                    proof: write_steps(theory, &lemma.steps),
                },
                conjecture: lesson.statement.text(theory),
            });
        }
    }
    out
}
