//! HTTPS service of the coordinator: the calls of [`crate::wire`], the board's statistics, and Prometheus metrics.
//!
//! Every call that changes state is a POST with a token and with a content type that a web page cannot send across
//! origins. The token is checked before the body is read. The size of a body is checked while it is read and
//! decompressed, and the memory for the bodies of all connections together is bounded. Processes of the same machine,
//! such as scripts or proxies with their own certificates, may also use plain HTTP.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_http::{ServiceThread, check_request};
use sgs_tls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::artifacts::ArtifactStore;
use crate::board::{BoardStatus, KindStats, WorkerStats};
use crate::coordinator::Grant;
use crate::descriptors::{max_connections, raise_limit};
use crate::fleet::Fleet;
use crate::task::WorkKind;
use crate::token::AuthToken;
use crate::wire::{
    self, ErrorReply, HeartbeatRequest, JSON, LeaseRequest, MAX_ITEMS, POSTCARD, ResultsReply, ResultsRequest,
};

/// Configuration of a [`Service`].
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Address to listen on. Port 0 picks a free port. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Token of the callers. Without a token or TLS, the service listens only on loopback.
    pub token: Option<AuthToken>,
    /// Key and certificate. With TLS, only connections from loopback may be in plain text.
    pub tls: Option<Arc<ServerConfig>>,
    /// Maximum size of a body, compressed or not, in bytes. Also the total size of the large bodies that are received at a
    /// time, and of those that are decompressed; further ones wait. Default 256 MiB.
    pub max_body: usize,
    /// Maximum wait for the next bytes of a body, and for the room to receive a large one. Default 20 s.
    pub body_wait: Duration,
    /// Artifacts that workers may read. Default none.
    pub artifacts: ArtifactStore,
    /// The only kind of task that workers may lease and report. Default `None`: all kinds.
    pub kind: Option<WorkKind>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: None,
            tls: None,
            max_body: 256 << 20,
            body_wait: Duration::from_secs(20),
            artifacts: ArtifactStore::default(),
            kind: None,
        }
    }
}

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// It would be open to the network without a token or without TLS.
    #[error("refusing to listen on {0} without a token and TLS: listen on 127.0.0.1")]
    Unprotected(SocketAddr),
    /// The address is unavailable.
    #[error("cannot listen on {address}: {error}; choose another port, or 0 for any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        error: io::Error,
    },
    /// The threads cannot be started.
    #[error("cannot start the service's threads: {0}")]
    Threads(io::Error),
}

/// A running service. Dropping it stops the service.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    encrypted: bool,
    /// Stop when they are dropped.
    _threads: [ServiceThread; 2],
}

/// State shared by all request handlers.
struct HandlerState {
    fleet: Fleet,
    config: ServiceConfig,
    /// Room for large bodies, in units of [`ROOM_UNIT`]. A body holds it until it is parsed.
    receiving: Arc<Semaphore>,
    /// Room for decompressed bodies. Its holders wait for no client, so a body may wait for it while it holds other room.
    decompression: Arc<Semaphore>,
}

/// Maximum number of connections; further ones wait. Reduced to fit the process's limit of open files, which the service
/// raises.
const MAX_CONNECTIONS: usize = 16_384;
const MAX_LEASE_WAIT: Duration = Duration::from_secs(30);
/// Interval at which overdue leases are expired.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the body of a request, apart from its wait for room.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout for the first byte of a connection, and of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// First byte of a TLS connection: the content type of a handshake record (RFC 8446, §5.1).
const TLS_HANDSHAKE: [u8; 1] = [22];
/// How long the reply to a report waits for the consumer to store the outcomes. Then the worker must send them again.
const MAX_RECEIPT_WAIT: Duration = Duration::from_secs(2);
/// Minimum size of a reply that is compressed, in bytes.
const MIN_COMPRESSED: usize = 16 << 10;
/// Minimum size of a body that is parsed on a thread of the blocking pool, in bytes.
const LARGE_BODY: usize = 256 << 10;
/// Maximum size of a body that needs no room, in bytes. A heartbeat that names 4,096 leases is smaller.
const SMALL_BODY: usize = 64 << 10;
/// Bytes per permit for bodies.
const ROOM_UNIT: usize = 4096;
/// Value of `retry-after` in replies that ask the client to retry, in seconds.
const RETRY_AFTER_S: &str = "5";
/// Maximum number of bytes of an artifact per request.
const MAX_CHUNK: usize = 16 << 20;
/// Path prefix of the artifacts.
const FILES: &str = "/v1/files/";

