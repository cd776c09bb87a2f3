//! HTTP client of the coordinator, for workers. Without TLS, requests and replies are signed with the token (see
//! [`crate::signing`]).

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{Certificate, TlsConfig};
use ureq::{Agent, Body};

use crate::artifacts::ArtifactChunk;
use crate::board::BoardStatus;
use crate::coordinator::{CallError, Coordinator, Grant, HeartbeatAck};
use crate::signing::{self, Nonce, SignedRequest};
use crate::task::{LeaseId, Receipt, Report, WorkKind, WorkerName};
use crate::token::AuthToken;
use crate::wire::{
    BodyFormat, ErrorReply, HeartbeatReply, HeartbeatRequest, LeaseReply, LeaseRequest, ResultsReply,
    ResultsRequest,
};

/// Client of a [`Service`](crate::Service). All threads of a worker can share one.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<AuthToken>,
    /// Whether the server has proved at least once that it knows the token.
    is_known: Arc<AtomicBool>,
    /// The challenge to sign the next request over. Updated from every reply.
    challenge: Arc<Mutex<Nonce>>,
}

/// Timeout of a connection attempt.
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
/// Attempts to sign a request, because its challenge may expire in transit.
const MAX_SIGNATURES: usize = 3;

impl Client {
    /// Creates a client for `http(s)://host:port`, without connecting. `trusted` are certificates (DER) to trust instead
    /// of the public ones, for a service with a private certificate authority.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn new(url: &str, token: Option<AuthToken>, trusted: Option<&[Vec<u8>]>) -> Result<Self, CallError> {
        let url = url.trim_end_matches('/').to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(CallError::Refused(format!(
                "{url}: the coordinator's URL begins with http:// or https://"
            )));
        }
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
        Ok(Self {
            agent: config.build().into(),
            url,
            token,
            is_known: Arc::default(),
            challenge: Arc::default(),
        })
    }

    /// Requests the board's statistics.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not reply.
    pub fn status(&self) -> Result<BoardStatus, CallError> {
        self.status_within(REPLY_TIMEOUT)
    }

    /// Requests the board's statistics, with a timeout.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not reply in time.
    pub fn status_within(&self, timeout: Duration) -> Result<BoardStatus, CallError> {
        read(self.get("/v1/status", None, timeout)?)
    }

    /// Reads up to `limit` bytes of an artifact (see [`crate::ArtifactStore`]), starting at `offset`. The service may
    /// return fewer. Returns `None` if there is no such artifact.
    ///
    /// # Errors
    /// Returns an error if the reply is missing or invalid.
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
            return read::<()>(reply).map(|()| None);
        }
        let total = text_of(reply.headers(), "content-range").rsplit('/').next().unwrap_or_default().parse();
        let invalid = |problem: &str| CallError::Unavailable(format!("an invalid reply: {name}: {problem}"));
        let total = total.map_err(|_| invalid("no content-range"))?;
        Ok(Some(ArtifactChunk { bytes: reply.into_body(), total }))
    }

    /// Reads a whole small artifact. Returns `None` if there is no such artifact.
    ///
    /// # Errors
    /// Returns an error if the reply is missing or invalid.
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
        let shown = range.unwrap_or_default();
        let call = signing::RequestHead {
            method: "GET",
            path,
            range: shown,
            content_type: "",
            content_encoding: "",
        };
        self.call(call, b"", |authorization| {
            let mut request = self.agent.get(format!("{}{path}", self.url));
            let packs = if range.is_none() { Some(("accept-encoding", "zstd")) } else { None };
            let range = range.map(|range| ("range", range));
            for (name, value) in [packs, range, authorization].into_iter().flatten() {
                request = request.header(name, value);
            }
            request.config().timeout_global(Some(timeout)).build().call()
        })
    }

    /// Makes a call. `send` gets the `authorization` header. Signs the request again if its challenge has expired.
    fn call(
        &self,
        call: signing::RequestHead<'_>,
        body: &[u8],
        send: impl Fn(Option<(&str, &str)>) -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let away = |error: ureq::Error| CallError::Unavailable(format!("{}: {error}", self.url));
        let Some(token) = &self.token else { return whole(send(None).map_err(away)?) };
        // The certificate identifies the server, so the token can be sent.
        if self.url.starts_with("https://") {
            return whole(send(Some(("authorization", &token.header()))).map_err(away)?);
        }
        for _ in 0..MAX_SIGNATURES {
            let challenge = *self.challenge.lock().unwrap_or_else(PoisonError::into_inner);
            let signed = SignedRequest::sign(token, challenge, call, body);
            let (signed, header) = signed.map_err(|e| CallError::Refused(e.to_string()))?;
            let reply = send(Some(("authorization", &header))).map_err(away)?;
            let reply = self.receive(reply, &signed, token)?;
            // A server that knows the token returns 401 only for an expired challenge or a damaged request.
            if reply.status().as_u16() != 401 {
                return Ok(reply);
            }
        }
        let (url, times) = (&self.url, MAX_SIGNATURES);
        Err(CallError::Unavailable(format!(
            "{url} rejected the signature of a request {times} times in a row"
        )))
    }

    /// Reads an authenticated reply. If the signature is missing or wrong, the body is not read, because it may be forged.
    fn receive(
        &self,
        reply: Response<Body>,
        signed: &SignedRequest,
        token: &AuthToken,
    ) -> Result<Response<Vec<u8>>, CallError> {
        let headers = reply.headers();
        let challenge = text_of(headers, signing::CHALLENGE);
        let head = signing::ReplyHead {
            status: reply.status().as_u16(),
            challenge,
            content_type: text_of(headers, "content-type"),
            content_encoding: text_of(headers, "content-encoding"),
            content_range: text_of(headers, "content-range"),
        };
        let signature = headers.get(signing::SIGNATURE).map(|value| value.as_bytes()).unwrap_or_default();
        let Some(digest) = signed.verify_reply(token, head, signature) else {
            return Err(self.unauthenticated(reply.status().as_u16()));
        };
        self.is_known.store(true, Ordering::Relaxed);
        if let Some(challenge) = signing::unhex(challenge) {
            *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
        }
        let reply = read_at_most(reply, digest.length.min(MAX_REPLY))?;
        if digest.matches(reply.body()) {
            Ok(reply)
        } else {
            Err(CallError::Unavailable(format!("{}: a reply was damaged in transit", self.url)))
        }
    }

    fn unauthenticated(&self, status: u16) -> CallError {
        let url = &self.url;
        let reason = format!(
            "{url} returned HTTP {status} and does not prove that it knows the token; check that this is the run's \
             coordinator, and that the token is the right one"
        );
        // A server that rejects the token on first contact has another token. Any other reply may come from a gateway, or
        // from an impostor while the coordinator is down; it must not end the worker.
        let refused = status == 401 && !self.is_known.load(Ordering::Relaxed);
        if refused { CallError::Refused(reason) } else { CallError::Unavailable(reason) }
    }

    fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, CallError> {
        let body = BodyFormat::Binary.write(body);
        let body = body.map_err(|e| CallError::Refused(format!("cannot write the request: {e}")))?;
        let packed = if body.len() < MIN_COMPRESSED { None } else { zstd::bulk::compress(&body, 1).ok() };
        let content_encoding = if packed.is_some() { "zstd" } else { "" };
        let body = packed.unwrap_or(body);
        let content_type = BodyFormat::Binary.content_type();
        let call = signing::RequestHead { method: "POST", path, range: "", content_type, content_encoding };
        let reply = self.call(call, &body, |authorization| {
            let request = self.agent.post(format!("{}{path}", self.url));
            let mut request = request.header("content-type", content_type).header("accept-encoding", "zstd");
            let packed =
                Some(("content-encoding", content_encoding)).filter(|(_, coding)| !coding.is_empty());
            for (name, value) in [packed, authorization].into_iter().flatten() {
                request = request.header(name, value);
            }
            request.config().timeout_global(Some(timeout)).build().send(&body[..])
        })?;
        read(reply)
    }
}

