//! The command line: parses, dispatches, and turns results into exit codes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// As `std`'s, but a reader of standard error that has gone away is no panic, and the line stays above what changes in
/// place.
macro_rules! eprintln {
    () => {
        crate::terminal::say(format_args!(""))
    };
    ($($text:tt)*) => {
        crate::terminal::say(format_args!($($text)*))
    };
}

mod args;
mod commands;
mod corpus;
mod curve_file;
mod desk;
mod earlier;
mod evaluated;
mod exit;
mod lean;
mod output;
mod pace;
mod page;
mod players;
mod requirements;
mod shown;
mod signals;
mod summary;
mod terminal;
mod theorems;
mod view;

fn main() -> ExitCode {
    if let Some(code) = sgs_run::lean::become_sandboxed() {
        return code;
    }
    exit::code_of(commands::dispatch(args::parse()))
}
