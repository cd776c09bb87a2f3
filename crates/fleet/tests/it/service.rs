//! The service and its client over real sockets: the protocol, its limits, restarts, encryption.

use crate::worker_process::IDENTITY;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::wire;
use sgs_fleet::{
    ArtifactStore, AttemptId, AuthToken, BoardConfig, CallError, Client, Coordinator, Fleet, Grant, Lease,
    LeaseOutcome, Receipt, Report, Service, ServiceConfig, ServiceError, StopFlag, Task, TaskId, TaskResult,
    WorkKind, WorkerConfig, WorkerName, run_worker,
};

const GENERATE: WorkKind = WorkKind::of("generate");
const VERIFY: WorkKind = WorkKind::of("verify");

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(120);

const SECRET: &str = "0123456789abcdef-test";

fn token() -> AuthToken {
    AuthToken::new(SECRET, "test").unwrap().with_fingerprint(Some(IDENTITY.fingerprint()))
}

fn config() -> ServiceConfig {
    ServiceConfig { token: Some(token()), tls: Some(IDENTITY.server()), ..ServiceConfig::default() }
}

fn client(service: &Service) -> Client {
    Client::new(&service.url("127.0.0.1"), Some(token()), None).unwrap()
}

fn verifications(range: std::ops::Range<u64>) -> impl Iterator<Item = Task> {
    range.map(|id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: format!("{id}").into() })
}

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn done(task: TaskId, attempt: AttemptId, outcome: impl Into<sgs_fleet::Payload>) -> Report {
    Report { task, attempt, outcome: LeaseOutcome::Done(outcome.into()) }
}

/// Sends raw bytes. Returns the status and the body of the reply.
fn raw(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    request.extend(body);
    raw(address, &request)
}

const AUTH: &str = "authorization: Bearer 0123456789abcdef-test\r\n";
const POSTCARD: &str = "content-type: application/x-sgs-fleet-1\r\n";

/// Returns the body of a lease request, whose names may be invalid.
fn lease_body(worker: &str, kind: &str, capacity: usize, wait_s: f64) -> Vec<u8> {
    // A tuple has the same encoding as a struct.
    wire::write(&(worker, kind, capacity, wait_s)).unwrap()
}

#[test]
fn a_service_of_one_kind_takes_no_other() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let generation = |id| Task { id: TaskId(id), kind: GENERATE, priority: 0, payload: "".into() };
    fleet.submit(verifications(0..1).chain([generation(7)])).unwrap();
    let service = Service::start(fleet.clone(), ServiceConfig { kind: Some(GENERATE), ..config() }).unwrap();
    let client = client(&service);
    let refused = client.lease(&worker("rank"), &VERIFY, 1, SECOND);
    assert!(matches!(refused, Err(CallError::Refused(_))), "{refused:?}");
    // Use the name and the lease number of a worker in the run's own process.
    let own = Coordinator::lease(&fleet, &worker("own"), &VERIFY, 1, SECOND).unwrap().leases.remove(0).id();
    let leased = client.lease(&worker("own"), &GENERATE, 1, SECOND).unwrap().leases.remove(0).id();
    let both = vec![done(leased.task, leased.attempt, "sample"), done(own.task, own.attempt, "proved")];
    let refused = client.report(&worker("own"), both.clone());
    assert!(matches!(refused, Err(CallError::Refused(_))), "{refused:?}");
    assert!(fleet.take_finished(1, Duration::ZERO).pop().is_none());
    assert_eq!(client.report(&worker("own"), both[..1].to_vec()).unwrap(), [Receipt::Accepted]);
}

