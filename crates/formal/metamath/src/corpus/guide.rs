//! The Guide's corpus: targets with conjectures whose scores are known by how they were made.
//!
//! Relevance, after the paper's rubric: 5 a step of the target's own proof that is at least half of the work; 4
//! another step of it, or a lemma that it uses; 3 a theorem of the same section that uses a common lemma; 2 a
//! theorem of the same chapter; 1 something from elsewhere; 0 the target itself renamed, or something trivial from
//! elsewhere. Redundancy: 1 if a hypothesis was added that nothing needs. Complexity: 0 for one claim, 1 for a
//! conjunction of two or three related claims, 2 for a disjunction of two related ones or a conjunction of four, 3
//! for a disjunction of three claims that have little to do with each other, 4 for four or more.

use super::conjecturer::intermediates;
use super::draw::Draw;
use super::splits::{Lesson, Split, fingerprint};
use crate::features::Connectives;
use crate::grammar::{Head, Tree};
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use crate::unify::{Checker, RuleBook, Step};
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use sgs_selfplay::Review;

/// A conjecture with its known scores.
#[derive(Clone, Debug)]
pub struct ReviewExample {
    /// The target's theorem.
    pub source: RuleId,
    /// How the conjecture was made.
    pub origin: Origin,
    /// Canonical text of the target.
    pub target: String,
    /// Canonical text of the conjecture, in normal form.
    pub conjecture: String,
    /// The scores.
    pub review: Review,
}

/// How a conjecture of the corpus was made, before hypotheses or further claims were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A step that is at least half of the target's proof.
    MainStep,
    /// Another step of the target's proof.
    Step,
    /// A theorem that the target's proof uses.
    Lemma,
    /// A theorem close by that uses a common lemma.
    Section,
    /// A theorem of the same chapter.
    Chapter,
    /// A theorem from elsewhere.
    Elsewhere,
    /// A theorem from elsewhere with a proof of one step.
    Trivial,
    /// The target with other names.
    Renamed,
}

impl Origin {
    const ALL: [Origin; 8] = [
        Origin::MainStep,
        Origin::Step,
        Origin::Lemma,
        Origin::Section,
        Origin::Chapter,
        Origin::Elsewhere,
        Origin::Trivial,
        Origin::Renamed,
    ];

    /// Its name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::MainStep => "main-step",
            Origin::Step => "step",
            Origin::Lemma => "lemma",
            Origin::Section => "section",
            Origin::Chapter => "chapter",
            Origin::Elsewhere => "elsewhere",
            Origin::Trivial => "trivial",
            Origin::Renamed => "renamed",
        }
    }

    fn relevance(self) -> f64 {
        match self {
            Origin::MainStep => 5.0,
            Origin::Step | Origin::Lemma => 4.0,
            Origin::Section => 3.0,
            Origin::Chapter => 2.0,
            Origin::Elsewhere => 1.0,
            Origin::Trivial | Origin::Renamed => 0.0,
        }
    }
}

const MAX_SYMBOLS: usize = 100;
const SECTION: usize = 40;
const CHAPTER: usize = 400;
const ELSEWHERE: usize = 2_000;

struct Maker<'a> {
    theory: &'a Theory,
    book: &'a RuleBook,
    split: &'a Split,
    connectives: Connectives,
    /// For each lesson the rules that it uses.
    uses: Vec<FxHashSet<RuleId>>,
}

/// The corpus: up to `per_target` examples for each lesson.
pub fn examples(
    theory: &Theory,
    book: &RuleBook,
    split: &Split,
    seed: u64,
    per_target: usize,
) -> Vec<ReviewExample> {
    let uses = split
        .lessons
        .iter()
        .map(|l| {
            l.steps.iter().filter_map(|s| if let Step::Rule(id) = s { Some(*id) } else { None }).collect()
        })
        .collect();
    let maker = Maker { theory, book, split, connectives: Connectives::of(theory), uses };
    let found: Vec<Vec<ReviewExample>> = (0..split.lessons.len())
        .into_par_iter()
        .map_init(Checker::new, |checker, index| {
            let mut draw = Draw::new(seed.wrapping_add(index as u64), "reviews");
            maker.examples_of(index, per_target, checker, &mut draw)
        })
        .collect();
    found.into_iter().flatten().collect()
}

