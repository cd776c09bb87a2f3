//! Accepts TLS connections from clients that may be unknown. Several are greeted at a time, so that silent ones delay no
//! rank.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sgs_tls::{Identity, TlsStream};

/// Time in which a client must have sent its first message.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of clients whose first message is awaited at a time.
const MAX_GREETINGS: usize = 64;

/// Interval between looks for new clients.
const POLL: Duration = Duration::from_millis(5);

/// A client whose first message is awaited.
struct Greeting {
    socket: TcpStream,
    until: Instant,
}

/// Accepts clients, reads the first message of each with `hello`, and passes them to `take` until it returns a value.
/// Ignores clients whose connection or message fails.
///
/// # Errors
/// Returns an error if the listener fails. The error has the kind `TimedOut` if `take` has returned no value by `deadline`.
pub(super) fn greet<T: Send, R>(
    listener: &TcpListener,
    identity: &Identity,
    deadline: Instant,
    hello: impl Fn(&TlsStream) -> io::Result<T> + Sync,
    mut take: impl FnMut(SocketAddr, TlsStream, T) -> Option<R>,
) -> io::Result<R> {
    listener.set_nonblocking(true)?;
    let (hello, server) = (&hello, &identity.server());
    thread::scope(|scope| {
        let (sender, greeted) = mpsc::channel();
        let mut greetings: HashMap<u64, Greeting> = HashMap::new();
        let mut clients = 0;
        let mut run = || loop {
            if let Ok((client, from, message)) = greeted.recv_timeout(POLL) {
                greetings.remove(&client);
                let message: io::Result<(TlsStream, T)> = message;
                if let Some(value) = message.ok().and_then(|(stream, message)| take(from, stream, message)) {
                    return Ok(value);
                }
                continue;
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            greetings.values().filter(|greeting| now >= greeting.until).for_each(Greeting::end);
            while greetings.len() < MAX_GREETINGS {
                let (socket, from) = match listener.accept() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // A client that has left already must not end the start.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    accepted => accepted?,
                };
                socket.set_nonblocking(false)?;
                clients += 1;
                let (client, sender) = (clients, sender.clone());
                greetings
                    .insert(client, Greeting { socket: socket.try_clone()?, until: now + GREETING_TIMEOUT });
                scope.spawn(move || {
                    let message = TlsStream::accept(socket, server)
                        .and_then(|stream| hello(&stream).map(|message| (stream, message)));
                    // The receiver is gone if `take` has returned a value in the meantime.
                    let _ = sender.send((client, from, message));
                });
            }
        };
        let outcome = run();
        // End the threads that still read, because the scope waits for them.
        greetings.values().for_each(Greeting::end);
        outcome
    })
}

impl Greeting {
    /// Closes the connection, so that its thread stops reading.
    fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
