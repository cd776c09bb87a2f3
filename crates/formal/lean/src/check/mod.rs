//! Judges proofs: assembles the text for Lean, runs Lean's processes, and schedules them in a pool.
//!
//! A verdict is `proved` only on positive evidence: Lean answered for this candidate (identified by a nonce), none of
//! the candidate's messages is an error or a `sorry`, the theorem exists under its name with its statement, and it
//! depends on the three standard axioms only. If the checker cannot decide, the verdict is `resource` or `infra`.

mod assemble;
mod backend;
mod evidence;
mod file;
mod pool;
mod question;
mod repl;

pub use crate::limits::{Limits, Recycling};
pub use assemble::{Candidate, Probe, Region, assemble};
pub use backend::Backend;
pub use evidence::{CheckOutcome, LeanMessage, Severity, TrustLayers, judge_messages, reference_rule};
pub use file::{FileChecker, FileWorker, JudgeProgram, NO_REPLAY};
pub use pool::{CheckerConfig, Pool, PoolStatus};
pub use repl::{ReplChecker, ReplWorker};
pub use sgs_formal::process::{Launch, Process, ProcessFault};
