//! The Solver's corpus: theorems, sub-proofs as separate theorems, and theorems composed at random.

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use sgs_base::random::SeededRng;
use sgs_metamath::composer::{Composer, MAX_STEPS, MAX_SYMBOLS, general, inferences};
use sgs_metamath::normal_text::{NormalText, normal_text};
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::Split;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::TheoremProof;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::Unifier;
use sha2::{Digest, Sha256};

/// A statement with a proof, for training.
#[derive(Clone, Debug)]
pub struct ProofExample {
    /// `theorem` of the database, `sub-proof` of one, or `composed`.
    pub kind: &'static str,
    /// The theorem that it comes from, or the position at which it was composed.
    pub source: RuleId,
    /// Canonical text of the statement in the prompt, in normal form.
    pub statement: String,
    /// The proof in canonical text.
    pub proof: String,
}

impl ProofExample {
    fn new(theory: &Theory, kind: &'static str, of: &TheoremProof) -> Self {
        let (statement, proof) = (of.statement.text(theory), write_steps(theory, &of.steps));
        Self { kind, source: of.rule, statement, proof }
    }
}

/// Returns the lessons as examples.
pub fn theorems(theory: &Theory, split: &Split) -> Vec<ProofExample> {
    split
        .lessons
        .iter()
        .filter(|l| l.steps.len() <= MAX_STEPS * 2)
        .map(|l| ProofExample::new(theory, "theorem", l))
        .filter(|e| e.statement.split_ascii_whitespace().count() <= MAX_SYMBOLS * 2)
        .collect()
}

/// Returns every sub-proof with at least two steps, as the most general theorem that it proves.
pub fn sub_proofs(theory: &Theory, split: &Split) -> Vec<ProofExample> {
    let found: Vec<(ProofExample, NormalText)> = split
        .lessons
        .par_iter()
        .map_init(Unifier::new, |unifier, lesson| sub_proofs_of(theory, split, lesson, unifier))
        .flatten_iter()
        .collect();
    let mut seen = FxHashSet::default();
    found.into_iter().filter(|(_, print)| seen.insert(print.clone())).map(|(e, _)| e).collect()
}

fn sub_proofs_of(
    theory: &Theory,
    split: &Split,
    lesson: &TheoremProof,
    unifier: &mut Unifier,
) -> Vec<(ProofExample, NormalText)> {
    let (starts, before) = (sub_proof_starts(theory, &lesson.steps), theory.rule(lesson.rule).statement);
    let mut out = Vec::new();
    for (end, &start) in starts.iter().enumerate() {
        let length = end + 1 - start;
        if !(2..=MAX_STEPS).contains(&length) || end + 1 == lesson.steps.len() {
            continue;
        }
        let (steps, used) = renumber(&lesson.steps[start..=end]);
        let found = general(theory, unifier, before, &steps, used.len());
        if let Some((statement, print)) = found
            && !split.forbidden.contains(&print)
        {
            let part = TheoremProof { rule: lesson.rule, statement, steps };
            out.push((ProofExample::new(theory, "sub-proof", &part), print));
        }
    }
    out
}

/// Composed theorems for training.
pub struct Composed<'a> {
    system: &'a Metamath,
    split: &'a Split,
    composer: Composer,
    /// Maximum number of inferences of a proof.
    max_inferences: usize,
}

impl<'a> Composed<'a> {
    /// Composes theorems from the rules that the lessons of a split use, with proofs of at most `max_inferences`.
    pub fn new(system: &'a Metamath, split: &'a Split, max_inferences: usize) -> Self {
        let composer = Composer::new(system.theory(), &split.lessons);
        Self { system, split, composer, max_inferences }
    }

    /// Generates `count` distinct examples in batches, or fewer if a small database has no more. Batches are made in
    /// parallel, and do not depend on the number of threads. Only a hash of 16 bytes of each example stays in memory.
    pub fn batches(&self, seed: u64, count: usize) -> impl Iterator<Item = Vec<ProofExample>> {
        const MOST: usize = 16_384;
        // A small corpus needs few attempts. The examples are the same, because they are taken in the order of their numbers.
        let attempts = (2 * count).next_power_of_two().clamp(MOST / 64, MOST);
        let theory = self.system.theory();
        let mut seen: FxHashSet<u128> =
            self.split.lessons.iter().map(|l| digest(&normal_text(theory, &l.statement))).collect();
        let mut left = count;
        let mut tried = 0..(1 + count * 64 / MOST) * (MOST / attempts);
        std::iter::from_fn(move || {
            let first = (tried.next().filter(|_| left > 0)? * attempts) as u64;
            let found: Vec<Option<(ProofExample, u128)>> = (first..first + attempts as u64)
                .into_par_iter()
                .map_init(Unifier::new, |unifier, number| {
                    let mut draw = SeededRng::numbered(seed, "compose", number);
                    self.example(&mut draw, unifier)
                })
                .collect();
            // Process them in the order of their numbers, so that the first of several equal examples is kept on every
            // machine.
            let new = found.into_iter().flatten().filter(|(_, print)| seen.insert(*print));
            let batch: Vec<ProofExample> = new.map(|(example, _)| example).take(left).collect();
            left -= batch.len();
            Some(batch)
        })
    }

    fn example(&self, draw: &mut SeededRng, unifier: &mut Unifier) -> Option<(ProofExample, u128)> {
        let theory = self.system.theory();
        let (theorem, print) = self.composer.compose(theory, unifier, draw, None)?;
        if self.split.forbidden.contains(&print) || inferences(&theorem.steps) > self.max_inferences {
            return None;
        }
        Some((ProofExample::new(theory, "composed", &theorem), digest(&print)))
    }
}

/// Returns the first 16 bytes of the SHA-256 of a normal text, which identify a statement.
fn digest(print: &NormalText) -> u128 {
    let hash: [u8; 32] = Sha256::digest(print.as_bytes()).into();
    u128::from_le_bytes(std::array::from_fn(|i| hash[i]))
}
