//! Checks proofs with the community REPL, a persistent process that speaks JSON and keeps the header's environment.
//!
//! A blank line ends each request and each answer. The protocol has no request id. Answers are matched by the
//! environment number, which increases by one, and by the nonce in the name of the witness theorem. After any
//! irregularity the process is killed, so that a pipe with an unread answer is never reused.
//!
//! If an import fails, the REPL reports nothing and continues with an empty environment. A header is therefore accepted
//! only if a theorem can be proved after it and every module that it imports is present.

use super::assemble::{Candidate, Probe, assemble};
use super::backend::{Backend, fresh_nonce};
use super::evidence::{CheckOutcome, LeanMessage, Severity, judge_messages, parse_axioms};
use crate::limits::{Limits, Recycling};
use crate::text::{LeanStatement, commands, lex};
use serde::Deserialize;
use serde_json::{Value, json};
use sgs_formal::process::{Launch, Process, ProcessFault};
use sgs_selfplay::Verdict;
use std::time::{Duration, Instant};

/// Settings for checking with a REPL.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplChecker {
    /// Starts the REPL.
    pub launch: Launch,
    /// Options that are set after the header.
    pub options: Vec<(String, String)>,
    /// The command that provides the evidence.
    pub probe: Probe,
    /// Limits of a check.
    pub limits: Limits,
    /// When a healthy process is replaced.
    pub recycling: Recycling,
}

/// A slot whose REPL keeps a header loaded.
#[derive(Debug)]
pub struct ReplWorker {
    checker: ReplChecker,
    session: Option<ReplSession>,
    starts: u64,
}

#[derive(Debug)]
struct ReplSession {
    process: Process,
    header: String,
    /// Number of the header's environment.
    base: u64,
    /// Environment number that the next answer must carry.
    next: u64,
    uses: u32,
    resident: u64,
}

impl ReplChecker {
    /// Makes a worker. Its process starts with the first candidate.
    pub fn worker(&self) -> ReplWorker {
        ReplWorker { checker: self.clone(), session: None, starts: 0 }
    }
}

impl ReplWorker {
    /// Returns the number of processes that were started so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns a session with the header loaded. Starts a new one if the current one has another header or must be replaced.
    fn session(&mut self, header: &str) -> Result<&mut ReplSession, ProcessFault> {
        let recycling = self.checker.recycling;
        let due = |s: &mut ReplSession| {
            s.header != header
                || s.uses >= recycling.uses
                || s.process.age() >= Duration::from_millis(recycling.age_ms)
                || s.process.pending() > 0
                || (s.uses > 0 && s.process.resident() > s.resident.saturating_add(recycling.growth))
        };
        if self.session.as_mut().is_some_and(due) {
            self.session = None;
        }
        match self.session {
            Some(ref mut session) => Ok(session),
            None => {
                self.starts += 1;
                let session = ReplSession::start(&self.checker, header)?;
                Ok(self.session.insert(session))
            }
        }
    }

    /// Judges a candidate; returns `None` if the reply is well-formed, but does not mention the theorem.
    fn attempt(
        &mut self,
        candidate: &Candidate,
        statement: &LeanStatement,
    ) -> Result<Option<CheckOutcome>, ProcessFault> {
        let (probe, limits) = (self.checker.probe, self.checker.limits);
        let session = self.session(&candidate.header)?;
        let (text, region) = assemble(statement, &candidate.proof, &fresh_nonce(), probe);
        let reply = session.ask(&json!({"cmd": text, "env": session.base}), &limits, limits.proof())?;
        session.uses += 1;
        let own = &reply.messages;
        // A candidate gets at least the answer to its probe, which names the theorem or reports an error.
        let answered = own.iter().filter(|m| region.probe.contains(&m.line));
        let named = answered.clone().any(|m| m.text.contains(&region.witness));
        if answered.count() == 0 || (!named && !own.iter().any(|m| m.severity == Severity::Error)) {
            return Ok(None);
        }
        Ok(Some(judge_messages(own, reply.sorries, &region, probe)))
    }
}

impl Backend for ReplWorker {
    fn batch(&self) -> usize {
        1
    }

