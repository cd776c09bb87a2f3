//! The verification worker: leases proofs, checks them, hands verdicts back.

use super::tasks::VerifyTask;
use anyhow::Result;
use sgs_fleet::{Drain, Lease, Outcome, Payload, Session};
use sgs_formal::FormalSystem;
use sgs_selfplay::Verdict;
use std::time::Duration;

/// Proofs leased at once: a Metamath proof takes microseconds, so one call fetches many.
const LEASES: usize = 256;

/// Checks until the drain begins.
///
/// # Errors
/// The coordinator fails.
pub fn work(session: &Session, system: &dyn FormalSystem, drain: &Drain) -> Result<()> {
    while !drain.has_begun() {
        for (lease, cancel) in session.lease(LEASES, Duration::from_millis(200))? {
            if cancel.is_cancelled() {
                continue;
            }
            let outcome = match check(system, &lease) {
                Ok(judgement) => Outcome::Done(judgement),
                Err(reason) => Outcome::Failed(reason),
            };
            session.finish(lease.id(), outcome);
        }
    }
    Ok(())
}

/// Checks one proof; gives the judgement as it travels.
///
/// # Errors
/// In words, if the task cannot be read, or the checker broke and has judged nothing: a fault of this worker, not of the
/// proof. The board notes whose it was, and somebody else gets the proof.
pub fn check(system: &dyn FormalSystem, lease: &Lease) -> Result<Payload, String> {
    let task: VerifyTask =
        serde_json::from_slice(lease.payload.as_bytes()).map_err(|e| format!("unreadable task: {e}"))?;
    let judgement = system.check(&task.problem, &task.proof);
    if judgement.verdict == Verdict::Infra {
        return Err(judgement.reason);
    }
    Ok(serde_json::to_vec(&judgement).map_err(|e| format!("a judgement as JSON: {e}"))?.into())
}
