//! The integration tests of this crate, in one binary.
// Tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bounds;
mod fuzz;
#[path = "../../../fleet/tests/it/fuzzing/mod.rs"]
mod fuzzing;
mod sharing;
mod small_server;
mod web_pages;
