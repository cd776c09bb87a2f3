//! The Conjecturer's corpus for conjectures in the form of proofs: theorems with parts of their proofs.

use super::solver::ProofExample;
use rayon::prelude::*;
use sgs_base::random::SeededRng;
use sgs_metamath::composer::{Composer, MAX_SYMBOLS, general, inferences};
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::Split;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::TheoremProof;
use sgs_metamath::unify::Unifier;

/// Maximum number of proofs from one theorem.
const PER_THEOREM: usize = 4;

/// Builds the corpus: parts of the proofs of lessons and of `composed` random theorems, each with the theorem as its
/// statement. Each part has 2 to `max_inferences` inferences and proves another statement than the theorem.
pub fn examples(
    system: &Metamath,
    split: &Split,
    seed: u64,
    composed: usize,
    max_inferences: usize,
) -> Vec<ProofExample> {
    let theory = system.theory();
    let of_lessons = split.lessons.par_iter().map_init(Unifier::new, |unifier, lesson| {
        let mut draw = SeededRng::numbered(seed, "derivations", u64::from(lesson.rule.0));
        parts(system, split, unifier, &mut draw, ("sub-proof", lesson), max_inferences)
    });
    let composer = Composer::new(theory, &split.lessons);
    let of_composed = (0..composed as u64).into_par_iter().map_init(Unifier::new, |unifier, number| {
        let mut draw = SeededRng::numbered(seed, "derivations-composed", number);
        let found = composer.compose(theory, unifier, &mut draw, None);
        match found.filter(|(_, print)| !split.forbidden.contains(print)) {
            Some((whole, _)) => {
                parts(system, split, unifier, &mut draw, ("composed", &whole), max_inferences)
            }
            None => Vec::new(),
        }
    });
    of_lessons.chain(of_composed).flatten_iter().collect()
}

/// Returns the examples from a theorem of a kind.
fn parts(
    system: &Metamath,
    split: &Split,
    unifier: &mut Unifier,
    draw: &mut SeededRng,
    (kind, whole): (&'static str, &TheoremProof),
    max_inferences: usize,
) -> Vec<ProofExample> {
    let theory = system.theory();
    if whole.statement.symbols(theory) > MAX_SYMBOLS {
        return Vec::new();
    }
    let target = whole.statement.text(theory);
    let own = normal_text(theory, &whole.statement);
    let mut ends: Vec<(usize, usize)> = sub_proof_starts(theory, &whole.steps).into_iter().zip(0..).collect();
    draw.shuffle_by_index(&mut ends);
    let mut out = Vec::new();
    for (start, end) in ends {
        let part = &whole.steps[start..=end];
        if out.len() == PER_THEOREM || !(2..=max_inferences).contains(&inferences(part)) {
            continue;
        }
        let (part, used) = renumber(part);
        let before = theory.rule(whole.rule).statement;
        if let Some((_, print)) = general(theory, unifier, before, &part, used.len())
            && print != own
            && !split.forbidden.contains(&print)
        {
            let (source, statement) = (whole.rule, target.clone());
            out.push(ProofExample { kind, source, statement, proof: write_steps(theory, &part) });
        }
    }
    out
}
