//! Proofs as text.

use sgs_metamath::database::Database;
use sgs_metamath::proof_text::{MAX_PROOF_TOKENS, read_steps, write_steps};
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::ProofStep;

const TINY: &str = "$c ( ) -> wff |- $. $v ph ps $. wph $f wff ph $. wps $f wff ps $.
    wi $a wff ( ph -> ps ) $. ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
    ${ mp.1 $e |- ph $. mp.2 $e |- ( ph -> ps ) $. ax-mp $a |- ps $. $}";

fn theory() -> Theory {
    Theory::new(Database::parse("tiny.mm", TINY.as_bytes()).unwrap()).unwrap()
}

fn kind(hypotheses: usize, text: &str) -> (&'static str, Option<u32>) {
    let e = read_steps(&theory(), hypotheses, text.split_ascii_whitespace()).unwrap_err();
    assert!(e.to_string().starts_with(e.kind));
    (e.kind, e.step)
}

#[test]
fn a_proof_survives_a_round_trip() {
    let theory = theory();
    let text = "h1 ax-1 ax-mp";
    let steps = read_steps(&theory, 1, text.split(' ')).unwrap();
    assert_eq!(steps[0], ProofStep::Hypothesis(0));
    assert_eq!(write_steps(&theory, &steps), text);
}

#[test]
fn each_defect_has_its_own_kind() {
    assert_eq!(kind(0, ""), ("empty-proof", None));
    assert_eq!(kind(1, "h1 h2"), ("no-such-hypothesis", Some(2)));
    assert_eq!(kind(1, "h0"), ("hypothesis-number", Some(1)));
    assert_eq!(kind(1, "h01"), ("hypothesis-number", Some(1)));
    assert_eq!(kind(1, "h99999999999999999999999"), ("hypothesis-number", Some(1)));
    assert_eq!(kind(1, "h1 nix"), ("unknown-label", Some(2)));
    assert_eq!(kind(1, "h"), ("unknown-label", Some(1)));
    assert_eq!(kind(1, "wi"), ("syntax-label", Some(1)));
    assert_eq!(kind(1, "wph"), ("variable-label", Some(1)));
    assert_eq!(kind(1, "mp.1"), ("hypothesis-label", Some(1)));
    assert_eq!(kind(1, &"ax-1 ".repeat(MAX_PROOF_TOKENS + 1)), ("too-many-tokens", None));
}

#[test]
fn long_tokens_are_truncated_in_messages() {
    let e = read_steps(&theory(), 0, ["é".repeat(5_000)]).unwrap_err();
    assert!(e.detail.chars().count() < 120, "{}", e.detail);
}

proptest::proptest! {
    /// The recorded text of a proof must parse as the proof that was judged.
    #[test]
    fn any_proof_survives_a_round_trip(drawn in proptest::collection::vec((0_u32..4, 0_u32..1_000), 1..60)) {
        let theory = theory();
        let step = |(hypothesis, rule): (u32, u32)| match hypothesis {
            3 => ProofStep::Rule(sgs_metamath::theory::RuleId(rule % theory.rules().len() as u32)),
            hypothesis => ProofStep::Hypothesis(hypothesis),
        };
        let steps: Vec<ProofStep> = drawn.into_iter().map(step).collect();
        let text = write_steps(&theory, &steps);
        proptest::prop_assert_eq!(read_steps(&theory, 3, text.split_ascii_whitespace()).unwrap(), steps);
    }
}
