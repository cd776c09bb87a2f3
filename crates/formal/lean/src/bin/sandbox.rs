//! Enters the sandbox and executes the given program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(sgs_lean::sandbox::run_launcher(std::env::args_os().skip(1)))
}
