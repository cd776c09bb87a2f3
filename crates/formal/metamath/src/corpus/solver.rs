//! The Solver's corpus: theorems, sub-proofs as theorems of their own, and theorems composed at random forwards.

use super::draw::Draw;
use super::splits::{Lesson, NormalText, Split, normal_text};
use crate::proof_text::write_steps;
use crate::statement::Statement;
use crate::theory::{RuleId, Theory};
use crate::unify::{Checker, Goal, ProofLimits, RuleBook, Step};
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use sha2::{Digest, Sha256};

/// A statement with a proof, for training.
#[derive(Clone, Debug)]
pub struct ProofExample {
    /// Where it comes from.
    pub kind: ProofKind,
    /// The theorem that it comes from, or before which it was composed.
    pub source: RuleId,
    /// Canonical text of the statement, in normal form.
    pub statement: String,
    /// The proof in canonical text.
    pub proof: String,
}

/// Where an example comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProofKind {
    /// A theorem of the database.
    Theorem,
    /// A part of a theorem's proof.
    SubProof,
    /// Composed at random.
    Composed,
}

impl ProofKind {
    /// Its name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            ProofKind::Theorem => "theorem",
            ProofKind::SubProof => "sub-proof",
            ProofKind::Composed => "composed",
        }
    }
}

/// Bounds on composed theorems and sub-proofs: symbols of the statement, and steps.
const MAX_SYMBOLS: usize = 100;
const MAX_STEPS: usize = 24;
const MAX_NODES: usize = 100;

/// The lessons themselves.
pub fn theorems(theory: &Theory, split: &Split) -> Vec<ProofExample> {
    split
        .lessons
        .iter()
        .filter(|l| l.steps.len() <= MAX_STEPS * 2)
        .map(|l| ProofExample {
            kind: ProofKind::Theorem,
            source: l.rule,
            statement: l.statement.text(theory),
            proof: write_steps(theory, &l.steps),
        })
        .filter(|e| e.statement.split_ascii_whitespace().count() <= MAX_SYMBOLS * 2)
        .collect()
}

/// Start of each step's sub-proof in the postfix list: the sub-proof of step `i` is `starts[i]..=i`.
pub(crate) fn sub_proof_starts(theory: &Theory, steps: &[Step]) -> Vec<usize> {
    let mut starts = Vec::with_capacity(steps.len());
    let mut stack: Vec<usize> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let arity = match step {
            Step::Hypothesis(_) => 0,
            Step::Rule(id) => theory.rule(*id).hypotheses.len(),
        };
        let base = stack.len().saturating_sub(arity);
        let start = stack.get(base).copied().filter(|_| arity > 0).unwrap_or(i);
        stack.truncate(base);
        stack.push(start);
        starts.push(start);
    }
    starts
}

/// Numbers the hypotheses of some steps anew in order of appearance; also says which were used.
pub(crate) fn renumber(steps: &[Step]) -> (Vec<Step>, Vec<u32>) {
    let mut used: Vec<u32> = Vec::new();
    let steps = steps
        .iter()
        .map(|step| match step {
            Step::Hypothesis(h) => {
                let n = used.iter().position(|u| u == h).unwrap_or_else(|| {
                    used.push(*h);
                    used.len() - 1
                });
                Step::Hypothesis(n as u32)
            }
            rule => *rule,
        })
        .collect();
    (steps, used)
}

/// Every sub-proof with at least two steps, as the most general theorem that it proves.
pub fn sub_proofs(theory: &Theory, book: &RuleBook, split: &Split) -> Vec<ProofExample> {
    let found: Vec<Vec<(ProofExample, NormalText)>> = split
        .lessons
        .par_iter()
        .map_init(Checker::new, |checker, lesson| sub_proofs_of(theory, book, split, lesson, checker))
        .collect();
    let mut seen = FxHashSet::default();
    found.into_iter().flatten().filter(|(_, f)| seen.insert(f.clone())).map(|(e, _)| e).collect()
}

