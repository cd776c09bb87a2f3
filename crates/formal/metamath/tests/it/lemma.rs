//! Conjectures as lemmas.

use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_metamath::lemma::is_citable;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::statement::Statement;
use sgs_metamath::sub_proof::{renumber, sub_proof_starts};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::theory::RuleId;
use sgs_metamath::unify::ProofStep;
use sgs_metamath::unify::{Goal, ProofLimits, Unifier};
use sgs_selfplay::{Lemma, Problem, ProblemId, Verdict};

fn lemma(statement: &str, proof: &str) -> Lemma {
    Lemma { conjecture: ProblemId::new("c"), round: 0, statement: statement.into(), proof: proof.into() }
}

#[test]
fn a_cited_lemma_is_replaced_by_its_proof() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    let written = "$e |- ( ps -> ch ) $p |- ( ph -> ( ps -> ch ) )";
    let read = system.read_conjecture(Condition::Target(&syl), written).unwrap();
    assert_eq!(read.lemma.as_deref(), Some(written));
    assert_ne!(&*read.statement, written, "the conjecture as a problem is in normal form");
    assert_eq!(read.known, None, "an instance of a1i is not a1i");
    assert!(read.rubric > 0.0 && read.rubric < 8.0);
    let lemma = lemma(written, "h1 a1i");
    let Prompt::Raw(prompt) = system.solver_prompt_citing(&syl, &lemma) else { panic!("no chat") };
    assert!(
        prompt.contains("$e |- ( ps -> ch ) $e |- ( ph -> ( ps -> ch ) ) $p |- ( ph -> ch )"),
        "{prompt}"
    );
    let proof = system.read_proof_citing(&syl, &lemma, "h1 h3 ~mpd").unwrap();
    assert_eq!(proof, "h1 h2 a1i mpd");
    assert_eq!(system.verify(&syl, &proof).verdict, Verdict::Proved);
    assert_eq!(system.proof_steps(&proof), 2);
    let other = system.read_proof_citing(&syl, &lemma, "h1 h4 ~mpd").unwrap_err();
    assert_eq!(other.kind, "no-such-hypothesis");
}

#[test]
fn a_lemma_with_an_invalid_proof_proves_nothing() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    for (statement, proof) in [("$p |- ( ph -> ( ps -> ch ) )", "id"), ("$p |- ( ph -> ch )", "id")] {
        let proof = system.read_proof_citing(&syl, &lemma(statement, proof), "h1 h3 ~mpd");
        let verdict = proof.map(|proof| system.verify(&syl, &proof).verdict);
        assert_ne!(verdict.ok(), Some(Verdict::Proved), "{statement}");
    }
}

#[test]
fn only_conjectures_over_the_target_are_citable() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    let citable = |text: &str| system.read_conjecture(Condition::Target(&syl), text).unwrap().lemma.is_some();
    assert!(citable("$p |- ( ph -> ( ps -> ph ) )"));
    assert!(!citable("$p |- ( ph -> ch )"), "the target itself");
    assert!(!citable("$p |- ( ph -> ps )"), "a hypothesis of the target");
    assert!(
        !citable("$e |- ( ch -> ps ) $p |- ( ch -> ( ph -> ps ) )"),
        "a hypothesis that the target does not have"
    );
    let free = system.read_conjecture(Condition::Nothing(&syl), "$p |- ( ph -> ( ps -> ph ) )").unwrap();
    assert_eq!(free.lemma, None, "there is no target");
    // A theorem after the context does not make a conjecture known.
    assert_eq!(free.known.as_deref(), Some("ax-1"));
    let later = system.read_conjecture(Condition::Target(&syl), "$p |- ( ph <-> ph )");
    assert!(later.is_err() || later.unwrap().known.is_none());
}

#[test]
fn a_proof_that_grows_too_long_is_rejected() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    let lemma = lemma("$p |- ( ph -> ( ps -> ph ) )", &"ax-1 ".repeat(200));
    let e = system.read_proof_citing(&syl, &lemma, &"h3 ".repeat(100)).unwrap_err();
    assert_eq!(e.kind, "too-many-tokens");
}

/// Real proofs, split at each of their steps into a lemma and the rest, are reassembled and accepted.
#[test]
fn proofs_split_into_lemmas_are_reassembled() {
    let system = Metamath::shipped().unwrap();
    let (theory, mut unifier) = (system.theory(), Unifier::new());
    let mut cut = 0;
    for id in (0..theory.rules().len()).step_by(97).map(|i| RuleId(i as u32)) {
        let Ok(Some(steps)) = theorem_proof(theory, id, 24) else { continue };
        let Some(problem) = system.problem(theory.label(id)) else { continue };
        cut += reassemble(&system, &mut unifier, &problem, &steps);
    }
    assert!(cut > 50, "only {cut} cuts");
}

fn reassemble(system: &Metamath, unifier: &mut Unifier, problem: &Problem, steps: &[ProofStep]) -> usize {
    let theory = system.theory();
    let target = Statement::parse(theory, &problem.statement, Default::default()).unwrap();
    let before = theory.database().find(&problem.context).unwrap();
    let goal = Goal::new(theory, &target, before).unwrap();
    if unifier.check(theory, &goal, steps, ProofLimits::default()).is_err() {
        return 0;
    }
    let formulas = unifier.step_formulas(theory, &goal, 200).unwrap();
    let starts = sub_proof_starts(theory, steps);
    let mut cut = 0;
    for (i, formula) in formulas.into_iter().enumerate().take(steps.len() - 1) {
        let Some(conclusion) = formula else { continue };
        let (own, used) = renumber(&steps[starts[i]..=i]);
        let hypotheses = used.iter().map(|&h| target.hypotheses[h as usize].clone()).collect();
        let statement = Statement { distinct: Box::default(), hypotheses, conclusion };
        if !is_citable(&target, &statement) {
            continue;
        }
        let lemma = lemma(&statement.text(theory), &write_steps(theory, &own));
        let mut rest = steps.to_vec();
        rest.splice(starts[i]..=i, [ProofStep::Hypothesis(target.hypotheses.len() as u32)]);
        let completion = system.proof_completion(&write_steps(theory, &rest));
        let proof = system.read_proof_citing(problem, &lemma, &completion).unwrap();
        assert_eq!(proof, write_steps(theory, steps));
        assert_eq!(system.verify(problem, &proof).verdict, Verdict::Proved);
        cut += 1;
    }
    cut
}
