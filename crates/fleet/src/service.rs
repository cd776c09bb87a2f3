//! The coordinator behind HTTP: the calls of [`crate::wire`], a status for people, metrics for monitors.
//!
//! Everything that changes state is a POST with the bearer token, of JSON or of the workers' own form; a page in
//! somebody's browser can send none of them. The token, or a signature made with it (see `proof`), is checked before a body
//! is read, a body's size while it is read and while it is unpacked; all that is unpacked at a time has a bound of its
//! own. What answers a signed request is signed, and a request that was recorded is refused (see `fresh`).

use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, RANGE, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_http::ServiceThread;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::board::BoardStatus;
use crate::descriptors::{most_connections, raise_limit};
use crate::fleet::{Fleet, FleetError};
use crate::fresh::Freshness;
use crate::proof::{self, Nonce, Signed};
use crate::shelf::Shelf;
use crate::token::{Token, TokenError};
use crate::wire::{
    ErrorReply, Form, HeartbeatReply, HeartbeatRequest, LeaseReply, LeaseRequest, ResultsReply,
    ResultsRequest,
};

/// How the service listens.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Where. Port 0 picks a free one. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Who may call. Without one the service listens on loopback only.
    pub token: Option<Token>,
    /// Encryption, if there is a certificate.
    pub tls: Option<TlsFiles>,
    /// Largest body in bytes, unpacked; and the most that is unpacked at a time, over all connections: further bodies
    /// wait. Default 256 MiB.
    pub largest_body: usize,
    /// Longest wait of a request for work. Default 30 s.
    pub longest_wait: Duration,
    /// Most connections at a time; more wait. As many fewer as the process's limit of open files asks for, which is
    /// raised at the start. Default 16,384.
    pub most_connections: usize,
    /// Threads that serve. Default 2.
    pub threads: usize,
    /// What workers may read. Default nothing.
    pub shelf: Shelf,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: None,
            tls: None,
            largest_body: 256 << 20,
            longest_wait: Duration::from_secs(30),
            most_connections: 16_384,
            threads: 2,
            shelf: Shelf::default(),
        }
    }
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// It would be open to the network without a token.
    #[error(
        "refusing to listen on {0} without a token: give one in a file or the environment, or listen on 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    /// The certificate or key cannot be used.
    #[error("{path}: {problem}")]
    Tls {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No threads.
    #[error("cannot start the service's threads: {0}")]
    Threads(io::Error),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] TokenError),
}

/// A running service; it ends when this is dropped.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    encrypted: bool,
    /// They end when they are dropped.
    _threads: Vec<ServiceThread>,
}

/// What every request handler needs.
struct Desk {
    fleet: Fleet,
    config: ServiceConfig,
    /// Room for unpacked bodies, in units of [`UNPACKING_UNIT`].
    unpacking: Arc<Semaphore>,
    /// Tells signed requests from such as were recorded.
    fresh: Mutex<Freshness>,
}

/// How often overdue leases are looked for.
const TICK: Duration = Duration::from_millis(250);
/// A request's head has to arrive within this time.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// A request's body has to arrive within this time.
const BODY_PATIENCE: Duration = Duration::from_secs(120);
/// A TLS handshake has to end within this time.
#[cfg(feature = "tls")]
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Outcomes wait so long for the consumer to write them down before their worker is told to send them again.
const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// Replies from this size on are compressed for those who understand that.
const COMPRESS_FROM: usize = 16 << 10;
/// Bodies from this size on are unpacked and parsed where they hold up nobody else.
const LARGE: usize = 256 << 10;
/// Room for unpacked bodies is counted in so many bytes.
const UNPACKING_UNIT: usize = 4096;
/// Most leases per request.
const LARGEST_CAPACITY: usize = 65_536;
/// Most bytes of a file per request; who wants more asks again.
const LARGEST_PART: usize = 16 << 20;
/// Below this path stand the items of the shelf.
const FILES: &str = "/v1/files/";

