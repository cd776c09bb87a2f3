//! Applies a function to many items on several threads.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Applies `work` to all items on up to `threads` threads. Results have the order of the items.
pub fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Ok(results) = try_map(threads, items, |item| Ok::<_, Infallible>(work(item)));
    results
}

/// Does the same as [`map`] with work that can fail.
///
/// # Errors
/// Returns the first error that arrives. No further work is then begun.
#[allow(clippy::expect_used, reason = "without an error, each item has a result")]
pub fn try_map<T: Sync, R: Send, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    each(threads, items, work, |i, result| {
        results[i] = Some(result?);
        Ok(())
    })?;
    let arrived = |result: Option<R>| result.expect("invariant: each item has a result");
    Ok(results.into_iter().map(arrived).collect())
}

/// Applies `work` to all items on up to `threads` threads, and calls `take` in this thread with the index and the result
/// of each item as it arrives.
///
/// # Errors
/// Returns the error of `take`. No further work is then begun.
pub fn each<'t, T: Sync, R: Send, E>(
    threads: usize,
    items: &'t [T],
    work: impl Fn(&'t T) -> R + Sync,
    mut take: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let next_item = || {
        let i = next.fetch_add(1, Ordering::Relaxed);
        items.get(i).map(|item| (i, item))
    };
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        if threads > 1 && items.len() > 1 {
            for _ in 0..threads.min(items.len()) {
                let (send, next_item, work) = (send.clone(), &next_item, &work);
                let run = move || {
                    while let Some((i, item)) = next_item() {
                        if send.send((i, work(item))).is_err() {
                            return;
                        }
                    }
                };
                // If the system has no more threads, those that run do all the work.
                if thread::Builder::new().name("parallel".into()).spawn_scoped(scope, run).is_err() {
                    break;
                }
            }
        }
        drop(send);
        let arrive = |(i, result)| {
            // Without a caller for more results, start no further work.
            take(i, result).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))
        };
        receive.into_iter().try_for_each(arrive)?;
        Ok(())
    })?;
    // What no thread has done.
    std::iter::from_fn(next_item).try_for_each(|(i, item)| take(i, work(item)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            assert_eq!(map(threads, &items, |i| 2 * i), items.iter().map(|i| 2 * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_work_is_begun_after_an_error() {
        for threads in [1, 4] {
            let begun = AtomicUsize::new(0);
            let work = |i: &usize| {
                begun.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(100));
                if *i == 2 { Err(*i) } else { Ok(()) }
            };
            assert_eq!(try_map(threads, &(0..10_000).collect::<Vec<_>>(), work), Err(2));
            assert!(begun.into_inner() < 9_000);
        }
    }
}
