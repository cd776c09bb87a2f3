//! Gives the other ranks access to rank 0's board.

use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use sgs_fleet::token::fresh_secret;
use sgs_fleet::{AuthToken, Client, Fleet, Service, ServiceConfig, WorkKind};
use sgs_tls::Identity;
use std::net::{IpAddr, SocketAddr};

/// The data with which the other ranks access rank 0's board. Rank 0 sends it over the encrypted connections of the
/// process group. It is valid only as long as this rank 0 runs.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct BoardAccess {
    /// Port of the board's service on rank 0's machine.
    port: u16,
    /// Secret of this service: the token of its callers, from which its key is derived.
    secret: String,
    /// Marks the samples of the run's own processes, which rank 0 accepts without a digest of their weights.
    pub mark: String,
    /// Tokens that end a completion.
    pub stop: Vec<u32>,
}

impl std::fmt::Debug for BoardAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoardAccess").field("port", &self.port).finish_non_exhaustive()
    }
}

impl BoardAccess {
    /// Serves the tasks of one `kind` of a board to the other ranks, at the address `ip` of this machine.
    pub fn open(
        fleet: &Fleet,
        ip: IpAddr,
        kind: WorkKind,
        mark: String,
        stop: Vec<u32>,
    ) -> Result<(Service, Self)> {
        let secret = fresh_secret()?;
        let config = ServiceConfig {
            listen: SocketAddr::new(ip, 0),
            token: Some(AuthToken::new(&secret, "the secret of the ranks' board")?),
            tls: Some(Identity::from_secret(&secret).server()),
            kind: Some(kind),
            ..ServiceConfig::default()
        };
        let service = Service::start(fleet.clone(), config).context("the board of the ranks")?;
        let port = service.address().port();
        Ok((service, Self { port, secret, mark, stop }))
    }

    /// Creates a client of the board on rank 0's machine.
    pub fn client(&self, rank_0: IpAddr) -> Result<Client> {
        let fingerprint = Identity::from_secret(&self.secret).fingerprint();
        let token = AuthToken::new(&self.secret, "rank 0")?.with_fingerprint(Some(fingerprint));
        Ok(Client::new(&format!("https://{}", SocketAddr::new(rank_0, self.port)), Some(token), None)?)
    }
}
