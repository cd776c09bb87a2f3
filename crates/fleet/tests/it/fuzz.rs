//! Fuzz tests of bodies and requests.

use crate::fuzzing;
use crate::worker_process::{self, IDENTITY, start_service};
use fuzzing::Fuzzer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_fleet::wire::{self, HeartbeatRequest, LeaseRequest, ResultsReply, ResultsRequest};
use sgs_fleet::{
    ArtifactStore, AttemptId, AuthToken, BoardConfig, Client, Coordinator, Fleet, Grant, HeartbeatAck, Lease,
    LeaseId, LeaseOutcome, Receipt, Report, Service, ServiceConfig, Task, TaskId, WorkKind, WorkerName,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const VERIFY: WorkKind = WorkKind::of("verify");

fn worker() -> WorkerName {
    WorkerName::new("verify-host-1").unwrap()
}

fn bodies() -> Vec<Vec<u8>> {
    let (task, attempt) = (TaskId(u64::MAX - 7), AttemptId(4097));
    let report = |outcome| Report { task, attempt, outcome };
    let results = vec![
        report(LeaseOutcome::Done(vec![0, 255, 7].into())),
        report(LeaseOutcome::Failed("∀ broken".into())),
        report(LeaseOutcome::Returned),
    ];
    let held = vec![LeaseId { task, attempt }; 3];
    let lease_time = Duration::from_secs(60);
    let lease = Lease { task, attempt, kind: VERIFY, payload: "payload".into() };
    vec![
        wire::write(&LeaseRequest { worker: worker(), kind: VERIFY, capacity: 9, wait_s: 0.0 }).unwrap(),
        wire::write(&HeartbeatRequest { worker: worker(), tasks: held.clone() }).unwrap(),
        wire::write(&ResultsRequest { worker: worker(), results }).unwrap(),
        wire::write(&Grant { leases: vec![lease; 2], lease_time, drain: true }).unwrap(),
        wire::write(&HeartbeatAck { abandon: held, lease_time, drain: false }).unwrap(),
        wire::write(&ResultsReply { receipts: vec![Receipt::Accepted, Receipt::Waiting] }).unwrap(),
    ]
}

/// Parses the bytes. If they are valid, checks that the value survives a round trip. Returns whether they are valid.
fn is_whole<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(value) = wire::read::<T>(bytes) else { return false };
    let written = wire::write(&value).unwrap();
    let again: T = wire::read(&written).unwrap();
    assert_eq!(wire::write(&again).unwrap(), written);
    true
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_bodies_of_the_wire() {
    let mut fuzzer = Fuzzer::new(bodies());
    while let Some(bytes) = fuzzer.input() {
        let whole = [
            is_whole::<LeaseRequest>(&bytes),
            is_whole::<HeartbeatRequest>(&bytes),
            is_whole::<ResultsRequest>(&bytes),
            is_whole::<Grant>(&bytes),
            is_whole::<HeartbeatAck>(&bytes),
            is_whole::<ResultsReply>(&bytes),
        ];
        if whole.contains(&true) {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("bodies");
}

fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer 0123456789abcdef-test\r\nconnection: close\r\n\
         content-type: {}\r\ncontent-length: {}\r\n\r\n",
        wire::POSTCARD,
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends bytes on a new connection. Returns the bytes that arrive within 200 ms, or `None` if there is no connection.
fn answer_to(at: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let Ok(mut stream) = TcpStream::connect(at) else {
        // The system may run out of ports, because those of closed connections stay reserved for a while.
        thread::sleep(Duration::from_millis(100));
        return None;
    };
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Some(answer)
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_requests_to_the_service() {
    let token = AuthToken::new("0123456789abcdef-test", "test").unwrap();
    let token = token.with_fingerprint(Some(IDENTITY.fingerprint()));
    let artifacts = ArtifactStore::default();
    artifacts.put("run.json", &b"{}"[..]);
    let fleet = Fleet::in_memory(BoardConfig::default());
    let tasks = (0..50).map(|id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() });
    fleet.submit(tasks).unwrap();
    let config = ServiceConfig {
        token: Some(token.clone()),
        tls: Some(IDENTITY.server()),
        artifacts,
        max_body: 1 << 16,
        ..ServiceConfig::default()
    };
    let service = Service::start(fleet, config).unwrap();
    let mut corpus = vec![
        b"GET /v1/files/run.json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer 0123456789abcdef-test\r\nrange: bytes=0-9\r\nconnection: close\r\n\r\n".to_vec(),
        b"GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Basic 00\r\nconnection: close\r\n\r\n".to_vec(),
    ];
    for (path, body) in ["/v1/lease", "/v1/heartbeat", "/v1/results"].iter().zip(bodies()) {
        corpus.push(request(path, &body));
    }
    let mut fuzzer = Fuzzer::new(corpus);
    while let Some(bytes) = fuzzer.input() {
        let Some(answer) = answer_to(service.address(), &bytes) else { continue };
        if answer.starts_with(b"HTTP/1.1 2") {
            fuzzer.keep(bytes);
        }
        assert!(!answer.starts_with(b"HTTP/1.1 500"), "{}", String::from_utf8_lossy(&answer));
    }
    fuzzer.report("requests");
    let client = Client::new(&service.url("127.0.0.1"), Some(token), None).unwrap();
    client.status_within(Duration::from_secs(60)).unwrap();
    client.heartbeat(&worker(), &[]).unwrap();
}

/// Returns the first bytes that a client sends.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let caller = thread::spawn(move || worker_process::client(&url).status_within(Duration::from_secs(60)));
    let (mut stream, _) = listener.accept().unwrap();
    let mut hello = vec![0; 4096];
    let length = stream.read(&mut hello).unwrap();
    hello.truncate(length);
    drop(stream);
    assert!(caller.join().unwrap().is_err());
    hello
}

#[test]
#[ignore = "as long as SGS_FUZZ_SECONDS says, 10 s otherwise"]
fn fuzz_first_bytes_of_the_transport() {
    const TLS_HANDSHAKE: u8 = 22;
    let service = start_service(&Fleet::in_memory(BoardConfig::default()));
    let secret = worker_process::token().header();
    let head =
        format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: {secret}\r\nconnection: close\r\n\r\n");
    let hello = client_hello();
    assert_eq!(hello[0], TLS_HANDSHAKE);
    let mut fuzzer =
        Fuzzer::new(vec![hello.clone(), head.clone().into(), [&hello[..], head.as_bytes()].concat()]);
    let mut tried = 0;
    while let Some(bytes) = fuzzer.input() {
        if tried % 100 == 0 {
            worker_process::client(&service.url("127.0.0.1")).heartbeat(&worker(), &[]).unwrap();
        }
        tried += 1;
        let Some(answer) = answer_to(service.address(), &bytes) else { continue };
        let holds = |all: &[u8], part: &[u8]| all.windows(part.len()).any(|window| window == part);
        if bytes.first() == Some(&TLS_HANDSHAKE) {
            assert!(!holds(&answer, b"HTTP"), "plain text within TLS: {}", answer.escape_ascii());
        }
        if answer.starts_with(b"HTTP/1.1 2") {
            assert!(holds(&bytes, secret.as_bytes()), "without the token: {}", bytes.escape_ascii());
        }
        // The service has accepted the request, or the hello.
        if answer.starts_with(b"HTTP/1.1 2") || answer.first() == Some(&TLS_HANDSHAKE) {
            fuzzer.keep(bytes);
        }
    }
    fuzzer.report("first bytes");
    worker_process::client(&service.url("127.0.0.1")).heartbeat(&worker(), &[]).unwrap();
}