impl Service {
    /// Binds the address and serves from threads of its own.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn start(fleet: Fleet, mut config: ServiceConfig) -> Result<Self, ServiceError> {
        if config.token.is_none() && !config.listen.ip().is_loopback() {
            return Err(ServiceError::Unprotected(config.listen));
        }
        config.most_connections = config.most_connections.min(most_connections(raise_limit()));
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let fresh = Mutex::new(Freshness::new(Instant::now())?);
        let listening = |error| ServiceError::Listen { address: config.listen, error };
        let thread = || ServiceThread::start("fleet-service").map_err(ServiceError::Threads);
        let first = thread()?;
        let (listener, address) = first.listen(config.listen).map_err(listening)?;
        let handle = first.handle().clone();
        let rest = (1..config.threads).map(|_| thread());
        let threads = std::iter::once(Ok(first)).chain(rest).collect::<Result<Vec<_>, _>>()?;
        let handles = threads.iter().map(|thread| thread.handle().clone()).collect();
        let encrypted = tls.is_some();
        let units = config.largest_body.div_ceil(UNPACKING_UNIT).clamp(1, Semaphore::MAX_PERMITS);
        let unpacking = Arc::new(Semaphore::new(units));
        let desk = Arc::new(Desk { fleet: fleet.clone(), config, unpacking, fresh });
        handle.spawn(accept(listener, tls.map(Arc::new), desk, handles));
        handle.spawn(tick(fleet));
        Ok(Self { address, encrypted, _threads: threads })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for workers that reach this machine under that name or address.
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        format!("{scheme}://{host}:{}", self.address.port())
    }
}

