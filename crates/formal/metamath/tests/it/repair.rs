//! Prompts that show a refused proof and its error.

use sgs_formal::{FormalSystem, Prompt};
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens::vocabulary;
use sgs_selfplay::{FailedProof, Verdict};

#[test]
fn a_repair_prompt_marks_the_step_at_fault_and_shows_its_formulas() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    let (special, words) = vocabulary(system.theory());
    let prompt_after = |proof: &str| {
        let judgement = system.verify(&syl, proof);
        assert_eq!(judgement.verdict, Verdict::Refused, "{}", judgement.reason);
        let failed = FailedProof::new(proof.into(), &judgement);
        let (Prompt::Raw(first), Prompt::Raw(prompt)) =
            (system.solver_prompt(&syl), system.repair_prompt(&syl, &failed))
        else {
            panic!("no chat")
        };
        let known = |word: &&str| special.iter().chain(&words).any(|token| token == word);
        let unknown: Vec<&str> = prompt.split(' ').filter(|word| !known(word)).collect();
        assert!(
            unknown.iter().all(|word| word.starts_with('?')),
            "only open variables have no token: {unknown:?}"
        );
        prompt.strip_prefix(&first).unwrap().to_owned()
    };
    let mismatch = prompt_after("h1 h1 a1i mpd");
    let (steps, formulas) = mismatch.split_once(" ~mpd <review> ").unwrap();
    assert_eq!(steps, " h1 h1 ~a1i <review>");
    assert!(formulas.starts_with("|- ( ph -> ( ps -> ?"), "{formulas}");
    assert!(formulas.ends_with(" ) ) |- ( ph -> ( ph -> ps ) ) <proof>"), "{formulas}");
    assert_eq!(prompt_after("h1"), " h1 <review> |- ( ph -> ps ) <proof>", "it proves another statement");
    assert_eq!(prompt_after("h1 h2"), " h1 h2 <review> <proof>", "formulas are left over");
    assert_eq!(prompt_after("h1 mpd h2"), " h1 <review> ~mpd h2 <review> <proof>", "a formula is missing");
}

#[test]
fn an_error_is_untrusted_text() {
    let system = Metamath::shipped().unwrap();
    let syl = system.problem("syl").unwrap();
    for (error, step) in [("", Some(0)), ("|-,", Some(99)), ("∀ |- a, |", None), (",", Some(u32::MAX))] {
        let failed = FailedProof { proof: "h1".into(), error: error.into(), step };
        let Prompt::Raw(prompt) = system.repair_prompt(&syl, &failed) else { panic!("no chat") };
        assert!(prompt.ends_with(" <proof>") && prompt.contains(" h1 "), "{prompt}");
    }
}
