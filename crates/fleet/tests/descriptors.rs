//! Idle connections take no descriptor that the coordinator needs for files. A program of its own, since the limit is the
//! whole process's.
#![cfg(feature = "http")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)]

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
    // More than the coordinator has descriptors; those that it does not take wait in its queue, or in vain.
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(3)).ok();
    let idle: Vec<TcpStream> = (0..2 * LIMIT).map_while(connect).collect();
    println!("\nidle: {}", idle.len());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn idle_connections_leave_descriptors_to_files() {
    let mut idlers = Command::new(std::env::current_exe().unwrap())
        .env(ORDERS, "1")
        .args(["--ignored", "--exact", "idlers", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Half of what is allowed, so that raising the limit is seen too.
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
    assert!(taken >= 200, "the connections were not there: {taken} descriptors");
    assert!(files.is_ok(), "{taken} of {LIMIT} descriptors were taken: {files:?}");
}
