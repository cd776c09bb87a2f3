//! TLS between the processes of a run.
//!
//! A server derives its key pair from a secret and shows a self-signed certificate. A client knows the fingerprint of
//! the server's public key and accepts no other server, whatever its name or address. A coordinator derives its key
//! from its own secret and passes the fingerprint on with the workers' token. Training ranks, which start in any order,
//! derive the same key from the token that they share.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//!
//! use sgs_tls::{Identity, TlsStream};
//!
//! let identity = Identity::from_secret("a secret of this example");
//! let (fingerprint, server) = (identity.fingerprint(), identity.server());
//! let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//! let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
//! let reply = std::thread::spawn(move || {
//!     let stream = TlsStream::connect(client, fingerprint).unwrap();
//!     (&stream).write_all(b"hello").unwrap();
//! });
//! let stream = TlsStream::accept(listener.accept().unwrap().0, &server).unwrap();
//! let mut greeting = [0; 5];
//! (&stream).read_exact(&mut greeting).unwrap();
//! assert_eq!(&greeting, b"hello");
//! # reply.join().unwrap();
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod fingerprint;
mod identity;
mod stream;

pub use fingerprint::{Fingerprint, InvalidFingerprint, client_config, is_untrusted};
pub use identity::{Identity, TlsFiles, TlsFilesError};
pub use rustls::{ClientConfig, ServerConfig};
pub use stream::TlsStream;
