//! The Guide's corpus: theorems with conjectures whose relation to the theorem and its proof is known.
//!
//! A conjecture that cannot help scores 0, however natural it looks ([`WORTHLESS`]): one that precedes the target in the
//! database, one that follows in a single step, and a variant of the target itself. All other conjectures get these scores:
//!
//! - Relevance: 5 for a step of the target's own proof that is at least half of the work, 4 for another step of that
//!   proof, and 1 to 3 for other theorems and steps of other proofs, depending on the vocabulary shared with the target.
//! - Redundancy: 1 if an unused hypothesis was added, otherwise 0.
//! - Complexity: 0 for one claim, 1 for a conjunction of two or three related claims, 2 for a disjunction of two related
//!   claims or a conjunction of four, 3 for a disjunction of three unrelated claims, 4 for four or more.

use super::conjecturer::{Intermediate, intermediates};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use sgs_base::random::SeededRng;
use sgs_metamath::assertion_index::{Triviality, application};
use sgs_metamath::composer::MAX_SYMBOLS;
use sgs_metamath::database::{Symbol, distinct};
use sgs_metamath::features::Connectives;
use sgs_metamath::grammar::{Tree, TreeNode, TypeId};
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::splits::{LESSON_STEPS, Split};
use sgs_metamath::statement::{Statement, normal_form_of_rule};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::{TheoremProof, theorem_proof};
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, Unifier};
use sgs_selfplay::Review;

/// A conjecture with its known scores.
#[derive(Clone, Debug)]
pub struct ReviewExample {
    /// The target's theorem.
    pub source: RuleId,
    /// The relation of the conjecture to the target.
    pub relation: Relation,
    /// Canonical text of the target.
    pub target: String,
    /// Canonical text of the conjecture, in normal form.
    pub conjecture: String,
    /// The review that the Guide should write.
    pub review: Review,
}

/// The relation of a conjecture to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    /// A step that is at least half of the target's proof.
    MainStep,
    /// Another step of the target's proof.
    Step,
    /// Another statement that is new at the target's position and takes more than one step.
    Other,
    /// It precedes the target in the database.
    Known,
    /// It follows in one step from assertions before the target.
    OneStep,
    /// The target with other names, an instance of it, or the target with an unused antecedent.
    Duplicate,
}

/// The review of a conjecture that cannot help, with a score of 0.
pub const WORTHLESS: Review = Review { relevance: 0.0, redundancy: 1.0, complexity: 4.0 };

impl Relation {
    /// Its name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Relation::MainStep => "main-step",
            Relation::Step => "step",
            Relation::Other => "other",
            Relation::Known => "known",
            Relation::OneStep => "one-step",
            Relation::Duplicate => "duplicate",
        }
    }

    /// Returns whether such a conjecture can help.
    pub fn helps(self) -> bool {
        matches!(self, Relation::MainStep | Relation::Step | Relation::Other)
    }
}

/// The source of a conjecture. Its relation to the target is determined after it is drawn.
#[derive(Clone, Copy)]
enum Source {
    MainStep,
    Step,
    Section,
    Chapter,
    Elsewhere,
    Earlier,
    Instance,
    Target,
}

/// The sources. A source occurs once for each time that it is drawn.
const SOURCES: [Source; 16] = {
    use Source::*;
    [
        MainStep, MainStep, MainStep, Step, Step, Step, Section, Section, Chapter, Elsewhere, Earlier,
        Earlier, Instance, Instance, Instance, Target,
    ]
};

const SECTION: usize = 40;
const CHAPTER: usize = 400;
const ELSEWHERE: usize = 2_000;

/// Makes reviews for the lessons of a split, and for its targets.
pub struct Maker<'a> {
    theory: &'a Theory,
    system: &'a Metamath,
    split: &'a Split,
    /// The intermediate statements of each lesson's proof.
    steps: Vec<Vec<Intermediate>>,
}

/// A theorem in the role of the target.
struct Subject<'a> {
    lesson: &'a TheoremProof,
    /// Number of lessons before it.
    position: usize,
    steps: &'a [Intermediate],
    /// The rules that its proof uses, in order.
    uses: Vec<RuleId>,
    terms: FxHashMap<TypeId, Vec<&'a [TreeNode]>>,
}

