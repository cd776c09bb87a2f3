//! HTTP server: authentication, routes and request bodies.

use crate::engine::{ModelEngine, WeightLoad};
use crate::protocol::{InvalidField, RpcParams, UpdateParams, error};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sgs_endpoint::ApiKey;
use sgs_http::{RequestBody, ServiceThread, Visitor, check_request};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Maximum size of a small request body, in bytes.
const SMALL_BODY: usize = 64 << 10;
/// Maximum number of bodies that are being received or parsed after more than [`SMALL_BODY`] bytes of each have
/// arrived; further ones wait.
const MAX_LARGE_BODIES: usize = 32;
/// Maximum number of small bodies, and of larger ones, that are being parsed and tokenized at a time; further ones wait.
const MAX_PARSERS: usize = 2;
/// Timeout of the head, and of a small body, of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of the rest of a larger body. It is extended by the time that the received bytes take at [`MIN_RATE`].
const LARGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum rate at which a larger body must arrive, in bytes per second.
const MIN_RATE: f64 = 128.0 * 1024.0;
/// Maximum number of connections. Requests of further ones are rejected.
const MAX_CONNECTIONS: usize = 512;

/// The calls that change the state of the server for all clients. They require a key.
const CONTROL_CALLS: [&str; 8] = [
    "/update_weights_from_disk",
    "/pause_generation",
    "/continue_generation",
    "/sleep",
    "/wake_up",
    "/collective_rpc",
    "/flush_cache",
    "/reset_prefix_cache",
];

/// Configuration of a [`ModelServer`].
#[derive(Clone, Debug)]
pub struct ModelServerConfig {
    /// Address to listen on. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// API key of the clients. Without a key, the server listens only on loopback, and clients cannot change its state.
    pub key: Option<ApiKey>,
    /// Name of the model.
    pub name: String,
    /// Folder from which clients with the key may load new weights; `None` forbids updates.
    pub updates: Option<PathBuf>,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ModelServerError {
    /// It would be open to the network without a key.
    #[error("refusing to listen on {0} without a key: give one (`--key-file`), or listen on 127.0.0.1")]
    Unprotected(SocketAddr),
    /// Clients without a key would be allowed to replace the weights.
    #[error("refusing weight updates from {0} without a key: provide one in a file")]
    OpenUpdates(PathBuf),
    /// The address is unavailable.
    #[error("cannot listen on {0}: {1}; choose another port, or 0 for any free one")]
    Listen(SocketAddr, std::io::Error),
    /// The folder for updates is inaccessible.
    #[error("{0}: {1}")]
    Updates(PathBuf, std::io::Error),
}

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    _thread: ServiceThread,
}

pub(crate) type BoxedResponse = Response<BoxBody<Bytes, Infallible>>;

/// A rejected request.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    message: String,
    field: Option<&'static str>,
}

impl HttpError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), field: None }
    }

    pub fn bad(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message.to_string())
    }

    pub fn failed(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }

    pub fn gone() -> Self {
        Self::failed("the sampler has stopped")
    }

    fn reply(&self) -> BoxedResponse {
        let mut reply = plain(self.status, &error(self.status.as_u16(), &self.message, self.field));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        reply
    }
}

impl From<InvalidField> for HttpError {
    fn from(InvalidField { field, problem }: InvalidField) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: problem, field: Some(field) }
    }
}

/// State shared by all request handlers.
pub(crate) struct ServerState {
    pub engine: ModelEngine,
    pub tokenizer: Tokenizer,
    pub config: ModelServerConfig,
    /// Folder that the model was first loaded from, which `reload_weights` loads again.
    initial_folder: PathBuf,
    /// Unix time of the start, in seconds.
    pub started: u64,
    pub requests: AtomicU64,
    large_bodies: Semaphore,
    /// Permits to parse small bodies, and larger ones.
    parsers: [Arc<Semaphore>; 2],
    /// One permit: weights are loaded one after another.
    loads: Arc<Semaphore>,
}

