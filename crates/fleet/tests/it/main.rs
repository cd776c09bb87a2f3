//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print what they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod board_model;
mod chaos;
mod descriptors;
mod faulty_workers;
mod fuzz;
mod fuzzing;
mod in_process;
mod launchers;
mod reference_faults;
mod service;
mod slurm;
mod slurm_cluster;
mod tls;
mod token;
mod worker_process;
