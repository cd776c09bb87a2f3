//! The paper's 3,323 targets: every statement is read, its proof position is found, and its defects are repaired.

use sgs_lean::data::{Import, read_file, read_text, write_line};
use sgs_lean::text::{Bounds, LeanStatement, ProofStart, assumptions, canonical_statement, negation};
use std::path::Path;

fn d3k() -> Import {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data/lean/D_3k.json.zst");
    read_file(&path, "").unwrap()
}

#[derive(serde::Deserialize)]
struct Defects {
    commented_proof: Vec<String>,
    def_substring: Vec<String>,
}

fn defects() -> Defects {
    serde_json::from_str(include_str!("../data/d3k_defects.json")).unwrap()
}

#[test]
fn every_statement_is_read_and_its_proof_position_found() {
    let import = d3k();
    assert_eq!(import.skipped, []);
    assert_eq!(import.targets.len(), 3323);
    for target in &import.targets {
        let text = &target.problem.statement;
        let statement = LeanStatement::read(text).unwrap_or_else(|e| panic!("{}: {e}", target.problem.id));
        let ProofStart::By { after, .. } = statement.declaration.proof else {
            panic!("{}", target.problem.id)
        };
        assert_eq!(after, text.len(), "{}", target.problem.id);
        assert!(!statement.conclusion().is_empty(), "{}", target.problem.id);
        assert!(text.starts_with("theorem ") && text.ends_with(":= by"), "{}", target.problem.id);
    }
}

#[test]
fn no_header_assumes_anything() {
    for target in d3k().targets {
        assert_eq!(assumptions(&target.problem.context), [""; 0], "{}", target.problem.id);
    }
}

#[test]
fn the_48_commented_proofs_are_repaired() {
    let (import, repaired) = (d3k(), defects().commented_proof);
    assert_eq!(repaired.len(), 48);
    for id in repaired {
        let target = import.targets.iter().find(|t| t.problem.id.as_str() == id).unwrap();
        assert!(target.problem.statement.ends_with("\n  := by"), "{id}");
    }
}

#[test]
fn the_85_statements_that_the_reference_loses_accept_a_proof() {
    let defects = defects();
    let lost = |id: &str| defects.commented_proof.iter().chain(&defects.def_substring).any(|d| d == id);
    let import = d3k();
    let targets: Vec<_> = import.targets.iter().filter(|t| lost(t.problem.id.as_str())).collect();
    assert_eq!(targets.len(), 85);
    for target in targets {
        let whole = format!("{}\n  nlinarith [sq_nonneg x]", target.problem.statement);
        let tokens = sgs_lean::text::lex(&whole);
        let declaration = sgs_lean::text::parse_declaration(&whole, &tokens).unwrap();
        let ProofStart::By { after, .. } = declaration.proof else { panic!("{}", target.problem.id) };
        assert_eq!(whole[after..].trim(), "nlinarith [sq_nonneg x]", "{}", target.problem.id);
    }
}

#[test]
fn the_limits_admit_every_target() {
    for target in d3k().targets {
        if let Err(error) = Bounds::default().check(&target.problem.statement) {
            panic!("{}: {error}", target.problem.id);
        }
    }
}

