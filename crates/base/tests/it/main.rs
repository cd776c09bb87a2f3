//! The integration tests of this crate, in one binary.
#![allow(clippy::unwrap_used)] // A failing test panics.

mod digest;
mod host;
mod mersenne;
mod philox;
mod random;
