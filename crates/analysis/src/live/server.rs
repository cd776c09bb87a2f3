//! The server: a thread that accepts, one thread per browser tab.

use super::{Status, http};
use crate::report::{ReportOptions, fragment, navigation, page};
use crate::run::RunData;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// What the threads share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
    connections: AtomicUsize,
    /// Open pages that are told what changes.
    listeners: AtomicUsize,
    /// Pages that took the newest figures.
    taken: AtomicUsize,
    token: Option<String>,
    is_loopback: bool,
}

/// What is shown now.
#[derive(Default)]
struct State {
    version: u64,
    status_version: u64,
    page: Arc<str>,
    fragment: Arc<str>,
    status: Arc<str>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked leaves whole values behind: each is replaced as one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    acceptor: Option<JoinHandle<()>>,
}

/// How long the end waits for the accepting thread.
const LAST_WAIT: Duration = Duration::from_secs(1);

impl LiveServer {
    /// Begins to serve; the page says that it waits until [`LiveServer::publish`] is called.
    ///
    /// # Errors
    /// The address is open to others without a token, or cannot be bound.
    pub fn start(options: &LiveOptions) -> Result<Self, LiveError> {
        options.check()?;
        let is_loopback = options.address.ip().is_loopback();
        let bind = |error| LiveError::Bind { address: options.address, error };
        let listener = TcpListener::bind(options.address).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { status: "{}".into(), ..State::default() }),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            listeners: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            token: options.token.clone(),
            is_loopback,
        });
        let for_thread = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new()
            .name("live-page".into())
            .spawn(move || accept(&listener, &for_thread))
            .map_err(bind)?;
        let server = Self { shared, address, versions: AtomicU64::new(0), acceptor: Some(acceptor) };
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
        let mut state = self.shared.state();
        if state.version > version {
            return;
        }
        state.version = version;
        state.page = page.into();
        state.fragment = json.to_string().into();
        self.shared.taken.store(0, Ordering::SeqCst);
        drop(state);
        self.shared.changed.notify_all();
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
        let mut state = self.shared.state();
        if *state.status != *json {
            state.status_version += 1;
            state.status = json.into();
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        // Wakes the acceptor, which then sees that it is to stop.
        let mut wake = self.address;
        if wake.ip().is_unspecified() {
            wake.set_ip(IpAddr::from([127, 0, 0, 1]));
        }
        let _ = TcpStream::connect_timeout(&wake, Duration::from_secs(1));
        // It does nothing but accept. One that hangs all the same ends with the process: nobody waits for a client.
        let start = Instant::now();
        while self.acceptor.as_ref().is_some_and(|acceptor| !acceptor.is_finished())
            && start.elapsed() < LAST_WAIT
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_token(token: &str) -> bool {
    (8..=128).contains(&token.len())
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of file descriptors, most likely: do not spin.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let place = shared.connections.fetch_add(1, Ordering::SeqCst);
        if place >= MOST_CONNECTIONS + MOST_TURNED_AWAY {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let for_thread = Arc::clone(shared);
        let spawned = std::thread::Builder::new().name("live-connection".into()).spawn(move || {
            // A browser that went away, or does not read the answer, is no error.
            let _ = match place < MOST_CONNECTIONS {
                true => serve(&stream, &for_thread),
                false => http::turn_away(&stream),
            };
            for_thread.connections.fetch_sub(1, Ordering::SeqCst);
        });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(request) = http::read_request(stream) else {
        return http::respond(stream, "400 Bad Request", "text/plain", b"not a request\n");
    };
    if request.method != "GET" {
        return http::respond(stream, "405 Method Not Allowed", "text/plain", b"this page is read-only\n");
    }
    if !is_allowed(shared, &request) {
        return http::respond(stream, "403 Forbidden", "text/plain", b"wrong host or token\n");
    }
    let state = || {
        let s = shared.state();
        (Arc::clone(&s.page), Arc::clone(&s.fragment), Arc::clone(&s.status), s.version)
    };
    // A page with the figures of this version was sent.
    let taken = |version: u64| {
        if shared.state().version == version {
            shared.taken.fetch_add(1, Ordering::SeqCst);
        }
    };
    match request.path.as_str() {
        "/" => {
            let (page, _, _, version) = state();
            http::respond(stream, "200 OK", "text/html; charset=utf-8", page.as_bytes())?;
            taken(version);
            Ok(())
        }
        "/fragment" => {
            let (_, fragment, _, version) = state();
            http::respond(stream, "200 OK", "application/json", fragment.as_bytes())?;
            taken(version);
            Ok(())
        }
        "/status" => http::respond(stream, "200 OK", "application/json", state().2.as_bytes()),
        "/events" => {
            shared.listeners.fetch_add(1, Ordering::SeqCst);
            let told = events(stream, shared);
            shared.listeners.fetch_sub(1, Ordering::SeqCst);
            told
        }
        _ => http::respond(stream, "404 Not Found", "text/plain", b"nothing here\n"),
    }
}

/// On loopback only names of this machine are answered, so that no other site's page can reach this one through a
/// name that it points here. With a token, whoever has it.
fn is_allowed(shared: &Shared, request: &http::Request) -> bool {
    if let Some(token) = &shared.token {
        let given = request.query.split('&').find_map(|pair| pair.strip_prefix("token="));
        return given.is_some_and(|given| same(given.as_bytes(), token.as_bytes()));
    }
    let host = request.host.rsplit_once(':').map_or(request.host.as_str(), |(name, port)| {
        if port.bytes().all(|b| b.is_ascii_digit()) { name } else { request.host.as_str() }
    });
    let name = host.trim_start_matches('[').trim_end_matches(']');
    shared.is_loopback
        && (name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

/// Equality that takes the same time wherever the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}

/// Tells a page what changed until it goes away.
fn events(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    http::begin_events(stream)?;
    let (mut version, mut status_version) = (0, u64::MAX);
    while !shared.stopping.load(Ordering::SeqCst) {
        let mut state = shared.state();
        if state.version == version && state.status_version == status_version {
            let waited = shared.changed.wait_timeout(state, Duration::from_secs(10));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let now = (state.version, state.status_version, Arc::clone(&state.status));
        drop(state);
        if now.0 != version {
            version = now.0;
            http::send_event(stream, "version", &version.to_string())?;
        }
        if now.1 != status_version {
            status_version = now.1;
            http::send_event(stream, "status", &now.2)?;
        } else {
            http::send_comment(stream)?;
        }
    }
    Ok(())
}
