//! Fault injection: killed and stopped worker processes; delayed, duplicated, truncated and lost messages; wrong tokens;
//! skewed clocks; repeated kills of the coordinator. Every task must be done exactly once.

use crate::worker_process;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sgs_fleet::{
    AuthToken, BoardConfig, CallError, Client, Coordinator, Fleet, Service, ServiceConfig, Speculation,
    StopFlag, TaskId, TaskResult, WorkKind, WorkerName,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use worker_process::{IDENTITY, client, command, config, square, task};

const VERIFY: WorkKind = WorkKind::of("verify");

const ORDERS: &str = "SGS_FLEET_TEST_COORDINATOR";

fn board(lease: Duration) -> BoardConfig {
    BoardConfig {
        lease,
        // Workers are killed at random, so the death of a worker says nothing about its tasks.
        max_attempts: 50,
        max_leases: 1000,
        speculation: Some(Speculation { min_age: lease / 2, max_per_request: 16 }),
        ..BoardConfig::default()
    }
}

fn outcome_time(id: u64) -> u64 {
    // Most tasks are short, and some are long.
    if id.is_multiple_of(97) { 300 } else { id % 13 }
}

#[test]
#[ignore = "the coordinator process of the other tests"]
fn coordinator_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let words: Vec<&str> = orders.split(' ').collect();
    let (port, tasks): (u16, u64) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let drain = StopFlag::default();
    sgs_fleet::stop_on_signals(&drain).unwrap();
    let lease = Duration::from_millis(words[2].parse().unwrap());
    let fleet = Fleet::journalled(board(lease));
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    let config = ServiceConfig { listen, ..config() };
    let _service = Service::start(fleet.clone(), config).unwrap();
    let path = Path::new(words[3]);
    let (known, whole) = journal(path);
    println!("{} outcomes in the journal", known.len());
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    // Remove a line that was cut off by a kill.
    file.set_len(whole as u64).unwrap();
    let open = (0..tasks).filter(|id| !known.contains_key(id));
    fleet.submit(open.map(|id| task(id, outcome_time(id)))).unwrap();
    let mut deaths = 0;
    while !drain.is_set() {
        let finished = fleet.take_finished(500, Duration::from_millis(50));
        let mut lines = String::new();
        for f in &finished {
            let TaskResult::Done { outcome, worker, .. } = &f.result else { panic!("{f:?}") };
            let outcome = std::str::from_utf8(outcome.as_bytes()).unwrap();
            lines += &format!("{} {outcome} {worker}\n", f.task);
        }
        file.write_all(lines.as_bytes()).unwrap();
        file.sync_data().unwrap();
        fleet.remove(&finished.iter().map(|f| f.task).collect::<Vec<TaskId>>());
        let died = fleet.status().counters.died;
        if died != deaths {
            deaths = died;
            println!("deaths: {deaths}");
        }
    }
}

/// Reads the outcomes in the journal. Also returns the total length of its complete lines, in bytes.
fn journal(path: &Path) -> (HashMap<u64, Vec<(String, String)>>, usize) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut found: HashMap<u64, Vec<(String, String)>> = HashMap::new();
    for line in text[..whole].lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (outcome, worker) = (words[1].to_owned(), words[2].to_owned());
        found.entry(words[0].parse().unwrap()).or_default().push((outcome, worker));
    }
    (found, whole)
}

fn start_coordinator(port: u16, tasks: u64, lease: Duration, log: &Path) -> Child {
    let out = std::fs::OpenOptions::new().create(true).append(true).open(log.with_extension("out")).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .env(ORDERS, format!("{port} {tasks} {} {}", lease.as_millis(), log.display()))
        .args(["--ignored", "--exact", "chaos::coordinator_process", "--nocapture"])
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap()
}

/// Counts of network faults.
#[derive(Default)]
struct Faults {
    passed: AtomicU64,
    delayed: AtomicU64,
    doubled: AtomicU64,
    cut_requests: AtomicU64,
    cut_replies: AtomicU64,
    lost_replies: AtomicU64,
}

/// Runs a proxy that has the coordinator's key and injects network faults.
async fn proxy(listener: tokio::net::TcpListener, to: SocketAddr, faults: Arc<Faults>, rate: f64) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let faults = Arc::clone(&faults);
        tokio::spawn(async move {
            // Broken connections are part of the test.
            if let Ok(stream) = TlsAcceptor::from(IDENTITY.server()).accept(stream).await {
                let _ = relay(stream, to, &faults, rate).await;
            }
        });
    }
}

