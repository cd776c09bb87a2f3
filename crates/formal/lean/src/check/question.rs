//! Requests to a judge process, and its answers.
//!
//! The process (`lean/SgsJudge`) loads the header once and elaborates every candidate over the header's environment, so
//! that no candidate sees another. The request is one line of JSON. The answer has several lines: one when the header
//! is loaded, and one at the beginning and one at the end of every candidate. Each line carries a nonce that the
//! model's text cannot know.

use super::assemble::Candidate;
use super::evidence::{
    CheckOutcome, LeanMessage, Severity, TrustLayers, is_sorry, judge_axioms, judge_error, without_evidence,
};
use crate::text::{commands, lex};
use serde::Deserialize;
use serde_json::{Value, json};
use sgs_selfplay::Verdict;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(super) struct JudgeQuestion<'c> {
    pub candidate: &'c Candidate,
    /// Suffix of the generated names. It is the same in every request about the candidate, because the second process
    /// looks for the names that the first process declared.
    pub id: String,
    /// File for the declarations that the theorem depends on. The first process writes it and the second reads it.
    pub declarations: Option<PathBuf>,
}

/// Returns the request for candidates that share a header. There must be at least one.
///
/// `nonce` must be fresh for every request and occur in no name: the model's text can see the name of its namespace,
/// and must not learn how to forge an answer. `opening` precedes the header's other commands. `examines` is the syntax
/// layer. Without `texts`, helpers and proofs are left out: the replaying process must not see them.
pub(super) fn request(
    questions: &[&JudgeQuestion<'_>],
    texts: bool,
    examines: bool,
    opening: &str,
    options: &[(String, String)],
    nonce: &str,
) -> String {
    let header = &*questions[0].candidate.header;
    let (imports, rest) = split_header(header);
    let settings: Vec<String> =
        options.iter().map(|(name, value)| format!("set_option {name} {value}\n")).collect();
    let candidates: Vec<Value> = questions.iter().map(|question| one(question, texts)).collect();
    let request = json!({
        "nonce": nonce,
        "header": imports,
        "imports": modules(&imports),
        "examines": examines,
        "opening": opening,
        "context": rest,
        "settings": settings.concat(),
        "candidates": candidates,
    });
    format!("{request}\n")
}

/// Returns the JSON of a candidate.
///
/// A separate namespace keeps the names of the theorem and its helpers apart from those of the library. It is opened,
/// because Lean looks up `n.foo` in open namespaces, but not in the current one. A dotted name opens its own namespace
/// for statement and proof, which a wrapping namespace would hide. The pinned statement is therefore declared in the
/// same namespace. A name that begins with `_root_` is declared at the root.
fn one(question: &JudgeQuestion<'_>, texts: bool) -> Value {
    let id = &question.id;
    let (statement, proof) = (&question.candidate.statement, &question.candidate.proof);
    let (name, signature) = (statement.declared(), statement.signature());
    let glue = if signature.starts_with('.') { "" } else { " " };
    let root = if name.rooted { "_root_." } else { "" };
    let within = |namespace: &str, last: &str| match namespace {
        "" => last.to_owned(),
        namespace => format!("{namespace}.{last}"),
    };
    let (space, namespace, pinned) = match (name.rooted, name.namespace) {
        (false, "") => {
            (format!("namespace Sgs_{id}\nopen Sgs_{id}\n"), format!("Sgs_{id}"), "sgs_pinned".to_owned())
        }
        (_, namespace) => (String::new(), namespace.to_owned(), format!("sgs_pinned_{id}")),
    };
    let pinned_name = within(&namespace, &pinned);
    let declared = if space.is_empty() { format!("{root}{pinned_name}") } else { pinned };
    json!({
        "space": space,
        "pinned": format!("axiom {declared}{glue}{signature}\n"),
        "pinned_name": pinned_name,
        "helpers": if texts { format!("{}\n", proof.helpers.trim()) } else { String::new() },
        "text": if texts { format!("{}{}\n", statement.text, proof.body) } else { String::new() },
        "target": within(&namespace, name.last),
        "declarations": question.declarations.as_deref().map(Path::to_string_lossy).unwrap_or_default(),
    })
}

/// Splits a header into its imports and the rest.
pub(super) fn split_header(header: &str) -> (String, String) {
    let tokens = lex(header);
    let found = commands(header, &tokens);
    let end = found.iter().find(|c| !matches!(c.keyword.as_str(), "import" | "prelude" | "module"));
    let end = end.map_or(header.len(), |c| c.range.start);
    let (imports, rest) = header.split_at_checked(end).unwrap_or((header, ""));
    (imports.to_owned(), rest.to_owned())
}

/// Returns the modules that must be present after the header is loaded: the imported ones, or the implicit `Init`.
pub(super) fn modules(imports: &str) -> Vec<String> {
    let tokens = lex(imports);
    let named = commands(imports, &tokens);
    let mut modules: Vec<String> = named
        .iter()
        .filter(|c| c.keyword == "import")
        .filter_map(|c| {
            let text = imports.get(c.range.clone())?;
            let words = lex(text);
            let mut words = words.iter().filter(|t| !t.is_trivia()).map(|t| t.text(text));
            words.rfind(|w| w.starts_with(char::is_alphabetic) && *w != "import").map(str::to_owned)
        })
        .collect();
    if modules.is_empty() && !named.iter().any(|c| c.keyword == "prelude") {
        modules.push("Init".into());
    }
    modules
}

#[derive(Debug)]
pub(super) enum JudgeLine {
    /// The request was read. Sent only if the request was passed in a file.
    Read,
    /// The header was loaded, and all required modules are present.
    Header,
    /// The header cannot be used, for this reason: it contains something that it must not contain, or does not load.
    Broken { reason: String, refused: bool },
    /// The following lines are about this candidate.
    Begin(usize),
    /// The results on this candidate.
    End(usize, JudgeReply),
}

/// A judge process's reply on a candidate.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct JudgeReply {
    /// Lean's messages about the candidate's text.
    pub messages: Vec<LeanMessage>,
    /// What the text must not contain; empty if it was elaborated.
    #[serde(default)]
    pub syntax: String,
    /// Why the process could not write the declarations; empty if it did not fail.
    #[serde(default)]
    pub fault: String,
    /// Whether the kernel accepts every declaration, and the theorem as a proof of the pinned statement.
    pub stands: bool,
    /// The reason why the kernel does not accept the proof; empty if it does.
    pub reason: String,
    /// All axioms that the theorem and its statement depend on.
    pub axioms: Vec<String>,
}

