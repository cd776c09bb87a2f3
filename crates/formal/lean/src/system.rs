//! Lean 4 as an implementation of [`FormalSystem`].

use crate::check::{
    Candidate, CheckOutcome, CheckerConfig, FileChecker, NO_REPLAY, Pool, PoolStatus, TrustLayers,
};
use crate::compact;
use crate::prompt::{self, SolverForm};
use crate::read::{self, Proof, Reading};
use crate::templates::Templates;
use crate::text::{Bounds, LeanStatement, commands, lex, negation, unix_lines, uses_tactic_try};
use crate::version::{Version, VersionError};
use rustc_hash::FxHashMap;
use sgs_formal::scratch::PrivateFolder;
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{FailedProof, Features, Judgement, ParsedConjecture, Problem, ProblemId, Review, Verdict};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Configuration of [`Lean`].
#[derive(Clone, Debug, PartialEq)]
pub struct LeanConfig {
    /// How completions are read.
    pub reading: Reading,
    /// How the roles are prompted.
    pub form: SolverForm,
    /// The templates of the prompts, except in the compact form.
    pub templates: Templates,
    /// Limits on text from a model.
    pub bounds: Bounds,
    /// The checker. Its layers also determine whether the limits on texts apply.
    pub checker: CheckerConfig,
    /// Rechecks proofs that a REPL accepts. Its verdict replaces the REPL's.
    pub second: Option<FileChecker>,
    /// Number of proofs that are checked concurrently.
    pub slots: usize,
    /// Maximum number of cached verdicts; 0 disables the cache.
    pub cache: usize,
    /// Lean's version, which is recorded with every verdict.
    pub version: Version,
}

/// Everything that a verdict depends on, apart from problem and proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerIdentity {
    /// Lean's version.
    pub version: Version,
    /// `repl` or `file`.
    pub checker: String,
    /// Options that are set after the header, in order.
    pub options: Vec<(String, String)>,
    /// Whether a process that runs no proof replays every accepted proof.
    pub judge: bool,
    /// Time limit of a proof, in milliseconds.
    pub proof_ms: u64,
    /// Memory limit of a process, in bytes.
    pub memory: u64,
    /// Limits on text from a model.
    pub bounds: Bounds,
}

/// Lean could not be started, or its verdicts cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum StartError {
    #[error("the pool of Lean slots cannot be started")]
    Pool(#[from] std::io::Error),
    /// Lean's version is unknown, or not the required one.
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("canary `{name}`: expected {expected}, got {found}: {reason}; the checker is not used")]
    Canary { name: &'static str, expected: &'static str, found: &'static str, reason: String },
}

/// Begins the part of [`FormalSystem::identity`] that names the bounds, which early versions omit.
pub const BOUNDS: &str = "; bounds: ";

/// Maximum number of concurrent calls that the pool asks its users for.
const MAX_CALLERS: usize = 512;

/// Lean 4: prompts, readers, features, and a pool of checkers.
pub struct Lean {
    config: LeanConfig,
    pool: Pool,
    second: Option<Pool>,
    cache: Mutex<FxHashMap<[u8; 32], CheckOutcome>>,
    /// The scratch folder, if it is to be removed. It is dropped after the pools, whose processes write to it, because
    /// fields are dropped in the order of declaration.
    own_scratch: Option<PrivateFolder>,
}

impl Lean {
    /// Returns a checksum of the prompts that replace built-in ones, or `None` if there are none.
    pub fn checksum_of_prompts(&self) -> Option<String> {
        self.config.templates.checksum()
    }

    /// Starts the pool. Call [`Lean::canaries`] before trusting its verdicts.
    pub fn start(config: LeanConfig) -> Result<Self, StartError> {
        let pool = Pool::new(&config.checker, config.slots)?;
        // Only few samples are accepted, and a file takes several of them, so a few slots are enough.
        let slots = config.slots.div_ceil(4);
        let second =
            config.second.clone().map(|file| Pool::new(&CheckerConfig::File(file), slots)).transpose()?;
        Ok(Self { config, pool, second, cache: Mutex::default(), own_scratch: None })
    }

    /// Keeps the scratch folder until this value is dropped, which removes it.
    pub(crate) fn keep_scratch(&mut self, folder: Option<PrivateFolder>) {
        self.own_scratch = folder;
    }

