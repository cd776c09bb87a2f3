//! What the unifier refuses and why; what it gives up on, and how soon.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use sgs_metamath::database::{Database, StatementId};
use sgs_metamath::judge::{Decision, Judge};
use sgs_metamath::proof_text::read_steps;
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::{Goal, ProofLimits, RuleBook};
use sgs_selfplay::Verdict;
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

fn decide_in(theory: &Theory, context: &str, statement: &str, proof: &str) -> Decision {
    let book = RuleBook::new(theory);
    let statement = Statement::parse(theory, statement, StatementLimits::default()).unwrap();
    let end = StatementId(theory.database().statements().len() as u32);
    let before = if context.is_empty() { end } else { theory.database().find(context).unwrap() };
    let goal = Goal::new(theory, &statement, before).unwrap();
    let steps = read_steps(theory, goal.hypothesis_count(), proof.split_ascii_whitespace()).unwrap();
    Judge::new().decide(theory, &book, &goal, &steps, ProofLimits::default())
}

fn decide(statement: &str, proof: &str) -> Decision {
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
fn simple_proofs() {
    proved("$p |- ( x = y -> x = y )", "id");
    proved("$e |- ph $p |- ( ps -> ph )", "h1 ax-1 ax-mp");
    refused("$p |- ( ph -> ps )", "id", None, "proves another statement");
    refused("$p |- ( ph -> ph )", "id id", None, "leaves 2 formulas");
    refused("$p |- ( ph -> ph )", "ax-mp", Some(1), "step 1, ax-mp: needs 2 formulas, the stack has 0");
}

#[test]
fn hypotheses_may_stand_before_variables() {
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
fn hypotheses_go_by_position() {
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
    // ?x -> ( ?x -> ?x ) against ?y -> ?y.
    refused("$p |- ch", "id double id same", Some(4), "a variable would contain itself");
}

#[test]
fn only_what_stands_before_may_be_used() {
    let theory = theory();
    assert_eq!(decide_in(&theory, "late", "$p |- ( ph -> ph )", "id").verdict, Verdict::Proved);
    for proof in ["late", "id late ax-1 ax-mp"] {
        let d = decide_in(&theory, "late", "$p |- ( ph -> ph )", proof);
        assert_eq!(d.verdict, Verdict::Refused);
        assert!(d.reason.contains("late: does not stand before"), "{}", d.reason);
    }
    let d = decide_in(&theory, "id", "$p |- ( ph -> ph )", "id");
    assert_eq!((d.verdict, d.step), (Verdict::Refused, Some(1)));
}

#[test]
fn syntax_must_stand_before_too() {
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
fn distinct_conditions_on_goal_variables() {
    proved("$d x ph $p |- ( ph -> A. x ph )", "ax-5");
    refused("$p |- ( ph -> A. x ph )", "ax-5", Some(1), "ax-5: $d violated: the problem does not say $d");
    refused("$p |- ( x = y -> A. x x = y )", "ax-5", Some(1), "ax-5: $d violated: x occurs on both sides");
    proved("$d x y z $p |- ( y = z -> A. x y = z )", "ax-5");
    refused("$d x y $p |- ( y = z -> A. x y = z )", "ax-5", Some(1), "the problem does not say $d");
    // The condition falls on what a variable of the step stands for at the end of the proof, not when it is used.
    let first = "$p |- ( ps -> ( x = y -> A. x x = y ) )";
    refused(first, "ax-5 ax-1 ax-mp", Some(1), "x occurs on both sides");
}

#[test]
fn distinct_conditions_on_dummies() {
    // `held` drops the formula, so its variables are free to choose, and still x occurs in x = y.
    refused("$p |- ph", "ax-5 held", Some(1), "ax-5: $d violated: a dummy variable occurs on both sides");
    proved("$p |- ph", "ax-5 apart");
    proved("$p |- x = y", "ax-5 apart");
}

/// Two chains of formulas that double in size with each step, then unified with each other.
fn doubling(n: usize) -> String {
    let chain = format!("id {}", "double ".repeat(n));
    format!("{chain} {chain} same")
}

#[test]
fn exponential_unification_is_given_up_soon() {
    proved("$p |- ph", &doubling(8));
    for n in [20, 60, 400] {
        let d = decide("$p |- ph", &doubling(n));
        assert_eq!(d.verdict, Verdict::Resource, "{}", d.reason);
        assert!(d.reason.contains("unification took too long"), "{}", d.reason);
        assert_eq!(d.step, Some(2 * n as u32 + 3));
    }
}

#[test]
fn exponential_expressions_are_given_up_soon() {
    // The unifier shares sub-terms and accepts; the kernel would have to write 2^60 symbols.
    let d = decide("$p |- ph", &format!("id {} drop", "double ".repeat(60)));
    assert_eq!(d.verdict, Verdict::Resource, "{}", d.reason);
    assert!(d.reason.contains("symbols"), "{}", d.reason);
    // A goal that long cannot be stated, so the chain against a goal ends in a refusal.
    let d = decide("$p |- ( ph -> ph )", &format!("id {}", "double ".repeat(60)));
    assert_eq!(d.verdict, Verdict::Refused, "{}", d.reason);
    assert!(d.reason.len() < 1_000);
}

#[test]
fn more_dummies_than_variables_are_given_up_soon() {
    // Each step brings a variable that must differ from all before it.
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
fn many_steps_and_deep_stacks_are_given_up() {
    let d = decide("$e |- ph $p |- ph", &"h1 ".repeat(300));
    assert_eq!((d.verdict, d.step), (Verdict::Resource, Some(257)), "{}", d.reason);
    assert!(d.reason.contains("more than 256 formulas on the stack"), "{}", d.reason);
    let d = decide("$e |- ph $p |- ph", &format!("h1 {}", "drop ".repeat(1_000)));
    assert_eq!((d.verdict, d.step), (Verdict::Resource, None));
    assert!(d.reason.contains("1001 steps, more than 1000"), "{}", d.reason);
}

#[test]
fn a_judge_forgets_the_last_proof() {
    let theory = Theory::read(Path::new("tests/data/mini.mm")).unwrap();
    let book = RuleBook::new(&theory);
    let proofs = sgs_metamath::judge::true_proofs(&theory, 60);
    let mut judge = Judge::new();
    let limits = ProofLimits::default();
    for pair in proofs.windows(2) {
        let goal = Goal::of_rule(&theory, pair[1].rule).unwrap();
        let wrong = judge.decide(&theory, &book, &goal, &pair[0].steps, limits);
        let alone = Judge::new().decide(&theory, &book, &goal, &pair[0].steps, limits);
        assert_eq!(wrong, alone);
        assert_eq!(judge.decide(&theory, &book, &goal, &pair[1].steps, limits).verdict, Verdict::Proved);
    }
}