async fn tick(fleet: Fleet) {
    loop {
        tokio::time::sleep(TICK).await;
        if let Err(error) = fleet.tick() {
            tracing::error!("{error}");
            return;
        }
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    tls: Option<Arc<Tls>>,
    desk: Arc<Desk>,
    threads: Vec<Handle>,
) {
    let room = Arc::new(Semaphore::new(desk.config.most_connections));
    for thread in threads.iter().cycle() {
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = sgs_http::accept(&listener).await;
        let (tls, desk) = (tls.clone(), Arc::clone(&desk));
        // A stream belongs to the thread that serves it.
        let stream = stream.into_std();
        thread.spawn(async move {
            let _seat = seat;
            match (stream.and_then(tokio::net::TcpStream::from_std), tls) {
                (Ok(stream), None) => converse(stream, desk).await,
                (Ok(stream), Some(tls)) => tls.converse(stream, desk).await,
                (Err(error), _) => tracing::warn!("cannot serve a connection: {error}"),
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, desk: Arc<Desk>) {
    let answer = |request| {
        let desk = Arc::clone(&desk);
        async move { desk.answer(request).await }
    };
    sgs_http::converse(stream, HEAD_PATIENCE, answer).await;
}

#[cfg(feature = "tls")]
struct Tls(tokio_rustls::TlsAcceptor);

#[cfg(feature = "tls")]
impl Tls {
    fn load(files: &TlsFiles) -> Result<Self, ServiceError> {
        use tokio_rustls::rustls::ServerConfig;
        use tokio_rustls::rustls::crypto::ring::default_provider;
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let wrong = |path: &Path, problem: String| ServiceError::Tls { path: path.to_owned(), problem };
        let pem = |path: &Path| fs::read(path).map_err(|e| wrong(path, e.to_string()));
        let chain = CertificateDer::pem_slice_iter(&pem(&files.certificate)?).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| wrong(&files.certificate, format!("not a PEM certificate: {e:?}")))?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&files.key)?);
        let key = key.map_err(|e| wrong(&files.key, format!("not a PEM private key: {e:?}")))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&files.certificate, e.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| wrong(&files.certificate, format!("certificate and key do not go together: {e}")))?;
        Ok(Self(tokio_rustls::TlsAcceptor::from(Arc::new(config))))
    }

    async fn converse(&self, stream: tokio::net::TcpStream, desk: Arc<Desk>) {
        match timeout(HANDSHAKE_PATIENCE, self.0.accept(stream)).await {
            Ok(Ok(stream)) => converse(stream, desk).await,
            Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }
}

#[cfg(not(feature = "tls"))]
enum Tls {}

#[cfg(not(feature = "tls"))]
impl Tls {
    fn load(files: &TlsFiles) -> Result<Self, ServiceError> {
        let exists = fs::metadata(&files.certificate)
            .map(|_| "this build has no TLS; build it with the feature `tls`");
        let problem = exists.map_or_else(|e| e.to_string(), str::to_owned);
        Err(ServiceError::Tls { path: Path::new(&files.certificate).to_owned(), problem })
    }

    async fn converse(&self, _: tokio::net::TcpStream, _: Arc<Desk>) {
        match *self {}
    }
}

type Reply = Response<Full<Bytes>>;

/// A request that is not served, and why.
struct Rejection(StatusCode, String);

impl From<FleetError> for Rejection {
    fn from(error: FleetError) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let packs = request
            .headers()
            .get(ACCEPT_ENCODING)
            .and_then(|v| v.to_str().ok())
            .is_some_and(|v| v.split(',').any(|coding| coding.trim().starts_with("zstd")));
        let admitted = self.admit(&request);
        let signed = admitted.as_ref().ok().cloned().flatten();
        let routed = match admitted {
            Ok(Some(signed)) if !self.is_fresh(&signed) => {
                self.pass_over(request).await;
                let error =
                    "signed over an old challenge, or sent before: sign it over the one in this answer";
                Err(Rejection(StatusCode::UNAUTHORIZED, error.to_owned()))
            }
            Ok(signed) => self.route(request, signed.as_ref()).await,
            Err(rejection) => Err(rejection),
        };
        let mut reply = match routed {
            Ok(mut reply) => {
                if packs {
                    compress(&mut reply);
                }
                reply
            }
            Err(Rejection(status, error)) => {
                let mut reply = written(Form::Json, &ErrorReply { error });
                *reply.status_mut() = status;
                match status {
                    StatusCode::UNAUTHORIZED => {
                        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                    }
                    StatusCode::METHOD_NOT_ALLOWED => {
                        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
                    }
                    _ => {}
                }
                reply
            }
        };
        if let (Some(signed), Some(token)) = (&signed, &self.config.token) {
            sign(&mut reply, signed, token, self.fresh().challenge(Instant::now()));
        }
        reply.into_full()
    }

    /// Reads a body to its end and forgets it. A connection whose request was not read is closed, and a caller that is still
    /// sending may then never hear what it is to sign its requests over.
    async fn pass_over(&self, request: Request<Incoming>) {
        let mut body = Limited::new(request.into_body(), self.config.largest_body);
        let end = async { while let Some(Ok(_)) = body.frame().await {} };
        // Who is slow, or sends too much, is cut off by the answer.
        let _ = timeout(BODY_PATIENCE, end).await;
    }

    fn fresh(&self) -> MutexGuard<'_, Freshness> {
        // Consistent after every statement.
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, signed: &Signed) -> bool {
        self.fresh().admits(signed.challenge, signed.nonce, Instant::now())
    }

    /// Whether the caller has the token: it says it, or has signed the request.
    fn admit(&self, request: &Request<Incoming>) -> Result<Option<Signed>, Rejection> {
        let Some(token) = &self.config.token else { return Ok(None) };
        let shown = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if token.admits(shown) {
            return Ok(None);
        }
        let call = proof::Call {
            method: request.method().as_str(),
            path: request.uri().path(),
            range: text_of(request.headers(), &RANGE),
            content_type: text_of(request.headers(), &CONTENT_TYPE),
            content_encoding: text_of(request.headers(), &CONTENT_ENCODING),
        };
        match shown.and_then(|shown| Signed::admit(token, shown, call)) {
            Some(signed) => Ok(Some(signed)),
            None => {
                let error = "missing or wrong token: send `Authorization: Bearer TOKEN`".to_owned();
                Err(Rejection(StatusCode::UNAUTHORIZED, error))
            }
        }
    }

    async fn route(&self, request: Request<Incoming>, signed: Option<&Signed>) -> Result<Answer, Rejection> {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/lease") => {
                let (form, call) = self.body(request, signed).await?;
                Ok(written(form, &self.lease(call).await?))
            }
            (&Method::POST, "/v1/heartbeat") => {
                let (form, call) = self.body(request, signed).await?;
                Ok(written(form, &self.heartbeat(&call)?))
            }
            (&Method::POST, "/v1/results") => {
                let (form, call) = self.body(request, signed).await?;
                Ok(written(form, &self.results(call).await?))
            }
            (&Method::GET, "/v1/status") => Ok(written(Form::Json, &self.fleet.status()?)),
            (&Method::GET, "/metrics") => Ok(metrics(&self.fleet.status()?)),
            (method, "/v1/lease" | "/v1/heartbeat" | "/v1/results" | "/v1/status" | "/metrics") => {
                Err(Rejection(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this path")))
            }
            (&Method::GET, path) if path.starts_with(FILES) => {
                let range = request.headers().get(RANGE).map(|v| v.as_bytes().to_vec());
                let name = path.strip_prefix(FILES).unwrap_or_default().to_owned();
                self.file(&name, range.as_deref()).await
            }
            (_, path) => Err(Rejection(StatusCode::NOT_FOUND, format!("there is nothing at {path}"))),
        }
    }

    /// An item of the shelf, or the part of it that the request's `Range` names.
    async fn file(&self, name: &str, range: Option<&[u8]>) -> Result<Answer, Rejection> {
        let (from, most) = match range {
            None => (0, LARGEST_PART),
            Some(range) => read_range(range).ok_or_else(|| {
                let error = "range: send `bytes=FIRST-LAST` or `bytes=FIRST-`".to_owned();
                Rejection(StatusCode::RANGE_NOT_SATISFIABLE, error)
            })?,
        };
        let unreadable =
            |error: String| Rejection(StatusCode::SERVICE_UNAVAILABLE, format!("{name}: {error}"));
        let (shelf, wanted) = (self.config.shelf.clone(), name.to_owned());
        let part = spawn_blocking(move || shelf.read(&wanted, from, most.min(LARGEST_PART))).await;
        let part = part.map_err(|e| unreadable(e.to_string()))?.map_err(|e| unreadable(e.to_string()))?;
        let part = part
            .ok_or_else(|| Rejection(StatusCode::NOT_FOUND, format!("no file {name:?} is laid out here")))?;
        let whole = from == 0 && part.bytes.len() as u64 == part.total;
        if range.is_none() && !whole {
            let error = format!("{name} has {} bytes; ask for them in ranges", part.total);
            return Err(Rejection(StatusCode::PAYLOAD_TOO_LARGE, error));
        }
        let last = (from + part.bytes.len() as u64).saturating_sub(1);
        let content_range = match part.bytes.len() {
            0 => format!("bytes */{}", part.total),
            _ => format!("bytes {from}-{last}/{}", part.total),
        };
        let mut reply = Response::new(part.bytes);
        let kind = HeaderValue::from_static("application/octet-stream");
        reply.headers_mut().insert(CONTENT_TYPE, kind);
        if range.is_some() {
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            if let Ok(value) = HeaderValue::from_str(&content_range) {
                reply.headers_mut().insert(CONTENT_RANGE, value);
            }
        }
        Ok(reply)
    }

    async fn lease(&self, call: LeaseRequest) -> Result<LeaseReply, Rejection> {
        if !(call.wait_s.is_finite() && call.wait_s >= 0.0) {
            return Err(Rejection(
                StatusCode::BAD_REQUEST,
                "wait_s is a number of seconds, 0 or more".into(),
            ));
        }
        let wait = Duration::from_secs_f64(call.wait_s.min(1e6)).min(self.config.longest_wait);
        let capacity = call.capacity.min(LARGEST_CAPACITY);
        let granted = timeout(wait, self.fleet.lease_when_any(&call.worker, &call.kind, capacity)).await;
        let grant = match granted {
            Ok(grant) => grant?,
            Err(_) => self.fleet.no_grant()?,
        };
        let lease_s = grant.lease_time.as_secs_f64();
        Ok(LeaseReply { tasks: grant.leases, lease_s, drain: grant.drain })
    }

    fn heartbeat(&self, call: &HeartbeatRequest) -> Result<HeartbeatReply, Rejection> {
        let beat = self.fleet.beat(&call.worker, &call.tasks)?;
        let lease_s = beat.lease_time.as_secs_f64();
        Ok(HeartbeatReply { abandon: beat.abandon, lease_s, drain: beat.drain })
    }

    async fn results(&self, call: ResultsRequest) -> Result<ResultsReply, Rejection> {
        let mut reported = self.fleet.take_reports(&call.worker, call.results)?;
        // In vain if the consumer is slow: then the worker hears that it has to wait, and asks again.
        if let Ok(settled) = timeout(LONGEST_HOLD, reported.settled()).await {
            settled?;
        }
        Ok(ResultsReply { receipts: reported.receipts()? })
    }

    /// Reads, unpacks and parses a request's body.
    async fn body<T: DeserializeOwned + Send + 'static>(
        &self,
        request: Request<Incoming>,
        signed: Option<&Signed>,
    ) -> Result<(Form, T), Rejection> {
        let kind = text_of(request.headers(), &CONTENT_TYPE);
        let Some(form) = Form::of(kind) else {
            let known = [Form::Json, Form::Binary].map(Form::content_type).join(" or ");
            let error = format!("content-type {kind:?}: send {known} (is the worker of another version?)");
            return Err(Rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        };
        let packed = match text_of(request.headers(), &CONTENT_ENCODING) {
            "" | "identity" => false,
            "zstd" => true,
            other => {
                let error = format!("content-encoding {other:?}: send zstd or none");
                return Err(Rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
            }
        };
        let limit = self.config.largest_body;
        let collected = timeout(BODY_PATIENCE, Limited::new(request.into_body(), limit).collect()).await;
        let bytes = match collected {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
            Ok(Err(error)) => {
                return Err(Rejection(StatusCode::BAD_REQUEST, format!("the body broke off: {error}")));
            }
            Err(_) => return Err(Rejection(StatusCode::REQUEST_TIMEOUT, "the body took too long".into())),
        };
        if signed.is_some_and(|signed| !signed.has_body(&bytes)) {
            let error = "this is not the body that was signed".to_owned();
            return Err(Rejection(StatusCode::UNAUTHORIZED, error));
        }
        let size = if packed { unpacked_size(&bytes, limit)? } else { bytes.len() };
        // Held until the body is read, so that many bodies that unpack to much take their turns.
        let _room = if packed { Some(self.room_for(size).await?) } else { None };
        let read = move || parse(&bytes, packed.then_some(size), form);
        if size < LARGE {
            return Ok((form, read()?));
        }
        let read = spawn_blocking(read).await.unwrap_or_else(|e| {
            Err(Rejection(StatusCode::INTERNAL_SERVER_ERROR, format!("the body could not be read: {e}")))
        });
        Ok((form, read?))
    }

    async fn room_for(&self, size: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let units = u32::try_from(size.div_ceil(UNPACKING_UNIT)).unwrap_or(u32::MAX);
        match timeout(BODY_PATIENCE, Arc::clone(&self.unpacking).acquire_many_owned(units)).await {
            Ok(Ok(room)) => Ok(room),
            _ => {
                let error = "too many large bodies at a time; send it again".to_owned();
                Err(Rejection(StatusCode::SERVICE_UNAVAILABLE, error))
            }
        }
    }
}

/// A header's text; empty if there is none, or none that is text.
fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Proves to who signed a request that its answer is ours, and tells what the next is to be signed over.
fn sign(reply: &mut Answer, signed: &Signed, token: &Token, challenge: Nonce) {
    let challenge = proof::hex(&challenge);
    let headers = reply.headers();
    let head = proof::Reply {
        status: reply.status().as_u16(),
        challenge: &challenge,
        content_type: text_of(headers, &CONTENT_TYPE),
        content_encoding: text_of(headers, &CONTENT_ENCODING),
        content_range: text_of(headers, &CONTENT_RANGE),
    };
    let shown = signed.sign_answer(token, head, reply.body());
    for (name, value) in [(proof::ANSWER, shown), (proof::CHALLENGE, challenge)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            reply.headers_mut().insert(name, value);
        }
    }
}