#[test]
fn tasks_are_leased_and_outcomes_reported() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    let client = client(&service);
    let grant = client.lease(&worker("w"), &VERIFY, 4, Duration::from_millis(50)).unwrap();
    assert!(grant.leases.is_empty() && grant.lease_time == Duration::from_secs(60));
    let waiting = {
        let client = client.clone();
        thread::spawn(move || client.lease(&worker("w"), &VERIFY, 4, LONG).unwrap())
    };
    thread::sleep(Duration::from_millis(50));
    let submitted = Instant::now();
    fleet.submit(verifications(0..6)).unwrap();
    let grant = waiting.join().unwrap();
    assert!(
        submitted.elapsed() < Duration::from_secs(5),
        "a lease request is answered as soon as there is work"
    );
    assert_eq!(grant.leases.len(), 4);
    let held: Vec<_> = grant.leases.iter().map(|l| l.id()).collect();
    assert!(client.heartbeat(&worker("w"), &held).unwrap().abandon.is_empty());
    assert_eq!(client.heartbeat(&worker("other"), &held).unwrap().abandon, held, "another worker holds them");
    // Send a payload that is not UTF-8, and a compressed body.
    let large: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let reports = vec![
        done(held[0].task, held[0].attempt, large.clone()),
        done(held[1].task, held[1].attempt, "small"),
        Report { task: held[2].task, attempt: held[2].attempt, outcome: LeaseOutcome::Returned },
    ];
    let receipts = client.report(&worker("w"), reports.clone()).unwrap();
    assert_eq!(receipts, [Receipt::Accepted, Receipt::Accepted, Receipt::Noted]);
    assert_eq!(
        client.report(&worker("w"), reports).unwrap(),
        [Receipt::Duplicate; 3],
        "the same again is harmless"
    );
    let forged = done(held[3].task, held[3].attempt, "forged");
    assert_eq!(client.report(&worker("thief"), vec![forged]).unwrap(), [Receipt::Refused]);
    let finished = fleet.take_finished(1, SECOND).pop().unwrap();
    assert!(matches!(finished.result, TaskResult::Done { outcome, .. } if outcome.as_bytes() == large));
    let status = client.status_within(Duration::from_secs(60)).unwrap();
    assert_eq!((status.kinds[0].pending, status.kinds[0].leased, status.counters.refused), (3, 1, 1));
}

#[test]
fn a_large_batch_of_tasks_is_compressed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    let text = "∀ x, x = x ".repeat(1000);
    let tasks =
        (0..500).map(|id| Task { id: TaskId(id), kind: GENERATE, priority: 0, payload: text.clone().into() });
    fleet.submit(tasks).unwrap();
    let grant = client(&service).lease(&worker("w"), &GENERATE, 1000, SECOND).unwrap();
    assert_eq!(grant.leases.len(), 500);
    assert!(grant.leases.iter().all(|l| l.payload.as_bytes() == text.as_bytes()));
}

#[test]
fn without_the_token_nothing_can_be_read_or_changed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    let at = service.address();
    fleet.submit(verifications(0..3)).unwrap();
    let lease = lease_body("w", "verify", 3, 0.0);
    for wrong in
        ["", "authorization: Bearer 0123456789abcdef-tesT\r\n", "authorization: 0123456789abcdef-test\r\n"]
    {
        let (status, body) = post(at, "/v1/lease", &format!("{POSTCARD}{wrong}"), &lease);
        assert_eq!(status, 401, "{body}");
        assert_eq!(
            raw(
                at,
                format!("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{wrong}\r\n").as_bytes()
            )
            .0,
            401
        );
    }
    assert_eq!(fleet.status().counters.leases, 0);
    let wrong = AuthToken::generate().unwrap().with_fingerprint(Some(IDENTITY.fingerprint()));
    let wrong = Client::new(&service.url("127.0.0.1"), Some(wrong), None).unwrap();
    let error = wrong.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why.contains("fleet.token")), "{error}");
}

/// How a foreign server at the coordinator's address answers.
#[derive(Clone, Copy)]
enum Stranger {
    /// In plain text, as soon as anything arrives.
    Plain,
    /// Over TLS, with its own key.
    OwnKey,
    /// Forwards the bytes in both directions, and changes some bytes of the service or of the client.
    Relay { to: SocketAddr, changes_requests: bool },
}

/// Starts a foreign server that answers each request with `answer`, and records the bytes that it can read.
fn stranger(how: Stranger, answer: Vec<u8>) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let read = Arc::clone(&heard);
    let own = sgs_tls::Identity::from_secret("the key of a stranger").server();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut part = vec![0; 65_536];
            match how {
                Stranger::Plain => {
                    let n = stream.read(&mut part).unwrap_or(0);
                    read.lock().unwrap().extend(&part[..n]);
                    let _ = stream.write_all(&answer);
                }
                Stranger::OwnKey => {
                    let Ok(stream) = sgs_tls::TlsStream::accept(stream, &own) else { continue };
                    let n = (&stream).read(&mut part).unwrap_or(0);
                    read.lock().unwrap().extend(&part[..n]);
                    let _ = (&stream).write_all(&answer);
                }
                Stranger::Relay { to, changes_requests } => {
                    let up = TcpStream::connect(to).unwrap();
                    let (client, service) = (stream.try_clone().unwrap(), up.try_clone().unwrap());
                    thread::spawn(move || pass(client, service, changes_requests));
                    pass(up, stream, !changes_requests);
                }
            }
        }
    });
    (url, heard)
}

