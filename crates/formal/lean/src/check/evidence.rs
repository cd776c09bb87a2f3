//! From Lean's messages to a verdict.

use super::assemble::{Probe, Region};
use serde::{Deserialize, Serialize};
use sgs_selfplay::Verdict;

/// How grave a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Information, traces.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// One of Lean's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub severity: Severity,
    /// Lean's own tag (`hasSorry`, `runtime.maxHeartbeats`, …), where the channel has one.
    pub kind: String,
    /// Line, counted from 1.
    pub line: u32,
    /// The text; may hold anything that the model wrote.
    pub text: String,
}

#[derive(Deserialize)]
struct RawMessage {
    severity: String,
    #[serde(default)]
    kind: String,
    pos: RawPosition,
    data: String,
}

#[derive(Deserialize)]
struct RawPosition {
    line: u32,
}

impl Message {
    /// Reads a message of the judge or of the REPL.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, String> {
        let raw = RawMessage::deserialize(value).map_err(|e| format!("not a message: {e}"))?;
        let severity = match raw.severity.as_str() {
            "error" => Severity::Error,
            "warning" => Severity::Warning,
            "info" | "information" | "trace" => Severity::Info,
            other => return Err(format!("a message of unknown severity `{other}`")),
        };
        Ok(Self { severity, kind: raw.kind, line: raw.pos.line, text: raw.data })
    }
}

/// The layers of trust that can be switched off, to show that each stops something (`docs/trust.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// Textual refusal of what a proof never needs.
    pub text: bool,
    /// The theorem must exist under its name and agree with the pinned statement, and Lean must say so.
    pub evidence: bool,
    /// The axioms must be the three standard ones.
    pub axioms: bool,
}

impl Layers {
    /// All layers: the only setting for training.
    pub const ALL: Self = Self { text: true, evidence: true, axioms: true };
    /// None: no error, no `sorry`, no warning that says so. What most published systems do.
    pub const NONE: Self = Self { text: false, evidence: false, axioms: false };
}

impl Default for Layers {
    fn default() -> Self {
        Self::ALL
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// Why, empty for `proved`.
    pub reason: String,
    /// The axioms that Lean reported, where it was asked.
    pub axioms: Option<Vec<String>>,
}

impl Outcome {
    /// An outcome with a reason.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into(), axioms: None }
    }

    /// A refusal by a layer, with what was said, shortened.
    pub(super) fn refused(layer: &str, said: &str) -> Self {
        Self::new(Verdict::Refused, shortened(layer, said))
    }
}

const STANDARD_AXIOMS: [&str; 3] = ["propext", "Classical.choice", "Quot.sound"];

/// Longest reason that is kept.
const REASON: usize = 400;

/// Judges a candidate by the messages of its region. `sorries` is what the REPL counted there.
pub fn judge_messages(
    messages: &[&Message],
    sorries: usize,
    region: &Region,
    probe: Probe,
    layers: Layers,
) -> Outcome {
    if !layers.evidence {
        let own: Vec<&Message> =
            messages.iter().copied().filter(|m| !region.probe.contains(&m.line)).collect();
        return without_evidence(&own, sorries);
    }
    if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error && !is_pin(region, m)) {
        return of_error(error, place_of(error, region));
    }
    if messages.iter().any(|m| is_sorry(m)) || sorries > 0 {
        return Outcome::new(Verdict::Refused, "messages layer: the declaration uses `sorry`");
    }
    if let Some(error) = messages.iter().find(|m| m.severity == Severity::Error) {
        return Outcome::new(
            Verdict::Refused,
            shortened("evidence layer: the statement does not stand before the helpers: ", &error.text),
        );
    }
    let last = *region.probe.end();
    let mut answers = messages.iter().filter(|m| m.line == last && m.severity == Severity::Info);
    let Some(answer) = answers.next() else {
        return Outcome::new(
            Verdict::Infra,
            "evidence layer: Lean reported no error and did not answer for the theorem",
        );
    };
    if answers.next().is_some() {
        return Outcome::new(Verdict::Infra, "evidence layer: Lean answered twice for the theorem");
    }
    match probe {
        Probe::Presence if answer.text.contains(&region.witness) => Outcome::new(Verdict::Proved, ""),
        Probe::Presence => {
            Outcome::new(Verdict::Infra, "evidence layer: the answer is not about the theorem")
        }
        Probe::Axioms => of_answer(&answer.text, &region.witness, layers),
    }
}

fn is_pin(region: &Region, message: &Message) -> bool {
    region.pin.as_ref().is_some_and(|pin| pin.contains(&message.line))
}

fn of_answer(text: &str, witness: &str, layers: Layers) -> Outcome {
    match parse_axioms(text, witness) {
        Some(axioms) => of_axioms(axioms, layers),
        None => Outcome::new(Verdict::Infra, shortened("evidence layer: not an answer about axioms: ", text)),
    }
}

