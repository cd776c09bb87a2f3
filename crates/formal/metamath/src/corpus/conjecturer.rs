//! The Conjecturer's corpus: theorems with statements that their real proofs go through.

use super::draw::Draw;
use super::solver::{renumber, sub_proof_starts};
use super::splits::{Lesson, Split, normal_text};
use crate::database::{Distinct, Symbol, distinct};
use crate::library::{Fault, Library};
use crate::proof_text::write_steps;
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use crate::unify::{Checker, Goal, ProofLimits, RuleBook, Step};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

/// What a conjecture of the corpus is conditioned on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A theorem to be proved (canonical text).
    Target(String),
    /// A proved theorem and its proof.
    Solved {
        statement: String,
        /// Its proof in canonical text.
        proof: String,
    },
    /// Nothing.
    Nothing,
}

/// A conjecture for training.
#[derive(Clone, Debug)]
pub struct ConjectureExample {
    /// The theorem that it comes from, in whose context the conjecture stands.
    pub source: RuleId,
    /// What the Conjecturer is shown.
    pub condition: Condition,
    /// The statement that it should write.
    pub conjecture: String,
}

const MAX_SYMBOLS: usize = 100;
const MAX_NODES: usize = 100;
/// Conjectures drawn from one theorem at most.
const PER_LESSON: usize = 6;

/// A step of a theorem's proof as a statement of its own, in the theorem's variables.
#[derive(Clone, Debug)]
pub(crate) struct Intermediate {
    pub(crate) statement: Statement,
    /// Length of its own proof in steps.
    pub(crate) steps: usize,
    /// Why it is nothing to conjecture in the theorem's place.
    pub(crate) fault: Option<Fault>,
}

/// What a proof goes through: each step that is neither a hypothesis nor the last one.
pub(crate) fn intermediates(
    theory: &Theory,
    book: &RuleBook,
    library: &Library,
    checker: &mut Checker,
    lesson: &Lesson,
) -> Vec<Intermediate> {
    let before = theory.rule(lesson.rule).statement;
    let Ok(goal) = Goal::new(theory, &lesson.statement, before) else { return Vec::new() };
    if checker.check(theory, book, &goal, &lesson.steps, ProofLimits::default()).is_err() {
        return Vec::new();
    }
    let Ok(formulas) = checker.step_formulas(theory, book, &goal, MAX_NODES) else { return Vec::new() };
    let starts = sub_proof_starts(theory, &lesson.steps);
    let mut out: Vec<Intermediate> = Vec::new();
    for (i, formula) in formulas.into_iter().enumerate() {
        let (Some(conclusion), Step::Rule(_)) = (formula, lesson.steps[i]) else { continue };
        if i + 1 == lesson.steps.len() || conclusion.len() < 2 {
            continue;
        }
        let (_, mut used) = renumber(&lesson.steps[starts[i]..=i]);
        used.sort_unstable();
        let hypotheses = used.iter().map(|&h| lesson.statement.hypotheses[h as usize].clone()).collect();
        let mut statement = Statement { distinct: Box::default(), hypotheses, conclusion };
        statement.distinct = pairs_with_dummies(&statement, &lesson.statement);
        if statement.text(theory).split_ascii_whitespace().count() <= MAX_SYMBOLS
            && !out.iter().any(|o| o.statement == statement)
        {
            let fault = library.fault(theory, book, checker, &statement, before);
            out.push(Intermediate { statement, steps: i + 1 - starts[i], fault });
        }
    }
    out
}

/// The `$d` conditions of a part of a theorem: the theorem's own, and dummies distinct from everything.
fn pairs_with_dummies(part: &Statement, whole: &Statement) -> Box<[Distinct]> {
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
    pairs.sort_unstable();
    pairs.into()
}

/// The whole corpus. Steps that stand in the database before their theorem, or follow in one step, are no conjectures.
pub fn examples(
    theory: &Theory,
    book: &RuleBook,
    library: &Library,
    split: &Split,
    seed: u64,
) -> Vec<ConjectureExample> {
    let found: Vec<Vec<ConjectureExample>> = split
        .lessons
        .par_iter()
        .map_init(Checker::new, |checker, lesson| {
            let mut draw = Draw::numbered(seed, "conjectures", u64::from(lesson.rule.0));
            examples_of(theory, book, library, split, lesson, checker, &mut draw)
        })
        .collect();
    let mut out: Vec<ConjectureExample> = found.into_iter().flatten().collect();
    out.extend(solved_to_new(theory, split, seed));
    out
}

fn examples_of(
    theory: &Theory,
    book: &RuleBook,
    library: &Library,
    split: &Split,
    lesson: &Lesson,
    checker: &mut Checker,
    draw: &mut Draw,
) -> Vec<ConjectureExample> {
    let target = lesson.statement.text(theory);
    if target.split_ascii_whitespace().count() > MAX_SYMBOLS {
        return Vec::new();
    }
    let own = normal_text(theory, &lesson.statement);
    let mut found = intermediates(theory, book, library, checker, lesson);
    found.retain(|i| {
        let print = normal_text(theory, &i.statement);
        i.fault.is_none() && print != own && !split.forbidden.contains(&print)
    });
    draw.shuffle(&mut found);
    found.truncate(PER_LESSON);
    let mut out = Vec::new();
    for intermediate in found {
        let conjecture = intermediate.statement.text(theory);
        if draw.chance(0.1)
            && let Some(normal) = intermediate.statement.normal_form(theory, |_| None)
        {
            out.push(ConjectureExample {
                source: lesson.rule,
                condition: Condition::Nothing,
                conjecture: normal.text(theory),
            });
        }
        out.push(ConjectureExample {
            source: lesson.rule,
            condition: Condition::Target(target.clone()),
            conjecture,
        });
    }
    out
}

/// For conjectures conditioned on solved problems: a lemma with its proof, and a theorem that uses it.
fn solved_to_new(theory: &Theory, split: &Split, seed: u64) -> Vec<ConjectureExample> {
    let lesson_of: rustc_hash::FxHashMap<RuleId, &Lesson> =
        split.lessons.iter().map(|l| (l.rule, l)).collect();
    let mut draw = Draw::new(seed, "solved");
    let mut out = Vec::new();
    for lesson in &split.lessons {
        let used: FxHashSet<RuleId> = lesson
            .steps
            .iter()
            .filter_map(|s| if let Step::Rule(id) = s { Some(*id) } else { None })
            .filter(|id| lesson_of.get(id).is_some_and(|l| l.steps.len() >= 2 && l.steps.len() <= 16))
            .collect();
        let mut used: Vec<RuleId> = used.into_iter().collect();
        used.sort_unstable();
        let conjecture = lesson.statement.text(theory);
        if conjecture.split_ascii_whitespace().count() > MAX_SYMBOLS {
            continue;
        }
        if let Some(lemma) = draw.pick(&used).and_then(|id| lesson_of.get(id)) {
            out.push(ConjectureExample {
                source: lesson.rule,
                condition: Condition::Solved {
                    statement: lemma.statement.text(theory),
                    proof: write_steps(theory, &lemma.steps),
                },
                conjecture,
            });
        }
    }
    out
}
