//! Verifies the proofs of a data set with Lean, in parallel.

use sgs_base::parallel;
use sgs_formal::FormalSystem;
use sgs_lean::Lean;
use sgs_lean::check::CheckOutcome;
use sgs_lean::data::Target;
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of verifying the proof of one target.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Lean's outcome; `None` if the target has no proof.
    pub outcome: Option<CheckOutcome>,
    /// Time in the checker.
    pub time: Duration,
}

/// Verifies the proofs of all targets, in as many threads as the checker serves, and calls `each` with each result as soon
/// as it is known.
///
/// # Errors
/// Returns the error of `each`; no further proof is then begun.
pub fn verify_all<'t, E>(
    checker: &Lean,
    targets: &'t [Target],
    mut each: impl FnMut(&'t Target, Verified) -> Result<(), E>,
) -> Result<(), E> {
    // Slots that check whole files need full batches, and the next batch must be ready.
    let threads = checker.parallel_verifications();
    let verify = |target| verify(checker, target);
    parallel::each(threads, targets, verify, |i, result| each(&targets[i], result))
}

/// Does the same as [`verify_all`], but calls `each` in the order of the targets, so that a result waits for those of
/// earlier targets.
///
/// # Errors
/// Returns the error of `each`; no further proof is then begun.
pub fn verify_in_order<'t, E>(
    checker: &Lean,
    targets: &'t [Target],
    each: impl FnMut(&'t Target, Verified) -> Result<(), E>,
) -> Result<(), E> {
    in_order(checker.parallel_verifications(), targets, |target| verify(checker, target), each)
}

/// Does the same as [`parallel::each`], but in the order of the items.
fn in_order<'t, T: Sync, R: Send, E>(
    threads: usize,
    items: &'t [T],
    work: impl Fn(&'t T) -> R + Sync,
    mut each: impl FnMut(&'t T, R) -> Result<(), E>,
) -> Result<(), E> {
    let (mut waiting, mut due) = (BTreeMap::new(), 0);
    parallel::each(threads, items, work, |i, result| {
        waiting.insert(i, result);
        while let Some(result) = waiting.remove(&due) {
            each(&items[due], result)?;
            due += 1;
        }
        Ok(())
    })
}

fn verify(checker: &Lean, target: &Target) -> Verified {
    match &target.proof {
        Some(proof) => {
            let (outcome, time) = checker.timed_outcome(&target.problem, proof);
            Verified { outcome: Some(outcome), time }
        }
        None => Verified { outcome: None, time: Duration::ZERO },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    /// Work on an item ends only after the result of the item two places before has been passed on.
    #[test]
    fn results_are_passed_on_before_later_ones_are_known() {
        let (passed_on, changed) = (Mutex::new(0), Condvar::new());
        let items: Vec<usize> = (0..20).collect();
        // Do not use one token per item, because a fast thread would take the token of the item that all others wait
        // for.
        let work = |item: &usize| {
            let (_passed_on, wait) = changed
                .wait_timeout_while(passed_on.lock().unwrap(), Duration::from_secs(60), |n| *n + 1 < *item)
                .unwrap();
            (!wait.timed_out()).then_some(*item)
        };
        let mut results = Vec::new();
        let done = in_order(2, &items, work, |item, result| {
            assert_eq!(result, Some(*item), "the results of earlier items were kept back");
            results.push(*item);
            *passed_on.lock().unwrap() += 1;
            changed.notify_all();
            Ok::<(), &str>(())
        });
        assert_eq!((done, results), (Ok(()), items.clone()));
        let ended = in_order(1, &items, |_: &usize| (), |_, ()| Err("enough"));
        assert_eq!(ended, Err("enough"));
    }
}