impl ModelServer {
    /// Binds the address and starts the server's thread.
    ///
    /// # Errors
    /// Returns an error if the configuration is unsafe, or the address or the folder for updates is unavailable.
    pub fn start(
        engine: ModelEngine,
        tokenizer: Tokenizer,
        mut config: ModelServerConfig,
    ) -> Result<Self, ModelServerError> {
        let listen = config.listen;
        if config.key.is_none() && !listen.ip().is_loopback() {
            return Err(ModelServerError::Unprotected(listen));
        }
        if let Some(folder) = &mut config.updates {
            if config.key.is_none() {
                return Err(ModelServerError::OpenUpdates(folder.clone()));
            }
            // Use the canonical path, because it is compared with canonical paths.
            *folder = folder.canonicalize().map_err(|e| ModelServerError::Updates(folder.clone(), e))?;
        }
        let failed = |error| ModelServerError::Listen(listen, error);
        let thread = ServiceThread::start("completions").map_err(failed)?;
        let (listener, address) = thread.listen(listen).map_err(failed)?;
        let initial_folder = PathBuf::from(engine.served().folder);
        let state = Arc::new(ServerState {
            engine,
            tokenizer,
            config,
            initial_folder,
            started: now(),
            requests: AtomicU64::new(0),
            large_bodies: Semaphore::new(MAX_LARGE_BODIES),
            parsers: [(); 2].map(|()| Arc::new(Semaphore::new(MAX_PARSERS))),
            loads: Arc::new(Semaphore::new(1)),
        });
        let connect = move |visitor| {
            let state = Arc::clone(&state);
            move |request| Arc::clone(&state).answer(request, visitor)
        };
        thread.handle().spawn(sgs_http::serve(listener, MAX_CONNECTIONS, REQUEST_TIMEOUT, connect));
        Ok(Self { address, _thread: thread })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn no_route(method: &Method, path: &str) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, format!("no such route: {method} {path}"))
}

impl ServerState {
    async fn answer(self: Arc<Self>, request: Request<RequestBody>, visitor: Visitor) -> BoxedResponse {
        self.route(request, visitor).await.unwrap_or_else(|error| error.reply())
    }

