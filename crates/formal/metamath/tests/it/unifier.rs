//! Proofs that the unifier rejects, with their reasons, and proofs that exceed its limits.

use sgs_metamath::database::{Database, StatementId};
use sgs_metamath::grammar::TreeNode;
use sgs_metamath::judge::{Judge, kernel_accepts};
use sgs_metamath::kernel::Kernel;
use sgs_metamath::proof::{ProofOp, essential_steps};
use sgs_metamath::proof_text::read_steps;
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::unify::{Goal, ProofLimits, ProofStep, Unifier};
use sgs_selfplay::{Judgement, Verdict};
use std::path::Path;

const LOGIC: &str = "$c ( ) -> wff |- A. setvar = $. $v ph ps ch x y z $.
    wph $f wff ph $. wps $f wff ps $. wch $f wff ch $.
    vx $f setvar x $. vy $f setvar y $. vz $f setvar z $.
    wi $a wff ( ph -> ps ) $. wal $a wff A. x ph $. weq $a wff x = y $.
    ${ mp.1 $e |- ph $. mp.2 $e |- ( ph -> ps ) $. ax-mp $a |- ps $. $}
    ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
    id $a |- ( ph -> ph ) $.
    ${ $d x ph $. ax-5 $a |- ( ph -> A. x ph ) $. $}
    ${ double.1 $e |- ( ph -> ps ) $. double $a |- ( ph -> ( ps -> ps ) ) $. $}
    ${ same.1 $e |- ( ph -> ps ) $. same.2 $e |- ( ph -> ps ) $. same $a |- ch $. $}
    ${ drop.1 $e |- ph $. drop $a |- ch $. $}
    ${ loop.1 $e |- ( ph -> ( ph -> ps ) ) $. loop $a |- ch $. $}
    ${ held.1 $e |- ( x = y -> A. x x = y ) $. held $a |- ph $. $}
    ${ apart.1 $e |- ( y = z -> A. x y = z ) $. apart $a |- ph $. $}
    ${ mixed.1 $e |- ph $. $v th $. lth $f wff th $. mixed.2 $e |- th $. mixed $a |- ( ps -> ( th -> ph ) ) $. $}
    late $a |- ( ps -> ps ) $.";

fn theory() -> Theory {
    Theory::new(Database::parse("logic.mm", LOGIC.as_bytes()).unwrap()).unwrap()
}

fn decide_in(theory: &Theory, context: &str, statement: &str, proof: &str) -> Judgement {
    let statement = Statement::parse(theory, statement, StatementLimits::default()).unwrap();
    let end = StatementId(theory.database().statements().len() as u32);
    let before = if context.is_empty() { end } else { theory.database().find(context).unwrap() };
    let goal = Goal::new(theory, &statement, before).unwrap();
    let steps = read_steps(theory, goal.hypothesis_count(), proof.split_ascii_whitespace()).unwrap();
    Judge::new().decide(theory, &goal, &steps, ProofLimits::default())
}

fn decide(statement: &str, proof: &str) -> Judgement {
    decide_in(&theory(), "", statement, proof)
}

#[track_caller]
fn proved(statement: &str, proof: &str) {
    let d = decide(statement, proof);
    assert_eq!((d.verdict, d.reason.as_str(), d.step), (Verdict::Proved, "", None));
}

#[track_caller]
fn refused(statement: &str, proof: &str, step: Option<u32>, reason: &str) {
    let d = decide(statement, proof);
    assert_eq!((d.verdict, d.step), (Verdict::Refused, step), "{}", d.reason);
    assert!(d.reason.contains(reason), "{}", d.reason);
}

#[test]
fn simple_proofs_are_accepted_or_rejected() {
    proved("$p |- ( x = y -> x = y )", "id");
    proved("$e |- ph $p |- ( ps -> ph )", "h1 ax-1 ax-mp");
    refused("$p |- ( ph -> ps )", "id", None, "proves another statement");
    refused("$p |- ( ph -> ph )", "id id", None, "leaves 2 formulas");
    refused("$p |- ( ph -> ph )", "ax-mp", Some(1), "step 1, ax-mp: needs 2 formulas, the stack has 0");
}

#[test]
fn essential_hypotheses_may_precede_floating_ones() {
    proved("$e |- ph $e |- ps $p |- ( x = y -> ( ps -> ph ) )", "h1 h2 mixed");
    refused("$e |- ph $e |- ps $p |- ( x = y -> ( ps -> ph ) )", "h2 h1 mixed", None, "another statement");
}

#[test]
fn goal_variables_are_constants() {
    refused("$p |- ph", "id", None, "proves another statement");
    refused("$e |- ph $p |- ps", "h1", None, "proves another statement");
    refused("$e |- ( ph -> ps ) $p |- ( ps -> ph )", "h1", None, "proves another statement");
}

#[test]
fn hypotheses_are_matched_by_position() {
    proved("$e |- ph $e |- ( ph -> ps ) $p |- ps", "h1 h2 ax-mp");
    refused(
        "$e |- ph $e |- ( ph -> ps ) $p |- ps",
        "h2 h1 ax-mp",
        Some(3),
        "ax-mp: hypothesis 2 does not unify: needs |- ( ( ph -> ps ) -> ?1 ), found |- ph",
    );
    proved("$e |- ( ph -> ps ) $e |- ph $p |- ps", "h2 h1 ax-mp");
}

