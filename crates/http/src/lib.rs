//! HTTP/1.1 for the servers of this workspace: their threads, connections and timeouts.
//!
//! A server starts one or more [`ServiceThread`]s and accepts connections with [`serve`], or with [`accept`] and
//! [`serve_connection`]. It calls [`check_request`] for each request. Authentication and the replies are up to each server.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! use hyper::{Request, Response};
//! use sgs_http::{RequestBody, ServiceThread, check_request, serve};
//!
//! async fn hello(request: Request<RequestBody>) -> Response<String> {
//!     let mut reply = Response::new("hello".to_owned());
//!     if let Err((status, why)) = check_request(&request, false) {
//!         (*reply.status_mut(), *reply.body_mut()) = (status, why.to_owned());
//!     }
//!     reply
//! }
//!
//! let thread = ServiceThread::start("example").unwrap();
//! let (listener, address) = thread.listen("127.0.0.1:0".parse().unwrap()).unwrap();
//! thread.handle().spawn(serve(listener, 64, Duration::from_secs(10), |_| hello));
//!
//! let ask = |host: &str| {
//!     let mut client = std::net::TcpStream::connect(address).unwrap();
//!     write!(client, "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
//!     let mut reply = String::new();
//!     client.read_to_string(&mut reply).unwrap();
//!     reply
//! };
//! let reply = ask("localhost");
//! assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("hello"));
//! assert!(ask("evil.example").starts_with("HTTP/1.1 403"));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod places;
mod timed_writes;

pub use check::check_request;
pub use places::RequestBody;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use places::{Place, Places, ReplyBody};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use timed_writes::TimedWrites;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;

/// A thread with its own runtime, which serves connections until it is dropped.
///
/// Tokio's multi-threaded runtime is unfair under this load, because it moves tasks that do not fit into a thread's
/// short queue to a global queue that is polled rarely. With a thousand requests in flight, some were passed over for
/// tens of rounds.
#[derive(Debug)]
pub struct ServiceThread {
    handle: Handle,
    /// Dropping this sender stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Maximum size of a request's head, and of the read buffer of a connection, in bytes.
const MAX_BUFFER: usize = 64 << 10;

/// Poll the global queue, which holds tasks woken by other threads, after this many local tasks.
const GLOBAL_QUEUE_INTERVAL: u32 = 2;

impl ServiceThread {
    /// Starts a thread with this name.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .global_queue_interval(GLOBAL_QUEUE_INTERVAL)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nothing is sent. The receiver fails when the sender is dropped.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(Duration::from_secs(2));
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the handle to spawn tasks on this thread.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Binds an address. Returns the listener and the actual address, which differs if the requested port is 0.
    pub fn listen(&self, address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let _runtime = self.handle.enter();
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Like the standard library. A restarted server can use the address of connections that linger.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }
}

/// Maximum number of connections that wait to be accepted. If there are more, clients wait a second or longer before they
/// try again.
const BACKLOG: u32 = 4096;

impl Drop for ServiceThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, nothing is left to stop.
            let _ = thread.join();
        }
    }
}

/// Waits for the next connection.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Send short replies, and each part of a stream, at once.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                // The process has probably run out of file descriptors, so wait until some are free.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The client of a connection that [`serve`] has accepted.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// Its address.
    pub address: IpAddr,
    /// Whether all regular places are taken by requests in progress. The connection will be closed after a second.
    pub is_extra: bool,
}

/// Number of connections that [`serve`] accepts beyond the regular ones, so that their requests can be rejected with a reply.
const EXTRA_PLACES: usize = 64;
/// Lifetime of such a connection.
const EXTRA_TIME: Duration = Duration::from_secs(1);

/// Accepts connections, at most `places` at a time, and answers their requests with the function that `connect` returns.
///
/// If all places are taken, a new connection replaces the one that has waited longest for its client: for a request or a
/// part of one, or to accept a reply. If none waits, it is accepted as [`Visitor::is_extra`]. Each further one replaces the
/// oldest of these.
pub async fn serve<B, F, A>(
    listener: TcpListener,
    places: usize,
    head_timeout: Duration,
    connect: impl Fn(Visitor) -> F,
) where
    F: Fn(Request<RequestBody>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let regular = Arc::new(Places::default());
    // Requests that follow others on their connection take turns. Only one of these connections at a time is in the thread's
    // queue of tasks, so that clients that send many requests at once do not delay new connections.
    let turns = Arc::new(Semaphore::new(1));
    let mut extra: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = accept(&listener).await;
        let Ok(peer) = stream.peer_addr() else { continue };
        let taken = regular.take(places);
        let is_extra = taken.is_none();
        let place = taken.as_ref().map(|taken| Arc::clone(&taken.place)).unwrap_or_default();
        let answer = Arc::new(connect(Visitor { address: peer.ip(), is_extra }));
        let (turns, is_first) = (Arc::clone(&turns), AtomicBool::new(true));
        let task = tokio::spawn({
            let place = Arc::clone(&place);
            async move {
                let _taken = taken;
                let of_requests = Arc::clone(&place);
                let answer = |request: Request<Incoming>| {
                    let turns = (!is_first.swap(false, Ordering::Relaxed)).then(|| Arc::clone(&turns));
                    let (answer, place) = (Arc::clone(&answer), Arc::clone(&of_requests));
                    async move {
                        if let Some(turns) = turns {
                            // The turn ends before the answer, which can take long. The semaphore is never closed.
                            match turns.try_acquire() {
                                Ok(_turn) => yield_now().await,
                                Err(_) => drop(turns.acquire().await),
                            }
                        }
                        let request = request.map(|body| RequestBody::new(body, Arc::clone(&place)));
                        answer(request).await.map(|body| ReplyBody { body, place })
                    }
                };
                let lifetime = if is_extra { EXTRA_TIME } else { Duration::MAX };
                let stream = TimedWrites::new(stream, place);
                // An error concerns only this client.
                let _ = timeout(lifetime, serve_stream(stream, head_timeout, answer)).await;
            }
        });
        if is_extra {
            if extra.len() == EXTRA_PLACES
                && let Some(oldest) = extra.pop_front()
            {
                oldest.abort();
            }
            extra.push_back(task.abort_handle());
        } else {
            // The task is set only once.
            let _ = place.task.set(task.abort_handle());
        }
    }
}