/// Forwards bytes. If `changes` is true, changes some of them, but none of the handshake.
fn pass(mut from: TcpStream, mut to: TcpStream, changes: bool) {
    let (mut part, mut passed) = (vec![0; 65_536], 0);
    while let Ok(n @ 1..) = from.read(&mut part) {
        if changes && passed > 2000 {
            part[n - 1] ^= 1;
        }
        passed += n;
        if to.write_all(&part[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn a_client_neither_reveals_the_token_to_a_stranger_nor_obeys_it() {
    let (task, attempt, payload) = (TaskId(7), AttemptId(1), "evil".into());
    let leases = vec![Lease { task, attempt, kind: VERIFY, payload }];
    let lease = wire::write(&Grant { leases, lease_time: 60 * SECOND, drain: true }).unwrap();
    for how in [Stranger::Plain, Stranger::OwnKey] {
        let (url, heard) = stranger(how, http("200 OK", POSTCARD, &lease));
        let client = Client::new(&url, Some(token()), None).unwrap();
        let error = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap_err();
        let named = format!("{url} does not have the key sha256//");
        assert!(matches!(&error, CallError::Refused(why) if why.contains(&named)), "{error}");
        assert!(client.read_file("run.json", 0, 9).is_err());
        assert!(client.heartbeat(&worker("w"), &[]).is_err());
        let heard = String::from_utf8_lossy(&heard.lock().unwrap()).into_owned();
        assert!(!heard.contains(SECRET) && !heard.contains("HTTP"), "{heard}");
    }
    // A token in the old format, which has no fingerprint, must not be sent to a server whose certificate is not signed
    // by an authority.
    let (url, heard) = stranger(Stranger::OwnKey, http("200 OK", POSTCARD, &lease));
    let old = Client::new(&url, Some(AuthToken::new(SECRET, "test").unwrap()), None).unwrap();
    let error = old.status_within(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why.contains("use the file fleet.token")), "{error}");
    assert!(heard.lock().unwrap().is_empty());
    // The token must not be sent in plain text, either.
    let error = Client::new("http://127.0.0.1:1", Some(token()), None).unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why.contains("begins with https://")), "{error}");
}

/// The coordinator dies, and a foreign server takes its address.
#[test]
fn a_stranger_cannot_end_a_worker_that_knows_its_coordinator() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet, config()).unwrap();
    let address = service.address();
    let client = client(&service);
    client.heartbeat(&worker("w"), &[]).unwrap();
    drop(service);
    let listener = TcpListener::bind(address).unwrap();
    let own = sgs_tls::Identity::from_secret("the key of a stranger").server();
    let stranger = thread::spawn(move || sgs_tls::TlsStream::accept(listener.accept().unwrap().0, &own));
    // The first call may find the old connection closed.
    let error = (0..2).find_map(|_| {
        client.heartbeat(&worker("w"), &[]).err().filter(|e| e.to_string().contains("the key"))
    });
    assert!(matches!(&error, Some(CallError::Unavailable(_))), "{error:?}");
    assert!(stranger.join().unwrap().is_err());
}

#[test]
fn a_modified_reply_or_request_is_rejected() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let artifacts = ArtifactStore::default();
    artifacts.put("run.json", vec![b'x'; 100_000]);
    let service = Service::start(fleet.clone(), ServiceConfig { artifacts, ..config() }).unwrap();
    fleet.submit(verifications(0..1)).unwrap();
    let lease = client(&service).lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
    let through = |changes_requests| {
        let relay = Stranger::Relay { to: service.address(), changes_requests };
        Client::new(&stranger(relay, Vec::new()).0, Some(token()), None).unwrap()
    };
    let error = through(false).read_document("run.json").unwrap_err();
    assert!(matches!(error, CallError::Unavailable(_)), "{error}");
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(200_000).collect();
    let error = through(true).report(&worker("w"), vec![done(lease.task, lease.attempt, noise)]).unwrap_err();
    assert!(matches!(error, CallError::Unavailable(_)), "{error}");
    assert_eq!(fleet.status().counters.done, 0);
    // Messages that are forwarded unchanged are accepted.
    assert_eq!(through(true).heartbeat(&worker("w"), &[lease.id()]).unwrap().abandon, []);
}

