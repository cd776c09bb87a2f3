//! The service and its client over real sockets: the protocol, its limits, restarts, encryption.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::{
    ArtifactStore, AttemptId, AuthToken, BoardConfig, CallError, Client, Coordinator, DrainFlag, Fleet,
    LeaseOutcome, Receipt, Report, Service, ServiceConfig, ServiceError, Task, TaskId, TaskResult, WorkKind,
    WorkerConfig, WorkerName, run_worker,
};

const GENERATE: WorkKind = WorkKind::of("generate");
const VERIFY: WorkKind = WorkKind::of("verify");

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(120);

fn token() -> AuthToken {
    AuthToken::new("0123456789abcdef-test", "test").unwrap()
}

fn config() -> ServiceConfig {
    ServiceConfig { token: Some(token()), ..ServiceConfig::default() }
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
const JSON: &str = "content-type: application/json\r\n";

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
    // A payload that is not UTF-8, and a compressed body.
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
    let finished = fleet.next_finished(SECOND).unwrap().unwrap();
    assert!(matches!(finished.result, TaskResult::Done { outcome, .. } if outcome.as_bytes() == large));
    let status = client.status().unwrap();
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
    let lease = br#"{"worker":"w","kind":"verify","capacity":3}"#;
    for wrong in
        ["", "authorization: Bearer 0123456789abcdef-tesT\r\n", "authorization: 0123456789abcdef-test\r\n"]
    {
        let (status, body) = post(at, "/v1/lease", &format!("{JSON}{wrong}"), lease);
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
    assert_eq!(fleet.status().unwrap().counters.leases, 0);
    let wrong = Client::new(&service.url("127.0.0.1"), Some(AuthToken::generate().unwrap()), None).unwrap();
    let error = wrong.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why.contains("token")), "{error}");
}

/// Starts a server that gives the same reply to every request and records the requests in `seen`.
fn impostor(
    answer: impl Fn(&str) -> Vec<u8> + Send + 'static,
) -> (String, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, asked) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 65_536];
            let n = stream.read(&mut request).unwrap();
            request.truncate(n);
            let body = answer(&String::from_utf8_lossy(&request));
            if seen.send(request).is_err() {
                return;
            }
            let _ = stream.write_all(&body);
        }
    });
    (url, asked)
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn a_client_neither_reveals_the_token_to_an_impostor_nor_obeys_it() {
    let lease =
        br#"{"tasks":[{"task":7,"attempt":1,"kind":"verify","payload":"evil"}],"lease_s":60.0,"drain":true}"#;
    let proof = format!("sgs-proof: {} {} {}\r\n", lease.len(), "00".repeat(32), "00".repeat(32));
    for headers in [JSON.to_owned(), format!("{JSON}{proof}")] {
        let (url, asked) = impostor(move |request| match request.starts_with("GET /v1/files") {
            true => http("206 Partial Content", &format!("{headers}content-range: bytes 0-3/4\r\n"), b"evil"),
            false => http("200 OK", &headers, lease),
        });
        let client = Client::new(&url, Some(token()), None).unwrap();
        let error = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap_err();
        assert!(matches!(&error, CallError::Unavailable(why) if why.contains("does not prove")), "{error}");
        assert!(client.read_file("run.json", 0, 9).is_err());
        assert!(client.heartbeat(&worker("w"), &[]).is_err());
        for request in asked.try_iter() {
            let text = String::from_utf8_lossy(&request).into_owned();
            assert!(!text.contains("0123456789abcdef-test"), "the token is not sent: {text}");
        }
    }
}

