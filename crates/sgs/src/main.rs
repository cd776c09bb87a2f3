//! The command line: parses, dispatches, and turns results into exit codes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// As `std`'s, but a reader of standard error that has gone away is no panic: a run goes on without it.
macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod args;
mod commands;
mod corpus;
mod exit;
mod lean;
mod output;
mod page;
mod requirements;
mod shown;
mod view;

fn main() -> ExitCode {
    if let Some(code) = sgs_run::lean::become_sandboxed() {
        return code;
    }
    exit::code_of(commands::dispatch(args::parse()))
}
