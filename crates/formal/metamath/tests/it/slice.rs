//! The shipped slice and its targets.

use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_metamath::assertion_index::Triviality;
use sgs_metamath::proof_text::write_steps;
use sgs_metamath::splits::{SplitRule, split};
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::system::Metamath;
use sgs_metamath::theorem_proofs::theorem_proof;
use sgs_metamath::theory::RuleId;
use sgs_metamath::unify::Unifier;
use sgs_selfplay::{Judgement, Problem, ProblemId, Verdict};
use std::sync::OnceLock;

fn system() -> &'static Metamath {
    static SYSTEM: OnceLock<Metamath> = OnceLock::new();
    SYSTEM.get_or_init(|| Metamath::shipped().expect("the shipped slice"))
}

#[test]
fn the_list_of_targets_is_what_the_split_draws() {
    let system = system();
    let text = |(targets, candidates): &(Vec<RuleId>, usize)| {
        let labels: String = targets.iter().map(|t| format!("{}\n", system.theory().label(*t))).collect();
        format!("{candidates}\n{labels}")
    };
    let split = split(system.theory(), SplitRule::default());
    let drawn = text(&(split.targets, split.candidates));
    assert!(text(system.targets()) == drawn, "data/metamath/targets.txt must be:\n{drawn}");
}

#[test]
fn the_theorem_proof_of_every_target_is_valid() {
    let system = system();
    assert_eq!(SplitRule::of(system.theory()), SplitRule::default());
    let split = split(system.theory(), SplitRule::default());
    assert_eq!(split.targets.len(), 1_000);
    for &target in &split.targets {
        let label = system.theory().label(target);
        let problem = system.problem(label).expect("a problem");
        let steps = theorem_proof(system.theory(), target, 60).expect("readable").expect("short");
        let proof = write_steps(system.theory(), &steps);
        let completion = system.proof_completion(&proof);
        assert_eq!(system.read_proof(&problem, &completion).expect("well-formed"), proof);
        let judgement = system.verify(&problem, &proof);
        assert_eq!(judgement.verdict, Verdict::Proved, "{label}: {}", judgement.reason);
        // The target does not precede itself, so a proof cannot cite it.
        let cited = system.verify(&problem, label);
        assert_eq!(cited.verdict, Verdict::Refused, "{label} proves itself");
    }
}

#[test]
fn verifying_several_proofs_equals_verifying_each() {
    let system = system();
    let syl = system.problem("syl").expect("syl");
    let proofs = ["h1 h2 a1i mpd", "h1 h2 a1i", "syl", "h3", "", "h1 h1 h1", "h1 h2 a1i mpd"];
    let unreadable = Problem { statement: "$p |- (".into(), ..syl.clone() };
    for (problem, proved) in [(&syl, 2), (&unreadable, 0)] {
        let together = system.verify_all(problem, &proofs);
        assert_eq!(together.len(), proofs.len());
        assert_eq!(together.iter().filter(|j| j.verdict == Verdict::Proved).count(), proved);
        for (proof, judged) in proofs.iter().zip(together) {
            let alone = system.verify(problem, proof);
            assert_eq!(Judgement { micros: alone.micros, ..judged }, alone, "{proof}");
        }
    }
}

#[test]
fn known_statements_and_one_step_consequences_are_trivial() {
    let system = system();
    let (theory, index) = (system.theory(), system.assertion_index());
    let mut unifier = Unifier::new();
    let before = |label: &str| theory.rule(theory.find(label).expect("a theorem")).statement;
    let mut triviality = |text: &str, label: &str| {
        let statement = Statement::parse(theory, text, StatementLimits::default()).expect("canonical text");
        index.triviality(theory, &mut unifier, &statement, before(label))
    };
    assert_eq!(triviality("$p |- ( ch -> ch )", "idd"), Some(Triviality::Known));
    assert_eq!(triviality("$p |- ( ch -> ch )", "id"), None, "a theorem does not precede itself");
    assert_eq!(triviality("$p |- ( ( ph -> ps ) -> ( ph -> ps ) )", "idd"), Some(Triviality::OneStep));
    assert_eq!(
        triviality("$e |- ch $e |- ( ch -> ( ph -> ps ) ) $p |- ( ph -> ps )", "id"),
        Some(Triviality::OneStep)
    );
    assert_eq!(triviality("$e |- ph $e |- ps $p |- ( ph -> ch )", "id"), None);
    assert_eq!(triviality("$p |- ( ph -> ps )", "syl"), None);
}

#[test]
fn the_guide_prompt_renames_variables_and_contains_the_position() {
    let system = system();
    let problem = |statement: &str| Problem {
        id: ProblemId::new("p"),
        statement: statement.into(),
        context: "syl".into(),
    };
    let target = problem("$e |- ( ph -> ps ) $e |- ( ps -> ch ) $p |- ( ph -> ch )");
    let shown = system.guide_prompt(&target, &problem("$p |- ( ( ph -> ps ) -> ( th -> ( ph -> ps ) ) )"));
    let Prompt::Raw(shown) = shown else { panic!("not raw text") };
    assert!(shown.starts_with("<guide> <at-0> $e |- ( ph -> ps ) $e"), "{shown}");
    // Two variables are renamed so that the conjecture has a formula in common with the target.
    let conjecture = shown.split("<conjecture> ").nth(1).expect("a conjecture");
    let formulas = ["( ph -> ps )", "( ps -> ch )", "( ph -> ch )"];
    assert!(formulas.iter().any(|f| conjecture.matches(f).count() == 2), "{shown}");
}

#[test]
fn each_malformed_completion_has_its_own_kind() {
    let system = system();
    let target = system.problem("syl").expect("syl");
    let kind =
        |text: &str| system.read_conjecture(Condition::Target(&target), text).expect_err("malformed").kind;
    assert_eq!(kind(""), "no-conclusion");
    assert_eq!(kind("|- ph"), "no-keyword");
    assert_eq!(kind("$p ( ph -> ph )"), "no-turnstile");
    assert_eq!(kind("$p |- ( ph -> ph"), "no-formula");
    assert_eq!(kind("$p |- ( ph -> nonsense )"), "unknown-symbol");
    assert_eq!(kind("$p |- ph $e |- ps"), "after-conclusion");
    assert_eq!(kind("$d x $p |- A. x ph"), "distinct");
    assert_eq!(kind("$p |- A = B"), "later-symbol");
    assert_eq!(kind(&format!("$p |- {}ph", "-. ".repeat(400))), "too-long");
    assert_eq!(system.read_proof(&target, "h1 h3").expect_err("malformed").kind, "no-such-hypothesis");
    assert_eq!(system.read_proof(&target, "h1 ph").expect_err("malformed").kind, "no-label");
    assert_eq!(
        system.read_review("relevance-6 redundancy-0 complexity-0").expect_err("malformed").kind,
        "no-relevance"
    );
    assert!(system.read_review("relevance-5 redundancy-1 complexity-4").is_ok());
    assert!(
        matches!(system.solver_prompt(&target), Prompt::Raw(p) if p.starts_with("<solver> <at-0> $e |- ( ph -> ps )"))
    );
}