impl Service {
    /// Binds the address and starts the service's threads.
    ///
    /// # Errors
    /// Returns an error if the configuration is unsafe or invalid, or the address or threads are unavailable.
    pub fn start(fleet: Fleet, config: ServiceConfig) -> Result<Self, ServiceError> {
        if (config.token.is_none() || config.tls.is_none()) && !config.listen.ip().is_loopback() {
            return Err(ServiceError::Unprotected(config.listen));
        }
        let tls = config.tls.clone().map(tokio_rustls::TlsAcceptor::from);
        let listening = |error| ServiceError::Listen { address: config.listen, error };
        let thread = || ServiceThread::start("fleet-service").map_err(ServiceError::Threads);
        let threads = [thread()?, thread()?];
        let (listener, address) = threads[0].listen(config.listen).map_err(listening)?;
        let handles = threads.each_ref().map(|thread| thread.handle().clone());
        let encrypted = tls.is_some();
        let units = config.max_body.div_ceil(ROOM_UNIT).clamp(1, Semaphore::MAX_PERMITS);
        let [receiving, decompression] = [(); 2].map(|()| Arc::new(Semaphore::new(units)));
        let state = Arc::new(HandlerState { fleet: fleet.clone(), config, receiving, decompression });
        let room = Semaphore::new(MAX_CONNECTIONS.min(max_connections(raise_limit())));
        threads[0].handle().spawn(accept(listener, tls, state, handles, Arc::new(room)));
        threads[0].handle().spawn(tick(fleet));
        Ok(Self { address, encrypted, _threads: threads })
    }

    /// Returns the address on which the service listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for workers that reach this machine under the given name or address.
    pub fn url(&self, host: &str) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        format!("{scheme}://{host}:{}", self.address.port())
    }
}

async fn tick(fleet: Fleet) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        fleet.tick();
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
    state: Arc<HandlerState>,
    threads: [Handle; 2],
    room: Arc<Semaphore>,
) {
    for thread in threads.iter().cycle() {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = sgs_http::accept(&listener).await;
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        // A stream must be registered with the runtime of the thread that serves it.
        let stream = stream.into_std();
        thread.spawn(async move {
            let _permit = permit;
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream, tls, state).await,
                Err(error) => tracing::warn!("cannot serve a connection: {error}"),
            }
        });
    }
}

/// Serves a connection over TLS. Serves it in plain text if TLS is not configured, or if the client is on this machine
/// and uses plain text.
async fn serve(stream: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>, state: Arc<HandlerState>) {
    let Some(tls) = tls else { return serve_connection(stream, state).await };
    let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
    let mut first = [0];
    if is_local
        && !matches!(timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await, Ok(Ok(1)) if first == TLS_HANDSHAKE)
    {
        return serve_connection(stream, state).await;
    }
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_connection(stream, state).await,
        Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("a TLS handshake timed out"),
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<HandlerState>) {
    let answer = |request| {
        let state = Arc::clone(&state);
        async move { state.answer(request).await }
    };
    sgs_http::serve_connection(stream, HEAD_TIMEOUT, answer).await;
}

type HttpResponse = Response<Full<Bytes>>;

/// A rejected request: the status and the reason.
struct Rejection(StatusCode, String);

fn reject<T>(status: StatusCode, reason: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection(status, reason.into()))
}

