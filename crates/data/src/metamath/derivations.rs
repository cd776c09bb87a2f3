//! The Conjecturer's corpus for conjectures in the form of proofs: theorems with parts of their proofs.

use super::solver::ProofExample;
use rayon::prelude::*;
use sgs_base::random::SeededRng;
use sgs_metamath::composer::{Composer, MAX_SYMBOLS, general, inferences};
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::Split;
use sgs_metamath::statement::Statement;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_metamath::unify::{ProofStep, Unifier};

/// Maximum number of proofs from one theorem.
const PER_THEOREM: usize = 4;

/// Builds the corpus, with the theorem as the statement and the proof that the Conjecturer should write: parts of the proofs of lessons and of `composed` random theorems. Each part has 2 to
/// `max_inferences` inferences and proves another statement than the theorem.
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
        let whole = Whole { kind: "sub-proof", rule: lesson.rule, statement: &lesson.statement };
        parts(system, split, unifier, &mut draw, &whole, &lesson.steps, max_inferences)
    });
    let composer = Composer::new(theory, &split.lessons);
    let of_composed = (0..composed as u64).into_par_iter().map_init(Unifier::new, |unifier, number| {
        let mut draw = SeededRng::numbered(seed, "derivations-composed", number);
        let found = composer.compose(theory, unifier, &mut draw, None);
        let Some(found) = found.filter(|found| !split.forbidden.contains(&found.print)) else {
            return Vec::new();
        };
        let whole = Whole { kind: "composed", rule: found.context, statement: &found.statement };
        parts(system, split, unifier, &mut draw, &whole, &found.steps, max_inferences)
    });
    of_lessons.chain(of_composed).flatten_iter().collect()
}

/// The theorem whose parts are examples.
struct Whole<'a> {
    kind: &'static str,
    rule: RuleId,
    statement: &'a Statement,
}

fn parts(
    system: &Metamath,
    split: &Split,
    unifier: &mut Unifier,
    draw: &mut SeededRng,
    whole: &Whole<'_>,
    steps: &[ProofStep],
    max_inferences: usize,
) -> Vec<ProofExample> {
    let theory = system.theory();
    if whole.statement.symbols(theory) > MAX_SYMBOLS {
        return Vec::new();
    }
    let target = whole.statement.text(theory);
    let own = normal_text(theory, whole.statement);
    let mut ends: Vec<(usize, usize)> = sub_proof_starts(theory, steps).into_iter().zip(0..).collect();
    draw.shuffle_by_index(&mut ends);
    let mut out = Vec::new();
    for (start, end) in ends {
        let part = &steps[start..=end];
        if out.len() == PER_THEOREM || !(2..=max_inferences).contains(&inferences(part)) {
            continue;
        }
        let (part, used) = renumber(part);
        let before = theory.rule(whole.rule).statement;
        if let Some((_, print)) = general(theory, unifier, before, &part, used.len())
            && print != own
            && !split.forbidden.contains(&print)
        {
            let (kind, source, statement) = (whole.kind, whole.rule, target.clone());
            out.push(ProofExample { kind, source, statement, proof: write_steps(theory, &part) });
        }
    }
    out
}