impl<'a> Maker<'a> {
    /// Reads the proofs of all lessons.
    pub fn new(system: &'a Metamath, split: &'a Split) -> Self {
        // Create it before the threads need it, because its creation also uses them.
        system.assertion_index();
        let steps = split
            .lessons
            .par_iter()
            .map_init(Unifier::new, |unifier, lesson| intermediates(system, unifier, lesson))
            .collect();
        Self { theory: system.theory(), system, split, steps }
    }

    /// Builds the corpus: up to `per_target` examples for each lesson. No text in it states a target of the split.
    pub fn examples(&self, seed: u64, per_target: usize) -> Vec<ReviewExample> {
        (0..self.split.lessons.len())
            .into_par_iter()
            .map_init(Unifier::new, |unifier, index| {
                let lesson = &self.split.lessons[index];
                let subject = self.subject(lesson, index, &self.steps[index]);
                let mut draw = SeededRng::numbered(seed, "reviews", u64::from(lesson.rule.0));
                self.examples_of(&subject, per_target, true, unifier, &mut draw)
            })
            .flatten_iter()
            .collect()
    }

    /// Builds examples for the targets of the split from their own proofs. They are used to evaluate a Guide, never to
    /// train one.
    pub fn of_targets(&self, seed: u64, per_target: usize) -> Vec<ReviewExample> {
        self.split
            .targets
            .par_iter()
            .map_init(Unifier::new, |unifier, &rule| {
                let Ok(Some(steps)) = theorem_proof(self.theory, rule, LESSON_STEPS) else {
                    return Vec::new();
                };
                let Some(statement) = normal_form_of_rule(self.theory, rule) else { return Vec::new() };
                let lesson = TheoremProof { rule, statement, steps };
                let steps = intermediates(self.system, unifier, &lesson);
                let position = self.split.lessons.partition_point(|l| l.rule < rule);
                let mut draw = SeededRng::numbered(seed, "reviews of targets", u64::from(rule.0));
                let subject = self.subject(&lesson, position, &steps);
                self.examples_of(&subject, per_target, false, unifier, &mut draw)
            })
            .flatten_iter()
            .collect()
    }

