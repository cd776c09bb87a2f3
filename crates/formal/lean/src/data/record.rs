//! Converts a JSON record to a target. Accepts the field names of Goedel-Pset, NuminaMath-LEAN, miniF2F, D_3k and our
//! own format.

use super::target::Target;
use crate::read::{Proof, proof_in_source};
use crate::text::{
    ProofStart, SourceCommand, canonical_statement, check_header, commands, lex, parse_declaration,
    unix_lines, words,
};
use serde_json::{Map, Value};
use sgs_selfplay::{Problem, ProblemId, Verdict};

/// The reason why a record was skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}{}{reason}", if .id.is_empty() { "" } else { ": " })]
pub struct RecordError {
    /// The record's id, empty if it has none.
    pub id: String,
    /// The reason.
    pub reason: String,
}

const ID: &[&str] = &["id", "name", "problem_id", "full_name", "uuid"];
const STATEMENT: &[&str] = &["statement", "theorem", "formal_statement", "lean4_code", "lean_code"];
const HEADER: &[&str] = &["header", "src_header"];
const PROOF: &[&str] = &["proof", "formal_proof"];
const HELPERS: &[&str] = &["helpers"];
const TOOLCHAIN: &[&str] = &["toolchain", "lean_toolchain", "lean_version"];
const INFORMAL: &[&str] =
    &["informal", "informal_statement", "nl_statement", "informal_stmt", "problem", "informal_prefix"];

/// Reads a record. `header` is the context of a record without its own.
///
/// The field of the statement may contain a complete file. The text before the theorem becomes part of the context, and
/// a proof other than `sorry` becomes the target's proof.
///
/// # Errors
/// Returns an error if the record has no statement, if its statement cannot be read, or if its header is not allowed.
pub fn target_from_record(record: &Map<String, Value>, header: &str) -> Result<Target, RecordError> {
    let field = |names: &[&str]| {
        names
            .iter()
            .find_map(|n| record.get(*n))
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
    };
    let id = match ID.iter().find_map(|n| record.get(*n)) {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => String::new(),
    };
    let fail = |reason: String| RecordError { id: id.clone(), reason };
    let text = field(STATEMENT)
        .ok_or_else(|| fail(format!("none of the fields {} holds a statement", STATEMENT.join(", "))))?;
    let split = split_file(&unix_lines(text)).map_err(&fail)?;
    let statement = canonical_statement(&split.statement).map_err(|e| fail(e.to_string()))?;
    if words(&split.statement)
        .into_iter()
        .take_while(|word| *word != statement.name())
        .any(|word| word == "private")
    {
        return Err(fail("the judge does not find a private theorem: remove `private`".into()));
    }
    let name = if id.is_empty() { statement.name().to_owned() } else { id.clone() };
    let own = field(HEADER).map(|own| unix_lines(own).into_owned());
    let context = match (own, split.before.trim().is_empty()) {
        (Some(own), true) => own,
        (Some(own), false) => format!("{}\n\n{}", own.trim_end(), split.before),
        (None, false) => split.before,
        (None, true) => header.to_owned(),
    };
    may_stand_before(&context, statement.name()).map_err(fail)?;
    let proof = field(PROOF)
        .map(|text| proof_of(&unix_lines(text), statement.name()))
        .or(split.proof.map(Proof::new));
    let helpers = field(HELPERS).map(unix_lines);
    let proof = proof.map(|proof| with_helpers(proof, helpers.as_deref()).to_text());
    Ok(Target {
        problem: Problem {
            id: ProblemId::new(name),
            statement: statement.text.into(),
            context: context.into(),
        },
        proof,
        informal: field(INFORMAL).map(str::to_owned),
        split: field(&["split", "tag"]).map(str::to_owned),
        source: field(&["source", "problem_source"]).map(str::to_owned),
        toolchain: field(TOOLCHAIN).map(str::to_owned),
        expect: expectation(field(&["expect"])).map_err(fail)?,
    })
}

/// Checks the text before a theorem: it must consist of allowed commands, and must not leave a namespace open, because the judge
/// looks for the theorem under its own name.
pub(super) fn may_stand_before(context: &str, theorem: &str) -> Result<(), String> {
    check_header(context)?;
    let tokens = lex(context);
    if tokens.iter().rfind(|token| !token.is_trivia()).is_some_and(|last| last.text(context) == "in") {
        return Err(
            "the text before the theorem ends with `in`: write `open …` or `set_option …` without it".into(),
        );
    }
    let mut scopes: Vec<Option<&str>> = Vec::new();
    for command in commands(context, &tokens) {
        let text = &context[command.range.clone()];
        let name = words(text).into_iter().skip_while(|word| *word != command.keyword).nth(1);
        match command.keyword.as_str() {
            "namespace" => scopes.extend(name.unwrap_or_default().split('.').map(Some)),
            "section" | "mutual" => scopes.extend(name.unwrap_or_default().split('.').map(|_| None)),
            "end" => {
                let parts = name.unwrap_or_default().split('.').count();
                scopes.truncate(scopes.len().saturating_sub(parts));
            }
            _ => {}
        }
    }
    let open: Vec<&str> = scopes.into_iter().flatten().collect();
    if open.is_empty() {
        return Ok(());
    }
    let space = open.join(".");
    Err(format!(
        "{theorem} is declared inside of `namespace {space}`, where the judge does not find it: end the namespace before it, and name it \
         {space}.{theorem}"
    ))
}