#[test]
fn a_variable_cannot_contain_itself() {
    let reason = "loop: hypothesis 1 does not unify: a variable would contain itself";
    refused("$p |- ph", "id loop", Some(2), reason);
    // This proof unifies ?x -> ( ?x -> ?x ) with ?y -> ?y.
    refused("$p |- ch", "id double id same", Some(4), "a variable would contain itself");
}

#[test]
fn only_preceding_assertions_may_be_cited() {
    let theory = theory();
    assert_eq!(decide_in(&theory, "late", "$p |- ( ph -> ph )", "id").verdict, Verdict::Proved);
    for proof in ["late", "id late ax-1 ax-mp"] {
        let d = decide_in(&theory, "late", "$p |- ( ph -> ph )", proof);
        assert_eq!(d.verdict, Verdict::Refused);
        assert!(d.reason.contains("late: does not precede"), "{}", d.reason);
    }
    let d = decide_in(&theory, "id", "$p |- ( ph -> ph )", "id");
    assert_eq!((d.verdict, d.step), (Verdict::Refused, Some(1)));
}

#[test]
fn the_syntax_of_a_goal_must_precede_its_context() {
    let text = "$c ( ) -> wff |- T $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
        wi $a wff ( ph -> ps ) $. id $a |- ( ph -> ph ) $. wt $a wff T $. t $a |- T $.";
    let theory = Theory::new(Database::parse("t.mm", text.as_bytes()).unwrap()).unwrap();
    let statement = Statement::parse(&theory, "$p |- ( T -> T )", StatementLimits::default()).unwrap();
    let before = |label: &str| theory.database().find(label).unwrap();
    assert!(Goal::new(&theory, &statement, before("t")).is_ok());
    let error = Goal::new(&theory, &statement, before("wt")).unwrap_err();
    assert!(error.contains("`wt` is not introduced before"), "{error}");
}

#[test]
fn distinct_conditions_apply_to_goal_variables() {
    proved("$d x ph $p |- ( ph -> A. x ph )", "ax-5");
    refused("$p |- ( ph -> A. x ph )", "ax-5", Some(1), "ax-5: $d violated: the problem has no $d");
    refused("$p |- ( x = y -> A. x x = y )", "ax-5", Some(1), "ax-5: $d violated: x occurs on both sides");
    proved("$d x y z $p |- ( y = z -> A. x y = z )", "ax-5");
    refused("$d x y $p |- ( y = z -> A. x y = z )", "ax-5", Some(1), "the problem has no $d");
    // The condition applies to the final substitution, not to the one at the time of the step.
    let first = "$p |- ( ps -> ( x = y -> A. x x = y ) )";
    refused(first, "ax-5 ax-1 ax-mp", Some(1), "x occurs on both sides");
}

#[test]
fn distinct_conditions_apply_to_dummy_variables() {
    // `held` discards the formula, so its variables can be chosen freely, but x always occurs in x = y.
    refused("$p |- ph", "ax-5 held", Some(1), "ax-5: $d violated: a dummy variable occurs on both sides");
    proved("$p |- ph", "ax-5 apart");
    proved("$p |- x = y", "ax-5 apart");
}

/// Returns a proof that unifies two chains of formulas that double in size with each step.
fn doubling(n: usize) -> String {
    let chain = format!("id {}", "double ".repeat(n));
    format!("{chain} {chain} same")
}

#[test]
fn exponential_unification_exceeds_the_work_limit() {
    proved("$p |- ph", &doubling(8));
    for n in [20, 60, 400] {
        let d = decide("$p |- ph", &doubling(n));
        assert_eq!(d.verdict, Verdict::Resource, "{}", d.reason);
        assert!(d.reason.contains("unification took too long"), "{}", d.reason);
        assert_eq!(d.step, Some(2 * n as u32 + 3));
    }
}

#[test]
fn exponential_expressions_exceed_the_size_limit() {
    // The unifier accepts because it shares subterms, but the kernel would have to write 2^60 symbols.
    let d = decide("$p |- ph", &format!("id {} drop", "double ".repeat(60)));
    assert_eq!(d.verdict, Verdict::Resource, "{}", d.reason);
    assert!(d.reason.contains("symbols"), "{}", d.reason);
    // A goal of that size cannot be stated, so the chain never proves a goal.
    let d = decide("$p |- ( ph -> ph )", &format!("id {}", "double ".repeat(60)));
    assert_eq!(d.verdict, Verdict::Refused, "{}", d.reason);
    assert!(d.reason.len() < 1_000);
}

