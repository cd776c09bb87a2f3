//! As much of HTTP/1.1 as a browser needs to read a page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A request without its body: nothing here reads one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub host: String,
}

/// Longest request head, bytes.
const LONGEST_HEAD: u64 = 16 * 1024;

/// A whole request head has to come within this time, however often a byte of it does.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);

/// How long is read away what is not served.
const AWAY_PATIENCE: Duration = Duration::from_millis(500);

/// What comes over a connection before one moment.
struct Until<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(buffer)
    }
}

/// Reads the head of a request; `None` if it is not HTTP, too long or too slow.
pub(super) fn read_request(stream: &TcpStream) -> Option<Request> {
    let until = Until { stream, deadline: Instant::now() + HEAD_PATIENCE };
    parse(BufReader::new(until.take(LONGEST_HEAD)))
}

fn parse(mut reader: impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (method, target, version) = (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?);
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return None;
    }
    let mut host = String::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_owned();
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), host })
}

/// Writes an answer and ends the connection.
pub(super) fn respond(mut stream: &TcpStream, status: &str, kind: &str, body: &[u8]) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(20)))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

/// Says that there is no room. What the browser has sent is read away, for a little while: a connection that is closed
/// with unread bytes is reset, and the answer with it.
pub(super) fn turn_away(stream: &TcpStream) -> std::io::Result<()> {
    respond(stream, "503 Service Unavailable", "text/plain", b"too many open pages\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut rest = Until { stream, deadline: Instant::now() + AWAY_PATIENCE };
    std::io::copy(&mut rest, &mut std::io::sink()).map(drop)
}

/// Begins a stream of server-sent events.
pub(super) fn begin_events(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: 2000\n\n",
    )
}

/// Sends one event; `data` must be a single line.
pub(super) fn send_event(mut stream: &TcpStream, event: &str, data: &str) -> std::io::Result<()> {
    stream.write_all(format!("event: {event}\ndata: {data}\n\n").as_bytes())?;
    stream.flush()
}

/// Sends a comment, to find out whether anyone still listens.
pub(super) fn send_comment(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.write_all(b": here\n\n")?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_browsers_request() {
        let text = "GET /fragment?token=a HTTP/1.1\r\nhost: localhost:80\r\nAccept: */*\r\n\r\n";
        let request = parse(text.as_bytes()).unwrap();
        assert_eq!((request.path.as_str(), request.query.as_str()), ("/fragment", "token=a"));
        assert_eq!(request.host, "localhost:80");
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for text in
            ["", "GET /", "GET / HTTP/1.1\r\nHost: x", "GET http://x/ HTTP/1.1\r\n\r\n", "\u{16}\u{3}\u{1}"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(bytes.as_slice());
        }
    }
}