impl JudgeLine {
    /// Parses a line. Returns `None` if it is not JSON or does not carry the nonce.
    pub(super) fn read(line: &[u8], nonce: &str) -> Option<Result<Self, String>> {
        let value: Value = serde_json::from_slice(line).ok()?;
        (value.get("nonce").and_then(Value::as_str) == Some(nonce)).then(|| Self::of(&value))
    }

    fn of(value: &Value) -> Result<Self, String> {
        let index = |v: &Value| {
            v.as_u64().and_then(|i| usize::try_from(i).ok()).ok_or("an index that is not a number")
        };
        if value.get("read").is_some() {
            return Ok(Self::Read);
        }
        if value.get("header").is_some() {
            return Ok(Self::Header);
        }
        if let Some(reason) = value.get("broken") {
            let reason = reason.as_str().unwrap_or("no reason given").to_owned();
            let refused = value.get("refused").and_then(Value::as_bool) == Some(true);
            return Ok(Self::Broken { reason, refused });
        }
        if let Some(begin) = value.get("begin") {
            return Ok(Self::Begin(index(begin)?));
        }
        let end = value.get("end").ok_or("a line of unknown kind")?;
        let reply =
            JudgeReply::deserialize(value).map_err(|e| format!("a line that cannot be parsed: {e}"))?;
        Ok(Self::End(index(end)?, reply))
    }
}

