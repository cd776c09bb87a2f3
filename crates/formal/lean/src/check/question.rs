//! What the judge's process is asked, and what it answers.
//!
//! The process (`lean/SgsJudge`) loads the header once and elaborates every candidate over the header's environment,
//! so that none sees another. It gets one line of JSON and answers with lines of JSON, each with a nonce that no
//! model's text has seen: that the header stands, then `begin` and `end` for every candidate.

use super::assemble::Candidate;
use super::evidence::{Layers, Message, Outcome, Severity, is_sorry, of_axioms, of_error, without_evidence};
use crate::text::{commands, lex};
use serde::Deserialize;
use serde_json::{Value, json};
use sgs_selfplay::Verdict;
use std::path::{Path, PathBuf};

/// One candidate as it is asked about.
#[derive(Clone, Debug)]
pub(super) struct Question<'c> {
    pub candidate: &'c Candidate,
    /// Its names are made of this, in whatever company and process it is asked about: what one process has declared,
    /// the other looks for.
    pub id: String,
    /// File of the declarations that its theorem rests on: written by the first process, read by the second.
    pub declarations: Option<PathBuf>,
}

/// The request for some candidates of one header. `nonce` is fresh for every request and in no name: a model's text can
/// see the namespace that it stands in, and must not know from it what an answer looks like. `opening` are commands before
/// those of the header.
pub(super) fn request(
    questions: &[&Question<'_>],
    opening: &str,
    options: &[(String, String)],
    nonce: &str,
) -> String {
    let header = questions.first().map(|q| &*q.candidate.header).unwrap_or_default();
    let (imports, rest) = split_header(header);
    let mut context = format!("{opening}{rest}");
    for (name, value) in options {
        context.push_str(&format!("\nset_option {name} {value}"));
    }
    let candidates: Vec<Value> = questions.iter().map(|question| one(question)).collect();
    let request = json!({
        "nonce": nonce,
        "header": imports,
        "imports": modules(&imports),
        "context": context,
        "candidates": candidates,
    });
    format!("{request}\n")
}

/// A namespace of its own keeps a theorem or a helper from names that the library has. A dotted name opens its own
/// namespace for statement and proof, which a wrapper would hide; the pinned statement stands in the same. One that
/// begins with `_root_` is declared at the root, whatever stands around it.
fn one(question: &Question<'_>) -> Value {
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
        (false, "") => (format!("namespace Sgs_{id}\n"), format!("Sgs_{id}"), "sgs_pinned".to_owned()),
        (_, namespace) => (String::new(), namespace.to_owned(), format!("sgs_pinned_{id}")),
    };
    let pinned_name = within(&namespace, &pinned);
    let declared = if space.is_empty() { format!("{root}{pinned_name}") } else { pinned };
    json!({
        "pinned": format!("{space}axiom {declared}{glue}{signature}\n"),
        "pinned_name": pinned_name,
        "text": format!("{space}{}\n{}{}\n", proof.helpers.trim(), statement.text, proof.body),
        "target": within(&namespace, name.last),
        "declarations": question.declarations.as_deref().map(Path::to_string_lossy).unwrap_or_default(),
    })
}

/// The imports of a header, and the rest of it.
pub(super) fn split_header(header: &str) -> (String, String) {
    let tokens = lex(header);
    let found = commands(header, &tokens);
    let end = found.iter().find(|c| !matches!(c.keyword.as_str(), "import" | "prelude" | "module"));
    let end = end.map_or(header.len(), |c| c.range.start);
    let (imports, rest) = header.split_at_checked(end).unwrap_or((header, ""));
    (imports.to_owned(), rest.to_owned())
}

/// The modules that must be there when a header stands: those that it names, or `Init`, which nobody names.
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

/// One line of an answer.
#[derive(Debug)]
pub(super) enum Line {
    /// The request was read, where it came in a file.
    Read,
    /// The header stands, and the modules that must be there are.
    Header,
    /// It does not.
    Broken(String),
    /// What follows is of this candidate.
    Begin(usize),
    /// What was found out about it.
    End(usize, Said),
}