/// Reads a proof in one of the forms of data sets: a tactic block, our canonical text, or a file that proves the theorem
/// after helper theorems.
fn proof_of(text: &str, name: &str) -> Proof {
    let canonical = Proof::from_text(text);
    if !canonical.helpers.is_empty() {
        return canonical;
    }
    // A text that cannot be read is kept, so that the checker reports what is wrong with it.
    proof_in_source(text, name).and_then(Result::ok).unwrap_or(canonical)
}

fn with_helpers(proof: Proof, more: Option<&str>) -> Proof {
    let all: Vec<&str> = more.into_iter().chain([proof.helpers.as_str()]).map(str::trim).collect();
    Proof { helpers: all.join("\n\n").trim().to_owned(), body: proof.body }
}

fn expectation(text: Option<&str>) -> Result<Option<Verdict>, String> {
    text.map(|text| {
        serde_json::from_value(Value::String(text.to_owned())).map_err(|_| {
            format!("`expect` is `{text}`; it may be proved, refused, malformed, resource or infra")
        })
    })
    .transpose()
}

struct SourceSplit {
    before: String,
    statement: String,
    proof: Option<String>,
}

/// Splits a complete file into the text before its only theorem, the theorem's statement, and its proof.
fn split_file(text: &str) -> Result<SourceSplit, String> {
    let tokens = lex(text);
    let found = commands(text, &tokens);
    let theorems: Vec<&SourceCommand> = found.iter().filter(|c| c.is_theorem()).collect();
    let theorem = match theorems.as_slice() {
        [one] => *one,
        [] => return Err("no theorem".into()),
        several => return Err(format!("{} theorems where one is expected", several.len())),
    };
    let before = text[..theorem.range.start].to_owned();
    let source = &text[theorem.range.clone()];
    // `end` changes nothing. Anything else could be meant as a part of the problem.
    let mut after = found.iter().filter(|c| c.range.start > theorem.range.start);
    if let Some(word) = word_after_sorry(source).or_else(|| after.find_map(|c| word_besides_end(text, c))) {
        return Err(format!("malformed statement: text after the theorem (`{word}`)"));
    }
    // `canonical_statement` handles statements without a proof, with `sorry`, or with a commented `:= by`.
    let proof = body_of(source);
    let statement = match (&proof, parse_declaration(source, &lex(source))) {
        (Some(_), Some(declaration)) => {
            let head = &source[..declaration.proof.statement_end(source)];
            format!("{} := by", head.trim_end())
        }
        _ => source.to_owned(),
    };
    Ok(SourceSplit { before, statement, proof })
}

/// Returns the keyword of a command or, if it is `end`, the first word that does not belong to it.
fn word_besides_end<'t>(text: &'t str, command: &'t SourceCommand) -> Option<&'t str> {
    if command.keyword != "end" {
        return Some(&command.keyword);
    }
    let own = &text[command.range.clone()];
    let mut tokens = lex(own).into_iter().filter(|token| !token.is_trivia()).peekable();
    if let Some(end) = tokens.next_if(|token| token.text(own) == "end") {
        // The name of what ends is on the same line.
        tokens.next_if(|name| !own[end.end..name.start].contains('\n'));
    }
    own[tokens.next()?.start..].split_whitespace().next()
}

/// Returns the first word after a `sorry` that begins the proof of a declaration, unless only comments follow.
fn word_after_sorry(source: &str) -> Option<&str> {
    let (ProofStart::By { after, .. } | ProofStart::Term { after, .. }) =
        parse_declaration(source, &lex(source))?.proof
    else {
        return None;
    };
    let proof = source.get(after..)?;
    let mut tokens = lex(proof).into_iter().filter(|token| !token.is_trivia());
    tokens.next().filter(|first| first.text(proof) == "sorry")?;
    proof.get(tokens.next()?.start..)?.split_whitespace().next()
}