#[test]
fn plain_text_is_accepted_from_this_machine_only() {
    let Some(outside) = address_of_this_machine() else {
        println!("skipped: this machine has only loopback addresses");
        return;
    };
    let fleet = Fleet::in_memory(BoardConfig::default());
    let listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let service = Service::start(fleet, ServiceConfig { listen, ..config() }).unwrap();
    let port = service.address().port();
    let ask = format!("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{AUTH}\r\n");
    assert_eq!(raw(SocketAddr::from(([127, 0, 0, 1], port)), ask.as_bytes()).0, 200);
    assert_eq!(raw(SocketAddr::new(outside, port), ask.as_bytes()), (0, String::new()));
    Client::new(&service.url(&outside.to_string()), Some(token()), None)
        .unwrap()
        .status_within(Duration::from_secs(60))
        .unwrap();
}

/// Returns the address from which this machine would send to the network.
fn address_of_this_machine() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // This call sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn malformed_requests_are_rejected_with_a_message_and_change_nothing() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), ServiceConfig { max_body: 100_000, ..config() }).unwrap();
    let at = service.address();
    fleet.submit(verifications(0..3)).unwrap();
    let both = format!("{AUTH}{POSTCARD}");
    let packed = format!("{both}content-encoding: zstd\r\n");
    let bomb = zstd::bulk::compress(&vec![b' '; 50_000_000], 1).unwrap();
    assert!(bomb.len() < 50_000);
    let lease = lease_body("w", "verify", 3, 0.0);
    let named = |worker: &str, kind: &str| lease_body(worker, kind, 3, 0.0);
    let invalid = "not valid for this call";
    let cases: [(&str, &str, &[u8], u16, &str); 13] = [
        ("/v1/lease", &both, &lease[..lease.len() - 1], 400, invalid),
        ("/v1/lease", &both, &[&lease[..], b"x"].concat(), 400, "unexpected bytes"),
        ("/v1/lease", &both, &named("a b", "verify"), 400, invalid),
        ("/v1/lease", &both, &named("w", "Verify!"), 400, invalid),
        ("/v1/lease", &both, &lease_body("w", "verify", 1, -1.0), 400, "wait_s"),
        ("/v1/results", &both, &wire::write(&("w", [(1u64, 1u32)])).unwrap(), 400, invalid),
        ("/v1/lease", &packed, b"not zstd at all", 400, "zstd"),
        ("/v1/lease", &packed, &bomb, 413, "100000 bytes"),
        ("/v1/lease", &both, &vec![b' '; 100_001], 413, "100000 bytes"),
        ("/v1/lease", AUTH, &lease, 415, "wrong content type"),
        ("/v1/lease", &format!("{AUTH}content-type: text/plain\r\n"), &lease, 415, "wrong content type"),
        (
            "/v1/lease",
            &format!("{AUTH}content-type: application/json\r\n"),
            &lease,
            415,
            "application/x-sgs-fleet-1",
        ),
        ("/v1/leases", &both, &lease, 404, "/v1/leases"),
    ];
    for (path, headers, body, status, words) in cases {
        let (got, answer) = post(at, path, headers, body);
        assert_eq!(got, status, "{answer}");
        assert!(answer.contains("\"error\"") && answer.contains(words), "{words}: {answer}");
    }
    for path in ["/v1/lease", "/v1/results", "/v1/heartbeat"] {
        let (status, _) =
            raw(at, format!("GET {path} HTTP/1.1\r\nhost: x\r\n{AUTH}connection: close\r\n\r\n").as_bytes());
        assert_eq!(status, 405, "calls that change state must be POST");
    }
    // Send a request that is cut off in the middle of its body.
    let cut = format!("POST /v1/lease HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n{both}\r\n{{\"worker\":");
    TcpStream::connect(at).unwrap().write_all(cut.as_bytes()).unwrap();
    assert_eq!(fleet.status().counters.leases, 0);
    assert_eq!(post(at, "/v1/lease", &both, &lease).0, 200, "the service still works");
}

/// Builds a compressed body of the maximum size that is not a valid request.
fn swollen(size: usize) -> Vec<u8> {
    zstd::bulk::compress(&vec![b' '; size], 1).unwrap()
}

fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

