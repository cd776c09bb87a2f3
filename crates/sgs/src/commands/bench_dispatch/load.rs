//! Measures task dispatch: a closed-loop load on a coordinator, and the cost of the board alone.
//!
//! Each simulated worker has its own connection. It leases tasks, reports them as done, and asks again.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sgs_fleet::wire::{BodyFormat, LeaseReply, LeaseRequest, ResultsReply, ResultsRequest};
use sgs_fleet::{
    AuthToken, Board, BoardConfig, Lease, LeaseOutcome, Payload, Report, Task, TaskId, Time, WorkKind,
    WorkerName,
};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The kind of all measured tasks.
pub const KIND: WorkKind = WorkKind::of("verify");

/// The load to put on a coordinator.
#[derive(Clone, Debug)]
pub struct DispatchLoad {
    /// Address of the coordinator.
    pub address: SocketAddr,
    pub token: AuthToken,
    /// Number of simulated workers; each has its own connection.
    pub workers: usize,
    /// Tasks per lease request.
    pub capacity: usize,
    pub length: Duration,
}

/// Throughput and latency under a [`DispatchLoad`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DispatchSpeed {
    /// Tasks leased and reported as done, per second.
    pub tasks_per_s: f64,
    /// Median latency of a lease request, ms.
    pub lease_p50_ms: f64,
    /// 99th percentile of the latency of a lease request, ms.
    pub lease_p99_ms: f64,
    /// Maximum latency of a lease request, ms.
    pub lease_max_ms: f64,
    pub tasks: u64,
    /// Connections that failed.
    pub broken: u64,
}

struct LoadCounters {
    stop: AtomicBool,
    tasks: AtomicU64,
    broken: AtomicU64,
}

/// Puts a load on a coordinator and measures it.
///
/// # Errors
/// Returns an error if no runtime can be started or a connection cannot be opened.
pub fn run_load(load: &DispatchLoad) -> io::Result<DispatchSpeed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let counters = Arc::new(LoadCounters { stop: false.into(), tasks: 0.into(), broken: 0.into() });
        // Open all connections before the first request, so that connecting is not measured.
        let mut streams = Vec::with_capacity(load.workers);
        for _ in 0..load.workers {
            let stream = TcpStream::connect(load.address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begun = Instant::now();
        let workers: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(number, stream)| {
                let (load, counters) = (load.clone(), Arc::clone(&counters));
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    if simulate_worker(stream, number, &load, &counters, &mut latencies).await.is_err() {
                        counters.broken.fetch_add(1, Ordering::Relaxed);
                    }
                    latencies
                })
            })
            .collect();
        tokio::time::sleep(load.length).await;
        counters.stop.store(true, Ordering::Relaxed);
        let elapsed = begun.elapsed().as_secs_f64();
        let tasks = counters.tasks.load(Ordering::Relaxed);
        let mut latencies = Vec::new();
        for worker in workers {
            // Do not wait for ever for a server that has stalled.
            if let Ok(Ok(some)) = tokio::time::timeout(Duration::from_secs(30), worker).await {
                latencies.extend(some);
            }
        }
        latencies.sort_unstable_by(f64::total_cmp);
        let quantile =
            |q: f64| latencies.get((latencies.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN);
        Ok(DispatchSpeed {
            tasks_per_s: tasks as f64 / elapsed,
            lease_p50_ms: quantile(0.5),
            lease_p99_ms: quantile(0.99),
            lease_max_ms: latencies.last().copied().unwrap_or(f64::NAN),
            tasks,
            broken: counters.broken.load(Ordering::Relaxed),
        })
    })
}

async fn simulate_worker(
    mut stream: TcpStream,
    number: usize,
    load: &DispatchLoad,
    counters: &LoadCounters,
    latencies: &mut Vec<f64>,
) -> io::Result<()> {
    let worker = WorkerName::new(&format!("load-{number}")).map_err(io::Error::other)?;
    let lease = LeaseRequest { worker: worker.clone(), kind: KIND, capacity: load.capacity, wait_s: 0.0 };
    let lease = request(load, "/v1/lease", &write(&lease)?);
    let mut buffer = Vec::new();
    while !counters.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        stream.write_all(&lease).await?;
        let reply: LeaseReply = read(read_response(&mut stream, &mut buffer).await?)?;
        latencies.push(begun.elapsed().as_secs_f64() * 1e3);
        if reply.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let done = |lease: &Lease| Report {
            task: lease.task,
            attempt: lease.attempt,
            outcome: LeaseOutcome::Done("{\"verdict\":\"proved\",\"seconds\":1.25}".into()),
        };
        let results: Vec<Report> = reply.tasks.iter().map(done).collect();
        let sent = results.len() as u64;
        let body = write(&ResultsRequest { worker: worker.clone(), results })?;
        stream.write_all(&request(load, "/v1/results", &body)).await?;
        let receipts: ResultsReply = read(read_response(&mut stream, &mut buffer).await?)?;
        if receipts.receipts.len() as u64 != sent {
            return Err(io::Error::other("the number of receipts differs from the number of results"));
        }
        counters.tasks.fetch_add(sent, Ordering::Relaxed);
    }
    Ok(())
}

