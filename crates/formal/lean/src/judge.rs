//! The Lean-side judge: a second opinion on every proof that the first checker accepts.
//!
//! Two processes of the package under `lean/`. The first, sandboxed, runs the model's text and writes the
//! declarations that the theorem needs as text. The second never runs model code: it loads the header anew,
//! elaborates our statement, has the kernel check every declaration and the agreement with the statement, and walks
//! the axioms. Only what the second says counts.

use crate::check::{Candidate, Fault, Launch, Limits, Outcome, Process};
use serde::Deserialize;
use sgs_selfplay::Verdict;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How the judge is run. Both launches get their arguments from here; the first should be wrapped in a sandbox that
/// can write to `scratch` and nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    /// Starts `sgs-judge`, sandboxed.
    pub elaborate: Launch,
    /// Starts `sgs-judge`, for the part that runs no model code.
    pub replay: Launch,
    /// Folder for requests and declarations.
    pub scratch: PathBuf,
    /// Options set after the header.
    pub options: Vec<(String, String)>,
    /// Bounds of each of the two processes.
    pub limits: Limits,
}

/// Largest text of declarations that is handed on, bytes.
const DELTA: u64 = 256 << 20;

#[derive(Deserialize)]
struct Answer {
    proved: bool,
    #[serde(default)]
    reason: String,
}

impl Judge {
    /// Judges a candidate. `proved` means: an independent kernel run agrees.
    pub fn judge(&self, candidate: &Candidate) -> Outcome {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = self.scratch.join(format!(
            "judge-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        if let Err(e) = std::fs::create_dir_all(&folder) {
            return Outcome::new(Verdict::Infra, format!("judge layer: {}: {e}", folder.display()));
        }
        let outcome = self.judge_in(candidate, &folder);
        // What cannot be removed is scratch all the same.
        let _ = std::fs::remove_dir_all(&folder);
        outcome
    }

    fn judge_in(&self, candidate: &Candidate, folder: &Path) -> Outcome {
        let (request, delta) = (folder.join("request.json"), folder.join("declarations.txt"));
        let infra = |what: String| Outcome::new(Verdict::Infra, format!("judge layer: {what}"));
        if let Err(e) = std::fs::write(&request, self.request(candidate).to_string()) {
            return infra(e.to_string());
        }
        match self.run(&self.elaborate, "elaborate", &request, &delta) {
            Ok((Some(0), _)) => {}
            Ok((Some(1), _)) => {
                return Outcome::new(Verdict::Refused, "judge layer: the theorem does not stand on its own");
            }
            Ok((status, _)) => return infra(format!("the first process ended with {status:?}")),
            Err(fault) => return of_fault(&fault),
        }
        match std::fs::symlink_metadata(&delta) {
            Ok(meta) if meta.is_file() && meta.len() <= DELTA => {}
            Ok(_) => return Outcome::new(Verdict::Resource, "judge layer: the declarations are too large"),
            Err(e) => return infra(format!("no declarations: {e}")),
        }
        match self.run(&self.replay, "replay", &request, &delta) {
            Ok((Some(0), output)) => match serde_json::from_slice::<Answer>(&output) {
                Ok(Answer { proved: true, .. }) => Outcome::new(Verdict::Proved, ""),
                Ok(Answer { reason, .. }) => Outcome::new(Verdict::Refused, format!("judge layer: {reason}")),
                Err(e) => infra(format!("an answer that cannot be read: {e}")),
            },
            Ok((status, _)) => infra(format!("the second process ended with {status:?}")),
            Err(fault) => of_fault(&fault),
        }
    }

    fn request(&self, candidate: &Candidate) -> serde_json::Value {
        let (header, mut context) = split_header(&candidate.header);
        for (name, value) in &self.options {
            context.push_str(&format!("\nset_option {name} {value}"));
        }
        let statement = &candidate.statement;
        let signature = statement.signature();
        let glue = if signature.starts_with('.') { "" } else { " " };
        serde_json::json!({
            "header": header,
            "context": context,
            "pinned": format!("axiom sgs_pinned{glue}{signature}"),
            "text": format!("{}\n{}{}\n", candidate.proof.helpers, statement.text, candidate.proof.body),
            "target": statement.name(),
        })
    }

    fn run(
        &self,
        launch: &Launch,
        what: &str,
        request: &Path,
        delta: &Path,
    ) -> Result<(Option<i32>, Vec<u8>), Fault> {
        let mut launch = launch.clone();
        launch.args.extend([OsString::from(what), request.into(), delta.into()]);
        let mut process = Process::start(&launch)?;
        process.close_stdin();
        let allowed = self.limits.start() + self.limits.proof();
        let until = Instant::now() + allowed;
        let output = process.exchange(&[], &self.limits, &mut || (until, allowed), &mut |out, ended| {
            ended.then_some(out.len())
        })?;
        let status = process.kill();
        Ok((status.and_then(|s| s.code()), output))
    }
}

fn of_fault(fault: &Fault) -> Outcome {
    let verdict = match fault {
        Fault::Timeout(_) | Fault::Memory { .. } | Fault::Output(_) => Verdict::Resource,
        Fault::Ended { .. } | Fault::Protocol(_) | Fault::Start { .. } => Verdict::Infra,
    };
    Outcome::new(verdict, format!("judge layer: {fault}"))
}

/// The imports of a header, and the rest of it.
fn split_header(header: &str) -> (String, String) {
    let tokens = crate::text::lex(header);
    let commands = crate::text::commands(header, &tokens);
    let end = commands.iter().find(|c| !matches!(c.keyword.as_str(), "import" | "prelude" | "module"));
    let end = end.map_or(header.len(), |c| c.range.start);
    let (imports, rest) = header.split_at_checked(end).unwrap_or((header, ""));
    (imports.to_owned(), rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Proof;
    use crate::text::Statement;

    #[test]
    fn the_request_holds_our_statement_and_the_models_text_apart() {
        let launch =
            Launch { program: "x".into(), args: vec![], env: vec![], folder: "/".into(), cgroup: None };
        let judge = Judge {
            elaborate: launch.clone(),
            replay: launch,
            scratch: "/tmp".into(),
            options: vec![("autoImplicit".into(), "false".into())],
            limits: Limits::default(),
        };
        let candidate = Candidate {
            header: "import Mathlib\nimport Aesop\nset_option maxHeartbeats 0\nopen Real\n\n".into(),
            statement: Statement::read("theorem t (x : ℝ) : x = x := by").unwrap(),
            proof: Proof { helpers: "theorem h : True := trivial".into(), body: "\n  rfl".into() },
        };
        let request = judge.request(&candidate);
        assert_eq!(request["header"], "import Mathlib\nimport Aesop\n");
        assert_eq!(
            request["context"],
            "set_option maxHeartbeats 0\nopen Real\n\n\nset_option autoImplicit false"
        );
        assert_eq!(request["pinned"], "axiom sgs_pinned (x : ℝ) : x = x");
        assert_eq!(request["text"], "theorem h : True := trivial\ntheorem t (x : ℝ) : x = x := by\n  rfl\n");
        assert_eq!(request["target"], "t");
    }
}
