//! A worker in a process of its own: the test program, started again with its orders in the environment.
// Every test program uses a part of this.
#![allow(dead_code)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sgs_fleet::{
    BoardConfig, Cancel, Client, Drain, Fleet, Lease, Payload, Service, ServiceConfig, Task, TaskId,
    TaskKind, Token, WorkerConfig, WorkerName, serve,
};

pub const VERIFY: TaskKind = TaskKind::of("verify");

const ORDERS: &str = "SGS_FLEET_TEST_WORKER";
const TOKEN: &str = "the token of the tests";

pub fn token() -> Token {
    Token::new(&TOKEN.replace(' ', "-"), "test").unwrap()
}

pub fn start_service(fleet: &Fleet) -> Service {
    Service::start(fleet.clone(), ServiceConfig { token: Some(token()), ..ServiceConfig::default() }).unwrap()
}

pub fn client(url: &str) -> Client {
    Client::new(url, Some(token()), None).unwrap()
}

/// The command of a worker; `{worker}` is its name.
pub fn command(url: &str, slots: usize) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let orders = format!("{ORDERS}={url} {slots} {{worker}}");
    ["env", &orders, &program, "--ignored", "--exact", "worker_process", "--nocapture"]
        .map(str::to_owned)
        .to_vec()
}

/// What the worker process does: nothing unless it has orders.
pub fn obey_orders() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let words: Vec<&str> = orders.split(' ').collect();
    let (url, slots, name) = (words[0], words[1].parse().unwrap(), words[2]);
    println!("worker {name} begins");
    let drain = Drain::default();
    drain.begin_on_signals().unwrap();
    let mut config = WorkerConfig::new(WorkerName::new(name).unwrap(), VERIFY);
    config.patience = Duration::from_secs(60);
    config.grace = Duration::from_secs(5);
    let summary = serve(Arc::new(client(url)), config, drain, slots, work).unwrap();
    println!("worker {name} ends: {summary:?}");
}

/// A task is "NUMBER MILLISECONDS": so long it takes, and its outcome is the number's square. "poison" kills.
pub fn work(lease: &Lease, cancel: &Cancel) -> Result<Payload, String> {
    let text = std::str::from_utf8(lease.payload.as_bytes()).map_err(|e| e.to_string())?;
    if text == "poison" {
        eprintln!("poisoned by task {}", lease.task);
        std::process::abort();
    }
    let (number, ms) = text.split_once(' ').ok_or("two numbers")?;
    let number: u64 = number.parse().map_err(|_| "a number")?;
    let until = Instant::now() + Duration::from_millis(ms.parse().map_err(|_| "milliseconds")?);
    while Instant::now() < until && !cancel.is_cancelled() {
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

/// Waits until it is so, and says what it waited for if it never is.
pub fn wait_for(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !so() {
        assert!(Instant::now() < deadline, "waited {} s for {what}", patience.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The process id of a live worker: the one whose command line has its name.
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
