//! The server of the live page, with one thread for all connections.

use super::LiveStatus;
use crate::figures::FigureOptions;
use crate::report::{PageSection, fragment, navigation, page};
use crate::run::RunData;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use sgs_http::{RequestBody, ServiceThread, Visitor, check_request, serve};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

const LIVE_STATUS: &str = include_str!("status.html");
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
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum LiveError {
    #[error(
        "{0} can be reached from other machines: give --token (or SGS_PAGE_TOKEN), or serve at 127.0.0.1"
    )]
    Open(SocketAddr),
    #[error("the token must be 8 to 128 letters, digits, '-' or '_'")]
    Token,
    #[error("cannot listen on {address}: {error}; choose another port, or 0 for any free one")]
    Bind { address: SocketAddr, error: io::Error },
}

/// State that all connections share.
struct LiveShared {
    state: watch::Sender<LiveState>,
    /// Numbers of the open event streams.
    listeners: Mutex<BTreeSet<u64>>,
    /// Number of parts of events that were sent.
    sent: AtomicU64,
    token: Option<String>,
}

impl LiveShared {
    fn listeners(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // The set is consistent after every statement.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an event stream. If there are too many, the oldest one ends; a page that still needs it connects again.
    fn add_listener(&self) -> u64 {
        let mut listeners = self.listeners();
        let number = listeners.last().map_or(0, |last| last + 1);
        listeners.insert(number);
        if listeners.len() > MOST_LISTENERS {
            listeners.pop_first();
            self.state.send_modify(|_| ());
        }
        number
    }
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

/// Maximum number of connections.
const MOST_CONNECTIONS: usize = 64;

/// Maximum number of event streams. The other connections remain for pages that are being loaded.
const MOST_LISTENERS: usize = 32;

/// A live page that is served until this value is dropped.
pub struct LiveServer {
    shared: Arc<LiveShared>,
    address: SocketAddr,
    versions: AtomicU64,
    _thread: ServiceThread,
}

/// Timeout for receiving the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a part of an event, in bytes.
const EVENT_PART: usize = 64 << 10;

/// Maximum time that stopping waits for open event streams to end.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Maximum time that stopping waits if no event stream makes progress.
const LAST_STALL: Duration = Duration::from_millis(500);

/// Interval of keep-alive messages on an idle event stream, which detect closed pages.
const STILL_HERE: Duration = Duration::from_secs(10);

impl LiveServer {
    /// Starts the server. The page is empty until [`LiveServer::publish`] is called.
    pub fn start(options: &LiveOptions) -> Result<Self, LiveError> {
        options.check()?;
        let bind = |error| LiveError::Bind { address: options.address, error };
        let thread = ServiceThread::start("live-page").map_err(bind)?;
        let (listener, address) = thread.listen(options.address).map_err(bind)?;
        let shared = Arc::new(LiveShared {
            state: watch::Sender::new(LiveState { status: "{}".into(), ..LiveState::default() }),
            listeners: Mutex::default(),
            sent: AtomicU64::new(0),
            token: options.token.clone(),
        });
        let pages = Arc::clone(&shared);
        let connect = move |visitor| {
            let page = Arc::new(PageConnection { shared: Arc::clone(&pages), listener: OnceLock::new() });
            move |request| Arc::clone(&page).answer(request, visitor)
        };
        thread.handle().spawn(serve(listener, MOST_CONNECTIONS, HEAD_PATIENCE, connect));
        let server = Self { shared, address, versions: AtomicU64::new(0), _thread: thread };
        server.publish(&[], &FigureOptions::default());
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
    pub fn publish(&self, runs: &[RunData], options: &FigureOptions) {
        let mut fragment = fragment(runs, options);
        // The current activity follows the title and the result. Open pages keep the section, because it never changes.
        fragment.parts.insert(1.min(fragment.parts.len()), PageSection::untitled("live", LIVE_STATUS));
        let version = self.versions.fetch_add(1, Ordering::SeqCst) + 1;
        let parts: Vec<_> = fragment.parts.iter().map(|p| [p.id.clone(), p.tag(), p.html(false)]).collect();
        let json = serde_json::json!({
            "version": version, "title": fragment.title, "parts": parts, "nav": navigation(&fragment),
        });
        // The page contains its version, so that it does not miss updates while it is loading.
        let script = format!("window.sgsVersion={version};{LIVE_SCRIPT}");
        let page = page(&fragment, Some(&script));
        self.shared.state.send_if_modified(|state| {
            let is_newest = state.version < version;
            if is_newest {
                state.version = version;
                state.page = page.into();
                state.fragment = json.to_string().into();
            }
            is_newest
        });
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
    /// Sends the last figures to the open pages. Waits while they make progress, but not for those that do not read.
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.is_over = true);
        let (start, mut last) = (Instant::now(), (0, Instant::now()));
        while !self.shared.listeners().is_empty() && start.elapsed() < LAST_WAIT {
            let sent = self.shared.sent.load(Ordering::SeqCst);
            if sent != last.0 {
                last = (sent, Instant::now());
            } else if last.1.elapsed() > LAST_STALL {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_token(token: &str) -> bool {
    (8..=128).contains(&token.len())
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

type LiveResponse = Response<Either<Full<Bytes>, Channel<Bytes>>>;

/// A connection with one request and its response.
struct PageConnection {
    shared: Arc<LiveShared>,
    /// Number of its event stream, if it has one.
    listener: OnceLock<u64>,
}

impl Drop for PageConnection {
    fn drop(&mut self) {
        if let Some(number) = self.listener.get() {
            self.shared.listeners().remove(number);
        }
    }
}

impl PageConnection {
    async fn answer(self: Arc<Self>, request: Request<RequestBody>, visitor: Visitor) -> LiveResponse {
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n");
        }
        if let Err((status, why)) = check_request(&request, self.shared.token.is_some()) {
            return plain(status, why);
        }
        if !has_token(self.shared.token.as_deref(), &request) {
            return plain(StatusCode::FORBIDDEN, "wrong token\n");
        }
        if visitor.is_extra {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many open pages\n");
        }
        let state = self.shared.state.borrow().clone();
        match request.uri().path() {
            "/" => whole(StatusCode::OK, "text/html; charset=utf-8", state.page),
            "/fragment" => whole(StatusCode::OK, "application/json", state.fragment),
            "/status" => whole(StatusCode::OK, "application/json", state.status.to_string()),
            "/events" => {
                let (to, events) = Channel::new(1);
                // The connection is closed after the response, so there is one stream.
                let number = *self.listener.get_or_init(|| self.shared.add_listener());
                tokio::spawn(tell(Arc::clone(&self.shared), number, to));
                headed(StatusCode::OK, "text/event-stream", Either::Right(events))
            }
            _ => plain(StatusCode::NOT_FOUND, "nothing here\n"),
        }
    }
}

/// Sends events until the stream is no longer registered or its connection is closed, or the server stops.
async fn tell(shared: Arc<LiveShared>, number: u64, mut to: Sender<Bytes>) {
    let mut changes = shared.state.subscribe();
    let (mut version, mut status_version) = (0, u64::MAX);
    let mut told = "retry: 2000\n\n".to_owned();
    while shared.listeners().contains(&number) {
        let now = changes.borrow_and_update().clone();
        if now.is_over {
            // The page could not fetch the figures any more.
            told += &event("figures", &String::from_utf8_lossy(&now.fragment));
        } else if now.version != version {
            told += &event("version", &now.version.to_string());
        }
        version = now.version;
        if now.status_version == status_version {
            told += ": here\n\n";
        } else {
            status_version = now.status_version;
            told += &event("status", &now.status);
        }
        let mut rest = Bytes::from(std::mem::take(&mut told));
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(EVENT_PART));
            let Ok(()) = to.send_data(part).await else { return };
            shared.sent.fetch_add(1, Ordering::SeqCst);
        }
        if now.is_over {
            return;
        }
        let _ = timeout(STILL_HERE, changes.changed()).await;
    }
}

/// Formats a server-sent event. `data` must be a single line.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn plain(status: StatusCode, text: &'static str) -> LiveResponse {
    whole(status, "text/plain", text)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> LiveResponse {
    headed(status, kind, Either::Left(Full::new(body.into())))
}

/// Creates the head of a response after which the connection is closed.
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

/// Returns whether a request carries the token, if there is one.
fn has_token(token: Option<&str>, request: &Request<RequestBody>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    token.is_none_or(|token| given.is_some_and(|given| same(given.as_bytes(), token.as_bytes())))
}

/// Compares in constant time for equal lengths.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}