/// The verdict on a theorem that exists and has its statement, by the axioms it rests on.
pub(super) fn of_axioms(axioms: Vec<String>, layers: Layers) -> Outcome {
    let foreign: Vec<&str> =
        axioms.iter().map(String::as_str).filter(|a| !STANDARD_AXIOMS.contains(a)).collect();
    let outcome = if layers.axioms && !foreign.is_empty() {
        Outcome::refused("axioms layer: ", &foreign.join(", "))
    } else {
        Outcome::new(Verdict::Proved, "")
    };
    Outcome { axioms: Some(axioms), ..outcome }
}

/// Reads `'NAME' depends on axioms: [a, b]` or `'NAME' does not depend on any axioms`; `None` if it is neither, or
/// about another theorem.
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

/// The verdict on a text with an error; `place` says which part of it, where that is known.
pub(super) fn of_error(error: &Message, place: &str) -> Outcome {
    let exhausted =
        error.kind == "runtime.maxHeartbeats" || error.text.starts_with("(deterministic) timeout");
    if exhausted {
        return Outcome::new(Verdict::Resource, shortened("Lean's heartbeats ran out: ", &error.text));
    }
    Outcome::refused(place, &error.text)
}

fn place_of(error: &Message, region: &Region) -> &'static str {
    if region.probe.contains(&error.line) {
        "evidence layer: "
    } else if region.statement.contains(&error.line) && error.line < *region.statement.end() {
        "statement: "
    } else {
        ""
    }
}

pub(super) fn is_sorry(message: &Message) -> bool {
    message.kind == "hasSorry"
        || (message.severity == Severity::Warning
            && message.text.starts_with("declaration uses")
            && message.text.contains("sorry"))
}

pub(super) fn without_evidence(messages: &[&Message], sorries: usize) -> Outcome {
    let values: Vec<(Severity, &str)> = messages.iter().map(|m| (m.severity, m.text.as_str())).collect();
    let (_, complete) = reference_rule(&values, sorries);
    if complete {
        return Outcome::new(Verdict::Proved, "");
    }
    let said = messages.iter().find(|m| m.severity != Severity::Info).map_or("sorry", |m| m.text.as_str());
    Outcome::new(Verdict::Refused, shortened("", said))
}

/// The rule of the paper's code, as `(pass, complete)`: no error; and no `sorries`, and no warning that says
/// `declaration uses 'sorry'` or `failed` (a wording that Lean has given up in 4.28).
pub fn reference_rule(messages: &[(Severity, &str)], sorries: usize) -> (bool, bool) {
    let pass = !messages.iter().any(|(severity, _)| *severity == Severity::Error);
    let doubtful = |text: &str| text.contains("declaration uses 'sorry'") || text.contains("failed");
    let warned = messages.iter().any(|(severity, text)| *severity == Severity::Warning && doubtful(text));
    (pass, pass && sorries == 0 && !warned)
}

fn shortened(place: &str, text: &str) -> String {
    let mut reason = place.to_owned();
    reason.extend(text.chars().take(REASON));
    if text.chars().nth(REASON).is_some() {
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        Region {
            all: 1..=9,
            pin: Some(2..=2),
            statement: 4..=5,
            probe: 7..=8,
            witness: "sgs_agree_0_n".into(),
        }
    }

    fn message(severity: Severity, line: u32, text: &str) -> Message {
        Message { severity, kind: String::new(), line, text: text.into() }
    }

    fn judge(messages: &[Message], sorries: usize) -> Outcome {
        let own: Vec<&Message> = messages.iter().collect();
        judge_messages(&own, sorries, &region(), Probe::Axioms, Layers::ALL)
    }

    fn answer(axioms: &str) -> Message {
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
    fn foreign_axioms_errors_and_sorries_refuse() {
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
            Message { kind: "hasSorry".into(), ..message(Severity::Warning, 4, "whatever the wording") };
        assert_eq!(judge(&[tagged, fine.clone()], 0).verdict, Verdict::Refused);
        assert_eq!(
            judge(&[message(Severity::Warning, 4, "unused variable `h_failed`"), fine.clone()], 0).verdict,
            Verdict::Proved
        );
        let tired = message(
            Severity::Error,
            6,
            "(deterministic) timeout at `whnf`, maximum number of heartbeats (200000) has been reached",
        );
        assert_eq!(judge(&[tired, fine.clone()], 0).verdict, Verdict::Resource);
        let pin = judge(&[message(Severity::Error, 2, "unknown identifier"), fine], 0);
        assert!(pin.verdict == Verdict::Refused && pin.reason.contains("before the helpers"));
    }

    #[test]
    fn messages_of_both_channels_are_read() {
        let lean = serde_json::json!({"caption":"","data":"x","endPos":null,"fileName":"a","kind":"hasSorry","pos":{"column":0,"line":3},"severity":"warning"});
        assert_eq!(Message::from_json(&lean).unwrap().kind, "hasSorry");
        let repl = serde_json::json!({"severity":"info","pos":{"line":1,"column":0},"endPos":{"line":1,"column":3},"data":"x"});
        assert_eq!(Message::from_json(&repl).unwrap().severity, Severity::Info);
        assert!(
            Message::from_json(&serde_json::json!({"severity":"odd","pos":{"line":1},"data":"x"})).is_err()
        );
        assert!(Message::from_json(&serde_json::json!({"message":"x"})).is_err());
    }
}
