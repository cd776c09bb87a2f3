//! Checking: the file that we own, the processes that judge it, the pool that runs them.
//!
//! A verdict is `proved` only on positive evidence: Lean answered for this very candidate (a nonce says so), no
//! message of the candidate is an error or a `sorry`, the theorem exists under its name with its statement, and its
//! axioms are the three standard ones. Whatever the checker could not decide is `resource` or `infra`.

mod assemble;
mod evidence;
mod file;
mod limits;
mod pool;
mod process;
mod question;
mod repl;

pub use assemble::{Assembled, Candidate, Probe, Region, assemble};
pub use evidence::{Layers, Message, Outcome, Severity, judge_messages, parse_axioms, reference_rule};
pub use file::{FileChecker, FileWorker, JudgeProgram, NO_REPLAY};
pub use limits::{Limits, Recycling};
pub use pool::{Backend, Checker, Pool, PoolStatus};
pub use process::{Fault, Launch, Process};
pub use repl::{ReplChecker, ReplWorker};
