//! The Solver's corpus: theorems, sub-proofs as separate theorems, and theorems composed at random.

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use sgs_base::random::SeededRng;
use sgs_metamath::normal_text::{NormalText, normal_text};
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::{Lesson, Split};
use sgs_metamath::statement::Statement;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{CompiledRules, Goal, ProofLimits, ProofStep, Unifier};
use sha2::{Digest, Sha256};

/// A statement with a proof, for training.
#[derive(Clone, Debug)]
pub struct ProofExample {
    /// The kind of its source.
    pub kind: ProofKind,
    /// The theorem that it comes from, or the position at which it was composed.
    pub source: RuleId,
    /// Canonical text of the statement, in normal form.
    pub statement: String,
    /// The proof in canonical text.
    pub proof: String,
}

/// The source of an example.
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

/// The lessons as examples.
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

/// Every sub-proof with at least two steps, as the most general theorem that it proves.
pub fn sub_proofs(theory: &Theory, compiled: &CompiledRules, split: &Split) -> Vec<ProofExample> {
    let found: Vec<Vec<(ProofExample, NormalText)>> = split
        .lessons
        .par_iter()
        .map_init(Unifier::new, |unifier, lesson| sub_proofs_of(theory, compiled, split, lesson, unifier))
        .collect();
    let mut seen = FxHashSet::default();
    found.into_iter().flatten().filter(|(_, f)| seen.insert(f.clone())).map(|(e, _)| e).collect()
}

fn sub_proofs_of(
    theory: &Theory,
    compiled: &CompiledRules,
    split: &Split,
    lesson: &Lesson,
    unifier: &mut Unifier,
) -> Vec<(ProofExample, NormalText)> {
    let starts = sub_proof_starts(theory, &lesson.steps);
    let mut out = Vec::new();
    for (end, &start) in starts.iter().enumerate() {
        let length = end + 1 - start;
        if !(2..=MAX_STEPS).contains(&length) || end + 1 == lesson.steps.len() {
            continue;
        }
        let (steps, used) = renumber(&lesson.steps[start..=end]);
        let found = general(theory, compiled, unifier, lesson.rule, &steps, used.len());
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
    compiled: &CompiledRules,
    unifier: &mut Unifier,
    context: RuleId,
    steps: &[ProofStep],
    hypotheses: usize,
) -> Option<(Statement, NormalText)> {
    let goal = Goal::open(hypotheses as u32, theory.rule(context).statement);
    let statement =
        unifier.most_general(theory, compiled, &goal, steps, ProofLimits::default(), MAX_NODES)?;
    // A formula that is a single variable is trivial or contradictory.
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

/// An unlimited, seeded generator of random theorems.
///
/// Each attempt picks a position in the database and builds a proof from earlier rules, drawn by their frequency in the
/// lessons. A step pushes a hypothesis or a rule without hypotheses, or applies a rule to the top of the stack. The result
/// is the most general theorem that the steps prove.
pub struct Composer<'a> {
    theory: &'a Theory,
    compiled: &'a CompiledRules,
    split: &'a Split,
    /// Uses of rules, in the order of the lessons. A random index draws a rule by its frequency, and an index in a range
    /// draws a rule that is used there.
    uses: Vec<RuleId>,
    /// For each rule, how many of `uses` come from lessons before it.
    uses_before: Vec<usize>,
}

impl<'a> Composer<'a> {
    /// A generator over the lessons of a split.
    pub fn new(theory: &'a Theory, compiled: &'a CompiledRules, split: &'a Split) -> Self {
        let mut uses = Vec::new();
        let mut uses_before = vec![0; theory.rules().len() + 1];
        let mut next = 0;
        for lesson in &split.lessons {
            while next <= lesson.rule.0 as usize {
                uses_before[next] = uses.len();
                next += 1;
            }
            uses.extend(lesson.steps.iter().filter_map(|s| match s {
                ProofStep::Rule(id) => Some(*id),
                ProofStep::Hypothesis(_) => None,
            }));
        }
        for slot in &mut uses_before[next..] {
            *slot = uses.len();
        }
        Self { theory, compiled, split, uses, uses_before }
    }

    /// Generates `count` distinct examples in batches, or fewer if a small database has no more. Batches are made in
    /// parallel, and do not depend on the number of threads. Only a hash of 16 bytes of each example stays in memory.
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
                .map_init(Unifier::new, |unifier, number| {
                    let mut draw = SeededRng::numbered(seed, "compose", number);
                    self.attempt(&mut draw, unifier).map(|(example, print)| (example, digest(&print)))
                })
                .collect();
            // In the order of the numbers, so that the first of several equal examples is kept on every machine.
            let new = found.into_iter().flatten().filter(|(_, print)| seen.insert(*print));
            let batch: Vec<ProofExample> = new.map(|(example, _)| example).take(left).collect();
            left -= batch.len();
            Some(batch)
        })
    }

    fn attempt(&self, draw: &mut SeededRng, unifier: &mut Unifier) -> Option<(ProofExample, NormalText)> {
        let rules = self.theory.rules().len();
        let context = RuleId((20 + draw.index(rules - 20)) as u32);
        let available = self.uses_before[context.0 as usize];
        if available == 0 {
            return None;
        }
        let wanted = 2 + draw.index(6);
        let (mut steps, mut hypotheses, mut depth) = (Vec::new(), 0u32, 0usize);
        for _ in 0..wanted * 8 {
            if steps.len() >= wanted && depth == 1 {
                break;
            }
            let tried = self.next_step(draw, context, available, depth, hypotheses);
            let Some((step, takes)) = tried else { continue };
            steps.push(step);
            let more = u32::from(step == ProofStep::Hypothesis(hypotheses));
            if takes > 0 && !self.fits(unifier, context, &steps, hypotheses) {
                steps.pop();
                continue;
            }
            hypotheses += more;
            depth = depth + 1 - takes;
        }
        let applied = steps.iter().filter(|s| matches!(s, ProofStep::Rule(_))).count();
        if depth != 1 || applied < 2 || steps.len() > MAX_STEPS {
            return None;
        }
        let (statement, print) =
            general(self.theory, self.compiled, unifier, context, &steps, hypotheses as usize)?;
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

    /// Draws a step that the stack allows, and returns it with the number of entries that it takes.
    fn next_step(
        &self,
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
        let takes = self.theory.rule(id).hypotheses.len();
        (takes <= depth && (takes > 0 || depth < 3)).then_some((ProofStep::Rule(id), takes))
    }

    /// Whether the steps so far unify; the stack may hold several formulas.
    fn fits(&self, unifier: &mut Unifier, context: RuleId, steps: &[ProofStep], hypotheses: u32) -> bool {
        let goal = Goal::open(hypotheses, self.theory.rule(context).statement);
        unifier.unifies(self.theory, self.compiled, &goal, steps, ProofLimits::default())
    }
}

/// The first 16 bytes of the SHA-256 of a normal text, which identify a statement.
fn digest(print: &NormalText) -> u128 {
    let hash: [u8; 32] = Sha256::digest(print.as_bytes()).into();
    u128::from_le_bytes(std::array::from_fn(|i| hash[i]))
}