fn write(value: &impl Serialize) -> io::Result<Vec<u8>> {
    BodyFormat::Binary.write(value).map_err(io::Error::other)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    BodyFormat::Binary.read(bytes).map_err(io::Error::other)
}

fn request(load: &DispatchLoad, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {}\r\nauthorization: {}\r\ncontent-length: {}\r\n\r\n",
        load.address,
        BodyFormat::Binary.content_type(),
        load.token.header(),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads one response that has a `content-length`, and returns its body.
async fn read_response<'a>(stream: &mut TcpStream, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    buffer.clear();
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = std::str::from_utf8(&buffer[..end]).map_err(io::Error::other)?;
            if !head.starts_with("HTTP/1.1 200") {
                return Err(broken(head.lines().next().unwrap_or("")));
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                if name.eq_ignore_ascii_case("content-length") {
                    value.trim().parse::<usize>().ok()
                } else {
                    None
                }
            });
            let whole = end + 4 + length.ok_or_else(|| broken("a response without content-length"))?;
            while buffer.len() < whole {
                if stream.read_buf(buffer).await? == 0 {
                    return Err(broken("the response was cut off"));
                }
            }
            return buffer.get(end + 4..whole).ok_or_else(|| broken("the response is too long"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(broken("the connection was closed"));
        }
    }
}

/// Returns the nanoseconds per step: the median over batches, to exclude the effect of other processes. Stops early
/// when a step returns false.
fn median_ns(batches: u64, steps: u64, mut step: impl FnMut() -> bool) -> f64 {
    let mut times = Vec::new();
    'all: for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..steps {
            if !step() {
                break 'all;
            }
        }
        times.push(begun.elapsed().as_nanos() as f64 / steps as f64);
    }
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU cost of the board, without sockets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BoardCost {
    /// Number of open tasks during the measurement.
    pub open: u64,
    /// Nanoseconds for one task: submit, lease, heartbeat, report, deliver and remove.
    pub ns_per_task: f64,
    /// Nanoseconds to lease one speculative copy while all tasks are running.
    pub ns_per_copy: f64,
}

/// Measures the board with `open` open tasks.
///
/// # Errors
/// Returns an error if the board rejects a task.
pub fn board_cost(open: u64) -> io::Result<BoardCost> {
    let config = BoardConfig { max_leases_per_worker: usize::MAX, ..BoardConfig::default() };
    let mut board = Board::new(config);
    let worker = WorkerName::new("w").map_err(io::Error::other)?;
    let payload = Payload::from("x");
    let task = |id: u64| Task { id: TaskId(id), kind: KIND, priority: 0, payload: payload.clone() };
    for id in 0..open {
        board.submit(Time(0), task(id)).map_err(io::Error::other)?;
    }
    let mut turn = 0;
    let ns_per_task = median_ns(40, 5000, || {
        turn += 1;
        let now = Time(turn / 100);
        if board.submit(now, task(open + turn)).is_err() {
            return false;
        }
        for lease in board.lease(now, &worker, &KIND, 1) {
            board.heartbeat(now, &worker, &[lease.id()]);
            let outcome = LeaseOutcome::Done(payload.clone());
            board.report(now, &worker, Report { task: lease.task, attempt: lease.attempt, outcome });
        }
        board.next_finished(None).is_some_and(|finished| board.remove(finished.task))
    });
    let now = Time(turn);
    board.lease(now, &worker, &KIND, open as usize);
    let later = now.after(Duration::from_secs(59));
    let idle = WorkerName::new("idle").map_err(io::Error::other)?;
    let copies = open.min(50_000);
    let ns_per_copy = median_ns(20, copies / 20, || !board.lease(later, &idle, &KIND, 1).is_empty());
    Ok(BoardCost { open, ns_per_task, ns_per_copy })
}

/// Returns the bytes of memory per open task with a payload of `payload` bytes, measured by the growth of this process.
///
/// # Errors
/// Returns an error if the resident set size is unavailable or the board rejects a task.
pub fn memory_per_task(tasks: u64, payload: usize) -> io::Result<f64> {
    let resident = || -> io::Result<f64> {
        let text = std::fs::read_to_string("/proc/self/statm")?;
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
        Ok(pages.ok_or_else(|| io::Error::other("cannot parse /proc/self/statm"))? * 4096.0)
    };
    let before = resident()?;
    let mut board = Board::new(BoardConfig::default());
    for id in 0..tasks {
        let payload = vec![b'x'; payload].into();
        let task = Task { id: TaskId(id), kind: KIND, priority: 0, payload };
        board.submit(Time(0), task).map_err(io::Error::other)?;
    }
    let after = resident()?;
    drop(board);
    Ok((after - before) / tasks as f64)
}
