//! The server: one thread for all browser tabs.

use super::Status;
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
use sgs_http::{ServiceThread, accept, converse};
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

/// Where and for whom the page is served.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Address and port; port 0 takes a free one. Loopback unless `token` is set.
    pub address: SocketAddr,
    /// What a browser must show as `?token=…`; needed for any address but loopback.
    pub token: Option<String>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None }
    }
}

impl LiveOptions {
    /// Whether the page may be served like this.
    ///
    /// # Errors
    /// The address is open to others without a token, or the token cannot stand in an address.
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

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// An address that others can reach, and no token.
    #[error(
        "{0} can be reached from other machines: give --token (or SGS_PAGE_TOKEN), or serve at 127.0.0.1"
    )]
    Open(SocketAddr),
    /// A token that cannot stand in an address.
    #[error("the token must be 8 to 128 letters, digits, '-' or '_'")]
    Token,
    /// The port is taken or forbidden.
    #[error("cannot listen on {address}: {error}; choose another port, or 0 for any free one")]
    Bind { address: SocketAddr, error: io::Error },
}

/// What all pages share.
struct Shared {
    state: watch::Sender<State>,
    /// Open pages that are told what changes.
    listeners: AtomicUsize,
    /// Pages that took the newest figures.
    taken: AtomicUsize,
    token: Option<String>,
    is_loopback: bool,
}

/// What is shown now.
#[derive(Clone, Default)]
struct State {
    version: u64,
    status_version: u64,
    page: Bytes,
    fragment: Bytes,
    status: Arc<str>,
    /// Nothing more comes.
    is_over: bool,
}

/// Connections served at once; further ones are turned away.
const MOST_CONNECTIONS: usize = 64;

/// Connections that are being turned away at once; further ones are closed without a word.
const MOST_TURNED_AWAY: usize = 16;

/// A page that is being served until this value is dropped.
pub struct LiveServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    versions: AtomicU64,
    _thread: ServiceThread,
}

/// The head of a request has to come within this time, however often a byte of it does.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);

/// The same of a browser that is turned away.
const AWAY_PATIENCE: Duration = Duration::from_millis(500);

/// An answer has to be taken within this time, over a slow line too; there are seats enough to wait for it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(600);

/// So has each event.
const EVENT_PATIENCE: Duration = Duration::from_secs(10);

/// How long the server's end waits for pages to take the ends of their streams.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How often a page that hears nothing is sent something, to find out whether anyone still listens.
const STILL_HERE: Duration = Duration::from_secs(10);

impl LiveServer {
    /// Begins to serve; the page says that it waits until [`LiveServer::publish`] is called.
    ///
    /// # Errors
    /// The address is open to others without a token, or cannot be bound.
    pub fn start(options: &LiveOptions) -> Result<Self, LiveError> {
        options.check()?;
        let is_loopback = options.address.ip().is_loopback();
        let bind = |error| LiveError::Bind { address: options.address, error };
        let thread = ServiceThread::start("live-page").map_err(bind)?;
        let (listener, address) = thread.listen(options.address).map_err(bind)?;
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State { status: "{}".into(), ..State::default() }),
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

    /// The address that is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        let token = self.shared.token.as_ref().map_or_else(String::new, |t| format!("?token={t}"));
        format!("http://{}/{token}", self.address)
    }

    /// Shows these runs; open pages follow.
    pub fn publish(&self, runs: &[RunData], options: &ReportOptions) {
        let fragment = fragment(runs, options);
        let version = self.versions.fetch_add(1, Ordering::SeqCst) + 1;
        let parts: Vec<_> = fragment.parts.iter().map(|p| [p.id.clone(), p.tag(), p.html()]).collect();
        let json = serde_json::json!({
            "version": version, "title": fragment.title, "parts": parts, "nav": navigation(&fragment),
        });
        // The page knows which version it holds, so that it misses nothing that came while it was loading.
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

    /// Waits until every open page has taken the newest figures, or for `patience`: what is still to be seen when the
    /// server ends.
    pub fn settle(&self, patience: Duration) {
        let start = Instant::now();
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        while count(&self.shared.taken) < count(&self.shared.listeners) && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Shows what happens right now; cheap enough for a few times a second.
    pub fn set_status(&self, status: &Status) {
        let json = serde_json::to_string(status).unwrap_or_else(|_| "{}".into());
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
        // Streams come to their ends. One that hangs all the same is cut off: nobody waits for a browser.
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

async fn welcome(listener: TcpListener, shared: Arc<Shared>) {
    let (room, door) = [MOST_CONNECTIONS, MOST_TURNED_AWAY].map(|n| Arc::new(Semaphore::new(n))).into();
    loop {
        let stream = accept(&listener).await;
        if let Ok(seat) = Arc::clone(&room).try_acquire_owned() {
            let visit = Arc::new(Visit::of(&shared));
            tokio::spawn(async move {
                visit.serve(stream).await;
                drop(seat);
            });
        } else if let Ok(seat) = Arc::clone(&door).try_acquire_owned() {
            tokio::spawn(async move {
                let full = |_| async { plain(StatusCode::SERVICE_UNAVAILABLE, "too many open pages\n") };
                // What comes of it is the browser's affair.
                let _ = timeout(2 * AWAY_PATIENCE, converse(stream, AWAY_PATIENCE, full)).await;
                drop(seat);
            });
        }
    }
}

type Answer = Response<Either<Full<Bytes>, Channel<Bytes>>>;

/// A connection: one request, and its answer.
struct Visit {
    shared: Arc<Shared>,
    /// Whether it is told what changes.
    listens: AtomicBool,
    /// Whether it has heard all that it will.
    has_heard: AtomicBool,
    /// Version of the figures that it was sent; 0 for none.
    sent: AtomicU64,
}

impl Visit {
    fn of(shared: &Arc<Shared>) -> Self {
        let [listens, has_heard] = [false; 2].map(AtomicBool::new);
        Self { shared: Arc::clone(shared), listens, has_heard, sent: AtomicU64::new(0) }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let answer = |request| {
            let visit = Arc::clone(&self);
            async move { visit.answer(&request) }
        };
        let mut talk = std::pin::pin!(converse(stream, HEAD_PATIENCE, answer));
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

    fn answer(self: Arc<Self>, request: &Request<Incoming>) -> Answer {
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

    /// Tells a page what changed until it goes away, or is too slow to listen.
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

fn plain(status: StatusCode, text: &'static str) -> Answer {
    whole(status, "text/plain", text)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    headed(status, kind, Either::Left(Full::new(body.into())))
}

/// An answer, after which the connection ends.
fn headed(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, Channel<Bytes>>) -> Answer {
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

/// On loopback only names of this machine are answered, so that no other site's page can reach this one through a
/// name that it points here. With a token, whoever has it.
fn is_allowed(shared: &Shared, request: &Request<Incoming>) -> bool {
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

/// Equality that takes the same time wherever the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}
