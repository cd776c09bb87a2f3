//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod batch;
mod beyond;
mod config;
mod entropy;
mod fidelity;
mod method;
mod objective;
mod penalty;
mod rate;
mod reference;
mod repair;
mod reward;
mod round;
mod seed;
mod simulation;
mod store;
mod stp;
mod task;
mod training;
mod weights;