impl HandlerState {
    async fn answer(&self, request: Request<Incoming>) -> HttpResponse {
        let accepts_zstd = request
            .headers()
            .get(ACCEPT_ENCODING)
            .and_then(|v| v.to_str().ok())
            .is_some_and(|v| v.split(',').any(|coding| coding.trim().starts_with("zstd")));
        let routed = match self.admit(&request) {
            Ok(()) => self.route(request).await,
            Err(rejection) => Err(rejection),
        };
        let reply = match routed {
            Ok(mut reply) => {
                if accepts_zstd {
                    compress(&mut reply);
                }
                reply
            }
            Err(Rejection(status, error)) => {
                let mut reply = json(&ErrorReply { error });
                *reply.status_mut() = status;
                let hint = match status {
                    StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
                    StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, RETRY_AFTER_S)),
                    StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "GET, POST")),
                    _ => None,
                };
                let hint = hint.map(|(name, value)| (name, HeaderValue::from_static(value)));
                reply.headers_mut().extend(hint);
                reply
            }
        };
        reply.map(|body| Full::new(Bytes::from(body)))
    }

    /// Checks where a request comes from, and authenticates it by its token.
    fn admit(&self, request: &Request<Incoming>) -> Result<(), Rejection> {
        check_request(request, self.config.token.is_some())
            .map_err(|(status, why)| Rejection(status, why.to_owned()))?;
        let shown = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if self.config.token.as_ref().is_none_or(|token| token.admits(shown)) {
            return Ok(());
        }
        let error = "missing or wrong token: use the token of this run (fleet.token in its folder), in a script as \
                     `Authorization: Bearer TOKEN`";
        reject(StatusCode::UNAUTHORIZED, error)
    }

    async fn route(&self, request: Request<Incoming>) -> Result<BufferedResponse, Rejection> {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/lease") => {
                let call = self.body(request).await?;
                Ok(written(&self.lease(call).await?))
            }
            (&Method::POST, "/v1/heartbeat") => {
                let call: HeartbeatRequest = self.body(request).await?;
                Ok(written(&self.fleet.heartbeat_ack(&call.worker, &call.tasks)))
            }
            (&Method::POST, "/v1/results") => {
                let call = self.body(request).await?;
                Ok(written(&self.results(call).await?))
            }
            (&Method::GET, "/v1/status") => Ok(json(&self.fleet.status())),
            (&Method::GET, "/metrics") => Ok(metrics(&self.fleet.status())),
            (method, "/v1/lease" | "/v1/heartbeat" | "/v1/results" | "/v1/status" | "/metrics") => {
                reject(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed for this path"))
            }
            (&Method::GET, path) if path.starts_with(FILES) => {
                let range = request.headers().get(RANGE).map(|v| v.as_bytes().to_vec());
                let name = path.strip_prefix(FILES).unwrap_or_default().to_owned();
                self.file(&name, range.as_deref()).await
            }
            (_, path) => reject(StatusCode::NOT_FOUND, format!("no such path: {path}")),
        }
    }

    /// Returns an artifact, or the range of it that the request names.
    async fn file(&self, name: &str, range: Option<&[u8]>) -> Result<BufferedResponse, Rejection> {
        let (from, limit) = match range {
            None => (0, MAX_CHUNK),
            Some(range) => read_range(range).ok_or_else(|| {
                let error = "range: send `bytes=FIRST-LAST` or `bytes=FIRST-`".to_owned();
                Rejection(StatusCode::RANGE_NOT_SATISFIABLE, error)
            })?,
        };
        let unreadable =
            |error: String| Rejection(StatusCode::SERVICE_UNAVAILABLE, format!("{name}: {error}"));
        let (artifacts, wanted) = (self.config.artifacts.clone(), name.to_owned());
        let chunk = spawn_blocking(move || artifacts.read(&wanted, from, limit.min(MAX_CHUNK))).await;
        let chunk = chunk.map_err(|e| unreadable(e.to_string()))?.map_err(|e| unreadable(e.to_string()))?;
        let chunk =
            chunk.ok_or_else(|| Rejection(StatusCode::NOT_FOUND, format!("no such file: {name:?}")))?;
        let whole = from == 0 && chunk.bytes.len() as u64 == chunk.total;
        if range.is_none() && !whole {
            let error = format!("{name} has {} bytes; ask for them in ranges", chunk.total);
            return reject(StatusCode::PAYLOAD_TOO_LARGE, error);
        }
        let last = (from + chunk.bytes.len() as u64).saturating_sub(1);
        let content_range = match chunk.bytes.len() {
            0 => format!("bytes */{}", chunk.total),
            _ => format!("bytes {from}-{last}/{}", chunk.total),
        };
        let mut reply = Response::new(chunk.bytes);
        let kind = HeaderValue::from_static("application/octet-stream");
        reply.headers_mut().insert(CONTENT_TYPE, kind);
        if range.is_some() {
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            reply.headers_mut().insert(CONTENT_RANGE, ascii_header(&content_range));
        }
        Ok(reply)
    }

    async fn lease(&self, call: LeaseRequest) -> Result<Grant, Rejection> {
        if !(call.wait_s.is_finite() && call.wait_s >= 0.0) {
            return reject(StatusCode::BAD_REQUEST, "wait_s must be a number of seconds, at least 0");
        }
        if self.config.kind.as_ref().is_some_and(|kind| *kind != call.kind) {
            return reject(StatusCode::FORBIDDEN, format!("no {} tasks are leased here", call.kind));
        }
        let wait = Duration::from_secs_f64(call.wait_s.min(1e6)).min(MAX_LEASE_WAIT);
        let capacity = call.capacity.min(MAX_ITEMS);
        let granted = timeout(wait, self.fleet.lease_when_any(&call.worker, &call.kind, capacity)).await;
        Ok(granted.unwrap_or_else(|_| self.fleet.empty_grant()))
    }

    async fn results(&self, call: ResultsRequest) -> Result<ResultsReply, Rejection> {
        if let Some(kind) = &self.config.kind
            && !self.fleet.are_of_kind(call.results.iter().map(|report| report.task), kind)
        {
            return reject(StatusCode::FORBIDDEN, format!("only {kind} tasks are reported here"));
        }
        let mut pending = self.fleet.accept_reports(&call.worker, call.results);
        // If the consumer is slow, the worker gets `Waiting` and sends its reports again.
        let _ = timeout(MAX_RECEIPT_WAIT, pending.settled()).await;
        Ok(ResultsReply { receipts: pending.receipts() })
    }

    /// Reads, decompresses and parses the body of a request.
    async fn body<T: DeserializeOwned + Send + 'static>(
        &self,
        request: Request<Incoming>,
    ) -> Result<T, Rejection> {
        let kind = text_of(request.headers(), &CONTENT_TYPE);
        if kind != POSTCARD {
            let error =
                format!("content-type {kind:?}: send {POSTCARD} (does the worker have another version?)");
            return reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, error);
        }
        let packed = match text_of(request.headers(), &CONTENT_ENCODING) {
            "" | "identity" => false,
            "zstd" => true,
            other => {
                let error = format!("content-encoding {other:?}: send zstd or none");
                return reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, error);
            }
        };
        let limit = self.config.max_body;
        let (bytes, room) = self.receive(request.into_body()).await?;
        let size = if packed { decompressed_size(&bytes, limit)? } else { bytes.len() };
        let unpacked = if packed { room_for(&self.decompression, size, BODY_TIMEOUT).await? } else { None };
        let read = move || {
            // Held until the body is parsed, even if the client disconnects.
            let _held = (room, unpacked);
            parse(&bytes, packed.then_some(size))
        };
        if size < LARGE_BODY {
            return read();
        }
        spawn_blocking(read).await.unwrap_or_else(|e| {
            reject(StatusCode::INTERNAL_SERVER_ERROR, format!("the body could not be read: {e}"))
        })
    }

    /// Reads a body. If it outgrows [`SMALL_BODY`], it acquires the room for its whole size in one step. If bodies
    /// acquired room in parts, each could hold a part and wait for the rest, and they would block each other.
    async fn receive(
        &self,
        mut body: Incoming,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Rejection> {
        let limit = self.config.max_body;
        let declared = body.size_hint().exact().map_or(limit, |n| usize::try_from(n).unwrap_or(usize::MAX));
        // Copy the parts, because each would keep a whole read buffer of the connection alive.
        let (mut bytes, mut room) = (Vec::new(), None);
        let mut deadline = Instant::now() + BODY_TIMEOUT;
        loop {
            let wait = self.config.body_wait.min(deadline.saturating_duration_since(Instant::now()));
            let part = match timeout(wait, body.frame()).await {
                Ok(None) => return Ok((bytes, room)),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => {
                    return reject(StatusCode::BAD_REQUEST, format!("the body was cut off: {error}"));
                }
                Err(_) => return reject(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            };
            let size = bytes.len() + part.len();
            if size > limit || (size > SMALL_BODY && declared > limit) {
                return Err(too_large(limit));
            }
            if size > SMALL_BODY && room.is_none() {
                let begun = Instant::now();
                room = room_for(&self.receiving, declared, self.config.body_wait).await?;
                deadline += begun.elapsed();
                bytes.reserve_exact(declared - bytes.len());
            }
            bytes.extend_from_slice(&part);
        }
    }
}

/// Waits for the room for a body, if it needs any.
async fn room_for(
    all: &Arc<Semaphore>,
    size: usize,
    wait: Duration,
) -> Result<Option<OwnedSemaphorePermit>, Rejection> {
    if size <= SMALL_BODY {
        return Ok(None);
    }
    let units = u32::try_from(size.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX);
    match timeout(wait, Arc::clone(all).acquire_many_owned(units)).await {
        Ok(Ok(room)) => Ok(Some(room)),
        _ => reject(StatusCode::SERVICE_UNAVAILABLE, "too many large bodies at the same time; retry later"),
    }
}

/// Returns a header's text. Empty if the header is missing or not text.
fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[allow(clippy::expect_used, reason = "called only with digits and ASCII words")]
fn ascii_header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: the text is printable ASCII")
}

