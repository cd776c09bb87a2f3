//! Derivation of a verdict from Lean's messages.

use super::assemble::{Probe, Region};
use serde::{Deserialize, Deserializer, Serialize};
use sgs_selfplay::Verdict;

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information or a trace.
    #[serde(alias = "information", alias = "trace")]
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// A message of the judge or of the REPL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LeanMessage {
    /// Severity.
    pub severity: Severity,
    /// Lean's tag (`hasSorry`, `runtime.maxHeartbeats`, …); empty if the message or the channel has none.
    #[serde(default)]
    pub kind: String,
    /// Line, counted from 1.
    #[serde(rename = "pos", deserialize_with = "line_of")]
    pub line: u32,
    /// The text, which can contain anything that the model wrote.
    #[serde(rename = "data")]
    pub text: String,
}

fn line_of<'de, D: Deserializer<'de>>(position: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    struct Position {
        line: u32,
    }
    Position::deserialize(position).map(|position| position.line)
}

/// The layers of trust. Each can be disabled, to show what it stops (`docs/trust.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustLayers {
    /// The syntax layer: Lean's parser parses a text, and only syntax of the listed kinds is elaborated.
    pub syntax: bool,
    /// The messages layer: there must be no error and no `sorry`.
    pub messages: bool,
    /// The kernel layer: the kernel must accept the theorem as a proof of the pinned statement.
    pub kernel: bool,
    /// The axioms layer: the theorem must depend on the three standard axioms only.
    pub axioms: bool,
}

impl TrustLayers {
    /// All layers, the only setting for training.
    pub const ALL: Self = Self { syntax: true, messages: true, kernel: true, axioms: true };
    /// No layers. As in most published systems, a text counts as a proof if Lean reports no error, no `sorry`, and no
    /// warning about a `sorry`.
    pub const NONE: Self = Self { syntax: false, messages: false, kernel: false, axioms: false };
}

/// The result of checking a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict; for `proved`, the layers that were missing.
    pub reason: String,
    /// The axioms that Lean reported, if it was asked for them.
    pub axioms: Option<Vec<String>>,
}

impl CheckOutcome {
    /// Returns an outcome with a reason and no axioms.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into(), axioms: None }
    }

    /// Returns a refusal by a layer, with its message shortened.
    pub(super) fn refused(layer: &str, said: &str) -> Self {
        Self::new(Verdict::Refused, shortened(layer, said))
    }
}

const STANDARD_AXIOMS: [&str; 3] = ["propext", "Classical.choice", "Quot.sound"];

/// Maximum length of a reason, in characters.
const MAX_REASON: usize = 400;

/// Judges a candidate by the messages in its region. `sorries` is the REPL's count of `sorry` in the candidate.
pub fn judge_messages(
    messages: &[LeanMessage],
    sorries: usize,
    region: &Region,
    probe: Probe,
) -> CheckOutcome {
    if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error && !is_pin(region, m)) {
        return judge_error(error, part_of(error, region));
    }
    if messages.iter().any(is_sorry) || sorries > 0 {
        return CheckOutcome::new(Verdict::Refused, "messages layer: the declaration uses `sorry`");
    }
    if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error) {
        return CheckOutcome::new(
            Verdict::Refused,
            shortened("evidence layer: the statement cannot be elaborated before the helpers: ", &error.text),
        );
    }
    let last = *region.probe.end();
    let mut answers = messages.iter().filter(|m| m.line == last && m.severity == Severity::Info);
    let Some(answer) = answers.next() else {
        return CheckOutcome::new(
            Verdict::Infra,
            "evidence layer: Lean reported no error and gave no answer about the theorem",
        );
    };
    if answers.next().is_some() {
        return CheckOutcome::new(Verdict::Infra, "evidence layer: Lean answered twice for the theorem");
    }
    match probe {
        Probe::Presence if answer.text.contains(&region.witness) => CheckOutcome::new(Verdict::Proved, ""),
        Probe::Presence => {
            CheckOutcome::new(Verdict::Infra, "evidence layer: the answer is not about the theorem")
        }
        Probe::Axioms => match parse_axioms(&answer.text, &region.witness) {
            Some(axioms) => judge_axioms(axioms, TrustLayers::ALL),
            None => {
                let reason = shortened("evidence layer: not an answer about axioms: ", &answer.text);
                CheckOutcome::new(Verdict::Infra, reason)
            }
        },
    }
}

