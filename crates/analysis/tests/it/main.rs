//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod browser;
mod chromium;
mod coverage;
#[path = "synthetic/disk.rs"]
mod disk;
mod live;
mod read_run;
mod report;
mod scipy;
mod synthetic;
mod verdict;
