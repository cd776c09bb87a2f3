//! A blocking TLS connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::fingerprint::{Fingerprint, client_config};

/// A blocking TLS connection. One thread may read while others write.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    /// The TLS session. It is not locked while the socket blocks, so that neither direction waits for the other.
    session: Mutex<Connection>,
    /// Keeps encrypted records in their order.
    writing: Mutex<()>,
    received: Mutex<Received>,
}

/// Encrypted bytes from the socket.
#[derive(Debug)]
struct Received {
    bytes: Vec<u8>,
    next: usize,
    end: usize,
}

/// Bytes to read from the socket at a time.
const READ_SIZE: usize = 64 << 10;

impl TlsStream {
    /// Connects to the server with this key. Timeouts of the socket apply.
    #[allow(clippy::expect_used, reason = "a constant name")]
    pub fn connect(socket: TcpStream, fingerprint: Fingerprint) -> io::Result<Self> {
        // The name is neither sent nor checked.
        let name = ServerName::try_from("sgs").expect("invariant: a valid name");
        let session = ClientConnection::new(client_config(fingerprint), name).map_err(io::Error::other)?;
        Self::shake_hands(socket, session.into())
    }

    /// Accepts a client. Timeouts of the socket apply.
    ///
    /// # Errors
    /// Returns an error if the client does not accept the server's key, or the connection fails.
    pub fn accept(socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Self::shake_hands(socket, session.into())
    }

    fn shake_hands(mut socket: TcpStream, mut session: Connection) -> io::Result<Self> {
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut socket)?;
        }
        let received = Received { bytes: vec![0; READ_SIZE], next: 0, end: 0 };
        Ok(Self {
            socket,
            session: Mutex::new(session),
            writing: Mutex::default(),
            received: Mutex::new(received),
        })
    }

    /// Returns the socket, to set timeouts or to shut it down.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

/// Locks a value. Poisoning is ignored, because sessions and buffers are consistent even if a thread panicked: the peer
/// rejects damaged records.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for &TlsStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let received = &mut *lock(&self.received);
        loop {
            let mut session = lock(&self.session);
            match session.reader().read(to) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if received.next == received.end {
                drop(session);
                received.end = (&self.socket).read(&mut received.bytes)?;
                received.next = 0;
                session = lock(&self.session);
            }
            // An empty slice tells the session that the peer has closed the connection.
            let mut rest = &received.bytes[received.next..received.end];
            received.next += session.read_tls(&mut rest)?;
            session.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

impl Write for &TlsStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let _writing = lock(&self.writing);
        let mut records = Vec::new();
        let mut session = lock(&self.session);
        let written = session.writer().write(from)?;
        while session.wants_write() {
            session.write_tls(&mut records)?;
        }
        drop(session);
        (&self.socket).write_all(&records)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
