//! How fast tasks are handed out: the load of many workers on a coordinator, and the board's own cost per task.
//!
//! The load is a closed loop: each of so many connections asks for work, reports it done, and asks again. It speaks
//! plain HTTP/1.1 and works against any server with the two calls, so that others can be measured with the same load.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::board::{Board, BoardConfig};
use crate::task::{Outcome, Payload, Report, Task, TaskId, TaskKind, Time, WorkerName};
use crate::token::Token;
use crate::wire::{Form, LeaseReply, LeaseRequest, ResultsReply, ResultsRequest};

/// The kind of the tasks that a load asks for.
pub const KIND: TaskKind = TaskKind::of("verify");

/// A load on a coordinator.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where the coordinator listens.
    pub address: SocketAddr,
    pub token: Option<Token>,
    /// Number of workers, each with a connection of its own.
    pub workers: usize,
    /// Tasks per request.
    pub capacity: usize,
    pub length: Duration,
    /// How the bodies are written: as workers do, or in JSON, as servers written by others understand it.
    pub form: Form,
    /// Pause of a worker between reporting and asking again; zero for as much load as the machine bears.
    pub pause: Duration,
}

/// What a load measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Measured {
    /// Tasks leased and reported done, per second.
    pub tasks_per_s: f64,
    /// Median time of a request for work, ms.
    pub lease_p50_ms: f64,
    /// 99th percentile of it, ms.
    pub lease_p99_ms: f64,
    /// Longest, ms.
    pub lease_max_ms: f64,
    pub tasks: u64,
    pub broken: u64,
}

struct Meter {
    stop: AtomicBool,
    tasks: AtomicU64,
    broken: AtomicU64,
}

/// Puts a load on a coordinator.
///
/// # Errors
/// If no runtime can be started or not one connection can be made.
pub fn run_load(load: &Load) -> io::Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let meter = Arc::new(Meter { stop: false.into(), tasks: 0.into(), broken: 0.into() });
        // All are connected before the first asks: what is done while others connect is no part of the load.
        let mut streams = Vec::with_capacity(load.workers);
        for _ in 0..load.workers {
            let stream = TcpStream::connect(load.address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begun = Instant::now();
        let drivers = streams.into_iter().enumerate().map(|(number, stream)| {
            let (load, meter) = (load.clone(), Arc::clone(&meter));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                if drive(stream, number, &load, &meter, &mut latencies).await.is_err() {
                    meter.broken.fetch_add(1, Ordering::Relaxed);
                }
                latencies
            })
        });
        let workers: Vec<_> = drivers.collect();
        tokio::time::sleep(load.length).await;
        meter.stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed().as_secs_f64();
        let tasks = meter.tasks.load(Ordering::Relaxed);
        let mut latencies = Vec::new();
        for worker in workers {
            // Whoever hangs on a server that has stalled is not waited for.
            if let Ok(Ok(some)) = tokio::time::timeout(Duration::from_secs(30), worker).await {
                latencies.extend(some);
            }
        }
        latencies.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
        };
        Ok(Measured {
            tasks_per_s: tasks as f64 / took,
            lease_p50_ms: at(0.5),
            lease_p99_ms: at(0.99),
            lease_max_ms: latencies.last().copied().unwrap_or(f64::NAN),
            tasks,
            broken: meter.broken.load(Ordering::Relaxed),
        })
    })
}

async fn drive(
    mut stream: TcpStream,
    number: usize,
    load: &Load,
    meter: &Meter,
    latencies: &mut Vec<f64>,
) -> io::Result<()> {
    let worker = WorkerName::new(&format!("load-{number}")).map_err(io::Error::other)?;
    let ask = LeaseRequest { worker: worker.clone(), kind: KIND, capacity: load.capacity, wait_s: 0.0 };
    let ask = request(load, "/v1/lease", &write(load.form, &ask)?);
    let mut buffer = Vec::new();
    while !meter.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        stream.write_all(&ask).await?;
        let reply: LeaseReply = read(load.form, answer(&mut stream, &mut buffer).await?)?;
        latencies.push(begun.elapsed().as_secs_f64() * 1e3);
        if reply.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let done = |lease: &crate::task::Lease| Report {
            task: lease.task,
            attempt: lease.attempt,
            outcome: Outcome::Done("{\"verdict\":\"proved\",\"seconds\":1.25}".into()),
        };
        let results: Vec<Report> = reply.tasks.iter().map(done).collect();
        let sent = results.len() as u64;
        let body = write(load.form, &ResultsRequest { worker: worker.clone(), results })?;
        stream.write_all(&request(load, "/v1/results", &body)).await?;
        let receipts: ResultsReply = read(load.form, answer(&mut stream, &mut buffer).await?)?;
        if receipts.receipts.len() as u64 != sent {
            return Err(io::Error::other("not as many receipts as results"));
        }
        meter.tasks.fetch_add(sent, Ordering::Relaxed);
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
    Ok(())
}

