//! The server of the live page, with one thread for all connections.

use super::LiveStatus;
use crate::report::{ReportOptions, fragment, navigation, page};
use crate::run::RunData;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use sgs_http::{ServiceThread, accept, serve_connection};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

const LIVE_BEFORE: &str = include_str!("status.html");
const LIVE_SCRIPT: &str = include_str!("live.js");

/// Address and access of the live page.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Address and port; port 0 selects a free one. Without a `token`, it must be a loopback address.
    pub address: SocketAddr,
    /// Token that a browser must send as `?token=…`. It is required for addresses other than loopback.
    pub token: Option<String>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None }
    }
}

impl LiveOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// Returns an error if other machines could reach the page without a token, or if the token has invalid characters.
    pub fn check(&self) -> Result<(), LiveError> {
        if !self.address.ip().is_loopback() && self.token.is_none() {
            return Err(LiveError::Open(self.address));
        }
        match &self.token {
            Some(token) if !is_token(token) => Err(LiveError::Token),
            _ => Ok(()),
        }
    }
}

/// An error of starting the live page.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The address can be reached from other machines, and there is no token.
    #[error(
        "{0} can be reached from other machines: give --token (or SGS_PAGE_TOKEN), or serve at 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The token has invalid characters.
    #[error("the token must be 8 to 128 letters, digits, '-' or '_'")]
    Token,
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}; choose another port, or 0 for any free one")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
}

/// State that all connections share.
struct LiveShared {
    state: watch::Sender<LiveState>,
    /// Number of open event streams.
    listeners: AtomicUsize,
    /// Number of pages that have received the newest figures.
    taken: AtomicUsize,
    token: Option<String>,
    is_loopback: bool,
}

/// The current content.
#[derive(Clone, Default)]
struct LiveState {
    version: u64,
    status_version: u64,
    page: Bytes,
    fragment: Bytes,
    status: Arc<str>,
    /// Whether the server is stopping.
    is_over: bool,
}

/// Maximum number of connections. Further ones are rejected.
const MOST_CONNECTIONS: usize = 64;

/// Maximum number of connections that are being rejected. Further ones are closed without a response.
const MOST_TURNED_AWAY: usize = 16;

/// A live page that is served until this value is dropped.
pub struct LiveServer {
    shared: Arc<LiveShared>,
    address: SocketAddr,
    versions: AtomicU64,
    _thread: ServiceThread,
}

/// Timeout for receiving the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);

/// Timeout for receiving the head of a request that is rejected.
const AWAY_PATIENCE: Duration = Duration::from_millis(500);

/// Timeout for sending a response. It allows for slow connections.
const ANSWER_PATIENCE: Duration = Duration::from_secs(600);

/// Timeout for sending an event.
const EVENT_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time that stopping waits for open event streams to end.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Interval of keep-alive messages on an idle event stream, which detect closed pages.
const STILL_HERE: Duration = Duration::from_secs(10);

impl LiveServer {
    /// Starts the server. The page is empty until [`LiveServer::publish`] is called.
    ///
    /// # Errors
    /// Returns an error if the options are invalid or the address cannot be bound.
    pub fn start(options: &LiveOptions) -> Result<Self, LiveError> {
        options.check()?;
        let is_loopback = options.address.ip().is_loopback();
        let bind = |error| LiveError::Bind { address: options.address, error };
        let thread = ServiceThread::start("live-page").map_err(bind)?;
        let (listener, address) = thread.listen(options.address).map_err(bind)?;
        let shared = Arc::new(LiveShared {
            state: watch::Sender::new(LiveState { status: "{}".into(), ..LiveState::default() }),
            listeners: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            token: options.token.clone(),
            is_loopback,
        });
        thread.handle().spawn(welcome(listener, Arc::clone(&shared)));
        let server = Self { shared, address, versions: AtomicU64::new(0), _thread: thread };
        server.publish(&[], &ReportOptions::default());
        Ok(server)
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        let token = self.shared.token.as_ref().map_or_else(String::new, |t| format!("?token={t}"));
        format!("http://{}/{token}", self.address)
    }

    /// Shows these runs and updates open pages.
    pub fn publish(&self, runs: &[RunData], options: &ReportOptions) {
        let fragment = fragment(runs, options);
        let version = self.versions.fetch_add(1, Ordering::SeqCst) + 1;
        let parts: Vec<_> = fragment.parts.iter().map(|p| [p.id.clone(), p.tag(), p.html()]).collect();
        let json = serde_json::json!({
            "version": version, "title": fragment.title, "parts": parts, "nav": navigation(&fragment),
        });
        // The page contains its version, so that it does not miss updates while it is loading.
        let script = format!("window.sgsVersion={version};{LIVE_SCRIPT}");
        let page = page(&fragment, Some((LIVE_BEFORE, &script)));
        self.shared.state.send_if_modified(|state| {
            let is_newest = state.version < version;
            if is_newest {
                state.version = version;
                state.page = page.into();
                state.fragment = json.to_string().into();
                self.shared.taken.store(0, Ordering::SeqCst);
            }
            is_newest
        });
    }