    /// Judges a theorem, a falsehood and a disguised `sorry` after `header`, and checks their verdicts.
    ///
    /// # Errors
    /// Returns an error if a verdict is wrong.
    pub fn canaries(&self, header: &str) -> Result<(), StartError> {
        let truth = "theorem sgs_canary (p q : Prop) (hp : p) (hq : q) : p ∧ q := by";
        let falsehood = "theorem sgs_canary : (1 : Nat) = 2 := by";
        let cases = [
            ("a theorem", truth, "\n  exact ⟨hp, hq⟩", Verdict::Proved),
            ("a falsehood", falsehood, "\n  decide", Verdict::Refused),
            ("a sorry in disguise", falsehood, "\n  exact sorryAx _ true", Verdict::Refused),
        ];
        // Judge them concurrently, so that a file checker starts one process for all of them.
        let judged = std::thread::scope(|scope| {
            let judge = |case: (&'static str, &str, &str, Verdict)| {
                let (name, statement, body, expected) = case;
                let proof = Proof::new(body);
                let candidate = Candidate { header: header.into(), statement: statement.into(), proof };
                (name, expected, self.judge(candidate).0)
            };
            let calls: Vec<_> = cases.into_iter().map(|case| scope.spawn(move || judge(case))).collect();
            let join = |call: std::thread::ScopedJoinHandle<'_, _>| {
                call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            calls.into_iter().map(join).collect::<Vec<_>>()
        });
        for (name, expected, outcome) in judged {
            if outcome.verdict != expected {
                let (expected, found) = (expected.as_str(), outcome.verdict.as_str());
                return Err(StartError::Canary { name, expected, found, reason: outcome.reason });
            }
        }
        Ok(())
    }

    /// Returns everything that the verdicts depend on.
    pub fn identity(&self) -> CheckerIdentity {
        let (checker, options, limits) = match &self.config.checker {
            CheckerConfig::Repl(c) => ("repl", &c.options, c.limits),
            CheckerConfig::File(c) => ("file", &c.options, c.limits),
        };
        CheckerIdentity {
            version: self.config.version.clone(),
            checker: checker.to_owned(),
            options: options.clone(),
            judge: self.is_replayed(),
            proof_ms: limits.proof_ms,
            memory: limits.memory,
            bounds: self.config.bounds,
        }
    }

    /// Returns the problem whose statement is the negation of this one. At most one of the two has a proof.
    ///
    /// Its context disables `autoImplicit`, because Lean would bind names outside of the negation. If a statement
    /// depends on that option, Lean accepts no negation of it. Returns `None` if the context has a `variable` command,
    /// which would also bind outside of the negation, or if the negation is not a statement.
    pub fn negated(problem: &Problem) -> Option<Problem> {
        let context = problem.context.trim_end();
        if commands(context, &lex(context))
            .iter()
            .any(|c| matches!(c.keyword.as_str(), "variable" | "variables"))
        {
            return None;
        }
        let statement = negation(&LeanStatement::read(&problem.statement).ok()?).ok()?;
        let context = if context.is_empty() { String::new() } else { format!("{context}\n") };
        Some(Problem {
            id: ProblemId::new(format!("{}#negation", problem.id)),
            statement: statement.text.into(),
            context: format!("{context}set_option autoImplicit false\n\n").into(),
        })
    }

    /// Returns the counters of the pool.
    pub fn status(&self) -> PoolStatus {
        self.pool.status()
    }

    /// Judges a proof in canonical text, and returns the axioms that it depends on.
    pub fn outcome(&self, problem: &Problem, proof: &str) -> CheckOutcome {
        self.timed_outcome(problem, proof).0
    }

    /// Returns the outcome with the time that it took in the slots of the pools, without the time in their queues.
    pub fn timed_outcome(&self, problem: &Problem, proof: &str) -> (CheckOutcome, Duration) {
        let lines_of = |text: &Arc<str>| match unix_lines(text) {
            Cow::Borrowed(_) => Arc::clone(text),
            Cow::Owned(text) => text.into(),
        };
        let proof = &*unix_lines(proof);
        let candidate = Candidate {
            header: lines_of(&problem.context),
            statement: lines_of(&problem.statement),
            proof: Proof::from_text(proof),
        };
        if self.layers().syntax {
            for text in [&candidate.statement, &*candidate.proof.helpers, &candidate.proof.body] {
                if let Err(error) = self.config.bounds.check(text) {
                    let reason = format!("bounds: {error}");
                    return (CheckOutcome::new(Verdict::Refused, reason), Duration::ZERO);
                }
            }
        }
        let key = self.key(problem, proof);
        if let Some(known) = self.cached(&key) {
            return (known, Duration::ZERO);
        }
        let (outcome, time) = self.judge(candidate);
        self.remember(key, &outcome);
        (outcome, time)
    }

