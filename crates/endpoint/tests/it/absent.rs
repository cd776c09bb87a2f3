//! Addresses at which nothing listens, before and after a first reply.

use sgs_endpoint::{CompletionRequest, Endpoint, EndpointError, EndpointSettings, PromptMode, ServerKind};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn settings(port: u16, patience_s: u64) -> EndpointSettings {
    EndpointSettings {
        server: ServerKind::Any,
        url: format!("http://127.0.0.1:{port}"),
        model: None,
        key: None,
        trusted: None,
        prompt: PromptMode::Auto,
        tries: 50,
        timeout: Duration::from_secs(60),
        patience: Duration::from_secs(patience_s),
        connections: 1,
    }
}

fn ask() -> CompletionRequest {
    CompletionRequest {
        tokens: vec![1, 2],
        text: "a b".to_owned(),
        seed: 0,
        max_tokens: 1,
        temperature: 1.0,
        stop_tokens: Vec::new(),
        stop_texts: Vec::new(),
    }
}

/// Answers one request on a connection, then closes it.
fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while lines.read_line(&mut line).unwrap() > 2 {
        head.push_str(&line.to_ascii_lowercase());
        line.clear();
    }
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    lines.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    let body = match head.starts_with("get") {
        true => r#"{"data":[{"id":"m"}]}"#,
        false => r#"{"choices":[{"text":"c","finish_reason":"length"}]}"#,
    };
    let length = body.len();
    let reply = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(reply.as_bytes()).unwrap();
}

#[test]
fn only_a_server_that_has_replied_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Answers the list of models and the probe, then stops.
    let server = std::thread::spawn(move || (0..2).for_each(|_| answer(listener.accept().unwrap().0)));
    let (endpoint, _) = Endpoint::connect(settings(port, 5), &ask(), 16, 16).unwrap();
    server.join().unwrap();

    let start = Instant::now();
    let error = endpoint.sample(&ask(), || false).unwrap_err();
    assert!(matches!(error, EndpointError::Unavailable { .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());

    let start = Instant::now();
    let error = Endpoint::connect(settings(port, 600), &ask(), 16, 16).unwrap_err();
    assert!(error.is_final() && matches!(error, EndpointError::Absent { .. }), "{error}");
    assert!(error.to_string().contains(&format!("nothing listens at http://127.0.0.1:{port}/v1")), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