/// Returns the proof of a declaration as a tactic block, unless it is empty or `sorry`.
fn body_of(source: &str) -> Option<String> {
    let tokens = lex(source);
    let found = commands(source, &tokens);
    let last = found.iter().rfind(|c| c.is_theorem())?;
    let text = source.get(last.range.clone())?;
    let (after, is_term) = match parse_declaration(text, &lex(text))?.proof {
        ProofStart::By { after, .. } => (after, false),
        ProofStart::Term { after, .. } => (after, true),
        _ => return None,
    };
    let proof = text.get(after..)?;
    match words(proof).as_slice() {
        [] | ["sorry"] => None,
        _ if is_term => Some(format!("\n  exact ({})", proof.trim())),
        _ => Some(proof.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Target, RecordError> {
        target_from_record(&serde_json::from_str(json).unwrap(), "HEADER\n")
    }

    #[test]
    fn the_known_layouts_are_read() {
        let goedel = read(r#"{"problem_id":"g1","informal_statement":"w","formal_statement":"import Mathlib\nopen Real\n\ntheorem a (x : ℝ) : x = x := by sorry"}"#).unwrap();
        assert_eq!(&*goedel.problem.statement, "theorem a (x : ℝ) : x = x := by");
        assert_eq!(&*goedel.problem.context, "import Mathlib\nopen Real\n\n");
        assert_eq!(goedel.informal.as_deref(), Some("w"));
        let numina = read(r#"{"uuid":"u","problem":"w","formal_statement":"import Mathlib\n\ntheorem a : 1 = 1 := by sorry","formal_proof":"import Mathlib\n\nlemma h : True := trivial\ntheorem a : 1 = 1 := by\n  rfl"}"#).unwrap();
        let helped = Proof { helpers: "lemma h : True := trivial".into(), body: "\n  rfl".into() };
        assert_eq!(numina.proof, Some(helped.to_text()));
        let again =
            format!(r#"{{"statement":"theorem a : 1 = 1 := by","proof":{}}}"#, Value::from(helped.to_text()));
        assert_eq!(read(&again).unwrap().proof, Some(helped.to_text()), "canonical text stays as it is");
        let apart = r#"{"statement":"theorem a : 1 = 1 := by","helpers":"lemma h : True := trivial","proof":"\n  rfl"}"#;
        assert_eq!(read(apart).unwrap().proof, Some(helped.to_text()));
        let minif2f = read(r#"{"name":"m1","split":"valid","informal_prefix":"/-- w -/\n","formal_statement":"theorem m1 (x : ℝ) : x = x := by\n","header":"import Mathlib\n"}"#).unwrap();
        assert_eq!(minif2f.problem.id.as_str(), "m1");
        assert_eq!(minif2f.split.as_deref(), Some("valid"));
        let bare =
            read(r#"{"statement":"theorem b : 1 = 1 := by","proof":"\n  rfl","expect":"proved"}"#).unwrap();
        assert_eq!(bare.problem.id.as_str(), "b");
        assert_eq!(&*bare.problem.context, "HEADER\n");
        assert_eq!(bare.expect, Some(Verdict::Proved));
    }

    #[test]
    fn a_header_that_ends_in_in_is_refused() {
        for before in ["open Nat in", "set_option maxRecDepth 1000 in -- much\n"] {
            let record =
                serde_json::json!({ "id": "x", "statement": format!("{before}\ntheorem a : 1 = 1 := by") });
            assert!(read(&record.to_string()).unwrap_err().reason.contains("ends with `in`"), "{before}");
            let record = serde_json::json!({ "header": before, "statement": "theorem a : 1 = 1 := by" });
            assert!(read(&record.to_string()).is_err(), "{before}");
        }
        assert!(read(r#"{"statement":"open Nat\ntheorem a : 1 = 1 := by"}"#).is_ok());
    }

    #[test]
    fn a_private_theorem_is_refused() {
        let of = |statement: &str| read(&serde_json::json!({ "statement": statement }).to_string());
        assert!(of("private theorem a : 1 = 1 := by").unwrap_err().reason.contains("remove `private`"));
        assert!(of("theorem private_a (private_b : 1 = 1) : 1 = 1 := by").is_ok());
    }

    #[test]
    fn a_theorem_inside_of_a_namespace_is_refused() {
        let read = |before: &str| {
            read(&serde_json::json!({ "header": before, "statement": "theorem a : 1 = 1 := by" }).to_string())
        };
        for (before, space) in [
            ("namespace A", "A"),
            ("namespace A.B\nend B", "A"),
            ("namespace A\nsection\nend\nnamespace B", "A.B"),
            ("noncomputable section\nnamespace A", "A"),
        ] {
            let reason = read(before).unwrap_err().reason;
            assert!(
                reason.contains(&format!("`namespace {space}`")) && reason.contains(&format!("{space}.a")),
                "{reason}"
            );
        }
        for before in [
            "namespace A\ndef x := 1\nend A\nopen A",
            "namespace A.B\nend A.B",
            "section\nvariable (n : Nat)",
            "-- namespace A",
        ] {
            assert!(read(before).is_ok(), "{before}");
        }
    }

    #[test]
    fn a_header_that_could_prove_anything_is_refused() {
        for before in [
            "axiom foo : False\n",
            "import Mathlib\ninstance : Inhabited False := ⟨sorry⟩\n",
            "unsafe def foo : Nat := 1\n",
        ] {
            let apart =
                serde_json::json!({ "header": before, "statement": "theorem a : (1 : Nat) = 2 := by" });
            let whole =
                serde_json::json!({ "statement": format!("{before}theorem a : (1 : Nat) = 2 := by sorry") });
            for record in [apart, whole] {
                let reason = read(&record.to_string()).unwrap_err().reason;
                assert!(reason.starts_with("the header contains `"), "{reason}");
            }
        }
    }

    #[test]
    fn a_text_after_the_theorem_is_refused() {
        for (after, word) in [
            ("axiom foo : False", "axiom"),
            ("def f := 1", "def"),
            ("open Nat", "open"),
            ("#print axioms a", "#print"),
        ] {
            for proof in ["by sorry", "trivial", "by"] {
                let statement = format!("theorem a : True := {proof}\n\n{after}\n");
                let reason =
                    read(&serde_json::json!({ "statement": statement }).to_string()).unwrap_err().reason;
                assert_eq!(reason, format!("malformed statement: text after the theorem (`{word}`)"));
            }
        }
        for (after, word) in
            [("some prose", "some"), ("foo_cmd bar", "foo_cmd"), ("/-- doc -/", "/--"), ("```", "```")]
        {
            for proof in ["by sorry", "sorry", "by\n  sorry -- later"] {
                for (before, end) in [("", ""), ("", "\nend\n"), ("end\n", ""), ("end A\n\n", "\nend B")] {
                    let statement = format!("theorem a : True := {proof}\n\n{before}{after}\n{end}");
                    let reason =
                        read(&serde_json::json!({ "statement": statement }).to_string()).unwrap_err().reason;
                    assert_eq!(reason, format!("malformed statement: text after the theorem (`{word}`)"));
                }
            }
        }
        for comment in ["", "-- done", "/- done -/", "\n \n", "end\nend A.B -- done\n/- done -/"] {
            let statement = format!("theorem a : True := by sorry\n{comment}\n");
            let target = read(&serde_json::json!({ "statement": statement }).to_string()).unwrap();
            assert_eq!(target.proof, None, "{comment}");
        }
        let closed = "section\ntheorem a : True := by sorry\nend\n-- done\n";
        assert!(read(&serde_json::json!({ "statement": closed }).to_string()).is_ok());
    }

    #[test]
    fn sorry_is_no_proof() {
        for proof in ["by sorry", "sorry", "by\n  sorry -- later", "", "by"] {
            let record = serde_json::json!({ "statement": format!("lemma g : 1 = 1 := {proof}") });
            let target = read(&record.to_string()).unwrap();
            assert_eq!(
                (&*target.problem.statement, target.proof),
                ("lemma g : 1 = 1 := by", None),
                "{proof}"
            );
        }
    }

    #[test]
    fn line_ends_of_other_systems_are_read() {
        let target = read(&serde_json::json!({
            "header": "import Mathlib\r\n", "statement": "theorem a :\r\n  1 = 1 := by\r\n", "proof": "\r\n  rfl\r\n",
            "helpers": "theorem b :\r\n  1 = 1 := rfl"
        }).to_string()).unwrap();
        assert_eq!(&*target.problem.context, "import Mathlib\n");
        assert_eq!(&*target.problem.statement, "theorem a :\n  1 = 1 := by");
        let helped = Proof { helpers: "theorem b :\n  1 = 1 := rfl".into(), body: "\n  rfl\n".into() };
        assert_eq!(target.proof, Some(helped.to_text()));
    }

    #[test]
    fn errors_name_the_problem() {
        assert!(read(r#"{"id":"x"}"#).unwrap_err().reason.contains("holds a statement"));
        assert!(
            read(r#"{"id":7,"statement":"def a := 1"}"#)
                .unwrap_err()
                .to_string()
                .starts_with("7: no theorem")
        );
        assert!(
            read(r#"{"statement":"theorem a : 1 = 1 := rfl\ntheorem b : 1 = 1 := rfl"}"#)
                .unwrap_err()
                .reason
                .contains("2 theorems")
        );
        assert!(
            read(r#"{"statement":"theorem a : 1 = 1 := by","expect":"x"}"#)
                .unwrap_err()
                .reason
                .contains("may be proved")
        );
    }
}
