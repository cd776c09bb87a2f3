//! Clients that leave, flood or do not read, together with a client that behaves.

use crate::small_server::{
    BATCH, KEY, WINDOW, complete, complete_elsewhere, own, post, receive, send, start, start_sized,
};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

/// Limit of a short completion during an attack. Before the fixes, each attack took minutes.
const SOON: Duration = Duration::from_secs(5);
/// Limit of a health check during an attack, for a busy machine.
const HEALTHY: Duration = Duration::from_secs(3);

fn short() -> Value {
    json!({ "prompt": "w2 w3", "max_tokens": 2 })
}

/// Measures a health check, which must be quick.
fn health(at: SocketAddr) -> Duration {
    let start = Instant::now();
    assert_eq!(receive(send(at, "GET /health", &own(at), "")).0, 200);
    let health = start.elapsed();
    assert!(health < HEALTHY, "{health:?}");
    health
}

/// Measures a health check, and a short completion. Both must be quick.
fn times(at: SocketAddr) -> [Duration; 2] {
    let health = health(at);
    let start = Instant::now();
    complete(at, &short());
    let completion = start.elapsed();
    assert!(completion < SOON, "{completion:?}");
    [health, completion]
}

/// Waits until the server has read what was sent.
fn settle() {
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn scores_of_abandoned_prompts_are_not_computed() {
    let server = start(None);
    let at = server.address();
    let prompts = vec![vec![1; WINDOW - 1]; 1024];
    let call = json!({ "prompt": prompts, "max_tokens": 1, "prompt_logprobs": 0 });
    let calls = [0; 2].map(|_| post(at, "/v1/completions", &call));
    settle();
    let during = times(at);
    drop(calls);
    settle();
    let after = times(at);
    println!("health, completion: {during:?} during, {after:?} after two calls for 1,024 scores");
}

#[test]
fn abandoned_calls_take_no_room_while_generation_is_paused() {
    let server = start(Some(KEY));
    let at = server.address();
    assert_eq!(receive(post(at, "/pause_generation", &json!({}))).0, 200);
    let call = json!({ "prompt": "w1", "max_tokens": WINDOW - 1, "n": 1024 });
    let open: Vec<_> = (0..40).map(|_| post(at, "/v1/completions", &call)).collect();
    settle();
    drop(open);
    settle();
    let mut waiting = post(at, "/v1/completions", &short());
    settle();
    waiting.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut byte = [0];
    assert!(std::io::Read::read(&mut waiting, &mut byte).is_err(), "the call waits");
    waiting.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let start = Instant::now();
    assert_eq!(receive(post(at, "/continue_generation", &json!({}))).0, 200);
    assert_eq!(receive(waiting).0, 200);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_client_with_many_completions_does_not_delay_another() {
    let server = start(None);
    let at = server.address();
    let many = json!({ "prompt": "w1", "max_tokens": 250, "n": 1024, "seed": 1 });
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| complete(at, &many));
        settle();
        for _ in 0..3 {
            complete(at, &short());
            assert!(!flood.is_finished(), "{BATCH} of 1024 completions at a time take longer");
        }
        assert_eq!(flood.join().unwrap()["choices"].as_array().unwrap().len(), 1024);
    });
}

/// Hidden size of a slow model: long completions take seconds.
const SLOW: usize = if cfg!(debug_assertions) { 32 } else { 768 };

/// Starts long completions on a slow server, and returns their time and that of a short completion after they have
/// started. The short one is sent by `complete_other`.
fn time_during_long_ones(
    n: usize,
    pages: Option<u64>,
    complete_other: fn(SocketAddr, &Value) -> Value,
) -> [Duration; 2] {
    let server = start_sized(None, SLOW, pages);
    let at = server.address();
    let long = json!({ "prompt": "w1", "max_tokens": WINDOW - 1, "ignore_eos": true, "n": n, "seed": 1 });
    std::thread::scope(|scope| {
        let begin = Instant::now();
        let flood = scope.spawn(move || (complete(at, &long), begin.elapsed()));
        settle();
        let start = Instant::now();
        complete_other(at, &short());
        let other = start.elapsed();
        let (reply, flood) = flood.join().unwrap();
        let lengths = reply["usage"]["completion_tokens"].as_u64().unwrap();
        assert_eq!(lengths, (n * (WINDOW - 1)) as u64, "all are complete");
        println!("{flood:?} for the long completions, {other:?} for a short one");
        [flood, other]
    })
}

