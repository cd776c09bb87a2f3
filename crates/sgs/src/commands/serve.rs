//! `sgs serve`: a run whose workers connect from elsewhere.

use crate::args::ServeArgs;
use crate::exit::Outcome;
use anyhow::Result;
use sgs_run::workers::config::FleetConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Default address of the coordinator.
const DEFAULT_PORT: u16 = 7717;

/// Starts a run that waits for workers.
pub fn run(args: &ServeArgs) -> Result<Outcome> {
    let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT);
    super::run::begin(&args.run, FleetConfig { listen: Some(listen), ..FleetConfig::by_hand() })
}
