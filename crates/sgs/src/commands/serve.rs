//! `sgs serve`: a run whose work is done by those that connect.

use crate::args::ServeArgs;
use crate::exit::Outcome;
use anyhow::Result;
use sgs_run::workers::config::FleetConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the coordinator listens unless it is told otherwise.
const PORT: u16 = 7717;

/// Begins a run that waits for workers.
pub fn run(args: &ServeArgs) -> Result<Outcome> {
    let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    super::run::begin(&args.run, FleetConfig { listen: Some(listen), ..FleetConfig::by_hand() })
}
