//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod corpus;
mod d3k;
mod fuzz;
#[path = "../../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;
mod protocol;
mod real_lean;
mod sandbox;
mod scripted;
mod system;
mod vectors;