impl Maker<'_> {
    fn examples_of(
        &self,
        index: usize,
        per_target: usize,
        checker: &mut Checker,
        draw: &mut Draw,
    ) -> Vec<ReviewExample> {
        let lesson = &self.split.lessons[index];
        let target = lesson.statement.text(self.theory);
        if target.split_ascii_whitespace().count() > MAX_SYMBOLS || lesson.steps.len() < 2 {
            return Vec::new();
        }
        let own = fingerprint(self.theory, &lesson.statement);
        let steps = intermediates(self.theory, self.book, checker, lesson);
        let mut out = Vec::new();
        for _ in 0..per_target * 3 {
            if out.len() == per_target {
                break;
            }
            let Some(&origin) = draw.pick(&Origin::ALL) else { break };
            let Some(base) = self.base(index, origin, &steps, draw) else { continue };
            if origin != Origin::Renamed && fingerprint(self.theory, &base) == own {
                continue;
            }
            let Some((statement, complexity)) = self.complicate(index, base, &steps, draw) else { continue };
            let (statement, redundancy) = self.add_hypothesis(index, statement, draw);
            let Some(normal) = statement.normal_form(self.theory, |_| None) else { continue };
            let print = fingerprint(self.theory, &normal);
            let conjecture = normal.text(self.theory);
            if self.split.forbidden.contains(&print)
                || conjecture.split_ascii_whitespace().count() > MAX_SYMBOLS
            {
                continue;
            }
            let relevance = origin.relevance();
            let review = Review { relevance, redundancy, complexity };
            out.push(ReviewExample {
                source: lesson.rule,
                origin,
                target: target.clone(),
                conjecture,
                review,
            });
        }
        out
    }

    /// A conjecture of an origin, before anything is added.
    fn base(
        &self,
        index: usize,
        origin: Origin,
        steps: &[super::conjecturer::Intermediate],
        draw: &mut Draw,
    ) -> Option<Statement> {
        let lesson = &self.split.lessons[index];
        let half = lesson.steps.len().div_ceil(2);
        match origin {
            Origin::MainStep => {
                let main: Vec<_> = steps.iter().filter(|s| s.steps >= half && s.steps >= 3).collect();
                draw.pick(&main).map(|s| s.statement.clone())
            }
            Origin::Step => {
                let rest: Vec<_> = steps.iter().filter(|s| s.steps < half && s.steps >= 2).collect();
                draw.pick(&rest).map(|s| s.statement.clone())
            }
            Origin::Lemma => {
                let used: Vec<&Lesson> = self.used_lessons(index).collect();
                draw.pick(&used).map(|l| l.statement.clone())
            }
            Origin::Section => self.near(index, 1, SECTION, draw, |other| {
                !self.uses[index].is_disjoint(&self.uses[other])
                    && !self.uses[index].contains(&self.split.lessons[other].rule)
            }),
            Origin::Chapter => self.near(index, SECTION + 1, CHAPTER, draw, |other| {
                !self.uses[index].contains(&self.split.lessons[other].rule)
                    && self.split.lessons[other].steps.len() > 1
            }),
            Origin::Elsewhere => self.elsewhere(index, draw, |l| l.steps.len() >= 3),
            Origin::Trivial => self.elsewhere(index, draw, |l| l.steps.len() <= 1),
            Origin::Renamed => Some(lesson.statement.clone()),
        }
    }

    /// Lessons that a lesson uses and that take some work themselves.
    fn used_lessons(&self, index: usize) -> impl Iterator<Item = &Lesson> {
        let mut used: Vec<RuleId> = self.uses[index].iter().copied().collect();
        used.sort_unstable();
        used.into_iter().filter_map(|id| {
            let at = self.split.lessons.binary_search_by_key(&id, |l| l.rule).ok()?;
            Some(&self.split.lessons[at]).filter(|l| l.steps.len() >= 2)
        })
    }

    fn near(
        &self,
        index: usize,
        from: usize,
        to: usize,
        draw: &mut Draw,
        fits: impl Fn(usize) -> bool,
    ) -> Option<Statement> {
        for _ in 0..16 {
            let distance = from + draw.below(to + 1 - from);
            let other = if draw.chance(0.5) { index.checked_sub(distance)? } else { index + distance };
            if other < self.split.lessons.len() && fits(other) {
                return Some(self.split.lessons[other].statement.clone());
            }
        }
        None
    }

    fn elsewhere(&self, index: usize, draw: &mut Draw, fits: impl Fn(&Lesson) -> bool) -> Option<Statement> {
        for _ in 0..64 {
            let other = draw.below(self.split.lessons.len());
            let lesson = &self.split.lessons[other];
            if other.abs_diff(index) > ELSEWHERE && fits(lesson) && !self.uses[index].contains(&lesson.rule) {
                return Some(lesson.statement.clone());
            }
        }
        None
    }

    /// How complex a statement is as it stands.
    fn natural_complexity(&self, statement: &Statement) -> f64 {
        let c = &self.connectives;
        let consequent = c.consequent(self.theory, &statement.conclusion);
        let conjunctions = c.parts(self.theory, consequent, |h| c.is_conjunction(h));
        let disjunctions = c.parts(self.theory, consequent, |h| c.is_disjunction(h));
        match (conjunctions, disjunctions) {
            (1, 1) => 0.0,
            (2..=3, 1) => 1.0,
            (_, 1) => 2.0,
            (_, 2) => 2.0,
            (_, 3) => 3.0,
            _ => 4.0,
        }
    }

    /// Leaves a statement as it is, or joins further claims to its conclusion; says the complexity.
    fn complicate(
        &self,
        index: usize,
        statement: Statement,
        steps: &[super::conjecturer::Intermediate],
        draw: &mut Draw,
    ) -> Option<(Statement, f64)> {
        let natural = self.natural_complexity(&statement);
        let (and, or) = self.connectives.binary()?;
        let wanted = if draw.chance(0.5) { 0 } else { 1 + draw.below(4) };
        // Related claims: the statement's own hypotheses and conclusion, and other steps of the target's proof.
        let related = |draw: &mut Draw, n: usize| -> Option<Vec<Tree>> {
            let mut pool: Vec<Tree> = steps.iter().map(|s| s.statement.conclusion.clone()).collect();
            pool.extend(self.split.lessons[index].statement.hypotheses.iter().cloned());
            pool.retain(|t| *t != statement.conclusion && t.len() <= 24);
            draw.shuffle(&mut pool);
            pool.truncate(n);
            (pool.len() == n).then_some(pool)
        };
        let unrelated = |draw: &mut Draw, n: usize| -> Option<Vec<Tree>> {
            let mut pool = Vec::new();
            for _ in 0..n * 8 {
                let far = self.elsewhere(index, draw, |l| l.statement.conclusion.len() <= 16)?;
                pool.push(far.conclusion);
                if pool.len() == n {
                    return Some(pool);
                }
            }
            None
        };
        let (parts, connective, complexity) = match wanted {
            1 if natural == 0.0 => {
                let n = 1 + draw.below(2);
                (related(draw, n)?, and, 1.0)
            }
            2 if natural == 0.0 && draw.chance(0.5) => (related(draw, 1)?, or, 2.0),
            2 if natural == 0.0 => (related(draw, 3)?, and, 2.0),
            3 => (unrelated(draw, 2)?, or, 3.0),
            4 => {
                let n = 3 + draw.below(2);
                (unrelated(draw, n)?, or, 4.0)
            }
            _ => return Some((statement, natural)),
        };
        let mut conclusion: Vec<Head> = statement.conclusion.to_vec();
        for part in parts {
            let (left, right) =
                if draw.chance(0.5) { (conclusion, part.to_vec()) } else { (part.to_vec(), conclusion) };
            conclusion = vec![Head::production(connective)];
            conclusion.extend(left);
            conclusion.extend(right);
        }
        Some((Statement { conclusion: conclusion.into(), ..statement }, complexity))
    }

    /// Adds, to one statement in four, a hypothesis that nothing needs.
    fn add_hypothesis(&self, index: usize, statement: Statement, draw: &mut Draw) -> (Statement, f64) {
        if !draw.chance(0.25) || statement.hypotheses.len() >= 6 {
            return (statement, 0.0);
        }
        let Some(other) = self.elsewhere(index, draw, |l| l.statement.conclusion.len() <= 16) else {
            return (statement, 0.0);
        };
        let mut hypotheses = statement.hypotheses.to_vec();
        hypotheses.insert(draw.below(hypotheses.len() + 1), other.conclusion);
        (Statement { hypotheses: hypotheses.into(), ..statement }, 1.0)
    }
}
