//! Fuzz test of the rows of data sets and of the texts of models.

use crate::fuzzing::Fuzzer;
use sgs_lean::data::{read_text, write_line};
use sgs_lean::read::{read_conjecture, read_conjecture_strict, read_proof, read_proof_strict};
use sgs_lean::text::{Bounds, LeanStatement, assumptions, negation};

/// Reads a statement and completions from a model's text.
fn read_as_a_model(text: &str) {
    let bounds = Bounds::default();
    for line in assumptions(text) {
        // Each becomes a part of one message.
        assert!(line.len() < 1000 && !line.contains('\n'), "{line}");
    }
    let _ = (bounds.check(text), read_conjecture(text, &bounds), read_conjecture_strict(text));
    let statement = "theorem t (n : Nat) : n = n := by";
    for proof in [read_proof(statement, text, &bounds), read_proof_strict(text)].into_iter().flatten() {
        let _ = bounds.check(&proof.to_text());
    }
    if let Ok(statement) = LeanStatement::read(text) {
        let _ = negation(&statement);
    }
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_rows_of_data_sets() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data/lean");
    let rows = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let sets = ["core.jsonl", "corpus.jsonl", "exploits.jsonl"].map(rows);
    let mut corpus: Vec<Vec<u8>> =
        sets.iter().flat_map(|set| set.lines()).step_by(3).map(|row| format!("{row}\n").into()).collect();
    let source = "import Mathlib\nopen Real in\nset_option maxHeartbeats 400 in\n/-- α -/\n@[simp]\ntheorem a.«b c» (x : ℝ) : x = x := by\n  sorry\nnamespace A\nlemma h : \"\\\"--\" = r#\"a\"b\"# := rfl\nend A\nexample : 1 = 1 := sorry\n";
    let assuming = "universe u\nvariable {α : Type u} (h : False) [C α]\nattribute [local instance] c\nlocal infix:50 \" ~ \" => f\n";
    for (before, statement) in [
        ("theorem a : 1 = 1 := rfl\n", "theorem b : ∀ x, x = x := by sorry"),
        (assuming, "theorem c .{v} (β : Type v) : True := by sorry"),
        ("", source),
    ] {
        let record = serde_json::json!({ "problem_id": 7, "header": before, "formal_statement": statement, "split": "valid",
            "formal_proof": format!("lemma h : True := trivial\n{statement}"), "lean_version": "v4.9.0", "informal_stmt": "w" });
        let d3k =
            serde_json::json!({ "target_statements": { "one": record, "two": { "theorem": statement } } });
        corpus.extend(
            [record.to_string(), serde_json::json!([record, record]).to_string(), d3k.to_string()]
                .map(Into::into),
        );
        corpus.push(format!("```lean4\n{before}{statement}\n```").into());
    }
    corpus.push(source.into());
    let mut fuzzer = Fuzzer::new(corpus);
    while let Some(bytes) = fuzzer.input() {
        let text = String::from_utf8_lossy(&bytes);
        read_as_a_model(&text);
        let mut is_whole = false;
        for name in ["set.jsonl", "set.json", "set.lean"] {
            let Ok(import) = read_text(name, &text, "import Mathlib\n") else { continue };
            // An imported problem is written, and read back unchanged.
            let written: String = import.targets.iter().map(write_line).collect();
            let again = read_text("again.jsonl", &written, "").unwrap();
            assert_eq!((&again.targets, &again.skipped), (&import.targets, &Vec::new()), "{text}");
            is_whole |= !import.targets.is_empty();
        }
        if is_whole {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("rows of data sets");
}
