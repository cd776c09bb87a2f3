//! Checking with the community REPL: JSON on standard input, the header's environment reused.
//!
//! A request ends with a blank line, and so does an answer. The protocol has no request id; ours is the environment
//! number, which counts up by one, and the nonce in the witness theorem's name. After anything that is not as it
//! should be, the process is killed: a pipe with an unread answer is never used again.
//!
//! The REPL says nothing when an import fails: it goes on with an empty environment. A header is therefore believed
//! only when a theorem holds in it and every module that it imports is there.

use super::assemble::{Candidate, Probe, assemble};
use super::evidence::{Layers, Message, Outcome, Severity, judge_messages, parse_axioms};
use super::limits::{Limits, Recycling};
use super::pool::{Backend, fresh_nonce};
use super::process::{Fault, Launch, Process};
use super::question::{modules, split_header};
use serde_json::{Value, json};
use sgs_selfplay::Verdict;
use std::time::{Duration, Instant};

/// How the REPL is run.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplChecker {
    pub launch: Launch,
    /// Options set after the header.
    pub options: Vec<(String, String)>,
    /// How evidence is asked for.
    pub probe: Probe,
    pub layers: Layers,
    pub limits: Limits,
    /// When a healthy process is replaced.
    pub recycling: Recycling,
}

/// One slot with a REPL that has a header loaded.
#[derive(Debug)]
pub struct ReplWorker {
    checker: ReplChecker,
    session: Option<Session>,
    /// Processes started by this slot.
    starts: u64,
}

#[derive(Debug)]
struct Session {
    process: Process,
    header: String,
    /// Number of the header's environment.
    base: u64,
    /// Number that the next answer must carry.
    next: u64,
    uses: u32,
    resident: u64,
}

impl ReplChecker {
    /// Makes a worker; its process starts with the first candidate.
    pub fn worker(&self) -> ReplWorker {
        ReplWorker { checker: self.clone(), session: None, starts: 0 }
    }
}

impl ReplWorker {
    /// Processes started so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// A session with the header loaded, a new one if the present one is of another header or due to go.
    fn session(&mut self, header: &str) -> Result<&mut Session, Fault> {
        let recycling = self.checker.recycling;
        let due = |s: &mut Session| {
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
                let session = Session::start(&self.checker, header)?;
                Ok(self.session.insert(session))
            }
        }
    }

    fn attempt(&mut self, candidate: &Candidate) -> Result<Outcome, Failure> {
        let (probe, layers, limits) = (self.checker.probe, self.checker.layers, self.checker.limits);
        let session = self.session(&candidate.header)?;
        let file = assemble("", &[candidate], &fresh_nonce(), probe);
        let reply = session.ask(&json!({"cmd": file.text, "env": session.base}), &limits, limits.proof())?;
        session.uses += 1;
        let Some(region) = file.regions.first() else {
            return Err(Fault::Protocol("nothing was asked".into()).into());
        };
        let own: Vec<&Message> = reply.messages.iter().collect();
        // A candidate always gets at least the answer to its probe, which names the theorem or says what is wrong.
        let answered = own.iter().filter(|m| region.probe.contains(&m.line));
        let named = answered.clone().any(|m| m.text.contains(&region.witness));
        if answered.count() == 0 || (!named && !own.iter().any(|m| m.severity == Severity::Error)) {
            return Err(Failure::NoAnswer);
        }
        Ok(judge_messages(&own, reply.sorries, region, probe, layers))
    }
}

