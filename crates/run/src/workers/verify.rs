//! The verification worker: leases proofs, verifies them, and reports judgements.

use crate::error::{Result, bail};
use crate::workers::tasks::{self, VerifyResult, VerifyTask};
use sgs_fleet::{Lease, LeaseOutcome, Payload, StopFlag, WorkerSession};
use sgs_formal::FormalSystem;
use sgs_selfplay::{Problem, Verdict};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Number of tasks leased per call if the system verifies one proof at a time, which takes microseconds.
const LEASES: usize = 16;

/// Failed verifications of this process.
static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// Verifies until the drain begins.
///
/// # Errors
/// Returns an error if the coordinator fails, or the formal system has failed for good.
pub fn work(session: &WorkerSession, system: &dyn FormalSystem, drain: &StopFlag) -> Result<()> {
    match system.parallel_verifications() {
        0 | 1 => one_by_one(session, system, drain),
        threads => side_by_side(session, system, drain, threads),
    }
}

/// Returns whether to lease more tasks.
fn is_ready(system: &dyn FormalSystem, drain: &StopFlag) -> Result<bool> {
    match system.broken() {
        Some(reason) => bail!("{reason}"),
        None => Ok(!drain.is_set()),
    }
}

fn one_by_one(session: &WorkerSession, system: &dyn FormalSystem, drain: &StopFlag) -> Result<()> {
    while is_ready(system, drain)? {
        for (lease, cancel) in session.lease(LEASES, Duration::from_millis(200))? {
            answer(session, system, &lease, &cancel);
        }
    }
    Ok(())
}

/// Runs as many verifications at once as the system supports. Leases twice as many tasks, so that no slot waits for
/// the coordinator.
fn side_by_side(
    session: &WorkerSession,
    system: &dyn FormalSystem,
    drain: &StopFlag,
    threads: usize,
) -> Result<()> {
    let (send, receive) = channel::<(Lease, StopFlag)>();
    let receive = Mutex::new(receive);
    let in_flight = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((lease, cancel)) = take(&receive) {
                    // Tasks not started when the drain begins are left to other workers.
                    if !drain.is_set() {
                        answer(session, system, &lease, &cancel);
                    }
                    in_flight.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        // `send` is dropped at the end of this block, even after an error. This ends the threads.
        let send = send;
        while is_ready(system, drain)? {
            let room = (2 * threads).saturating_sub(in_flight.load(Ordering::Relaxed));
            if room == 0 {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            for leased in session.lease(room, Duration::from_millis(200))? {
                in_flight.fetch_add(1, Ordering::Relaxed);
                if send.send(leased).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn take<T>(receive: &Mutex<Receiver<T>>) -> Option<T> {
    // A poisoned lock is safe to use, because the channel has no state that a panic could leave half changed.
    receive.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn answer(session: &WorkerSession, system: &dyn FormalSystem, lease: &Lease, cancel: &StopFlag) {
    if cancel.is_set() {
        return;
    }
    let outcome = match verify(system, lease) {
        Ok(judgements) => LeaseOutcome::Done(judgements),
        Err(reason) => {
            note_failure(&reason);
            LeaseOutcome::Failed(reason)
        }
    };
    session.finish(lease.id(), outcome);
}

/// Counts a failed verification, and logs it. One faulty checker can fail every task, so ever fewer failures are logged.
pub(crate) fn note_failure(reason: &str) {
    let failures = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    if failures.is_power_of_two() {
        tracing::warn!("the checker failed (failure {failures} of this process): {reason}");
    }
}

/// Verifies the proofs of a task.
pub(crate) fn judgements(system: &dyn FormalSystem, task: &VerifyTask) -> VerifyResult {
    let of_problem = |(problem, proofs): &(Arc<Problem>, Vec<Arc<str>>)| {
        let proofs: Vec<&str> = proofs.iter().map(|proof| &**proof).collect();
        system.verify_all(problem, &proofs)
    };
    task.proofs.iter().flat_map(of_problem).collect()
}

/// Verifies the proofs of a task and returns the encoded judgements.
///
/// # Errors
/// Returns a message if the task cannot be decoded or the checker breaks. That is a fault of this worker, not of the
/// proofs: the board leases the task to another one.
pub fn verify(system: &dyn FormalSystem, lease: &Lease) -> Result<Payload, String> {
    let task: VerifyTask = tasks::unpack(lease.payload.as_bytes()).map_err(|e| format!("{e:#}"))?;
    let own = system.identity();
    if task.checker != own {
        return Err(format!("the run requires the checker `{}`, this worker has `{own}`", task.checker));
    }
    let mut judgements = judgements(system, &task);
    if let Some(broken) = judgements.iter().position(|judgement| judgement.verdict == Verdict::Infra) {
        return Err(judgements.swap_remove(broken).reason);
    }
    tasks::pack(&judgements).map_err(|e| format!("{e:#}"))
}
