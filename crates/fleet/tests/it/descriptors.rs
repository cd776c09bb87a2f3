//! Idle connections leave enough file descriptors for the coordinator. Runs in a separate process, because the limit is per
//! process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use sgs_fleet::{BoardConfig, Fleet, Service, ServiceConfig};

const ORDERS: &str = "SGS_FLEET_TEST_IDLERS";
const LIMIT: u64 = 400;

#[test]
#[ignore = "the other side of the other test"]
fn idlers() {
    if std::env::var(ORDERS).is_err() {
        return;
    }
    let mut address = String::new();
    std::io::stdin().read_line(&mut address).unwrap();
    let address: SocketAddr = address.trim().parse().unwrap();
    // Open more connections than the coordinator has descriptors. Those that it does not accept wait in its backlog.
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(3)).ok();
    let idle: Vec<TcpStream> = (0..2 * LIMIT).map_while(connect).collect();
    println!("\nidle: {}", idle.len());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn idle_connections_leave_descriptors_for_files() {
    let mut idlers = Command::new(std::env::current_exe().unwrap())
        .env(ORDERS, "1")
        .args(["--ignored", "--exact", "descriptors::idlers", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Start with half of the hard limit, to test that the limit is raised.
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT / 2), maximum: Some(LIMIT) }).unwrap();
    let fleet = Fleet::in_memory(BoardConfig::default());
    let service = Service::start(fleet, ServiceConfig::default()).unwrap();
    writeln!(idlers.stdin.take().unwrap(), "{}", service.address()).unwrap();
    let said = BufReader::new(idlers.stdout.take().unwrap()).lines().map_while(Result::ok);
    let idle = said.filter_map(|line| line.strip_prefix("idle: ")?.parse::<u64>().ok()).next();
    assert!(idle.unwrap() > LIMIT / 2, "{idle:?} connections");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let deadline = Instant::now() + Duration::from_secs(30);
    while open() < usize::try_from(LIMIT / 2).unwrap() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let taken = open();
    let files: Result<Vec<File>, _> = (0..150).map(|_| File::open("/proc/self/stat")).collect();
    idlers.kill().unwrap();
    idlers.wait().unwrap();
    assert!(taken >= 200, "too few connections: {taken} descriptors");
    assert!(files.is_ok(), "{taken} of {LIMIT} descriptors were taken: {files:?}");
}