async fn relay(
    mut from: TlsStream<TcpStream>,
    to: SocketAddr,
    faults: &Faults,
    rate: f64,
) -> std::io::Result<()> {
    let mut upstream: Option<TcpStream> = None;
    while let Some(request) = message(&mut from).await? {
        let fate = if fastrand::f64() < rate { fastrand::u8(0..5) } else { 9 };
        match fate {
            0 => {
                faults.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(50..3000))).await;
            }
            1 => {
                faults.doubled.fetch_add(1, Ordering::Relaxed);
                let mut other = TcpStream::connect(to).await?;
                other.write_all(&request).await?;
                message(&mut other).await?;
            }
            2 => {
                faults.cut_requests.fetch_add(1, Ordering::Relaxed);
                let mut other = TcpStream::connect(to).await?;
                other.write_all(&request[..fastrand::usize(0..request.len())]).await?;
                return Ok(());
            }
            _ => {}
        }
        let mut up = match upstream.take() {
            Some(up) => up,
            None => TcpStream::connect(to).await?,
        };
        up.write_all(&request).await?;
        let Some(reply) = message(&mut up).await? else { return Ok(()) };
        match fate {
            3 => {
                faults.cut_replies.fetch_add(1, Ordering::Relaxed);
                from.write_all(&reply[..fastrand::usize(0..reply.len())]).await?;
                return Ok(());
            }
            4 => {
                faults.lost_replies.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            _ => {
                faults.passed.fetch_add(1, Ordering::Relaxed);
                from.write_all(&reply).await?;
            }
        }
        upstream = Some(up);
    }
    Ok(())
}

