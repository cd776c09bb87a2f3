//! The seam between the loop and a formal system: prompts, readers, features, the checker.
//!
//! Two systems implement it: Metamath (embedded) and Lean 4. The loop knows only this trait.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use sgs_selfplay::{Features, Judgement, Lemma, Problem, ReadConjecture, Review};

/// What a role is asked, before tokenisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompt {
    /// Text that goes to the tokenizer as it stands.
    Raw(String),
    /// One user message, to be rendered with the tokenizer's chat template.
    Chat(String),
}

/// What a conjecture is conditioned on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition<'a> {
    /// An unsolved target (the paper's Conjecturer).
    Target(&'a Problem),
    /// A solved problem and its proof (STP).
    Solved { problem: &'a Problem, proof: &'a str },
    /// Nothing (the ablation without problem conditioning); the target only lends its context.
    Nothing(&'a Problem),
}

impl<'a> Condition<'a> {
    /// The problem whose context the conjecture inherits.
    pub fn problem(&self) -> &'a Problem {
        match *self {
            Condition::Target(problem) | Condition::Solved { problem, .. } | Condition::Nothing(problem) => {
                problem
            }
        }
    }
}

/// Why a completion could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Malformed {
    /// A short stable name of the defect, for counting (`unknown-token`, `no-code-block`, …).
    pub kind: String,
    /// What was found and where.
    pub detail: String,
}

impl Malformed {
    /// A defect with its details.
    pub fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }
}

/// Lines of a proof that are not blank.
pub fn lines_of(proof: &str) -> u32 {
    u32::try_from(proof.lines().filter(|line| !line.trim().is_empty()).count()).unwrap_or(u32::MAX)
}

/// A formal system, whole: everything the loop needs to know of it.
///
/// All methods may be called from many threads at once. `check` blocks until the verdict is known; everything
/// else is pure and fast. Completions are untrusted input: no method panics on them.
pub trait FormalSystem: Send + Sync {
    /// `metamath` or `lean`, as in files and on the command line.
    fn name(&self) -> &'static str;

    /// The Solver's prompt for a problem.
    fn solver_prompt(&self, problem: &Problem) -> Prompt;

    /// The Solver's prompt for a problem whose proof may cite a lemma; the plain one where lemmas are not cited.
    fn solver_prompt_citing(&self, problem: &Problem, _lemma: &Lemma) -> Prompt {
        self.solver_prompt(problem)
    }

    /// The Conjecturer's prompt.
    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt;

    /// The Guide's prompt for a conjecture that was invented for `target`.
    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt;

    /// Reads a proof out of the Solver's completion, in the system's canonical text.
    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed>;

    /// Reads a proof out of the completion to [`FormalSystem::solver_prompt_citing`]. Where it cites the lemma, the
    /// lemma's own proof stands in the text that comes back: a proof of the bare problem, to be judged as any other.
    fn read_proof_citing(
        &self,
        problem: &Problem,
        _lemma: &Lemma,
        completion: &str,
    ) -> Result<String, Malformed> {
        self.read_proof(problem, completion)
    }

    /// Inferences that a proof in canonical text makes: its lines, where a system counts nothing better.
    fn proof_steps(&self, proof: &str) -> u32 {
        lines_of(proof)
    }

    /// Reads a statement out of the Conjecturer's completion, well-formed in the context of what it is conditioned on and normalised so
    /// that equal conjectures are equal strings.
    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ReadConjecture, Malformed>;

    /// Reads the Guide's three sub-scores.
    fn read_review(&self, completion: &str) -> Result<Review, Malformed>;

    /// Features of a statement, for analysis.
    fn features(&self, statement: &str) -> Features;

    /// Whether the proof uses a tactic that the reward forbids (Lean's `try`; paper, Appendix A).
    fn is_penalised(&self, proof: &str) -> bool;

    /// What the verdicts depend on besides problem and proof: checker, version, options. Two checkers with the same
    /// identity give the same verdicts.
    fn identity(&self) -> String {
        self.name().to_owned()
    }

    /// Proofs that are worth verifying at once, each on a thread of its own.
    fn parallel_verifications(&self) -> usize {
        1
    }

    /// Decides whether `proof` proves `problem`. Blocks; the system bounds time and memory itself.
    fn verify(&self, problem: &Problem, proof: &str) -> Judgement;

    /// Decides it of several proofs of one problem, in their order; whoever reads the problem reads it once.
    fn verify_all(&self, problem: &Problem, proofs: &[&str]) -> Vec<Judgement> {
        proofs.iter().map(|proof| self.verify(problem, proof)).collect()
    }

    /// The statement as a person reads it, for terminals and reports (defaults to the canonical text).
    fn display_statement(&self, statement: &str) -> String {
        statement.to_owned()
    }

    /// A proof as a person reads it (defaults to the canonical text).
    fn display_proof(&self, _problem: &Problem, proof: &str) -> String {
        proof.to_owned()
    }
}
