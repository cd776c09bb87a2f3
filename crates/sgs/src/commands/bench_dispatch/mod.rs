//! `sgs bench dispatch`: measures how fast tasks are dispatched, by the board alone and over HTTP.

mod load;

use crate::args::BenchDispatchArgs;
use crate::output;
use anyhow::{Context, Result, anyhow};
use load::{BoardCost, DispatchLoad, DispatchSpeed, KIND, board_cost, memory_per_task, run_load};
use serde_json::json;
use sgs_fleet::{AuthToken, BoardConfig, Fleet, FleetError, Service, ServiceConfig, Task, TaskId};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Payload size of a task, in bytes: about a proof with its problem.
const PAYLOAD: usize = 200;

/// Measures, and prints the result.
pub fn run(args: &BenchDispatchArgs) -> Result<()> {
    // Measured first, while the heap has no free pages to reuse.
    let memory = memory_per_task(args.open, PAYLOAD).ok();
    let board = board_cost(args.open)?;
    let service = serve_and_load(args)?;
    if args.json {
        return output::json(&json!({
            "open": args.open, "workers": args.workers, "capacity": args.capacity, "payload": PAYLOAD,
            "bytes_per_open_task": memory, "board": board, "service": service,
        }));
    }
    output::line(text(args, memory, board, service))
}

fn text(args: &BenchDispatchArgs, memory: Option<f64>, board: BoardCost, service: DispatchSpeed) -> String {
    let memory = memory.map_or_else(|| "unknown on this system".to_owned(), |m| format!("{m:.0} bytes"));
    format!(
        "{} open tasks; one of them takes {memory} with {PAYLOAD} bytes of payload\n\
         board alone: {:.0} ns a task, {:.0} ns a second copy\n\
         over HTTP: {} workers and the service in one process, {} tasks a request\n  \
         {:.0} tasks/s leased and reported; lease p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; {} connections broke",
        args.open,
        board.ns_per_task,
        board.ns_per_copy,
        args.workers,
        args.capacity,
        service.tasks_per_s,
        service.lease_p50_ms,
        service.lease_p99_ms,
        service.lease_max_ms,
        service.broken
    )
}

/// Starts a service on loopback, keeps `args.open` tasks open, and measures it under load.
fn serve_and_load(args: &BenchDispatchArgs) -> Result<DispatchSpeed> {
    // As in a run: a worker gets its receipt when the consumer has removed the task.
    let fleet = Fleet::journalled(BoardConfig::default());
    fleet.submit((0..args.open).map(task))?;
    let token = AuthToken::generate()?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = ServiceConfig { listen, token: Some(token.clone()), ..ServiceConfig::default() };
    let service = Service::start(fleet.clone(), config)?;
    let load = DispatchLoad {
        address: service.address(),
        token,
        workers: args.workers,
        capacity: args.capacity,
        length: Duration::from_secs(args.seconds),
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let refill = scope.spawn(|| refill(&fleet, args.open, &stop));
        let measured = run_load(&load);
        stop.store(true, Ordering::Relaxed);
        refill.join().map_err(|_| anyhow!("the thread that submits tasks panicked"))??;
        measured.with_context(|| {
            format!("{} workers cannot connect: give fewer --workers, or raise `ulimit -n`", args.workers)
        })
    })
}

/// Discards results and submits as many new tasks.
fn refill(fleet: &Fleet, open: u64, stop: &AtomicBool) -> Result<(), FleetError> {
    let mut next = open;
    while !stop.load(Ordering::Relaxed) {
        let finished = fleet.take_finished(None, 10_000, Duration::from_millis(200))?;
        let ids: Vec<TaskId> = finished.iter().map(|f| f.task).collect();
        fleet.remove(&ids)?;
        let count = ids.len() as u64;
        fleet.submit((next..next + count).map(task))?;
        next += count;
    }
    Ok(())
}

fn task(id: u64) -> Task {
    let payload = format!("{id:PAYLOAD$}");
    Task { id: TaskId(id), kind: KIND, priority: 0, payload: payload.into() }
}