    async fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
        visitor: Visitor,
    ) -> Result<BoxedResponse, HttpError> {
        check_request(&request, self.config.key.is_some())
            .map_err(|(status, why)| HttpError::new(status, why))?;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        match (method, path.as_str()) {
            // With a key, this answers any host and needs no key, because the probe of a load balancer names its own host.
            // A web page of another site can learn from it only that the server runs.
            (Method::GET, "/health" | "/ping") => Ok(plain(StatusCode::OK, &json!({ "status": "ok" }))),
            _ if visitor.is_extra => {
                let why = format!("all {MAX_CONNECTIONS} connections are in use; retry later");
                Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, why))
            }
            _ if !self.is_authorized(&request) => {
                Err(HttpError::new(StatusCode::UNAUTHORIZED, "missing or wrong API key"))
            }
            (Method::GET, "/v1/models") => Ok(plain(StatusCode::OK, &self.models())),
            (Method::GET, "/get_model_info" | "/model_info") => Ok(plain(StatusCode::OK, &self.info())),
            (Method::POST, "/v1/completions") => self.complete(request, visitor.address).await,
            (Method::POST, "/generate") => self.generate(request, visitor.address).await,
            (Method::POST, path) if CONTROL_CALLS.contains(&path) => self.control(path, request).await,
            (method, path) => Err(no_route(&method, path)),
        }
    }

    /// Answers one of the [`CONTROL_CALLS`].
    async fn control(&self, path: &str, request: Request<RequestBody>) -> Result<BoxedResponse, HttpError> {
        if self.config.key.is_none() {
            let why = format!(
                "{path} changes the state of this server for all clients: start the server with a key (`--key-file FILE`)"
            );
            return Err(HttpError::new(StatusCode::FORBIDDEN, why));
        }
        let done = |is_done: bool| Ok(plain(StatusCode::OK, &json!({ "success": is_done })));
        match path {
            "/update_weights_from_disk" => self.update(request).await,
            "/pause_generation" | "/sleep" => done(self.engine.pause(true)),
            "/continue_generation" => done(self.engine.pause(false)),
            // After only the weights have been woken, the server is not ready yet.
            "/wake_up" => done(self.engine.pause(request.uri().query() == Some("tags=weights"))),
            "/collective_rpc" => self.collective_rpc(request).await,
            // Nothing stays cached after the completions of a prompt have ended.
            "/flush_cache" | "/reset_prefix_cache" => done(true),
            path => Err(no_route(&Method::POST, path)),
        }
    }

    fn is_authorized(&self, request: &Request<RequestBody>) -> bool {
        let Some(key) = &self.config.key else { return true };
        let shown = request.headers().get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
        key.matches(shown.unwrap_or_default())
    }

    fn models(&self) -> Value {
        let served = self.engine.served();
        json!({ "object": "list", "data": [{
            "id": self.config.name, "object": "model", "created": self.started, "owned_by": "sgs",
            "max_model_len": served.window, "meta": { "n_vocab": served.vocabulary },
        }] })
    }

    fn info(&self) -> Value {
        let served = self.engine.served();
        json!({
            "model_path": served.folder, "tokenizer_path": served.folder, "is_generation": true,
            "weight_version": served.weights,
        })
    }

    /// Loads weights, as SGLang does. Completions in progress finish with the old weights; later ones wait.
    async fn update(&self, request: Request<RequestBody>) -> Result<BoxedResponse, HttpError> {
        let UpdateParams { model_path, weight_version } = self.read(request, parse).await?;
        let held = self.load(Path::new(&model_path), weight_version).await?;
        Ok(plain(
            StatusCode::OK,
            &json!({ "success": true, "message": "the weights are loaded", "num_paused_requests": held }),
        ))
    }

    /// Calls a method on all workers, as vLLM does. Supports only `reload_weights`.
    async fn collective_rpc(&self, request: Request<RequestBody>) -> Result<BoxedResponse, HttpError> {
        let RpcParams { method } = self.read(request, parse).await?;
        if method != "reload_weights" {
            return Err(HttpError::bad(format!("unknown method `{method}`; expected `reload_weights`")));
        }
        self.load(&self.initial_folder, None).await?;
        Ok(plain(StatusCode::OK, &json!({ "results": [null] })))
    }

    /// Loads the weights of a folder. Returns the number of completions that were held back.
    async fn load(&self, folder: &Path, name: Option<String>) -> Result<usize, HttpError> {
        let Some(allowed) = &self.config.updates else {
            let why = "weight updates are disabled; enable them with `--updates DIR`";
            return Err(HttpError::new(StatusCode::FORBIDDEN, why));
        };
        let shown = folder.display();
        let path = folder.canonicalize().map_err(|e| HttpError::bad(format!("{shown}: {e}")))?;
        if !path.starts_with(allowed) {
            return Err(HttpError::bad(format!("{shown} is not below {}", allowed.display())));
        }
        let permit = Arc::clone(&self.loads).try_acquire_owned();
        let permit = permit.map_err(|_| HttpError::bad("other weights are being loaded"))?;
        let folder = path.display().to_string();
        // The permit stays with the weights, even if the client disconnects.
        let read = spawn_blocking(move || HostWeights::load(&path).map(|weights| (weights, permit))).await;
        let (weights, permit) = read.map_err(HttpError::failed)?.map_err(HttpError::bad)?;
        let (done, result) = oneshot::channel();
        let name = name.unwrap_or_else(|| format!("loaded-{}", now()));
        self.engine.load(WeightLoad { weights, folder, name, done, permit });
        result.await.map_err(|_| HttpError::gone())?.map_err(HttpError::bad)
    }

    /// Reads the body of a request, within the limits of time and size, and parses it on another thread.
    pub async fn read<T: Send + 'static>(
        &self,
        request: Request<RequestBody>,
        parse: impl FnOnce(&[u8]) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let too_large = || {
            let why = format!("the body is larger than {MAX_BODY} bytes");
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, why)
        };
        let mut body = request.into_body();
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        // The permit is held until the body is parsed.
        let (mut room, mut deadline) = (None, Instant::now() + REQUEST_TIMEOUT);
        loop {
            let frame = timeout_at(deadline, body.frame()).await.map_err(|_| {
                let why = format!("the body did not arrive in time: {} bytes have", bytes.len());
                HttpError::new(StatusCode::REQUEST_TIMEOUT, why)
            })?;
            let Some(frame) = frame else { break };
            let Ok(part) = frame.map_err(HttpError::bad)?.into_data() else { continue };
            let size = bytes.len() + part.len();
            if size > MAX_BODY {
                return Err(too_large());
            }
            if room.is_none() && size > SMALL_BODY {
                // The semaphore is never closed.
                room = self.large_bodies.acquire().await.ok();
                deadline = Instant::now() + LARGE_TIMEOUT;
            }
            if room.is_some() {
                deadline += Duration::from_secs_f64(part.len() as f64 / MIN_RATE);
            }
            bytes.extend_from_slice(&part);
        }
        let permit = Arc::clone(&self.parsers[usize::from(room.is_none())]).acquire_owned().await;
        let parsed = spawn_blocking(move || {
            let _permit = permit;
            parse(&bytes)
        });
        parsed.await.map_err(HttpError::failed)?
    }
}

/// Parses a body.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpError> {
    serde_json::from_slice(body).map_err(|e| HttpError::bad(format!("the body: {e}")))
}

pub(crate) fn plain(status: StatusCode, value: &Value) -> BoxedResponse {
    let mut reply = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// Returns the Unix time in seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
