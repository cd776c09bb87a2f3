//! An external process as a [`FormalSystem`].

use crate::child::Fault;
use crate::description::Description;
use crate::pool::Pool;
use crate::settings::ExternalSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{FailedProof, Features, Judgement, ParsedConjecture, Problem, Review, Verdict};
use std::time::Instant;

/// A formal system in separate processes.
pub struct External {
    pool: Pool,
    description: Description,
    /// Whether every conjecture must have a rubric.
    needs_rubric: bool,
}

/// The beginning of the identity of every external system ([`FormalSystem::identity`]).
pub const IDENTITY: &str = "external: ";

/// Number of processes that may fail on the same completion before it is given up.
const TRIES: u32 = 3;

/// Maximum length of a verdict's reason, in characters.
const LONGEST_REASON: usize = 2000;

impl External {
    /// Starts the first process and asks it to describe the system.
    pub fn start(settings: ExternalSettings) -> Result<Self, Fault> {
        let (pool, description) = Pool::start(settings)?;
        Ok(Self { pool, description, needs_rubric: false })
    }

    /// Makes a conjecture without a `rubric` a fault of the program: for a Guide that is the rubric, 0 would be a score.
    #[must_use]
    pub fn with_rubric(self) -> Self {
        Self { needs_rubric: true, ..self }
    }

    /// Returns whether the description has a prompt for a Guide that is a model.
    pub fn has_guide_prompt(&self) -> bool {
        self.description.prompts.guide.is_some()
    }