/// What the judge's process says of a candidate.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Said {
    /// Lean's messages for the candidate's text.
    #[serde(skip)]
    pub messages: Vec<Message>,
    /// A command of the candidate's text that is no theorem, by Lean's own grammar; none if empty.
    #[serde(default)]
    pub foreign: String,
    /// Whether the kernel, asked again, accepts every declaration and the agreement with the pinned statement.
    pub stands: bool,
    pub reason: String,
    /// All axioms that theorem and statement rest on.
    pub axioms: Vec<String>,
}

impl Line {
    /// Reads a line. `None` if it is none of ours: no JSON, or without the nonce.
    pub(super) fn read(line: &[u8], nonce: &str) -> Option<Result<Self, String>> {
        let value: Value = serde_json::from_slice(line).ok()?;
        (value.get("nonce").and_then(Value::as_str) == Some(nonce)).then(|| Self::of(&value))
    }

    fn of(value: &Value) -> Result<Self, String> {
        let index =
            |v: &Value| v.as_u64().and_then(|i| usize::try_from(i).ok()).ok_or("an index is no number");
        let odd = |e: serde_json::Error| format!("a line that is not understood: {e}");
        if value.get("read").is_some() {
            return Ok(Self::Read);
        }
        if value.get("header").is_some() {
            return Ok(Self::Header);
        }
        if let Some(reason) = value.get("broken") {
            return Ok(Self::Broken(reason.as_str().unwrap_or("no reason given").to_owned()));
        }
        if let Some(begin) = value.get("begin") {
            return Ok(Self::Begin(index(begin)?));
        }
        let end = value.get("end").ok_or("a line that says nothing")?;
        let mut said = Said::deserialize(value).map_err(odd)?;
        let messages = value.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        said.messages = messages.iter().map(Message::from_json).collect::<Result<_, _>>()?;
        Ok(Self::End(index(end)?, said))
    }
}

impl Said {
    /// Whether a proof without an error is none all the same: nothing that a model usually writes.
    pub(super) fn is_odd(&self) -> bool {
        let failed = self.messages.iter().any(|m| m.severity == Severity::Error);
        !failed && self.judge(Layers::ALL).verdict != Verdict::Proved
    }