/// Returns the decompressed size that a zstd body announces, or the limit if it announces none.
fn decompressed_size(bytes: &[u8], limit: usize) -> Result<usize, Rejection> {
    let announced = zstd::zstd_safe::get_frame_content_size(bytes);
    let announced = announced.map_err(|_| Rejection(StatusCode::BAD_REQUEST, "not zstd".into()))?;
    let size = announced.map_or(limit, |size| usize::try_from(size).unwrap_or(usize::MAX));
    if size > limit { Err(too_large(limit)) } else { Ok(size) }
}

/// Parses `bytes=FIRST-LAST` as offset and length.
fn read_range(header: &[u8]) -> Option<(u64, usize)> {
    let (first, last) =
        std::str::from_utf8(header).ok()?.trim_ascii().strip_prefix("bytes=")?.split_once('-')?;
    // `parse` alone accepts a sign.
    let number = |text: &str| if text.starts_with('+') { None } else { text.parse::<u64>().ok() };
    let first = number(first)?;
    if last.is_empty() {
        return Some((first, usize::MAX));
    }
    let number = number(last)?.checked_sub(first)?.checked_add(1)?;
    Some((first, usize::try_from(number).unwrap_or(usize::MAX)))
}

fn too_large(limit: usize) -> Rejection {
    Rejection(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {limit} bytes; send fewer results at a time"),
    )
}

