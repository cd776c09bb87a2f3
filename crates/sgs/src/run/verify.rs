//! The verification worker: leases proofs, checks them, hands verdicts back.

use super::tasks::VerifyTask;
use anyhow::Result;
use sgs_fleet::{Drain, Outcome, Session};
use sgs_formal::FormalSystem;
use sgs_selfplay::{Judgement, Verdict};
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
                Ok(task) => outcome_of(&system.check(&task.problem, &task.proof))?,
                Err(e) => Outcome::Failed(format!("unreadable task: {e}")),
            };
            session.finish(lease.id(), outcome);
        }
    }
    Ok(())
}

/// A checker that broke has judged nothing: the board notes whose it was, and somebody else gets the proof.
fn outcome_of(judgement: &Judgement) -> Result<Outcome> {
    Ok(match judgement.verdict {
        Verdict::Infra => Outcome::Failed(judgement.reason.to_string()),
        _ => Outcome::Done(serde_json::to_vec(judgement)?.into()),
    })
}