/// None of a client's completions ends before all do: no slot becomes free.
#[test]
fn a_client_that_fills_the_batch_does_not_delay_another() {
    let [flood, other] = time_during_long_ones(2 * BATCH, None, complete_elsewhere);
    assert!(other < flood / 10, "{other:?} of {flood:?}");
}

/// The memory is full before the batch is.
#[test]
fn a_client_that_fills_the_memory_does_not_delay_another() {
    let pages = WINDOW as u64 / 16;
    let [flood, other] = time_during_long_ones(BATCH, Some(2 * pages), complete_elsewhere);
    assert!(other < flood / 8, "{other:?} of {flood:?}");
}

/// Clients on one machine have the same address.
#[test]
fn a_call_that_fills_the_batch_does_not_delay_another() {
    let [flood, other] = time_during_long_ones(2 * BATCH, None, complete);
    assert!(other < flood / 10, "{other:?} of {flood:?}");
}

/// After a client has closed its connection, its completions take no more compute time, whether they are streamed or
/// not, and with stop texts.
#[test]
fn clients_that_leave_cancel_their_completions() {
    let server = start(None);
    let at = server.address();
    for extra in [json!({}), json!({ "stream": true }), json!({ "stop": ["zzz"] })] {
        let mut call = json!({ "prompt": "w1", "max_tokens": 250, "n": 1024 });
        call.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        drop(post(at, "/v1/completions", &call));
        let half_closed = post(at, "/v1/completions", &call);
        half_closed.shutdown(Shutdown::Both).unwrap();
        settle();
        println!("health, completion: {:?} after {extra}", times(at));
    }
}

/// A client that requests much and reads nothing is dropped, and its place is free again.
#[test]
fn clients_that_do_not_read_are_dropped() {
    let server = start(None);
    let at = server.address();
    let mut deaf = std::net::TcpStream::connect(at).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let requests = format!("GET /v1/models HTTP/1.1\r\nhost: {at}\r\n\r\n").repeat(1000);
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    loop {
        let error = deaf.write_all(requests.as_bytes()).err().map(|error| error.kind());
        slowest = slowest.max(health(at));
        match error {
            None | Some(std::io::ErrorKind::WouldBlock) => {}
            Some(_) => break,
        }
        assert!(start.elapsed() < Duration::from_secs(120), "the connection is still open");
    }
    println!("dropped after {:?}; slowest health check {slowest:?}", start.elapsed());
}

/// Clients announce large bodies and send none or only a part of them.
#[test]
fn clients_that_do_not_send_their_bodies_do_not_block_others() {
    let server = start(None);
    let at = server.address();
    let large = json!({ "prompt": "w2 w3", "max_tokens": 2, "user": "x".repeat(70_000) });
    // The parts hold their permits for two seconds, 32 at a time.
    for (sent, limit) in [(0, SOON), (70_000, Duration::from_secs(15))] {
        let head = format!("POST /v1/completions HTTP/1.1\r\n{}content-length: 4000000\r\n\r\n", own(at));
        let request = head + &"x".repeat(sent);
        let open = |_| {
            let mut stream = std::net::TcpStream::connect(at).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        let unfinished: Vec<_> = (0..96).map(open).collect();
        settle();
        times(at);
        let start = Instant::now();
        complete(at, &large);
        println!("{sent} bytes sent: a large body takes {:?}", start.elapsed());
        assert!(start.elapsed() < limit, "{:?}", start.elapsed());
        drop(unfinished);
    }
}

/// A large body that arrives slowly, but fast enough, is accepted.
#[test]
fn slow_large_bodies_are_accepted() {
    let server = start(None);
    let at = server.address();
    let large = json!({ "prompt": "w2 w3", "max_tokens": 2, "user": "x".repeat(3_000_000) }).to_string();
    let headers = own(at) + "connection: close\r\n";
    let head = format!("POST /v1/completions HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n", large.len());
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    for part in large.as_bytes().chunks(200_000) {
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(part).unwrap();
    }
    assert!(start.elapsed() > Duration::from_secs(3), "longer than without progress");
    let (status, reply) = receive(stream);
    assert_eq!(status, 200, "{reply}");
}
