//! The interface between the training loop and a formal system: prompts, parsers, features and the checker.
//!
//! [`FormalSystem`] is implemented by Metamath (embedded), by Lean 4, and by any process that speaks JSON lines. The
//! training loop uses a formal system only through this trait.
//!
//! A formal system in which the only statement is `true` and the only proof is `trivial`:
//!
//! ```
//! use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
//! use sgs_selfplay::{Features, Judgement, ParsedConjecture, Problem, ProblemId, Review, Verdict};
//!
//! struct Trivial;
//!
//! impl FormalSystem for Trivial {
//!     fn name(&self) -> &'static str { "trivial" }
//!     fn solver_prompt(&self, problem: &Problem) -> Prompt { Prompt::Raw(format!("prove {}", problem.statement)) }
//!     fn conjecturer_prompt(&self, _: Condition<'_>) -> Prompt { Prompt::Raw("state".to_owned()) }
//!     fn guide_prompt(&self, _: &Problem, _: &Problem) -> Prompt { Prompt::Raw("review".to_owned()) }
//!     fn read_proof(&self, _: &Problem, completion: &str) -> Result<String, Malformed> {
//!         Ok(completion.trim().to_owned())
//!     }
//!     fn read_conjecture(&self, _: Condition<'_>, _: &str) -> Result<ParsedConjecture, Malformed> {
//!         Ok(ParsedConjecture::plain("true"))
//!     }
//!     fn read_review(&self, _: &str) -> Result<Review, Malformed> {
//!         Err(Malformed::new("no-score", "this system has no reviews"))
//!     }
//!     fn features(&self, _: &str) -> Features { Features::default() }
//!     fn is_penalised(&self, _: &str) -> bool { false }
//!     fn verify(&self, _: &Problem, proof: &str) -> Judgement {
//!         let verdict = if proof == "trivial" { Verdict::Proved } else { Verdict::Refused };
//!         Judgement { verdict, reason: String::new(), step: None, micros: 0 }
//!     }
//! }
//!
//! let problem = Problem { id: ProblemId::new("id"), statement: "true".into(), context: "".into() };
//! let proof = Trivial.read_proof(&problem, " trivial\n").unwrap();
//! assert_eq!(Trivial.verify(&problem, &proof).verdict, Verdict::Proved);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod process;
pub mod scratch;

use serde::{Deserialize, Serialize};
use sgs_selfplay::config::{ComposedKind, ConjectureForm, ConjecturerConfig};
use sgs_selfplay::{FailedProof, Features, Judgement, ParsedConjecture, Problem, Review};
use std::ops::RangeInclusive;

/// A prompt before tokenisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompt {
    /// Text that is tokenised as is.
    Raw(String),
    /// One user message, to be rendered with the tokenizer's chat template.
    Chat(String),
    /// Messages of user and assistant in turn, the user's first and last, for the chat template.
    Dialogue(Vec<String>),
}

/// The condition of a conjecture: the content of the Conjecturer's prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition<'a> {
    /// An unsolved target (the paper's Conjecturer).
    Target(&'a Problem),
    /// A solved problem with its proof (STP).
    Solved {
        /// The solved problem.
        problem: &'a Problem,
        /// The proof in canonical text.
        proof: &'a str,
    },
    /// No condition (the ablation without problem conditioning); the target only determines the context.
    Nothing(&'a Problem),
}

impl<'a> Condition<'a> {
    /// Returns the problem whose context the conjecture inherits.
    pub fn problem(&self) -> &'a Problem {
        match *self {
            Condition::Target(problem) | Condition::Solved { problem, .. } | Condition::Nothing(problem) => {
                problem
            }
        }
    }
}

/// Why a completion could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Malformed {
    /// Short, stable name of the defect, for statistics (`unknown-token`, `no-code-block`, …).
    pub kind: String,
    /// Description of the defect and its position.
    pub detail: String,
}

impl Malformed {
    /// Kind of the defect of a completion that the formal system failed to read. It may be well-formed, so it is never
    /// judged.
    pub const INFRA: &str = "infra";