/// The coordinator dies, and an impostor without the token takes its address.
#[test]
fn an_impostor_cannot_end_a_worker_that_knows_its_coordinator() {
    let artifacts = ArtifactStore::default();
    artifacts.put("run.json", &b"good"[..]);
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet, ServiceConfig { artifacts, ..config() }).unwrap();
    let at = service.address();
    // The client needs two requests: the first returns the challenge.
    let asked = AtomicUsize::new(0);
    let (url, _asked) = impostor(move |request| {
        if asked.fetch_add(1, Ordering::Relaxed) >= 2 {
            return http("401 Unauthorized", JSON, b"{}");
        }
        let mut stream = TcpStream::connect(at).unwrap();
        let request =
            String::from_utf8_lossy(request.as_bytes()).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    let client = Client::new(&url, Some(token()), None).unwrap();
    assert_eq!(client.read_document("run.json").unwrap().as_deref(), Some(&b"good"[..]));
    let error = client.heartbeat(&worker("w"), &[]).unwrap_err();
    assert!(matches!(&error, CallError::Unavailable(_)), "{error}");
    // A new client fails at once.
    let error = Client::new(&url, Some(token()), None).unwrap().heartbeat(&worker("w"), &[]).unwrap_err();
    assert!(matches!(&error, CallError::Refused(_)), "{error}");
}

#[test]
fn replies_that_were_modified_or_belong_to_another_request_are_rejected() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let artifacts = ArtifactStore::default();
    artifacts.put("run.json", &b"good"[..]);
    let service = Service::start(fleet, ServiceConfig { artifacts, ..config() }).unwrap();
    let at = service.address();
    let forward = move |request: &[u8]| {
        let mut stream = TcpStream::connect(at).unwrap();
        let request = String::from_utf8_lossy(request).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let read = |change: fn(String) -> String| {
        let (url, _asked) = impostor(move |request| {
            change(String::from_utf8_lossy(&forward(request.as_bytes())).into_owned()).into_bytes()
        });
        Client::new(&url, Some(token()), None).unwrap().read_document("run.json")
    };
    assert_eq!(
        read(|answer| answer).unwrap().as_deref(),
        Some(&b"good"[..]),
        "the unmodified connection works"
    );
    assert!(read(|answer| answer.replace("good", "evil")).is_err());
    assert!(read(|answer| answer.replace("/4", "/2")).is_err());
    // A valid reply to another request.
    let kept = Mutex::new(Vec::new());
    let (url, _asked) = impostor(move |request| {
        let mut kept = kept.lock().unwrap();
        if kept.len() < 2 {
            kept.push(forward(request.as_bytes()));
        }
        kept.last().cloned().unwrap()
    });
    let client = Client::new(&url, Some(token()), None).unwrap();
    assert!(client.read_file("run.json", 0, 9).unwrap().is_some());
    assert!(client.read_file("run.json", 0, 9).is_err(), "a nonce is valid for one reply");
}

#[test]
fn malformed_requests_are_rejected_with_a_message_and_change_nothing() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), ServiceConfig { max_body: 100_000, ..config() }).unwrap();
    let at = service.address();
    fleet.submit(verifications(0..3)).unwrap();
    let both = format!("{AUTH}{JSON}");
    let packed = format!("{both}content-encoding: zstd\r\n");
    let bomb = zstd::bulk::compress(&vec![b' '; 50_000_000], 1).unwrap();
    assert!(bomb.len() < 50_000);
    let lease = br#"{"worker":"w","kind":"verify","capacity":3}"#;
    let cases: [(&str, &str, &[u8], u16, &str); 12] = [
        ("/v1/lease", &both, br#"{"worker":"w","kind":"ver"#, 400, "EOF"),
        ("/v1/lease", &both, br#"{"worker":"a b","kind":"verify","capacity":3}"#, 400, "worker name"),
        ("/v1/lease", &both, br#"{"worker":"w","kind":"Verify!","capacity":3}"#, 400, "task kind"),
        ("/v1/lease", &both, br#"{"worker":"w","kind":"verify","capacity":-3}"#, 400, "`-3`, expected usize"),
        ("/v1/lease", &both, br#"{"worker":"w","kind":"verify","capacity":1,"wait_s":-1}"#, 400, "wait_s"),
        ("/v1/results", &both, br#"{"worker":"w","results":[{"task":1,"attempt":1}]}"#, 400, "outcome"),
        ("/v1/lease", &packed, b"not zstd at all", 400, "zstd"),
        ("/v1/lease", &packed, &bomb, 413, "100000 bytes"),
        ("/v1/lease", &both, &vec![b' '; 100_001], 413, "100000 bytes"),
        ("/v1/lease", AUTH, lease, 415, "application/json"),
        ("/v1/lease", &format!("{AUTH}content-type: text/plain\r\n"), lease, 415, "application/json"),
        ("/v1/leases", &both, lease, 404, "/v1/leases"),
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
    // A request cut off in the middle of its body.
    let cut = format!("POST /v1/lease HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n{both}\r\n{{\"worker\":");
    TcpStream::connect(at).unwrap().write_all(cut.as_bytes()).unwrap();
    assert_eq!(fleet.status().unwrap().counters.leases, 0);
    assert_eq!(post(at, "/v1/lease", &both, lease).0, 200, "the service still works");
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
    let packed = format!("{AUTH}{JSON}content-encoding: zstd\r\n");
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
    // One body, and the buffer that it outgrew. Freed buffers of this size are returned to the system; the allocator may
    // keep smaller ones, one per thread.
    assert!(most < 3.5 * SIZE as f64, "{:.0} MiB for eight bodies of 64 MiB", most / f64::from(1 << 20));
    // A wrong announced size is detected, and a missing one counts as the maximum.
    let liar = [&zstd::bulk::compress(b"{}", 1).unwrap()[..], &swollen(1 << 20)[..]].concat();
    assert_eq!(post(at, "/v1/lease", &packed, &liar).0, 413);
    let lease = br#"{"worker":"w","kind":"verify","capacity":3}"#;
    let silent = zstd::stream::encode_all(&lease[..], 1).unwrap();
    assert_eq!(post(at, "/v1/lease", &packed, &silent).0, 200);
}

#[test]
fn a_client_that_disconnects_while_waiting_gets_no_lease() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    for _ in 0..20 {
        let body = br#"{"worker":"gone","kind":"verify","capacity":3,"wait_s":20}"#;
        let mut stream = TcpStream::connect(service.address()).unwrap();
        let head = format!(
            "POST /v1/lease HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{AUTH}{JSON}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
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

#[test]
fn a_public_address_requires_a_token() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = Service::start(fleet.clone(), ServiceConfig { listen: open, ..ServiceConfig::default() })
        .unwrap_err();
    assert!(matches!(error, ServiceError::Unprotected(_)), "{error}");
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
    let drain = DrainFlag::default();
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
                    let handler = |lease: &sgs_fleet::Lease, _: &sgs_fleet::CancelFlag| {
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
                for finished in fleet.take_finished(None, 10, SECOND).unwrap() {
                    let TaskResult::Done { outcome, .. } = finished.result else { panic!("quarantined") };
                    assert_eq!(outcome.as_bytes(), finished.task.to_string().as_bytes());
                    assert!(journal.insert(finished.task, outcome).is_none(), "journalled twice");
                    fleet.remove(&[finished.task]).unwrap();
                }
            }
            if stage < 4 {
                // Taken, but the coordinator dies before it writes the journal.
                unwritten += fleet.take_finished(None, 10, Duration::from_millis(20)).unwrap().len();
                drop(service);
                drop(fleet);
                fleet = Fleet::journalled(BoardConfig::default());
                service =
                    Service::start(fleet.clone(), ServiceConfig { listen: address, ..config() }).unwrap();
                // A run loads its weights now. No lease is abandoned in the meantime.
                thread::sleep(Duration::from_millis(1500));
            }
        }
        drain.begin();
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
fn calls_are_encrypted_with_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = sgs_fleet::TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, certified.cert.pem()).unwrap();
    std::fs::write(&files.key, certified.signing_key.serialize_pem()).unwrap();
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..1)).unwrap();
    let tls = ServiceConfig { tls: Some(files.clone()), ..config() };
    let service = Service::start(fleet.clone(), tls).unwrap();
    let url = service.url("localhost");
    assert!(url.starts_with("https://localhost:"));
    let trusting = Client::new(&url, Some(token()), Some(&[certified.cert.der().to_vec()])).unwrap();
    assert_eq!(trusting.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.len(), 1);
    let doubting = Client::new(&url, Some(token()), None).unwrap();
    assert!(doubting.status().is_err(), "an unknown certificate is not trusted");
    let plain = Client::new(&url.replace("https", "http"), Some(token()), None).unwrap();
    assert!(plain.status().is_err());

    std::fs::write(&files.key, "nonsense").unwrap();
    let broken = ServiceConfig { tls: Some(files), ..config() };
    let error = Service::start(fleet, broken).unwrap_err().to_string();
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
    assert_eq!(get("/v1/files/run.json", &format!("{AUTH}range: lines=1-2\r\n")).0, 416);
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

/// Sends recorded bytes and counts the replies by status.
fn replay(service: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(service).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let statuses = answer.split("HTTP/1.1 ").skip(1);
    statuses.map(|rest| rest.get(..3).and_then(|status| status.parse().ok()).unwrap_or(0)).collect()
}

#[test]
fn recorded_requests_cannot_be_replayed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet.clone(), config()).unwrap();
    let (address, heard) = tap(service.address());
    let client = Client::new(&format!("http://{address}"), Some(token()), None).unwrap();
    fleet.submit(verifications(0..4)).unwrap();
    let grant = client.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap();
    let held: Vec<_> = grant.leases.iter().map(|lease| lease.id()).collect();
    assert_eq!(client.heartbeat(&worker("w"), &held).unwrap().abandon, []);
    client.status().unwrap();
    let before = fleet.status().unwrap();
    assert_eq!((before.kinds[0].leased, before.counters.leases), (1, 1));
    let heard = heard.lock().unwrap().clone();
    let text = String::from_utf8_lossy(&heard.concat()).into_owned();
    let calls = text.matches("SGS-HMAC-SHA256 ").count();
    assert_eq!(calls, 4, "the first call is repeated with the right challenge: {text}");
    let statuses: Vec<u16> = heard.iter().flat_map(|bytes| replay(service.address(), bytes)).collect();
    assert!(!statuses.is_empty() && statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let after = fleet.status().unwrap();
    assert_eq!((after.kinds[0].leased, after.counters.leases), (1, 1), "no new lease");
    // A restarted coordinator with the same token rejects them, too.
    drop(service);
    let again = Service::start(Fleet::in_memory(BoardConfig::default()), config()).unwrap();
    let statuses: Vec<u16> = heard.iter().flat_map(|bytes| replay(again.address(), bytes)).collect();
    assert!(!statuses.is_empty() && statuses.iter().all(|status| *status == 401), "{statuses:?}");
}

/// After a restart of the coordinator, the first request is a large result, signed over an old challenge. The worker gets
/// the new challenge, and the second attempt succeeds.
#[test]
fn a_large_request_with_an_expired_challenge_succeeds_on_the_second_attempt() {
    for _ in 0..20 {
        let fleet = Fleet::in_memory(BoardConfig::default());
        let service = Service::start(fleet.clone(), config()).unwrap();
        fleet.submit(verifications(0..1)).unwrap();
        let other = Client::new(&service.url("127.0.0.1"), Some(token()), None).unwrap();
        let lease = other.lease(&worker("w"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
        // A new client, and an incompressible payload.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let outcome: Vec<u8> = (0..4 << 20).map(|_| noise()).collect();
        let client = Client::new(&service.url("127.0.0.1"), Some(token()), None).unwrap();
        let report =
            Report { task: lease.task, attempt: lease.attempt, outcome: LeaseOutcome::Done(outcome.into()) };
        let waits = thread::spawn(move || client.report(&worker("w"), vec![report]).map(|_| ()));
        let finished = fleet.take_finished(None, 1, Duration::from_secs(20)).unwrap();
        assert_eq!(finished.len(), 1);
        fleet.remove(&[finished[0].task]).unwrap();
        waits.join().unwrap().unwrap();
    }
}

/// An impostor sends an endless reply.
#[test]
fn the_body_of_an_unsigned_reply_is_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let flood = {
        let sent = Arc::clone(&sent);
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000000\r\n\r\n",
            );
            while sent.load(Ordering::SeqCst) < 1_000_000_000 {
                let Ok(n) = stream.write(&[b' '; 1 << 16]) else { break };
                sent.fetch_add(n, Ordering::SeqCst);
            }
        })
    };
    let client = Client::new(&format!("http://{address}"), Some(token()), None).unwrap();
    let error = client.status().unwrap_err().to_string();
    assert!(error.contains("does not prove that it knows the token"), "{error}");
    flood.join().unwrap();
    // The system's socket buffers.
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 32 << 20, "{sent} bytes were read");
}