#[test]
fn the_memory_for_decompressed_bodies_is_bounded() {
    const SIZE: usize = 64 << 20;
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet, ServiceConfig { max_body: SIZE, ..config() }).unwrap();
    let at = service.address();
    let packed = format!("{AUTH}{POSTCARD}content-encoding: zstd\r\n");
    let body = swollen(SIZE);
    assert!(body.len() < 8 << 10);
    let before = resident();
    let (done, mut most) = (AtomicUsize::new(0), 0.0f64);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (status, words) = post(at, "/v1/lease", &packed, &body);
                assert_eq!(status, 400, "{words}");
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 8 {
            most = most.max(resident() - before);
            thread::sleep(Duration::from_millis(1));
        }
    });
    // The memory is that of one body and of the buffer that it outgrew. Freed buffers of this size are returned to the
    // system; the allocator may keep smaller ones, one per thread.
    assert!(most < 3.5 * SIZE as f64, "{:.0} MiB for eight bodies of 64 MiB", most / f64::from(1 << 20));
    // A wrong announced size is detected, and a missing one counts as the maximum.
    let liar = [&zstd::bulk::compress(b"{}", 1).unwrap()[..], &swollen(1 << 20)[..]].concat();
    assert_eq!(post(at, "/v1/lease", &packed, &liar).0, 413);
    let lease = lease_body("w", "verify", 3, 0.0);
    let silent = zstd::stream::encode_all(&lease[..], 1).unwrap();
    assert_eq!(post(at, "/v1/lease", &packed, &silent).0, 200);
}

/// Sends the head of a request for work with a body of `size` bytes, and the first `sent` of them.
fn begin_body(at: SocketAddr, size: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    let head =
        format!("POST /v1/lease HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n{AUTH}{POSTCARD}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_write_timeout(Some(SECOND)).unwrap();
    for _ in 0..sent / 4096 {
        if stream.write_all(&[b' '; 4096]).is_err() {
            // The service does not read the rest.
            break;
        }
    }
    stream
}

#[test]
fn unfinished_bodies_hold_a_bounded_memory() {
    const SIZE: usize = 32 << 20;
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..3)).unwrap();
    let config = ServiceConfig { max_body: SIZE, body_wait: 30 * SECOND, ..config() };
    let service = Service::start(fleet, config).unwrap();
    let at = service.address();
    let before = resident();
    let unfinished: Vec<TcpStream> = thread::scope(|scope| {
        let begun: Vec<_> = (0..10).map(|_| scope.spawn(|| begin_body(at, SIZE, SIZE - 4096))).collect();
        begun.into_iter().map(|stream| stream.join().unwrap()).collect()
    });
    let most = resident() - before;
    // The memory is that of one body and of the first part of each of the others.
    assert!(most < 2.5 * SIZE as f64, "{:.0} MiB for ten bodies of 32 MiB", most / f64::from(1 << 20));
    // Small requests do not wait for them.
    let begun = Instant::now();
    let client = client(&service);
    let lease = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
    assert_eq!(client.heartbeat(&worker("w"), &[lease.id()]).unwrap().abandon, []);
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
    drop(unfinished);
    // The memory that was reserved for these bodies is free again.
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(2_000_000).collect();
    let report = vec![done(lease.task, lease.attempt, noise)];
    assert_eq!(client.report(&worker("w"), report).unwrap(), [Receipt::Accepted]);
}

#[test]
fn a_silent_body_gives_way_to_others() {
    const SIZE: usize = 1 << 20;
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..1)).unwrap();
    let config = ServiceConfig { max_body: SIZE, body_wait: 3 * SECOND, ..config() };
    let service = Service::start(fleet, config).unwrap();
    let (at, client) = (service.address(), client(&service));
    let lease = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
    // A declared length, or a small part of a body, reserves no memory.
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(SIZE / 2).collect();
    let report = vec![done(lease.task, lease.attempt, noise)];
    let small: Vec<_> = (0..5).map(|_| begin_body(at, SIZE, 3 * 4096)).collect();
    let begun = Instant::now();
    assert_eq!(client.report(&worker("w"), report.clone()).unwrap(), [Receipt::Accepted]);
    assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
    drop(small);
    // Several large bodies come first, but do not hold their memory for long. The report is sent again until there is
    // room.
    let large: Vec<_> = (0..3).map(|_| begin_body(at, SIZE, SIZE / 2)).collect();
    let begun = Instant::now();
    while let Err(error) = client.report(&worker("w"), report.clone()) {
        assert!(matches!(error, CallError::Unavailable(_)) && begun.elapsed() < LONG, "{error}");
    }
    let mut answers = Vec::new();
    for mut stream in large {
        let _ = stream.read_to_end(&mut answers);
    }
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.contains("HTTP/1.1 408"), "{answers}");
    assert!(answers.contains("HTTP/1.1 503") && answers.contains("retry-after: 5"), "{answers}");
}