/// Why an attempt gave no verdict.
enum Failure {
    Fault(Fault),
    /// The reply is one, and says nothing about the theorem.
    NoAnswer,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Backend for ReplWorker {
    fn batch(&self) -> usize {
        1
    }

    fn prefers(&self, header: &str) -> bool {
        self.session.as_ref().is_none_or(|s| s.header == header)
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Vec<Outcome> {
        candidates.iter().map(|candidate| self.one(candidate)).collect()
    }

    fn deadline(&self, candidates: usize) -> Duration {
        let n = u32::try_from(candidates).unwrap_or(u32::MAX);
        (self.checker.limits.start() + self.checker.limits.proof()) * (2 * n + 1)
    }
}

impl ReplWorker {
    /// One candidate: a process that dies or answers out of order is replaced and the candidate tried once more. One
    /// that two processes with a good header did not survive has failed, and so has one that swallows the question
    /// about its theorem twice.
    fn one(&mut self, candidate: &Candidate) -> Outcome {
        let mut last = None;
        for _ in 0..2 {
            match self.attempt(candidate) {
                Ok(outcome) => return outcome,
                Err(failure) => {
                    self.session = None;
                    match failure {
                        Failure::Fault(
                            fault @ (Fault::Timeout(_) | Fault::Memory { .. } | Fault::Output(_)),
                        ) => {
                            return Outcome::new(Verdict::Resource, fault.to_string());
                        }
                        Failure::Fault(fault @ Fault::Start { .. }) => {
                            return Outcome::new(Verdict::Infra, fault.to_string());
                        }
                        failure => last = Some(failure),
                    }
                }
            }
        }
        match last {
            Some(Failure::Fault(fault @ Fault::Ended { .. })) => {
                Outcome::new(Verdict::Resource, format!("Lean died twice of this proof: {fault}"))
            }
            Some(Failure::Fault(fault)) => Outcome::new(Verdict::Infra, fault.to_string()),
            Some(Failure::NoAnswer) => Outcome::new(
                Verdict::Refused,
                "evidence layer: twice a reply without an answer about the theorem",
            ),
            None => Outcome::new(Verdict::Infra, "undecided"),
        }
    }
}

/// Commands that show that a header stands.
struct Evidence {
    text: String,
    probe: Probe,
    witness: String,
    /// What each import's line must say.
    imports: Vec<(String, String)>,
}

/// Lines of [`Evidence::text`] before those of the imports.
const BEFORE_IMPORTS: usize = 3;

impl Evidence {
    fn of(header: &str, probe: Probe) -> Self {
        let nonce = fresh_nonce();
        let witness = format!("sgs_header_{nonce}");
        let imports: Vec<(String, String)> = modules(&split_header(header).0)
            .into_iter()
            .map(|module| {
                let says = format!("{module} is imported {nonce}");
                (module, says)
            })
            .collect();
        let ask = probe.command();
        let mut text = format!(
            "theorem {witness} : True := True.intro\n{ask}{witness}\n#check @Lean.Elab.Command.elabCommand\n"
        );
        for (module, says) in &imports {
            text.push_str(&format!(
                "#eval show Lean.Elab.Command.CommandElabM Unit from do if ((← Lean.getEnv).getModuleIdx? `{module}).isSome then Lean.logInfo \"{says}\"\n"
            ));
        }
        Self { text, probe, witness, imports }
    }

    fn shows(&self, messages: &[Message]) -> Result<(), String> {
        let at = |line: usize| messages.iter().filter(move |m| usize::try_from(m.line) == Ok(line));
        let is_there = |m: &Message| match self.probe {
            Probe::Axioms => parse_axioms(&m.text, &self.witness).is_some(),
            Probe::Presence => m.severity == Severity::Info && m.text.contains(&self.witness),
        };
        if !at(2).any(is_there) {
            let said = messages.first().map_or("nothing", |m| m.text.as_str());
            return Err(format!("not even `True` is a theorem after it; Lean said: {said}"));
        }
        // Without Lean's own library nobody can be asked for modules; that the theorem stands is what can be shown.
        if at(BEFORE_IMPORTS).any(|m| m.severity == Severity::Error) {
            return Ok(());
        }
        for (index, (module, says)) in self.imports.iter().enumerate() {
            if !at(BEFORE_IMPORTS + 1 + index).any(|m| m.text.contains(says.as_str())) {
                return Err(format!("`{module}` is not imported"));
            }
        }
        Ok(())
    }
}

struct Reply {
    messages: Vec<Message>,
    sorries: usize,
}

impl Session {
    fn start(checker: &ReplChecker, header: &str) -> Result<Self, Fault> {
        let process = Process::start(&checker.launch)?;
        let mut session = Self { process, header: header.to_owned(), base: 0, next: 0, uses: 0, resident: 0 };
        let mut text = header.trim_end().to_owned();
        for (name, value) in &checker.options {
            text.push_str(&format!("\nset_option {name} {value}"));
        }
        let broken =
            |why: String| Fault::Start { program: checker.launch.program.display().to_string(), error: why };
        let reply = session
            .ask(&json!({"cmd": text}), &checker.limits, checker.limits.start())
            .map_err(|fault| broken(format!("the header was not loaded: {fault}")))?;
        if let Some(error) = reply.messages.iter().find(|m| m.severity == Severity::Error) {
            return Err(broken(format!("the header does not stand: {}", error.text)));
        }
        session.base = session.next - 1;
        let evidence = Evidence::of(header, checker.probe);
        let reply = session
            .ask(&json!({"cmd": evidence.text, "env": session.base}), &checker.limits, checker.limits.start())
            .map_err(|fault| broken(format!("the header was not loaded: {fault}")))?;
        evidence.shows(&reply.messages).map_err(|why| broken(format!("the header does not stand: {why}")))?;
        session.resident = session.process.resident();
        Ok(session)
    }

    fn ask(&mut self, request: &Value, limits: &Limits, allowed: Duration) -> Result<Reply, Fault> {
        let mut input = request.to_string().into_bytes();
        input.extend_from_slice(b"\n\n");
        let until = Instant::now() + allowed;
        let mut seen = 0;
        let answer = self.process.exchange(&input, limits, &mut || (until, allowed), &mut |out, _| {
            // Look only at what is new, one byte back for a blank line cut in two.
            let from = seen;
            seen = out.len().saturating_sub(1);
            let rest = out.get(from..)?;
            rest.windows(2).position(|pair| pair == b"\n\n").map(|at| from + at + 2)
        })?;
        let expected = self.next;
        self.next += 1;
        read_reply(&answer, expected).map_err(Fault::Protocol)
    }
}

fn read_reply(answer: &[u8], expected: u64) -> Result<Reply, String> {
    let value: Value = serde_json::from_slice(answer).map_err(|e| format!("the reply is no JSON: {e}"))?;
    if let Some(message) = value.get("message").and_then(Value::as_str) {
        return Err(format!("the REPL refused the request: {message}"));
    }
    match value.get("env").and_then(Value::as_u64) {
        Some(env) if env == expected => {}
        Some(env) => return Err(format!("a reply for environment {env} where {expected} is due")),
        None => return Err("a reply without an environment".into()),
    }
    let list = |key: &str| value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let messages = list("messages").iter().map(Message::from_json).collect::<Result<_, _>>()?;
    Ok(Reply { messages, sorries: list("sorries").len() })
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
