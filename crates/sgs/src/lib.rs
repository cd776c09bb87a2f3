//! The program `sgs` as a library: parses a command line, runs the command and returns its exit code.
//!
//! [`run`] executes a command in this process; `main` only calls it. [`command`] is the definition of the command line,
//! for tools that read it (help, completions, manual pages):
//!
//! ```
//! let names: Vec<String> = sgs::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
//! assert!(names.contains(&"run".to_owned()) && names.contains(&"prove".to_owned()));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;

/// Replaces `std`'s `eprintln!`: does not panic if standard error is closed, and prints above the progress display.
macro_rules! eprintln {
    () => {
        crate::terminal::print_line(format_args!(""))
    };
    ($($text:tt)*) => {
        crate::terminal::print_line(format_args!($($text)*))
    };
}

mod activity;
mod arg_values;
mod args;
mod commands;
mod curve_file;
mod display;
mod evaluation_line;
mod exit;
mod help;
mod hints;
mod lean;
mod model_source;
mod output;
mod output_file;
mod pace;
mod page;
mod run_folder;
mod signals;
mod statement_input;
mod summary;
mod terminal;
mod theorems;
mod view;
mod wrap;
mod yardstick;

/// Runs the command line `args`, whose first entry is the name of the program.
///
/// Reads standard input and writes standard output and standard error like the program. The first call of a process sets
/// the process-wide log subscriber.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let definition = command();
    let args: Vec<OsString> = args.into_iter().map(statement_or_option).collect();
    let matches = definition.clone().try_get_matches_from(&args);
    match matches.and_then(|matches| Ok((args::Cli::from_arg_matches(&matches)?, matches))) {
        Ok((cli, matches)) => exit::code_of(
            arg_values::check_inputs(&definition, &matches).and_then(|()| commands::dispatch(cli)),
        ),
        Err(error) => exit::code_of_parse_error(&hints::hinted(error, &definition, &args)),
    }
}

/// Marks a statement that begins with set.mm's negation by a blank, because clap would read it as an option.
fn statement_or_option(arg: OsString) -> OsString {
    match arg.to_str() {
        Some(text) if text.starts_with("-. ") => format!(" {text}").into(),
        _ => arg,
    }
}

/// Returns the definition of the command line.
pub fn command() -> clap::Command {
    help::command()
}

/// Enters the sandbox of a Lean process if this process was started for that, and does not return in that case.
///
/// Call it first in `main` of a program that runs Lean: the program starts itself again to apply the sandbox.
pub fn become_sandboxed() -> Option<ExitCode> {
    sgs_run::config::lean::become_sandboxed()
}