#[test]
fn a_client_that_disconnects_while_waiting_gets_no_lease() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    for _ in 0..20 {
        let body = lease_body("gone", "verify", 3, 20.0);
        let mut stream = TcpStream::connect(service.address()).unwrap();
        let head = format!(
            "POST /v1/lease HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{AUTH}{POSTCARD}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(200));
    // When each thread of the service has answered later requests, it has also seen the disconnects.
    let ask = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\n{AUTH}connection: close\r\n\r\n");
    for _ in 0..8 {
        assert_eq!(raw(service.address(), ask.as_bytes()).0, 200);
    }
    fleet.submit(verifications(0..1)).unwrap();
    let grant = client(&service).lease(&worker("w"), &VERIFY, 1, LONG).unwrap();
    assert_eq!(grant.leases[0].attempt, AttemptId(1), "the task was not leased before");
}

/// Without a token, a web page of another site can neither read nor change anything, regardless of the address that its
/// name resolves to.
#[test]
fn web_pages_of_other_sites_are_rejected() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), ServiceConfig::default()).unwrap();
    let at = service.address();
    fleet.submit(verifications(0..3)).unwrap();
    let lease = lease_body("w", "verify", 3, 0.0);
    let ask = |call: &str, headers: &str| {
        let head = format!(
            "{call} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
            lease.len()
        );
        raw(at, &[head.as_bytes(), &lease].concat())
    };
    for call in ["GET /v1/status", "GET /metrics", "POST /v1/lease"] {
        let (status, body) = ask(call, &format!("host: evil.example\r\n{POSTCARD}"));
        assert!(status == 403 && body.contains("host"), "{call}: {body}");
        let (status, body) = ask(call, &format!("host: {at}\r\n{POSTCARD}origin: http://evil.example\r\n"));
        assert!(status == 403 && body.contains("origin"), "{call}: {body}");
    }
    assert_eq!(fleet.status().counters.leases, 0);
    assert_eq!(ask("POST /v1/lease", &format!("host: localhost\r\n{POSTCARD}")).0, 200);
}

#[test]
fn a_public_address_requires_a_token_and_tls() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = Service::start(fleet.clone(), ServiceConfig { listen: open, ..ServiceConfig::default() })
        .unwrap_err();
    assert!(matches!(error, ServiceError::Unprotected(_)), "{error}");
    let plain = ServiceConfig { listen: open, tls: None, ..config() };
    assert!(matches!(Service::start(fleet.clone(), plain), Err(ServiceError::Unprotected(_))));
    Service::start(fleet.clone(), ServiceConfig { listen: open, ..config() }).unwrap();
    Service::start(fleet, ServiceConfig::default()).unwrap();
}

