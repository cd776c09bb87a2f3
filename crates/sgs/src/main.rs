//! The program `sgs`; see the library of the same name.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = sgs::become_sandboxed() {
        return code;
    }
    sgs::run(std::env::args_os())
}
