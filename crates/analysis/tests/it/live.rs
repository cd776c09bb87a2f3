//! Tests the live page over HTTP.

use crate::synthetic;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::live::{LiveOptions, LiveServer, LiveStatus, Recent};
use sgs_selfplay::Method;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn ask(address: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

#[test]
fn the_page_and_its_sections_are_read_only() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let at = server.address();
    assert!(get(at, "/").contains("No round is finished yet"));
    let run = synthetic::run(Method::Sgs, 1, synthetic::Size { rounds: 12, targets: 30 });
    server.publish(&[run], &FigureOptions::default());
    let page = get(at, "/");
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains("EventSource") && page.contains("12</dd>"));
    let fragment = get(at, "/fragment");
    let json: serde_json::Value = serde_json::from_str(fragment.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(json["version"], 2);
    let parts = json["parts"].as_array().unwrap();
    assert!(parts.iter().any(|p| p[0] == "cumulative-solve-rate" && p[2].as_str().unwrap().contains("<svg")));
    assert!(
        parts.iter().all(|p| p[2].as_str().unwrap().contains(p[1].as_str().unwrap())),
        "a part knows its tag"
    );
    for method in ["POST", "PUT", "DELETE"] {
        let answer = ask(at, &format!("{method} / HTTP/1.1\r\nHost: {at}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
    assert!(get(at, "/../etc/passwd").starts_with("HTTP/1.1 404"));
    assert!(ask(at, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn other_host_names_and_missing_tokens_are_rejected() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let at = server.address();
    let foreign = ask(at, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let local = ask(at, "GET /status HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
    assert!(local.starts_with("HTTP/1.1 200"), "{local}");

    let open = LiveOptions { address: SocketAddr::from(([0, 0, 0, 0], 0)), token: None };
    assert!(LiveServer::start(&open).err().unwrap().to_string().contains("token"));
    let short = LiveOptions { token: Some("a b".into()), ..LiveOptions::default() };
    assert!(LiveServer::start(&short).is_err());
    let options = LiveOptions { token: Some("abcdef-123".into()), ..LiveOptions::default() };
    let guarded = LiveServer::start(&options).unwrap();
    assert!(get(guarded.address(), "/").starts_with("HTTP/1.1 403"));
    assert!(get(guarded.address(), "/?token=abcdef-124").starts_with("HTTP/1.1 403"));
    assert!(get(guarded.address(), "/?token=abcdef-123").starts_with("HTTP/1.1 200"));
    assert!(guarded.url().ends_with("?token=abcdef-123"));
}

#[test]
fn new_figures_and_status_changes_are_sent_as_events() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|l| l == "data: 1"));
    let recent =
        Recent { kind: "proof".into(), problem: "t".into(), text: "line\nline".into(), ..Recent::default() };
    server.set_status(&LiveStatus { round: Some(7), recent: vec![recent], ..LiveStatus::default() });
    let status = lines.by_ref().find(|l| l.starts_with("data: {\"round\":7")).unwrap();
    assert!(status.contains("line\\nline"), "an event is one line");
    server.publish(&[], &FigureOptions::default());
    assert!(lines.by_ref().any(|l| l == "data: 2"));
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(60), "stopping does not wait for open pages");
    // A chunk of length 0 ends the stream.
    let rest: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    assert_eq!(rest.last().map(String::as_str), Some("0"));
}

/// Opens connections that wait for their client: for a request, the rest of one, or another one.
#[test]
fn silent_connections_do_not_keep_pages_out() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let at = server.address();
    for sent in ["", "GET /", &format!("GET /status HTTP/1.1\r\nHost: {at}\r\n\r\n")] {
        let mut silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(at).unwrap()).collect();
        // The server may have closed some of the connections already.
        silent.iter_mut().for_each(|stream| drop(stream.write(sent.as_bytes())));
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..100 {
            let page = get(at, "/status");
            assert!(page.starts_with("HTTP/1.1 200"), "{sent}: {page}");
        }
    }
}

/// Opens an event stream and reads its first event.
fn listen(address: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while line != "event: version\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0);
    }
    stream
}

