//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod external;
mod forms;
mod fuzz;
#[path = "../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;
mod library;
mod second;
#[path = "../../examples/echo/system.rs"]
mod system;
