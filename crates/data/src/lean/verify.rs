//! Verification of the proofs of a data set by Lean, in parallel and in order.

use sgs_formal::FormalSystem;
use sgs_lean::Lean;
use sgs_lean::check::CheckOutcome;
use sgs_lean::data::Target;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The result of verifying the proof of one target.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Lean's outcome; `None` if the target has no proof.
    pub outcome: Option<CheckOutcome>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Verifies the proofs of all targets, in as many threads as the checker serves, and calls `each` with the results in the
/// order of the targets.
///
/// # Errors
/// Returns the error of `each`; no further proof is then begun.
pub fn verify_in_order<'t, E>(
    checker: &Lean,
    targets: &'t [Target],
    mut each: impl FnMut(&'t Target, Verified) -> Result<(), E>,
) -> Result<(), E> {
    // Slots that check whole files need full batches, and the next batch ready.
    let callers = checker.parallel_verifications().min(targets.len());
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((i, target)) = take(targets, next) {
                    if send.send((i, verify(checker, target))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut due = targets.iter().enumerate();
        let mut wanted = due.next();
        for (i, verified) in receive {
            waiting.insert(i, verified);
            while let Some((w, target)) = wanted
                && let Some(verified) = waiting.remove(&w)
            {
                if let Err(error) = each(target, verified) {
                    // The caller wants no more results: start no further proofs.
                    next.store(targets.len(), Ordering::Relaxed);
                    return Err(error);
                }
                wanted = due.next();
            }
        }
        Ok(())
    })
}

fn take<'t>(targets: &'t [Target], next: &AtomicUsize) -> Option<(usize, &'t Target)> {
    let i = next
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |i| (i < targets.len()).then_some(i + 1))
        .ok()?;
    targets.get(i).map(|target| (i, target))
}

fn verify(checker: &Lean, target: &Target) -> Verified {
    let started = Instant::now();
    let outcome = target.proof.as_ref().map(|proof| checker.outcome(&target.problem, proof));
    Verified { outcome, elapsed: started.elapsed() }
}