#[test]
fn a_stopping_server_sends_the_last_figures() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let mut page = listen(server.address());
    let run = synthetic::run(Method::Sgs, 1, synthetic::Size { rounds: 12, targets: 30 });
    server.publish(&[run], &FigureOptions::default());
    server.set_status(&LiveStatus { message: "finished".into(), ..LiveStatus::default() });
    drop(server);
    let mut rest = String::new();
    page.read_to_string(&mut rest).unwrap();
    let figures = rest.split("event: figures\ndata: ").nth(1).expect("the last figures");
    assert!(figures.starts_with('{') && figures.contains("cumulative-solve-rate"));
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "the stream is complete");
}

/// Checks that stopping waits only for pages that make progress.
#[test]
fn readers_that_do_not_read_do_not_delay_the_end() {
    let times: Vec<Duration> = (0..3).map(|_| time_to_stop_with_deaf_readers()).collect();
    println!("stopped after {times:?}");
    // On a busy machine, the server may still be filling buffers when it is told to stop.
    assert!(times.iter().any(|time| *time < Duration::from_secs(1)), "{times:?}");
}

fn time_to_stop_with_deaf_readers() -> Duration {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let deaf: Vec<_> = (0..8).map(|_| listen(server.address())).collect();
    let text = "long ".repeat(2 << 20);
    let recent = Recent { kind: "proof".into(), text, ..Recent::default() };
    server.set_status(&LiveStatus { recent: vec![recent], ..LiveStatus::default() });
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    drop(server);
    let took = start.elapsed();
    drop(deaf);
    took
}

#[test]
fn many_event_streams_leave_room_for_pages() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let at = server.address();
    let mut readers: Vec<_> = (0..64).map(|_| listen(at)).collect();
    assert!(get(at, "/").starts_with("HTTP/1.1 200"), "a page can be loaded");
    readers.push(listen(at));
    let mut rest = String::new();
    readers.remove(0).read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "the oldest stream has ended");
    server.publish(&[], &FigureOptions::default());
    let mut newest = readers.pop().unwrap().lines().map(Result::unwrap);
    assert!(newest.any(|line| line == "data: 2"), "the newest stream goes on");
}

/// Returns whether the server's end of a connection is open, from the kernel's table.
fn is_open(server: SocketAddr, client: SocketAddr) -> bool {
    let ends = [server, client].map(|end| format!("0100007F:{:04X}", end.port())).join(" ");
    // The state 01 is ESTABLISHED.
    std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&format!("{ends} 01 "))
}

/// Checks that a reader that stalls in the middle of an event is dropped.
#[test]
fn a_reader_that_stalls_is_dropped() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let stalled = listen(server.address());
    let text = "long ".repeat(4 << 20);
    let recent = Recent { kind: "proof".into(), text, ..Recent::default() };
    server.set_status(&LiveStatus { recent: vec![recent], ..LiveStatus::default() });
    // TCP may retransmit for some seconds before its buffers are full. The server then waits twenty seconds.
    let (start, client) = (Instant::now(), stalled.get_ref().local_addr().unwrap());
    while is_open(server.address(), client) {
        assert!(start.elapsed() < Duration::from_secs(240), "the connection is still open");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("dropped after {:?}", start.elapsed());
    let mut rest = Vec::new();
    let _ = stalled.take(15 << 20).read_to_end(&mut rest);
    assert!(rest.len() < 15 << 20 && !rest.ends_with(b"0\r\n\r\n"), "{} bytes arrived", rest.len());
}

/// Checks that requests that are sent byte by byte and never end time out, and do not delay stopping the server.
#[test]
fn incomplete_requests_do_not_block_the_server() {
    let server = LiveServer::start(&LiveOptions::default()).unwrap();
    let at = server.address();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // Open more connections than are accepted or rejected.
    let mut streams: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
    let dribbling = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(50)).is_err() {
            streams.iter_mut().for_each(|stream| drop(stream.write(b"G")));
        }
    });
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    let mut answer = String::new();
    while !answer.starts_with("HTTP/1.1 200") {
        assert!(start.elapsed() < Duration::from_secs(30), "no place came free: {answer}");
        std::thread::sleep(Duration::from_millis(100));
        let Ok(mut stream) = TcpStream::connect(at) else { continue };
        let _ = stream.write_all(format!("GET /status HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes());
        answer.clear();
        let _ = stream.read_to_string(&mut answer);
    }
    let mut others: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
    others.iter_mut().for_each(|stream| drop(stream.write(b"GET / HTTP/1.1\r\n")));
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    stop.send(()).unwrap();
    dribbling.join().unwrap();
}
