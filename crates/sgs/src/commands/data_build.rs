//! `sgs data build`: the slice, the targets, the corpora and the tokenizer of Metamath.

use crate::args::DataBuildArgs;
use crate::exit::{Code, Outcome};
use crate::output;
use anyhow::Result;
use sgs_data::metamath::{BuildOptions, build};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// Builds everything into a folder.
pub fn run(args: &DataBuildArgs) -> Result<Outcome> {
    exit_on_panic();
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

/// Makes the first panic of any thread end the process with one error. Otherwise, the remaining tasks of a parallel
/// iterator would still run, and each of them could panic too.
fn exit_on_panic() {
    static FIRST: Once = Once::new();
    std::panic::set_hook(Box::new(|panic| {
        // Other threads that panic wait here for the end of the process.
        FIRST.call_once(|| {
            eprintln!("error: this is a defect of sgs: {panic}");
            std::process::exit(Code::Failed.into());
        });
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

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

    /// Runs only in the process that the other test starts.
    #[test]
    #[ignore = "ends the process"]
    fn workers_panic() {
        exit_on_panic();
        (0..10_000).into_par_iter().for_each(|i| panic!("task {i}"));
    }

    #[test]
    fn a_panicking_worker_ends_the_command_with_one_error() {
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "commands::data_build::tests::workers_panic";
        let ended = tests.args(["--exact", name, "--ignored", "--nocapture"]).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), told.matches("task ").count()), (Some(1), 1), "{told}");
    }
}