fn sub_proofs_of(
    theory: &Theory,
    book: &RuleBook,
    split: &Split,
    lesson: &Lesson,
    checker: &mut Checker,
) -> Vec<(ProofExample, NormalText)> {
    let starts = sub_proof_starts(theory, &lesson.steps);
    let mut out = Vec::new();
    for (end, &start) in starts.iter().enumerate() {
        let length = end + 1 - start;
        if !(2..=MAX_STEPS).contains(&length) || end + 1 == lesson.steps.len() {
            continue;
        }
        let (steps, used) = renumber(&lesson.steps[start..=end]);
        let found = general(theory, book, checker, lesson.rule, &steps, used.len());
        if let Some((statement, print)) = found
            && !split.forbidden.contains(&print)
        {
            let example = ProofExample {
                kind: ProofKind::SubProof,
                source: lesson.rule,
                statement: statement.text(theory),
                proof: write_steps(theory, &steps),
            };
            out.push((example, print));
        }
    }
    out
}

/// The most general statement that steps prove, in normal form, if it is worth learning.
fn general(
    theory: &Theory,
    book: &RuleBook,
    checker: &mut Checker,
    context: RuleId,
    steps: &[Step],
    hypotheses: usize,
) -> Option<(Statement, NormalText)> {
    let goal = Goal::open(hypotheses as u32, theory.rule(context).statement);
    let statement = checker.most_general(theory, book, &goal, steps, ProofLimits::default(), MAX_NODES)?;
    // A formula that is a bare variable says nothing or everything.
    if statement.conclusion.len() < 2 || statement.hypotheses.contains(&statement.conclusion) {
        return None;
    }
    let normal = statement.normal_form(theory, |_| None)?;
    let symbols = normal.text(theory).split_ascii_whitespace().count();
    if symbols > MAX_SYMBOLS {
        return None;
    }
    let print = normal_text(theory, &normal);
    Some((normal, print))
}

/// Theorems composed at random forwards: an unlimited, seeded generator.
///
/// Each attempt picks a place in the database and grows a proof from rules before it, drawn by how often the lessons
/// use them: push a rule without hypotheses or a hypothesis, or apply a rule to what lies on the stack. What comes
/// out is the most general theorem that the steps prove.
pub struct Composer<'a> {
    theory: &'a Theory,
    book: &'a RuleBook,
    split: &'a Split,
    /// Uses of rules in lessons, in order of the lessons: drawing a position draws a rule by its frequency, and
    /// drawing near a place draws what is used there.
    uses: Vec<RuleId>,
    /// For each rule, how many of `uses` come from lessons before it.
    uses_before: Vec<usize>,
}

impl<'a> Composer<'a> {
    /// A generator over the lessons of a split.
    pub fn new(theory: &'a Theory, book: &'a RuleBook, split: &'a Split) -> Self {
        let mut uses = Vec::new();
        let mut uses_before = vec![0; theory.rules().len() + 1];
        let mut next = 0;
        for lesson in &split.lessons {
            while next <= lesson.rule.0 as usize {
                uses_before[next] = uses.len();
                next += 1;
            }
            uses.extend(lesson.steps.iter().filter_map(|s| match s {
                Step::Rule(id) => Some(*id),
                Step::Hypothesis(_) => None,
            }));
        }
        for slot in &mut uses_before[next..] {
            *slot = uses.len();
        }
        Self { theory, book, split, uses, uses_before }
    }

