//! `sgs data build`: the slice, the targets, the corpora and the tokenizer of Metamath.

use crate::args::DataBuildArgs;
use crate::exit::{Code, Outcome};
use crate::output;
use anyhow::Result;
use sgs_data::metamath::{BuildOptions, build};
use std::sync::Once;

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
    output::line(build(&options)?)?;
    Ok(Outcome::Done)
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
