//! HTTP/1.1 for the servers of this workspace: their threads, connections and timeouts.
//!
//! A server starts one or more [`ServiceThread`]s, accepts connections with [`accept`], and answers their requests with
//! [`serve_connection`]. Authentication, limits on the number of connections and the replies are up to each server.
//!
//! ```
//! use std::convert::Infallible;
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! use hyper::body::Incoming;
//! use hyper::{Request, Response};
//! use sgs_http::{ServiceThread, accept, serve_connection};
//!
//! async fn hello(_: Request<Incoming>) -> Response<String> {
//!     Response::new("hello".to_owned())
//! }
//!
//! let thread = ServiceThread::start("example").unwrap();
//! let (listener, address) = thread.listen("127.0.0.1:0".parse().unwrap()).unwrap();
//! thread.handle().spawn(async move {
//!     loop {
//!         let stream = accept(&listener).await;
//!         tokio::spawn(serve_connection(stream, Duration::from_secs(10), hello));
//!     }
//! });
//!
//! let mut client = std::net::TcpStream::connect(address).unwrap();
//! client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
//! let mut reply = String::new();
//! client.read_to_string(&mut reply).unwrap();
//! assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("hello"));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with its own runtime, which serves connections until it is dropped.
///
/// Tokio's multi-threaded runtime is unfair under this load: it moves tasks that do not fit into a thread's short queue to
/// a global queue that is polled rarely. With a thousand requests in flight, some were passed over for tens of rounds.
#[derive(Debug)]
pub struct ServiceThread {
    handle: Handle,
    /// Dropping it stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Maximum size of a request's head, and of the read buffer of a connection, in bytes.
const MAX_BUFFER: usize = 64 << 10;

/// Poll the global queue, which holds tasks woken by other threads, after this many local tasks.
const GLOBAL_QUEUE_INTERVAL: u32 = 2;

impl ServiceThread {
    /// Starts a thread with this name.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
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
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Binds an address. Returns the listener and the actual address, which differs if the requested port is 0.
    ///
    /// # Errors
    /// Returns an error if the address is unavailable.
    pub fn listen(&self, address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _runtime = self.handle.enter();
        Ok((TcpListener::from_std(listener)?, address))
    }
}

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
                // Most likely the process is out of file descriptors; wait until some are free.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the requests of a connection until it ends. The whole head of each request must arrive within `head_timeout`.
pub async fn serve_connection<B, A>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    head_timeout: Duration,
    answer: impl Fn(Request<Incoming>) -> A,
) where
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