    /// `count` different examples in batches, each made in parallel, always the same for a seed whatever the number of
    /// threads; fewer only if the database is so small that new ones run out. Of what was given out only the hashes
    /// stay in memory, 16 bytes each.
    pub fn batches(&self, seed: u64, count: usize) -> impl Iterator<Item = Vec<ProofExample>> {
        const ATTEMPTS: usize = 16_384;
        let mut seen: FxHashSet<u128> =
            self.split.lessons.iter().map(|l| digest(&normal_text(self.theory, &l.statement))).collect();
        let mut left = count;
        let mut tried = 0..1 + count * 64 / ATTEMPTS;
        std::iter::from_fn(move || {
            let first = (tried.next().filter(|_| left > 0)? * ATTEMPTS) as u64;
            let found: Vec<Option<(ProofExample, u128)>> = (first..first + ATTEMPTS as u64)
                .into_par_iter()
                .map_init(Checker::new, |checker, number| {
                    let mut draw = Draw::numbered(seed, "compose", number);
                    self.attempt(&mut draw, checker).map(|(example, print)| (example, digest(&print)))
                })
                .collect();
            // One after the other, in order of their numbers: of equal ones the first stays on every machine.
            let new = found.into_iter().flatten().filter(|(_, print)| seen.insert(*print));
            let batch: Vec<ProofExample> = new.map(|(example, _)| example).take(left).collect();
            left -= batch.len();
            Some(batch)
        })
    }

    fn attempt(&self, draw: &mut Draw, checker: &mut Checker) -> Option<(ProofExample, NormalText)> {
        let rules = self.theory.rules().len();
        let context = RuleId((20 + draw.below(rules - 20)) as u32);
        let available = self.uses_before[context.0 as usize];
        if available == 0 {
            return None;
        }
        let wanted = 2 + draw.below(6);
        let (mut steps, mut hypotheses, mut depth) = (Vec::new(), 0u32, 0usize);
        for _ in 0..wanted * 8 {
            if steps.len() >= wanted && depth == 1 {
                break;
            }
            let tried = self.next_step(draw, context, available, depth, hypotheses);
            let Some((step, takes)) = tried else { continue };
            steps.push(step);
            let more = u32::from(step == Step::Hypothesis(hypotheses));
            if takes > 0 && !self.fits(checker, context, &steps, hypotheses) {
                steps.pop();
                continue;
            }
            hypotheses += more;
            depth = depth + 1 - takes;
        }
        let applied = steps.iter().filter(|s| matches!(s, Step::Rule(_))).count();
        if depth != 1 || applied < 2 || steps.len() > MAX_STEPS {
            return None;
        }
        let (statement, print) =
            general(self.theory, self.book, checker, context, &steps, hypotheses as usize)?;
        if self.split.forbidden.contains(&print) {
            return None;
        }
        let example = ProofExample {
            kind: ProofKind::Composed,
            source: context,
            statement: statement.text(self.theory),
            proof: write_steps(self.theory, &steps),
        };
        Some((example, print))
    }

    /// A step that the stack allows, with the number of entries that it takes.
    fn next_step(
        &self,
        draw: &mut Draw,
        context: RuleId,
        available: usize,
        depth: usize,
        hypotheses: u32,
    ) -> Option<(Step, usize)> {
        if depth < 3 && hypotheses < 3 && draw.chance(0.2) {
            return Some((Step::Hypothesis(hypotheses), 0));
        }
        // Half of the draws come from what is used shortly before the place.
        let near = available.min(4_000);
        let index = if draw.chance(0.5) { available - 1 - draw.below(near) } else { draw.below(available) };
        let id = self.uses[index];
        if id >= context {
            return None;
        }
        let takes = self.theory.rule(id).hypotheses.len();
        (takes <= depth && (takes > 0 || depth < 3)).then_some((Step::Rule(id), takes))
    }

    /// Whether the steps so far unify; the stack may hold several formulas.
    fn fits(&self, checker: &mut Checker, context: RuleId, steps: &[Step], hypotheses: u32) -> bool {
        let goal = Goal::open(hypotheses, self.theory.rule(context).statement);
        checker.unifies(self.theory, self.book, &goal, steps, ProofLimits::default())
    }
}

/// The first half of a normal text's SHA-256: equal for no two statements that anybody will ever see.
fn digest(print: &NormalText) -> u128 {
    let hash: [u8; 32] = Sha256::digest(print.as_bytes()).into();
    u128::from_le_bytes(std::array::from_fn(|i| hash[i]))
}
