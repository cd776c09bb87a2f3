//! The verification worker: leases proofs, checks them, hands verdicts back.

use super::tasks::VerifyTask;
use anyhow::Result;
use sgs_fleet::{Drain, Outcome, Session};
use sgs_formal::FormalSystem;
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
            let outcome = match serde_json::from_slice::<VerifyTask>(lease.payload.as_bytes()) {
                Ok(task) => {
                    let judgement = system.check(&task.problem, &task.proof);
                    Outcome::Done(serde_json::to_vec(&judgement)?.into())
                }
                Err(e) => Outcome::Failed(format!("unreadable task: {e}")),
            };
            session.finish(lease.id(), outcome);
        }
    }
    Ok(())
}