/// Reads the body of a reply from a trusted server.
fn whole(reply: Response<Body>) -> Result<Response<Vec<u8>>, CallError> {
    read_at_most(reply, MAX_REPLY)
}

fn read_at_most(mut reply: Response<Body>, limit: u64) -> Result<Response<Vec<u8>>, CallError> {
    // One byte more, because the reader fails at its limit.
    let body = reply.body_mut().with_config().limit(limit + 1).read_to_vec();
    let body = body.map_err(|e| CallError::Unavailable(format!("an invalid reply: {e}")))?;
    Ok(reply.map(|_| body))
}

/// Decompresses and parses a reply. An invalid reply is worth a retry; a rejected request is not.
fn read<A: DeserializeOwned>(reply: Response<Vec<u8>>) -> Result<A, CallError> {
    let invalid = |problem: String| CallError::Unavailable(format!("an invalid reply: {problem}"));
    let status = reply.status();
    let kind = text_of(reply.headers(), "content-type");
    let form = BodyFormat::of(kind).ok_or_else(|| invalid(format!("content type {kind:?}")));
    let packed = text_of(reply.headers(), "content-encoding") == "zstd";
    let bytes = reply.into_body();
    let bytes = if packed { decompress(&bytes).map_err(|e| invalid(e.to_string()))? } else { bytes };
    if status.is_success() {
        return form?.read(&bytes).map_err(invalid);
    }
    let reason = serde_json::from_slice::<ErrorReply>(&bytes);
    let reason =
        reason.map_or_else(|_| format!("HTTP {status}"), |reply| format!("HTTP {status}: {}", reply.error));
    match status.as_u16() {
        // Timeout, too many requests, or a fault of the service.
        408 | 429 | 500.. => Err(CallError::Unavailable(reason)),
        _ => Err(CallError::Refused(reason)),
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
        let reply: LeaseReply = self.post("/v1/lease", &call, wait + SHORT_REPLY_TIMEOUT)?;
        Ok(Grant { leases: reply.tasks, lease_time: seconds(reply.lease_s)?, drain: reply.drain })
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        let call = HeartbeatRequest { worker: worker.clone(), tasks: held.to_vec() };
        let reply: HeartbeatReply = self.post("/v1/heartbeat", &call, SHORT_REPLY_TIMEOUT)?;
        Ok(HeartbeatAck { abandon: reply.abandon, lease_time: seconds(reply.lease_s)?, drain: reply.drain })
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let call = ResultsRequest { worker: worker.clone(), results: reports };
        let reply: ResultsReply = self.post("/v1/results", &call, 2 * REPLY_TIMEOUT)?;
        if reply.receipts.len() == call.results.len() {
            Ok(reply.receipts)
        } else {
            Err(CallError::Unavailable(
                "an invalid reply: the number of receipts differs from the number of results".into(),
            ))
        }
    }
}

fn seconds(number: f64) -> Result<Duration, CallError> {
    Duration::try_from_secs_f64(number)
        .map_err(|e| CallError::Unavailable(format!("an invalid reply: lease_s {number}: {e}")))
}