/// Decompresses (if `decompressed` gives the maximum size) and parses a body.
fn parse<T: DeserializeOwned>(bytes: &[u8], decompressed: Option<usize>) -> Result<T, Rejection> {
    let bad = |error: String| Rejection(StatusCode::BAD_REQUEST, error);
    let mut buffer = Vec::new();
    let bytes = match decompressed {
        Some(size) => {
            let decoder = zstd::stream::Decoder::new(bytes).map_err(|e| bad(format!("not zstd: {e}")))?;
            decoder
                .take((size as u64).saturating_add(1))
                .read_to_end(&mut buffer)
                .map_err(|e| bad(format!("not zstd: {e}")))?;
            if buffer.len() > size {
                return Err(too_large(size));
            }
            &buffer
        }
        None => bytes,
    };
    wire::read(bytes).map_err(|e| bad(format!("the body is not valid for this call: {e}")))
}

/// A reply whose body may still be compressed.
type BufferedResponse = Response<Vec<u8>>;

#[allow(clippy::expect_used, reason = "depends on the types only")]
fn written(value: &impl Serialize) -> BufferedResponse {
    of_type(POSTCARD, wire::write(value).expect("invariant: a reply can be serialized"))
}

#[allow(clippy::expect_used, reason = "depends on the types only")]
fn json(value: &impl Serialize) -> BufferedResponse {
    of_type(JSON, serde_json::to_vec(value).expect("invariant: a reply has string keys"))
}