    /// Reports that the formal system failed to read a completion.
    pub fn infra(detail: impl Into<String>) -> Self {
        Self::new(Self::INFRA, detail)
    }

    /// Returns whether the fault is the formal system's, not the completion's.
    pub fn is_infra(&self) -> bool {
        self.kind == Self::INFRA
    }

    /// Creates a defect from its name and description.
    pub fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }
}

/// Returns the number of non-blank lines of a proof.
pub fn lines_of(proof: &str) -> u32 {
    u32::try_from(proof.lines().filter(|line| !line.trim().is_empty()).count()).unwrap_or(u32::MAX)
}

/// The error of a formal system that has no problems of the requested form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} derives no statements from proofs: set algorithm.conjecturer.form=statement")]
pub struct NoDerivations(String);

/// Returns the Conjecturer's prompt for a conjecture of a form. Composed conjectures have none, so the prompt is that
/// for a statement.
///
/// # Errors
/// Returns an error if the system does not support the form.
pub fn conjecture_prompt(
    system: &dyn FormalSystem,
    form: ConjectureForm,
    condition: Condition<'_>,
) -> Result<Prompt, NoDerivations> {
    match form {
        ConjectureForm::Statement | ConjectureForm::Composed => Ok(system.conjecturer_prompt(condition)),
        ConjectureForm::Proof => {
            system.derivation_prompt(condition).ok_or_else(|| NoDerivations(system.name().to_owned()))
        }
        ConjectureForm::Attempt => Ok(system.solver_prompt(condition.problem())),
    }
}

/// Extracts a conjecture of the configured form from a completion of its [`conjecture_prompt`].
///
/// # Errors
/// Returns an error if the completion contains no conjecture.
pub fn read_conjecture(
    system: &dyn FormalSystem,
    config: &ConjecturerConfig,
    condition: Condition<'_>,
    completion: &str,
) -> Result<ParsedConjecture, Malformed> {
    match config.form {
        ConjectureForm::Statement | ConjectureForm::Composed => system.read_conjecture(condition, completion),
        ConjectureForm::Proof => system.read_derivation(condition, completion),
        ConjectureForm::Attempt => {
            let proof = system.read_proof(condition.problem(), completion)?;
            system.derive_from_part(condition.problem(), config.attempt_min_steps, &proof)
        }
    }
}

/// A formal system.
///
/// All methods may be called from several threads at once. [`FormalSystem::verify`] blocks until the verdict is known; all
/// other methods are pure and fast. Completions are untrusted input, so no method may panic on them. A `read_` method that
/// fails for a reason other than the completion returns [`Malformed::infra`].
pub trait FormalSystem: Send + Sync {
    /// Returns the system's name in files and on the command line: `metamath`, `lean` or `external`.
    fn name(&self) -> &'static str;

    /// Returns the Solver's prompt for a problem.
    fn solver_prompt(&self, problem: &Problem) -> Prompt;

    /// Returns the Solver's prompt for a further turn of an attempt: it shows a refused proof and the checker's error. The
    /// completion is a proof of the problem, as for [`FormalSystem::solver_prompt`], which is the default.
    fn repair_prompt(&self, problem: &Problem, _failed: &FailedProof) -> Prompt {
        self.solver_prompt(problem)
    }

