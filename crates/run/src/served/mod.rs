//! Roles that are sampled by external servers: the client of OpenAI-compatible endpoints, and servers whose weights are
//! refreshed during training. Imports `config`, `train` and `workers`.

pub mod ca_certs;
pub mod client;
mod servers;
mod weight_folder;

pub(crate) use servers::{RECORDED, Servers};