fn is_pin(region: &Region, message: &LeanMessage) -> bool {
    region.pin.as_ref().is_some_and(|pin| pin.contains(&message.line))
}

/// Returns the verdict on a theorem that exists and has its statement, from its axioms.
pub(super) fn judge_axioms(axioms: Vec<String>, layers: TrustLayers) -> CheckOutcome {
    let foreign: Vec<&str> =
        axioms.iter().map(String::as_str).filter(|a| !STANDARD_AXIOMS.contains(a)).collect();
    let outcome = if layers.axioms && !foreign.is_empty() {
        CheckOutcome::refused("axioms layer: ", &foreign.join(", "))
    } else {
        CheckOutcome::new(Verdict::Proved, "")
    };
    CheckOutcome { axioms: Some(axioms), ..outcome }
}

/// Parses `'NAME' depends on axioms: [a, b]` or `'NAME' does not depend on any axioms`. Returns `None` for any other text
/// and for another name.
pub fn parse_axioms(text: &str, witness: &str) -> Option<Vec<String>> {
    let (name, rest) = text.trim().strip_prefix('\'')?.split_once('\'')?;
    if name.rsplit('.').next() != Some(witness) {
        return None;
    }
    let rest = rest.trim();
    if rest == "does not depend on any axioms" {
        return Some(Vec::new());
    }
    let list = rest.strip_prefix("depends on axioms:")?.trim().strip_prefix('[')?.strip_suffix(']')?;
    Some(list.split(',').map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect())
}

/// Lean's tag of messages about exhausted heartbeats, since v4.14.0. The wording of a message is not evidence, because
/// a proof can produce it (`fail "(deterministic) timeout"`). The REPL reports no tags, so it refuses such proofs.
const HEARTBEATS: &str = "runtime.maxHeartbeats";

/// Returns the verdict on a text with an error. `place` names the part of the text, if it is known.
pub(super) fn judge_error(error: &LeanMessage, place: &str) -> CheckOutcome {
    if error.kind == HEARTBEATS {
        return CheckOutcome::new(Verdict::Resource, shortened("Lean's heartbeats ran out: ", &error.text));
    }
    CheckOutcome::refused(place, &error.text)
}

fn part_of(error: &LeanMessage, region: &Region) -> &'static str {
    if region.probe.contains(&error.line) {
        "evidence layer: "
    } else if region.statement.contains(&error.line) && error.line < *region.statement.end() {
        "statement: "
    } else {
        ""
    }
}

pub(super) fn is_sorry(message: &LeanMessage) -> bool {
    message.kind == "hasSorry"
        || (message.severity == Severity::Warning
            && message.text.starts_with("declaration uses")
            && message.text.contains("sorry"))
}

pub(super) fn published_rule(messages: &[LeanMessage]) -> CheckOutcome {
    let values: Vec<(Severity, &str)> = messages.iter().map(|m| (m.severity, m.text.as_str())).collect();
    let (_, complete) = reference_rule(&values, 0);
    if complete {
        return CheckOutcome::new(Verdict::Proved, "");
    }
    let said = messages.iter().find(|m| m.severity != Severity::Info).map_or("sorry", |m| m.text.as_str());
    CheckOutcome::new(Verdict::Refused, shortened("", said))
}

/// Returns `(pass, complete)` by the rule of the paper's code. A reply passes if it has no error. It is complete if it
/// also has no `sorries` and no warning that contains `declaration uses 'sorry'` (a wording that Lean 4.28 no longer
/// uses) or `failed`.
pub fn reference_rule(messages: &[(Severity, &str)], sorries: usize) -> (bool, bool) {
    let pass = !messages.iter().any(|(severity, _)| *severity == Severity::Error);
    let doubtful = |text: &str| text.contains("declaration uses 'sorry'") || text.contains("failed");
    let warned = messages.iter().any(|(severity, text)| *severity == Severity::Warning && doubtful(text));
    (pass, pass && sorries == 0 && !warned)
}