    fn prefers(&self, header: &str) -> bool {
        self.session.as_ref().is_none_or(|s| s.header == header)
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Vec<CheckOutcome> {
        candidates.iter().map(|candidate| self.one(candidate)).collect()
    }

    fn deadline(&self, candidates: usize) -> Duration {
        let n = u32::try_from(candidates).unwrap_or(u32::MAX);
        (self.checker.limits.start() + self.checker.limits.proof()) * (2 * n + 1)
    }
}

impl ReplWorker {
    /// Judges one candidate. If the process dies or answers out of order, it is replaced and the candidate retried once.
    /// A candidate that ends two processes with a good header is refused for its resources, and one that suppresses the
    /// answer about its theorem twice is refused.
    fn one(&mut self, candidate: &Candidate) -> CheckOutcome {
        let statement = match LeanStatement::read(&candidate.statement) {
            Ok(statement) => statement,
            Err(error) => return CheckOutcome::new(Verdict::Refused, format!("statement: {error}")),
        };
        let mut last = None;
        for _ in 0..2 {
            let attempt = self.attempt(candidate, &statement);
            if !matches!(attempt, Ok(Some(_))) {
                self.session = None;
            }
            last = match attempt {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => None,
                Err(
                    fault
                    @ (ProcessFault::Timeout(_) | ProcessFault::Memory { .. } | ProcessFault::Output(_)),
                ) => return CheckOutcome::new(Verdict::Resource, fault.to_string()),
                Err(fault @ ProcessFault::Start { .. }) => {
                    return CheckOutcome::new(Verdict::Infra, fault.to_string());
                }
                Err(fault) => Some(fault),
            };
        }
        match last {
            Some(fault @ ProcessFault::Ended { .. }) => {
                CheckOutcome::new(Verdict::Resource, format!("Lean died twice on this proof: {fault}"))
            }
            Some(fault) => CheckOutcome::new(Verdict::Infra, fault.to_string()),
            None => CheckOutcome::new(
                Verdict::Refused,
                "evidence layer: two replies without an answer about the theorem",
            ),
        }
    }
}

/// Commands that verify that a header was loaded.
struct HeaderProbe {
    text: String,
    probe: Probe,
    witness: String,
    /// Each imported module, with the message that confirms it.
    imports: Vec<(String, String)>,
}

/// Number of lines in [`HeaderProbe::text`] before those of the imports.
const BEFORE_IMPORTS: usize = 3;

impl HeaderProbe {
    fn new(header: &str, probe: Probe) -> Self {
        let nonce = fresh_nonce();
        let witness = format!("sgs_header_{nonce}");
        let imports: Vec<(String, String)> = modules(&split_header(header).0)
            .into_iter()
            .map(|module| {
                let confirmation = format!("{module} is imported {nonce}");
                (module, confirmation)
            })
            .collect();
        let ask = probe.command();
        let mut text = format!(
            "theorem {witness} : True := True.intro\n{ask}{witness}\n#check @Lean.Elab.Command.elabCommand\n"
        );
        for (module, confirmation) in &imports {
            text.push_str(&format!(
                "#eval show Lean.Elab.Command.CommandElabM Unit from do if ((← Lean.getEnv).getModuleIdx? `{module}).isSome then Lean.logInfo \"{confirmation}\"\n"
            ));
        }
        Self { text, probe, witness, imports }
    }

