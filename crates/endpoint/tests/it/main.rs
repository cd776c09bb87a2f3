//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod absent;
mod llama_cpp;
mod server;
