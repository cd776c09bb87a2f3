//! Lean 4 behind the loop's one trait.

use crate::admit::admit;
use crate::check::{Candidate, Checker, FileChecker, Layers, NO_REPLAY, Outcome, Pool, PoolStatus};
use crate::compact;
use crate::prompt::{self, SolverForm};
use crate::read::{self, Proof, Reading};
use crate::text::{Bounds, Statement, commands, lex, negation, uses_tactic_try};
use crate::version::{Version, VersionError};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{Features, Judgement, Problem, ProblemId, ReadConjecture, Review, Verdict};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How Lean is used.
#[derive(Clone, Debug, PartialEq)]
pub struct LeanConfig {
    /// How completions are read.
    pub reading: Reading,
    /// How the roles are asked.
    pub form: SolverForm,
    /// Bounds on model text.
    pub bounds: Bounds,
    /// What judges; its own layers are those that the text layer is taken from, too.
    pub checker: Checker,
    /// A second opinion on what a REPL accepts: only what it says then counts.
    pub second: Option<FileChecker>,
    pub slots: usize,
    /// Verdicts that are remembered by content; 0 for none.
    pub cache: usize,
    /// What Lean says of its version, recorded with every verdict.
    pub version: Version,
}

/// What a verdict depends on, for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What Lean says of its version.
    pub version: Version,
    /// `repl` or `file`.
    pub checker: String,
    /// Options set after the header, in order.
    pub options: Vec<(String, String)>,
    /// Layers of trust in force.
    pub layers: Layers,
    /// Whether a process that runs no proof replays every proof that is accepted.
    pub judge: bool,
    /// Time limit of a proof, milliseconds.
    pub proof_ms: u64,
    /// Memory limit of a process, bytes.
    pub memory: u64,
}

/// Why Lean cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Slots could not be made.
    #[error("the pool of Lean slots cannot be started")]
    Pool(#[from] std::io::Error),
    /// Lean's version is not known, or not the right one.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The checker decides something wrongly: nothing it says can be believed.
    #[error("canary `{name}`: expected {expected}, got {found}: {reason}; the checker is not used")]
    Canary {
        name: &'static str,
        /// What it must get.
        expected: &'static str,
        found: &'static str,
        /// The checker's reason.
        reason: String,
    },
}

/// Most callers that are told to wait for the pool at once.
const MOST_CALLERS: usize = 512;

/// Lean 4: prompts, readers, features, and a pool of checkers.
pub struct Lean {
    config: LeanConfig,
    pool: Pool,
    second: Option<Pool>,
    cache: Mutex<FxHashMap<[u8; 32], Outcome>>,
    /// Goes after the pool, whose processes write there.
    own_scratch: OwnFolder,
}

