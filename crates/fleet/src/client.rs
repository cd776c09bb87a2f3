//! HTTPS client of the coordinator, for workers.

use std::fmt::Display;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_tls::Fingerprint;
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::tls::{Certificate, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};
use ureq::{Agent, Body, RequestBuilder};

use crate::artifacts::ArtifactChunk;
use crate::board::BoardStatus;
use crate::connector::PinnedConnector;
use crate::coordinator::{CallError, Coordinator, Grant, HeartbeatAck};
use crate::task::{LeaseId, Receipt, Report, WorkKind, WorkerName};
use crate::token::AuthToken;
use crate::wire::{
    self, ErrorReply, HeartbeatRequest, JSON, LeaseRequest, POSTCARD, ResultsReply, ResultsRequest,
};

/// Client of a [`Service`](crate::Service). All threads of a worker can share one.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<AuthToken>,
    /// The key that the server must have.
    fingerprint: Option<Fingerprint>,
    /// Whether the server has been reached at least once.
    is_known: Arc<AtomicBool>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a reply, in addition to the wait that the call asks for.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of replies to lease requests, heartbeats and small documents. Shorter, because a worker that must leave has
/// only 20 s.
const SHORT_REPLY_TIMEOUT: Duration = Duration::from_secs(12);
/// Minimum size of a body that is compressed, in bytes.
const MIN_COMPRESSED: usize = 16 << 10;
/// Maximum size of a reply, uncompressed, in bytes.
const MAX_REPLY: u64 = 1 << 30;

impl Client {
    /// Creates a client for `https://host:port`, without connecting. The token is sent only to the server whose key it
    /// names. If it names none, or `trusted` is given, the server needs a certificate from a public authority or one of
    /// `trusted` (DER). Without a token, `http://` is possible as well.
    pub fn new(url: &str, token: Option<AuthToken>, trusted: Option<&[Vec<u8>]>) -> Result<Self, CallError> {
        let url = url.trim_end_matches('/').to_owned();
        if !(url.starts_with("https://") || token.is_none() && url.starts_with("http://")) {
            return Err(CallError::Refused(format!(
                "{url}: the coordinator's URL begins with https://, because a token is never sent in plain text"
            )));
        }
        let fingerprint = token.as_ref().and_then(AuthToken::fingerprint).filter(|_| trusted.is_none());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_connections_per_host(8)
            .max_redirects(0)
            .proxy(None);
        let config = match trusted {
            None => config,
            Some(certificates) => {
                let roots = certificates.iter().map(|der| Certificate::from_der(der).to_owned());
                config.tls_config(TlsConfig::builder().root_certs(roots.into()).build())
            }
        };
        let agent = match fingerprint {
            None => config.build().into(),
            Some(fingerprint) => {
                let connector = ().chain(TcpConnector::default()).chain(PinnedConnector::new(fingerprint));
                Agent::with_parts(config.build(), connector, DefaultResolver::default())
            }
        };
        Ok(Self { agent, url, token, fingerprint, is_known: Arc::default() })
    }

    /// Requests the board's statistics, with a timeout.
    pub fn status_within(&self, timeout: Duration) -> Result<BoardStatus, CallError> {
        let body = read(self.get("/v1/status", None, timeout)?, JSON)?;
        serde_json::from_slice(&body).map_err(|e| invalid(&e))
    }

    /// Reads up to `limit` bytes of an artifact (see [`crate::ArtifactStore`]), starting at `offset`. The service may
    /// return fewer. Returns `None` if there is no such artifact.
    pub fn read_file(
        &self,
        name: &str,
        offset: u64,
        limit: usize,
    ) -> Result<Option<ArtifactChunk>, CallError> {
        self.read_chunk(name, offset, limit, 2 * REPLY_TIMEOUT)
    }

    fn read_chunk(
        &self,
        name: &str,
        offset: u64,
        limit: usize,
        timeout: Duration,
    ) -> Result<Option<ArtifactChunk>, CallError> {
        let last = offset.saturating_add(limit.max(1) as u64 - 1);
        let range = format!("bytes={offset}-{last}");
        let reply = self.get(&format!("/v1/files/{name}"), Some(&range), timeout)?;
        if reply.status().as_u16() == 404 {
            return Ok(None);
        }
        if !reply.status().is_success() {
            return Err(failure(reply.status(), reply.body()));
        }
        let total = text_of(reply.headers(), "content-range").rsplit('/').next().unwrap_or_default().parse();
        let total = total.map_err(|_| invalid(format!("{name}: no content-range")))?;
        Ok(Some(ArtifactChunk { bytes: reply.into_body(), total }))
    }

    /// Reads a whole small artifact. Returns `None` if there is no such artifact.
    pub fn read_document(&self, name: &str) -> Result<Option<Vec<u8>>, CallError> {
        let Some(mut chunk) = self.read_chunk(name, 0, 4 << 20, SHORT_REPLY_TIMEOUT)? else {
            return Ok(None);
        };
        let mut bytes = std::mem::take(&mut chunk.bytes);
        while (bytes.len() as u64) < chunk.total {
            match self.read_chunk(name, bytes.len() as u64, 4 << 20, SHORT_REPLY_TIMEOUT)? {
                Some(next) if !next.bytes.is_empty() && next.total == chunk.total => bytes.extend(next.bytes),
                _ => return Err(CallError::Unavailable(format!("{name} changed while it was read"))),
            }
        }
        Ok(Some(bytes))
    }