fn of_type(content_type: &'static str, body: Vec<u8>) -> BufferedResponse {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

fn compress(reply: &mut BufferedResponse) {
    if reply.body().len() < MIN_COMPRESSED {
        return;
    }
    if let Ok(packed) = zstd::bulk::compress(reply.body(), 1) {
        *reply.body_mut() = packed;
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
    }
}

/// Formats the board's statistics as Prometheus text.
fn metrics(status: &BoardStatus) -> BufferedResponse {
    use std::fmt::Write;
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP sgs_fleet_{name} {help}\n# TYPE sgs_fleet_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "sgs_fleet_{name}{labels} {value}");
        }
    };
    type OfKind = fn(&KindStats) -> f64;
    let of_kinds: [(&str, &str, OfKind); 5] = [
        ("tasks_pending", "Tasks waiting for a worker.", |k| k.pending as f64),
        ("tasks_leased", "Tasks held by workers.", |k| k.leased as f64),
        ("tasks_undelivered", "Ended tasks not yet consumed.", |k| k.undelivered as f64),
        ("held_back", "1 while backpressure withholds a kind.", |k| f64::from(u8::from(k.held_back))),
        ("longest_running_seconds", "Age of the oldest single lease.", |k| {
            k.longest_running_s.unwrap_or(0.0)
        }),
    ];
    for (name, help, value) in of_kinds {
        let row = |k: &KindStats| (format!("{{kind=\"{}\"}}", k.kind), value(k));
        family(name, "gauge", help, &status.kinds.iter().map(row).collect::<Vec<_>>());
    }
    let one = |value: f64| vec![(String::new(), value)];
    let workers = |are: fn(&WorkerStats) -> bool| status.workers.iter().filter(|w| are(w)).count() as f64;
    let stalled = "Time for which workers have held tasks since the last outcome.";
    let backing_off = "Workers that back off after repeated failures.";
    let infra = "Fraction of leases that ended by a fault of the infrastructure.";
    for (name, help, value) in [
        ("workers", "Known workers.", workers(|_| true)),
        ("stalled_seconds", stalled, status.stalled_s),
        ("workers_benched", backing_off, workers(|w| w.backoff_s > 0.0)),
        ("workers_busy", "Workers that hold leases.", workers(|w| w.leases > 0)),
        ("infra_rate", infra, status.infra_rate()),
    ] {
        family(name, "gauge", help, &one(value));
    }
    let c = &status.counters;
    for (name, value, help) in [
        ("submitted", c.submitted, "Tasks submitted."),
        ("done", c.done, "Tasks done."),
        ("quarantined", c.quarantined, "Tasks quarantined."),
        ("cancelled", c.cancelled, "Tasks cancelled."),
        ("leases", c.leases, "Leases granted."),
        ("copies", c.copies, "Leases that were speculative copies."),
        ("died", c.died, "Leases whose worker died."),
        ("crashed", c.crashed, "Leases whose worker crashed."),
        ("failed", c.failed, "Leases that a worker reported as failed."),
        ("rejected", c.rejected, "Outcomes that the consumer rejected."),
        ("lost", c.lost, "Leases whose grant never reached the worker."),
        ("returned", c.returned, "Leases returned."),
        ("revived", c.revived, "Expired leases that became live again."),
        ("reclaimed", c.reclaimed, "Leases of an earlier coordinator that were reclaimed."),
        ("late", c.late, "Outcomes accepted after their lease had expired."),
        ("duplicates", c.duplicates, "Reports of leases that had already ended."),
        ("refused", c.refused, "Reports of leases that the sender never held."),
    ] {
        family(&format!("{name}_total"), "counter", help, &one(value as f64));
    }
    let mut reply = Response::new(text.into_bytes());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}