/// A folder that goes with its owner.
#[derive(Default)]
struct OwnFolder(Option<PathBuf>);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // What cannot be removed is the system's temporary files' to clean up.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Lean {
    /// Starts the pool. Nothing is checked yet: [`Lean::canaries`] tells whether the checker can be believed.
    pub fn start(config: LeanConfig) -> Result<Self, StartError> {
        let pool = Pool::new(&config.checker, config.slots)?;
        // Of what is sampled, few proofs are accepted, and a file takes many: some slots are enough.
        let slots = config.slots.div_ceil(4);
        let second = config.second.clone().map(|file| Pool::new(&Checker::File(file), slots)).transpose()?;
        Ok(Self { config, pool, second, cache: Mutex::default(), own_scratch: OwnFolder::default() })
    }

    /// Removes a folder when this goes.
    pub(crate) fn remove_at_end(&mut self, folder: Option<PathBuf>) {
        self.own_scratch = OwnFolder(folder);
    }

    /// Judges a known theorem, a known non-theorem and a `sorry` in disguise, in the context `header`.
    pub fn canaries(&self, header: &str) -> Result<(), StartError> {
        let truth = "theorem sgs_canary (p q : Prop) (hp : p) (hq : q) : p ∧ q := by";
        let falsehood = "theorem sgs_canary : (1 : Nat) = 2 := by";
        let cases = [
            ("a theorem", truth, "\n  exact ⟨hp, hq⟩", Verdict::Proved),
            ("a falsehood", falsehood, "\n  decide", Verdict::Refused),
            ("a sorry in disguise", falsehood, "\n  exact sorryAx _ true", Verdict::Refused),
        ];
        // At once, so that a checker of files starts one process for all.
        let judged = std::thread::scope(|scope| {
            let judge = |case: (&'static str, &str, &str, Verdict)| {
                let (name, statement, body, expected) = case;
                let outcome = match Statement::read(statement) {
                    Ok(statement) => self.judge(header.into(), statement, Proof::new(body)),
                    Err(error) => Outcome::new(Verdict::Infra, error.to_string()),
                };
                (name, expected, outcome)
            };
            let calls: Vec<_> = cases.into_iter().map(|case| scope.spawn(move || judge(case))).collect();
            calls.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for call in judged {
            let (name, expected, outcome) = match call {
                Ok(judged) => judged,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            if outcome.verdict != expected {
                let found = outcome.verdict.as_str();
                return Err(StartError::Canary {
                    name,
                    expected: expected.as_str(),
                    found,
                    reason: outcome.reason,
                });
            }
        }
        Ok(())
    }

    /// What the verdicts depend on.
    pub fn identity(&self) -> Identity {
        let (checker, options, limits) = match &self.config.checker {
            Checker::Repl(c) => ("repl", &c.options, c.limits),
            Checker::File(c) => ("file", &c.options, c.limits),
        };
        Identity {
            version: self.config.version.clone(),
            checker: checker.to_owned(),
            options: options.clone(),
            layers: self.layers(),
            judge: self.is_replayed(),
            proof_ms: limits.proof_ms,
            memory: limits.memory,
        }
    }

    /// The problem that says that this one is false: at most one of the two has a proof. Its context lets Lean bind no
    /// names by itself, which it would do outside of the negation; a statement that counts on it has no negation that
    /// Lean reads. `None` where the context has a `variable`, which would be bound outside of the negation, too, or where no
    /// statement comes of it.
    pub fn negated(problem: &Problem) -> Option<Problem> {
        let context = problem.context.trim_end();
        if commands(context, &lex(context))
            .iter()
            .any(|c| matches!(c.keyword.as_str(), "variable" | "variables"))
        {
            return None;
        }
        let statement = negation(&Statement::read(&problem.statement).ok()?).ok()?;
        let context = if context.is_empty() { String::new() } else { format!("{context}\n") };
        Some(Problem {
            id: ProblemId::new(format!("{}#negation", problem.id)),
            statement: statement.text.into(),
            context: format!("{context}set_option autoImplicit false\n\n").into(),
        })
    }

    /// Counters of the pool.
    pub fn status(&self) -> PoolStatus {
        self.pool.status()
    }

    /// Judges a proof in canonical text, with the axioms it rests on.
    pub fn outcome(&self, problem: &Problem, proof: &str) -> Outcome {
        let statement = match Statement::read(&problem.statement) {
            Ok(statement) => statement,
            Err(error) => return Outcome::new(Verdict::Refused, format!("statement: {error}")),
        };
        let read = Proof::from_text(proof);
        let (statement, read) = match self.layers().text {
            true => match admit(&statement, &read, &self.config.bounds) {
                Ok(admitted) => admitted,
                Err(refusal) => return Outcome::new(Verdict::Refused, refusal.to_string()),
            },
            false => (statement, read),
        };
        let key = self.key(problem, proof);
        if let Some(known) = self.cached(&key) {
            return known;
        }
        let outcome = self.judge(Arc::clone(&problem.context), statement, read);
        self.remember(key, &outcome);
        outcome
    }

    fn is_compact(&self) -> bool {
        self.config.form == SolverForm::Compact
    }

    /// The short form's tokens are its whole template.
    fn asked(&self, text: String) -> Prompt {
        if self.is_compact() { Prompt::Raw(text) } else { Prompt::Chat(text) }
    }

    fn layers(&self) -> Layers {
        match &self.config.checker {
            Checker::Repl(c) => c.layers,
            Checker::File(c) => c.layers,
        }
    }

    fn judge(&self, header: Arc<str>, statement: Statement, proof: Proof) -> Outcome {
        let candidate = Arc::new(Candidate { header, statement, proof });
        let outcome = self.pool.check(Arc::clone(&candidate));
        match &self.second {
            Some(second) if outcome.verdict == Verdict::Proved => second.check(candidate),
            None if outcome.verdict == Verdict::Proved && !self.is_replayed() => {
                Outcome { reason: NO_REPLAY.to_owned(), ..outcome }
            }
            _ => outcome,
        }
    }

    fn is_replayed(&self) -> bool {
        match &self.config.checker {
            Checker::Repl(_) => self.config.second.as_ref().is_some_and(|second| second.replay),
            Checker::File(file) => file.replay,
        }
    }

    fn key(&self, problem: &Problem, proof: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [&*problem.context, &*problem.statement, proof] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().into()
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Outcome> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Remembers what Lean decided; what it could not decide may be tried again.
    fn remember(&self, key: [u8; 32], outcome: &Outcome) {
        if self.config.cache == 0 || !matches!(outcome.verdict, Verdict::Proved | Verdict::Refused) {
            return;
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= self.config.cache {
            // Repeats are near each other in time (rollouts of one problem): starting over loses little.
            cache.clear();
        }
        cache.insert(key, outcome.clone());
    }
}

impl FormalSystem for Lean {
    fn name(&self) -> &'static str {
        "lean"
    }

    fn solver_prompt(&self, problem: &Problem) -> Prompt {
        self.asked(prompt::solver(problem, self.config.form))
    }

    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        self.asked(if self.is_compact() {
            compact::conjecturer(condition)
        } else {
            prompt::conjecturer(condition)
        })
    }

    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        let is_compact = self.is_compact();
        self.asked(if is_compact {
            compact::guide(target, conjecture)
        } else {
            prompt::guide(target, conjecture)
        })
    }

    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed> {
        let read = match self.config.reading {
            _ if self.is_compact() => compact::read_proof(completion, &self.config.bounds),
            Reading::Lenient => read::read_proof(&problem.statement, completion, &self.config.bounds),
            Reading::Strict => read::read_proof_strict(completion),
        };
        read.map(|proof| proof.to_text())
    }

    fn read_conjecture(
        &self,
        _condition: Condition<'_>,
        completion: &str,
    ) -> Result<ReadConjecture, Malformed> {
        let read = match self.config.reading {
            _ if self.is_compact() => compact::read_said(completion, &self.config.bounds),
            Reading::Lenient => read::read_conjecture(completion, &self.config.bounds),
            Reading::Strict => read::read_conjecture_strict(completion),
        };
        read.map(ReadConjecture::plain)
    }

    fn read_review(&self, completion: &str) -> Result<Review, Malformed> {
        match self.config.reading {
            _ if self.is_compact() => compact::read_scores(completion),
            Reading::Lenient => read::read_review(completion),
            Reading::Strict => read::read_review_strict(completion),
        }
    }

    fn features(&self, statement: &str) -> Features {
        crate::features(statement)
    }

    fn is_penalised(&self, proof: &str) -> bool {
        uses_tactic_try(proof)
    }

    fn identity(&self) -> String {
        let i = Lean::identity(self);
        let options: Vec<String> = i.options.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let judge = if i.judge { ", replayed" } else { ", not replayed" };
        format!(
            "{}, {}{judge}, {} ms, {} bytes, options: {}",
            i.version.text,
            i.checker,
            i.proof_ms,
            i.memory,
            options.join(", ")
        )
    }

    /// Slots that check whole files want them full, and the next ones ready.
    fn parallel_verifications(&self) -> usize {
        let batch = match (&self.config.checker, &self.config.second) {
            (Checker::Repl(_), None) => 1,
            // Some wait for their replay meanwhile.
            (Checker::Repl(_), Some(_)) => 2,
            (Checker::File(file), _) => file.batch.max(1),
        };
        (2 * self.config.slots.max(1) * batch).min(MOST_CALLERS)
    }

    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        let begun = Instant::now();
        let outcome = self.outcome(problem, proof);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        Judgement { verdict: outcome.verdict, reason: outcome.reason, step: None, micros }
    }
}