    /// Asks about a completion. If the process fails, asks another one.
    fn read<T: DeserializeOwned>(
        &self,
        op: &'static str,
        request: &Value,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<T, Malformed> {
        let decode = |result: Value| {
            let read = decode_read::<T>(result)?;
            read.as_ref().map_or(Ok(()), &check).map(|()| read)
        };
        let mut answer = self.pool.ask(op, request, decode);
        for _ in 1..TRIES {
            match &answer {
                Err(fault) if fault.is_fatal() => answer = self.pool.ask(op, request, decode),
                _ => break,
            }
        }
        answer.unwrap_or_else(|fault| Err(Malformed::infra(format!("external `{op}`: {fault}"))))
    }

    fn verify_batch(&self, problem: &Problem, proofs: &[&str]) -> Vec<Judgement> {
        let start = Instant::now();
        let request = json!({ "problem": problem, "proofs": proofs });
        let answer = self.pool.ask("verify", &request, |result| {
            let Verdicts { verdicts } = decode(result)?;
            match verdicts.len() == proofs.len() {
                true => Ok(verdicts),
                false => Err(format!("{} verdicts for {} proofs", verdicts.len(), proofs.len())),
            }
        });
        let micros = start.elapsed().as_micros() as u64 / proofs.len().max(1) as u64;
        let judgement = |verdict, reason, step| Judgement { verdict, reason, step, micros };
        let shortened = |reason: String| reason.chars().take(LONGEST_REASON).collect();
        match answer {
            Ok(verdicts) => {
                verdicts.into_iter().map(|v| judgement(v.verdict, shortened(v.reason), v.step)).collect()
            }
            Err(fault) => {
                // Do not shorten a fault: it is short, and its end says why the process failed.
                let reason = format!("external `verify`: {fault}");
                proofs.iter().map(|_| judgement(Verdict::Infra, reason.clone(), None)).collect()
            }
        }
    }
}

/// The result of `verify`.
#[derive(Deserialize)]
struct Verdicts {
    verdicts: Vec<VerdictLine>,
}

#[derive(Deserialize)]
struct VerdictLine {
    #[serde(with = "ReportedVerdict")]
    verdict: Verdict,
    #[serde(default)]
    reason: String,
    step: Option<u32>,
}

/// A verdict that the system may report. It cannot report [`Verdict::Infra`], a fault outside of it.
#[derive(Deserialize)]
#[serde(remote = "Verdict", rename_all = "kebab-case")]
enum ReportedVerdict {
    Proved,
    Refused,
    Malformed,
    Resource,
}

#[derive(Deserialize)]
struct ReadProof {
    proof: String,
}

#[derive(Deserialize)]
struct ReadConjecture {
    statement: String,
    known: Option<String>,
    rubric: Option<f64>,
}

/// The result of a `read_` operation for a malformed completion.
#[derive(Deserialize)]
struct Defect {
    malformed: String,
    #[serde(default)]
    detail: String,
}

fn decode<T: DeserializeOwned>(result: Value) -> Result<T, String> {
    serde_json::from_value(result).map_err(|error| error.to_string())
}

fn decode_read<T: DeserializeOwned>(result: Value) -> Result<Result<T, Malformed>, String> {
    if result.get("malformed").is_none() {
        return decode(result).map(Ok);
    }
    let Defect { malformed, detail } = decode(result)?;
    match malformed.as_str() {
        "" | Malformed::INFRA => Err(format!("`malformed` is `{malformed}`; expected the name of a defect")),
        kind => Ok(Err(Malformed::new(kind.chars().take(100).collect::<String>(), detail))),
    }
}

impl FormalSystem for External {
    fn name(&self) -> &'static str {
        "external"
    }

    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        let fields = [("statement", &*problem.statement), ("context", &*problem.context)];
        self.description.prompt(&self.description.prompts.solver, &fields)
    }

    fn repair_prompt(&self, problem: &Problem, failed: &FailedProof) -> Prompt {
        let Some(template) = &self.description.prompts.solver_repair else {
            return self.solver_prompt(problem);
        };
        let fields = [
            ("statement", &*problem.statement),
            ("context", &*problem.context),
            ("proof", &*failed.proof),
            ("error", &*failed.error),
        ];
        self.description.prompt(template, &fields)
    }

    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        let (prompts, problem) = (&self.description.prompts, condition.problem());
        let (template, statement, proof) = match condition {
            Condition::Target(_) => (None, &*problem.statement, ""),
            Condition::Solved { proof, .. } => {
                (prompts.conjecturer_solved.as_ref(), &*problem.statement, proof)
            }
            Condition::Nothing(_) => (prompts.conjecturer_unconditioned.as_ref(), "", ""),
        };
        let fields = [("statement", statement), ("context", &*problem.context), ("proof", proof)];
        self.description.prompt(template.unwrap_or(&prompts.conjecturer), &fields)
    }

    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        let fields = [
            ("statement", &*target.statement),
            ("context", &*target.context),
            ("conjecture", &*conjecture.statement),
        ];
        match &self.description.prompts.guide {
            Some(template) => self.description.prompt(template, &fields),
            None => Prompt::Raw(format!("{}\n{}", target.statement, conjecture.statement)),
        }
    }

    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed> {
        let request = json!({ "problem": problem, "completion": completion });
        self.read("read_proof", &request, |_: &ReadProof| Ok(())).map(|read| read.proof)
    }

    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        let request = json!({ "problem": condition.problem(), "completion": completion });
        let read = self.read("read_conjecture", &request, |read: &ReadConjecture| match read.rubric {
            None if self.needs_rubric => {
                Err("no `rubric`, which algorithm.guide.kind = \"rubric\" needs".to_owned())
            }
            Some(rubric) if !(0.0..=8.0).contains(&rubric) => {
                Err(format!("`rubric` is {rubric}, expected 0 to 8"))
            }
            _ => Ok(()),
        })?;
        Ok(ParsedConjecture {
            known: read.known.map(Into::into),
            rubric: read.rubric.unwrap_or(0.0),
            ..ParsedConjecture::plain(read.statement)
        })
    }

    fn read_review(&self, completion: &str) -> Result<Review, Malformed> {
        let review: Review = self.read("read_review", &json!({ "completion": completion }), |_| Ok(()))?;
        match review.is_in_range() {
            true => Ok(review),
            false => Err(Malformed::new("out-of-range", format!("{review:?}"))),
        }
    }

    /// Sets only the length, because nothing else is known.
    fn features(&self, statement: &str) -> Features {
        let length = u32::try_from(statement.split_whitespace().count()).unwrap_or(u32::MAX);
        Features { length, ..Features::default() }
    }

    fn is_penalised(&self, _: &str) -> bool {
        false
    }

    fn identity(&self) -> String {
        format!("{IDENTITY}{} {}", self.description.name, self.description.version)
    }

    fn broken(&self) -> Option<String> {
        self.pool.broken().map(|fault| format!("the external system is {fault}"))
    }

    fn parallel_verifications(&self) -> usize {
        self.pool.settings().processes
    }

    fn proofs_per_call(&self) -> usize {
        self.pool.settings().batch
    }

    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        self.verify_batch(problem, &[proof]).remove(0)
    }

    fn verify_all(&self, problem: &Problem, proofs: &[&str]) -> Vec<Judgement> {
        let batches = proofs.chunks(self.pool.settings().batch.max(1));
        batches.flat_map(|batch| self.verify_batch(problem, batch)).collect()
    }
}