#[test]
fn too_many_dummy_variables_exceed_a_limit() {
    // Each step adds a variable that must be distinct from all earlier ones.
    let text = "$c ( ) -> wff |- setvar = $. $v ph ps x y z u v $. wph $f wff ph $. wps $f wff ps $.
        vx $f setvar x $. vy $f setvar y $. vz $f setvar z $. vu $f setvar u $. vv $f setvar v $.
        wi $a wff ( ph -> ps ) $. weq $a wff x = y $. start $a |- x = x $.
        ${ $d x ph $. more.1 $e |- ph $. more $a |- ( x = x -> ph ) $. $}
        ${ both.1 $e |- ph $. both.2 $e |- ps $. both $a |- ( ph -> ps ) $. $}
        ${ drop.1 $e |- ph $. drop $a |- ps $. $}";
    let theory = Theory::new(Database::parse("t.mm", text.as_bytes()).unwrap()).unwrap();
    let chain = |n: usize| format!("start {} drop", "more ".repeat(n));
    assert_eq!(decide_in(&theory, "", "$p |- ph", &chain(4)).verdict, Verdict::Proved);
    for n in [5, 90, 300] {
        let d = decide_in(&theory, "", "$p |- ph", &chain(n));
        assert_eq!(d.verdict, Verdict::Resource, "{}", d.reason);
    }
    let many = format!("{} {} drop", chain(90), "start more both ".repeat(10));
    assert_ne!(decide_in(&theory, "", "$p |- ph", &many).verdict, Verdict::Infra);
}

#[test]
fn long_proofs_and_deep_stacks_exceed_a_limit() {
    let d = decide("$e |- ph $p |- ph", &"h1 ".repeat(300));
    assert_eq!((d.verdict, d.step), (Verdict::Resource, Some(257)), "{}", d.reason);
    assert!(d.reason.contains("more than 256 formulas on the stack"), "{}", d.reason);
    let d = decide("$e |- ph $p |- ph", &format!("h1 {}", "drop ".repeat(1_000)));
    assert_eq!((d.verdict, d.step), (Verdict::Resource, None));
    assert!(d.reason.contains("1001 steps, more than 1000"), "{}", d.reason);
}

#[test]
fn a_judge_keeps_no_state_between_proofs() {
    let theory = Theory::read(Path::new("tests/data/mini.mm")).unwrap();
    let proofs = sgs_metamath::theorem_proofs::theorem_proofs(&theory, 60);
    let mut judge = Judge::new();
    let limits = ProofLimits::default();
    for pair in proofs.windows(2) {
        let goal = Goal::of_rule(&theory, pair[1].rule).unwrap();
        let wrong = judge.decide(&theory, &goal, &pair[0].steps, limits);
        let alone = Judge::new().decide(&theory, &goal, &pair[0].steps, limits);
        assert_eq!(wrong, alone);
        assert_eq!(judge.decide(&theory, &goal, &pair[1].steps, limits).verdict, Verdict::Proved);
    }
}

#[test]
fn steps_that_do_not_exist_are_rejected() {
    let theory = theory();
    let statement = Statement::parse(&theory, "$e |- ph $p |- ph", StatementLimits::default()).unwrap();
    let end = StatementId(theory.database().statements().len() as u32);
    let goal = Goal::new(&theory, &statement, end).unwrap();
    for (step, reason) in [
        (ProofStep::Hypothesis(1), "the problem has no such hypothesis"),
        (ProofStep::Hypothesis(u32::MAX - 1), "the problem has no such hypothesis"),
        (ProofStep::Rule(RuleId(u32::MAX)), "no such assertion"),
    ] {
        let decision = Judge::new().decide(&theory, &goal, &[step], ProofLimits::default());
        assert_eq!((decision.verdict, decision.step), (Verdict::Refused, Some(1)), "{}", decision.reason);
        assert!(decision.reason.contains(reason), "{}", decision.reason);
    }
    let unchecked = Unifier::new().expand(&theory, &goal, ProofLimits::default());
    assert!(unchecked.unwrap_err().reason.contains("no accepted proof"));
}

/// An incomplete tree must not be written as a shorter formula.
#[test]
#[should_panic(expected = "invariant: a tree is complete")]
fn an_incomplete_tree_is_not_written() {
    let theory = theory();
    let implication = theory.grammar().production_of(theory.database().find("wi").unwrap()).unwrap();
    theory.formula_text(&[TreeNode::production(implication)]);
}

/// A full proof that refers to entries or statements that do not exist must not be accepted or converted.
#[test]
fn operations_that_refer_to_nothing_are_rejected() {
    let theory = theory();
    let statement = Statement::parse(&theory, "$e |- ph $p |- ph", StatementLimits::default()).unwrap();
    let end = StatementId(theory.database().statements().len() as u32);
    let goal = Goal::new(&theory, &statement, end).unwrap();
    assert_eq!(kernel_accepts(&mut Kernel::new(), &theory, &goal, &[ProofOp::Use(end)]), Ok(()));
    let broken = [ProofOp::Save, ProofOp::Recall(0), ProofOp::Use(StatementId(u32::MAX))];
    for op in broken {
        assert!(kernel_accepts(&mut Kernel::new(), &theory, &goal, &[op]).is_err(), "{op:?}");
    }
    for op in &broken[..2] {
        assert!(essential_steps(theory.database(), &[*op], |_| true, 9).is_err(), "{op:?}");
    }
}