impl JudgeReply {
    /// Returns whether the text was elaborated without errors and is still not a proof, which is rare for a model.
    pub(super) fn is_unusual(&self) -> bool {
        let failed = self.messages.iter().any(|m| m.severity == Severity::Error);
        self.syntax.is_empty() && !failed && self.judge(TrustLayers::ALL).verdict != Verdict::Proved
    }

    pub(super) fn judge(&self, layers: TrustLayers) -> CheckOutcome {
        let messages = &self.messages;
        if layers.syntax && !self.syntax.is_empty() {
            return CheckOutcome::refused("syntax layer: ", &self.syntax);
        }
        if !layers.evidence {
            return without_evidence(messages);
        }
        if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error) {
            return judge_error(
                error,
                if self.reason.starts_with("the statement") { "statement: " } else { "" },
            );
        }
        if messages.iter().any(is_sorry) {
            return CheckOutcome::new(Verdict::Refused, "messages layer: the declaration uses `sorry`");
        }
        self.kernel(layers)
    }

    /// Returns the verdict from the kernel and the axioms alone, for a process that elaborates no proof.
    pub(super) fn kernel(&self, layers: TrustLayers) -> CheckOutcome {
        if !self.fault.is_empty() {
            CheckOutcome::new(Verdict::Infra, format!("the declarations cannot be written: {}", self.fault))
        } else if self.stands {
            judge_axioms(self.axioms.clone(), layers)
        } else {
            CheckOutcome::refused("kernel layer: ", &self.reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Proof;
    use crate::text::LeanStatement;

    fn asked(header: &str, statement: &str, helpers: &str) -> Value {
        let candidate = Candidate {
            header: header.into(),
            statement: LeanStatement::read(statement).unwrap(),
            proof: Proof { helpers: helpers.into(), body: "\n  rfl".into() },
        };
        let question = JudgeQuestion { candidate: &candidate, id: "0_n".into(), declarations: None };
        let options = [("autoImplicit".to_owned(), "false".to_owned())];
        serde_json::from_str(&request(&[&question], true, true, "", &options, "secret")).unwrap()
    }

    #[test]
    fn the_request_separates_our_statement_from_the_models_text() {
        let header = "import Mathlib\nimport Aesop -- c\nset_option maxHeartbeats 0\nopen Real\n\n";
        let request = asked(header, "theorem t (x : ℝ) : x = x := by", "theorem h : True := trivial");
        assert_eq!(request["imports"], json!(["Mathlib", "Aesop"]));
        assert!(request["header"].as_str().unwrap().starts_with("import Mathlib\nimport Aesop"));
        assert_eq!(request["context"], "set_option maxHeartbeats 0\nopen Real\n\n");
        assert_eq!(request["settings"], "set_option autoImplicit false\n");
        let one = &request["candidates"][0];
        assert_eq!(one["space"], "namespace Sgs_0_n\nopen Sgs_0_n\n");
        assert_eq!(one["pinned"], "axiom sgs_pinned (x : ℝ) : x = x\n");
        assert_eq!(one["pinned_name"], "Sgs_0_n.sgs_pinned");
        assert_eq!(one["target"], "Sgs_0_n.t");
        assert_eq!(one["helpers"], "theorem h : True := trivial\n");
        assert_eq!(one["text"], "theorem t (x : ℝ) : x = x := by\n  rfl\n");
        assert_eq!(asked("", "theorem t : 1 = 1 := by", "")["imports"], json!(["Init"]));
    }

    #[test]
    fn dotted_names_and_their_pins_share_a_namespace() {
        let request = asked("", "theorem Nat.t.{u} (a : Type u) : a = a := by", "");
        let one = &request["candidates"][0];
        assert_eq!(one["pinned"], "axiom Nat.sgs_pinned_0_n.{u} (a : Type u) : a = a\n");
        assert_eq!(
            (one["pinned_name"].as_str(), one["target"].as_str()),
            (Some("Nat.sgs_pinned_0_n"), Some("Nat.t"))
        );
    }

    #[test]
    fn quoted_and_rooted_names_are_split_like_lean_does() {
        let names = |statement: &str| {
            let request = asked("", statement, "");
            let one = &request["candidates"][0];
            let text = |key: &str| one[key].as_str().unwrap().to_owned();
            (text("pinned"), text("pinned_name"), text("target"))
        };
        assert_eq!(
            names("theorem «a.b» : 1 = 1 := by"),
            ("axiom sgs_pinned : 1 = 1\n".into(), "Sgs_0_n.sgs_pinned".into(), "Sgs_0_n.«a.b»".into())
        );
        assert_eq!(
            names("theorem «x y».«a.b» : 1 = 1 := by"),
            (
                "axiom «x y».sgs_pinned_0_n : 1 = 1\n".into(),
                "«x y».sgs_pinned_0_n".into(),
                "«x y».«a.b»".into()
            )
        );
        assert_eq!(
            names("theorem _root_.Nat.t : 1 = 1 := by"),
            ("axiom _root_.Nat.sgs_pinned_0_n : 1 = 1\n".into(), "Nat.sgs_pinned_0_n".into(), "Nat.t".into())
        );
        assert_eq!(
            names("theorem _root_.t : 1 = 1 := by"),
            ("axiom _root_.sgs_pinned_0_n : 1 = 1\n".into(), "sgs_pinned_0_n".into(), "t".into())
        );
    }

    #[test]
    fn only_lines_with_the_nonce_count() {
        let end = br#"{"nonce":"n","end":2,"messages":[],"stands":true,"reason":"","axioms":["propext"]}"#;
        let Some(Ok(JudgeLine::End(2, reply))) = JudgeLine::read(end, "n") else { panic!() };
        assert_eq!(reply.judge(TrustLayers::ALL).verdict, Verdict::Proved);
        assert!(!reply.is_unusual());
        let error = br#"{"nonce":"n","end":2,"messages":[{"severity":"error","kind":"","pos":{"line":1},"data":"unsolved goals"}],"stands":false,"reason":"the text has errors","axioms":[]}"#;
        let Some(Ok(JudgeLine::End(2, reply))) = JudgeLine::read(error, "n") else { panic!() };
        assert!(!reply.is_unusual() && reply.judge(TrustLayers::ALL).verdict == Verdict::Refused);
        let syntax = br#"{"nonce":"n","end":2,"messages":[],"syntax":"the command `alias`","stands":true,"reason":"","axioms":[]}"#;
        let Some(Ok(JudgeLine::End(2, reply))) = JudgeLine::read(syntax, "n") else { panic!() };
        assert!(!reply.is_unusual(), "nothing was elaborated");
        assert_eq!(reply.judge(TrustLayers::ALL).reason, "syntax layer: the command `alias`");
        assert!(JudgeLine::read(end, "other").is_none() && JudgeLine::read(b"warning: x", "n").is_none());
        assert!(JudgeLine::read(br#"{"nonce":"n","end":2}"#, "n").unwrap().is_err());
        let judge = |line: &str| match JudgeLine::read(line.as_bytes(), "n") {
            Some(Ok(JudgeLine::End(_, reply))) => {
                assert!(reply.is_unusual(), "{line}");
                reply.judge(TrustLayers::ALL)
            }
            other => panic!("{other:?}"),
        };
        let fault = r#"{"nonce":"n","end":0,"messages":[],"fault":"no space left on device","stands":false,"reason":"","axioms":[]}"#;
        assert_eq!(
            judge(fault),
            CheckOutcome::new(Verdict::Infra, "the declarations cannot be written: no space left on device")
        );
        let cheat = r#"{"nonce":"n","end":0,"messages":[],"stands":true,"reason":"","axioms":["cheat"]}"#;
        assert_eq!(judge(cheat).reason, "axioms layer: cheat");
        let kernel = r#"{"nonce":"n","end":0,"messages":[],"stands":false,"reason":"the kernel refuses `t`","axioms":[]}"#;
        assert_eq!(
            judge(kernel),
            CheckOutcome::new(Verdict::Refused, "kernel layer: the kernel refuses `t`")
        );
    }
}