/// Reads one HTTP message with a content length. Returns `None` at the end of the stream.
async fn message(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Ok(Some(bytes));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// A worker process, and the faults planned for it.
struct Puppet {
    child: Child,
    name: String,
    stopped: Option<Instant>,
}

struct Chaos {
    workers: usize,
    tasks: u64,
    /// Milliseconds between two faults of workers.
    every_ms: u64,
    /// Lifetime of a lease. Shorter than the lifetime of the coordinator, so that silent workers are detected.
    lease: Duration,
    /// Milliseconds between two kills of the coordinator.
    coordinator_ms: u64,
    patience: Duration,
}

struct Stage {
    url: String,
    logs: PathBuf,
    /// Whether this machine supports time namespaces.
    skew: bool,
    launched: u64,
    skewed: u64,
}

impl Stage {
    fn launch(&mut self) -> Puppet {
        let name = format!("c{}-{}", std::process::id(), self.launched);
        let words = command(&self.url, 2).into_iter().map(|word| word.replace("{worker}", &name));
        let mut words: Vec<String> = words.collect();
        if self.skew && self.launched.is_multiple_of(3) {
            // The clock is several minutes ahead of the others.
            let ahead =
                ["unshare", "--time", "--monotonic", "400", "--boottime", "400", "--"].map(str::to_owned);
            words.splice(0..0, ahead);
            self.skewed += 1;
        }
        self.launched += 1;
        let log = std::fs::File::create(self.logs.join(format!("{name}.log"))).unwrap();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Puppet { child, name, stopped: None }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

impl Chaos {
    fn run(&self) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("journal");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let direct = format!("https://127.0.0.1:{port}");
        let mut coordinator = start_coordinator(port, self.tasks, self.lease, &log);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let faults = Arc::new(Faults::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        runtime.spawn(proxy(listener, SocketAddr::from(([127, 0, 0, 1], port)), Arc::clone(&faults), 0.03));
        let skew = Command::new("unshare").args(["--time", "--monotonic", "400", "true"]).status();
        let skew = skew.is_ok_and(|s| s.success());
        let mut stage = Stage { url, logs: folder.path().to_owned(), skew, launched: 0, skewed: 0 };
        let mut puppets: Vec<Puppet> = (0..self.workers).map(|_| stage.launch()).collect();
        let (mut killed, mut stopped, mut deaths, mut intruders) = (0u64, 0u64, 0u64, 0u64);
        let begun = Instant::now();
        let mut coordinator_born = Instant::now();
        let status = client(&direct);
        loop {
            assert!(
                begun.elapsed() < self.patience,
                "not done after {:?}: {:?}",
                begun.elapsed(),
                status.status_within(Duration::from_secs(60))
            );
            thread::sleep(Duration::from_millis(self.every_ms));
            let victim = fastrand::usize(0..puppets.len());
            if fastrand::bool() {
                signal(&puppets[victim].child, Signal::KILL);
                killed += 1;
            } else if puppets[victim].stopped.is_none() {
                signal(&puppets[victim].child, Signal::STOP);
                puppets[victim].stopped =
                    Some(Instant::now() + Duration::from_millis(fastrand::u64(100..9000)));
                stopped += 1;
            }
            for puppet in &mut puppets {
                if puppet.stopped.is_some_and(|until| Instant::now() > until) {
                    signal(&puppet.child, Signal::CONT);
                    puppet.stopped = None;
                }
                if puppet.child.try_wait().unwrap().is_some() {
                    *puppet = stage.launch();
                }
            }
            intruders += u64::from(intrude(&direct));
            // Do not kill a coordinator that is still starting.
            let due = coordinator_born.elapsed() > Duration::from_millis(self.coordinator_ms);
            if due && status.status_within(Duration::from_secs(60)).is_ok() {
                coordinator.kill().unwrap();
                coordinator.wait().unwrap();
                deaths += 1;
                coordinator = start_coordinator(port, self.tasks, self.lease, &log);
                coordinator_born = Instant::now();
            }
            let Ok(now) = status.status_within(Duration::from_secs(60)) else { continue };
            let chaos = killed > 0 && stopped > 0 && deaths > 0 && intruders > 0;
            if chaos && now.tasks == 0 && journal(&log).0.len() as u64 == self.tasks {
                break;
            }
        }
        let took = begun.elapsed();
        for puppet in &mut puppets {
            signal(&puppet.child, Signal::CONT);
            puppet.child.kill().unwrap();
            puppet.child.wait().unwrap();
        }
        signal(&coordinator, Signal::TERM);
        coordinator.wait().unwrap();
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        println!("{} tasks by {} worker processes in {:.1} s", self.tasks, self.workers, took.as_secs_f64());
        println!("workers: {killed} killed, {stopped} stopped and continued, {} launched", stage.launched);
        println!("clocks: {} workers 400 s ahead", stage.skewed);
        println!("coordinator: killed and restarted {deaths} times");
        println!("wrong tokens rejected: {intruders}");
        println!(
            "messages: {} passed, {} delayed, {} doubled, {} requests cut, {} replies cut, {} replies lost",
            load(&faults.passed),
            load(&faults.delayed),
            load(&faults.doubled),
            load(&faults.cut_requests),
            load(&faults.cut_replies),
            load(&faults.lost_replies)
        );
        assert!(killed > 0 && stopped > 0 && deaths > 0 && intruders > 0, "every kind of fault must occur");
        let names: Vec<&String> = puppets.iter().map(|p| &p.name).collect();
        assert_eq!(names.len(), self.workers);
        check(&log, self.tasks);
    }
}

/// Tries to lease a task with a wrong token. Returns true if the service rejects the token.
fn intrude(url: &str) -> bool {
    let intruder = {
        let token = AuthToken::generate().unwrap().with_fingerprint(Some(IDENTITY.fingerprint()));
        Client::new(url, Some(token), None).unwrap()
    };
    let name = WorkerName::new("intruder").unwrap();
    match intruder.lease(&name, &VERIFY, 100, Duration::ZERO) {
        Err(CallError::Refused(_)) => true,
        Err(CallError::Unavailable(_)) => false,
        Ok(grant) => panic!("an intruder got {} tasks", grant.leases.len()),
    }
}

/// Checks in the journal that every task was done once, with the right outcome.
fn check(log: &Path, tasks: u64) {
    let (found, _) = journal(log);
    assert_eq!(found.len() as u64, tasks, "a task was lost");
    for (id, outcomes) in &found {
        let [(outcome, worker)] = &outcomes[..] else { panic!("task {id} was done twice: {outcomes:?}") };
        assert_eq!(outcome.as_bytes(), square(*id).as_bytes(), "task {id} has the outcome of another task");
        assert_ne!(worker, "intruder");
    }
    let mut out = String::new();
    std::fs::File::open(log.with_extension("out")).unwrap().read_to_string(&mut out).unwrap();
    assert!(!out.contains("panicked"), "{out}");
    assert!(out.contains("deaths: "), "no death was detected: {out}");
}

#[test]
fn a_small_chaos_ends_with_every_task_done_once() {
    let chaos = Chaos {
        workers: 8,
        tasks: 1500,
        every_ms: 150,
        lease: Duration::from_millis(1200),
        coordinator_ms: 3000,
        patience: Duration::from_secs(300),
    };
    chaos.run();
}

#[test]
#[ignore = "two hundred processes for a minute; .ci/run runs it"]
fn a_great_chaos_ends_with_every_task_done_once() {
    let chaos = Chaos {
        workers: 200,
        tasks: 100_000,
        every_ms: 150,
        lease: Duration::from_secs(5),
        coordinator_ms: 12_000,
        patience: Duration::from_secs(1800),
    };
    chaos.run();
}
