//! `sgs data build`: the slice, the targets, the corpora and the tokenizer of Metamath.

use crate::args::DataBuildArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use sgs_data::metamath::{BuildOptions, build};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Builds everything into a folder.
pub fn run(args: &DataBuildArgs) -> Result<Outcome> {
    let options = BuildOptions {
        source: args.source.clone(),
        out: args.out.clone(),
        seed: args.seed,
        composed: args.composed,
        reviews: args.reviews,
        max_steps: args.max_steps,
    };
    let built = report_every(INTERVAL, |line| eprintln!("{line}"), |begin| build(&options, begin))?;
    if let Some(warning) = &built.warning {
        eprintln!("warning: {warning}");
    }
    output::line(built.card)?;
    Ok(Outcome::Done)
}

/// Interval between the lines about the progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// Does some work in steps. While it lasts, prints the current step and the time since the start, once per interval. `work`
/// calls its argument when a step begins.
fn report_every<T>(
    interval: Duration,
    print: impl Fn(&str) + Sync,
    work: impl FnOnce(&(dyn Fn(String) + Sync)) -> T,
) -> T {
    let step = Mutex::new(String::new());
    let current = || step.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let (begun, (working, ended)) = (Instant::now(), mpsc::channel::<()>());
        let (current, print) = (&current, &print);
        scope.spawn(move || {
            // The end of the work drops the sender.
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                print(&format!("{} ({} s)", current(), begun.elapsed().as_secs()));
            }
        });
        let done = work(&|step| *current() = step);
        drop(working);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_step_is_printed_once_per_interval() {
        let (print, printed) = mpsc::channel();
        let done = report_every(
            Duration::from_millis(20),
            |line| print.send(line.to_owned()).unwrap(),
            |begin| {
                begin("first".to_owned());
                let first = printed.recv_timeout(Duration::from_secs(60)).unwrap();
                begin("second".to_owned());
                let mut later = std::iter::from_fn(|| printed.recv_timeout(Duration::from_secs(60)).ok());
                (first.starts_with("first ("), later.any(|line| line.starts_with("second (")))
            },
        );
        assert_eq!(done, (true, true));
    }
}
