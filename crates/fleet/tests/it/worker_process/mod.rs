//! Worker processes for tests: the test binary, started again with its settings in the environment.
// Each test binary uses a part of this.
#![allow(dead_code)]

use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sgs_fleet::{
    AuthToken, BoardConfig, Client, Fleet, Lease, Payload, Service, ServiceConfig, StopFlag, Task, TaskId,
    WorkKind, WorkerConfig, WorkerName, run_worker,
};
use sgs_tls::Identity;

pub const VERIFY: WorkKind = WorkKind::of("verify");

const ORDERS: &str = "SGS_FLEET_TEST_WORKER";
const TOKEN: &str = "the token of the tests";

/// The key of every coordinator of these tests.
pub static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::from_secret("the key of the tests"));

pub fn token() -> AuthToken {
    let token = AuthToken::new(&TOKEN.replace(' ', "-"), "test").unwrap();
    token.with_fingerprint(Some(IDENTITY.fingerprint()))
}

pub fn config() -> ServiceConfig {
    ServiceConfig { token: Some(token()), tls: Some(IDENTITY.server()), ..ServiceConfig::default() }
}

pub fn start_service(fleet: &Fleet) -> Service {
    Service::start(fleet.clone(), config()).unwrap()
}

pub fn client(url: &str) -> Client {
    Client::new(url, Some(token()), None).unwrap()
}

/// Returns the command of a worker, with the placeholder `{worker}`.
pub fn command(url: &str, slots: usize) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let orders = format!("{ORDERS}={url} {slots} {{worker}}");
    ["env", &orders, &program, "--ignored", "--exact", "worker_process::worker_process", "--nocapture"]
        .map(str::to_owned)
        .to_vec()
}

/// Entry point of the worker process. Does nothing unless the environment has its settings.
#[test]
#[ignore = "started by other tests as a process"]
fn worker_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let words: Vec<&str> = orders.split(' ').collect();
    let (url, slots, name) = (words[0], words[1].parse().unwrap(), words[2]);
    println!("worker {name} begins");
    let drain = StopFlag::default();
    sgs_fleet::stop_on_signals(&drain).unwrap();
    let mut config = WorkerConfig::new(WorkerName::new(name).unwrap(), VERIFY);
    config.patience = Duration::from_secs(60);
    config.grace = Duration::from_secs(5);
    let summary = run_worker(Arc::new(client(url)), config, drain, slots, work).unwrap();
    println!("worker {name} ends: {summary:?}");
}

/// Executes a task "NUMBER MILLISECONDS": it takes that long, and its outcome is the square of the number. "poison"
/// kills the worker.
pub fn work(lease: &Lease, cancel: &StopFlag) -> Result<Payload, String> {
    let text = std::str::from_utf8(lease.payload.as_bytes()).map_err(|e| e.to_string())?;
    if text == "poison" {
        eprintln!("poisoned by task {}", lease.task);
        std::process::abort();
    }
    let (number, ms) = text.split_once(' ').ok_or("two numbers")?;
    let number: u64 = number.parse().map_err(|_| "a number")?;
    let until = Instant::now() + Duration::from_millis(ms.parse().map_err(|_| "milliseconds")?);
    while Instant::now() < until && !cancel.is_set() {
        thread::sleep(Duration::from_millis(5).min(until.saturating_duration_since(Instant::now())));
    }
    Ok(square(number))
}

pub fn square(number: u64) -> Payload {
    u128::from(number).pow(2).to_string().into()
}

pub fn task(id: u64, ms: u64) -> Task {
    Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: format!("{id} {ms}").into() }
}

pub fn board() -> BoardConfig {
    BoardConfig { lease: Duration::from_secs(20), ..BoardConfig::default() }
}

/// Waits until a condition holds. Panics with its description at the timeout.
pub fn wait_for(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !so() {
        assert!(Instant::now() < deadline, "waited {} s for {what}", patience.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the process id of a worker, found by its name in the command line.
pub fn process_of(name: &str) -> Option<Pid> {
    let orders = format!(" {name}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let mut variables = environment.split(|b| *b == 0);
        if variables.any(|v| v.starts_with(b"SGS_FLEET_TEST_WORKER=") && v.ends_with(orders.as_bytes())) {
            return Pid::from_raw(pid);
        }
    }
    None
}