#[test]
fn metrics_are_in_prometheus_format() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    fleet.submit(verifications(0..3)).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{AUTH}connection: close\r\n\r\n");
    let (status, body) = raw(service.address(), request.as_bytes());
    assert_eq!(status, 200);
    assert!(body.contains("sgs_fleet_tasks_pending{kind=\"verify\"} 3\n"), "{body}");
    assert!(body.contains("# TYPE sgs_fleet_done_total counter\n"));
    for line in body.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("sgs_fleet_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

/// The coordinator is killed three times while workers run, and no worker is restarted. Only the journal of removed tasks
/// survives.
#[test]
fn workers_outlive_their_coordinator() {
    const TASKS: u64 = 600;
    const SLOTS: usize = 3;
    let mut fleet = Fleet::journalled(BoardConfig::default());
    let mut service = Service::start(fleet.clone(), config()).unwrap();
    let address = service.address();
    let runs = AtomicUsize::new(0);
    let drain = StopFlag::default();
    let mut journal = std::collections::BTreeMap::new();
    let mut unwritten = 0;
    let summaries = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|n| {
                let coordinator: Arc<dyn Coordinator> = Arc::new(client(&service));
                let mut config = WorkerConfig::new(worker(&format!("w{n}")), VERIFY);
                config.batch = 4;
                let (drain, runs) = (drain.clone(), &runs);
                scope.spawn(move || {
                    let handler = |lease: &sgs_fleet::Lease, _: &sgs_fleet::StopFlag| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(2));
                        Ok(lease.payload.clone())
                    };
                    run_worker(coordinator, config, drain, SLOTS, handler).unwrap()
                })
            })
            .collect();
        for stage in 1..=4 {
            let missing: Vec<Task> =
                verifications(0..TASKS).filter(|t| !journal.contains_key(&t.id)).collect();
            assert_eq!(fleet.submit(missing.clone()).unwrap(), missing.len());
            let deadline = Instant::now() + LONG;
            while (journal.len() as u64) < TASKS * stage / 4 {
                assert!(Instant::now() < deadline, "stage {stage}: {} ended", journal.len());
                for finished in fleet.take_finished(10, SECOND) {
                    let TaskResult::Done { outcome, .. } = finished.result else { panic!("quarantined") };
                    assert_eq!(outcome.as_bytes(), finished.task.to_string().as_bytes());
                    assert!(journal.insert(finished.task, outcome).is_none(), "journalled twice");
                    fleet.remove(&[finished.task]);
                }
            }
            if stage < 4 {
                // These tasks are taken, but the coordinator dies before it writes the journal.
                unwritten += fleet.take_finished(10, Duration::from_millis(20)).len();
                drop(service);
                drop(fleet);
                fleet = Fleet::journalled(BoardConfig::default());
                service =
                    Service::start(fleet.clone(), ServiceConfig { listen: address, ..config() }).unwrap();
                // A run loads its weights now. No lease is abandoned in the meantime.
                thread::sleep(Duration::from_millis(1500));
            }
        }
        drain.set();
        let summaries: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        drop(service);
        summaries
    });
    assert_eq!(journal.len() as u64, TASKS);
    assert_eq!(
        summaries.iter().map(|s| s.abandoned + s.rejected + s.unsettled).sum::<u64>(),
        0,
        "{summaries:?}"
    );
    // Only tasks whose grant was lost are repeated.
    println!(
        "{} runs for {TASKS} tasks, {unwritten} outcomes taken but not stored",
        runs.load(Ordering::SeqCst)
    );
    assert!(runs.into_inner() <= TASKS as usize + 3 * 2 * SLOTS, "finished tasks are not repeated");
}

#[test]
fn an_operators_certificate_is_trusted_through_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files =
        sgs_tls::TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    std::fs::write(&files.certificate, certified.cert.pem()).unwrap();
    std::fs::write(&files.key, certified.signing_key.serialize_pem()).unwrap();
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..1)).unwrap();
    let tls = ServiceConfig { tls: Some(files.server().unwrap()), ..config() };
    let service = Service::start(fleet, tls).unwrap();
    let url = service.url("localhost");
    assert!(url.starts_with("https://localhost:"));
    let bare = || Some(AuthToken::new(SECRET, "test").unwrap());
    let trusting = Client::new(&url, bare(), Some(&[certified.cert.der().to_vec()])).unwrap();
    assert_eq!(trusting.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.len(), 1);
    // With a file of authorities, the operator's certificate counts, not the fingerprint of a proxied coordinator.
    Client::new(&url, Some(token()), Some(&[certified.cert.der().to_vec()]))
        .unwrap()
        .status_within(Duration::from_secs(60))
        .unwrap();
    for doubting in [bare(), Some(token())] {
        let error =
            Client::new(&url, doubting, None).unwrap().status_within(Duration::from_secs(60)).unwrap_err();
        assert!(matches!(&error, CallError::Refused(why) if why.contains("--authority")), "{error}");
    }

    std::fs::write(&files.key, "nonsense").unwrap();
    let error = files.server().unwrap_err().to_string();
    assert!(error.contains("key.pem") && error.contains("PEM private key"), "{error}");
}

