//! A formal system that runs as a child process and speaks JSON lines.
//!
//! [`External`] implements `sgs_formal::FormalSystem` over a small pool of processes. `docs/external.md` describes the
//! protocol, and `examples/external` contains a system in Python. The child is not trusted. Each request has limits of
//! time, memory and output, and a process that exceeds one or violates the protocol is killed and replaced. A request
//! without a reply is an infrastructure fault, never a verdict about the model.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod child;
pub mod conformance;
mod description;
mod pool;
mod settings;
mod system;

pub use child::Fault;
pub use settings::ExternalSettings;
pub use system::{External, IDENTITY};
