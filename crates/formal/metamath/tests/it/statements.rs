//! Statements: canonical text, normal form, and malformed texts.

use proptest::prelude::*;
use sgs_formal::FormalSystem;
use sgs_metamath::database::Symbol;
use sgs_metamath::statement::{Statement, StatementLimits, context_limit};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::{RuleId, Theory};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

static MINI: LazyLock<Theory> = LazyLock::new(|| Theory::read(Path::new("tests/data/mini.mm")).unwrap());

fn parse(text: &str) -> Result<Statement, sgs_formal::Malformed> {
    Statement::parse(&MINI, text, StatementLimits::default())
}

fn normal(statement: &Statement) -> Statement {
    statement.normal_form(&MINI, |_| None).unwrap()
}

/// Permutes the variables of each type.
fn renamed(statement: &Statement, keys: &[u32]) -> Statement {
    let mut by_type: BTreeMap<u8, Vec<Symbol>> = BTreeMap::new();
    for &(v, t, _) in MINI.variables() {
        by_type.entry(t.0).or_default().push(v);
    }
    let mut renaming = rustc_hash::FxHashMap::default();
    for variables in by_type.values() {
        let mut shuffled = variables.clone();
        shuffled.sort_by_key(|v| (keys[v.0 as usize % keys.len()], v.0));
        renaming.extend(variables.iter().copied().zip(shuffled));
    }
    statement.rename(&renaming).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn renaming_does_not_change_the_normal_form(n in any::<prop::sample::Index>(), keys in prop::collection::vec(any::<u32>(), 31)) {
        let rules = MINI.rules();
        let statement = Statement::of_rule(&rules[n.index(rules.len())]);
        let other = renamed(&statement, &keys);
        prop_assert_eq!(normal(&other).text(&MINI), normal(&statement).text(&MINI));
        prop_assert_eq!(normal(&normal(&other)), normal(&other));
    }

    #[test]
    fn canonical_text_survives_a_round_trip(n in any::<prop::sample::Index>(), keys in prop::collection::vec(any::<u32>(), 31)) {
        let rules = MINI.rules();
        let statement = renamed(&Statement::of_rule(&rules[n.index(rules.len())]), &keys);
        let text = statement.text(&MINI);
        prop_assert_eq!(parse(&text), Ok(statement), "{}", text);
    }

    #[test]
    fn different_statements_have_different_normal_forms(a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
        let rules = MINI.rules();
        let (a, b) = (&rules[a.index(rules.len())], &rules[b.index(rules.len())]);
        let (a, b) = (normal(&Statement::of_rule(a)), normal(&Statement::of_rule(b)));
        prop_assert_eq!(a == b, a.text(&MINI) == b.text(&MINI));
    }

    #[test]
    fn tokens_in_any_order_are_parsed_or_rejected(tokens in prop::collection::vec(
        prop::sample::select(vec!["$d", "$e", "$p", "|-", "(", ")", "->", "ph", "ps", "x", "y", "A.", "=", "A", "{", "|", "}", "nix", "$a"]),
        0..40,
    )) {
        let text = tokens.join(" ");
        match parse(&text) {
            Ok(statement) => prop_assert_eq!(parse(&statement.text(&MINI)), Ok(statement)),
            Err(e) => prop_assert!(!e.kind.is_empty() && !e.detail.is_empty()),
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "\\PC{0,200}") {
        let _ = parse(&text);
        let _ = parse(&format!("$p |- {text}"));
    }
}

#[test]
fn statements_that_differ_by_a_renaming_have_equal_texts() {
    let text = |t: &str| normal(&parse(t).unwrap()).text(&MINI);
    assert_eq!(text("$p |- ( ch -> ( ps -> ch ) )"), "$p |- ( ph -> ( ps -> ph ) )");
    assert_eq!(text("$d y ps $p |- ( ps -> A. y ps )"), "$d ph x $p |- ( ph -> A. x ph )");
    assert_ne!(text("$p |- ( ph -> ps )"), text("$p |- ( ph -> ph )"));
    assert_ne!(text("$d x y $p |- x = y"), text("$p |- x = y"));
    // The order of hypotheses matters, and variables are named in order of appearance.
    assert_eq!(text("$e |- ps $e |- ph $p |- ph"), "$e |- ph $e |- ps $p |- ps");
    // Pairs with variables that do not occur in the statement have no effect.
    assert_eq!(text("$d z w $d x y $p |- x = y"), text("$d y x $p |- x = y"));
    assert_eq!(
        text("$d x y $d y z $d x z $p |- ( x = y -> y = z )"),
        text("$d x y z $p |- ( x = y -> y = z )")
    );
}

#[test]
fn each_malformed_text_has_its_own_kind() {
    let kind = |text: &str| parse(text).unwrap_err().kind;
    let cases = [
        ("", "no-conclusion"),
        ("$e |- ph", "no-conclusion"),
        ("ph $p |- ph", "no-keyword"),
        ("$p |- ph $p |- ph", "after-conclusion"),
        ("$p |- ph $e |- ph", "after-conclusion"),
        ("$e |- ph $d x y $p |- ph", "order"),
        ("$p", "empty-formula"),
        ("$e $p |- ph", "empty-formula"),
        ("$p wff ph", "no-turnstile"),
        ("$p ph", "no-turnstile"),
        ("$p |- nix", "unknown-symbol"),
        ("$p |- ( ph -> )", "no-formula"),
        ("$p |-", "no-formula"),
        ("$p |- A", "no-formula"),
        ("$d x $p |- ph", "distinct"),
        ("$d x x $p |- ph", "distinct"),
        ("$d x ( $p |- ph", "distinct"),
        ("$d x nix $p |- ph", "distinct"),
    ];
    for (text, expected) in cases {
        assert_eq!(kind(text), expected, "{text}");
    }
    assert_eq!(kind(&format!("$p |- {}", "-. ".repeat(1_000))), "too-long");
    assert_eq!(kind(&format!("{} $p |- ph", "$e |- ph ".repeat(33))), "too-many-hypotheses");
    assert_eq!(kind(&format!("$p |- {} ph", "-. ".repeat(600))), "no-formula");
    let few = StatementLimits { variables: 1, ..StatementLimits::default() };
    let error = Statement::parse(&MINI, "$p |- ( ph -> ps )", few).unwrap_err();
    assert_eq!(error.kind, "too-many-variables");
    assert_eq!(context_limit(&MINI, "nix").unwrap_err().kind, "unknown-context");
    assert_eq!(context_limit(&MINI, "").unwrap().0 as usize, MINI.database().statements().len());
}

#[test]
fn the_notation_of_any_theorem_survives_a_round_trip() {
    let system = Metamath::shipped().unwrap();
    let (mut hypotheses, mut distinct) = (0, 0);
    for rule in (0..system.theory().rules().len()).map(|i| RuleId(i as u32)) {
        let problem = system.problem(system.theory().label(rule)).unwrap();
        let printed = system.display_statement(&problem.statement);
        let again = system.problem_from_text("again", &printed, "");
        let again = again.unwrap_or_else(|e| panic!("{printed}: {e}"));
        assert_eq!(again.statement, problem.statement, "{printed}");
        // Users may omit the turnstiles.
        let bare = printed.split(' ').filter(|token| *token != "|-").collect::<Vec<_>>().join(" ");
        assert_eq!(
            system.problem_from_text("bare", &bare, "").unwrap().statement,
            problem.statement,
            "{bare}"
        );
        hypotheses += usize::from(printed.contains("  =>  "));
        distinct += usize::from(printed.contains("($d "));
    }
    assert!(hypotheses > 1_000 && distinct > 1_000, "{hypotheses} with hypotheses, {distinct} with $d");
}

#[test]
fn mistakes_in_human_readable_notation_are_reported() {
    let read = |text: &str| Statement::from_user_text(&MINI, text, StatementLimits::default());
    let cases = [
        ("ph & ps", "no-conclusion"),
        ("ph => ps => ph", "order"),
        ("ph => ps & ph", "order"),
        ("ph  ($d x", "distinct"),
        ("ph  ($d x y)  ps", "after-conclusion"),
        ("=> ph", "empty-formula"),
        ("ph =>", "empty-formula"),
        ("", "empty-formula"),
    ];
    for (text, kind) in cases {
        assert_eq!(read(text).unwrap_err().kind, kind, "{text}");
    }
    let meant = read("ph => ph -> ps").unwrap_err();
    assert!(meant.detail.contains("did you mean `|- ( ph -> ps )`?"), "{meant}");
    assert!(!read("( ph -> ) => ph").unwrap_err().detail.contains("did you mean"));
    let same = read("$d x ph $e |- ph $p |- A. x ph").unwrap();
    assert_eq!(read("\u{feff}ph  =>  A. x ph ($d x ph )").unwrap(), same);
}