#[test]
fn workers_can_read_published_artifacts_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let content: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let artifacts = ArtifactStore::default();
    artifacts.put_file("models/a/model.safetensors", &path);
    artifacts.put("run.json", &b"{}"[..]);
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet, ServiceConfig { artifacts: artifacts.clone(), ..config() }).unwrap();
    let client = client(&service);
    assert_eq!(client.read_document("run.json").unwrap().as_deref(), Some(&b"{}"[..]));
    assert!(client.read_document("models/a/model.safetensors").unwrap().unwrap() == content);
    let part = client.read_file("models/a/model.safetensors", 19_999_990, 100).unwrap().unwrap();
    assert_eq!((&part.bytes[..], part.total), (&content[19_999_990..], 20_000_000));
    assert!(client.read_file("models/a/model.safetensors", 30_000_000, 1).unwrap().unwrap().bytes.is_empty());
    for absent in ["models/a", "../../../../etc/passwd", "models/a/../a/model.safetensors"] {
        assert_eq!(client.read_file(absent, 0, 9).unwrap(), None, "{absent}");
    }
    let get = |path: &str, headers: &str| {
        raw(
            service.address(),
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").as_bytes(),
        )
    };
    assert_eq!(get("/v1/files/run.json", "").0, 401, "artifacts require the token, too");
    assert_eq!(get("/v1/files/run.json", AUTH), (200, "{}".to_owned()));
    assert_eq!(get("/v1/files/models/a/model.safetensors", AUTH).0, 413, "large files need range requests");
    assert_eq!(get("/v1/files/run.json", &format!("{AUTH}range: bytes=0-9\r\n")), (206, "{}".to_owned()));
    for range in ["lines=1-2", "bytes=+0-9", "bytes=0-+9", "bytes=0-9\u{a0}", "bytes=-9", "bytes=9-0"] {
        // Also send the range as Latin-1, in which the non-breaking space is one byte.
        let head =
            format!("GET /v1/files/run.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{AUTH}range: ");
        let latin: Vec<u8> = range.chars().map(|c| c as u8).collect();
        for range in [range.as_bytes(), &latin] {
            let (status, answer) = raw(service.address(), &[head.as_bytes(), range, b"\r\n\r\n"].concat());
            assert_eq!(status, 416, "{}: {answer}", range.escape_ascii());
        }
    }
    let absolute = format!("/v1/files/{}", path.display());
    assert_eq!(get(&absolute, AUTH).0, 404, "names, not paths");
    // A published file that is missing is a fault of the coordinator, so the worker may retry.
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(client.read_file("models/a/model.safetensors", 0, 1), Err(CallError::Unavailable(_))));
    artifacts.retain(|name| name == "run.json");
    assert_eq!(client.read_file("models/a/model.safetensors", 0, 1).unwrap(), None);
}

/// Starts a proxy that records the requests of each connection.
fn tap(service: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let all = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut client, mut server) = (stream.unwrap(), TcpStream::connect(service).unwrap());
            let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut back, &mut to_client));
            let all = Arc::clone(&all);
            let number = {
                let mut all = all.lock().unwrap();
                all.push(Vec::new());
                all.len() - 1
            };
            thread::spawn(move || {
                let mut part = [0; 4096];
                while let Ok(read @ 1..) = client.read(&mut part) {
                    all.lock().unwrap()[number].extend(&part[..read]);
                    if server.write_all(&part[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, heard)
}

/// Sends recorded bytes. Returns the reply.
fn replay(service: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(service).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn recorded_requests_cannot_be_replayed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    let (address, heard) = tap(service.address());
    let client = Client::new(&format!("https://{address}"), Some(token()), None).unwrap();
    fleet.submit(verifications(0..4)).unwrap();
    let grant = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap();
    let held: Vec<_> = grant.leases.iter().map(|lease| lease.id()).collect();
    assert_eq!(client.heartbeat(&worker("w"), &held).unwrap().abandon, []);
    client.status_within(Duration::from_secs(60)).unwrap();
    let before = fleet.status();
    assert_eq!((before.kinds[0].leased, before.counters.leases), (1, 1));
    let heard = heard.lock().unwrap().clone();
    let text = String::from_utf8_lossy(&heard.concat()).into_owned();
    assert!(text.len() > 500 && !text.contains(SECRET) && !text.contains("HTTP"), "a listener reads nothing");
    let rejected = |at: SocketAddr| {
        heard.iter().all(|bytes| !String::from_utf8_lossy(&replay(at, bytes)).contains("HTTP"))
    };
    assert!(rejected(service.address()));
    let after = fleet.status();
    assert_eq!((after.kinds[0].leased, after.counters.leases), (1, 1), "no new lease");
    // A restarted coordinator with the same key rejects them, too.
    drop(service);
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..4)).unwrap();
    let again = Service::start(fleet.clone(), config()).unwrap();
    assert!(rejected(again.address()));
    assert_eq!(fleet.status().counters.leases, 0);
}
