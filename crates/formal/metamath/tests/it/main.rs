//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod broken_databases;
mod compressed;
mod debian;
mod derivations;
mod export;
mod fuzz;
#[path = "../../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;
mod grammar;
mod mutants;
mod mutations;
mod proof_text;
mod repair;
mod slice;
mod statements;
mod unifier;
mod verifiers;
mod verify;