    fn verify(&self, messages: &[LeanMessage]) -> Result<(), String> {
        let at = |line: usize| messages.iter().filter(move |m| usize::try_from(m.line) == Ok(line));
        let is_there = |m: &LeanMessage| match self.probe {
            Probe::Axioms => parse_axioms(&m.text, &self.witness).is_some(),
            Probe::Presence => m.severity == Severity::Info && m.text.contains(&self.witness),
        };
        if !at(2).any(is_there) {
            let reported = messages.first().map_or("nothing", |m| m.text.as_str());
            return Err(format!("`True` cannot be proved after it; Lean reported: {reported}"));
        }
        // Without the module `Lean`, the imports cannot be queried. The only possible check is that the theorem holds.
        if at(BEFORE_IMPORTS).any(|m| m.severity == Severity::Error) {
            return Ok(());
        }
        for (index, (module, confirmation)) in self.imports.iter().enumerate() {
            if !at(BEFORE_IMPORTS + 1 + index).any(|m| m.text.contains(confirmation.as_str())) {
                return Err(format!("`{module}` is not imported"));
            }
        }
        Ok(())
    }
}

/// Splits a header into its imports and the rest.
fn split_header(header: &str) -> (String, String) {
    let tokens = lex(header);
    let found = commands(header, &tokens);
    let end = found.iter().find(|c| !matches!(c.keyword.as_str(), "import" | "prelude" | "module"));
    let end = end.map_or(header.len(), |c| c.range.start);
    let (imports, rest) = header.split_at_checked(end).unwrap_or((header, ""));
    (imports.to_owned(), rest.to_owned())
}

/// Returns the modules that must be present after the header is loaded: the imported ones, or the implicit `Init`.
fn modules(imports: &str) -> Vec<String> {
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

pub(super) struct ReplReply {
    messages: Vec<LeanMessage>,
    sorries: usize,
}

impl ReplSession {
    fn start(checker: &ReplChecker, header: &str) -> Result<Self, ProcessFault> {
        let process = Process::start(&checker.launch)?;
        let mut session = Self { process, header: header.to_owned(), base: 0, next: 0, uses: 0, resident: 0 };
        let mut text = header.trim_end().to_owned();
        for (name, value) in &checker.options {
            text.push_str(&format!("\nset_option {name} {value}"));
        }
        let broken = |why: String| ProcessFault::Start {
            program: checker.launch.program.display().to_string(),
            error: why,
        };
        let not_loaded = |fault: ProcessFault| broken(format!("the header was not loaded: {fault}"));
        let (limits, start) = (&checker.limits, checker.limits.start());
        let reply = session.ask(&json!({"cmd": text}), limits, start).map_err(not_loaded)?;
        if let Some(error) = reply.messages.iter().find(|m| m.severity == Severity::Error) {
            return Err(broken(format!("the header cannot be used: {}", error.text)));
        }
        session.base = session.next - 1;
        let header_probe = HeaderProbe::new(header, checker.probe);
        let request = json!({"cmd": header_probe.text, "env": session.base});
        let reply = session.ask(&request, limits, start).map_err(not_loaded)?;
        header_probe
            .verify(&reply.messages)
            .map_err(|why| broken(format!("the header cannot be used: {why}")))?;
        session.resident = session.process.resident();
        Ok(session)
    }

    fn ask(
        &mut self,
        request: &Value,
        limits: &Limits,
        allowed: Duration,
    ) -> Result<ReplReply, ProcessFault> {
        let mut input = request.to_string().into_bytes();
        input.extend_from_slice(b"\n\n");
        let until = Instant::now() + allowed;
        let mut seen = 0;
        let answer =
            self.process.exchange(&input, limits.quota(), &mut || (until, allowed), &mut |out, _| {
                // Search only the new bytes, and the one before them in case a blank line arrives in two parts.
                let from = seen;
                seen = out.len().saturating_sub(1);
                let rest = out.get(from..)?;
                rest.windows(2).position(|pair| pair == b"\n\n").map(|at| from + at + 2)
            })?;
        let expected = self.next;
        self.next += 1;
        read_reply(&answer, expected).map_err(ProcessFault::Protocol)
    }
}

pub(super) fn read_reply(answer: &[u8], expected: u64) -> Result<ReplReply, String> {
    let value: Value = serde_json::from_slice(answer).map_err(|e| format!("the reply is not JSON: {e}"))?;
    if let Some(message) = value.get("message").and_then(Value::as_str) {
        return Err(format!("the REPL refused the request: {message}"));
    }
    match value.get("env").and_then(Value::as_u64) {
        Some(env) if env == expected => {}
        Some(env) => return Err(format!("a reply for environment {env} instead of {expected}")),
        None => return Err("a reply without an environment".into()),
    }
    let list = |key: &str| value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let messages = list("messages").iter().map(LeanMessage::deserialize).collect::<Result<_, _>>();
    let messages = messages.map_err(|e| format!("not a message: {e}"))?;
    Ok(ReplReply { messages, sorries: list("sorries").len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_or_refused() {
        let good = br#"{"env": 3, "messages": [{"severity":"info","pos":{"line":1,"column":0},"data":"x"}], "sorries":[{"goal":"x"}]}"#;
        let reply = read_reply(good, 3).unwrap();
        assert_eq!((reply.messages.len(), reply.sorries), (1, 1));
        assert!(read_reply(good, 4).is_err(), "the wrong environment");
        assert!(read_reply(b"{\"env\": 3", 3).is_err(), "torn");
        assert!(read_reply(b"{}", 3).is_err(), "empty");
        assert!(read_reply(br#"{"message": "Unknown environment."}"#, 3).is_err(), "a protocol error");
        assert!(read_reply(br#"{"env": 3, "messages": [{"data": 1}]}"#, 3).is_err(), "an odd message");
    }
}
