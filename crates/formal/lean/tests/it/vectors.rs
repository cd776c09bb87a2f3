//! Test vectors of the paper's code: prompts byte for byte, and the strict parsers.

use serde::Deserialize;
use serde_json::{Value, json};
use sgs_formal::Condition;
use sgs_lean::Templates;
use sgs_lean::check::{LeanMessage, Probe, Region, Severity, judge_messages, reference_rule};
use sgs_lean::prompt::{self, SolverForm};
use sgs_lean::read::{read_conjecture_strict, read_proof_strict, read_review_strict};
use sgs_selfplay::{Problem, ProblemId, Verdict};

fn cases(section: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../data/vectors.json")).unwrap();
    let cases = all[section]["cases"].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn problem(header: &str, statement: &str) -> Problem {
    Problem { id: ProblemId::new("p"), statement: statement.into(), context: header.into() }
}

#[test]
fn prompts_are_equal_byte_for_byte() {
    let built_in = Templates::default();
    let mut seen = 0;
    for case in cases("prompts") {
        let input = &case["input"];
        let seed = problem("", input["seed_theorem"].as_str().unwrap_or_default());
        let role = text(&case, "role");
        let rendered = match role.split(' ').next().unwrap() {
            "solver" => {
                let problem = problem(text(input, "header"), text(input, "theorem"));
                prompt::solver(&built_in, &problem, SolverForm::NonCot)
            }
            "conjecturer_conditioned" => prompt::conjecturer(&built_in, Condition::Target(&seed)),
            "conjecturer_unconditioned" => prompt::conjecturer(&built_in, Condition::Nothing(&seed)),
            "conjecturer_seed_statement_setup" => {
                let proof = text(input, "seed_proof");
                prompt::conjecturer(&built_in, Condition::Solved { problem: &seed, proof })
            }
            "guide" => prompt::guide(&built_in, &seed, &problem("", text(input, "conjecture"))),
            other => panic!("a role that is not covered: {other}"),
        };
        assert_eq!(rendered, text(&case, "rendered"), "{role}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn the_cot_form_asks_for_a_plan() {
    let problem = problem("import Mathlib\n\n", "theorem a : 1 = 1 := by");
    let rendered = prompt::solver(&Templates::default(), &problem, SolverForm::Cot);
    assert!(rendered.starts_with("Complete the following Lean 4 code:\n\n```lean4\nimport Mathlib\n\ntheorem a : 1 = 1 := by\n  sorry\n```\n\nBefore producing"));
    assert!(rendered.ends_with("final formal proof."));
}

#[test]
fn proofs_are_read_as_the_reference_reads_them() {
    for case in cases("extract_proof") {
        let read = read_proof_strict(text(&case, "generation"));
        let body = read.map_or_else(|_| "NO CODE FOUND".to_owned(), |proof| proof.body);
        assert_eq!(body, text(&case, "strict"), "{}", text(&case, "name"));
    }
}

#[test]
fn conjectures_are_read_as_the_reference_reads_them() {
    for case in cases("extract_conjecture") {
        let read = read_conjecture_strict(text(&case, "generation"));
        let read = read.unwrap_or_else(|_| "NO CONJECTURE FOUND".to_owned());
        assert_eq!(read, text(&case, "out"), "{}", text(&case, "name"));
    }
}

#[test]
fn reviews_are_read_and_scored_as_the_reference_does() {
    for case in cases("guide_parse_and_score") {
        let name = text(&case, "name");
        let Ok(review) = read_review_strict(text(&case, "response")) else {
            assert_eq!(case["failed"], true, "{name}");
            continue;
        };
        assert_eq!(case["failed"], false, "{name}");
        for (key, value) in [
            ("relevance", review.relevance),
            ("redundancy", review.redundancy),
            ("complexity", review.complexity),
        ] {
            let expected: f64 = text(&case, key).parse().unwrap();
            assert!(value == expected || value.is_nan() && expected.is_nan(), "{name}: {key} {value}");
        }
    }
}

/// The verdict rule of the paper's code, on complete REPL replies. It accepts a reply without messages as a proof. We use it
/// nowhere: `replies_without_evidence_are_not_proofs`.
#[test]
fn replies_are_judged_as_the_reference_judges_them() {
    for case in cases("lean_verdict") {
        let name = text(&case, "name");
        let reply = &case["repl_json"];
        let list = |key: &str| reply[key].as_array().cloned().unwrap_or_default();
        let messages: Vec<(Severity, String)> = list("messages")
            .iter()
            .map(|m| {
                let severity = match text(m, "severity") {
                    "error" => Severity::Error,
                    "warning" => Severity::Warning,
                    _ => Severity::Info,
                };
                (severity, text(m, "data").to_owned())
            })
            .collect();
        let messages: Vec<(Severity, &str)> = messages.iter().map(|(s, t)| (*s, t.as_str())).collect();
        let (pass, complete) = reference_rule(&messages, list("sorries").len());
        assert_eq!((pass, complete), (case["pass"] == true, case["complete"] == true), "{name}");
    }
}

#[test]
fn replies_without_evidence_are_not_proofs() {
    let region = Region { pin: None, statement: 2..=3, probe: 7..=8, witness: "sgs_agree_0_n".into() };
    let mut accepted = 0;
    for case in cases("lean_verdict") {
        let name = text(&case, "name");
        let messages: Vec<LeanMessage> = case["repl_json"]["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|m| {
                let message =
                    json!({"severity": m["severity"], "data": m["data"], "pos": {"line": 5, "column": 0}});
                LeanMessage::deserialize(&message).unwrap()
            })
            .collect();
        let sorries = case["repl_json"]["sorries"].as_array().map_or(0, Vec::len);
        let outcome = judge_messages(&messages, sorries, &region, Probe::Axioms);
        // None of these replies mentions our witness theorem.
        assert_ne!(outcome.verdict, Verdict::Proved, "{name}");
        accepted += usize::from(case["complete"] == true);
    }
    assert_eq!(accepted, 5, "replies without evidence that the reference takes for proofs");
}