    /// The verdict under given layers.
    pub(super) fn judge(&self, layers: Layers) -> Outcome {
        let messages: Vec<&Message> = self.messages.iter().collect();
        if !layers.evidence {
            return without_evidence(&messages, 0);
        }
        if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error) {
            return of_error(
                error,
                if self.reason.starts_with("the statement") { "statement: " } else { "" },
            );
        }
        if messages.iter().any(|m| is_sorry(m)) {
            return Outcome::new(Verdict::Refused, "messages layer: the declaration uses `sorry`");
        }
        if layers.text && !self.foreign.is_empty() {
            return Outcome::refused("text layer: a command that is no theorem: ", &self.foreign);
        }
        self.kernel(layers)
    }

    /// What the kernel and the axioms say, for a process that elaborates no proof.
    pub(super) fn kernel(&self, layers: Layers) -> Outcome {
        if self.stands {
            of_axioms(self.axioms.clone(), layers)
        } else {
            Outcome::refused("kernel layer: ", &self.reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Proof;
    use crate::text::Statement;

    fn asked(header: &str, statement: &str, helpers: &str) -> Value {
        let candidate = Candidate {
            header: header.into(),
            statement: Statement::read(statement).unwrap(),
            proof: Proof { helpers: helpers.into(), body: "\n  rfl".into() },
        };
        let question = Question { candidate: &candidate, id: "0_n".into(), declarations: None };
        let options = [("autoImplicit".to_owned(), "false".to_owned())];
        serde_json::from_str(&request(&[&question], "", &options, "secret")).unwrap()
    }

    #[test]
    fn the_request_holds_our_statement_and_the_models_text_apart() {
        let header = "import Mathlib\nimport Aesop -- c\nset_option maxHeartbeats 0\nopen Real\n\n";
        let request = asked(header, "theorem t (x : ℝ) : x = x := by", "theorem h : True := trivial");
        assert_eq!(request["imports"], json!(["Mathlib", "Aesop"]));
        assert!(request["header"].as_str().unwrap().starts_with("import Mathlib\nimport Aesop"));
        assert_eq!(
            request["context"],
            "set_option maxHeartbeats 0\nopen Real\n\n\nset_option autoImplicit false"
        );
        let one = &request["candidates"][0];
        assert_eq!(one["pinned"], "namespace Sgs_0_n\naxiom sgs_pinned (x : ℝ) : x = x\n");
        assert_eq!(one["pinned_name"], "Sgs_0_n.sgs_pinned");
        assert_eq!(one["target"], "Sgs_0_n.t");
        assert_eq!(
            one["text"],
            "namespace Sgs_0_n\ntheorem h : True := trivial\ntheorem t (x : ℝ) : x = x := by\n  rfl\n"
        );
        assert_eq!(asked("", "theorem t : 1 = 1 := by", "")["imports"], json!(["Init"]));
    }

    #[test]
    fn a_dotted_name_keeps_its_namespace_and_so_does_its_pin() {
        let request = asked("", "theorem Nat.t.{u} (a : Type u) : a = a := by", "");
        let one = &request["candidates"][0];
        assert_eq!(one["pinned"], "axiom Nat.sgs_pinned_0_n.{u} (a : Type u) : a = a\n");
        assert_eq!(
            (one["pinned_name"].as_str(), one["target"].as_str()),
            (Some("Nat.sgs_pinned_0_n"), Some("Nat.t"))
        );
    }

    #[test]
    fn quoted_and_rooted_names_are_cut_where_lean_cuts_them() {
        let names = |statement: &str| {
            let request = asked("", statement, "");
            let one = &request["candidates"][0];
            let text = |key: &str| one[key].as_str().unwrap().to_owned();
            (text("pinned"), text("pinned_name"), text("target"))
        };
        assert_eq!(
            names("theorem «a.b» : 1 = 1 := by"),
            (
                "namespace Sgs_0_n\naxiom sgs_pinned : 1 = 1\n".into(),
                "Sgs_0_n.sgs_pinned".into(),
                "Sgs_0_n.«a.b»".into()
            )
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
        let Some(Ok(Line::End(2, said))) = Line::read(end, "n") else { panic!() };
        assert_eq!(said.judge(Layers::ALL).verdict, Verdict::Proved);
        assert!(!said.is_odd());
        let error = br#"{"nonce":"n","end":2,"messages":[{"severity":"error","kind":"","pos":{"line":1},"data":"unsolved goals"}],"stands":false,"reason":"the text has errors","axioms":[]}"#;
        let Some(Ok(Line::End(2, said))) = Line::read(error, "n") else { panic!() };
        assert!(!said.is_odd() && said.judge(Layers::ALL).verdict == Verdict::Refused);
        assert!(Line::read(end, "other").is_none() && Line::read(b"warning: x", "n").is_none());
        assert!(Line::read(br#"{"nonce":"n","end":2}"#, "n").unwrap().is_err());
        let judge = |line: &str| match Line::read(line.as_bytes(), "n") {
            Some(Ok(Line::End(_, said))) => {
                assert!(said.is_odd(), "{line}");
                said.judge(Layers::ALL)
            }
            other => panic!("{other:?}"),
        };
        let cheat = r#"{"nonce":"n","end":0,"messages":[],"stands":true,"reason":"","axioms":["cheat"]}"#;
        assert_eq!(judge(cheat).reason, "axioms layer: cheat");
        let more =
            r#"{"nonce":"n","end":0,"messages":[],"foreign":"alias","stands":true,"reason":"","axioms":[]}"#;
        assert_eq!(judge(more).reason, "text layer: a command that is no theorem: alias");
        let kernel = r#"{"nonce":"n","end":0,"messages":[],"stands":false,"reason":"the kernel refuses `t`","axioms":[]}"#;
        assert_eq!(judge(kernel), Outcome::new(Verdict::Refused, "kernel layer: the kernel refuses `t`"));
    }
}