    /// Waits until every open page has received the newest figures, at most for `patience`.
    pub fn settle(&self, patience: Duration) {
        let start = Instant::now();
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        while count(&self.shared.taken) < count(&self.shared.listeners) && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Updates the status. This is cheap enough for several calls per second.
    #[allow(clippy::expect_used, reason = "its maps have text keys, and nothing else can fail")]
    pub fn set_status(&self, status: &LiveStatus) {
        let json = serde_json::to_string(status).expect("invariant: a status is JSON");
        self.shared.state.send_if_modified(|state| {
            let is_new = *state.status != *json;
            if is_new {
                state.status_version += 1;
                state.status = json.into();
            }
            is_new
        });
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.is_over = true);
        // Wait for event streams to end, but not for a browser that does not respond.
        let start = Instant::now();
        while self.shared.listeners.load(Ordering::SeqCst) > 0 && start.elapsed() < LAST_WAIT {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_token(token: &str) -> bool {
    (8..=128).contains(&token.len())
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

async fn welcome(listener: TcpListener, shared: Arc<LiveShared>) {
    let (room, door) = [MOST_CONNECTIONS, MOST_TURNED_AWAY].map(|n| Arc::new(Semaphore::new(n))).into();
    loop {
        let stream = accept(&listener).await;
        if let Ok(seat) = Arc::clone(&room).try_acquire_owned() {
            let visit = Arc::new(PageConnection::of(&shared));
            tokio::spawn(async move {
                visit.serve(stream).await;
                drop(seat);
            });
        } else if let Ok(seat) = Arc::clone(&door).try_acquire_owned() {
            tokio::spawn(async move {
                let full = |_| async { plain(StatusCode::SERVICE_UNAVAILABLE, "too many open pages\n") };
                // An error concerns only this client.
                let _ = timeout(2 * AWAY_PATIENCE, serve_connection(stream, AWAY_PATIENCE, full)).await;
                drop(seat);
            });
        }
    }
}

type LiveResponse = Response<Either<Full<Bytes>, Channel<Bytes>>>;

/// A connection with one request and its response.
struct PageConnection {
    shared: Arc<LiveShared>,
    /// Whether it is an event stream.
    listens: AtomicBool,
    /// Whether the event stream has ended.
    has_heard: AtomicBool,
    /// Version of the figures that were sent; 0 for none.
    sent: AtomicU64,
}

impl PageConnection {
    fn of(shared: &Arc<LiveShared>) -> Self {
        let [listens, has_heard] = [false; 2].map(AtomicBool::new);
        Self { shared: Arc::clone(shared), listens, has_heard, sent: AtomicU64::new(0) }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let answer = |request| {
            let visit = Arc::clone(&self);
            async move { visit.answer(&request) }
        };
        let mut talk = std::pin::pin!(serve_connection(stream, HEAD_PATIENCE, answer));
        let is = |what: &AtomicBool| what.load(Ordering::SeqCst);
        let mut is_whole = false;
        while !is_whole {
            is_whole = timeout(ANSWER_PATIENCE, &mut talk).await.is_ok();
            if !is(&self.listens) || is(&self.has_heard) {
                break;
            }
        }
        if is(&self.listens) {
            self.shared.listeners.fetch_sub(1, Ordering::SeqCst);
        }
        let state = self.shared.state.borrow();
        if is_whole && self.sent.load(Ordering::SeqCst) == state.version {
            self.shared.taken.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn answer(self: Arc<Self>, request: &Request<Incoming>) -> LiveResponse {
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n");
        }
        if !is_allowed(&self.shared, request) {
            return plain(StatusCode::FORBIDDEN, "wrong host or token\n");
        }
        let state = self.shared.state.borrow().clone();
        match request.uri().path() {
            "/" => {
                self.sent.store(state.version, Ordering::SeqCst);
                whole(StatusCode::OK, "text/html; charset=utf-8", state.page)
            }
            "/fragment" => {
                self.sent.store(state.version, Ordering::SeqCst);
                whole(StatusCode::OK, "application/json", state.fragment)
            }
            "/status" => whole(StatusCode::OK, "application/json", state.status.to_string()),
            "/events" => {
                let (to, events) = Channel::new(1);
                self.listens.store(true, Ordering::SeqCst);
                self.shared.listeners.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(self.tell(to));
                headed(StatusCode::OK, "text/event-stream", Either::Right(events))
            }
            _ => plain(StatusCode::NOT_FOUND, "nothing here\n"),
        }
    }

    /// Sends events until the page is closed or too slow.
    async fn tell(self: Arc<Self>, mut to: Sender<Bytes>) {
        let mut changes = self.shared.state.subscribe();
        let (mut version, mut status_version) = (0, u64::MAX);
        let mut told = "retry: 2000\n\n".to_owned();
        loop {
            let now = changes.borrow_and_update().clone();
            if now.version != version {
                version = now.version;
                told += &event("version", &version.to_string());
            }
            if now.status_version == status_version {
                told += ": here\n\n";
            } else {
                status_version = now.status_version;
                told += &event("status", &now.status);
            }
            let sent = to.send_data(std::mem::take(&mut told).into());
            let is_sent = matches!(timeout(EVENT_PATIENCE, sent).await, Ok(Ok(())));
            if !is_sent || now.is_over {
                break;
            }
            let _ = timeout(STILL_HERE, changes.changed()).await;
        }
        self.has_heard.store(true, Ordering::SeqCst);
    }
}

/// `data` must be a single line.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn plain(status: StatusCode, text: &'static str) -> LiveResponse {
    whole(status, "text/plain", text)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> LiveResponse {
    headed(status, kind, Either::Left(Full::new(body.into())))
}

/// A response after which the connection is closed.
fn headed(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, Channel<Bytes>>) -> LiveResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (CONNECTION, "close"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Returns whether a request is authorised: by the token, or on loopback by a host name of this machine. The host name
/// prevents DNS rebinding by other sites.
fn is_allowed(shared: &LiveShared, request: &Request<Incoming>) -> bool {
    if let Some(token) = &shared.token {
        let given =
            request.uri().query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
        return given.is_some_and(|given| same(given.as_bytes(), token.as_bytes()));
    }
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = host.trim_start_matches('[').trim_end_matches(']');
    shared.is_loopback
        && (name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

/// Compares in constant time for equal lengths.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}