    /// Returns the Conjecturer's prompt.
    fn conjecturer_prompt(&self, condition: Condition<'_>) -> Prompt;

    /// Returns the Guide's prompt for a conjecture that was invented for `target`.
    fn guide_prompt(&self, target: &Problem, conjecture: &Problem) -> Prompt;

    /// Extracts the proof from a Solver completion and returns it in canonical form.
    fn read_proof(&self, problem: &Problem, completion: &str) -> Result<String, Malformed>;

    /// Returns the number of inferences of a proof in canonical form. The default counts non-blank lines.
    fn proof_steps(&self, proof: &str) -> u32 {
        lines_of(proof)
    }

    /// Extracts the statement from a Conjecturer completion. The statement is well-formed in the context of the condition,
    /// and is normalised so that equal conjectures are equal strings.
    fn read_conjecture(
        &self,
        condition: Condition<'_>,
        completion: &str,
    ) -> Result<ParsedConjecture, Malformed>;

    /// Returns the Conjecturer's prompt for the proof of a conjecture; `None` if the system cannot derive statements from
    /// proofs (the default).
    fn derivation_prompt(&self, _condition: Condition<'_>) -> Option<Prompt> {
        None
    }

    /// Extracts a proof from a completion of [`FormalSystem::derivation_prompt`], and returns the most general statement
    /// that it proves. Such a conjecture is true by construction.
    ///
    /// # Errors
    /// Returns an error if the completion contains no proof of a statement that is worth solving.
    fn read_derivation(
        &self,
        _condition: Condition<'_>,
        _completion: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        Err(Malformed::new("no-derivations", format!("{} derives no statements from proofs", self.name())))
    }

    /// Returns the most general statement that the largest valid part of a failed proof of `problem` proves. The part has
    /// at least `min_steps` inferences.
    ///
    /// # Errors
    /// Returns an error if no such part proves a statement that is worth solving.
    fn derive_from_part(
        &self,
        _problem: &Problem,
        _min_steps: u32,
        _proof: &str,
    ) -> Result<ParsedConjecture, Malformed> {
        Err(Malformed::new("no-derivations", format!("{} derives no statements from proofs", self.name())))
    }

    /// Composes a true conjecture of a kind for `problem`, with a proof whose number of inferences is in `steps`. The result
    /// depends only on the arguments. Returns `None` if the system cannot compose such problems (the default) or finds none.
    fn compose(
        &self,
        _problem: &Problem,
        _composed_kind: ComposedKind,
        _steps: RangeInclusive<u32>,
        _seed: u64,
    ) -> Option<ParsedConjecture> {
        None
    }

    /// Extracts the three sub-scores from a Guide completion.
    fn read_review(&self, completion: &str) -> Result<Review, Malformed>;

    /// Returns the features of a statement, for analysis.
    fn features(&self, statement: &str) -> Features;

    /// Returns whether a proof uses a forbidden tactic (Lean's `try`; paper, Appendix A).
    fn is_penalised(&self, proof: &str) -> bool;

    /// Identifies the checker: its name, version and options. Two checkers with the same identity must give the same
    /// verdicts.
    fn identity(&self) -> String {
        self.name().to_owned()
    }

    /// Returns why the system cannot verify any more proofs, if it has failed for good.
    fn broken(&self) -> Option<String> {
        None
    }

    /// Returns the number of proofs that can usefully be verified at the same time, each on its own thread.
    fn parallel_verifications(&self) -> usize {
        1
    }

    /// Returns true if a verification takes microseconds: less than handing the proof to another thread or process. The
    /// threads that verify then have stacks of the default size.
    fn is_quick(&self) -> bool {
        false
    }

    /// Returns the maximum number of proofs to verify in one call of [`FormalSystem::verify_all`].
    fn proofs_per_call(&self) -> usize {
        // A checker that is faster than a round trip gets many proofs, others get one for each thread.
        if self.parallel_verifications() <= 1 { 32 } else { 1 }
    }

    /// Verifies that `proof` proves `problem`. Blocks; the system limits time and memory itself.
    fn verify(&self, problem: &Problem, proof: &str) -> Judgement;

    /// Verifies several proofs of one problem and returns their judgements in the same order. Implementations may parse
    /// the problem once.
    fn verify_all(&self, problem: &Problem, proofs: &[&str]) -> Vec<Judgement> {
        proofs.iter().map(|proof| self.verify(problem, proof)).collect()
    }

    /// Returns a statement in human-readable form, for terminals and reports. The default is the canonical text.
    fn display_statement(&self, statement: &str) -> String {
        statement.to_owned()
    }

    /// Returns a proof in human-readable form. The default is the canonical text.
    fn display_proof(&self, _problem: &Problem, proof: &str) -> String {
        proof.to_owned()
    }
}
