//! The integration tests of this crate, in one binary.
// Tests fail by panicking, and print the reason when they skip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod browser;
#[path = "../../../analysis/tests/it/chromium/mod.rs"]
mod chromium;
mod cli_after_run;
mod cli_data;
mod cli_device;
mod cli_doctor;
mod cli_endpoint;
mod cli_filter;
mod cli_fit;
mod cli_guide;
mod cli_help;
mod cli_lean;
mod cli_lean_run;
mod cli_lifecycle;
mod cli_lm;
mod cli_paths;
mod cli_pretrain;
mod cli_prove;
mod cli_ranks;
mod cli_report;
mod cli_run;
mod cli_run_ranks;
mod cli_serve;
mod cli_serve_model;
mod cli_served;
mod cli_status;
mod cli_verify;
mod crash;
mod examples;
mod lean_fixtures;
mod libraries;
mod model_server;
mod program;
mod readme;
mod rehearsal;
#[path = "../../../endpoint/tests/it/server/mod.rs"]
mod server;
mod shared_run;
mod signals;
mod slurm;
#[path = "../../../fleet/tests/it/slurm_cluster/mod.rs"]
mod slurm_cluster;
mod small_run;
mod snapshot;
mod terminal;
mod workers;