fn write(form: Form, value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    form.write(value).map_err(io::Error::other)
}

fn read<T: serde::de::DeserializeOwned>(form: Form, bytes: &[u8]) -> io::Result<T> {
    form.read(bytes).map_err(io::Error::other)
}

fn request(load: &Load, path: &str, body: &[u8]) -> Vec<u8> {
    let token = load.token.as_ref().map_or(String::new(), |t| format!("authorization: {}\r\n", t.header()));
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {}\r\n{token}content-length: {}\r\n\r\n",
        load.address,
        load.form.content_type(),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads one answer with a content length; gives its body.
async fn answer<'a>(stream: &mut TcpStream, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
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
            let whole = end + 4 + length.ok_or_else(|| broken("an answer without content-length"))?;
            while buffer.len() < whole {
                if stream.read_buf(buffer).await? == 0 {
                    return Err(broken("the answer broke off"));
                }
            }
            return buffer.get(end + 4..whole).ok_or_else(|| broken("the answer broke off"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(broken("the connection was closed"));
        }
    }
}

/// Nanoseconds per step: the median over batches, so that what else runs on the machine does not count.
/// Ends early when a step says that there is nothing left to do.
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

/// The board's own cost, without sockets.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct BoardCost {
    /// Open tasks all the while.
    pub open: u64,
    /// Nanoseconds for one task's way: submitted, leased, heartbeat, reported, delivered, removed.
    pub ns_per_task: f64,
    /// Nanoseconds for one second copy handed out, with all of those tasks running.
    pub ns_per_copy: f64,
}

/// Measures the board with so many open tasks.
#[must_use]
pub fn board_cost(open: u64) -> BoardCost {
    let config = BoardConfig { max_leases_per_worker: usize::MAX, ..BoardConfig::default() };
    let mut board = Board::new(config);
    let Ok(worker) = WorkerName::new("w") else {
        return BoardCost { open, ns_per_task: 0.0, ns_per_copy: 0.0 };
    };
    let payload = Payload::from("x");
    let task = |id: u64| Task { id: TaskId(id), kind: KIND, priority: 0, payload: payload.clone() };
    for id in 0..open {
        // Unique ids on a board with room.
        let _ = board.submit(Time(0), task(id));
    }
    let mut turn = 0;
    let ns_per_task = median_ns(40, 5000, || {
        turn += 1;
        let now = Time(turn / 100);
        let _ = board.submit(now, task(open + turn));
        for lease in board.lease(now, &worker, &KIND, 1) {
            board.heartbeat(now, &worker, &[lease.id()]);
            let outcome = Outcome::Done(payload.clone());
            board.report(now, &worker, Report { task: lease.task, attempt: lease.attempt, outcome });
        }
        board.next_finished(None).is_some_and(|finished| board.remove(finished.task))
    });
    let now = Time(turn);
    board.lease(now, &worker, &KIND, open as usize);
    let later = now.after(Duration::from_secs(59));
    let Ok(idle) = WorkerName::new("idle") else { return BoardCost { open, ns_per_task, ns_per_copy: 0.0 } };
    let copies = open.min(50_000);
    let ns_per_copy = median_ns(20, copies / 20, || !board.lease(later, &idle, &KIND, 1).is_empty());
    BoardCost { open, ns_per_task, ns_per_copy }
}

/// Bytes of memory per open task with a payload of so many bytes, by the growth of this process.
///
/// # Errors
/// If the system does not tell.
pub fn memory_per_task(tasks: u64, payload: usize) -> io::Result<f64> {
    let resident = || -> io::Result<f64> {
        let text = std::fs::read_to_string("/proc/self/statm")?;
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
        Ok(pages.ok_or_else(|| io::Error::other("/proc/self/statm is not as expected"))? * 4096.0)
    };
    let before = resident()?;
    let mut board = Board::new(BoardConfig::default());
    for id in 0..tasks {
        let payload = vec![b'x'; payload].into();
        let _ = board.submit(Time(0), Task { id: TaskId(id), kind: KIND, priority: 0, payload });
    }
    let after = resident()?;
    drop(board);
    Ok((after - before) / tasks as f64)
}
