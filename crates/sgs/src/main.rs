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
mod base_model;
mod commands;
mod corpus;
mod device;
mod evaluate;
mod exit;
mod lean;
mod lean_set;
mod machine;
mod output;
mod page;
mod ranks;
mod run;
mod shown;

fn main() -> ExitCode {
    if let Some(code) = lean::become_sandboxed() {
        return code;
    }
    exit::code_of(commands::dispatch(args::parse()))
}