    fn get(
        &self,
        path: &str,
        range: Option<&str>,
        timeout: Duration,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let request = self.authorized(self.agent.get(format!("{}{path}", self.url)));
        let request = match range {
            None => request.header("accept-encoding", "zstd"),
            Some(range) => request.header("range", range),
        };
        self.received(request.config().timeout_global(Some(timeout)).build().call())
    }

    /// Adds the token. [`Client::new`] ensures that only TLS connections carry it.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", token.header()),
            None => request,
        }
    }

    /// Reads a whole reply.
    fn received(&self, reply: Result<Response<Body>, ureq::Error>) -> Result<Response<Vec<u8>>, CallError> {
        let mut reply = reply.map_err(|error| self.not_received(&error))?;
        self.is_known.store(true, Ordering::Relaxed);
        let body = reply.body_mut().with_config().limit(MAX_REPLY + 1).read_to_vec();
        let body = body.map_err(invalid)?;
        Ok(reply.map(|_| body))
    }

    fn not_received(&self, error: &ureq::Error) -> CallError {
        let url = &self.url;
        let untrusted = match error {
            ureq::Error::Io(error) => sgs_tls::is_untrusted(error),
            ureq::Error::Rustls(error) => sgs_tls::is_untrusted(error),
            _ => false,
        };
        if !untrusted {
            return CallError::Unavailable(format!("{url}: {error}"));
        }
        let reason = match self.fingerprint {
            Some(fingerprint) => format!(
                "{url} does not have the key {fingerprint} that the token names: check the URL, and copy fleet.token \
                 from the run's folder again; if a proxy with its own certificate answers there, give --authority"
            ),
            None => format!(
                "{url}: {error}; use the file fleet.token of the run's folder, which names the coordinator's key, or give \
                 --authority if the operator's certificate is not publicly signed"
            ),
        };
        // Once the coordinator has been reached, a stranger at its address must not end the worker.
        let refused = !self.is_known.load(Ordering::Relaxed);
        if refused { CallError::Refused(reason) } else { CallError::Unavailable(reason) }
    }

    fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, CallError> {
        let body = wire::write(body);
        let body = body.map_err(|e| CallError::Refused(format!("cannot write the request: {e}")))?;
        let packed = if body.len() < MIN_COMPRESSED { None } else { zstd::bulk::compress(&body, 1).ok() };
        let request = self.authorized(self.agent.post(format!("{}{path}", self.url)));
        let request = request.header("content-type", POSTCARD);
        let request = request.header("accept-encoding", "zstd");
        let request = if packed.is_some() { request.header("content-encoding", "zstd") } else { request };
        let body = packed.unwrap_or(body);
        let reply = self.received(request.config().timeout_global(Some(timeout)).build().send(&body[..]))?;
        wire::read(&read(reply, POSTCARD)?).map_err(invalid)
    }
}

/// Returns the decompressed body of a reply that must have this content type.
fn read(reply: Response<Vec<u8>>, content_type: &str) -> Result<Vec<u8>, CallError> {
    if !reply.status().is_success() {
        return Err(failure(reply.status(), reply.body()));
    }
    let found = text_of(reply.headers(), "content-type");
    if found != content_type {
        return Err(invalid(format!("content type {found:?}")));
    }
    let packed = text_of(reply.headers(), "content-encoding") == "zstd";
    let bytes = reply.into_body();
    if packed { decompress(&bytes).map_err(invalid) } else { Ok(bytes) }
}

/// Returns the error of an invalid reply, which is worth a retry.
fn invalid(problem: impl Display) -> CallError {
    CallError::Unavailable(format!("an invalid reply: {problem}"))
}

/// Returns the error of a reply that reports one. Errors are not compressed.
fn failure(status: StatusCode, body: &[u8]) -> CallError {
    let reason = serde_json::from_slice::<ErrorReply>(body);
    let reason =
        reason.map_or_else(|_| format!("HTTP {status}"), |reply| format!("HTTP {status}: {}", reply.error));
    match status.as_u16() {
        // Timeout, too many requests, or a fault of the service.
        408 | 429 | 500.. => CallError::Unavailable(reason),
        _ => CallError::Refused(reason),
    }
}

/// Returns a header's text. Empty if the header is missing or not text.
fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = zstd::stream::Decoder::new(bytes)?.take(MAX_REPLY + 1).read_to_end(&mut unpacked)?;
    if read as u64 > MAX_REPLY {
        return Err(std::io::Error::other(format!("it is larger than {MAX_REPLY} bytes")));
    }
    Ok(unpacked)
}

impl Coordinator for Client {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        let call =
            LeaseRequest { worker: worker.clone(), kind: kind.clone(), capacity, wait_s: wait.as_secs_f64() };
        self.post("/v1/lease", &call, wait + SHORT_REPLY_TIMEOUT)
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        let call = HeartbeatRequest { worker: worker.clone(), tasks: held.to_vec() };
        self.post("/v1/heartbeat", &call, SHORT_REPLY_TIMEOUT)
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let call = ResultsRequest { worker: worker.clone(), results: reports };
        let reply: ResultsReply = self.post("/v1/results", &call, 2 * REPLY_TIMEOUT)?;
        if reply.receipts.len() == call.results.len() {
            Ok(reply.receipts)
        } else {
            Err(invalid("the number of receipts differs from the number of results"))
        }
    }
}
