//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod allocations;
#[allow(dead_code, reason = "the example gpu_check uses all of it")]
mod check;
mod vectors;