    fn subject<'s>(
        &self,
        lesson: &'s TheoremProof,
        position: usize,
        steps: &'s [Intermediate],
    ) -> Subject<'s> {
        let mut uses: Vec<RuleId> = lesson.steps.iter().filter_map(|step| step.rule()).collect();
        uses.sort_unstable();
        uses.dedup();
        let grammar = self.theory.grammar();
        let mut terms: FxHashMap<TypeId, Vec<&[TreeNode]>> = FxHashMap::default();
        for tree in lesson.statement.trees() {
            for (at, &head) in tree.iter().enumerate() {
                let t = match head.as_production() {
                    Some(p) => Some(grammar.productions()[p as usize].result),
                    None => head.as_variable().and_then(|v| self.theory.type_of_variable(v)),
                };
                if let Some(t) = t {
                    terms.entry(t).or_default().push(&tree[at..grammar.subtree_end(tree, at)]);
                }
            }
        }
        Subject { lesson, position, steps, uses, terms }
    }

    fn examples_of(
        &self,
        subject: &Subject<'_>,
        per_target: usize,
        for_training: bool,
        unifier: &mut Unifier,
        draw: &mut SeededRng,
    ) -> Vec<ReviewExample> {
        let lesson = subject.lesson;
        if lesson.statement.symbols(self.theory) > MAX_SYMBOLS || lesson.steps.len() < 2 {
            return Vec::new();
        }
        let target = lesson.statement.text(self.theory);
        let mut out: Vec<ReviewExample> = Vec::new();
        let mut seen = FxHashSet::default();
        for _ in 0..per_target * 3 {
            if out.len() == per_target {
                break;
            }
            let Some((conjecture, relation, review)) = self.example(subject, unifier, draw) else { continue };
            let print = normal_text(self.theory, &conjecture);
            if for_training && self.split.forbidden.contains(&print)
                || conjecture.symbols(self.theory) > MAX_SYMBOLS
                || !seen.insert(print)
            {
                continue;
            }
            out.push(ReviewExample {
                source: lesson.rule,
                relation,
                target: target.clone(),
                conjecture: conjecture.text(self.theory),
                review,
            });
        }
        out
    }

    /// Draws a conjecture, and returns it in normal form with its relation to the target and its scores.
    fn example(
        &self,
        subject: &Subject<'_>,
        unifier: &mut Unifier,
        draw: &mut SeededRng,
    ) -> Option<(Statement, Relation, Review)> {
        let source = *draw.pick(&SOURCES)?;
        let plain = self.draw_from(subject, source, draw)?;
        let drawn_as = match source {
            Source::MainStep => Relation::MainStep,
            Source::Step => Relation::Step,
            Source::Target => Relation::Duplicate,
            _ => Relation::Other,
        };
        // Only conjectures that can help get additional claims or hypotheses.
        let (statement, complexity, redundancy) = match drawn_as {
            Relation::Duplicate => (plain, 0.0, 0.0),
            _ => {
                let (statement, complexity) = self.complicate(subject, plain, draw)?;
                let (statement, redundancy) = self.add_hypothesis(subject, statement, draw);
                (statement, complexity, redundancy)
            }
        };
        let normal = statement.normal_form(self.theory, |_| None)?;
        let relation = self.relation(subject, drawn_as, &normal, unifier)?;
        let relevance = match relation {
            Relation::MainStep => 5.0,
            Relation::Step => 4.0,
            Relation::Other => 1.0 + self.closeness(&subject.lesson.statement, &normal),
            Relation::Known | Relation::OneStep | Relation::Duplicate => {
                return Some((normal, relation, WORTHLESS));
            }
        };
        Some((normal, relation, Review { relevance, redundancy, complexity }))
    }

    /// Determines the relation of a conjecture to the target: worthless if that can be shown, otherwise the one that it was
    /// drawn with. Returns `None` if the statement is invalid at the target's position.
    fn relation(
        &self,
        subject: &Subject<'_>,
        drawn_as: Relation,
        conjecture: &Statement,
        unifier: &mut Unifier,
    ) -> Option<Relation> {
        let place = self.theory.rule(subject.lesson.rule).statement;
        Goal::new(self.theory, conjecture, place).ok()?;
        Some(match self.system.assertion_index().triviality(self.theory, unifier, conjecture, place) {
            Some(Triviality::Known) => Relation::Known,
            Some(Triviality::OneStep) => Relation::OneStep,
            None if application(self.theory, subject.lesson.rule, conjecture).is_some() => {
                Relation::Duplicate
            }
            None => drawn_as,
        })
    }

    /// Draws a conjecture from a source, without additions.
    fn draw_from(&self, subject: &Subject<'_>, source: Source, draw: &mut SeededRng) -> Option<Statement> {
        let half = subject.lesson.steps.len().div_ceil(2);
        match source {
            Source::MainStep => {
                let main: Vec<_> = subject.steps.iter().filter(|s| s.steps >= half && s.steps >= 3).collect();
                draw.pick(&main).map(|s| s.statement.clone())
            }
            Source::Step => {
                let rest: Vec<_> = subject.steps.iter().filter(|s| s.steps < half).collect();
                draw.pick(&rest).map(|s| s.statement.clone())
            }
            Source::Section => self.near(subject, 1, SECTION, draw),
            Source::Chapter => self.near(subject, SECTION + 1, CHAPTER, draw),
            Source::Elsewhere => {
                let other = (0..64)
                    .map(|_| draw.index(self.split.lessons.len()))
                    .find(|&other| other.abs_diff(subject.position) > ELSEWHERE)?;
                self.statement_of_lesson(other, draw)
            }
            Source::Earlier => {
                let rule = match draw.chance(0.5) {
                    true => *draw.pick(&subject.uses)?,
                    false => RuleId(draw.index(subject.lesson.rule.0 as usize) as u32),
                };
                normal_form_of_rule(self.theory, rule)
            }
            Source::Instance => self.instance(subject, self.rule_at_hand(subject, draw)?, draw),
            Source::Target => self.target_again(subject, draw),
        }
    }

    fn near(&self, subject: &Subject<'_>, from: usize, to: usize, draw: &mut SeededRng) -> Option<Statement> {
        let distance = from + draw.index(to + 1 - from);
        let other = match draw.chance(0.5) {
            true => subject.position.checked_sub(distance)?,
            false => subject.position + distance,
        };
        (other < self.split.lessons.len()).then(|| self.statement_of_lesson(other, draw))?
    }

    /// Returns another theorem, or an intermediate statement of its proof.
    fn statement_of_lesson(&self, other: usize, draw: &mut SeededRng) -> Option<Statement> {
        let steps: Vec<_> = self.steps[other].iter().filter(|s| s.fault.is_none()).collect();
        match draw.chance(0.25) {
            true => Some(self.split.lessons[other].statement.clone()),
            false => draw.pick(&steps).map(|s| s.statement.clone()),
        }
    }

    /// Returns a rule before the target that its own proof or the proof of a nearby theorem uses.
    fn rule_at_hand(&self, subject: &Subject<'_>, draw: &mut SeededRng) -> Option<RuleId> {
        if draw.chance(0.5) {
            return draw.pick(&subject.uses).copied();
        }
        let near = subject.position.saturating_sub(draw.index(CHAPTER) + 1);
        let steps = &self.split.lessons.get(near)?.steps;
        draw.pick(&steps.iter().filter_map(|step| step.rule()).collect::<Vec<_>>()).copied()
    }

    /// Returns an instance of a rule with formulas and terms of the target.
    fn instance(&self, subject: &Subject<'_>, rule: RuleId, draw: &mut SeededRng) -> Option<Statement> {
        let r = self.theory.rule(rule);
        let mut values: FxHashMap<Symbol, Vec<TreeNode>> = FxHashMap::default();
        for &(variable, t) in &r.variables {
            let own = subject.terms.get(&t).and_then(|terms| draw.pick(terms)).map(|term| term.to_vec());
            let fresh =
                || self.theory.variables().iter().find(|v| v.1 == t).map(|v| vec![TreeNode::variable(v.0)]);
            values.insert(variable, own.or_else(fresh)?);
        }
        let put = |tree: &Tree| -> Tree {
            let value = |h: &TreeNode| h.as_variable().and_then(|v| values.get(&v)).cloned();
            tree.iter().flat_map(|h| value(h).unwrap_or_else(|| vec![*h])).collect()
        };
        let mut pairs = Vec::new();
        for (a, b) in &r.distinct {
            let variables =
                |v| values.get(v).into_iter().flatten().filter_map(|h: &TreeNode| h.as_variable());
            for x in variables(a) {
                for y in variables(b) {
                    if x == y {
                        return None;
                    }
                    pairs.push(distinct(x, y));
                }
            }
        }
        let hypotheses = r.hypotheses.iter().map(put).collect();
        let instance = Statement { hypotheses, conclusion: put(&r.conclusion), ..Statement::default() };
        Some(instance.with_distinct(pairs))
    }

    /// Returns the target itself, with reordered hypotheses, as an instance, or with an unused antecedent.
    fn target_again(&self, subject: &Subject<'_>, draw: &mut SeededRng) -> Option<Statement> {
        let own = &subject.lesson.statement;
        Some(match draw.index(4) {
            0 => own.clone(),
            1 => {
                let mut hypotheses = own.hypotheses.to_vec();
                draw.shuffle_by_index(&mut hypotheses);
                Statement { hypotheses: hypotheses.into(), ..own.clone() }
            }
            2 => self.instance(subject, subject.lesson.rule, draw)?,
            _ => {
                let formulas = subject.terms.get(&self.theory.formula_type())?;
                let mut conclusion = vec![TreeNode::production(self.system.connectives().implication?)];
                conclusion.extend_from_slice(draw.pick(formulas)?);
                conclusion.extend_from_slice(&own.conclusion);
                Statement { conclusion: conclusion.into(), ..own.clone() }
            }
        })
    }

    /// Returns how much of the target's vocabulary another statement shares: 0 for little, 1, or 2 for most of it.
    fn closeness(&self, target: &Statement, other: &Statement) -> f64 {
        let words = |s: &Statement| -> FxHashMap<u32, i64> {
            let mut out = FxHashMap::default();
            for p in s.trees().flat_map(|t| t.iter().filter_map(|h| h.as_production())) {
                *out.entry(p).or_insert(0) += 1;
            }
            out
        };
        let (a, b) = (words(target), words(other));
        let common: i64 = a.iter().map(|(p, n)| *n.min(b.get(p).unwrap_or(&0))).sum();
        let all = a.values().sum::<i64>() + b.values().sum::<i64>() - common;
        let share = common as f64 / all.max(1) as f64;
        f64::from(u8::from(share >= 0.3)) + f64::from(u8::from(share >= 0.55))
    }

    /// Returns the complexity of a statement without additions.
    fn natural_complexity(&self, statement: &Statement) -> f64 {
        let c = self.system.connectives();
        let consequent = c.consequent(self.theory, &statement.conclusion);
        let parts = |connectives| Connectives::parts(self.theory, consequent, connectives);
        match (parts(&c.conjunction), parts(&c.disjunction)) {
            (1, 1) => 0.0,
            (2..=3, 1) => 1.0,
            (_, 1 | 2) => 2.0,
            (_, 3) => 3.0,
            _ => 4.0,
        }
    }

    /// Adds claims to the conclusion of one statement in five, and returns the complexity.
    fn complicate(
        &self,
        subject: &Subject<'_>,
        statement: Statement,
        draw: &mut SeededRng,
    ) -> Option<(Statement, f64)> {
        let natural = self.natural_complexity(&statement);
        let connectives = self.system.connectives();
        let (and, or) = (*connectives.conjunction.first()?, *connectives.disjunction.first()?);
        let wanted = if draw.chance(0.8) { 0 } else { 1 + draw.index(4) };
        let (parts, connective, complexity) = match wanted {
            1 if natural == 0.0 => {
                let n = 1 + draw.index(2);
                (related(subject, &statement, n, draw)?, and, 1.0)
            }
            2 if natural == 0.0 && draw.chance(0.5) => (related(subject, &statement, 1, draw)?, or, 2.0),
            2 if natural == 0.0 => (related(subject, &statement, 3, draw)?, and, 2.0),
            3 => (self.unrelated(subject, 2, draw)?, or, 3.0),
            4 => {
                let n = 3 + draw.index(2);
                (self.unrelated(subject, n, draw)?, or, 4.0)
            }
            _ => return Some((statement, natural)),
        };
        let mut conclusion: Vec<TreeNode> = statement.conclusion.to_vec();
        for part in parts {
            let (left, right) =
                if draw.chance(0.5) { (conclusion, part.to_vec()) } else { (part.to_vec(), conclusion) };
            conclusion = vec![TreeNode::production(connective)];
            conclusion.extend(left);
            conclusion.extend(right);
        }
        Some((Statement { conclusion: conclusion.into(), ..statement }, complexity))
    }

    fn unrelated(&self, subject: &Subject<'_>, n: usize, draw: &mut SeededRng) -> Option<Vec<Tree>> {
        let mut pool = Vec::new();
        for _ in 0..n * 16 {
            let other = draw.index(self.split.lessons.len());
            let conclusion = &self.split.lessons[other].statement.conclusion;
            if other.abs_diff(subject.position) > ELSEWHERE && conclusion.len() <= 16 {
                pool.push(conclusion.clone());
            }
            if pool.len() == n {
                return Some(pool);
            }
        }
        None
    }

    /// Adds an unused hypothesis to one statement in seven.
    fn add_hypothesis(
        &self,
        subject: &Subject<'_>,
        statement: Statement,
        draw: &mut SeededRng,
    ) -> (Statement, f64) {
        if !draw.chance(1.0 / 7.0) || statement.hypotheses.len() >= 6 {
            return (statement, 0.0);
        }
        let Some(other) = self.unrelated(subject, 1, draw).and_then(|mut found| found.pop()) else {
            return (statement, 0.0);
        };
        let mut hypotheses = statement.hypotheses.to_vec();
        hypotheses.insert(draw.index(hypotheses.len() + 1), other);
        (Statement { hypotheses: hypotheses.into(), ..statement }, 1.0)
    }
}

/// Returns related claims: the target's own hypotheses, and other steps of its proof.
fn related(
    subject: &Subject<'_>,
    statement: &Statement,
    n: usize,
    draw: &mut SeededRng,
) -> Option<Vec<Tree>> {
    let mut pool: Vec<Tree> = subject.steps.iter().map(|s| s.statement.conclusion.clone()).collect();
    pool.extend(subject.lesson.statement.hypotheses.iter().cloned());
    pool.retain(|t| *t != statement.conclusion && t.len() <= 24);
    draw.shuffle_by_index(&mut pool);
    pool.truncate(n);
    (pool.len() == n).then_some(pool)
}
