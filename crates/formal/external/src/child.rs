//! One process of an external system: writes a request as a line and reads the reply.

use crate::settings::ExternalSettings;
use serde_json::{Value, json};
use sgs_base::excerpt;
use sgs_formal::process::{Process, ProcessFault};
use std::time::Instant;

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum Fault {
    #[error("external.command is empty: set it to the program that implements the formal system")]
    NoCommand,
    #[error(transparent)]
    Process(#[from] ProcessFault),
    /// The process exceeded a limit, which is a key.
    #[error("{fault} (external.{key})")]
    Limit { fault: ProcessFault, key: &'static str },
    #[error("expected a reply in JSON, found `{found}`: {error} (protocol: docs/external.md)")]
    NotJson { found: String, error: String },
    #[error("expected the reply to request {expected}, found id {found}")]
    WrongId { expected: u64, found: String },
    #[error("the result of `{op}` is invalid: {error}")]
    Invalid { op: &'static str, error: String },
    /// The system reported an error. Its process continues.
    #[error("the system reported an error: {0}")]
    Reported(String),
    /// `limit` says which limit was exceeded.
    #[error("given up after {limit}; the last request: {last}")]
    GivenUp { limit: String, last: String },
}

impl Fault {
    /// Returns whether the process that caused the fault must be replaced.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, Fault::Reported(_))
    }
}

/// A running process, and the id of its next request.
pub(crate) struct Child {
    process: Process,
    next: u64,
}

impl Child {
    pub(crate) fn start(settings: &ExternalSettings) -> Result<Self, Fault> {
        let launch = settings.launch().ok_or(Fault::NoCommand)?;
        Ok(Self { process: Process::start(&launch)?, next: 1 })
    }

    /// Sends a request and returns the result in the reply. After a fatal fault the process must be dropped.
    pub(crate) fn ask(
        &mut self,
        settings: &ExternalSettings,
        op: &'static str,
        mut request: Value,
    ) -> Result<Value, Fault> {
        let id = self.next;
        self.next += 1;
        request["id"] = json!(id);
        request["op"] = json!(op);
        let line = format!("{request}\n");
        let (until, mut seen) = (Instant::now() + settings.timeout(), 0);
        let mut end_of_line = |out: &[u8], _: bool| {
            let from = std::mem::replace(&mut seen, out.len());
            out.get(from..)?.iter().position(|byte| *byte == b'\n').map(|at| from + at + 1)
        };
        let deadline = &mut || (until, settings.timeout());
        let reply = self.process.exchange(line.as_bytes(), settings.quota(), deadline, &mut end_of_line);
        let reply = reply.map_err(|fault| match fault {
            ProcessFault::Timeout(_) => Fault::Limit { fault, key: "timeout_s" },
            ProcessFault::Output(_) => Fault::Limit { fault, key: "reply_bytes" },
            ProcessFault::Memory { .. } => Fault::Limit { fault, key: "memory_mib" },
            fault => Fault::Process(fault),
        })?;
        result_in(&reply, id, op)
    }
}

/// Returns the result in the reply to the request `id`.
fn result_in(line: &[u8], id: u64, op: &'static str) -> Result<Value, Fault> {
    let beginning = |text: &str| excerpt::beginning_of(text).into_owned();
    let not_json = |error: String| Fault::NotJson { found: beginning(&String::from_utf8_lossy(line)), error };
    let mut reply = match serde_json::from_slice(line) {
        Ok(Value::Object(reply)) => reply,
        Ok(_) => return Err(not_json("not an object".to_owned())),
        Err(error) => return Err(not_json(error.to_string())),
    };
    match reply.get("id") {
        Some(found) if found.as_u64() == Some(id) => {}
        found => {
            let found = found.map_or_else(|| "none".to_owned(), |found| beginning(&found.to_string()));
            return Err(Fault::WrongId { expected: id, found });
        }
    }
    if let Some(error) = reply.remove("error") {
        let text = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
        return Err(Fault::Reported(excerpt::end_of(&text).into_owned()));
    }
    let missing = || Fault::Invalid { op, error: "the reply has neither `result` nor `error`".to_owned() };
    reply.remove("result").ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_to_the_request_has_a_result() {
        let result = |line: &str| result_in(line.as_bytes(), 7, "describe");
        assert_eq!(result(r#"{"id": 7, "result": [1]}"#).unwrap(), json!([1]));
        assert_eq!(result(r#"{"id": 7, "error": "no"}"#), Err(Fault::Reported("no".to_owned())));
        for (line, said) in [
            ("Traceback (most recent call last):", "expected a reply in JSON, found `Traceback"),
            ("[7]", "not an object"),
            (r#"{"result": 1}"#, "expected the reply to request 7, found id none"),
            (r#"{"id": 8, "result": 1}"#, "found id 8"),
            (r#"{"id": "7", "result": 1}"#, "found id \"7\""),
            (r#"{"id": 7}"#, "neither `result` nor `error`"),
        ] {
            let fault = result(line).unwrap_err();
            assert!(fault.to_string().contains(said) && fault.is_fatal(), "{fault}");
        }
        assert!(result(&"[".repeat(100_000)).is_err());
        let trace: String = (0..100).map(|i| format!("frame {i}\\n")).collect();
        let fault = result(&format!(r#"{{"id": 7, "error": "{trace}the reason"}}"#)).unwrap_err().to_string();
        assert!(fault.ends_with("frame 99\nthe reason") && !fault.contains("frame 80"), "{fault}");
    }
}