/// Answers the requests of a connection until it ends. The whole head of each request must arrive within `head_timeout`.
/// The connection is closed if the client does not read for twenty seconds.
pub async fn serve_connection<B, A>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    head_timeout: Duration,
    answer: impl Fn(Request<Incoming>) -> A,
) where
    A: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_stream(TimedWrites::new(stream, Arc::new(Place::default())), head_timeout, answer).await;
}

async fn serve_stream<S, B, A>(
    stream: TimedWrites<S>,
    head_timeout: Duration,
    answer: impl Fn(Request<Incoming>) -> A,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(MAX_BUFFER);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a connection failed: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::{Read, Write};
    use std::sync::atomic::AtomicUsize;

    const PLACES: usize = 4;

    const BIG_REPLY: usize = 32 << 20;

    /// Starts a server that reports whether a connection is extra. It never answers requests with the path `/wait`, and
    /// counts those that have arrived. It answers `/big` with [`BIG_REPLY`] bytes.
    fn server() -> (ServiceThread, SocketAddr, Arc<AtomicUsize>) {
        let thread = ServiceThread::start("test").unwrap();
        let (listener, address) = thread.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let arrived = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&arrived);
        let connect = move |visitor: Visitor| {
            let counter = Arc::clone(&counter);
            move |request: Request<RequestBody>| {
                let counter = Arc::clone(&counter);
                async move {
                    let uri = request.uri().path().to_owned();
                    if uri == "/wait" {
                        drop(request.into_body().collect().await);
                        counter.fetch_add(1, Ordering::Relaxed);
                        std::future::pending::<()>().await;
                    }
                    if uri == "/big" {
                        return Response::new("x".repeat(BIG_REPLY));
                    }
                    Response::new(visitor.is_extra.to_string())
                }
            }
        };
        thread.handle().spawn(serve(listener, PLACES, Duration::from_secs(60), connect));
        (thread, address, arrived)
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        let start = std::time::Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(30), "it did not happen within 30 s");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn send(address: SocketAddr, text: &str) -> std::net::TcpStream {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        client
    }

    /// Sends a request. Returns whether its connection is extra.
    fn is_extra(address: SocketAddr) -> bool {
        let mut reply = String::new();
        let mut client = send(address, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        client.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        reply.ends_with("true")
    }

    #[test]
    fn connections_that_wait_for_their_client_keep_no_place() {
        let (_thread, at, _) = server();
        let head = "POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nsome";
        for text in ["", "GET /", "GET / HTTP/1.1\r\nhost: a\r\n\r\n", head] {
            let waiting: Vec<_> = (0..3 * PLACES).map(|_| send(at, text)).collect();
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..2 * PLACES {
                assert!(!is_extra(at), "{text}");
            }
            drop(waiting);
        }
    }

    #[test]
    fn requests_in_progress_keep_their_places() {
        let (_thread, at, arrived) = server();
        let request = "POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nsome";
        let mut busy: Vec<_> = (0..PLACES).map(|_| send(at, request)).collect();
        until(|| arrived.load(Ordering::Relaxed) == PLACES);
        let silent: Vec<_> = (0..3 * EXTRA_PLACES).map(|_| send(at, "")).collect();
        for _ in 0..10 {
            assert!(is_extra(at));
        }
        drop(silent);
        drop(busy.remove(0));
        for mut stream in busy {
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "the connection is open");
        }
        // The place of the client that has left becomes free.
        until(|| !is_extra(at));
    }

    #[test]
    fn a_large_reply_keeps_its_place_until_it_is_sent() {
        let (_thread, at, arrived) = server();
        let request = "POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nsome";
        let _busy: Vec<_> = (1..PLACES).map(|_| send(at, request)).collect();
        until(|| arrived.load(Ordering::Relaxed) == PLACES - 1);
        let mut slow = send(at, "GET /big HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let mut reply = vec![0; 1024];
        slow.read_exact(&mut reply).unwrap();
        // The rest of the reply fills the buffers of the connection.
        std::thread::sleep(Duration::from_millis(200));
        assert!(is_extra(at), "no place is free");
        slow.read_to_end(&mut reply).unwrap();
        assert!(reply.len() > BIG_REPLY, "the reply was cut off after {} bytes", reply.len());
    }
}
