//! The checks of `sgs external check`.

use crate::example::SEQUENCES;
use crate::{problem, settings, start};
use sgs_external::External;
use sgs_external::conformance::{Check, CheckResult, ProvedProblem, conformance};
use sgs_formal::{Condition, FormalSystem};
use sgs_selfplay::{Problem, ProblemId};

/// Returns the checks of a program, with proofs of the first problem.
fn checks(command: &[&str], proofs: &[&str]) -> Vec<Check> {
    let system = start(settings(command)).unwrap();
    let cubes = Problem { id: ProblemId::new("cubes"), ..problem("0 1 8 27 64 25 16 43") };
    let problems = [problem("0 1 4 9 16 25 36 49"), cubes];
    let proved: Vec<ProvedProblem> = proofs
        .iter()
        .map(|proof| ProvedProblem { problem: problems[0].clone(), proof: (*proof).to_owned() })
        .collect();
    conformance(&system, &problems, &proved)
}

fn find<'a>(checks: &'a [Check], name: &str) -> (&'a CheckResult, &'a str) {
    let check = checks.iter().find(|check| check.name == name).unwrap();
    (&check.outcome, &check.detail)
}

#[test]
fn the_example_passes() {
    let checks = checks(&["python3", SEQUENCES], &["n dup *"]);
    assert!(checks.iter().all(|check| check.outcome == CheckResult::Ok), "{checks:#?}");
    let without = self::checks(&["python3", SEQUENCES], &[]);
    assert_eq!(find(&without, "known proofs").0, &CheckResult::Warning);
    let wrong = self::checks(&["python3", SEQUENCES], &["n dup *", "n"]);
    let (outcome, detail) = find(&wrong, "known proofs");
    assert_eq!(outcome, &CheckResult::Failed);
    assert!(detail.starts_with("1 of 2 not accepted, such as p: refused"), "{detail}");
}

/// A system whose verdicts and results come from Python expressions.
fn system(prompts: &str, reads: &str, verdict: &str) -> String {
    format!(
        r#"
import json, sys
seen = 0
for line in sys.stdin:
    r = json.loads(line)
    seen += 1
    if r["op"] == "describe":
        result = {{"name": "n", "version": "1", "prompts": {prompts}}}
    elif r["op"] == "verify":
        result = {{"verdicts": [{{"verdict": {verdict}}} for i, proof in enumerate(r["proofs"])]}}
    else:
        result = {reads}
    print(json.dumps({{"id": r["id"], "result": result}}), flush=True)
"#
    )
}

const PROMPTS: &str =
    r#"{"solver": "{statement}", "conjecturer": "{statement}", "guide": "{statement}{conjecture}"}"#;
const MALFORMED: &str = r#"{"malformed": "no"}"#;

#[test]
fn defects_are_found() {
    let python = |program: &str| checks(&["python3", "-c", program], &[]);
    for (prompts, reads, verdict, name, said) in [
        (PROMPTS, MALFORMED, "'proved'", "wrong proofs", "as the proof of all 2 problems"),
        (PROMPTS, MALFORMED, "'true'", "wrong proofs", "no verdict for p: external `verify`"),
        (PROMPTS, r#"{"text": 1}"#, "'refused'", "read_proof", "no result for \"\": external `read_proof`"),
        (
            PROMPTS,
            MALFORMED,
            "'proved' if i == 3 else 'refused'",
            "repeated verdicts",
            "among others and refused",
        ),
        (
            r#"{"solver": "prove", "conjecturer": "{statement}", "guide": "{conjecture}"}"#,
            MALFORMED,
            "'refused'",
            "prompts",
            "`solver` does not contain {statement}",
        ),
        (
            r#"{"solver": "{statement}", "conjecturer": "{statement}", "guide": "{statement}"}"#,
            MALFORMED,
            "'refused'",
            "prompts",
            "`guide` does not contain {conjecture}",
        ),
    ] {
        let checks = python(&system(prompts, reads, verdict));
        let (outcome, detail) = find(&checks, name);
        assert_eq!(outcome, &CheckResult::Failed, "{checks:#?}");
        assert!(detail.contains(said), "{detail}");
    }
    let checks = python(&system(PROMPTS, MALFORMED, "'refused'"));
    assert!(checks.iter().all(|check| check.outcome != CheckResult::Failed), "{checks:#?}");
}

#[test]
fn a_missing_rubric_is_a_fault_if_the_guide_needs_it() {
    let reads = r#"{"statement": "s", "proof": "p"}"#;
    let program = system(r#"{"solver": "{statement}", "conjecturer": "{statement}"}"#, reads, "'refused'");
    let start = || start(settings(&["python3", "-c", &program])).unwrap();
    assert!(!start().has_guide_prompt());
    let target = problem("t");
    let read = |system: &External| system.read_conjecture(Condition::Target(&target), "x");
    assert_eq!(read(&start()).unwrap().rubric, 0.0);
    let fault = read(&start().with_rubric()).unwrap_err();
    assert!(
        fault.is_infra() && fault.detail.contains("no `rubric`, which algorithm.guide.kind"),
        "{fault:?}"
    );

    let high = system(PROMPTS, r#"{"statement": "s", "rubric": 11}"#, "'refused'");
    let fault = read(&self::start(settings(&["python3", "-c", &high])).unwrap()).unwrap_err();
    assert!(fault.is_infra() && fault.detail.contains("`rubric` is 11, expected 0 to 8"), "{fault:?}");
}