/// What a packed body says that it unpacks to; the limit, if it does not say.
fn unpacked_size(bytes: &[u8], limit: usize) -> Result<usize, Rejection> {
    let said = zstd::zstd_safe::get_frame_content_size(bytes);
    let said = said.map_err(|_| Rejection(StatusCode::BAD_REQUEST, "not zstd".into()))?;
    let size = said.map_or(limit, |size| usize::try_from(size).unwrap_or(usize::MAX));
    if size > limit { Err(too_large(limit)) } else { Ok(size) }
}

/// Offset and number of bytes, out of `bytes=FIRST-LAST`.
fn read_range(header: &[u8]) -> Option<(u64, usize)> {
    let (first, last) = std::str::from_utf8(header).ok()?.trim().strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    if last.is_empty() {
        return Some((first, usize::MAX));
    }
    let number = last.parse::<u64>().ok()?.checked_sub(first)?.checked_add(1)?;
    Some((first, usize::try_from(number).unwrap_or(usize::MAX)))
}

fn too_large(limit: usize) -> Rejection {
    Rejection(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {limit} bytes; send fewer results at a time"),
    )
}

/// `packed`: to how many bytes it may unpack.
fn parse<T: DeserializeOwned>(bytes: &[u8], packed: Option<usize>, form: Form) -> Result<T, Rejection> {
    let bad = |error: String| Rejection(StatusCode::BAD_REQUEST, error);
    let mut unpacked = Vec::new();
    let bytes = match packed {
        Some(size) => {
            let decoder = zstd::stream::Decoder::new(bytes).map_err(|e| bad(format!("not zstd: {e}")))?;
            let most = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
            decoder.take(most).read_to_end(&mut unpacked).map_err(|e| bad(format!("not zstd: {e}")))?;
            if unpacked.len() > size {
                return Err(too_large(size));
            }
            &unpacked
        }
        None => bytes,
    };
    form.read(bytes).map_err(|e| bad(format!("the body is not what this call takes: {e}")))
}

