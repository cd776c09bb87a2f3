//! Requests to a judge process, and its answers.
//!
//! The process (`lean/SgsJudge`) loads the header once and elaborates every candidate over the header's environment, so
//! that no candidate sees another. The request is one line of JSON. The answer has several lines: one when the header
//! is loaded, and one at the beginning and one at the end of every candidate. Each line carries a nonce that the
//! model's text cannot know.

use super::assemble::Candidate;
use super::evidence::{
    CheckOutcome, LeanMessage, Severity, TrustLayers, is_sorry, judge_axioms, judge_error, published_rule,
};
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
/// and must not learn how to forge an answer. `opening` follows the header's imports. `examines` is the syntax
/// layer. Without `texts`, helpers and proofs are left out: the replaying process must not see them.
pub(super) fn request(
    questions: &[&JudgeQuestion<'_>],
    texts: bool,
    examines: bool,
    opening: &str,
    options: &[(String, String)],
    nonce: &str,
) -> String {
    let settings: Vec<String> =
        options.iter().map(|(name, value)| format!("set_option {name} {value}\n")).collect();
    let candidates: Vec<Value> = questions.iter().map(|question| one(question, texts)).collect();
    let request = json!({
        "nonce": nonce,
        "header": questions[0].candidate.header,
        "examines": examines,
        "opening": opening,
        "settings": settings.concat(),
        "candidates": candidates,
    });
    format!("{request}\n")
}

/// Returns the JSON of a candidate.
fn one(question: &JudgeQuestion<'_>, texts: bool) -> Value {
    let Candidate { statement, proof, .. } = question.candidate;
    json!({
        "id": question.id,
        "statement": statement,
        "helpers": if texts { &proof.helpers } else { "" },
        "proof": if texts { &proof.body } else { "" },
        "declarations": question.declarations.as_deref().map(Path::to_string_lossy).unwrap_or_default(),
    })
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
    pub accepted: bool,
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

/// Tag of the message that a text has defined a constant of type `Lean.Syntax`.
const DEFINES_SYNTAX: &str = "SgsJudge.definesSyntax";

impl JudgeReply {
    /// Returns whether the text was elaborated and is not a proof although it has no errors, or has defined what Lean could
    /// run as a tactic. Both are rare for a model.
    pub(super) fn is_unusual(&self) -> bool {
        let failed = self.messages.iter().any(|m| m.severity == Severity::Error);
        self.messages.iter().any(|m| m.kind == DEFINES_SYNTAX)
            || self.syntax.is_empty() && !failed && self.judge(TrustLayers::ALL).verdict != Verdict::Proved
    }

    pub(super) fn judge(&self, layers: TrustLayers) -> CheckOutcome {
        let messages = &self.messages;
        if layers.syntax && !self.syntax.is_empty() {
            return CheckOutcome::refused("syntax layer: ", &self.syntax);
        }
        if !layers.kernel {
            let outcome = published_rule(messages);
            return match outcome.verdict {
                Verdict::Proved if layers.messages && messages.iter().any(is_sorry) => sorry(),
                // Empty if the judge has not found the theorem.
                Verdict::Proved => judge_axioms(self.axioms.clone(), layers),
                _ => outcome,
            };
        }
        if !layers.messages {
            return self.kernel(layers);
        }
        if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error) {
            return judge_error(
                error,
                if self.reason.starts_with("the statement") { "statement: " } else { "" },
            );
        }
        if messages.iter().any(is_sorry) {
            return sorry();
        }
        self.kernel(layers)
    }

    /// Returns the verdict from the kernel and the axioms alone, for a process that elaborates no proof.
    pub(super) fn kernel(&self, layers: TrustLayers) -> CheckOutcome {
        if !self.fault.is_empty() {
            CheckOutcome::new(Verdict::Infra, format!("the declarations cannot be written: {}", self.fault))
        } else if self.accepted {
            judge_axioms(self.axioms.clone(), layers)
        } else {
            CheckOutcome::refused("kernel layer: ", &self.reason)
        }
    }
}

fn sorry() -> CheckOutcome {
    CheckOutcome::new(Verdict::Refused, "messages layer: the declaration uses `sorry`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_the_nonce_count() {
        let end = br#"{"nonce":"n","end":2,"messages":[],"accepted":true,"reason":"","axioms":["propext"]}"#;
        let Some(Ok(JudgeLine::End(2, reply))) = JudgeLine::read(end, "n") else { panic!() };
        assert_eq!(reply.judge(TrustLayers::ALL).verdict, Verdict::Proved);
        assert!(!reply.is_unusual());
        let error = br#"{"nonce":"n","end":2,"messages":[{"severity":"error","kind":"","pos":{"line":1},"data":"unsolved goals"}],"accepted":false,"reason":"the text has errors","axioms":[]}"#;
        let Some(Ok(JudgeLine::End(2, reply))) = JudgeLine::read(error, "n") else { panic!() };
        assert!(!reply.is_unusual() && reply.judge(TrustLayers::ALL).verdict == Verdict::Refused);
        let syntax = br#"{"nonce":"n","end":2,"messages":[],"syntax":"the command `alias`","accepted":true,"reason":"","axioms":[]}"#;
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
        let tactic = r#"{"nonce":"n","end":0,"messages":[{"severity":"error","kind":"SgsJudge.definesSyntax","pos":{"line":1},"data":"`t.evil`"}],"accepted":false,"reason":"the text has errors","axioms":[]}"#;
        assert_eq!(judge(tactic).verdict, Verdict::Refused);
        let fault = r#"{"nonce":"n","end":0,"messages":[],"fault":"no space left on device","accepted":false,"reason":"","axioms":[]}"#;
        assert_eq!(
            judge(fault),
            CheckOutcome::new(Verdict::Infra, "the declarations cannot be written: no space left on device")
        );
        let cheat = r#"{"nonce":"n","end":0,"messages":[],"accepted":true,"reason":"","axioms":["cheat"]}"#;
        assert_eq!(judge(cheat).reason, "axioms layer: cheat");
        let kernel = r#"{"nonce":"n","end":0,"messages":[],"accepted":false,"reason":"the kernel refuses `t`","axioms":[]}"#;
        assert_eq!(
            judge(kernel),
            CheckOutcome::new(Verdict::Refused, "kernel layer: the kernel refuses `t`")
        );
    }
}