/// Returns the names that a statement uses without binding them, if Lean would bind them automatically (a letter, with
/// digits or a prime). Binders are recognized generously, so the count is a lower bound. Letters with a meaning in Mathlib
/// are excluded.
fn unbound(statement: &LeanStatement) -> Vec<String> {
    let source = &statement.text[statement.declaration.name.end..];
    let tokens = sgs_lean::text::lex(source);
    let tokens: Vec<&str> = tokens.iter().filter(|t| !t.is_trivia()).map(|t| t.text(source)).collect();
    let is_name = |t: &str| t.chars().next().is_some_and(char::is_alphabetic);
    let letter = |t: &str| {
        let mut rest = t.chars();
        rest.next().is_some_and(char::is_alphabetic)
            && rest.all(|c| c.is_ascii_digit() || c == '\'' || ('\u{2080}'..='\u{2089}').contains(&c))
    };
    let mut bound = std::collections::BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        if matches!(
            *token,
            "∀" | "∃"
                | "λ"
                | "fun"
                | "∑"
                | "∑'"
                | "∏"
                | "∏'"
                | "∫"
                | "⋃"
                | "⋂"
                | "let"
                | "have"
                | "⨆"
                | "⨅"
        ) {
            let names = tokens[at + 1..].iter().take(14).take_while(|t| !matches!(**t, "," | "=>" | "↦"));
            bound.extend(names.copied());
        }
        if matches!(*token, ":" | "∈" | "|") {
            bound.extend(
                tokens[..at]
                    .iter()
                    .rev()
                    .take_while(|t| is_name(t) || matches!(**t, "," | "⟩" | ")"))
                    .copied(),
            );
        }
    }
    let meant = ["ℝ", "ℕ", "ℤ", "ℚ", "ℂ", "π", "I", "φ", "ψ", "e", "σ", "Γ", "ζ"];
    let roots = tokens.iter().map(|t| t.split('.').next().unwrap_or(t));
    roots.filter(|t| letter(t) && !bound.contains(t) && !meant.contains(t)).map(str::to_owned).collect()
}

#[test]
fn one_statement_in_twenty_depends_on_auto_implicit() {
    let targets = d3k().targets;
    let read = targets.iter().map(|t| LeanStatement::read(&t.problem.statement).unwrap());
    let affected = read.filter(|s| !unbound(s).is_empty()).count();
    println!("{affected} of {} statements", targets.len());
    assert_eq!(affected, 152);
}

#[test]
fn negations_consist_of_the_statements_tokens() {
    let words = |text: &str| -> Vec<String> {
        let tokens = sgs_lean::text::lex(text);
        tokens.iter().filter(|t| !t.is_trivia()).map(|t| t.text(text).to_owned()).collect()
    };
    for target in d3k().targets {
        let (id, statement) = (&target.problem.id, LeanStatement::read(&target.problem.statement).unwrap());
        let negated = negation(&statement).unwrap_or_else(|e| panic!("{id}: {e}"));
        let (text, parts) = (&statement.text, &statement.declaration);
        let colon = parts.conclusion.start - 1;
        let begin = parts.binders.first().map_or(colon, |binder| binder.range.start);
        let (head, binders) = (words(&text[..begin]), words(&text[begin..colon]));
        let (quantifier, comma) =
            if binders.is_empty() { (words(""), words("")) } else { (words("∀"), words(",")) };
        let conclusion = words(&text[parts.conclusion.clone()]);
        let expected =
            [head, words(": ¬ ("), quantifier, binders, comma, conclusion, words(") := by")].concat();
        assert_eq!(words(&negated.text), expected, "{id}");
    }
}

#[test]
fn a_let_inside_of_a_binder_belongs_to_its_type() {
    let has_let = |text: &str| text.contains("let ") || text.contains("have ");
    let mut found = 0;
    for target in d3k().targets {
        let statement = LeanStatement::read(&target.problem.statement).unwrap();
        for binder in
            statement.declaration.binders.iter().filter(|b| has_let(&statement.text[b.range.clone()]))
        {
            found += 1;
            assert_eq!(binder.ty.end + 1, binder.range.end, "{}", target.problem.id);
        }
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn the_toolchain_of_the_set_is_kept() {
    let import = d3k();
    assert!(import.targets.iter().all(|t| t.toolchain.as_deref() == Some("v4.15.0")));
    let written: String = import.targets.iter().map(write_line).collect();
    let again = read_text("again.jsonl", &written, "").unwrap();
    assert_eq!(again.targets, import.targets);
}

#[test]
fn canonical_text_is_a_fixed_point() {
    for target in d3k().targets {
        let again = canonical_statement(&target.problem.statement).unwrap();
        assert_eq!(again.text, *target.problem.statement);
    }
}