/// A reply whose body may still be compressed.
type Answer = Response<Vec<u8>>;

trait IntoFull {
    fn into_full(self) -> Reply;
}

impl IntoFull for Answer {
    fn into_full(self) -> Reply {
        self.map(|body| Full::new(Bytes::from(body)))
    }
}

fn written(form: Form, value: &impl Serialize) -> Answer {
    // Our own plain data with string keys: serialising it cannot fail.
    let mut reply = Response::new(form.write(value).unwrap_or_default());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    reply
}

fn compress(reply: &mut Answer) {
    if reply.body().len() < COMPRESS_FROM {
        return;
    }
    if let Ok(packed) = zstd::bulk::compress(reply.body(), 1) {
        *reply.body_mut() = packed;
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
    }
}

/// The board in Prometheus' text format.
fn metrics(status: &BoardStatus) -> Answer {
    use std::fmt::Write;
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP sgs_fleet_{name} {help}\n# TYPE sgs_fleet_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "sgs_fleet_{name}{labels} {value}");
        }
    };
    let by_kind = |value: fn(&crate::board::KindStatus) -> f64| -> Vec<(String, f64)> {
        status.kinds.iter().map(|k| (format!("{{kind=\"{}\"}}", k.kind), value(k))).collect()
    };
    family("tasks_pending", "gauge", "Tasks waiting for a worker.", &by_kind(|k| k.pending as f64));
    family("tasks_leased", "gauge", "Tasks in the hands of workers.", &by_kind(|k| k.leased as f64));
    family("tasks_undelivered", "gauge", "Ended tasks not yet consumed.", &by_kind(|k| k.undelivered as f64));
    family(
        "held_back",
        "gauge",
        "1 while back-pressure holds a kind.",
        &by_kind(|k| f64::from(u8::from(k.held_back))),
    );
    let longest = by_kind(|k| k.longest_running_s.unwrap_or(0.0));
    family("longest_running_seconds", "gauge", "Age of the oldest single lease.", &longest);
    let one = |value: f64| vec![(String::new(), value)];
    family("workers", "gauge", "Workers known.", &one(status.workers.len() as f64));
    family(
        "stalled_seconds",
        "gauge",
        "Time in which workers held tasks since the last outcome.",
        &one(status.stalled_s),
    );
    let benched = status.workers.iter().filter(|w| w.benched_s > 0.0).count();
    family("workers_benched", "gauge", "Workers that pause because they only failed.", &one(benched as f64));
    let busy = status.workers.iter().filter(|w| w.leases > 0).count();
    family("workers_busy", "gauge", "Workers that hold leases.", &one(busy as f64));
    family(
        "infra_rate",
        "gauge",
        "Share of leases that ended by a fault of the infrastructure.",
        &one(status.infra_rate()),
    );
    let c = &status.counters;
    for (name, value, help) in [
        ("submitted", c.submitted, "Tasks put on the board."),
        ("done", c.done, "Tasks with an outcome."),
        ("quarantined", c.quarantined, "Tasks given up."),
        ("cancelled", c.cancelled, "Tasks cancelled."),
        ("leases", c.leases, "Leases granted."),
        ("copies", c.copies, "Leases that were second copies."),
        ("died", c.died, "Leases whose worker was gone."),
        ("crashed", c.crashed, "Leases whose worker brought itself down."),
        ("failed", c.failed, "Leases that a worker reported as failed."),
        ("rejected", c.rejected, "Outcomes that the consumer could not use."),
        ("lost", c.lost, "Leases that their worker never heard of."),
        ("returned", c.returned, "Leases given back."),
        ("revived", c.revived, "Expired leases that came back to life."),
        ("adopted", c.adopted, "Leases of a coordinator before this one that went on."),
        ("late", c.late, "Outcomes accepted after their lease had expired."),
        ("duplicates", c.duplicates, "Reports of what had ended before."),
        ("refused", c.refused, "Reports of leases that the sender never had."),
    ] {
        family(&format!("{name}_total"), "counter", help, &one(value as f64));
    }
    let mut reply = Response::new(text.into_bytes());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}
