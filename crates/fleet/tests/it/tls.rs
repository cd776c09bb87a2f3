//! Keys, fingerprints and connections.

use sgs_tls::{Fingerprint, Identity, TlsStream, is_untrusted};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

#[test]
fn a_fingerprint_is_read_as_it_was_written() {
    let one = Identity::from_secret("one secret").fingerprint();
    assert_eq!(one.to_string().parse::<Fingerprint>().unwrap(), one);
    assert_eq!(Identity::from_secret("one secret").fingerprint(), one, "the same secret, the same key");
    assert_ne!(Identity::from_secret("another secret").fingerprint(), one);
    for wrong in ["", "sha256//", "sha256//AAAA", "AAAA", &one.to_string()[1..], &format!("{one}A")] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
}

/// Connects two ends in this process.
fn pair(fingerprint: Fingerprint, server: &Identity) -> (io::Result<TlsStream>, io::Result<TlsStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let client = thread::spawn(move || TlsStream::connect(socket, fingerprint));
    let accepted = TlsStream::accept(listener.accept().unwrap().0, &server.server());
    (client.join().unwrap(), accepted)
}

#[test]
fn only_the_expected_server_is_accepted() {
    let (here, there) = (Identity::from_secret("here"), Identity::from_secret("there"));
    let (client, server) = pair(here.fingerprint(), &there);
    assert!(is_untrusted(&client.unwrap_err()));
    assert!(server.is_err());
    let (client, server) = pair(here.fingerprint(), &here);
    assert!(client.is_ok() && server.is_ok());
}

/// Both ends write more than the buffers of their sockets hold before they read everything.
#[test]
fn both_directions_carry_much_data_at_the_same_time() {
    let identity = Identity::from_secret("a secret");
    let (client, server) = pair(identity.fingerprint(), &identity);
    let ends = [client.unwrap(), server.unwrap()];
    let data: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 253) as u8).collect();
    thread::scope(|scope| {
        for end in &ends {
            let data = &data;
            scope.spawn(move || (&*end).write_all(data).unwrap());
            scope.spawn(move || {
                let mut read = vec![0; data.len()];
                (&*end).read_exact(&mut read).unwrap();
                assert!(read == *data);
            });
        }
    });
    ends[0].socket().shutdown(std::net::Shutdown::Both).unwrap();
    let cut = (&ends[1]).read(&mut [0; 9]).unwrap_err();
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof, "a cut is not an end");
}
