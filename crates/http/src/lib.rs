//! HTTP/1.1 as the servers of this program speak it: threads with connections of their own, and requests that come in
//! time. Who may ask, how many at once and what is answered is each server's own affair.
#![forbid(unsafe_code)]

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

/// A thread that serves its own share of the connections, first come first served; they end when it is dropped.
///
/// A runtime over several threads moves what does not fit into a thread's short queue to one that is looked at rarely:
/// with a thousand requests in flight some were passed over for tens of rounds.
#[derive(Debug)]
pub struct ServiceThread {
    handle: Handle,
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What other threads wake is looked at after so many others.
const LOOK_AT_WOKEN: u32 = 2;

impl ServiceThread {
    /// A thread of that name that has nothing to do yet.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime =
            Builder::new_current_thread().enable_all().global_queue_interval(LOOK_AT_WOKEN).build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nothing is ever sent; it ends when the other end goes.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(Duration::from_secs(2));
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Where its work is put.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Binds an address for this thread to accept connections at; gives the address with its port, too. It is bound and
    /// kept, so the port that is told is the port that is served.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn listen(&self, address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _inside = self.handle.enter();
        Ok((TcpListener::from_std(listener)?, address))
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to serve.
            let _ = thread.join();
        }
    }
}

/// The next connection.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers, and each part of a stream, are to leave at once.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                // Out of file descriptors, most likely; those in use will come free.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the requests of a connection until it ends. The head of each has to come within `patience`, however often a
/// byte of it does.
pub async fn converse<B, A>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    patience: Duration,
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
    server.timer(TokioTimer::new()).header_read_timeout(patience);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a connection broke: {error}");
    }
}