    fn is_compact(&self) -> bool {
        self.config.form == SolverForm::Compact
    }

    // The special tokens of the compact form replace a chat template.
    fn prompt_of(&self, text: String) -> Prompt {
        if self.is_compact() { Prompt::Raw(text) } else { Prompt::Chat(text) }
    }

    fn layers(&self) -> TrustLayers {
        match &self.config.checker {
            CheckerConfig::Repl(_) => TrustLayers::ALL,
            CheckerConfig::File(c) => c.layers,
        }
    }

    fn judge(&self, candidate: Candidate) -> (CheckOutcome, Duration) {
        let candidate = Arc::new(candidate);
        let (outcome, time) = self.pool.check_timed(Arc::clone(&candidate));
        match &self.second {
            Some(second) if outcome.verdict == Verdict::Proved => {
                let (outcome, replay) = second.check_timed(candidate);
                (outcome, time + replay)
            }
            None if outcome.verdict == Verdict::Proved && !self.is_replayed() => {
                (CheckOutcome { reason: NO_REPLAY.to_owned(), ..outcome }, time)
            }
            _ => (outcome, time),
        }
    }

    fn is_replayed(&self) -> bool {
        match &self.config.checker {
            CheckerConfig::Repl(_) => self.config.second.as_ref().is_some_and(|second| second.replay),
            CheckerConfig::File(file) => file.replay,
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

    fn cached(&self, key: &[u8; 32]) -> Option<CheckOutcome> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Caches a final verdict. An undecided proof may be checked again.
    fn remember(&self, key: [u8; 32], outcome: &CheckOutcome) {
        if self.config.cache == 0 || !matches!(outcome.verdict, Verdict::Proved | Verdict::Refused) {
            return;
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= self.config.cache {
            // Repeats are close in time (rollouts of one problem), so clearing the cache loses little.
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
        self.prompt_of(prompt::solver(&self.config.templates, problem, self.config.form))
    }

    fn repair_prompt(&self, problem: &Problem, failed: &FailedProof) -> Prompt {
        match self.is_compact() {
            true => Prompt::Raw(compact::repair(problem, failed)),
            false => {
                let LeanConfig { templates, form, .. } = &self.config;
                Prompt::Dialogue(prompt::repair(templates, problem, failed, *form))
            }
        }
    }

    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt {
        self.prompt_of(if self.is_compact() {
            compact::conjecturer(condition)
        } else {
            prompt::conjecturer(&self.config.templates, condition)
        })
    }

    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt {
        let is_compact = self.is_compact();
        self.prompt_of(if is_compact {
            compact::guide(target, conjecture)
        } else {
            prompt::guide(&self.config.templates, target, conjecture)
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
    ) -> Result<ParsedConjecture, Malformed> {
        let read = match self.config.reading {
            _ if self.is_compact() => compact::read_signature(completion, &self.config.bounds),
            Reading::Lenient => read::read_conjecture(completion, &self.config.bounds),
            Reading::Strict => read::read_conjecture_strict(completion),
        };
        read.map(ParsedConjecture::plain)
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
        // Early versions do not name the bounds. The defaults are omitted, so that old and new names are equal.
        let bounds = match i.bounds {
            bounds if bounds == Bounds::default() => String::new(),
            Bounds { bytes, depth, numeral, name } => {
                format!("{BOUNDS}{bytes} bytes, depth {depth}, numeral {numeral}, name {name}")
            }
        };
        format!(
            "{}, {}{judge}, {} ms, {} bytes, options: {}{bounds}",
            i.version.text,
            i.checker,
            i.proof_ms,
            i.memory,
            options.join(", ")
        )
    }

    /// Returns how many concurrent calls fill the current files of all slots and the next ones.
    fn parallel_verifications(&self) -> usize {
        let batch = match (&self.config.checker, &self.config.second) {
            (CheckerConfig::Repl(_), None) => 1,
            // Some of the callers wait for a replay.
            (CheckerConfig::Repl(_), Some(_)) => 2,
            (CheckerConfig::File(file), _) => file.batch.max(1),
        };
        (2 * self.config.slots.max(1) * batch).min(MAX_CALLERS)
    }

    fn verify(&self, problem: &Problem, proof: &str) -> Judgement {
        let (outcome, time) = self.timed_outcome(problem, proof);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Judgement { verdict: outcome.verdict, reason: outcome.reason, step: None, micros }
    }
}