fn shortened(place: &str, text: &str) -> String {
    let mut reason = place.to_owned();
    reason.extend(text.chars().take(MAX_REASON));
    if text.chars().nth(MAX_REASON).is_some() {
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        Region { pin: Some(2..=2), statement: 4..=5, probe: 7..=8, witness: "sgs_agree_0_n".into() }
    }

    fn message(severity: Severity, line: u32, text: &str) -> LeanMessage {
        LeanMessage { severity, kind: String::new(), line, text: text.into() }
    }

    fn judge(messages: &[LeanMessage], sorries: usize) -> CheckOutcome {
        judge_messages(messages, sorries, &region(), Probe::Axioms)
    }

    fn answer(axioms: &str) -> LeanMessage {
        message(Severity::Info, 8, &format!("'Sgs_0_n.sgs_agree_0_n' {axioms}"))
    }

    #[test]
    fn only_positive_evidence_proves() {
        assert_eq!(judge(&[answer("does not depend on any axioms")], 0).verdict, Verdict::Proved);
        let standard = judge(&[answer("depends on axioms: [propext,\n Classical.choice, Quot.sound]")], 0);
        assert_eq!(standard.verdict, Verdict::Proved);
        assert_eq!(standard.axioms.unwrap().len(), 3);
        assert_eq!(judge(&[], 0).verdict, Verdict::Infra);
        let other = message(Severity::Info, 8, "'sgs_agree_1_x' does not depend on any axioms");
        assert_eq!(judge(&[other], 0).verdict, Verdict::Infra);
        let twice = [answer("does not depend on any axioms"), answer("does not depend on any axioms")];
        assert_eq!(judge(&twice, 0).verdict, Verdict::Infra);
        let elsewhere = message(Severity::Info, 6, "'sgs_agree_0_n' does not depend on any axioms");
        assert_eq!(judge(&[elsewhere], 0).verdict, Verdict::Infra);
    }

    #[test]
    fn foreign_axioms_errors_and_sorries_are_refused() {
        for axiom in ["sorryAx", "Lean.ofReduceBool", "cheat", "Foo.propext", "t._native.native_decide.ax_1"]
        {
            let outcome = judge(&[answer(&format!("depends on axioms: [propext, {axiom}]"))], 0);
            assert_eq!(
                (outcome.verdict, outcome.reason),
                (Verdict::Refused, format!("axioms layer: {axiom}"))
            );
        }
        let fine = answer("does not depend on any axioms");
        assert_eq!(
            judge(&[message(Severity::Error, 6, "unsolved goals"), fine.clone()], 0).verdict,
            Verdict::Refused
        );
        assert_eq!(judge(std::slice::from_ref(&fine), 1).verdict, Verdict::Refused);
        let tagged =
            LeanMessage { kind: "hasSorry".into(), ..message(Severity::Warning, 4, "whatever the wording") };
        assert_eq!(judge(&[tagged, fine.clone()], 0).verdict, Verdict::Refused);
        assert_eq!(
            judge(&[message(Severity::Warning, 4, "unused variable `h_failed`"), fine.clone()], 0).verdict,
            Verdict::Proved
        );
        let pin = judge(&[message(Severity::Error, 2, "unknown identifier"), fine], 0);
        assert!(pin.verdict == Verdict::Refused && pin.reason.contains("before the helpers"));
    }

    #[test]
    fn timeouts_are_recognized_by_their_tag_alone() {
        let after = |kind: &str| {
            let text =
                "(deterministic) timeout at `whnf`, maximum number of heartbeats (200000) has been reached";
            let error = LeanMessage { kind: kind.into(), ..message(Severity::Error, 6, text) };
            judge(&[error, answer("depends on axioms: []")], 0).verdict
        };
        assert_eq!(after("runtime.maxHeartbeats"), Verdict::Resource);
        assert_eq!(after(""), Verdict::Refused);
    }

    #[test]
    fn messages_of_both_channels_are_read() {
        let lean = serde_json::json!({"caption":"","data":"x","endPos":null,"fileName":"a","kind":"hasSorry","pos":{"column":0,"line":3},"severity":"warning"});
        assert_eq!(LeanMessage::deserialize(&lean).unwrap().kind, "hasSorry");
        let repl = serde_json::json!({"severity":"info","pos":{"line":1,"column":0},"endPos":{"line":1,"column":3},"data":"x"});
        assert_eq!(LeanMessage::deserialize(&repl).unwrap().severity, Severity::Info);
        assert!(
            LeanMessage::deserialize(&serde_json::json!({"severity":"odd","pos":{"line":1},"data":"x"}))
                .is_err()
        );
        assert!(LeanMessage::deserialize(&serde_json::json!({"message":"x"})).is_err());
    }
}
